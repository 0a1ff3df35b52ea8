"""Which offsets `fast` keeps as the best."""

import pytest
import torch
from search_checks import state_of

from locality.boundary.fast.state import crossing_share
from locality.model_calls import open_model


def test_offsets_are_compared_by_where_their_lines_meet_the_boundary() -> None:
    """0.46 beyond a boundary at 0.4 is nearer than 0.45 beyond one at 0.43; a tangent is not trusted far away."""
    value, offset = torch.tensor([-0.06, -0.02, -0.4, -0.1]), torch.tensor([0.46, 0.45, 0.5, 0.5]).view(4, 1, 1, 1)
    gradient = torch.tensor([-1.0, -1.0, -1.0, 1.0]).view(4, 1, 1, 1)
    share = crossing_share(value, gradient, offset)
    assert (share * offset.flatten()).tolist() == pytest.approx([0.4, 0.43, 0.5, 0.5])


def test_a_longer_offset_wins_where_its_line_meets_the_boundary_sooner() -> None:
    images = torch.zeros(1, 1, 1, 2)
    with open_model(torch.nn.Flatten(), images) as calls:
        state = state_of(calls, images)
    chosen, gradient = torch.tensor([0]), torch.tensor([-1.0, 0.0]).view(1, 1, 1, 2)

    def kept(length: float, value: float, rival_share: float = 1.0) -> bool:
        offset = torch.tensor([length, 0.0]).view(1, 1, 1, 2)
        logits = torch.tensor([[value, 0.0]])
        return bool(state.keep_shorter(chosen, offset, logits, gradient, torch.tensor([rival_share])))

    assert kept(0.45, -0.02)
    assert kept(0.46, -0.06)
    assert not kept(0.44, -0.01)
    assert not kept(0.45, -0.3)  # the tangent is not trusted that far
    assert not kept(0.45, -0.06, rival_share=0.5)
    assert state.best_distance.item() == pytest.approx(0.4)
    # The offset itself, across for certain; `find_boundary` bisects it.
    assert state.best_offset.flatten().tolist() == pytest.approx([0.46, 0.0])


def test_a_point_that_is_across_by_rounding_alone_is_not_kept() -> None:
    images = torch.zeros(1, 1, 1, 2)
    with open_model(torch.nn.Flatten(), images) as calls:
        state = state_of(calls, images)
    offset, gradient = torch.tensor([0.4, 0.0]).view(1, 1, 1, 2), torch.tensor([-1.0, 0.0]).view(1, 1, 1, 2)
    for across, kept in ((1e-6, False), (1e-4, True)):
        logits = torch.tensor([[1.0, 1.0 + across]])
        assert state.keep_shorter(torch.tensor([0]), offset, logits, gradient, torch.ones(1)).item() is kept
