"""The local engine: the same numbers in other processes, and what one bad image, model or process costs."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from locality.results.folder import read_results
from locality.runner import local_engine
from locality.runner.local_engine import available_cores, default_processes, run_locally
from locality.runner.measurements.gallery import GallerySettings
from locality.runner.plan import images_of, make_plan
from locality.runner.run import Machine, machine_here, run_suite
from locality.runner.suite import DataChoice, ModelChoice, Suite
from locality.runner.suite_file import read_suite
from locality.runner.unit import measure, smaller, whole_units

TESTS = Path(__file__).parent.parent
HERE = Machine(processes=0)
PATIENCE = 300  # seconds: this may run beside other work
SHAPES = DataChoice("shapes", limit=8, options=(("count", 40),))


def suite_of(*names: str, data: DataChoice = SHAPES, block: int = 4, **settings: object) -> Suite:
    models = tuple(ModelChoice(name, f"suite_models:{name}") for name in names)
    return Suite("local", models, data, ("SM", "IG"), block=block, **settings)  # type: ignore[arg-type]


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted((folder / "tables").iterdir())}


@pytest.mark.slow
def test_two_processes_give_the_bytes_of_one(tmp_path: Path) -> None:
    suite = replace(
        suite_of("steady", "other"), methods=("SM", "IG", "BIG"), measurements={"gallery": (GallerySettings(1),)}
    )
    outcome = run_suite(suite, tmp_path / "there", Machine(processes=2))
    assert (outcome.units, outcome.kept, len(outcome.faults)) == (6, 0, 0)
    run_suite(suite, tmp_path / "here", HERE)
    assert contents(tmp_path / "there") == contents(tmp_path / "here")


def test_a_unit_whose_process_died_is_cut_into_halves_and_joined_again() -> None:
    plan = make_plan(suite_of("steady", block=8))
    task = plan.task(plan.units[0], 1)
    first, second = smaller(task)
    assert (len(first), len(second), first.images, second.images) == (4, 4, range(4), range(4, 8))
    whole = measure(task)
    third, fourth = smaller(second)
    results = [(piece, measure(piece)) for piece in (fourth, first, third)]
    [(joined_task, joined)] = whole_units(results)
    assert joined_task == task
    assert joined.tables["rows"]["image_id"].tolist() == whole.tables["rows"]["image_id"].tolist()
    assert joined.tables["rows"]["f1"].tolist() == pytest.approx(whole.tables["rows"]["f1"].tolist(), rel=1e-4)
    assert joined.pieces == 3
    assert joined.notes[0].startswith("locality 0–7 was measured in 3 pieces after its process crashed")
    assert (whole.pieces, whole.notes) == (1, ())
    [single, _] = smaller(third)
    assert smaller(single) == ()


@pytest.mark.slow
def test_an_image_that_kills_its_process_costs_that_image(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = make_plan(suite_of("deadly", search="none"))
    data = images_of(plan.suite, plan.parts["locality"], plan.models[0])
    monkeypatch.setenv("DEADLY_PIXEL", str(float(data[2].image[0, 0, 0])))
    outcome = run_suite(plan, tmp_path, Machine(processes=1))
    assert outcome.faults["image_ids"].tolist() == [data[2].id]
    assert outcome.faults["problem"].tolist() == ["its process crashed (signal 9): is there enough memory?"]
    assert len(read_results(tmp_path).rows) == 7 * 2
    assert [note for note in outcome.notes if "was measured in 3 pieces after its process crashed" in note]


@pytest.mark.slow
def test_a_unit_that_hangs_is_stopped_and_listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ENDLESS_EXCEPT", str(os.getpid()))
    plan = make_plan(suite_of("endless", search="none"))
    outcome = run_suite(plan, tmp_path, Machine(processes=2, unit_minutes=0.25))
    assert outcome.faults["problem"].tolist() == ["stopped after 0.25 minutes (--unit-minutes)"] * 2
    assert len(outcome.faults["image_ids"].iloc[0].split(", ")) == 4
    with pytest.raises(ValueError, match="`unit_minutes` must be more than 0, got 0"):
        Machine(unit_minutes=0)


def manifest(folder: Path, write_image: Callable[..., str], images: int = 5) -> Path:
    header = "id,path,sha256,label,wnid,x0,y0,x1,y1,width,height,source,licence"
    rows = [header]
    for number in range(images):
        write_image(folder / f"{number}.png", 64, 64, seed=number)
        rows.append(f"image{number},{number}.png,,{number % 2},n0000000{number % 2},5,5,40,40,64,64,test,CC0")
    path = folder / "images.csv"
    path.write_text("\n".join(rows) + "\n")
    return path


def test_a_bad_image_costs_itself_and_is_tried_again(tmp_path: Path, write_image: Callable[..., str]) -> None:
    path = manifest(tmp_path, write_image)
    suite = suite_of("steady", data=DataChoice(str(path)))
    with pytest.warns(UserWarning, match="classes that little does not know"):
        whole = run_suite(suite, tmp_path / "whole", HERE)
    assert not len(whole.faults)
    good = (tmp_path / "2.png").read_bytes()
    (tmp_path / "2.png").write_bytes(good[:60])
    (tmp_path / "3.png").unlink()
    with pytest.warns(UserWarning, match="does not know"):
        outcome = run_suite(suite, tmp_path / "out", HERE)
    assert outcome.faults["image_ids"].tolist() == ["image2", "image3"]
    assert "2.png" in outcome.faults["problem"].iloc[0]
    assert "missing" in outcome.faults["problem"].iloc[1]
    results = read_results(tmp_path / "out")
    assert results.rows["image_id"].unique().tolist() == ["image0", "image1", "image4"]
    assert results.provenance["units"] == {"planned": 2, "finished": 1, "with faults": 1}
    (tmp_path / "2.png").write_bytes(good)
    write_image(tmp_path / "3.png", 64, 64, seed=3)
    with pytest.warns(UserWarning, match="does not know"):
        mended = run_suite(suite, tmp_path / "out", HERE)
    assert (mended.kept, len(mended.faults)) == (1, 0)
    assert contents(tmp_path / "out") == contents(tmp_path / "whole")


def test_a_unit_too_large_for_the_machine_is_measured_in_halves(tmp_path: Path) -> None:
    outcome = run_suite(replace(suite_of("hungry", "steady", search="none"), methods=("SM",)), tmp_path, HERE)
    assert not len(outcome.faults)
    rows = read_results(tmp_path).rows
    hungry, steady = (rows[rows["model"] == name] for name in ("hungry", "steady"))
    assert hungry["image_id"].tolist() == steady["image_id"].tolist()
    assert hungry["f1"].tolist() == pytest.approx(steady["f1"].tolist(), rel=1e-4)


def test_an_image_that_a_model_cannot_take_is_named(tmp_path: Path) -> None:
    plan = make_plan(suite_of("picky", data=replace(SHAPES, limit=10), block=10, search="none"))
    found = measure(plan.task(plan.units[0], 1))
    assert len(found.faults) == 1  # one problem, with all images it befell
    ids, problem = found.faults[0]
    assert "finite logits" in problem
    bad = set(ids.split(", "))
    assert 0 < len(bad) < 10
    assert set(found.tables["rows"]["image_id"]).isdisjoint(bad)
    assert len(found.tables["rows"]) == 2 * (10 - len(bad))


def test_other_weights_images_or_versions_than_planned_are_refused() -> None:
    plan = make_plan(suite_of("steady"))
    other_model = tuple(replace(model, choice=ModelChoice("steady", "suite_models:other")) for model in plan.models)
    other_unit = replace(plan.units[0], images_sha256="0" * 64)
    for task, message in (
        (replace(plan, models=other_model).task(plan.units[0], 1), "differs from the model that was planned"),
        (plan.task(other_unit, 1), "must hold the same images on every machine"),
        (replace(plan, versions=(("locality", "9"), *plan.versions[1:])).task(plan.units[0], 1), "locality 9, not 0.1.0"),
    ):
        found = measure(task)
        assert message in found.faults[0][1]
        assert not found.tables


def test_warnings_are_kept_once(tmp_path: Path) -> None:
    """A network that gives probabilities makes `open_model` warn for every batch."""
    with pytest.warns(UserWarning, match="returns probabilities"):
        plan = make_plan(suite_of("sure"))
    found = measure(plan.task(plan.units[0], 1))
    assert len([note for note in found.notes if "returns probabilities" in note]) == 1
    outcome = run_suite(plan, tmp_path, HERE)
    assert len([note for note in outcome.notes if note.startswith("sure: ")]) == len(outcome.notes) >= 1


def test_cores(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(16)), raising=False)
    for text, expected in (("max 100000", 16), ("400000 100000", 4), ("50000 100000", 1), ("", 16)):
        (tmp_path / "cpu.max").write_text(text)
        monkeypatch.setattr(local_engine, "CGROUP", tmp_path / "cpu.max")
        assert available_cores() == expected
    monkeypatch.setattr(local_engine, "CGROUP", tmp_path / "nothing")
    assert [default_processes(threads) for threads in (1, 3, 32)] == [16, 5, 1]
    assert default_processes(1, ["cuda:0", "cuda:1"]) == 2
    assert default_processes(4, ["cpu"]) == 4


def test_machines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.device_count", lambda: 2)
    assert machine_here().devices == ("cuda:0", "cuda:1")
    assert machine_here(device="cuda:0, cuda:1").devices == ("cuda:0", "cuda:1")
    assert machine_here(device="cuda").device == "cuda"
    with pytest.raises(ValueError, match="such as cpu, got 'cuda:2': torch sees 2 CUDA devices"):
        machine_here(device="cuda:0,cuda:2")
    monkeypatch.setattr("torch.cuda.device_count", lambda: 0)
    assert machine_here().devices == ("cpu",)
    with pytest.raises(ValueError, match="such as cpu, got 'cuda': torch sees 0 CUDA devices"):
        machine_here(device="cuda")
    assert machine_here("ray", gpus=0.5).device == "cuda"
    for arguments, message in (
        ({"engine": "dask"}, "`engine` must be one of local, ray"),
        ({"threads": 0}, "`threads` must be at least 1"),
        ({"processes": -1}, "`processes` must be 0 or more"),
        ({"address": "auto"}, "`address` must be given with engine='ray' only"),
        ({"engine": "ray", "processes": 0}, "at least 1 for Ray"),
        ({"gpus": -1.0}, "`gpus` must be 0 or more"),
    ):
        with pytest.raises(ValueError, match=message):
            machine_here(**arguments)


def test_nothing_to_do_starts_nothing() -> None:
    assert list(run_locally([], processes=2)) == []


def started(suite: Path, out: Path, processes: int) -> subprocess.Popen[bytes]:
    """A run of the command in a session of its own."""
    words = [sys.executable, "-m", "locality", "bench", str(suite), "--out", str(out), "--processes", str(processes)]
    environment = os.environ | {"PYTHONPATH": str(TESTS)}
    with (suite.parent / "output.txt").open("ab") as output:
        return subprocess.Popen(words, env=environment, start_new_session=True, stderr=output, stdout=output)


@pytest.fixture
def runs() -> Iterator[list[subprocess.Popen[bytes]]]:
    """Runs that a test starts; those that are left when it fails are ended."""
    begun: list[subprocess.Popen[bytes]] = []
    yield begun
    for run in begun:
        if run.poll() is None:
            os.killpg(run.pid, signal.SIGKILL)
            run.wait()


def until(condition: Callable[[], bool], run: subprocess.Popen[bytes], suite: Path) -> None:
    limit = time.monotonic() + PATIENCE
    while not condition():
        assert run.poll() is None, f"the run ended by itself: {(suite.parent / 'output.txt').read_text()}"
        assert time.monotonic() < limit, "nothing happens"
        time.sleep(0.02)


@pytest.mark.slow
def test_killed_twice_it_ends_with_the_same_bytes(tmp_path: Path, runs: list[subprocess.Popen[bytes]]) -> None:
    """kill -9 of the command amid its units; then of the command alone, whose two processes must go by themselves."""
    suite, out, whole = tmp_path / "killed.toml", tmp_path / "out", tmp_path / "whole"
    models = '["suite_models:steady", "suite_models:other"]'
    data = '{ name = "shapes", limit = 12, options = { count = 40 } }'
    suite.write_text(f'models = {models}\nmethods = ["SM", "BIG"]\ndata = {data}\nblock = 1\n')

    def finished() -> int:
        return len(list((out / "units").glob("*.json")))

    run = started(suite, out, 0)
    runs.append(run)
    until(lambda: finished() >= 2, run, suite)
    os.killpg(run.pid, signal.SIGKILL)
    run.wait()
    kept = finished()
    assert 2 <= kept < 24

    run = started(suite, out, 2)
    runs.append(run)
    until(lambda: finished() >= kept + 2, run, suite)
    workers = psutil.Process(run.pid).children(recursive=True)
    os.kill(run.pid, signal.SIGKILL)
    run.wait()
    assert len(workers) >= 2
    assert not psutil.wait_procs(workers, timeout=PATIENCE)[1], "workers must not outlive the run"
    assert finished() < 24

    assert run_suite(read_suite(suite), out, HERE).kept >= kept + 2
    assert finished() == 24
    assert not list(out.rglob("*.part"))
    run_suite(read_suite(suite), whole, HERE)
    assert contents(out) == contents(whole)
