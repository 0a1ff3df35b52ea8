"""Names that change with everything that matters, and files that are complete or absent."""

import json
import os
from pathlib import Path
from typing import Any

import pytest
import torch
from known_models import small_network
from torch import Tensor, nn

from locality.robustness.attack_cache import AttackCache, batch_name
from locality.robustness.fingerprint import model_fingerprint


def test_the_fingerprint_sees_weights_buffers_settings_and_code() -> None:
    model: Any = small_network()
    first = model_fingerprint(model)
    channels_last: Any = small_network()
    channels_last.to(memory_format=torch.channels_last)
    assert model_fingerprint(small_network()) == first
    assert model_fingerprint(channels_last) == first
    seen = {first}

    def is_new(other: nn.Module) -> bool:
        found = model_fingerprint(other)
        new = found not in seen
        seen.add(found)
        return new

    with torch.no_grad():
        model[4].weight[0, 0] += 1e-6
    assert is_new(model)
    model[1].running_var[3] += 1e-3
    assert is_new(model)
    assert is_new(small_network().half())
    assert is_new(nn.LeakyReLU(0.1))
    assert is_new(nn.LeakyReLU(0.2))

    def made(factor: int) -> nn.Module:
        if factor == 1:

            class Same(nn.Module):
                def forward(self, images: Tensor) -> Tensor:
                    return images.flatten(1)
        else:

            class Same(nn.Module):  # type: ignore[no-redef]
                def forward(self, images: Tensor) -> Tensor:
                    return images.flatten(1) * 2

        return Same()

    assert is_new(made(1))
    assert is_new(made(2))


def test_a_buffer_that_is_not_saved_counts_and_bfloat16_can_be_read() -> None:
    layer = nn.Linear(2, 2).to(torch.bfloat16)
    layer.register_buffer("mean", torch.zeros(1), persistent=False)
    first = model_fingerprint(layer)
    layer.mean += 1  # type: ignore[operator,assignment]
    assert model_fingerprint(layer) != first


def test_a_batch_s_name_sees_settings_pixels_order_and_labels() -> None:
    images = torch.rand(2, 1, 2, 2)
    settings = {"epsilon": 0.1, "seed": 0}
    name = batch_name(settings, images, ((0,), (1,)))
    assert batch_name(dict(reversed(settings.items())), images.clone(), ((0,), (1,))) == name
    others = [
        batch_name(settings | {"epsilon": 0.1 + 1e-12}, images, ((0,), (1,))),
        batch_name(settings | {"seed": 1}, images, ((0,), (1,))),
        batch_name(settings, images.flip(0), ((0,), (1,))),
        batch_name(settings, images + 1e-7, ((0,), (1,))),
        batch_name(settings, images, ((0,), ())),
        batch_name(settings, images, ((0,), (1, 2))),
        batch_name(settings, images.view(2, 1, 4, 1), ((0,), (1,))),
    ]
    assert len({name, *others}) == 8


def test_saved_is_loaded_and_damaged_is_not(tmp_path: Path) -> None:
    cache = AttackCache(tmp_path / "new" / "folder")
    assert cache.load("a") is None
    cache.save("a", {"numbers": [1, 2]})
    assert cache.load("a") == {"numbers": [1, 2]}
    file = tmp_path / "new/folder/a.json"
    file.write_text(file.read_text()[:-3])
    assert cache.load("a") is None
    cache.save("a", {"numbers": [1, 2]})
    file.write_text(file.read_text().replace("[1, 2]", "[1, 3]"))  # one bit
    assert cache.load("a") is None
    file.write_text("[1]")
    assert cache.load("a") is None


def test_an_interrupted_save_leaves_nothing_and_keeps_the_old(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache = AttackCache(tmp_path)
    cache.save("a", {"old": 1})

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    for module, name in ((json, "dumps"), (os, "fsync"), (os, "replace")):
        with monkeypatch.context() as patch:
            patch.setattr(module, name, interrupted)
            with pytest.raises(KeyboardInterrupt):
                cache.save("a", {"new": 2})
    assert cache.load("a") == {"old": 1}
    assert [path.name for path in tmp_path.iterdir()] == ["a.json"]


def test_no_folder_keeps_nothing_and_a_file_is_no_folder(tmp_path: Path) -> None:
    cache = AttackCache(None)
    cache.save("a", {})
    assert cache.load("a") is None
    (tmp_path / "file").touch()
    with pytest.raises(ValueError, match=r"`store` must be a folder for results, got .*: that is a file"):
        AttackCache(tmp_path / "file")
