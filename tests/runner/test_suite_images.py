"""What a block of images is known by: a file that is replaced makes another block."""

import os
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from locality.data import roots
from locality.data.dataset import load_dataset
from locality.data.source import Pixels
from locality.data.sources.shapes import ShapeReader
from locality.results.folder import read_results
from locality.runner.measurements.gallery import GallerySettings
from locality.runner.plan import make_plan
from locality.runner.run import Machine, run_suite
from locality.runner.suite import DataChoice, ModelChoice, Suite
from locality.runner.suite_images import block_hash, chosen_images
from locality.types import ModelSpec

Csv = Callable[..., Path]
Write = Callable[..., str]


@pytest.fixture
def manifest(tmp_path: Path, write_csv: Csv, write_image: Write) -> Path:
    for number in range(3):
        write_image(tmp_path / f"{number}.png", 64, 64, seed=number)
    good = {"wnid": "circle", "width": 64, "height": 64}
    return write_csv(*(good | {"id": f"image{n}", "path": f"{n}.png"} for n in range(3)))


def test_a_replaced_file_is_measured_again(manifest: Path, tmp_path: Path, write_image: Write) -> None:
    models = (ModelChoice("steady", "suite_models:steady"),)
    suite = Suite("files", models, DataChoice(str(manifest)), ("SM",), search="none", block=2)
    here = Machine(processes=0)
    run_suite(suite, tmp_path / "out", here)
    before = read_results(tmp_path / "out").rows["f1"].tolist()
    assert run_suite(suite, tmp_path / "out", here).kept == 2
    write_image(tmp_path / "1.png", 64, 64, seed=99)  # the second image of the first block
    assert run_suite(suite, tmp_path / "out", here).kept == 1
    after = read_results(tmp_path / "out").rows["f1"].tolist()
    assert [one == other for one, other in zip(before, after, strict=True)] == [True, False, True]


def test_another_time_or_another_folder_is_the_same_block(manifest: Path, tmp_path: Path) -> None:
    data = load_dataset(manifest)
    before = block_hash(data, 0, 3)
    os.utime(tmp_path / "2.png", (1, 1))
    assert block_hash(data, 0, 3) == before
    (tmp_path / "moved").mkdir()
    for path in [*tmp_path.glob("*.png"), manifest]:
        path.rename(tmp_path / "moved" / path.name)
    assert block_hash(load_dataset(tmp_path / "moved" / manifest.name), 0, 3) == before
    assert block_hash(data, 0, 3) != before  # they cannot be read there any more


def test_a_file_is_hashed_once_for_all_models_and_parts(
    manifest: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    roots._file_sha256.cache_clear()
    models = (ModelChoice("one", "suite_models:steady"), ModelChoice("two", "suite_models:other"))
    gallery = {"gallery": (GallerySettings(3),)}
    make_plan(Suite("files", models, DataChoice(str(manifest)), ("SM",), search="none", block=2, measurements=gallery))
    assert roots._file_sha256.cache_info().misses == 3


def test_hashes_that_are_known_and_entries_of_zips_are_not_computed(
    tmp_path: Path, write_csv: Csv, write_image: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> str:
        raise AssertionError("a file was hashed")

    monkeypatch.setattr(roots, "_file_sha256", refuse)
    known = write_image(tmp_path / "a.png")
    block_hash(load_dataset(write_csv({"sha256": known})), 0, 1)
    with zipfile.ZipFile(tmp_path / "images.zip", "w") as archive:
        archive.write(tmp_path / "a.png", "a.png")
    block_hash(load_dataset(write_csv({}), root=tmp_path / "images.zip"), 0, 1)
    block_hash(load_dataset("shapes", count=10), 0, 10)
    with pytest.raises(AssertionError, match="a file was hashed"):
        block_hash(load_dataset(write_csv({})), 0, 1)


def test_one_image_is_decoded_for_all_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[int] = []
    original = ShapeReader.__call__

    def spied(reader: ShapeReader, index: int, outline: bool = True) -> Pixels:
        read.append(index)
        return original(reader, index, outline)

    monkeypatch.setattr(ShapeReader, "__call__", spied)
    data = load_dataset("shapes", count=30, limit=20)
    hashes = {block_hash(data, first, first + 2) for first in range(0, 20, 2)}
    assert len(hashes) == 10
    assert read == [0]


def test_another_decoder_is_another_block(monkeypatch: pytest.MonkeyPatch) -> None:
    before = block_hash(load_dataset("shapes", count=10), 4, 6)
    original = ShapeReader.__call__

    def darker(reader: ShapeReader, index: int, outline: bool = True) -> Pixels:
        pixels = original(reader, index, outline)
        return Pixels(pixels.image // 2, pixels.outline)

    monkeypatch.setattr(ShapeReader, "__call__", darker)
    assert block_hash(load_dataset("shapes", count=10), 4, 6) != before


def test_a_suite_plants_cues_by_the_options_of_its_data() -> None:
    options: dict[str, int | float | str] = {"count": 20, "cue": "sticker", "cue_size": 0.25}
    spec = ModelSpec("small", (64, 64), 64)
    hashes = set()
    for region, changed in (("cue", {}), ("box", {}), ("cue", {"cue": "swapped"}), ("cue", {"cue_size": 0.2})):
        choice = DataChoice("shapes:none", region=region, options=tuple((options | changed).items()))  # type: ignore[arg-type]
        data = chosen_images(choice, choice.name, spec, 4)
        if changed != {"cue_size": 0.2} and region == "cue":
            assert [int(sample.mask.sum()) for sample in data] == [256] * 4
        hashes.add(block_hash(data, 0, 4))
    assert len(hashes) == 4
