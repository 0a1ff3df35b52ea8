"""Planted stickers: what they look like, where they are, and that they change nothing else."""

import hashlib
from collections.abc import Callable
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from locality import load_dataset
from locality.data.boxes import View, box_array, box_mask, boxes_of
from locality.data.build import build_manifest
from locality.data.cues import COLOURS, Sticker, bar_colours, sticker_image, with_cue
from locality.data.dataset import ImageDataset
from locality.data.preprocess import fit, flip
from locality.data.source import Pixels, Source
from locality.errors import ArgumentError, DataError
from locality.runner.evaluate import evaluate
from locality.types import Box, ModelSpec

WriteImage = Callable[..., str]
LARGE = ModelSpec("large", (24, 24), 28)
NET = nn.Sequential(nn.Flatten(), nn.Linear(600, 2))


def class_folders(write_image: WriteImage, folder: Path, *size: int) -> str:
    """Two images in each of two class folders, without boxes."""
    for name in ("cat/1", "cat/2", "dog/3", "dog/4"):
        write_image(folder / f"{name}.png", *size)
    return f"folder:{folder}"


def shapes(cue: str = "sticker", **options: Any) -> ImageDataset:
    return load_dataset("shapes:none", count=30, limit=10, cue=cue, **options)


@pytest.mark.parametrize(("classes", "differing"), [(5, 5), (25, 4), (125, 3), (625, 2)])
def test_stickers_differ_in_as_many_bars_as_stated(classes: int, differing: int) -> None:
    codes = [bar_colours(label) for label in range(classes)]
    distances = {sum(a != b for a, b in zip(*two, strict=True)) for two in combinations(codes, 2)}
    assert min(distances) == differing


