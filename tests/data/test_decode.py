import io

import numpy as np
import pytest
import torch
from PIL import Image

from locality.data.decode import decode_image, image_size
from locality.errors import DataError


def encoded(picture: Image.Image, form: str = "PNG", **options: object) -> bytes:
    buffer = io.BytesIO()
    picture.save(buffer, form, **options)
    return buffer.getvalue()


RAMP = np.tile(np.arange(0, 250, 10, dtype=np.uint8), (20, 1))  # 20×25


@pytest.mark.parametrize("mode", ["L", "LA", "P", "RGBA", "1"])
def test_every_kind_is_read_as_rgb(mode: str) -> None:
    picture = Image.fromarray(np.stack([RAMP, RAMP[::-1], 255 - RAMP], axis=-1)).convert(mode)
    pixels = decode_image(encoded(picture))
    assert pixels.shape == (3, 20, 25)
    assert pixels.dtype == torch.uint8
    assert np.array_equal(pixels.permute(1, 2, 0).numpy(), np.asarray(picture.convert("RGB")))


def test_sixteen_bits_become_eight_and_are_not_clipped_to_white() -> None:
    pixels = decode_image(encoded(Image.fromarray(RAMP.astype(np.uint16) * 256 + 77)))
    assert np.array_equal(pixels[0].numpy(), RAMP)
    assert torch.equal(pixels[0], pixels[2])


def test_cmyk_jpeg_and_transparent_palette() -> None:
    red = Image.new("RGB", (16, 16), (250, 10, 20))
    pixels = decode_image(encoded(red.convert("CMYK"), "JPEG", quality=95))
    assert pixels[:2].float().mean((1, 2)).tolist() == pytest.approx([250, 10], abs=4)
    palette = red.convert("P")
    pixels = decode_image(encoded(palette, transparency=bytes(range(256))))
    assert tuple(pixels[:, 0, 0].tolist()) == palette.convert("RGB").getpixel((0, 0))


def test_an_animation_is_its_first_frame() -> None:
    frames = [Image.new("RGB", (8, 8), colour) for colour in ("red", "blue")]
    pixels = decode_image(encoded(frames[0], "GIF", save_all=True, append_images=frames[1:]))
    assert pixels[:, 4, 4].tolist() == [255, 0, 0]


@pytest.mark.parametrize("keep", [0.3, 0.7, 0.97])
@pytest.mark.parametrize("form", ["JPEG", "PNG", "WEBP"])
def test_a_truncated_file_is_an_error(form: str, keep: float) -> None:
    noise = np.random.default_rng(0).integers(0, 256, (64, 64, 3), dtype=np.uint8)
    data = encoded(Image.fromarray(noise), form)
    with pytest.raises(DataError, match=r"truncated or damaged|not an image"):
        decode_image(data[: int(len(data) * keep)])


@pytest.mark.parametrize("data", [b"", b"hello", b"<html></html>", b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n"])
def test_what_is_no_photograph_is_an_error(data: bytes) -> None:
    with pytest.raises(DataError, match="not an image"):
        decode_image(data)
    with pytest.raises(DataError, match="not an image"):
        image_size(io.BytesIO(data))


def test_a_picture_that_claims_too_many_pixels_is_not_decoded() -> None:
    header = b"P6 9000 9000 255\n"
    for read in (decode_image, lambda data: image_size(io.BytesIO(data))):
        with pytest.raises(DataError, match="9,000 × 9,000"):
            read(header)


def test_a_picture_too_thin_to_be_resized_is_refused() -> None:
    for data in (b"P6 4000 1 255\n" + bytes(12000), encoded(Image.new("L", (1, 200)))):
        with pytest.raises(DataError, match="too thin"):
            decode_image(data)


def test_size_comes_from_the_header_alone() -> None:
    data = encoded(Image.fromarray(np.stack([RAMP] * 3, axis=-1)))
    assert image_size(io.BytesIO(data[:60])) == (25, 20)
