"""`locality data` as a person types it, in a process of its own where exit codes and streams matter."""

import os
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
from PIL import Image

from locality.cli.data import SplitName
from locality.data.kinds import KINDS
from locality.data.sources import SPLITS

WriteCsv = Callable[..., Path]
WriteImage = Callable[..., str]
TENCH = "n01440764"


def locality(*arguments: object, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-W", "error", "-m", "locality", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False, env=os.environ | environment)


HEADER = "id,path,sha256,label,wnid,x0,y0,x1,y1,width,height,source,licence\n"
CURSOR = "a,b,,0,n1,1,1,\x1b[2J5x,2,9,9,test,CC0\n"


def _written(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


def test_version_and_help() -> None:
    assert locality("--version").stdout.startswith("locality 0.")
    for words in ([], ["data"], ["data", "check"], ["data", "build"], ["data", "get"], ["data", "list"], ["data", "show"]):
        done = locality(*words, "--help")
        assert done.returncode == 0
        assert "Usage" in done.stdout


def test_mistakes_are_one_sentence_and_exit_code_2(tmp_path: Path) -> None:
    mistakes: list[tuple[list[object], str]] = [
        (["check", "nothing"], "`data` must be one of shapes, photos"),
        (["check", tmp_path], "has no images"),
        (["get", "cifar"], "`cifar` cannot be downloaded"),
        (["get", "imagenet"], "needs an account"),
        (["check", "photos", "--boxes", "x"], "`photos` has no option boxes"),
        (["check", _written(tmp_path / "empty.csv", HEADER)], "it has no images"),
        (["show", _written(tmp_path / "x.csv", HEADER + CURSOR), "--out", tmp_path / "x.png"], "not a number"),
    ]
    for words, sentence in mistakes:
        done = locality("data", *words)
        assert done.returncode == 2, done
        assert sentence in done.stderr
        assert done.stderr.startswith("locality: ")
        assert done.stderr.count("\n") == 1
        assert "Traceback" not in done.stderr
        assert "\x1b" not in done.stderr


def test_help_lists_the_splits() -> None:
    assert "<eval|train>" in locality("data", "show", "--help", COLUMNS="120").stdout
    done = locality("data", "check", "shapes", "--split", "banana", COLUMNS="120")
    assert done.returncode == 2
    assert "'banana' is not one of 'eval', 'train'" in done.stderr


def test_the_splits_are_those_of_the_data() -> None:
    assert [split.value for split in SplitName] == list(SPLITS)


def test_list_names_every_source_and_where_it_is(tmp_path: Path) -> None:
    done = locality("data", "list", LOCALITY_CACHE=str(tmp_path), LOCALITY_IMAGENET="/data/val", LOCALITY_TINY_IMAGENET="")
    assert done.returncode == 0
    for word in (
        "locality data get tiny-imagenet",
        "LOCALITY_IMAGENET=/data/val",
        *(kind.written for kind in KINDS.values()),
    ):
        assert word in done.stdout


@pytest.fixture
def faulty(tmp_path: Path, write_csv: WriteCsv, write_image: WriteImage) -> Path:
    """A manifest with one good image of every kind, and one of every fault."""
    rows: list[dict[str, object]] = []
    modes = {"rgb": "RGB", "grey": "L", "palette": "P", "alpha": "RGBA"}
    for name, mode in modes.items():
        rows.append({"id": name, "path": f"{name}.png", "sha256": write_image(tmp_path / f"{name}.png", mode=mode)})
    cmyk = write_image(tmp_path / "cmyk.jpg", mode="CMYK", form="JPEG")
    rows.append({"id": "cmyk", "path": "cmyk.jpg", "sha256": cmyk})
    Image.new("I;16", (20, 10), 40_000).save(tmp_path / "deep.png")
    rows.append({"id": "deep", "path": "deep.png"})
    truncated = tmp_path / "truncated.jpg"
    write_image(truncated, form="JPEG")
    truncated.write_bytes(truncated.read_bytes()[:-200])
    (tmp_path / "text.jpg").write_text("<html>not found</html>")
    write_image(tmp_path / "large.png", 30, 10)
    rows += [
        {"id": "missing", "path": "missing.png"},
        {"id": "truncated", "path": "truncated.jpg"},
        {"id": "text", "path": "text.jpg"},
        {"id": "large", "path": "large.png"},
        {"id": "changed", "path": "rgb.png", "sha256": "0" * 64},
        {"id": "outside", "x1": 25},
        {"id": "empty", "x1": 2},
        {"id": "swapped", "x0": 12, "x1": 2},
        {"id": "nan", "y0": "nan"},
        {"id": "nameless", "label": "fish"},
        {"id": "other class", "wnid": "n02279972"},
        {"id": "climber", "path": "../../etc/passwd"},
        {"id": "rgb", "path": "grey.png"},
    ]
    return write_csv(*rows)


def test_check_finds_every_fault(faulty: Path) -> None:
    done = locality("data", "check", faulty)
    assert done.returncode == 2
    for kind, row, words in [
        ("missing file", 8, "'missing.png' is missing"),
        ("bad image", 9, "truncated or damaged"),
        ("bad image", 10, "not an image"),
        ("wrong size", 11, "30 × 10"),
        ("wrong hash", 12, "the manifest says 000000000000"),
        ("bad box", 13, "leaves the image"),
        ("bad box", 14, "empty"),
        ("bad box", 15, "swapped corners"),
        ("bad box", 16, "not a number"),
        ("unknown label", 17, "'fish'"),
        ("unknown label", 18, "n02279972"),
        ("unsafe path", 19, "outside the data's folder"),
        ("duplicate id", 20, "duplicate id 'rgb'"),
    ]:
        lines = [line for line in done.stdout.splitlines() if kind in line and f" {row} " in line and words in line]
        assert lines, (kind, row, words, done.stdout)
        assert str(faulty) in lines[0]
    assert "13 faults" in done.stdout
    # Of the good images, `rgb` is lost because its id was used twice; the other five are not mentioned.
    assert not any(f"'{name}.png'" in done.stdout for name in ("palette", "alpha", "deep"))


def test_skip_bad_goes_on_and_lists(faulty: Path, tmp_path: Path) -> None:
    done = locality("data", "check", faulty, "--skip-bad")
    assert done.returncode == 0
    assert "13 images left out" in done.stdout
    out = tmp_path / "good.csv"
    done = locality("data", "build", faulty, "--out", out, "--skip-bad")
    assert done.returncode == 0, done.stderr
    assert "good.csv: 5 images, 5 boxes, 13 left out" in done.stdout
    done = locality("data", "check", out)
    assert (done.returncode, done.stdout) == (0, f"{out}: 5 images, no faults\n")
    strict = locality("data", "build", faulty, "--out", tmp_path / "no.csv")
    assert strict.returncode == 2
    assert "row " in strict.stderr
    assert not (tmp_path / "no.csv").exists()


@pytest.mark.parametrize(
    ("header", "words"), [("id,path", "missing column sha256"), (None, "unexpected column 'note'"), ("\ufeff", None)]
)
def test_check_of_headers(write_csv: WriteCsv, write_image: WriteImage, tmp_path: Path, header: str, words: str) -> None:
    write_image(tmp_path / "a.png")
    path = write_csv({})
    text = path.read_text()
    if header is None:
        path.write_text(text.replace("licence\n", "licence,note\n"))
    elif header == "\ufeff":
        path.write_text(header + text, encoding="utf-8")
    else:
        path.write_text(text.replace(text.splitlines()[0], header))
    done = locality("data", "check", path)
    assert done.returncode == (2 if words else 0)
    assert (words or "no faults") in done.stdout + done.stderr


def test_check_of_xml_and_zips(tmp_path: Path, write_image: WriteImage, small_tiny_imagenet: Path) -> None:
    bomb = '<!DOCTYPE b [<!ENTITY a "ha"><!ENTITY c "&a;&a;">]><annotation>&c;</annotation>'
    (tmp_path / "xml").mkdir()
    for name, content in [("bomb", bomb), ("bare", "<annotation></annotation>")]:
        write_image(tmp_path / f"images/{name}.JPEG", form="JPEG")
        (tmp_path / f"xml/{name}.xml").write_text(content)
    done = locality("data", "check", f"imagenet:{tmp_path / 'images'}", "--boxes", tmp_path / "xml")
    assert done.returncode == 2
    assert "declares entities or a DTD" in done.stdout
    assert "has no object" in done.stdout
    place = tmp_path / "climbing.zip"
    with zipfile.ZipFile(place, "w") as archive:
        for file in sorted((small_tiny_imagenet / "tiny-imagenet-200").rglob("*")):
            archive.write(file, file.relative_to(small_tiny_imagenet))
        archive.writestr("../../evil.txt", "evil")
    done = locality("data", "check", f"tiny-imagenet:{place}", "--split", "eval")
    assert done.returncode == 2
    assert "'../../evil.txt' leaves the archive" in done.stdout
    assert "1 faults, 1 images" in done.stdout
    assert not (tmp_path.parent.parent / "evil.txt").exists()
    not_a_zip = locality("data", "check", f"tiny-imagenet:{tmp_path / 'images/bomb.JPEG'}")
    assert "is neither a folder nor a zip" in not_a_zip.stderr
    assert not_a_zip.returncode == 2


def test_names_from_strangers_cannot_move_the_cursor(write_csv: WriteCsv) -> None:
    done = locality("data", "check", write_csv({"id": "a", "path": "\x1b[2Jevil.png"}))
    assert done.returncode == 2
    assert "\x1b" not in done.stdout


def test_build_and_show_shapes(tmp_path: Path) -> None:
    out = tmp_path / "shapes.csv"
    done = locality("data", "build", "shapes:swapped", "--out", out, "--limit", 20)
    assert done.returncode == 0, done.stderr
    assert len(list((tmp_path / "shapes").glob("*.png"))) == 20
    assert locality("data", "check", out).returncode == 0
    done = locality("data", "show", out, "--out", tmp_path / "sheet.png", "--size", 56)
    assert done.returncode == 0, done.stderr
    assert "circle: 2" in done.stdout
    with Image.open(tmp_path / "sheet.png") as sheet:
        assert sheet.width > 500
