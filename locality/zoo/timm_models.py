"""timm's pretrained models as `timm:NAME`. Weights are downloaded and read by locality, never by timm."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from locality.errors import ModelError
from locality.progress import Progress, no_progress
from locality.zoo.architectures import class_names, timm_input, unknown_timm_model
from locality.zoo.pixel_model import PixelModel
from locality.zoo.preprocessing import all_from
from locality.zoo.state_dict import check_finite, read_tensors
from locality.zoo.weight_files import cached, cached_or_fetched, delete_if_damaged, models_folder

HUB = "https://huggingface.co/{repository}/resolve/main/{file}"


def timm_pretrained(
    name: str, download: bool = False, progress: Progress = no_progress, trust_first: bool = False
) -> PixelModel:
    """A pretrained model of timm, with timm's own preprocessing.

    Weights are taken from the caches of timm and Hugging Face, or from our own; with `download` they may be fetched,
    for the first time only with `trust_first`: timm publishes no checksums.
    """
    import timm

    configuration = _configuration(name)
    full = f"{configuration.architecture}.{configuration.tag}" if configuration.tag else configuration.architecture
    path, url = _cache_path(full, configuration)
    weights = None if cached(path) else _cached_by_timm(configuration)
    with delete_if_damaged(path):
        if weights is None:
            weights = cached_or_fetched(f"timm:{full}", url, path, None, download, progress, trust_first)
        tensors = read_tensors(weights)
    with torch.random.fork_rng(devices=[]):
        try:
            # timm adapts its published files to its networks, and loads them strictly.
            overlay = {"state_dict": tensors, "custom_load": False, "source": ""}
            net: Any = timm.create_model(full, pretrained=True, pretrained_cfg_overlay=overlay)
        except (RuntimeError, KeyError, ValueError) as error:
            reason = " ".join(str(error).split())[:400]
            raise ModelError(f"`{weights}` does not fit timm's {full}: {reason}") from error
    net.pretrained_cfg["state_dict"] = None  # or the tensors would be in memory twice
    check_finite(net.state_dict(), weights)
    spec = timm_input(net, f"timm:{name}")
    origin = all_from("as timm publishes it with these weights")
    return PixelModel(net, replace(spec, classes=class_names(net.num_classes)), origin)


def _configuration(name: str) -> Any:
    import timm

    if not timm.is_model(name):
        raise unknown_timm_model(name)
    try:
        configuration = timm.get_pretrained_cfg(name)
    except RuntimeError:
        configuration = None
    if configuration is None or not (configuration.hf_hub_id or configuration.url):
        others = timm.list_models(f"{name.partition('.')[0]}*", pretrained=True)[:5]
        hint = (
            f"it has {', '.join(f'timm:{other}' for other in others)}"
            if others
            else "train them, and pass the file with `arch`"
        )
        raise ModelError(f"timm has no weights for `{name}`: {hint}")
    return configuration


def _cache_path(full: str, configuration: Any) -> tuple[Path, str]:
    """The weights' path in our cache, and their address."""
    if configuration.hf_hub_id:
        file = configuration.hf_hub_filename or "model.safetensors"
        url = HUB.format(repository=configuration.hf_hub_id, file=file)
    else:
        url, file = configuration.url, configuration.url.rpartition("/")[2]
    return models_folder() / "timm" / f"{full}{Path(file).suffix}", url


def _cached_by_timm(configuration: Any) -> Path | None:
    """The weights in the caches of timm and Hugging Face."""
    if configuration.hf_hub_id:
        from huggingface_hub import try_to_load_from_cache

        for file in filter(None, (configuration.hf_hub_filename, "model.safetensors", "pytorch_model.bin")):
            path = try_to_load_from_cache(configuration.hf_hub_id, file)
            if isinstance(path, str):
                return Path(path)
    if configuration.url:
        old = Path(torch.hub.get_dir()) / "checkpoints" / str(configuration.url).rpartition("/")[2]
        if old.is_file():
            return old
    return None
