import json
from pathlib import Path

import pandas as pd
import pytest
from typer.testing import CliRunner

from locality import load_model
from locality.cli import app
from locality.results.folder import read_results


@pytest.fixture(autouse=True)
def _few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("locality.data.sources.shapes.DEFAULT_COUNT", {"eval": 40, "train": 40})


def run(*arguments: str) -> str:
    result = CliRunner().invoke(app, list(arguments))
    assert result.exit_code == 0, result.output
    return result.output


def test_eval_prints_a_table_and_writes_rows(tmp_path: Path) -> None:
    out = ("--out", str(tmp_path), "--figures")
    text = run("eval", "--model", "shapes_cnn", "--limit", "10", "--methods", "SM,BIG", *out)
    assert text.splitlines()[-1].startswith(
        "shapes_cnn does not look at the object: no method is significantly above chance"
    )
    assert "accuracy 1.000" in text
    assert "boundary found for 10 of 10 images" in text
    assert "lift" in text
    rows = pd.read_parquet(tmp_path / "tables/rows.parquet")
    assert len(rows) == 20
    assert len(pd.read_csv(tmp_path / "rows.csv")) == 20
    summary = json.loads((tmp_path / "summary.json").read_text(encoding="utf-8"))
    assert summary["methods"]["BIG"]["f1"]["mean"] == pytest.approx(rows[rows["method"] == "BIG"]["f1"].mean())
    assert {path.name for path in tmp_path.iterdir()} == {"figures", "tables", "rows.csv", "summary.json"}
    assert {path.name for path in (tmp_path / "figures").iterdir()} == {"best_and_worst.png", "score_histogram.png"}
    # What is written is read as the results of a benchmark are.
    results = read_results(tmp_path)
    assert len(results.gallery) == 8
    lifts = rows.groupby("image_id")["lift"].mean().sort_values()
    assert {image.image_id for image in results.gallery} == {*lifts.index[:4], *lifts.index[-4:]}
    assert results.models.loc[0, ["model", "kind", "data"]].tolist() == ["shapes_cnn", "standard", "shapes"]
    table = run("table", str(tmp_path), "--which", "locality", "--format", "csv")
    assert table.splitlines()[1].startswith("shapes_cnn,standard,SM,")
    drawn = run("figures", str(tmp_path), "--out", str(tmp_path / "drawn"), "--format", "png")
    assert "Figure 3.2 skipped: it would have one point; `means` has its numbers" in drawn
    assert {path.stem for path in (tmp_path / "drawn").iterdir()} >= {"means", "fig3_3", "score_histogram"}
    assert "report.html" in run("report", str(tmp_path), "--out", str(tmp_path / "report.html"))


def test_figures_need_a_folder_and_a_benchmark_is_not_overwritten(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["eval", "--model", "shapes_cnn", "--figures"])
    assert str(result.exception).startswith("`--out` must be given with --figures")
    (tmp_path / "plan.json").write_text("{}", encoding="utf-8")
    result = CliRunner().invoke(app, ["eval", "--model", "shapes_cnn", "--out", str(tmp_path)])
    assert "`out` must be a folder without the results of a benchmark" in str(result.exception)


def test_a_second_evaluation_leaves_no_table_of_the_first(tmp_path: Path) -> None:
    few = ("eval", "--model", "shapes_cnn", "--limit", "2", "--methods", "SM", "--out", str(tmp_path))
    run(*few, "--figures")
    assert (tmp_path / "tables/gallery.parquet").is_file()
    text = run(*few)
    assert text.splitlines()[-1].endswith("2 images have a lift by every method, 10 are needed.")
    assert not (tmp_path / "tables/gallery.parquet").exists()


