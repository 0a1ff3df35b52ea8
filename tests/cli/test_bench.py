"""`locality bench` as a person types it."""

import re
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from locality.cli import app
from locality.results.folder import read_results
from locality.zoo.catalog import CHECKPOINTS

SUITES = Path(__file__).parents[2] / "bench/suites"
SUITE = """
models = ["suite_models:steady"]
methods = ["SM", "IG", "BIG"]
block = 2
gallery = 1
data = { name = "shapes", limit = 4, options = { count = 20 } }
robust = { attack = "pgd20", epsilon = "8/255", limit = 2 }
searches = { names = ["fast"], limit = 1 }
"""


@pytest.fixture
def suite(tmp_path: Path) -> Path:
    path = tmp_path / "small.toml"
    path.write_text(SUITE)
    return path


def locality(*words: object) -> Result:
    return CliRunner().invoke(app, ["bench", *map(str, words)])


def test_help() -> None:
    done = locality("--help")
    assert done.exit_code == 0
    for option in ("--out", "--dry-run", "--engine", "--address", "--processes", "--threads", "--gpus"):
        assert option in done.output
    words = " ".join(done.output.replace("│", " ").split())
    assert all(f"{path.stem}," in words or f"{path.stem}." in words for path in SUITES.glob("*.toml"))
    assert "<local|ray>" in words
    assert locality("demo", "--engine", "dask").exit_code == 2


def test_a_run_and_a_second_one(tmp_path: Path, suite: Path) -> None:
    out = tmp_path / "out"
    done = locality(suite, "--out", out, "--processes", 0)
    assert done.exit_code == 0, done.output
    assert f"results: {out}" in done.stdout
    units = len(list((out / "units").glob("*.json")))
    assert f"{units} units: 0 kept, {units} measured in" in done.stdout
    assert len(read_results(out).rows) == 4 * 3
    again = locality(suite, "--out", out, "--processes", 0)
    assert f"{units} units: {units} kept, 0 measured in" in again.stdout
    fewer = locality(suite, "--out", out, "--processes", 0, "--limit", 2)
    assert fewer.exit_code == 0
    assert read_results(out).rows["image_id"].nunique() == 2
    finished = locality(suite, "--out", out, "--limit", 2, "--dry-run")
    assert "units are finished" in finished.stdout


def test_dry_run_prints_units_evaluations_and_time(tmp_path: Path, suite: Path) -> None:
    done = locality(suite, "--out", tmp_path / "out", "--processes", 0, "--dry-run")
    assert done.exit_code == 0, done.output
    lines = [line.split() for line in done.stdout.splitlines()]
    table = {tuple(line[:2]): line for line in lines if line}
    assert table["locality", "2"][:4] == ["locality", "2", "0", "4"]
    assert table["SM", "1"] == ["SM", "1", "4"]
    assert table["BIG", "20"] == ["BIG", "20", "80"]
    assert ["shared", "−2", "−8"] in lines
    assert "time here: about" in done.stdout
    assert not (tmp_path / "out").exists()


def test_everything_wrong_is_listed_line_by_line(tmp_path: Path, suite: Path) -> None:
    suite.write_text(SUITE.replace("suite_models:steady", "vgg17") + 'target = "best"')
    done = locality(suite, "--out", tmp_path / "out")
    assert done.exit_code == 2
    lines = done.stderr.splitlines()
    assert lines[0] == "locality: `small` cannot run:"
    assert len([line for line in lines if line.startswith("  - ")]) == 2
    assert not (tmp_path / "out").exists()


def test_other_images_than_the_suites(tmp_path: Path, suite: Path) -> None:
    suite.write_text(SUITE.replace('"shapes"', '"imaginary"'))
    assert "`data.name` must be one of" in locality(suite, "--out", tmp_path / "out").stderr
    words = [suite, "--out", tmp_path / "out", "--processes", 0, "--data", "shapes", "--limit", 1]
    assert locality(*words).exit_code == 0
    assert read_results(tmp_path / "out").provenance["suite"]["data"]["name"] == "shapes"
    done = locality(*words, "--boxes", "nowhere")
    assert done.exit_code == 2
    assert "`shapes` has no option boxes" in done.stderr


def test_faults_are_listed_with_exit_code_1(tmp_path: Path, suite: Path, write_image: Callable[..., str]) -> None:
    rows = ["id,path,sha256,label,wnid,x0,y0,x1,y1,width,height,source,licence"]
    for number in range(2):
        write_image(tmp_path / f"{number}.png", 64, 64, seed=number)
        rows.append(f"image{number},{number}.png,,0,n00000000,5,5,40,40,64,64,test,CC0")
    (tmp_path / "images.csv").write_text("\n".join(rows) + "\n")
    (tmp_path / "1.png").write_bytes(b"not a picture")
    suite.write_text('models = ["suite_models:steady"]\nmethods = ["SM"]')
    done = locality(suite, "--data", tmp_path / "images.csv", "--out", tmp_path / "out", "--processes", 0)
    assert done.exit_code == 1
    assert "1 unit has images that could not be measured" in done.stderr
    assert "image1: " in done.stderr
    assert len(read_results(tmp_path / "out").rows) == 1


