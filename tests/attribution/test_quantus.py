"""`explain` inside Quantus' own metrics: the maps it makes there are ours."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from locality.attribution import explain, method


@pytest.fixture(scope="module")
def quantus() -> ModuleType:
    import quantus

    return quantus


def asked(images: Tensor, **options: Any) -> dict[str, Any]:
    """What every metric is called with."""
    classes = np.arange(len(images)) % 5
    return {
        "x_batch": images.numpy(),
        "y_batch": classes,
        "device": "cpu",
        "explain_func": explain,
        "batch_size": 3,
    } | options


@pytest.mark.parametrize("name", ["SM", "BIG"])
def test_a_metric_that_scores_the_maps(quantus: ModuleType, network: nn.Module, images: Tensor, name: str) -> None:
    masks = np.zeros((7, 1, 12, 12), dtype=bool)
    masks[:, :, 3:9, 2:10] = True

    def one_channel(*args: Any, **options: Any) -> np.ndarray:  # what Quantus' localisation metrics need
        maps: np.ndarray = explain(*args, **options).sum(1, keepdims=True)
        return maps

    metric = quantus.RelevanceMassAccuracy(abs=True, disable_warnings=True)
    options = asked(images, explain_func=one_channel, explain_func_kwargs={"method": name}, s_batch=masks)
    found = metric(model=network, **options)
    maps = method(name)(network).attribute(images, target=torch.as_tensor(options["y_batch"]))
    weights = maps.sum(1, keepdim=True).abs()
    expected = (weights * torch.as_tensor(masks)).sum((1, 2, 3)) / weights.sum((1, 2, 3))
    assert np.asarray(found) == pytest.approx(expected.numpy(), abs=1e-4)


def test_a_metric_that_asks_again_with_noise(quantus: ModuleType, network: nn.Module, images: Tensor) -> None:
    """Sensitivity metrics call `explain_func` for noisy inputs, which leave [0, 1]: `bounds=None` allows them."""
    metric = quantus.MaxSensitivity(nr_samples=2, lower_bound=0.5, disable_warnings=True)
    found = metric(model=network, **asked(images, explain_func_kwargs={"method": "SM", "bounds": None}))
    assert len(found) == 7
    assert np.isfinite(found).all()
    assert min(found) > 0


def test_a_metric_that_asks_the_model(quantus: ModuleType, network: nn.Module, images: Tensor) -> None:
    metric = quantus.FaithfulnessCorrelation(
        nr_runs=10, subset_size=64, perturb_baseline="black", return_aggregate=False, disable_warnings=True
    )
    before = {name: value.clone() for name, value in network.state_dict().items()}
    found = metric(model=network, **asked(images, explain_func_kwargs={"method": "InputXGradient"}))
    assert len(found) == 7
    assert (np.abs(found) <= 1).all()
    for name, value in network.state_dict().items():
        assert torch.equal(value, before[name])
