"""Sorting with what lies inside, and ties in expectation, against every way to break them."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from torch import Tensor

from locality.scores.ranking import ranking

FEW = arrays(np.float32, (1, 6), elements=st.integers(-2, 2).map(float)).map(torch.from_numpy)
INSIDE = arrays(np.bool_, (1, 6)).map(torch.from_numpy)
quickly = settings(max_examples=30, deadline=None)


def test_the_fast_sort_is_a_sort() -> None:
    generator = torch.Generator().manual_seed(0)
    values = torch.randn(4, 5000, generator=generator) * 10 ** torch.randint(-44, 38, (4, 5000), generator=generator).float()
    values[:, :3] = torch.tensor([3.4e38, -3.4e38, 1e-45])
    values = values[:, torch.randperm(5000, generator=generator)]
    inside = torch.rand(4, 5000, generator=generator) < 0.3
    fast = ranking(values, inside)
    assert torch.equal(-fast.keys, values.sort(dim=1, descending=True).values)
    for row in range(4):
        pairs = zip(values[row].tolist(), inside[row].tolist(), strict=True)
        assert sorted(zip((-fast.keys[row]).tolist(), fast.inside[row].tolist(), strict=True)) == sorted(pairs)
    assert torch.equal(fast.hits[:, 1:], fast.inside.long().cumsum(1))
    assert fast.hits.dtype == torch.int64


def test_the_other_sort_says_the_same() -> None:
    generator = torch.Generator().manual_seed(1)
    values = torch.randint(-30, 30, (3, 200), generator=generator).float()
    inside = torch.rand(3, 200, generator=generator) < 0.5
    fast, plain = ranking(values, inside), ranking(values.double(), inside)
    assert plain.keys.dtype == torch.float64
    assert torch.equal(fast.keys.double(), plain.keys)
    count = torch.tensor([7, 100, 180])
    assert torch.allclose(fast.expected_hits(count).double(), plain.expected_hits(count))
    for one, other in zip(fast.ties(), plain.ties(), strict=True):
        assert torch.equal(one, other)
    thresholds = torch.tensor([[-3.0, 3.5], [0.0, 29.0], [-99.0, 99.0]])
    expected = (values[:, :, None] > thresholds[:, None]).sum(1)
    assert torch.equal(fast.above(thresholds), expected)
    assert torch.equal(plain.above(thresholds.double()), expected)


def test_the_callers_values_stay() -> None:
    values, inside = torch.randn(2, 50), torch.rand(2, 50) < 0.5
    before = values.clone()
    ranking(values, inside)
    assert torch.equal(values, before)


@quickly
@given(values=FEW, inside=INSIDE, count=st.integers(1, 6))
def test_ties_are_broken_in_expectation(values: Tensor, inside: Tensor, count: int) -> None:
    tried = []
    for order in itertools.permutations(range(6)):
        best = sorted(order, key=lambda index: -values[0, index].item())[:count]  # stable: equal ones stay in this order
        tried.append(sum(inside[0, index].item() for index in best))
    assert ranking(values, inside).expected_hits(torch.tensor([count])).item() == pytest.approx(np.mean(tried), abs=1e-5)


@quickly
@given(values=arrays(np.float32, (3, 6), elements=st.integers(-4, 4).map(float)).map(torch.from_numpy))
def test_equal_attributions_know_each_other(values: Tensor) -> None:
    ranked = ranking(values, values > 0)
    expected = []
    for row, keys in enumerate(ranked.keys.tolist()):
        for rank, key in enumerate(keys):
            equal = [other for other, found in enumerate(keys) if found == key]
            expected += [(row, rank, min(equal), max(equal))] if len(equal) > 1 else []
    assert list(zip(*(part.tolist() for part in ranked.ties()), strict=True)) == expected


def test_zero_has_no_sign() -> None:
    ranked = ranking(torch.tensor([[-0.0, 1.0, 0.0]]), torch.tensor([[True, False, False]]))
    assert ranked.expected_hits(torch.tensor([2])).item() == 0.5
    assert ranked.ties().ranks.tolist() == [1, 2]
