"""Image classifiers of Hugging Face: `hf:ORG/NAME`, and folders as `save_pretrained` writes them.

Files are read by locality: weights from safetensors alone, settings as JSON. transformers builds the network from its own
classes and renames the tensors; it reads no file, and code of the folder is never run.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import replace
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from locality.errors import DamagedFileError, MissingWeightsError, ModelError
from locality.files import file_hash
from locality.imagenet_classes import class_word, imagenet_wnids
from locality.toml_settings import read_json
from locality.zoo.hugging_face_processor import processor_input
from locality.zoo.pixel_model import PixelModel
from locality.zoo.preprocessing import all_from
from locality.zoo.state_dict import check_finite, read_tensors

PREFIX = "hf:"
CONFIG, WEIGHTS, INDEX, PICKLED = "config.json", "model.safetensors", "model.safetensors.index.json", "pytorch_model.bin"
PROCESSORS = ("preprocessor_config.json", "processor_config.json")  # the latter holds it as "image_processor"
MAX_CONFIG_BYTES = 10_000_000  # 21,841 labels take 1.6 MB
SHA256_LENGTH = 64  # the Hub's cache names a file of weights by its sha256
# Settings that make transformers load something else than the folder's own tensors.
REFUSED = ("quantization_config", "backbone", "use_pretrained_backbone")
MULTI_LABEL = "multi_label_classification"


def from_hub(name: str, download: bool = False) -> PixelModel:
    """`hf:ORG/NAME` or `hf:ORG/NAME@REVISION`, from the Hub's cache on this machine, or with `download` from the Hub."""
    _check_installed(name)
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HFValidationError, LocalEntryNotFoundError

    repository, _, revision = name.removeprefix(PREFIX).partition("@")
    patterns = [CONFIG, *PROCESSORS, "*.safetensors", INDEX]
    try:
        folder = snapshot_download(
            repository, revision=revision or None, allow_patterns=patterns, local_files_only=not download
        )
    except HFValidationError as error:
        raise ModelError(f"`{name}` is not hf:ORG/NAME: {error}") from error
    except LocalEntryNotFoundError as error:
        if download:
            raise ModelError(f"`{name}` cannot be downloaded: the Hub of Hugging Face cannot be reached") from error
        raise MissingWeightsError(
            f"`{name}` is not in the cache of Hugging Face on this machine: download it with `locality models fetch {name}` "
            "(or --download), or pass the path of its folder"
        ) from error
    except OSError as error:  # what the Hub answers
        raise ModelError(f"`{name}` cannot be downloaded: {str(error).partition(chr(10))[0]}") from error
    _check_hashes(Path(folder))
    return from_folder(Path(folder), name)


def from_folder(folder: Path, name: str | None = None) -> PixelModel:
    """The image classifier in a folder, with its own preprocessing and labels."""
    name = name or folder.name
    if not (folder / CONFIG).is_file():
        raise ModelError(f"`{folder}` is a folder without {CONFIG}: pass a checkpoint, or a folder of Hugging Face")
    _check_installed(name)
    settings = _settings(folder / CONFIG)
    tensors = _tensors(folder)
    transformers: Any = import_module("transformers")
    config, kind = _classes(transformers, settings, folder, len(tensors))
    with _quiet(transformers), torch.random.fork_rng(devices=[]):
        try:
            net, info = kind.from_pretrained(
                None,
                config=config,
                state_dict=tensors,
                output_loading_info=True,
                attn_implementation="eager",  # never what the config names, which may be code of the Hub
                dtype=torch.float32,
            )
        except (RuntimeError, ValueError, TypeError, KeyError, ImportError, OSError) as error:
            raise ModelError(f"`{folder}` does not fit {kind.__name__}: {' '.join(str(error).split())[:400]}") from error
    _check_loaded(info, folder, kind.__name__)
    check_finite(net.state_dict(), folder)
    spec, source = processor_input(transformers, config, _processor_settings(folder), name)
    return PixelModel(net, replace(spec, classes=_labels(settings, config.num_labels)), all_from(source))


def is_multi_label(model: PixelModel) -> bool:
    """Whether the configuration of a Hugging Face network says that several labels may be present at once."""
    return getattr(getattr(model.net, "config", None), "problem_type", None) == MULTI_LABEL


def _check_installed(name: str) -> None:
    if find_spec("transformers") is None:
        raise ModelError(f"`{name}` needs the Python package transformers: pip install 'locality[hf]'")


def _settings(path: Path) -> dict[str, Any]:
    try:
        settings = read_json(path, MAX_CONFIG_BYTES)
    except (OSError, ValueError) as error:
        raise ModelError(f"`{path}` cannot be read: {error}") from error
    if not isinstance(settings, dict):
        raise ModelError(f"`{path}` must be a table of settings, got {type(settings).__name__}")
    return settings


def _processor_settings(folder: Path) -> dict[str, Any] | None:
    for file in PROCESSORS:
        if (folder / file).is_file():
            settings = _settings(folder / file)
            if file == PROCESSORS[0] or isinstance(settings.get("image_processor"), dict):
                return settings if file == PROCESSORS[0] else settings["image_processor"]
    return None