def test_json_is_one_object_as_the_design_says() -> None:
    found = json.loads(run("eval", "--model", "shapes_cnn", "--limit", "4", "--methods", "SM", "--json"))
    assert {
        "model",
        "data",
        "n",
        "accuracy",
        "methods",
        "abstained",
        "model_free",
        "boundary",
        "regions",
        "completeness",
        "provenance",
        "verdict",
    } == set(found)
    assert found["model_free"]["uniform"]["lift"]["mean"] == 0
    assert found["model_free"]["centred Gaussian"]["f1"]["mean"] > found["model_free"]["uniform"]["f1"]["mean"]
    assert (found["model"], found["data"], found["n"]) == ("shapes_cnn", "shapes", 4)
    assert {"mean", "low", "high", "undefined"} <= set(found["methods"]["SM"]["lift"])
    assert len(found["provenance"]["weights_sha256"]) == len(found["provenance"]["data_sha256"]) == 64


def test_the_completeness_gap_is_printed_and_a_large_one_warned_of() -> None:
    few = ("eval", "--model", "shapes_cnn", "--limit", "4", "--methods", "SM,IG")
    rough = run(*few, "--points", "2")
    assert "completeness gap (median over images, relative to f(x) − f(baseline)): IG " in rough
    assert "warning: the completeness gap of IG is above 10%: use --points auto" in rough
    fine = run(*few, "--points", "auto")
    assert "completeness gap (median" in fine
    assert "warning" not in fine
    gap = json.loads(run(*few, "--points", "auto", "--json"))["completeness"]["IG"]["median_gap"]
    assert 0 <= gap <= 0.05
    assert "completeness" not in run("eval", "--model", "shapes_cnn", "--limit", "2", "--methods", "SM")


def test_accuracy_has_wilson_s_interval() -> None:
    assert "accuracy 1.000 [0.655, 1.000]; 10 images" in run(
        "eval", "--model", "shapes_cnn", "--limit", "10", "--methods", "SM"
    )


@pytest.mark.parametrize("inside", ["", "/folder/deeper"])
def test_a_file_in_place_of_the_folder_is_said_before_the_work(
    tmp_path: Path, inside: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("locality.cli.options.loaded_model", lambda *_: pytest.fail("the work has begun"))
    (tmp_path / "rows").write_text("mine", encoding="utf-8")
    result = CliRunner().invoke(app, ["eval", "--model", "shapes_cnn", "--out", f"{tmp_path / 'rows'}{inside}"])
    assert isinstance(result.exception, ValueError)
    assert f"`{tmp_path / 'rows'}` is not a folder" in str(result.exception)
    assert (tmp_path / "rows").read_text(encoding="utf-8") == "mine"


def test_a_folder_that_is_not_there_yet_is_made(tmp_path: Path) -> None:
    run("eval", "--model", "shapes_cnn", "--limit", "2", "--methods", "SM", "--out", str(tmp_path / "a/b"))
    assert (tmp_path / "a/b/rows.csv").is_file()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--model", "shapes_cn"], "shapes_cnn"),
        (["--model", "shapes_cnn", "--methods", "SMM"], "did you mean 'SM'"),
        (["--model", "shapes_cnn", "--search", "quick"], "`search` must be one of"),
        (["--model", "shapes_cnn", "--data", "nothing"], "`data` must be one of shapes"),
        (["--model", "shapes_cnn", "--points", "many"], "`--points` must be a whole number of at least 2, or auto"),
        (
            ["--model", "shapes_cnn", "--to", "stra"],
            "`--to` must be a class of the model or its number, got 'stra': did you",
        ),
        (["--model", "shapes_cnn", "--limit", "0"], "`limit` must be at least 1, got 0"),
        (["--model", "shapes_cnn", "--cue", "none", "--region", "cue"], "for shapes, which has no planted cue"),
        (["--model", "shapes_cnn", "--cue", "sticker", "--data-option", "cue_size=1.5"], "`cue_size` must be a share of"),
    ],
)
def test_bad_input_is_one_sentence(arguments: list[str], message: str) -> None:
    result = CliRunner().invoke(app, ["eval", *arguments])
    assert isinstance(result.exception, ValueError)
    assert message in str(result.exception)
    assert "\n" not in str(result.exception)


