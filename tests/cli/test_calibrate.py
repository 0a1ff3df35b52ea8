import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from locality.cli import app

FEW = ["calibrate", "--model", "shapes_cnn_robust", "--limit", "12", "--train-limit", "20", "--epochs", "1"]
FEW += ["--methods", "SM", "--data-option", "count=40", "--scores", "roc_auc"]


def test_calibrate_prints_tables_the_answer_and_writes_files(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, [*FEW, "--data", "shapes:none", "--region", "object", "--out", str(tmp_path)])
    assert result.exit_code == 0, result.output
    lines = result.stdout.splitlines()
    assert lines[0].startswith("shapes_cnn_robust on shapes: 12 images of 10 classes")
    assert lines[0].endswith("trained on 20 other images")
    assert lines[-1].startswith("Inconclusive: the network did not learn the cue (accuracy ")
    for words in ("with another class's", "sticker twin: cue", "region tests", "finds cue / object", "given model"):
        assert words in result.stdout
    names = sorted(path.name.partition("_twin_")[0] for path in tmp_path.iterdir())
    assert names == ["calibration.json", "predictions.csv", "rows.csv", "sticker"]
    again = CliRunner().invoke(app, [*FEW, "--data", "shapes:none", "--region", "object", "--out", str(tmp_path), "--json"])
    found = json.loads(again.stdout)
    assert found["sentence"] == lines[-1]
    assert found["methods"]["SM"].keys() == {"lift", "f1", "roc_auc"}
    assert found == json.loads((tmp_path / "calibration.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (
            ["--data", "shapes"],
            "`data` must be images without a cue, which is planted here, got 'shapes': shapes:none has none",
        ),
        (["--data", "shapes:none", "--cue-size", "2"], "`cue_size` must be a share of the image's short side"),
        (["--data", "photos"], "`split` must be eval for photos, got 'train': there are too few photographs to train on"),
    ],
)
def test_bad_input_is_one_sentence(arguments: list[str], sentence: str) -> None:
    given = FEW if "shapes" in arguments[1] else FEW[: FEW.index("--data-option")]
    result = CliRunner().invoke(app, [*given, *arguments])
    assert isinstance(result.exception, ValueError)
    assert str(result.exception).startswith(sentence)
    assert "\n" not in str(result.exception)


def test_the_folder_of_the_model_is_not_written_into(tmp_path: Path) -> None:
    model = tmp_path / "network"
    model.mkdir()
    (model / "config.json").write_text("{}")
    given = [*FEW, "--data", "shapes:none", "--out", str(model / "out")]
    given[given.index("--model") + 1] = str(model)
    result = CliRunner().invoke(app, given)
    assert str(result.exception) == (
        f"`--out` must be outside of the model's folder, which stays as it is, got '{model / 'out'}': name another one"
    )
    assert [path.name for path in model.iterdir()] == ["config.json"]
