"""timm's own pretrained models, as `timm:NAME`: the weights are read by us, and fetched by us, and only when asked for."""

from __future__ import annotations

import difflib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from locality.errors import ModelError
from locality.torchvision_shim import import_torchvision
from locality.zoo.architectures import class_names, timm_input
from locality.zoo.pixel_model import PixelModel
from locality.zoo.state_dict import check_finite, read_tensors
from locality.zoo.weight_files import cached, fetched, models_folder, not_kept_damaged

HUB = "https://huggingface.co/{repository}/resolve/main/{file}"


def timm_pretrained(
    name: str, download: bool = False, progress: Callable[[int, int | None], None] | None = None
) -> PixelModel:
    """A pretrained model of timm, with timm's own preprocessing.

    Weights that timm or the Hugging Face libraries have fetched before are found where they put them; else they must be in
    our cache, or `download` must say that the network may be used.
    """
    import_torchvision()
    import timm

    configuration = _configuration(name)
    full = f"{configuration.architecture}.{configuration.tag}" if configuration.tag else configuration.architecture
    path, url = _place(full, configuration)
    found = None if cached(path) else _found_elsewhere(configuration)
    with not_kept_damaged(path):
        if found is None:
            found = fetched(f"timm:{full}", url, path, None, download, progress)
        tensors = read_tensors(found)
    with torch.random.fork_rng(devices=[]):
        try:
            # timm brings its published files into the shape of its networks, and loads them strictly.
            overlay = {"state_dict": tensors, "custom_load": False, "source": ""}
            net: Any = timm.create_model(full, pretrained=True, pretrained_cfg_overlay=overlay)
        except (RuntimeError, KeyError, ValueError) as error:
            told = " ".join(str(error).split())[:400]
            raise ModelError(f"`{found}` does not fit timm's {full}: {told}") from error
    net.pretrained_cfg["state_dict"] = None  # or the tensors would be kept twice
    check_finite(net.state_dict(), found)
    spec = timm_input(net, f"timm:{name}")
    return PixelModel(net, replace(spec, classes=class_names(net.num_classes)))


def _configuration(name: str) -> Any:
    import timm

    if not timm.is_model(name):
        near = difflib.get_close_matches(name, timm.list_models(), 1)
        raise ModelError(f"timm has no model `{name}`" + (f": did you mean 'timm:{near[0]}'?" if near else ""))
    try:
        configuration = timm.get_pretrained_cfg(name)
    except RuntimeError:
        configuration = None
    if configuration is None or not (configuration.hf_hub_id or configuration.url):
        there = timm.list_models(f"{name.partition('.')[0]}*", pretrained=True)[:5]
        hint = (
            f"it has {', '.join(f'timm:{other}' for other in there)}"
            if there
            else "train them, and pass the file with `arch`"
        )
        raise ModelError(f"timm has no weights for `{name}`: {hint}")
    return configuration


def _place(full: str, configuration: Any) -> tuple[Path, str]:
    """Where the weights go in the cache, and their address."""
    if configuration.hf_hub_id:
        file = configuration.hf_hub_filename or "model.safetensors"
        url = HUB.format(repository=configuration.hf_hub_id, file=file)
    else:
        url, file = configuration.url, configuration.url.rpartition("/")[2]
    return models_folder() / "timm" / f"{full}{Path(file).suffix}", url


def _found_elsewhere(configuration: Any) -> Path | None:
    """The weights where timm itself would have put them."""
    if configuration.hf_hub_id:
        from huggingface_hub import try_to_load_from_cache

        for file in filter(None, (configuration.hf_hub_filename, "model.safetensors", "pytorch_model.bin")):
            there = try_to_load_from_cache(configuration.hf_hub_id, file)
            if isinstance(there, str):
                return Path(there)
    if configuration.url:
        old = Path(torch.hub.get_dir()) / "checkpoints" / str(configuration.url).rpartition("/")[2]
        if old.is_file():
            return old
    return None