@pytest.mark.parametrize("processes", [0, 1])
def test_a_dry_run_passes_over_what_cannot_be_read(
    tmp_path: Path, suite: Path, write_image: Callable[..., str], processes: int
) -> None:
    rows = ["id,path,sha256,label,wnid,x0,y0,x1,y1,width,height,source,licence"]
    for number in range(4):
        write_image(tmp_path / f"{number}.png", 64, 64, seed=number)
        rows.append(f"image{number},{number}.png,,0,n00000000,5,5,40,40,64,64,test,CC0")
    (tmp_path / "images.csv").write_text("\n".join(rows) + "\n")
    (tmp_path / "0.png").write_bytes(b"not a picture")
    suite.write_text('models = ["suite_models:steady"]\nmethods = ["SM"]\nsearch = "none"\nblock = 1')
    words = [suite, "--data", tmp_path / "images.csv", "--out", tmp_path / "out", "--processes", processes, "--dry-run"]
    done = locality(*words)
    assert done.exit_code == 0, done.output
    assert "time here: about" in done.stdout
    for number in range(1, 4):
        (tmp_path / f"{number}.png").write_bytes(b"not a picture")
    done = locality(*words)
    assert done.exit_code == 1
    warning = "locality: warning: suite_models:steady, locality cannot be calibrated and its time is not included: "
    assert warning + "none of the 4 images of images can be read" in done.stderr
    assert "time here: unknown with" in done.stdout


def test_a_dry_run_goes_on_where_the_run_would(tmp_path: Path, suite: Path) -> None:
    suite.write_text(SUITE.replace('["suite_models:steady"]', '["suite_models:stuck", "suite_models:steady"]'))
    done = locality(suite, "--out", tmp_path / "out", "--processes", 0, "--dry-run")
    assert done.exit_code == 1
    assert "suite_models:stuck, locality cannot be calibrated and its time is not included: RuntimeError: it" in done.stderr
    rows = {line.split()[0]: line for line in done.stdout.splitlines() if line.strip()}
    assert rows["suite_models:stuck"].rstrip().endswith("unknown")
    assert rows["suite_models:steady"].rstrip().endswith(" s")
    assert "more than" in rows["locality"]
    assert "time here: at least" in done.stdout


def test_one_unit_and_many_ids(tmp_path: Path, suite: Path) -> None:
    suite.write_text('models = ["suite_models:stuck"]\nmethods = ["SM"]\nsearch = "none"\n')
    words = [suite, "--data", "shapes", "--limit", 5, "--out", tmp_path / "out", "--processes", 0]
    done = locality(*words)
    assert done.exit_code == 1
    assert "1 unit: 0 kept, 1 measured in" in done.stdout
    (line,) = [line for line in done.stderr.splitlines() if line.startswith("  - ")]
    assert re.search(r": (shapes-0-\d+, ){2}shapes-0-\d+ and 2 more: ", line), line


def test_a_folder_that_cannot_be_written_is_refused_before_the_work(tmp_path: Path, suite: Path) -> None:
    (tmp_path / "file").write_text("")
    for place in ("/proc/nowhere", tmp_path / "file", tmp_path / "file/below"):
        done = locality(suite, "--out", place)
        assert isinstance(done.exception, ValueError), done.output
        assert str(done.exception).startswith("`--out` must be a folder")
        assert str(place) in str(done.exception)
    assert "opening models" not in done.stderr


def test_bad_options(suite: Path) -> None:
    for words, message in (
        (["--address", "auto"], "`address` must be given with engine='ray' only"),
        (["--threads", 0], "`threads` must be at least 1"),
        (["--device", "gpu"], "`device` must be a device that torch has here, such as cpu, got 'gpu'"),
        (["--device", "cpu,meta"], "`device` must be devices of one kind, got 'cpu,meta'"),
        (["--device", "meta"], "`device` must be a device that torch has here, such as cpu, got 'meta'"),
        (["--device", ","], "`device` must be at least one device"),
    ):
        done = locality(suite, *words)
        assert message in str(done.exception)


@pytest.mark.parametrize(
    "model",
    [
        '"evil:net"',
        '{ name = "a", load = "evil:net" }',
        '{ name = "", load = "evil:net" }',
        '{ name = "shapes_cnn", load = "evil:net" }',
        '{ name = "a", load = "WEIGHTS", arch = "evil:net" }',
    ],
)
def test_no_code_refuses_functions_before_anything_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, model: str) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "evil.py").write_text("open('it ran', 'w').close()\n")
    weights = CHECKPOINTS / "shapes_cnn.safetensors"
    models = f'models = ["shapes_cnn_robust", {model.replace("WEIGHTS", str(weights))}]\n'
    (tmp_path / "suite.toml").write_text(models + 'data = { name = "shapes", limit = 2, options = { count = 20 } }')
    done = locality("suite.toml", "--no-code", "--dry-run")
    assert done.exit_code == 2
    assert "runs code, evil:net, which --no-code refuses" in done.stderr
    assert not (tmp_path / "it ran").exists()
    monkeypatch.delitem(sys.modules, "evil", raising=False)
    assert locality("suite.toml", "--dry-run").exit_code == 2  # the file has no such function
    assert (tmp_path / "it ran").exists()
    monkeypatch.delitem(sys.modules, "evil", raising=False)
