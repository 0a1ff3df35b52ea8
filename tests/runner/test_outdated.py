"""What was measured by other code or with other settings is measured again, and the reason is given."""

from dataclasses import replace
from pathlib import Path

import pytest
from suite_examples import EVERYTHING

from locality import files
from locality.runner import plan as planning
from locality.runner import store
from locality.runner.plan import make_plan
from locality.runner.run import Machine, run_suite
from locality.runner.store import Outdated, Store
from locality.runner.suite import Suite

HERE = Machine(processes=0)
SMALL = Suite("short", EVERYTHING.models[:1], EVERYTHING.data, ("SM",), block=2)


def test_the_sources_are_those_that_can_change_a_number() -> None:
    hashes = files.source_hashes()
    assert hashes["boundary/fast/search.py"] == files.file_hash(files.PACKAGE / "boundary/fast/search.py")
    rooms = {name.partition("/")[0] for name in hashes}
    assert {"data", "zoo", "model_calls", "attribution", "scores", "robustness", "certified", "perturbation.py"} <= rooms
    assert not {"cli", "report", "results", "training"} & rooms
    runner = {name for name in hashes if name.startswith("runner/")}
    assert {"runner/explain_batch.py", "runner/measurement.py", "runner/measurements/robust.py"} <= runner
    assert "runner/store.py" not in runner


def test_changed_sources_are_measured_again_and_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert run_suite(SMALL, tmp_path, HERE).outdated == Outdated()
    assert run_suite(SMALL, tmp_path, HERE).outdated == Outdated()
    hashes = {**files.source_hashes(), "boundary/bisect.py": "0" * 64}
    for module in (files, store):
        monkeypatch.setattr(module, "source_hashes", lambda: hashes)
    planning.installed_versions.cache_clear()
    try:
        outcome = run_suite(SMALL, tmp_path, HERE)
        assert outcome.kept == 0
        assert outcome.outdated == Outdated(2, ("the code of locality (boundary/bisect.py)",))
        assert run_suite(SMALL, tmp_path, HERE).kept == 2
    finally:
        monkeypatch.undo()
        planning.installed_versions.cache_clear()


def test_settings_and_weights_are_named(tmp_path: Path) -> None:
    run_suite(SMALL, tmp_path, HERE)
    steady = SMALL.models[0]
    changed = replace(SMALL, rho=0.1, models=(replace(steady, load="suite_models:other"),))
    expected = Outdated(2, ("the weights of steady", "the settings of locality"))
    assert Store(tmp_path).outdated(make_plan(changed)) == expected
