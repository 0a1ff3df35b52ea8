"""`locality report`: one file from stored results."""

from pathlib import Path

import pytest
import typer
from report.made_up_results import MODELS, made_up_results, write_results
from typer.testing import CliRunner

from locality.cli.report import report

app = typer.Typer()
app.command()(report)


def test_one_file_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("locality.report.page.html.SHOWN_FIGURES", ("3.3",))
    folder = write_results(made_up_results(8, 1, MODELS[1:2]), tmp_path / "results")
    out = tmp_path / "new" / "page.html"
    done = CliRunner().invoke(app, [str(folder), "--out", str(out)], catch_exceptions=False)
    assert done.exit_code == 0
    assert [path.name for path in out.parent.iterdir()] == ["page.html"]
    text = out.read_text(encoding="utf-8")
    assert text.startswith("<!DOCTYPE html>")
    assert "<h1>made up</h1>" in text
    assert '"label":"circle"' in text
    assert done.stdout.startswith(f"{out} (")
    with pytest.raises(ValueError, match=r"`--out` must be a file to write, got .*: that is a folder"):
        CliRunner().invoke(app, [str(folder), "--out", str(tmp_path)], catch_exceptions=False)
