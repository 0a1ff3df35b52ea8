"""Atomic writes; and what ships is found in a checkout, in an editable install, and in a wheel without the source tree."""

import os
import signal
import stat
import subprocess
import sys
import sysconfig
import time
import venv
import zipfile
from pathlib import Path
from types import SimpleNamespace

import pandas as pd
import pytest

from locality.files import PACKAGE, FullDiskError, locked, packaged_file, write_atomically, write_csv

ROOT = Path(__file__).parents[1]


def test_in_the_checkout() -> None:
    assert packaged_file("manifests/photos.csv") == ROOT / "data_manifests/photos.csv"
    assert packaged_file("suites/README.md").is_file()


@pytest.mark.parametrize("name", ["manifests/none.csv", "photos.csv", "manifests", "manifests/", "secrets/x"])
def test_what_is_not_there_is_an_error_that_lists_what_is(name: str) -> None:
    with pytest.raises(FileNotFoundError, match=r"photos\.csv|must start with manifests/"):
        packaged_file(name)


@pytest.fixture(scope="module")
def clean_python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of a new environment that has the wheel of this project, and no way to find the checkout."""
    folder = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
    (wheel,) = folder.glob("*.whl")
    venv.create(folder / "venv", with_pip=False)
    python = folder / "venv/bin/python"
    where = [str(python), "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"]
    site = Path(subprocess.run(where, check=True, capture_output=True, text=True).stdout.strip())
    # A wheel of pure Python is installed by unpacking it. The dependencies are borrowed from this environment by a .pth
    # file; its own .pth files, and with them the editable install, are not read from there.
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(site)
    (site / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return python


def test_in_a_wheel_without_the_source_tree(clean_python: Path, tmp_path: Path) -> None:
    code = (
        "import locality, locality.files as s; print(locality.__file__); print(s.packaged_file('suites/README.md'));"
        "from locality import load_dataset; print(len(load_dataset('photos', max_box_share=None)))"
    )
    done = _without_checkout([str(clean_python), "-c", code], tmp_path)
    assert done.returncode == 0, done.stderr
    home, suite, photos = done.stdout.split()
    assert not Path(home).is_relative_to(ROOT)
    assert "shipped_files/suites" in suite
    assert photos == "8"
    command = [str(clean_python), "-m", "locality", "data", "check", "photos"]
    done = _without_checkout(command, tmp_path)
    assert (done.returncode, done.stdout.strip()) == (0, "photos: 8 images, no faults"), done.stderr


def _without_checkout(command: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)


def test_the_wheel_has_types_and_licence_and_nothing_else_on_top(clean_python: Path) -> None:
    names = zipfile.ZipFile(next(clean_python.parents[2].glob("*.whl"))).namelist()
    assert {name.split("/")[0].split("-")[0] for name in names} == {"locality"}
    assert {"locality/py.typed", "locality/__init__.pyi"} <= set(names)
    assert any(name.endswith("licenses/LICENSE") for name in names)


def test_this_environment_is_an_editable_install() -> None:
    assert PACKAGE == ROOT / "locality"


def test_files_are_whole_or_absent(tmp_path: Path) -> None:
    target = tmp_path / "a.json"

    def write_half(path: Path) -> None:
        path.write_text("half")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_atomically(target, write_half)
    assert list(tmp_path.iterdir()) == []
    write_atomically(target, lambda path: path.write_text("old"))
    with pytest.raises(KeyboardInterrupt):
        write_atomically(target, write_half)
    assert target.read_text() == "old"
    assert [path.name for path in tmp_path.iterdir()] == ["a.json"]


def test_what_is_renamed_is_on_the_disk_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A power cut at any of these moments leaves the old file or the new one."""
    target = tmp_path / "a.json"
    target.write_text("old")
    events: list[str] = []
    replace_file, synchronise = os.replace, os.fsync

    def watched_replace(source: Path, destination: Path) -> None:
        events.append(f"rename {source.read_text()} over {destination.read_text()}")
        replace_file(source, destination)

    def watched_fsync(handle: int) -> None:
        events.append("sync folder" if stat.S_ISDIR(os.fstat(handle).st_mode) else f"sync {target.read_text()}")
        synchronise(handle)

    monkeypatch.setattr(os, "replace", watched_replace)
    monkeypatch.setattr(os, "fsync", watched_fsync)
    write_atomically(target, lambda path: path.write_text("new"))
    assert events == ["sync old", "rename new over old", "sync folder"]
    assert target.read_text() == "new"


