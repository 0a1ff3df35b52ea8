import pytest
import torch

from locality.training.schedules import growing, one_cycle


@pytest.mark.parametrize("steps", [7, 40, 333])
def test_one_cycle_is_torchs(steps: int) -> None:
    parameter = torch.nn.Parameter(torch.zeros(1))
    optimizer = torch.optim.SGD([parameter], lr=1.0)
    reference = torch.optim.lr_scheduler.OneCycleLR(optimizer, 1.0, total_steps=steps, cycle_momentum=False)
    for step in range(steps):
        assert one_cycle(step, steps) == pytest.approx(reference.get_last_lr()[0], abs=1e-9)
        optimizer.step()
        if step + 1 < steps:
            reference.step()


def test_growing() -> None:
    assert [growing(epoch, 10, 0.5) for epoch in range(6)] == pytest.approx([0.2, 0.4, 0.6, 0.8, 1, 1])
    assert growing(0, 10, 0.0) == 1
    assert growing(0, 10, 0.05) == 1
