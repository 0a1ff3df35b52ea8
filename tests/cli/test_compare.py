"""`locality compare` as a person types it."""

import json
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

from locality import load_model
from locality.cli import app
from locality.zoo.architectures import build

SHORT = ("--limit", "12", "--methods", "SM")


@pytest.fixture(autouse=True)
def _few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("locality.data.sources.shapes.DEFAULT_COUNT", {"eval": 40, "train": 40})


def run(*arguments: str) -> str:
    result = CliRunner().invoke(app, list(arguments))
    assert result.exit_code == 0, result.output
    return result.stdout


def mistake(*arguments: str) -> str:
    result = CliRunner().invoke(app, list(arguments))
    assert isinstance(result.exception, ValueError), result.output
    assert "\n" not in str(result.exception)
    return str(result.exception)


def test_a_model_does_not_differ_from_itself() -> None:
    text = run("compare", "shapes_cnn", "shapes_cnn", *SHORT)
    assert "no significant difference between shapes_cnn and shapes_cnn" in text
    found = json.loads(run("compare", "shapes_cnn", "shapes_cnn", *SHORT, "--json"))
    assert found["methods"]["SM"]["f1"]["difference"] == 0


@pytest.mark.parametrize("names", [("shapes_cnn", "shapes_cnn_robust"), ("shapes_cnn_robust", "shapes_cnn")])
def test_the_model_that_looks_at_the_object_is_named(names: tuple[str, str]) -> None:
    """The standard model was trained on a cue outside the box, the robust one cannot see it."""
    text = run("compare", *names, *SHORT)
    assert "SM: shapes_cnn_robust looks at the object more than shapes_cnn: F1 " in text
    found = json.loads(run("compare", *names, *SHORT, "--json"))
    assert (found["first"], found["second"]) == names
    means = [json.loads(run("eval", "--model", name, *SHORT, "--json"))["methods"]["SM"] for name in names]
    for score in ("f1", "lift"):
        difference = means[1][score]["mean"] - means[0][score]["mean"]
        assert found["methods"]["SM"][score]["difference"] == pytest.approx(difference)
        assert (difference > 0.1) == (names[1] == "shapes_cnn_robust")
    rows = [" ".join(line.split()) for line in text.splitlines()]
    assert any(row.startswith(f"method F1 {names[0]} F1 {names[1]} ") for row in rows)
    one, other = (f"{part['f1']['mean']:.3f} [{part['f1']['low']:.3f}, {part['f1']['high']:.3f}]" for part in means)
    assert any(row.startswith(f"SM {one} {other} ") for row in rows)


def test_few_images_have_no_verdict() -> None:
    """Four images cannot differ significantly: Wilcoxon's p is at least 0.125."""
    text = run("compare", "shapes_cnn", "shapes_cnn_robust", "--limit", "4", "--methods", "SM")
    assert "SM: too few images for a verdict on shapes_cnn and shapes_cnn_robust (10 are needed): F1 " in text
    assert "looks at the object more" not in text


@pytest.fixture
def own(tmp_path: Path) -> Path:
    """The robust model's weights as somebody's own checkpoint."""
    torch.save(load_model("shapes_cnn_robust").net.state_dict(), tmp_path / "own.pth")
    return tmp_path / "own.pth"


@pytest.mark.parametrize("architecture", ["net:shapes_cnn", "shapes_cnn"])
def test_an_own_checkpoint_takes_its_architecture(own: Path, architecture: str) -> None:
    """Also where nobody knows its classes: the other model says what both are looked at with."""
    options = (*SHORT, "--json", "--arch", architecture, "--num-classes", "10")
    expected = json.loads(run("compare", "shapes_cnn_robust", "shapes_cnn", *SHORT, "--json"))["methods"]
    assert json.loads(run("compare", str(own), "shapes_cnn", *options))["methods"] == expected
    turned = json.loads(run("compare", "shapes_cnn", str(own), *options))["methods"]
    assert turned["SM"]["f1"]["difference"] == pytest.approx(-expected["SM"]["f1"]["difference"])


def test_two_checkpoints_have_one_architecture_or_two(own: Path, tmp_path: Path) -> None:
    vit = tmp_path / "vit.pth"
    torch.save(build("net:shapes_vit", 10).state_dict(), vit)
    few = ("--limit", "2", "--methods", "SM", "--json", "--data", "shapes")
    pair = ("compare", str(own), str(vit), *few)
    found = json.loads(run(*pair, "--arch", "net:shapes_cnn", "--arch", "net:shapes_vit"))["methods"]["SM"]["f1"]
    alone = [
        json.loads(run("eval", "--model", str(path), "--arch", architecture, *few))["methods"]["SM"]["f1"]["mean"]
        for path, architecture in ((own, "net:shapes_cnn"), (vit, "net:shapes_vit"))
    ]
    assert found["difference"] == pytest.approx(alone[1] - alone[0])
    assert "does not fit the architecture" in mistake(*pair, "--arch", "net:shapes_cnn")
    assert "for each of the 2 checkpoints, got" in mistake(*pair, *("--arch", "net:shapes_cnn") * 3)


def test_options_that_go_with_nothing(own: Path) -> None:
    assert "does not name its architecture" in mistake("compare", str(own), "shapes_cnn")
    assert "has 10 classes" in mistake("compare", str(own), "shapes_cnn", "--arch", "net:shapes_cnn", "--num-classes", "7")
    for option, value in (("--arch", "net:shapes_cnn"), ("--num-classes", "10")):
        message = mistake("compare", "shapes_cnn", "shapes_cnn_robust", option, value)
        assert message.startswith(f"`{option}` must be given with the path of a checkpoint")
    assert "`limit` must be at least 1" in mistake("compare", "shapes_cnn", "shapes_cnn_robust", "--limit", "0")


def test_models_of_different_data_need_data() -> None:
    message = mistake("compare", "shapes_cnn", "efficientnet_lite0")
    assert message == (
        "`data` must be given (--data): by default shapes_cnn is evaluated on shapes, "
        "efficientnet_lite0 is evaluated on photos"
    )
