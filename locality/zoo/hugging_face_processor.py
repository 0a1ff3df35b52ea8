"""The preprocessing of a Hugging Face image processor as a ModelSpec."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

from locality.errors import ModelError
from locality.types import Interpolation, ModelSpec

# Pillow's numbers of filters. Lanczos is close to bicubic.
FILTERS: dict[int, Interpolation] = {1: "bicubic", 2: "bilinear", 3: "bicubic"}
LARGEST_SIDE = 4096
WARPED_FROM = 384  # ConvNeXt's processor stretches images to this size or larger, and crops smaller ones
LEVIT_RATIO = 256 / 224  # LeViT's processor resizes to this multiple of its size


def processor_input(transformers: Any, config: Any, settings: Mapping[str, Any] | None, name: str) -> tuple[ModelSpec, str]:
    """The spec of the processor with these settings, without classes, and where it comes from.

    Settings that the file leaves out are those of the processor's class. Without a file they are all the class's.
    """
    source = (
        "from its image processor" if settings is not None else f"guessed from the usual processor of {config.model_type}"
    )
    kind = _processor_class(transformers, config, settings or {})
    values = {key: value for key, value in (settings or {}).items() if key != "auto_map"}
    try:
        processor = kind.from_dict(values)
    except Exception as error:  # its checks raise errors of many kinds
        raise ModelError(f"the image processor of `{name}` cannot be used: {' '.join(str(error).split())[:300]}") from error
    if settings is None and isinstance(getattr(config, "image_size", None), int):
        processor.size = {"height": config.image_size, "width": config.image_size}
    if getattr(processor, "do_flip_channel_order", False):
        raise ModelError(f"the image processor of `{name}` reverses the colour channels, which locality does not")
    if getattr(processor, "do_pad", False):
        raise ModelError(f"the image processor of `{name}` pads images, which locality does not")
    size, resize = _sizes(processor, kind.__name__, config, name)
    if not 1 <= min(size) <= max(size) <= LARGEST_SIDE:
        raise ModelError(f"the image processor of `{name}` must have sides from 1 to {LARGEST_SIDE} pixels, got {size}")
    filter_number = int(getattr(processor, "resample", None) or 0)
    if filter_number not in FILTERS:
        raise ModelError(
            f"the image processor of `{name}` resizes with filter {filter_number}: expected bilinear or bicubic"
        )
    mean, std = _normalisation(processor)
    return ModelSpec(name, size, resize, FILTERS[filter_number], mean, std), source


def _processor_class(transformers: Any, config: Any, settings: Mapping[str, Any]) -> Any:
    auto = transformers.models.auto.image_processing_auto
    named = settings.get("image_processor_type") or settings.get("feature_extractor_type")
    if isinstance(named, str):
        plain = named.removesuffix("Fast").replace("FeatureExtractor", "ImageProcessor")
        kind = auto.get_image_processor_class_from_name(plain)
        if kind is not None:
            return kind
    try:
        kinds = auto.IMAGE_PROCESSOR_MAPPING[type(config)]
    except KeyError:
        kinds = auto.IMAGE_PROCESSOR_MAPPING[transformers.ViTConfig]
    return kinds["torchvision"] if isinstance(kinds, Mapping) else kinds


def _sizes(processor: Any, kind: str, config: Any, name: str) -> tuple[tuple[int, int], int | None]:
    """Height and width of what the network gets, and the short side before the crop; None where images are stretched."""
    crop = _sides(getattr(processor, "crop_size", None)) if getattr(processor, "do_center_crop", False) else None
    if not getattr(processor, "do_resize", True):
        whole = crop or _sides(getattr(config, "image_size", None))
        if whole is None:
            raise ModelError(f"the image processor of `{name}` must name a size")
        return whole, max(whole)
    size = getattr(processor, "size", None)
    edge, sides = _part(size, "shortest_edge"), _sides(size)
    ratio = getattr(processor, "crop_pct", None) if kind.startswith("ConvNext") else None
    if edge is not None and ratio is not None:
        return (edge, edge), (int(edge / ratio) if edge < WARPED_FROM else None)
    if edge is not None:
        edge = int(LEVIT_RATIO * edge) if kind.startswith("Levit") else edge
        whole = crop or (edge, edge)
        return whole, max(edge, *whole)
    if sides is None:
        raise ModelError(f"the image processor of `{name}` must have a size of height and width, or of the shortest edge")
    if crop is None or crop == sides:
        return sides, None
    warnings.warn(
        f"the image processor of `{name}` stretches images to {sides[0]}×{sides[1]} before it crops them: here they "
        "keep their proportions",
        stacklevel=2,
    )
    return crop, max(*sides, *crop)


def _part(size: Any, name: str) -> int | None:
    value = size.get(name) if isinstance(size, Mapping) else getattr(size, name, None)
    return int(value) if value else None


def _sides(size: Any) -> tuple[int, int] | None:
    if isinstance(size, int):
        return size, size
    if isinstance(size, list | tuple) and len(size) == 2:
        return int(size[0]), int(size[1])
    height, width = _part(size, "height"), _part(size, "width")
    return None if height is None or width is None else (height, width)


def _normalisation(processor: Any) -> tuple[tuple[float, float, float], tuple[float, float, float]]:
    """Mean and standard deviation for pixels in [0, 1]. The processor multiplies 8-bit levels, and may subtract 1."""
    scale = 255 * float(processor.rescale_factor) if getattr(processor, "do_rescale", True) else 255.0
    shift = 1.0 if getattr(processor, "rescale_offset", False) else 0.0
    mean, std = (0.0, 0.0, 0.0), (1.0, 1.0, 1.0)
    if getattr(processor, "do_normalize", True):
        mean, std = (_three(values) for values in (processor.image_mean, processor.image_std))
    if getattr(processor, "include_top", False):  # EfficientNet's divides by the standard deviation a second time
        red, green, blue = std
        std = (red * red, green * green, blue * blue)
    red, green, blue = ((value + shift) / scale for value in mean)
    red_std, green_std, blue_std = (value / scale for value in std)
    return (red, green, blue), (red_std, green_std, blue_std)


def _three(values: Any) -> tuple[float, float, float]:
    numbers = [float(value) for value in values] if isinstance(values, list | tuple) else [float(values)]
    red, green, blue = numbers * 3 if len(numbers) == 1 else numbers
    return red, green, blue
