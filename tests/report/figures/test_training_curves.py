"""Curves of training runs: what is read, what is drawn, and which folders are runs."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import typer
from matplotlib.axes import Axes
from report.made_up_results import small_results, write_results
from typer.testing import CliRunner

from locality.cli.figures import figures
from locality.report.figures.training_curves import is_run, read_run, training_curves_plot

app = typer.Typer()
app.command()(figures)


def write_lines(path: Path, lines: list[dict[str, Any]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")


def write_run(folder: Path, monitored: bool = True, epochs: int = 3) -> Path:
    """Two lines per epoch, and a monitor whose numbers are easy to tell apart."""
    log, monitor = [], []
    for epoch in range(1, epochs + 1):
        for half in (0, 1):
            rate = 0.1 if epoch == 1 else 0.001
            log.append({"step": 2 * epoch - 1 + half, "epoch": epoch, "loss": 3.0 - epoch + half, "learning_rate": rate})
        errors = {"train_error": 0.1, "train_robust_error": 0.2, "eval_error": 0.3, "eval_robust_error": 0.4}
        losses = {"train_loss": 1.0, "train_robust_loss": 2.0, "eval_loss": 3.0, "eval_robust_loss": 4.0}
        gaps = {"loss_gap": 2.0, "error_gap": 0.2, "train_images": 100, "eval_images": 200}
        curvature = {"wci": 10.0 * epoch, "wci_error": None if epoch == 2 else 1.0, "squared_norm": 5.0, "trace": 6.0}
        more = {"trace_error": 0.5, "top_trace": 7.0, "layers": [{"name": "head", "trace": 7.0}]}
        monitor.append({"step": 2 * epoch, "epoch": epoch, **errors, **losses, **gaps, **curvature, **more})
    write_lines(folder / "log.jsonl", log)
    if monitored:
        write_lines(folder / "monitor.jsonl", monitor)
    return folder


def values(panel: Axes) -> list[list[float]]:
    return [np.asarray(line.get_ydata()).tolist() for line in panel.get_lines()]


def panels_of(*folders: Path) -> dict[str, Axes]:
    return {panel.get_title(): panel for panel in training_curves_plot([read_run(one) for one in folders]).figure.axes}


def test_the_curves_of_a_run(tmp_path: Path) -> None:
    panels = panels_of(write_run(tmp_path / "run"))
    assert len(panels) == 9
    assert values(panels["cross-entropy under attack"]) == [[2.0] * 3, [4.0] * 3]
    assert values(panels["accuracy"]) == [[0.9] * 3, [0.7] * 3, [0.8] * 3, [0.6] * 3]
    dashed = [line.get_linestyle() == "--" for line in panels["accuracy"].get_lines()]
    pale = [(line.get_alpha() or 1.0) < 1 for line in panels["accuracy"].get_lines()]
    assert (dashed, pale) == ([True, False, True, False], [True, True, False, False])
    assert values(panels["learning rate"]) == [[0.1, 0.001, 0.001]]
    assert panels["learning rate"].get_yscale() == "log"
    assert values(panels["robust gap, error"]) == [[0.2] * 3]
    assert values(panels["WCI"]) == [[10.0, 20.0, 30.0]]
    assert panels["WCI"].get_lines()[0].get_xdata() == pytest.approx([1, 2, 3])
    assert [panel.get_title() for panel in panels.values() if panel.collections] == [
        "robust gap, error",
        "WCI",
        "Σ Tr H over the layers",
    ]
    # Var = 0.2·0.8/100 + 0.4·0.6/200 = 0.0028
    edges = panels["robust gap, error"].collections[0].get_datalim(panels["robust gap, error"].transData).intervaly
    assert edges == pytest.approx([0.2 - 1.96 * 0.0028**0.5, 0.2 + 1.96 * 0.0028**0.5])


def test_a_run_without_a_monitor(tmp_path: Path) -> None:
    panels = panels_of(write_run(tmp_path / "run", monitored=False))
    assert list(panels) == ["loss", "accuracy", "learning rate"]
    assert values(panels["loss"]) == [[2.5, 1.5, 0.5]]  # means over each epoch
    assert values(panels["accuracy"]) == []


def test_several_runs_in_one_figure(tmp_path: Path) -> None:
    plot = training_curves_plot([read_run(write_run(tmp_path / f"seed{seed}", epochs=2 + seed)) for seed in range(2)])
    (wci,) = [panel for panel in plot.figure.axes if panel.get_title() == "WCI"]
    assert values(wci) == [[10.0, 20.0], [10.0, 20.0, 30.0]]
    assert len({line.get_color() for line in wci.get_lines()}) == 2
    (legend,) = plot.figure.legends
    texts = [text.get_text() for text in legend.get_texts()]
    assert texts == ["training images", "eval images", "without attack", "seed0", "seed1"]
    mixed = panels_of(tmp_path / "seed0", write_run(tmp_path / "plain", monitored=False))
    assert list(mixed) == ["loss", "accuracy", "learning rate"]  # what both have


def test_a_run_that_is_going_on(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run")
    with open(folder / "log.jsonl", "a", encoding="utf-8") as log:
        log.write('{"step": 7, "epo')
    assert read_run(folder).log["epoch"].tolist() == [1, 2, 3]
    (folder / "log.jsonl").write_text("", encoding="utf-8")
    with pytest.raises(ValueError, match="`RUN` must be the folder of a run whose log has a line"):
        read_run(folder)


def test_the_command_knows_runs_from_results(tmp_path: Path) -> None:
    run, results = write_run(tmp_path / "run"), write_results(small_results(), tmp_path / "results")
    assert (is_run(run), is_run(results)) == (True, False)
    done = CliRunner().invoke(app, [str(run), "--out", str(tmp_path / "drawn"), "--format", "svg"], catch_exceptions=False)
    assert (done.exit_code, done.stdout) == (0, f"{tmp_path / 'drawn/training.svg'}\n")
    assert (tmp_path / "drawn/training.svg").stat().st_size > 1000
    for words, problem in [
        ([str(run), "--which", "3.2"], "`--which` must be omitted for the curves of training runs, got '3.2'"),
        ([str(results), str(results)], "`RESULTS` must be one folder of results, or one or several runs"),
        ([str(run), str(results)], "`RUN` must be the folder of a run whose log has a line"),
    ]:
        with pytest.raises(ValueError, match=problem):
            CliRunner().invoke(app, [*words, "--out", str(tmp_path / "drawn")], catch_exceptions=False)


def test_drawing_a_run_does_not_import_torch(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run")
    code = (
        "import sys\nfrom locality.cli import main\n"
        f"sys.argv = ['locality', 'figures', {str(run)!r}, '--out', {str(tmp_path)!r}, '--format', 'png']\n"
        "try: main()\nexcept SystemExit as end: assert not end.code\nassert 'torch' not in sys.modules"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "training.png").exists()