def test_no_text_of_a_csv_file_is_a_formula(tmp_path: Path) -> None:
    rows = pd.DataFrame({"image_id": ["=1+1", "@a", "-b", "\tc", "d"], "f1": [-0.5, float("nan"), 1, 2, 3], "right": True})
    write_csv(tmp_path / "rows.csv", rows)
    again = pd.read_csv(tmp_path / "rows.csv")
    assert again["image_id"].tolist() == ["'=1+1", "'@a", "'-b", "'\tc", "d"]
    pd.testing.assert_frame_equal(again.drop(columns="image_id"), rows.drop(columns="image_id"))


def test_every_file_has_the_mode_of_its_neighbours(tmp_path: Path) -> None:
    """safetensors writes files that only their owner can read: shared caches could not be shared."""
    (tmp_path / "neighbour").touch()

    def write_privately(path: Path) -> None:
        path.unlink(missing_ok=True)
        path.touch(0o600)

    write_atomically(tmp_path / "weights.safetensors", write_privately)
    modes = {stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()}
    assert len(modes) == 1


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="a device that is always full")
def test_a_full_disk_is_a_sentence_that_names_the_folder(tmp_path: Path) -> None:
    def write(path: Path) -> None:
        with open("/dev/full", "wb", buffering=0) as file:
            file.write(b"x")

    (tmp_path / "results").mkdir()
    with pytest.raises(FullDiskError, match=r"^no space left on the disk of `.*results`: ") as raised:
        write_atomically(tmp_path / "results/rows.csv", write)
    assert str(tmp_path / "results") in str(raised.value)
    assert list((tmp_path / "results").iterdir()) == []


def test_a_library_that_hides_the_full_disk_is_seen_through(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """torch.save and safetensors raise errors without a number."""
    monkeypatch.setattr("shutil.disk_usage", lambda folder: SimpleNamespace(free=0))

    def write(path: Path) -> None:
        raise RuntimeError("PytorchStreamWriter failed writing file")

    with pytest.raises(FullDiskError):
        write_atomically(tmp_path / "state.pt", write)


def test_leftovers_of_killed_processes_are_removed_and_those_of_living_ones_stay(tmp_path: Path) -> None:
    code = (
        "import os, signal, sys; from pathlib import Path; from locality.files import write_atomically\n"
        "def write(path): path.write_text('half'); os.kill(os.getpid(), signal.SIGKILL)\n"
        "write_atomically(Path(sys.argv[1]) / 'a.json', write)"
    )
    subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=False)
    (leftover,) = tmp_path.iterdir()
    assert leftover.name.endswith(".part")
    living = leftover.with_name(f"{leftover.name.removesuffix('.part').rpartition('-')[0]}-{os.getppid()}.part")
    living.touch()
    foreign = tmp_path / ".b.json-00000000-1.part"  # of another machine that shares the folder
    foreign.touch()
    write_atomically(tmp_path / "c.json", "{}")
    assert {path.name for path in tmp_path.iterdir()} == {"c.json", living.name, foreign.name}


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_process_does_not_keep_the_lock_of_its_parent(tmp_path: Path) -> None:
    with locked(tmp_path):
        child = os.fork()
        if child == 0:
            time.sleep(60)
            os._exit(0)
        with pytest.raises(ValueError, match="is being written by another run"), locked(tmp_path):
            pass
    time.sleep(0.5)
    try:
        with locked(tmp_path):
            assert os.waitpid(child, os.WNOHANG) == (0, 0)
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
