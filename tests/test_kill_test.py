"""The committed result of bench/kill_test.py is of the script as it is."""

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]


def test_the_result_has_the_keys_that_the_script_writes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spec = importlib.util.spec_from_file_location("kill_test", ROOT / "bench/kill_test.py")
    assert spec is not None
    assert spec.loader is not None
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)

    def sleeping(suite: Path, out: Path) -> subprocess.Popen[bytes]:
        words = [sys.executable, "-c", "import time; time.sleep(600)"]
        return subprocess.Popen(words, start_new_session=True, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)

    monkeypatch.setattr(script, "started", sleeping)
    row = script.killed_once(tmp_path / "suite.toml", tmp_path / "out", lambda: True)
    committed = json.loads((ROOT / "bench/results/kill_test.json").read_text(encoding="utf-8"))
    assert row["end"] == "killed"
    assert {tuple(run) for run in committed["runs"]} == {tuple(row)}, "run python bench/kill_test.py again"
    assert script.missed(committed["runs"], 10) == []
    assert committed["identical"]
