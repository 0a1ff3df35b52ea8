"""Photographs as people see them: EXIF orientation, and depths other than 8 bits that must not be read as black."""

from __future__ import annotations

import io
import struct
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image, ImageOps

from locality.data.build import build_manifest
from locality.data.dataset import load_dataset
from locality.data.decode import decode_image, image_size
from locality.data.manifest_csv import read_manifest
from locality.data.sources.imagenet import imagenet
from locality.errors import DataError
from locality.report.explanation import explain_image

PIXELS = np.random.default_rng(0).integers(0, 256, (10, 20, 3), dtype=np.uint8)
SIDEWAYS = 6  # stored 20×10, displayed 10×20


def turned_file(orientation: int, form: str = "PNG", **options: object) -> bytes:
    exif = Image.Exif()
    exif[0x0112] = orientation
    buffer = io.BytesIO()
    Image.fromarray(PIXELS).save(buffer, form, exif=exif, **options)
    return buffer.getvalue()


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("form", ["JPEG", "PNG", "WEBP", "TIFF"])
def test_images_are_turned_as_pillow_turns_them(form: str, orientation: int) -> None:
    data = turned_file(orientation, form)
    with Image.open(io.BytesIO(data)) as picture:
        expected = np.asarray(ImageOps.exif_transpose(picture).convert("RGB"))
    pixels = decode_image(data)
    assert np.array_equal(pixels.permute(1, 2, 0).numpy(), expected)
    assert image_size(io.BytesIO(data)) == (pixels.shape[2], pixels.shape[1])
    if form != "TIFF":  # Pillow turns those itself
        assert decode_image(data, "stored").shape == (3, 10, 20)


@pytest.mark.parametrize("value", [0, 9, 77])
def test_an_orientation_that_does_not_exist_is_upright(value: int) -> None:
    assert torch.equal(decode_image(turned_file(value)), decode_image(turned_file(1)))


def test_damaged_exif_is_not_a_damaged_image() -> None:
    data = turned_file(SIDEWAYS, "JPEG")
    damaged = data.replace(b"Exif\0\0MM", b"Exif\0\0ZZ").replace(b"Exif\0\0II", b"Exif\0\0ZZ")
    assert damaged != data
    assert decode_image(damaged).shape == (3, 10, 20)


@pytest.mark.parametrize(
    ("row", "size"),
    [
        ({"width": 10, "height": 20, "x1": 8}, (20, 10)),  # boxes in the displayed orientation
        ({}, (10, 20)),  # the stated size is that of the pixels as stored
    ],
)
def test_the_size_in_a_manifest_says_what_its_boxes_are_for(
    write_csv: Callable[..., Path], tmp_path: Path, row: dict[str, object], size: tuple[int, int]
) -> None:
    (tmp_path / "a.png").write_bytes(turned_file(SIDEWAYS))
    assert load_dataset(write_csv(row), max_box_share=None)[0].image.shape == (3, *size)


def test_a_manifest_may_say_that_its_boxes_are_for_the_pixels_as_stored(
    tmp_path: Path, write_csv: Callable[..., Path]
) -> None:
    (tmp_path / "a.png").write_bytes(turned_file(3))  # upside down: the size does not tell
    path = write_csv({})
    upright = load_dataset(path)[0].image
    lines = path.read_text(encoding="utf-8").splitlines()
    path.write_text(f"{lines[0]},orientation\n{lines[1]},stored\n", encoding="utf-8")
    stored = load_dataset(path)
    assert torch.equal(stored[0].image.flip(-1, -2), upright)
    assert np.array_equal((stored[0].image * 255).round().byte().permute(1, 2, 0).numpy(), PIXELS)
    build_manifest(stored, tmp_path / "again.csv")
    assert read_manifest(tmp_path / "again.csv")[0].images["orientation"].tolist() == ["stored"]
    path.write_text(f"{lines[0]},orientation\n{lines[1]},sideways\n", encoding="utf-8")
    faults = read_manifest(path)[1]
    assert [fault.problem for fault in faults] == ["`orientation` must be displayed or stored, got 'sideways'"]


