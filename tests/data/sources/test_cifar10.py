import hashlib
import os
import shutil
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from small_cifar10 import CLASSES, TEST_LABELS, records

from locality import load_dataset
from locality.data import roots
from locality.data.build import build_manifest
from locality.data.check import check_source
from locality.data.defaults import default_data
from locality.data.labels import UnknownClassesWarning
from locality.data.sources import open_source
from locality.data.sources.cifar10 import MAX_RECORDS, RECORD_BYTES, WNIDS, cifar10
from locality.errors import ArgumentError, DataError
from locality.imagenet_classes import class_word
from locality.types import ModelSpec

WriteImage = Callable[..., str]

SPEC = ModelSpec("ten", (32, 32), 32, classes=CLASSES)


@pytest.fixture(params=["folder", "folder above", "zip"])
def place(request: pytest.FixtureRequest, small_cifar10: Path) -> Path:
    if request.param == "folder":
        return small_cifar10
    if request.param == "zip":
        archive = shutil.make_archive(str(small_cifar10.parent / "cifar"), "zip", small_cifar10.parent, small_cifar10.name)
        return Path(archive)
    return small_cifar10.parent


def test_records_are_a_label_and_three_planes_row_by_row(place: Path, small_cifar10: Path) -> None:
    train, test = load_dataset(f"cifar10:{place}", split="train"), load_dataset(f"cifar10:{place}")
    assert (len(train), len(test)) == (40, 20)
    assert [sample.label for sample in test] == TEST_LABELS
    assert [train[index].id for index in (0, 29, 30, 39)] == [
        "data_batch_1-0",
        "data_batch_1-29",
        "data_batch_2-0",
        "data_batch_2-9",
    ]
    data = (small_cifar10 / "test_batch.bin").read_bytes()
    pixels = (test[7].image * 255).round().byte()
    # Byte by byte, as the format's description counts them: red, green and blue planes of 1,024, rows of 32.
    for channel, row, column in [(0, 0, 0), (0, 0, 31), (1, 5, 2), (2, 31, 31)]:
        assert pixels[channel, row, column] == data[7 * 3073 + 1 + channel * 1024 + row * 32 + column]
    assert test.classes == CLASSES


def test_images_have_no_regions_and_none_is_left_out_for_its_box(small_cifar10: Path) -> None:
    data = load_dataset(f"cifar10:{small_cifar10}", limit=10, spec=SPEC)
    assert not data.has_regions
    assert load_dataset("shapes", limit=2, count=10).has_regions
    assert str(data) == "cifar10: 10 images of 10 classes, 1 each, without boxes; left out: 10 beyond the limit"
    assert len(load_dataset(f"cifar10:{small_cifar10}", max_box_share=0.5)) == 20
    batch = data.batch(range(10))
    assert batch.boxes == ((),) * 10
    assert not batch.masks.any()
    with pytest.raises(DataError, match="has no boxes, but a manifest has one row per box"):
        build_manifest(data, small_cifar10 / "a.csv")


def test_contents_and_fingerprint_follow_the_pixels(small_cifar10: Path) -> None:
    before = load_dataset(f"cifar10:{small_cifar10}")
    data = bytearray((small_cifar10 / "test_batch.bin").read_bytes())
    assert before.contents()[2] == hashlib.sha256(data[2 * 3073 : 3 * 3073]).hexdigest()
    data[2 * 3073 + 1000] ^= 1
    (small_cifar10 / "test_batch.bin").write_bytes(data)
    after = load_dataset(f"cifar10:{small_cifar10}")
    assert [a == b for a, b in zip(before.contents(), after.contents(), strict=True)] == [True] * 2 + [False] + [True] * 17
    assert before.fingerprint() != after.fingerprint()


def test_models_name_classes_by_word_or_by_wordnet_id_in_any_order(small_cifar10: Path) -> None:
    backwards = tuple(reversed(CLASSES))
    wnids = tuple(WNIDS[name] for name in backwards)
    assert {name: class_word(wnid) for name, wnid in WNIDS.items()} == {
        name: "car" if name == "automobile" else name for name in CLASSES
    }
    for classes in (backwards, wnids):
        spec = ModelSpec("backwards", (32, 32), 32, classes=classes)
        assert default_data(spec) == "cifar10"
        data = load_dataset(f"cifar10:{small_cifar10}", spec=spec)
        assert [sample.label for sample in data][:3] == [6, 1, 9]
        assert data[0].accepted == (6,)
    with pytest.warns(UnknownClassesWarning, match="20 of 20 images of cifar10 are of classes that imagenet does not know"):
        other = load_dataset(f"cifar10:{small_cifar10}", spec=ModelSpec("imagenet", classes=("n02690373", "n02123045")))
    assert {sample.label for sample in other} == {-1}


