"""Images with their boxes as small pictures, for notebooks and contact sheets. Pillow is imported where needed."""

from __future__ import annotations

import base64
import io
from collections.abc import Iterable, Sequence
from html import escape
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from PIL.Image import Image
    from torch import Tensor

BOX_COLOUR = (255, 140, 0)
SIDE = 112  # pixels of a picture in a notebook


def boxed_picture(image: Tensor, boxes: Iterable[Any], side: int) -> Image:
    """The image, 3×H×W in [0, 1], scaled into a square of `side` pixels, with its boxes."""
    import numpy as np
    from PIL import Image as Images
    from PIL import ImageDraw

    pixels = (image.detach().cpu() * 255).round().byte().permute(1, 2, 0).numpy()
    picture = Images.fromarray(np.ascontiguousarray(pixels))
    scale = side / max(picture.size)
    # Small images are not smoothed: that would hide what the model sees.
    resampling = Images.Resampling.NEAREST if scale > 1 else Images.Resampling.LANCZOS
    picture = picture.resize((max(1, round(picture.width * scale)), max(1, round(picture.height * scale))), resampling)
    draw = ImageDraw.Draw(picture)
    for box in boxes:
        x0, y0 = box.x0 * scale, box.y0 * scale
        corners = [x0, y0, max(x0, box.x1 * scale - 1), max(y0, box.y1 * scale - 1)]
        draw.rectangle(corners, outline=(0, 0, 0), width=3)
        draw.rectangle(corners, outline=BOX_COLOUR, width=2)
    return picture


def png_address(picture: Image) -> str:
    """The picture as a data address, for HTML."""
    buffer = io.BytesIO()
    picture.save(buffer, "PNG", optimize=True)
    return f"data:image/png;base64,{base64.b64encode(buffer.getvalue()).decode()}"


def pictures_html(title: str, images: Sequence[tuple[Tensor, Iterable[Any], str]]) -> str:
    """A title, and images side by side, each with its boxes and a caption; names are escaped."""
    tiles = "".join(
        '<figure style="display: inline-block; margin: 4px; max-width: 120px; vertical-align: top">'
        f'<img src="{png_address(boxed_picture(image, boxes, SIDE))}" alt="{escape(caption)}">'
        f'<figcaption style="font-size: 80%; overflow-wrap: anywhere">{escape(caption)}</figcaption></figure>'
        for image, boxes, caption in images
    )
    return f"<div><p>{escape(title)}</p>{tiles}</div>"
