"""Every trick of `download_tricks.py`: the right file arrives, or one sentence says why not; nothing else is left behind."""

from __future__ import annotations

import os
import resource
import stat
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from download_tricks import HASH, PRECIOUS, TRICKS, Trick
from scripted_server import Server, running_server

from locality import download as download_module
from locality.download import DownloadError, download

PATIENCE = 20.0  # seconds after which a download has hung


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    with running_server(monkeypatch) as running:
        yield running


@contextmanager
def room_for(size: int | None) -> Iterator[None]:
    """Inside the block no file can grow beyond this size, as on a full disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (soft if size is None else size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def ended(trick: Trick, url: str, target: Path) -> BaseException | None:
    """The error of the download, None if there was none; a hanging one fails the test instead of hanging it."""
    errors: list[BaseException] = []

    def run() -> None:
        try:
            download(url, target, **trick.options)
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(PATIENCE)
    assert not thread.is_alive(), "it hangs"
    return errors[0] if errors else None


@pytest.mark.parametrize("name", TRICKS)
def test_a_trick_is_held(name: str, server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trick = TRICKS[name]
    target = tmp_path / "cache/weights.pth"
    target.parent.mkdir()
    (tmp_path / "precious").write_bytes(PRECIOUS)
    if trick.before is not None:
        server.answers = [trick.before]
        with pytest.raises(DownloadError):
            download(server.url, target, retries=0)
    if trick.folder is not None:
        trick.folder(target.parent, server.url)
    with server.counting:
        server.asked.clear()
        server.served.clear()
        server.answers = list(trick.answers)
    for constant, value in trick.limits.items():
        monkeypatch.setattr(download_module, constant, value)
    with room_for(trick.room):
        error = ended(trick, server.url, target)
    left = {path.name for path in target.parent.iterdir()}
    if trick.refused:
        assert isinstance(error, DownloadError), error
        assert trick.refused in str(error)
        assert "\n" not in str(error)
        assert left == set(trick.keeps)
    else:
        assert error is None
        assert target.read_bytes() == trick.body
        assert not target.is_symlink()
        mask = os.umask(0)
        os.umask(mask)
        assert stat.S_IMODE(target.stat().st_mode) == 0o666 & ~mask
        assert left == {"weights.pth"} | ({HASH} if "checksum" not in trick.options else set())
    assert (tmp_path / "precious").read_bytes() == PRECIOUS
    assert {path.name for path in tmp_path.iterdir()} == {"cache", "precious"}


def test_there_are_at_least_57_tricks() -> None:
    assert len(TRICKS) >= 57