@pytest.mark.parametrize("zipped", [False, True])
@pytest.mark.parametrize("nested", ["", "cifar/"])
def test_class_folders(tmp_path: Path, zipped: bool, nested: str, write_image: WriteImage) -> None:
    for index, name in enumerate(("train/airplane/1.png", "train/airplane/2.png", "train/truck/1.png", "test/frog/1.png")):
        write_image(tmp_path / "data" / nested / name, 32, 32, seed=index)
    place = Path(shutil.make_archive(str(tmp_path / "z"), "zip", tmp_path / "data")) if zipped else tmp_path / "data"
    train, test = load_dataset(f"cifar10:{place}", split="train"), load_dataset(f"cifar10:{place}")
    assert [(sample.id, sample.label) for sample in train] == [("airplane-1", 0), ("airplane-2", 0), ("truck-1", 9)]
    assert [(sample.id, sample.label) for sample in test] == [("frog-1", 6)]
    with Image.open(tmp_path / "data" / nested / "test/frog/1.png") as picture:
        expected = torch.from_numpy(np.array(picture)).permute(2, 0, 1)
    assert torch.equal((test[0].image * 255).round().byte(), expected)
    assert not test.has_regions


def test_faults_of_class_folders(tmp_path: Path, write_image: WriteImage) -> None:
    write_image(tmp_path / "test/cat/1.png", 32, 32)
    write_image(tmp_path / "test/cat/1.jpg", 32, 32, form="JPEG")
    write_image(tmp_path / "test/cat/2.png", 64, 64)
    write_image(tmp_path / "test/zebra/1.png", 32, 32)
    faults = check_source(cifar10(tmp_path))
    assert [fault.kind for fault in faults] == ["duplicate id", "unknown label", "wrong size"]
    assert "folder 'zebra' is not a class of CIFAR-10" in faults[1].problem
    assert "is 64 × 64 pixels, not 32 × 32" in faults[2].problem
    with pytest.raises(DataError, match=r"has neither batches .data_batch_1.bin. nor class folders .train/airplane."):
        cifar10(tmp_path, "train")


@pytest.mark.parametrize(
    ("size", "message"),
    [
        (0, "0 bytes are not a whole number of records of 3,073 bytes: the file is truncated"),
        (3073 * 4 - 1, "12,291 bytes are not a whole number of records"),
        (3073 * 4 + 1, "12,293 bytes are not a whole number"),
        (3072, "3,072 bytes are not a whole number"),
    ],
)
def test_truncated_and_odd_files_are_faults(small_cifar10: Path, size: int, message: str) -> None:
    (small_cifar10 / "data_batch_2.bin").write_bytes(bytes(size))
    source = cifar10(small_cifar10, "train")
    assert [fault.kind for fault in source.faults] == ["bad file"]
    assert message in str(source.faults[0])
    with pytest.raises(DataError, match=r"data_batch_2.bin: .* bytes are not a whole number"):
        load_dataset(f"cifar10:{small_cifar10}", split="train")
    assert len(load_dataset(f"cifar10:{small_cifar10}", split="train", skip_bad=True)) == 30


