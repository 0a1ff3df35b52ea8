"""Soft labels against numbers written out by hand, and for every kind of preferences."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from locality.training.soft_labels import label_divergence, label_table

FINITE = st.floats(0, 1e30, allow_subnormal=True)


@st.composite
def preferences(draw: st.DrawFn) -> Tensor:
    classes = draw(st.integers(2, 12))
    return torch.tensor(draw(st.lists(FINITE, min_size=classes, max_size=classes)), dtype=torch.float32)


@given(preferences(), st.floats(0, 1))
def test_rows_are_distributions_with_the_true_mass_on_the_diagonal(values: Tensor, true_mass: float) -> None:
    table = label_table(values, true_mass)
    assert torch.isfinite(table).all()
    assert (table >= 0).all()
    assert torch.allclose(table.sum(1), torch.ones(len(values)), atol=1e-5)
    assert torch.allclose(table.diag(), torch.full((len(values),), true_mass), atol=1e-6)


@given(preferences(), st.floats(0.0, 0.9))
def test_other_classes_share_in_proportion(values: Tensor, true_mass: float) -> None:
    table = label_table(values, true_mass).double()
    for label in range(len(values)):
        others = [other for other in range(len(values)) if other != label]
        wanted = values[others].double()
        if wanted.sum() > 0:
            assert torch.allclose(table[label, others], (1 - true_mass) * wanted / wanted.sum(), atol=1e-5)
        else:
            assert torch.allclose(table[label, others], torch.full_like(wanted, (1 - true_mass) / len(others)), atol=1e-5)


def test_a_row_per_label() -> None:
    values = torch.tensor([[9.0, 1.0, 3.0], [2.0, 9.0, 2.0], [0.0, 0.0, 9.0]])
    expected = torch.tensor([[0.2, 0.2, 0.6], [0.4, 0.2, 0.4], [0.4, 0.4, 0.2]])  # the last has no preference
    assert torch.allclose(label_table(values, 0.2), expected)


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([7.0, 7.0], [[0.5, 0.5], [0.5, 0.5]]),  # equal, two classes
        ([0.0, 0.0, 0.0], [[0.5, 0.25, 0.25], [0.25, 0.5, 0.25], [0.25, 0.25, 0.5]]),
        ([0.0, 0.0, 4.0], [[0.5, 0.0, 0.5], [0.0, 0.5, 0.5], [0.25, 0.25, 0.5]]),  # one class stands out
    ],
)
def test_where_a_plain_quotient_is_0_over_0(values: list[float], expected: list[list[float]]) -> None:
    assert torch.allclose(label_table(torch.tensor(values), 0.5), torch.tensor(expected))


def test_the_divergence_from_labels() -> None:
    """KL((1/2, 1/2) ‖ (1/4, 3/4)) = log(2/√3); a class without mass adds nothing."""
    logits = torch.tensor([[0.25, 0.75]]).log()
    assert float(label_divergence(torch.tensor([[0.5, 0.5]]), logits)) == pytest.approx(0.143841, abs=1e-5)
    assert float(label_divergence(torch.tensor([[1.0, 0.0]]), logits)) == pytest.approx(math.log(4))
