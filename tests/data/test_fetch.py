"""`locality data get` against a server on this machine."""

import hashlib
import http.server
import io
import tarfile
import threading
import zipfile
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from pathlib import Path

import pytest

from locality.data import fetch
from locality.data.fetch import Archive, Fetchable, cached_data, get_data, unpack_tar
from locality.errors import DataError
from locality.progress import Progress


class QuietHandler(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def served(tmp_path: Path) -> Iterator[tuple[Path, str]]:
    """A folder and its address."""
    folder = tmp_path / "served"
    folder.mkdir()
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), partial(QuietHandler, directory=str(folder)))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield folder, f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def cache_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("LOCALITY_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def offer(monkeypatch: pytest.MonkeyPatch, *archives: Archive) -> None:
    monkeypatch.setattr(fetch, "FETCHABLE", {"toy": Fetchable(archives, "toy", "CC0", "")})


def tar_of(path: Path, **files: str) -> str:
    with tarfile.open(path, "w:gz") as tar:
        for name, text in files.items():
            entry = tarfile.TarInfo(name.replace("__", "/"))
            entry.size = len(text)
            tar.addfile(entry, io.BytesIO(text.encode()))
    return hashlib.md5(path.read_bytes()).hexdigest()


def test_a_tar_is_fetched_verified_and_unpacked_once(
    served: tuple[Path, str], cache_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, address = served
    md5 = tar_of(folder / "toy.tgz", toy__a="A", toy__b="B")
    offer(monkeypatch, Archive(f"{address}/toy.tgz", f"md5:{md5}", (folder / "toy.tgz").stat().st_size, "toy-data"))
    assert cached_data("toy") is None
    titles: list[str] = []
    counts: list[tuple[int, int | None]] = []

    def opened(title: str) -> AbstractContextManager[Progress]:
        titles.append(title)
        return nullcontext(lambda done, total: counts.append((done, total)))

    assert get_data("toy", opened) == [cache_home / "data/toy-data"]
    assert (cache_home / "data/toy-data/a").read_text() == "A"
    assert titles == ["toy.tgz"]
    size = (folder / "toy.tgz").stat().st_size
    assert counts[-1] == (size, size)
    assert cached_data("toy") == cache_home / "data/toy-data"
    (folder / "toy.tgz").unlink()
    assert get_data("toy") == [cache_home / "data/toy-data"]  # no network any more


def test_a_member_of_a_zip(served: tuple[Path, str], cache_home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, address = served
    with zipfile.ZipFile(folder / "toy.zip", "w") as archive:
        archive.writestr("annotations/x.json", "{}")
    offer(monkeypatch, Archive(f"{address}/toy.zip", None, None, "x.json", member="annotations/x.json"))
    assert get_data("toy")[0].read_text() == "{}"
    offer(monkeypatch, Archive(f"{address}/toy.zip", None, None, "y.json", member="annotations/y.json"))
    with pytest.raises(DataError, match="cannot be unpacked"):
        get_data("toy")
    assert not list(cache_home.rglob("y.json*"))


def test_a_wrong_checksum_leaves_nothing(
    served: tuple[Path, str], cache_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, address = served
    tar_of(folder / "toy.tgz", a="A")
    offer(monkeypatch, Archive(f"{address}/toy.tgz", "md5:" + "0" * 32, None, "toy-data"))
    with pytest.raises(OSError, match="md5"):
        get_data("toy")
    assert cached_data("toy") is None
    assert not list(cache_home.rglob("toy.tgz"))


def test_a_tar_that_climbs_is_refused(tmp_path: Path) -> None:
    tar_of(tmp_path / "evil.tgz", good="x", **{"..__..__evil": "x"})
    with pytest.raises(DataError, match="cannot be unpacked"):
        unpack_tar(tmp_path / "evil.tgz", tmp_path / "out")
    assert not (tmp_path / "out").exists()
    assert not (tmp_path.parent.parent / "evil").exists()
    assert [path.name for path in tmp_path.iterdir()] == ["evil.tgz"]


def test_a_damaged_tar_is_refused_wherever_the_damage_is(tmp_path: Path) -> None:
    tar_of(tmp_path / "toy.tgz", **{f"file{n}": "text " * n for n in range(50)})
    good = (tmp_path / "toy.tgz").read_bytes()
    # The first bytes hold the name that was packed, which nothing depends on.
    for place in [*range(60, len(good), 97), len(good) - 1, len(good) - 6]:
        damaged = bytearray(good)
        damaged[place] ^= 0xFF
        (tmp_path / "toy.tgz").write_bytes(damaged)
        with pytest.raises(DataError, match="cannot be unpacked"):
            unpack_tar(tmp_path / "toy.tgz", tmp_path / "out")
    (tmp_path / "toy.tgz").write_bytes(good)
    unpack_tar(tmp_path / "toy.tgz", tmp_path / "out")
    assert (tmp_path / "out").stat().st_mode & 0o777 == 0o755


def test_the_real_table_names_every_loader() -> None:
    assert {entry.source for entry in fetch.FETCHABLE.values()} == {"tiny-imagenet", "imagenet", "coco", "cifar10"}
    for entry in fetch.FETCHABLE.values():
        for archive in entry.archives:
            assert archive.url.startswith(("http://", "https://"))
            assert archive.checksum is None or archive.checksum.startswith("md5:")
