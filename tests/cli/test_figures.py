"""`locality figures`: files from stored results."""

from pathlib import Path

import pytest
import typer
from cli.imported_modules import imported_modules
from PIL import Image
from report.made_up_results import nothing_measured, small_results, write_results
from typer.testing import CliRunner

from locality.cli.figures import WHICH_HELP, FigureWidth, Score, figures
from locality.report.figures.catalogue import FIGURES
from locality.report.figures.style import ACROSS
from locality.results.schema import SCORES

app = typer.Typer()
app.command()(figures)


def test_named_figures_are_written(tmp_path: Path) -> None:
    folder = write_results(small_results(), tmp_path / "results")
    words = [str(folder), "--which", "3.2, 3.5", "--out", str(tmp_path / "drawn"), "--format", "svg"]
    done = CliRunner().invoke(app, words, catch_exceptions=False)
    assert done.exit_code == 0
    assert sorted(path.name for path in (tmp_path / "drawn").iterdir()) == ["fig3_2.svg", "fig3_5.svg"]
    assert done.stdout.splitlines() == [str(tmp_path / "drawn" / f"{name}.svg") for name in ("fig3_2", "fig3_5")]


def test_the_width_of_a_column(tmp_path: Path) -> None:
    folder = write_results(small_results(), tmp_path / "results")
    words = [str(folder), "--which", "3.2", "--out", str(tmp_path), "--format", "png", "--width"]
    widths = {}
    for width in ("page", "column"):
        done = CliRunner().invoke(app, [*words, width], catch_exceptions=False)
        assert done.exit_code == 0
        with Image.open(tmp_path / "fig3_2.png") as picture:
            widths[width] = round(picture.width / 300, 1)
    assert widths == {"page": 6.8, "column": 3.3}
    done = CliRunner().invoke(app, [*words, "wide"], catch_exceptions=False)
    assert done.exit_code == 2
    assert "'wide' is not one of 'page', 'column'" in " ".join(done.stderr.replace("│", " ").split())


def test_skipped_figures_are_reported_and_named_ones_must_be_possible(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from locality.report.figures import catalogue as drawings

    folder = write_results(nothing_measured(), tmp_path / "results")
    kept = {name: drawing for name, drawing in drawings.FIGURES.items() if name in ("2.4", "3.4")}
    monkeypatch.setattr(drawings, "FIGURES", kept)
    done = CliRunner().invoke(app, [str(folder), "--out", str(tmp_path)], catch_exceptions=False)
    assert done.exit_code == 0
    assert "Figure 2.4 skipped: layer randomisation was not measured" in done.stderr
    for words, problem in [
        (["--which", "3.4"], r"Figure 3\.4 cannot be drawn"),
        (["--which", "1.1"], r"`which` must be one of 2\.4, 3\.4, got '1\.1'"),
    ]:
        with pytest.raises(ValueError, match=problem):
            CliRunner().invoke(app, [str(folder), *words, "--out", str(tmp_path)], catch_exceptions=False)


def test_methods_a_score_and_an_attack(tmp_path: Path) -> None:
    folder = write_results(small_results(), tmp_path / "results")
    words = [str(folder), "--which", "3.4", "--out", str(tmp_path / "drawn"), "--format", "png"]
    pictures = []
    for more in ([], ["--score", "lift"], ["--methods", "SM,BIG"], ["--attack", "linf 4/255"]):
        done = CliRunner().invoke(app, [*words, *more], catch_exceptions=False)
        assert done.exit_code == 0
        pictures.append((tmp_path / "drawn" / "fig3_4.png").read_bytes())
    assert len(set(pictures)) == 3
    assert pictures[3] == pictures[0]  # the usual budget, by its name
    for more, problem in [
        (["--methods", "AGI"], "`methods` must be one of SM, IG, BIG, got 'AGI'"),
        (["--attack", "l2 0.5"], "`attack` must be one of: linf 4/255 autoattack, got 'l2 0.5'"),
    ]:
        with pytest.raises(ValueError, match=problem):
            CliRunner().invoke(app, [*words, *more], catch_exceptions=False)


def test_each_data_set_has_its_own_files(tmp_path: Path) -> None:
    results = small_results()
    data = ["shapes" if "vgg" in name else "tiny" for name in results.models["model"]]
    folder = write_results(results.with_tables(models=results.models.assign(data=data)), tmp_path / "results")
    words = [str(folder), "--which", "3.2", "--out", str(tmp_path / "drawn"), "--format", "png"]
    done = CliRunner().invoke(app, words, catch_exceptions=False)
    assert [Path(line).name for line in done.stdout.splitlines()] == ["fig3_2_shapes.png", "fig3_2_tiny.png"]
    done = CliRunner().invoke(app, [*words, "--data", "tiny"], catch_exceptions=False)
    assert [Path(line).name for line in done.stdout.splitlines()] == ["fig3_2.png"]
    done = CliRunner().invoke(app, [*words, "--prefix", "mine_"], catch_exceptions=False)
    assert [Path(line).name for line in done.stdout.splitlines()] == ["mine_fig3_2_shapes.png", "mine_fig3_2_tiny.png"]
    with pytest.raises(
        ValueError, match=r"`prefix` must be the beginning of a file's name, got '\.\./a': the folder is `out`"
    ):
        CliRunner().invoke(app, [*words, "--prefix", "../a"], catch_exceptions=False)


def test_a_folder_that_cannot_be_written_is_an_error_before_anything_is_read(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ValueError, match="`--out` must be a folder"):
        CliRunner().invoke(app, ["no results", "--out", str(tmp_path / "file" / "drawn")], catch_exceptions=False)


def test_torch_is_not_imported(tmp_path: Path) -> None:
    folder = write_results(small_results(), tmp_path / "results")
    names = ",".join(name for name in FIGURES if name not in ("2.3", "means"))  # which computes a network, is for one model
    modules = imported_modules("figures", folder, "--which", names, "--format", "svg", "--out", tmp_path / "drawn")
    assert (tmp_path / "drawn" / "fig3_4.svg").is_file()
    assert "matplotlib" in modules
    assert not modules & {"torch", "torchvision", "captum", "foolbox", "timm"}


def test_the_choices_are_those_of_the_report() -> None:
    assert [width.value for width in FigureWidth] == list(ACROSS)
    assert {score.value for score in Score} == set(SCORES)
    assert all(name in WHICH_HELP for name in FIGURES)