def _classes(transformers: Any, settings: dict[str, Any], folder: Path, tensors: int) -> tuple[Any, Any]:
    """The configuration, and the class of transformers that it belongs to."""
    path = folder / CONFIG
    for key in REFUSED:
        if settings.get(key):
            raise ModelError(f"`{path}` sets {key}, which loads more than the tensors of the folder: it is refused")
    kind = settings.get("model_type")
    if kind == "timm_wrapper" or (kind is None and "architecture" in settings):
        raise ModelError(f"`{path}` describes a network of timm: pass timm:NAME, or its file with --arch timm:NAME")
    classifiers = transformers.models.auto.modeling_auto.MODEL_FOR_IMAGE_CLASSIFICATION_MAPPING_NAMES
    if not isinstance(kind, str) or kind not in classifiers:
        own = " (it brings its own code, which is never run)" if "auto_map" in settings else ""
        raise ModelError(f"`{path}` must have the model_type of an image classifier of transformers, got {kind!r}{own}")
    depth = settings.get("num_hidden_layers"), *_numbers(settings.get("depths"))
    if any(isinstance(number, int) and number > tensors for number in depth):
        raise ModelError(f"`{path}` names {max(filter(None, depth)):,} layers, but the weights have {tensors:,} tensors")
    try:
        config = transformers.CONFIG_MAPPING[kind].from_dict({k: v for k, v in settings.items() if k != "auto_map"})
    except Exception as error:  # its checks raise errors of many kinds
        raise ModelError(f"`{path}` is no configuration of {kind}: {' '.join(str(error).split())[:400]}") from error
    found = transformers.MODEL_FOR_IMAGE_CLASSIFICATION_MAPPING[type(config)]
    return config, found[0] if isinstance(found, tuple) else found


def _numbers(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


def _tensors(folder: Path) -> dict[str, Tensor]:
    """The tensors of the folder's safetensors, one file or several."""
    if (folder / WEIGHTS).is_file():
        return _safetensors(folder / WEIGHTS)
    if (folder / INDEX).is_file():
        parts = _settings(folder / INDEX).get("weight_map")
        names = sorted({str(name) for name in parts.values()}) if isinstance(parts, dict) else []
        if not names or any(Path(name).name != name for name in names):
            raise ModelError(f"`{folder / INDEX}` must map tensors to files of its folder")
        tensors: dict[str, Tensor] = {}
        for name in names:
            tensors |= _safetensors(folder / name)
        return tensors
    if (folder / PICKLED).is_file():
        raise ModelError(
            f"`{folder}` has pickled weights, which are not opened: `locality models convert {folder / PICKLED} --out "
            f"{folder / WEIGHTS}` writes safetensors"
        )
    raise ModelError(f"`{folder}` has no {WEIGHTS}")


def _safetensors(path: Path) -> dict[str, Tensor]:
    if path.suffix != ".safetensors" or not path.is_file():
        raise ModelError(f"`{path}` must be a file of safetensors: is the folder complete?")
    with path.open("rb") as file:
        if file.read(9)[8:] != b"{":
            raise DamagedFileError(f"`{path}` is not a file of safetensors")
    return read_tensors(path)


def _check_hashes(folder: Path) -> None:
    """Raise if a file of weights in the Hub's cache does not have the sha256 that the Hub published for it."""
    for path in folder.glob("*.safetensors"):
        published = path.resolve().name
        if len(published) == SHA256_LENGTH and file_hash(path.resolve()) != published:
            raise DamagedFileError(
                f"`{path}` must have sha256 {published[:16]}: it is damaged; delete it and download it again"
            )


def _check_loaded(info: Mapping[str, Any], folder: Path, network: str) -> None:
    complaints = {
        "missing": sorted(map(str, info["missing_keys"])),
        "unexpected": sorted(map(str, info["unexpected_keys"])),
        "of another shape": sorted(str(key) for key in info["mismatched_keys"]),
    }
    reasons = [f"{len(names)} {what}: {', '.join(names[:5])}" for what, names in complaints.items() if names]
    if reasons:
        raise ModelError(f"the tensors of `{folder}` do not fit {network}: {'; '.join(reasons)}")


def _labels(settings: Mapping[str, Any], count: int) -> tuple[str, ...]:
    """The labels in the order of the logits; WordNet ids if they are ImageNet's; none where the configuration names none."""
    table = settings.get("id2label")
    if not isinstance(table, dict):
        return ()
    labels = tuple(str(table.get(str(index), "")) for index in range(count))
    if not all(labels) or all(label == f"LABEL_{index}" for index, label in enumerate(labels)):
        return ()
    if count == 1:
        return (f"not {labels[0]}", labels[0])
    if count == 1000:
        words = [class_word(wnid).lower() for wnid in imagenet_wnids()]
        same = sum(label.partition(",")[0].lower() == word for label, word in zip(labels, words, strict=True))
        if same > 0.9 * count or labels == imagenet_wnids():
            return imagenet_wnids()
    return labels


@contextlib.contextmanager
def _quiet(transformers: Any) -> Iterator[None]:
    """No progress bars and reports of transformers: what is wrong is an error of ours."""
    logging = transformers.utils.logging
    level, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity(logging.CRITICAL)
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(level)
        if bars:
            logging.enable_progress_bar()