def test_a_batch_with_more_records_than_the_official_ones_is_a_fault(
    small_cifar10: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with (small_cifar10 / "test_batch.bin").open("wb") as file:
        file.truncate((MAX_RECORDS + 1) * RECORD_BYTES)  # a file with a hole, which takes no space
    assert "10,001 records, but a batch of CIFAR-10 has at most 10,000" in str(cifar10(small_cifar10).faults[0])
    monkeypatch.setattr(roots, "MAX_FILE_BYTES", 1_000_000)
    assert "larger than" in str(cifar10(small_cifar10).faults[0])


def test_labels_above_9_are_faults_of_their_records(small_cifar10: Path) -> None:
    (small_cifar10 / "test_batch.bin").write_bytes(records([0, 10, 9, 255]))
    source = cifar10(small_cifar10)
    assert [(fault.kind, fault.row, fault.image) for fault in source.faults] == [
        ("unknown label", 2, "test_batch-1"),
        ("unknown label", 4, "test_batch-3"),
    ]
    assert "a label is from 0 to 9, got 255" in source.faults[1].problem
    kept = load_dataset(f"cifar10:{small_cifar10}", skip_bad=True)
    pixels = np.frombuffer(records([0, 10, 9, 255]), dtype=np.uint8).reshape(4, 3073)[2, 1:]
    assert kept[1].id == "test_batch-2"
    assert kept[1].label == 9
    assert (kept[1].image * 255).round().byte().flatten().tolist() == pixels.tolist()  # not those of record 1


def test_missing_files_are_one_sentence_each(small_cifar10: Path) -> None:
    (small_cifar10 / "test_batch.bin").unlink()
    with pytest.raises(DataError, match=r"has no test_batch.bin: the download is incomplete"):
        cifar10(small_cifar10)
    assert len(cifar10(small_cifar10, "train").manifest) == 40
    (small_cifar10 / "batches.meta.txt").unlink()
    with pytest.raises(DataError, match=r"has no batches.meta.txt: the download is incomplete"):
        cifar10(small_cifar10, "train")
    for number in (1, 2):
        (small_cifar10 / f"data_batch_{number}.bin").rename(small_cifar10 / f"data_batch_{number + 5}.bin")
    (small_cifar10 / "test_batch.bin").write_bytes(records([1]))
    with pytest.raises(DataError, match=r"has no data_batch_1.bin to data_batch_5.bin"):
        cifar10(small_cifar10, "train")
    with pytest.raises(ArgumentError, match="`split` must be one of train, eval, got 'test'"):
        cifar10(small_cifar10, "test")


@pytest.mark.parametrize("text", [b"", b"\xff\xfe\x00", b"airplane\nautomobile\n", " ".join(reversed(CLASSES)).encode()])
def test_names_of_other_data_are_refused(small_cifar10: Path, text: bytes) -> None:
    (small_cifar10 / "batches.meta.txt").write_bytes(text)
    with pytest.raises(DataError, match=r"batches.meta.txt does not list the classes of CIFAR-10 \(airplane, automobile"):
        cifar10(small_cifar10)


class Trap:
    """Leaves a file where it is unpickled."""

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.mkdir, (os.environ["TRAP"],)


@pytest.mark.parametrize("names", [("data_batch_1", "test_batch"), ("data_batch_1.mat",), ("batches.meta",)])
def test_pickles_are_never_opened(tmp_path: Path, names: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    import pickle

    monkeypatch.setenv("TRAP", str(tmp_path / "sprung"))
    folder = tmp_path / "cifar-10-batches-py"
    folder.mkdir()
    for name in names:
        (folder / name).write_bytes(pickle.dumps(Trap()))
    for split in ("train", "eval"):
        with pytest.raises(DataError, match=r"can run code when they are read: get the binary version, cifar-10-binary"):
            cifar10(tmp_path, split)
    assert not (tmp_path / "sprung").exists()


def test_hostile_zips(small_cifar10: Path, tmp_path: Path) -> None:
    path = tmp_path / "bad.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for file in sorted(small_cifar10.iterdir()):
            archive.write(file, f"cifar-10-batches-bin/{file.name}")
        archive.writestr("../../evil.bin", b"x")
    assert [fault.kind for fault in cifar10(path).faults] == ["unsafe path"]
    whole = path.read_bytes()
    at = whole.index(b"test_batch.bin") + 200  # inside the entry's compressed bytes
    path.write_bytes(whole[:at] + bytes(64) + whole[at + 64 :])
    damaged = [fault.problem for fault in cifar10(path).faults if fault.kind == "bad file"]
    assert len(damaged) == 1
    assert "is damaged" in damaged[0]


def test_batches_in_two_folders_are_refused(small_cifar10: Path) -> None:
    shutil.copytree(small_cifar10, small_cifar10.parent / "copy")
    with pytest.raises(DataError, match="has batches in several folders: pass one of them"):
        cifar10(small_cifar10.parent)


def test_its_place_is_given_by_the_environment_or_is_the_cache(
    small_cifar10: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("LOCALITY_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("LOCALITY_CIFAR10", raising=False)
    with pytest.raises(DataError, match="pass `cifar10:PATH`, set LOCALITY_CIFAR10, or run `locality data get cifar10`"):
        open_source("cifar10")
    monkeypatch.setenv("LOCALITY_CIFAR10", str(small_cifar10))
    assert len(open_source("cifar10").manifest) == 20
    monkeypatch.delenv("LOCALITY_CIFAR10")
    (tmp_path / "cache/data").mkdir(parents=True)
    small_cifar10.rename(tmp_path / "cache/data/cifar-10-batches-bin")  # as `locality data get` unpacks it
    assert len(open_source("cifar10").manifest) == 20


def test_the_real_batches(cifar10_path: Path) -> None:
    train, test = load_dataset(f"cifar10:{cifar10_path}", split="train"), load_dataset(f"cifar10:{cifar10_path}")
    assert (len(train), len(test)) == (10_000, 2_000)
    assert (train[0].label, test[0].label) == (CLASSES.index("frog"), CLASSES.index("cat"))
    pixels = (test[0].image * 255).round().byte().numpy()
    assert hashlib.sha256(pixels.tobytes()).hexdigest().startswith("73eefb0106f2b7a2660668be6875682f")
