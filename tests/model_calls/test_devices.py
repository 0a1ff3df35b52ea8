"""A model moves to a device as a copy; the caller's stays where it is."""

import torch
from torch import nn

from locality.model_calls.devices import on_device


def test_without_a_device_the_model_stays() -> None:
    model = nn.Linear(2, 2)
    assert on_device(model, None, torch.device("meta")) == (model, torch.device("cpu"))
    assert on_device(nn.Flatten(), None, torch.device("meta"))[1] == torch.device("meta")


def test_another_device_gets_a_copy() -> None:
    model = nn.Linear(2, 2)
    moved, device = on_device(model, "meta", torch.device("cpu"))
    assert device == torch.device("meta")
    assert isinstance(moved, nn.Linear)
    assert moved.weight.device == torch.device("meta")
    assert model.weight.device == torch.device("cpu")
    assert on_device(model, "cpu", torch.device("meta"))[0] is model
