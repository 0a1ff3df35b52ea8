"""All figures by number, and the scripts that draw one each."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest
from PIL import Image
from report.made_up_results import nothing_measured, small_results, write_results

from locality.report.figures import FIGURES, draw_figures
from locality.report.measures import NotMeasuredError
from locality.report.palette import STYLE

SCRIPTS = Path(__file__).parents[2] / "figures"
FROM_RESULTS = [name for name in FIGURES if name != "2.3"]  # the other one computes its own network


@pytest.mark.slow
def test_every_figure_is_drawn_from_results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(STYLE, "savefig.dpi", 90)  # quicker
    drawn = draw_figures(small_results(), tmp_path, FROM_RESULTS, ("png",))
    assert list(drawn.files) == FROM_RESULTS
    assert drawn.left_out == {}
    for [path] in drawn.files.values():
        with Image.open(path) as picture:
            assert picture.width >= 3.2 * 90
            # Something is drawn: more than paper and one ink.
            assert len(picture.convert("RGB").resize((200, 200)).getcolors(50_000) or []) > 20


def test_what_cannot_be_drawn_is_left_out_with_its_reason(tmp_path: Path) -> None:
    from locality.report import figures

    several = {name: drawing for name, drawing in figures.FIGURES.items() if name != "2.3"}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(figures, "FIGURES", several)
        drawn = draw_figures(nothing_measured(), tmp_path)
    assert drawn.files == {}
    assert drawn.left_out["3.4"] == "accuracy under attack was not measured"
    assert list(drawn.left_out) == list(several)
    with pytest.raises(NotMeasuredError, match=r"Figure 3\.4 cannot be drawn from nothing: accuracy under attack"):
        draw_figures(nothing_measured(), tmp_path, ["3.4"])
    with pytest.raises(ValueError, match=r"`which` must name figures among 2\.3, .*, got 9\.9"):
        draw_figures(nothing_measured(), tmp_path, ["9.9"])


def test_every_figure_has_a_short_script() -> None:
    for name, drawing in FIGURES.items():
        source = (SCRIPTS / f"{drawing.file}.py").read_text(encoding="utf-8")
        assert len(source.splitlines()) < 25
        if name == "2.3":
            continue
        [call] = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call)]
        assert isinstance(call.args[0], ast.Constant)
        assert call.args[0].value == name


@pytest.mark.slow
def test_a_script_reads_results_and_writes_both_files(tmp_path: Path) -> None:
    folder = write_results(small_results(), tmp_path / "results")
    command = [sys.executable, str(SCRIPTS / "fig3_2.py"), str(folder), "--out", str(tmp_path / "drawn")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert sorted(path.name for path in (tmp_path / "drawn").iterdir()) == ["fig3_2.pdf", "fig3_2.png"]
    assert done.stdout.count("\n") == 2
