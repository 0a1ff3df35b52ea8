import multiprocessing
import os
import pickle
import re
import shutil
import warnings
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch.utils.data import DataLoader

from locality import ArgumentError, Box, DataError, ImageDataset, ModelSpec, load_dataset, stack
from locality.data.kinds import KINDS
from locality.data.labels import UnknownClassesWarning
from locality.data.sources import SOURCES

WriteCsv = Callable[..., Path]
WriteImage = Callable[..., str]


@pytest.fixture
def manifest(write_csv: WriteCsv, write_image: WriteImage, tmp_path: Path) -> Path:
    """Six images of three classes, one with two boxes, one with a box of 90 %."""
    rows = []
    for number, label in enumerate([0, 0, 0, 1, 1, 2]):
        name = f"i{number}"
        sha256 = write_image(tmp_path / f"images/{name}.png", 20, 10, seed=number)
        row = {"id": name, "path": f"images/{name}.png", "sha256": sha256, "label": label, "wnid": f"n0000000{label}"}
        rows.append(row)
    rows[1] |= {"x0": 0, "y0": 0, "x1": 18, "y1": 10}
    return write_csv(*rows, rows[5] | {"x0": 0, "x1": 2})


def test_a_manifest_is_a_data_set(manifest: Path) -> None:
    data = load_dataset(str(manifest))
    assert [sample.id for sample in data] == ["i0", "i2", "i3", "i4", "i5"]
    assert data.counts() == {"n00000000": 2, "n00000001": 2, "n00000002": 1}
    sample = data[4]
    assert sample.image.shape == (3, 10, 20)
    assert sample.image.dtype == torch.float32
    assert 0 <= sample.image.min() < sample.image.max() <= 1
    assert sample.boxes == (Box(2, 1, 12, 9), Box(0, 1, 2, 9))
    assert sample.mask.sum() == 12 * 8
    assert str(data) == "data: 5 images of 3 classes, 1 to 2 each; left out: 1 with a box of 90% or more".replace("90", "80")


def test_limit_is_even_over_classes(manifest: Path) -> None:
    data = load_dataset(str(manifest), limit=3)
    assert list(data.counts().values()) == [1, 1, 1]
    assert data.left_out["beyond the limit"] == 2
    assert len(load_dataset(str(manifest), limit=99)) == 5
    with pytest.raises(ArgumentError, match="`limit`"):
        load_dataset(str(manifest), limit=0)


def test_labels_map_by_wordnet_id(manifest: Path) -> None:
    spec = ModelSpec("m", (8, 8), 10, classes=("n00000002", "n00000009", "n00000000"))
    with pytest.warns(UnknownClassesWarning, match="2 of 5 images of data are of classes that m does not know"):
        data = load_dataset(str(manifest), spec=spec)
    found = {sample.id: (sample.label, sample.accepted) for sample in data}
    unknown = (-1, ())
    assert found == {"i0": (2, (2,)), "i2": (2, (2,)), "i3": unknown, "i4": unknown, "i5": (0, (0,))}
    assert data.classes == spec.classes
    assert data[0].image.shape == (3, 8, 8)


def test_several_accepted_labels(write_csv: WriteCsv, write_image: WriteImage, tmp_path: Path) -> None:
    write_image(tmp_path / "a.png")
    path = write_csv({"wnid": "n1 n2 n3"})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert load_dataset(str(path))[0].accepted == (0,)
        known = load_dataset(str(path), spec=ModelSpec("m", (8, 8), 10, classes=("n3", "n1")), max_box_share=None)
        only_third = load_dataset(str(path), spec=ModelSpec("m", (8, 8), 10, classes=("n9", "n3")), max_box_share=None)
    assert (known[0].label, known[0].accepted) == (1, (1, 0))
    assert (only_third[0].label, only_third[0].accepted) == (1, (1,))


def test_batches_stack_and_loaders_work(manifest: Path) -> None:
    data = load_dataset(str(manifest))
    batch = data.batch([0, 4])
    assert batch.ids == ("i0", "i5")
    assert batch.images.shape == (2, 3, 10, 20)
    assert batch.masks.shape == (2, 1, 10, 20)
    assert batch.masks.dtype == torch.bool
    assert batch.labels.tolist() == [0, 2]
    assert [len(boxes) for boxes in batch.boxes] == [1, 2]
    loader = DataLoader(data, batch_size=2, collate_fn=stack, num_workers=2)
    assert torch.equal(torch.cat([found.images for found in loader]), data.batch(range(5)).images)
    assert torch.equal(pickle.loads(pickle.dumps(data))[3].image, data[3].image)


def test_samples_of_several_sizes_do_not_stack() -> None:
    photos = load_dataset("photos")
    with pytest.raises(ValueError, match="pass `spec` to load_dataset"):
        photos.batch([0, 2])


def test_a_bad_file_is_named_or_skipped(manifest: Path, tmp_path: Path) -> None:
    (tmp_path / "images/i3.png").write_bytes(b"no image")
    data = load_dataset(str(manifest))
    with pytest.raises(DataError, match=r"data\.csv, row 5: file 'images/i3\.png': not an image"):
        data[2]
    # The other image of its class takes its place.
    good = load_dataset(str(manifest), skip_bad=True, limit=3)
    assert list(good.counts().values()) == [1, 1, 1]
    everything = load_dataset(str(manifest), skip_bad=True)
    assert [sample.id for sample in everything] == ["i0", "i2", "i4", "i5"]
    assert [fault.kind for fault in everything.faults] == ["bad image"]


