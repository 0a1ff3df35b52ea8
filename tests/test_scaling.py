"""bench/speed/scaling.py --suite: the dry run's prediction, the run, and the row that docs/scaling.md shows of them."""

import importlib
import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType

import pytest

from locality.runner.run import Machine

ROOT = Path(__file__).resolve().parents[1]
SUITE = """
models = ["suite_models:steady"]
methods = ["SM", "BIG"]
block = 2
data = { name = "shapes", limit = 6, options = { count = 20 } }
"""


def script(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(Path(name).stem, ROOT / "bench" / name)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_predicted_and_measured_are_kept_beside_what_was_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(ROOT / "bench/speed")
    scaling = script("speed/scaling.py")
    monkeypatch.setattr(scaling, "machine_here", lambda: Machine(processes=0))
    suite, out = tmp_path / "small.toml", tmp_path / "scaling.json"
    suite.write_text(SUITE)
    out.write_text(json.dumps({"total": {"fast_core_hours": 1}, "predicted": {"old": {}}}))
    words = [str(ROOT / "bench/speed/scaling.py"), "--suite", str(suite), "--limit", "4", "--out", str(out)]
    monkeypatch.setattr(sys, "argv", words)
    scaling.main()
    found = json.loads(out.read_text())
    assert found["total"] == {"fast_core_hours": 1}
    assert found["predicted"].pop("old") == {}
    (row,) = found["predicted"].values()
    assert (row["models"], row["images"], row["methods"]) == (1, {"suite_models:steady": 4}, ["SM", "BIG"])
    assert row["command"] == f"python bench/speed/scaling.py --suite {suite} --limit 4"
    assert row["error"] == pytest.approx(row["measured_seconds"] / row["predicted_seconds"] - 1, rel=0.1, abs=0.1)

    script("documents.py")  # so that its modules are found
    tables = importlib.import_module("speed_tables")
    row |= {"calibration_seconds": 17, "predicted_seconds": 324, "measured_seconds": 345, "error": 0.065, "load_before": 0.1}
    monkeypatch.setattr(tables, "result", lambda name: {"predicted": {"small": row}})
    last = tables.predicted_table().splitlines()[-1]
    assert last == "| `small` | 1 | 4 | SM + BIG + `fast` | 1 | 0.1 | 17 s | 5 min 24 s | 5 min 45 s | +6 % |"
