import os
import pickle
import zipfile
from pathlib import Path

import pytest

from locality.data import roots
from locality.data.roots import is_inside, open_root
from locality.errors import DataError


@pytest.fixture(params=["folder", "zip"])
def root(request: pytest.FixtureRequest, tmp_path: Path) -> roots.Root:
    (tmp_path / "data/b").mkdir(parents=True)
    (tmp_path / "data/b/two.txt").write_bytes(b"two")
    (tmp_path / "data/one.txt").write_bytes(b"one")
    if request.param == "folder":
        return open_root(tmp_path / "data")
    with zipfile.ZipFile(tmp_path / "data.zip", "w") as archive:
        archive.mkdir("b")
        archive.writestr("one.txt", "one")
        archive.writestr("b/two.txt", "two")
    return open_root(tmp_path / "data.zip")


def test_folder_and_zip_read_alike(root: roots.Root) -> None:
    assert root.names() == ["b/two.txt", "one.txt"]
    assert root.read("b/two.txt") == b"two"
    assert root.faults() == []
    with pytest.raises(FileNotFoundError):
        root.read("three.txt")
    again = pickle.loads(pickle.dumps(root))
    assert again.read("one.txt") == b"one"


def test_too_large_a_file_is_refused(root: roots.Root, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(roots, "MAX_FILE_BYTES", 2)
    with pytest.raises(DataError, match="no photograph"):
        root.read("one.txt")


@pytest.mark.parametrize("name", ["../x", "a/../../x", "/x", "C:/x", "C:\\x", "..\\x", "a\\..\\..\\x", "", "a\0b"])
def test_names_that_leave_are_seen(name: str, tmp_path: Path) -> None:
    assert not is_inside(name)
    with pytest.raises(DataError, match="outside the folder"):
        open_root(tmp_path).read(name)


def test_entries_that_climb_are_listed_and_not_read(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "x.zip", "w") as archive:
        archive.writestr("good.txt", "good")
        archive.writestr("../../evil.txt", "evil")
    root = open_root(tmp_path / "x.zip")
    assert root.names() == ["good.txt"]
    assert [fault.kind for fault in root.faults()] == ["unsafe path"]
    assert "leaves the archive" in str(root.faults()[0])


def test_entries_with_backslashes_are_listed(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "x.zip", "w") as archive:
        archive.writestr("folder\\a.txt", "a")
    assert [fault.kind for fault in open_root(tmp_path / "x.zip").faults()] == ["bad name"]


def test_links_in_a_circle_end(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("a")
    for name in ("here", "there"):
        (tmp_path / name).symlink_to(tmp_path)
    assert open_root(tmp_path).names() == ["a.txt"]


def test_links_are_followed_inside_the_folder_and_never_out_of_it(tmp_path: Path) -> None:
    (tmp_path / "data/real").mkdir(parents=True)
    (tmp_path / "data/real/a.txt").write_text("a")
    (tmp_path / "secret").write_text("secret")
    (tmp_path / "data/inside.txt").symlink_to("real/a.txt")
    (tmp_path / "data/out.txt").symlink_to("../secret")
    (tmp_path / "data/up").symlink_to(tmp_path)
    (tmp_path / "data/loop").symlink_to("loop")
    (tmp_path / "entrance").symlink_to("data")
    root = open_root(tmp_path / "entrance")  # the folder itself may be a link
    assert root.names() == ["inside.txt", "real/a.txt"]
    assert root.read("inside.txt") == b"a"
    assert [(fault.image, fault.kind) for fault in root.faults()] == [
        ("loop", "bad file"),
        ("out.txt", "unsafe path"),
        ("up", "unsafe path"),
    ]
    for name in ("out.txt", "up/secret"):
        with pytest.raises(DataError, match="link out of the folder"):
            root.read(name)


def test_pipes_are_faults_and_do_not_block(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "a.jpg")
    root = open_root(tmp_path)
    assert root.names() == []
    assert [fault.kind for fault in root.faults()] == ["bad file"]
    with pytest.raises(DataError, match="neither a file nor a folder"):
        root.read("a.jpg")


def test_a_file_name_that_is_no_text_is_a_fault(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("a")
    Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xff.txt")).write_text("b")
    root = open_root(tmp_path)
    assert root.names() == ["a.txt"]
    assert [fault.kind for fault in root.faults()] == ["bad name"]


@pytest.mark.parametrize("how", [zipfile.ZIP_LZMA, zipfile.ZIP_DEFLATED])
def test_damage_anywhere_in_a_zip_is_one_error(tmp_path: Path, how: int) -> None:
    with zipfile.ZipFile(tmp_path / "x.zip", "w", how) as archive:
        archive.writestr("a.txt", bytes(range(256)) * 40)
    good = (tmp_path / "x.zip").read_bytes()
    refused = 0
    places = range(0, len(good), 7)
    for place in places:
        damaged = bytearray(good)
        damaged[place] ^= 0x55
        (tmp_path / "y.zip").write_bytes(damaged)
        try:
            root = open_root(tmp_path / "y.zip")
            root.names()
            assert root.read("a.txt") == bytes(range(256)) * 40  # damage in dates or flags changes no content
        except (DataError, FileNotFoundError):
            refused += 1
    assert refused > len(places) / 2


def test_what_is_neither_folder_nor_zip(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="does not exist"):
        open_root(tmp_path / "no")
    (tmp_path / "x.zip").write_bytes(b"not a zip")
    with pytest.raises(DataError, match="neither a folder nor a zip"):
        open_root(tmp_path / "x.zip")


def test_a_damaged_entry_is_named(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "x.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a.txt", "abc" * 1000)
    data = bytearray((tmp_path / "x.zip").read_bytes())
    data[40] ^= 0xFF
    (tmp_path / "x.zip").write_bytes(data)
    with pytest.raises(DataError, match=r"entry 'a.txt' is damaged"):
        open_root(tmp_path / "x.zip").read("a.txt")