def test_no_two_of_all_stickers_are_equal_and_mirroring_keeps_them() -> None:
    assert len({tuple(bar_colours(label)) for label in range(5**5)}) == 5**5
    for label in (0, 7, 999):
        image = sticker_image(label, 13)
        assert torch.equal(image, image.flip(-1))
        assert image.min() >= 40  # no channel is black
        middles = [image[:, 1 + (11 * bar + 5) // 5, 6].tolist() for bar in range(5)]
        assert middles == COLOURS[bar_colours(label)].tolist()
        assert (image[:, 0] == 240).all()  # the frame


def test_the_sticker_is_all_that_changes_and_its_place_depends_on_the_image_alone() -> None:
    plain, own, swapped = shapes("none"), shapes(region="cue"), shapes("swapped", region="cue")
    for index in range(10):
        images = [(data[index].image * 255).round().to(torch.uint8) for data in (plain, own, swapped)]
        mask = own[index].mask
        assert torch.equal(mask, swapped[index].mask)
        x0, y0, x1, y1 = own.source.cue.corners(own[index].id, 64, 64)  # type: ignore[union-attr]
        assert torch.equal(mask, box_mask([Box(x0, y0, x1, y1)], 64, 64))
        assert x1 - x0 == y1 - y0 == 13
        label = plain[index].label
        for image, shown in ((images[1], label), (images[2], (label + 1) % 10)):
            assert torch.equal(image[:, y0:y1, x0:x1], sticker_image(shown, 13))
            assert torch.equal(image[:, ~mask[0]], images[0][:, ~mask[0]])
    alone = load_dataset("shapes:none", count=30, cue="sticker", region="cue")
    same = [one for one in alone if one.id == own[3].id]
    assert torch.equal(same[0].image, own[3].image)
    assert torch.equal(own.batch([3, 1]).masks[1], own[1].mask)
    elsewhere = shapes(region="cue", cue_seed=1)
    assert sum(torch.equal(own[index].mask, elsewhere[index].mask) for index in range(10)) < 3


def test_places_are_random_inside_the_middle() -> None:
    sticker = Sticker(size=0.25)
    corners = np.array([sticker.corners(f"{number}", 160, 80) for number in range(400)])
    assert corners[:, 2].min() - corners[:, 0].min() == 20
    # The middle square of 70 pixels of an image of 160 × 80 reaches from (45, 5) to (115, 75).
    assert corners.min(0)[:2].tolist() == [45, 5]
    assert corners.max(0)[2:].tolist() == [115, 75]
    assert abs(corners[:, :2].mean(0) - [70, 30]).max() < 3  # the mean of 400 uniform numbers from 0 to 50, ± 2.2 (3 σ)
    assert abs(np.corrcoef(corners[:, 0], corners[:, 1])[0, 1]) < 0.2
    number = int.from_bytes(hashlib.blake2b(b"0 7", digest_size=16).digest()[:8], "big") % 51
    assert sticker.corners("7", 160, 80)[0] == 45 + number


def test_the_region_goes_through_resize_crop_and_flip() -> None:
    data = shapes(region="cue", spec=LARGE)
    for index in range(10):
        corners = data.source.cue.corners(data[index].id, 64, 64)  # type: ignore[union-attr]
        seen = View(28 / 64, 28 / 64, 2, 2, 24, 24).corners(box_array([Box(*corners)]))
        assert torch.equal(data[index].mask, box_mask(boxes_of(seen), 24, 24))
        whole = shapes(region="cue")[index]
        assert torch.equal(fit(whole, LARGE).mask, data[index].mask)
        assert torch.equal(flip(whole).mask, whole.mask.flip(-1))
        assert torch.equal(flip(whole).cue, whole.mask.flip(-1))  # type: ignore[arg-type]


def test_what_a_sticker_hides_is_not_part_of_the_object() -> None:
    regions = {region: shapes(region=region, spec=LARGE) for region in ("box", "object", "cue")}
    plain = {region: shapes("none", region=region, spec=LARGE) for region in ("box", "object")}
    hidden = 0
    for index in range(10):
        cue = regions["cue"][index].mask
        for region, data in plain.items():
            assert torch.equal(regions[region][index].mask, data[index].mask & ~cue)
        hidden += int((plain["box"][index].mask & cue).sum())
    assert hidden > 0


def test_the_fingerprint_contains_the_cue_and_its_options() -> None:
    every = [
        shapes("none"),
        shapes(),
        shapes("swapped"),
        shapes(region="cue"),
        shapes(cue_size=0.3),
        shapes(cue_seed=1),
    ]
    assert len({data.fingerprint() for data in every}) == len(every)
    assert shapes().fingerprint() == shapes().fingerprint()
    assert len({data.contents()[0] for data in every}) == len(every) - 1  # the region is no content
    assert [data.name for data in every[:3]] == ["shapes", "shapes+sticker", "shapes+swapped"]


def test_the_cue_of_shapes_has_a_region_too() -> None:
    data = load_dataset("shapes", count=10, region="cue")
    boxes = load_dataset("shapes", count=10)
    assert all(torch.equal(data[index].mask, ~boxes[index].mask) for index in range(10))
    both = load_dataset("shapes:background", count=10, cue="sticker")
    pattern = load_dataset("shapes", count=10)[0].image[:, 0, 0]
    assert torch.equal(both[0].image[:, 0, 0], pattern)  # a corner never has a sticker
    assert not torch.equal(load_dataset("shapes", count=10, cue="sticker")[0].image[:, 0, 0], pattern)
    assert load_dataset("shapes", count=10, cue="swapped").source.cue is None


def test_small_images_get_small_stickers(tmp_path: Path, write_image: WriteImage) -> None:
    pixels = Pixels(torch.zeros(3, 9, 20, dtype=torch.uint8))
    planted = Sticker().planted(pixels, "a", 3, 4)
    assert planted.cue is not None
    assert planted.cue.sum() == 49
    assert not pixels.image.any()  # the reader's pixels stay as they are
    with pytest.raises(ArgumentError, match=r"`cue` must be none for .*: a sticker has at least 7 × 7 pixels, got .*12 × 6"):
        load_dataset(class_folders(write_image, tmp_path, 12, 6), cue="sticker")


def test_data_without_boxes_have_the_region_of_the_cue(tmp_path: Path, write_image: WriteImage) -> None:
    name = class_folders(write_image, tmp_path)
    with pytest.raises(ArgumentError, match="`data` must be images with boxes"):
        evaluate(NET, load_dataset(name, cue="sticker"), ["SM"], search=None, progress=False)
    data = load_dataset(name, cue="sticker", region="cue")
    evaluation = evaluate(NET, data, ["SM"], search=None, progress=False)
    assert evaluation.rows["lift"].notna().all()
    assert evaluation.rows["box_share"].tolist() == pytest.approx([49 / 200] * 4)
    assert evaluation.provenance["region"] == "cue"
    assert evaluation.provenance["cue"] == {"cue": "sticker", "size": 0.2, "seed": 0}


def test_mistakes_are_one_sentence(tmp_path: Path) -> None:
    source: Source = load_dataset("shapes:none", count=10).source
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"cue": "stiker"}, "`cue` must be one of none, sticker, swapped, got 'stiker': did you mean 'sticker'"),
        ({"cue": "sticker", "cue_size": 1.5}, "`cue_size` must be .* got 1.5: a larger cue would leave the image"),
        ({"cue": "sticker", "cue_size": "big"}, "`cue_size` must be a share"),
        ({"cue": "sticker", "cue_seed": -1}, "`cue_seed` must be a whole number of at least 0, got -1"),
        ({"cue_size": 0.3}, '`cue_size` must be given with cue="sticker", got 0.3'),
        ({"region": "cue"}, "`region` must be box or object for shapes, which has no planted cue, got 'cue'"),
    ]
    for options, sentence in wrong:
        with pytest.raises(ArgumentError, match=sentence):
            load_dataset("shapes:none", count=10, **options)
    with pytest.raises(ArgumentError, match="must be one of background, none, swapped, sticker"):
        load_dataset("shapes", cue="stiker")
    with pytest.raises(ArgumentError, match="which has a sticker already"):
        with_cue(with_cue(source, "sticker"), "sticker")
    with pytest.raises(ArgumentError, match="`region` must be box for this data set, which has no outlines"):
        load_dataset("photos", cue="sticker", region="object")[0]
    with pytest.raises(ArgumentError, match="`cue` must be none for a manifest"):
        build_manifest(shapes(), tmp_path / "made.csv")
    with pytest.raises(DataError, match="has no option cue_sise: did you mean 'cue_size'"):
        load_dataset("photos", cue_sise=1)