def test_a_file_of_another_size_is_named(manifest: Path, tmp_path: Path, write_image: WriteImage) -> None:
    write_image(tmp_path / "images/i0.png", 40, 20)
    with pytest.raises(DataError, match="is 40 × 20 pixels, its boxes are for 20 × 10"):
        load_dataset(str(manifest))[0]


def test_root_says_where_the_files_are(manifest: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (tmp_path / "images").rename(elsewhere / "images")
    assert len(load_dataset(str(manifest), root=elsewhere)[0].image) == 3
    with pytest.raises(DataError, match=r"is missing in .*: pass the folder that contains it as `root`"):
        load_dataset(str(manifest))[0]


def test_nothing_left_is_an_error(write_csv: WriteCsv) -> None:
    with pytest.raises(DataError, match=r"no image of data is left .1 with a box of 80% or more"):
        load_dataset(str(write_csv({"x0": 0, "y0": 0, "x1": 20, "y1": 10})))
    with pytest.raises(DataError, match="it is empty"):
        load_dataset(str(write_csv()))


def test_what_is_skipped_is_named_even_if_nothing_is_left(write_csv: WriteCsv) -> None:
    with pytest.raises(DataError, match=r"1 that cannot be used.; the first: .*row 2: file 'a.png' is missing") as caught:
        load_dataset(str(write_csv({})), skip_bad=True)
    assert len(caught.value.faults) == 1


def test_a_box_of_exactly_the_share_is_left_out(write_csv: WriteCsv) -> None:
    path = write_csv({"x0": 0, "y0": 0, "x1": 16, "y1": 10}, {"id": "b", "x0": 0, "y0": 0, "x1": 15.9, "y1": 10})
    assert load_dataset(path).manifest.images["id"].tolist() == ["b"]


def test_a_box_without_a_pixel_is_left_out(write_csv: WriteCsv) -> None:
    sliver = {"x0": 3.6, "x1": 4.4, "y0": 0, "y1": 10}
    data = load_dataset(write_csv({} | sliver, {"id": "b"}))
    assert data.manifest.images["id"].tolist() == ["b"]
    assert data.left_out == {"with nothing left of their box": 1}
    # Fitted to a model, the crop may leave less than a pixel of a box.
    wide = {"width": 320, "height": 256, "y0": 0, "y1": 256, "x0": 0}
    spec = ModelSpec("m")
    with pytest.raises(DataError, match="1 with nothing left of their box"):
        load_dataset(write_csv(wide | {"x1": 48.4}), spec=spec)
    assert len(load_dataset(write_csv(wide | {"x1": 48.6}), spec=spec)) == 1


def test_the_seed_draws_the_choice(write_csv: WriteCsv) -> None:
    path = write_csv(*({"id": f"i{n}"} for n in range(50)))
    chosen = [load_dataset(path, limit=5, seed=seed).manifest.images["id"].tolist() for seed in (0, 0, 1)]
    assert chosen[0] == chosen[1] != chosen[2]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"max_box_share": 80}, "`max_box_share` must be a share"),
        ({"region": "objekt"}, "`region` must be one of box, object, cue, got 'objekt': did you mean 'object'?"),
        ({"split": "banana"}, "`split` must be one of eval, train"),
        ({"colour": 3}, "has no option colour: its options are cue, cue_seed, cue_size, root"),
    ],
)
def test_bad_options_are_named(write_csv: WriteCsv, options: dict[str, object], words: str) -> None:
    with pytest.raises((ArgumentError, DataError), match=re.escape(words)):
        load_dataset(write_csv({}), **options)  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match="`data` must be photos without a path"):
        load_dataset("photos:/nonsense")


def test_a_forked_reader_has_its_own_place_in_the_zip(small_tiny_imagenet: Path) -> None:
    place = shutil.make_archive(str(small_tiny_imagenet / "tiny"), "zip", small_tiny_imagenet, "tiny-imagenet-200")
    data = load_dataset(f"tiny-imagenet:{place}", max_box_share=None)
    data[0]
    root = data.source.read.root  # type: ignore[attr-defined]
    parent = os.getpid()
    assert set(root._opened) == {parent}
    with multiprocessing.get_context("fork").Pool(1) as pool:
        assert pool.apply(_opened_in, (data,)) != parent


def _opened_in(data: ImageDataset) -> int:
    data[1]
    (process,) = data.source.read.root._opened  # type: ignore[attr-defined]
    return int(process)


def test_unknown_names_list_the_known() -> None:
    with pytest.raises(ArgumentError, match=r"`data` must be one of shapes, photos, .* or the path of a folder, zip or CSV"):
        load_dataset("cifar")
    with pytest.raises(ArgumentError, match=r"did you mean 'shapes'\?"):
        load_dataset("shape")
    assert list(SOURCES) == list(KINDS)


def test_outlines_are_asked_for_where_there_are_none(manifest: Path) -> None:
    with pytest.raises(ValueError, match="`region` must be box for this data set"):
        load_dataset(str(manifest), region="object")[0]


def test_reading_changes_nothing_of_the_callers(manifest: Path) -> None:
    state = torch.get_rng_state()
    load_dataset(str(manifest)).batch([0, 1])
    load_dataset("shapes", count=10).batch([0, 1])
    assert torch.equal(state, torch.get_rng_state())
