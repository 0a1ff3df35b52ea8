"""bench/speed/boundary.py: searches with options, and the interval of a ratio of distances."""

import importlib
import json
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]


def test_a_search_with_options_and_the_interval_of_its_ratio(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.syspath_prepend(ROOT / "bench/speed")
    bench = importlib.import_module("boundary")
    out, short = tmp_path / "shapes_cnn.json", "fast+steps=2+max_rivals=0"
    words = ["--model", "shapes_cnn", "--images", "6", "--reference-steps", "4", "--searches", f"fast,{short}"]
    monkeypatch.setattr(sys, "argv", [str(ROOT / "bench/speed/boundary.py"), *words, "--out", str(out)])
    bench.main()
    rows = json.loads(out.read_text())["searches"]
    assert list(rows) == ["DDN-4", "fast", short]
    assert rows[short]["gradients"] < rows["fast"]["gradients"]
    assert rows["DDN-4"]["ratio_interval"] == [1, 1]
    low, high = rows["fast"]["ratio_interval"]
    assert low < rows["fast"]["ratio"] < high
    assert short in capsys.readouterr().out


def test_the_interval_of_a_ratio_is_paired_over_images(monkeypatch: pytest.MonkeyPatch) -> None:
    """Distances differ a thousandfold between images, their ratios do not: without pairs the interval would be wide."""
    monkeypatch.syspath_prepend(ROOT / "bench/speed")
    bench = importlib.import_module("boundary")
    pairs = [(1.1 * distance, distance) for distance in (0.001, 0.1, 1.0, 1.0)]
    assert bench.ratio_interval(pairs) == (1.1, 1.1)
    low, high = bench.ratio_interval([(1.0, 1.0), (2.0, 1.0)] * 50)
    assert low == pytest.approx(1.5 - 1.96 * 0.05, abs=0.01)  # the standard error of a mean of 100 values from 1 and 2
    assert high == pytest.approx(1.5 + 1.96 * 0.05, abs=0.01)