def test_the_class_of_boundary_points_is_chosen_by_name_or_number(tmp_path: Path) -> None:
    few = ["eval", "--model", "shapes_cnn", "--limit", "3", "--methods", "BSM", "--out", str(tmp_path), "--to"]
    run(*few, "star")
    rows = pd.read_parquet(tmp_path / "tables/rows.parquet")
    star = load_model("shapes_cnn").spec.classes.index("star")
    assert (rows["crossed_to"] == star).all()
    run(*few, str(star))
    assert pd.read_parquet(tmp_path / "tables/rows.parquet").equals(rows)


def test_planted_cues_are_measured_against_their_own_region(tmp_path: Path) -> None:
    """`shapes_cnn` looks at the pattern of the background, which is the region of the cue; stickers have another region."""
    few = ("eval", "--model", "shapes_cnn", "--limit", "10", "--methods", "SM,BIG")
    text = run(*few, "--region", "cue", "--out", str(tmp_path))
    assert text.splitlines()[-1].startswith("shapes_cnn looks at the planted cue: the lift of BIG")
    run("report", str(tmp_path), "--out", str(tmp_path / "report.html"))
    assert "Does this model look at the planted cue?" in (tmp_path / "report.html").read_text(encoding="utf-8")
    planted = (*few, "--data", "shapes:background", "--cue", "sticker", "--data-option", "cue_size=0.25", "--json")
    shares = {}
    for region in ("cue", "box"):
        found = json.loads(run(*planted, "--region", region, "--out", str(tmp_path / region)))
        assert found["data"] == "shapes+sticker"
        assert found["provenance"]["cue"] == {"cue": "sticker", "size": 0.25, "seed": 0}
        shares[region] = pd.read_csv(tmp_path / region / "rows.csv")["box_share"]
    assert (shares["cue"] == 256 / 4096).all()
    assert (shares["box"] > 256 / 4096).all()


def test_region_tests_are_printed_beside_the_scores_or_left_out() -> None:
    few = ("eval", "--model", "shapes_cnn", "--limit", "12", "--methods", "SM")
    text = run(*few)
    lines = text.splitlines()
    swapped = next(line for line in lines if line.startswith(" background swapped"))
    assert swapped.split()[2] == "0.000"  # it follows the cue of the other image
    assert next(line for line in lines if line.startswith(" object greyed")).split()[2] == "1.000"
    assert any(line.startswith("reliance on the object -0.") for line in lines)
    assert "predicted as that image's class: 1.000" in text
    assert "; region tests are inconclusive (reliance −0.1" in lines[-1]  # of 12 images
    found = json.loads(run(*few, "--json").splitlines()[-1])  # after lines about slow work
    regions = found["regions"]
    assert regions["region"] == "box"
    assert regions["tests"]["outside_swapped"]["region"]["correct"]["mean"] == 0
    assert regions["tests"]["inside_greyed"]["elsewhere"]["kept"]["used"] == 12
    assert regions["reliance"]["mean"] < 0
    assert set(regions["relative_core_sensitivity"]) == {"region", "elsewhere"}
    assert found["provenance"]["settings"]["region_tests"]["draws"] == 2
    without = run(*few, "--no-region-tests")
    assert "reliance" not in without
    assert "swapped" not in without
    assert json.loads(run(*few, "--no-region-tests", "--json").splitlines()[-1])["regions"] is None


@pytest.mark.parametrize("cue", [("--cue", "swapped"), ("--cue", "sticker"), ("--data-option", "cue=sticker")])
def test_a_planted_cue_is_no_wrong_preprocessing(cue: tuple[str, str]) -> None:
    words = ("eval", "--model", "shapes_cnn", "--data", "shapes", "--limit", "10", "--methods", "SM", "--no-region-tests")
    text = run(*words, *cue)
    assert "accuracy 1.000" not in text  # that of its card, for images with their own cue
    assert "far below" not in text