@pytest.mark.parametrize(("stated", "size"), [((20, 10), (10, 20)), ((10, 20), (20, 10)), ((40, 20), (10, 20))])
def test_imagenet_boxes_are_for_the_size_that_their_xml_states(
    tmp_path: Path, stated: tuple[int, int], size: tuple[int, int]
) -> None:
    (tmp_path / "images/n01440764").mkdir(parents=True)
    (tmp_path / "boxes").mkdir()
    (tmp_path / "images/n01440764/a.JPEG").write_bytes(turned_file(SIDEWAYS, "JPEG"))
    (tmp_path / "boxes/a.xml").write_text(
        f"<annotation><size><width>{stated[0]}</width><height>{stated[1]}</height></size><object><name>n01440764</name>"
        "<bndbox><xmin>1</xmin><ymin>1</ymin><xmax>5</xmax><ymax>5</ymax></bndbox></object></annotation>"
    )
    source = imagenet(tmp_path / "images", boxes=tmp_path / "boxes")
    assert source.faults == ()
    assert source.read(0).image.shape == (3, *size)


def test_explain_shows_the_photograph_upright(tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(turned_file(SIDEWAYS))
    net = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(600, 2))
    assert explain_image(net, tmp_path / "a.png", ["SM"]).image.shape == (20, 10, 3)


@pytest.mark.parametrize(("largest", "bits"), [(200, 8), (255, 8), (256, 12), (4095, 12), (4096, 16), (65535, 16)])
def test_sixteen_bit_greyscale_has_as_many_bits_as_it_uses(largest: int, bits: int) -> None:
    levels = np.linspace(0, largest, 200).round().astype(np.uint16).reshape(10, 20)
    buffer = io.BytesIO()
    Image.fromarray(levels).save(buffer, "PNG")
    assert np.array_equal(decode_image(buffer.getvalue())[0].numpy(), levels >> (bits - 8))


def tiff(values: np.ndarray) -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(values).save(buffer, "TIFF")
    return buffer.getvalue()


def test_floats_are_in_0_to_1_or_refused() -> None:
    ramp = np.linspace(0, 1, 200, dtype=np.float32).reshape(10, 20)
    assert np.array_equal(decode_image(tiff(ramp))[1].numpy(), np.round(ramp * 255).astype(np.uint8))
    for values in (ramp * 255, ramp - 0.5, ramp * np.float32("nan"), ramp + np.float32("inf")):
        with pytest.raises(DataError, match=r"floats must be in \[0, 1\]"):
            decode_image(tiff(values))
    with pytest.raises(DataError, match="levels from 0 to 100000, not of 8 to 16 bits"):
        decode_image(tiff((ramp * 100_000).round().astype(np.int32)))


def sixteen_bit_colours(levels: np.ndarray) -> bytes:
    """A PNG of 16 bits per channel, which Pillow cannot write."""
    height, width, _ = levels.shape
    rows = b"".join(b"\0" + row.astype(">u2").tobytes() for row in levels)

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", width, height, 16, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")


def test_sixteen_bit_colours_are_not_read_as_black() -> None:
    levels = PIXELS.astype(np.uint16) * 257
    assert np.array_equal(decode_image(sixteen_bit_colours(levels)).permute(1, 2, 0).numpy(), PIXELS)
    for small in (PIXELS.astype(np.uint16), PIXELS.astype(np.uint16) * 16):
        with pytest.raises(DataError, match="they would be read as black"):
            decode_image(sixteen_bit_colours(small))
    with Image.open(io.BytesIO(turned_file(1))) as picture:  # eight bits may be black
        assert int(decode_image(tiff(np.asarray(picture) * 0)).max()) == 0
