"""`locality train` as a person types it: a small recipe end to end, an interrupted run, and mistakes."""

import json
import re
import shlex
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from small_cifar10 import CLASSES
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from typer.testing import CliRunner

import locality.progress
from locality.cli import app
from locality.data.sources import shapes
from locality.files import file_hash
from locality.training import export, loop, new_model, reports
from locality.training.reports import EpochLines, Report
from locality.training.run_state import RunState, write_state
from locality.types import Threat
from locality.zoo.load import load_model
from locality.zoo.model_card import WeightFile, read_card

RECIPE = """
name = "small"
net = { name = "shapes_vit", width = 24, depth = 1, heads = 2 }
epochs = 2
batch_size = 16
data = { name = "shapes", limit = 32 }
average = { name = "swa", start = 0.5 }
step_size = { name = "cosine" }

[loss]
name = "fast_at"
attack = { norm = "l2", epsilon = 0.5 }

[regularisers]
logit_squeezing = { weight = 0.01 }
"""


NET = 'name = "shapes_vit", width = 24, depth = 1, heads = 2'


@pytest.fixture
def command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    monkeypatch.setattr(shapes, "DEFAULT_COUNT", {"eval": 60, "train": 60})
    path = tmp_path / "recipe.toml"
    path.write_text(RECIPE, encoding="utf-8")
    return ["train", str(path), "--out", str(tmp_path / "runs"), "--device", "cpu"]


def test_a_recipe_end_to_end(command: list[str], tmp_path: Path) -> None:
    result = CliRunner().invoke(app, command)
    assert result.exit_code == 0, result.output
    folder = tmp_path / "runs/small"
    assert sorted(path.name for path in folder.iterdir()) == [
        ".lock",
        "log.jsonl",
        "small.json",
        "small.safetensors",
        "state.pt",
    ]
    card = read_card(folder / "small.json")
    assert (card.training, card.threat) == ("fast_at", Threat("l2", 0.5))
    assert (card.architecture, card.options) == ("net:shapes_vit", {"width": 24, "depth": 1, "heads": 2})
    weights = folder / "small.safetensors"
    assert card.weights == WeightFile(str(weights), f"sha256:{file_hash(weights)}")
    assert card.spec.classes[:2] == ("circle", "square")
    assert card.run is not None
    assert card.run.recipe["loss"]["attack"]["epsilon"] == 0.5
    assert card.run.recipe["average"] == {"name": "swa", "start": 0.5}
    assert len(card.run.data_hash) == 64
    assert card.run.versions["torch"].startswith("2.")
    assert str(tmp_path) not in (folder / "small.json").read_text(encoding="utf-8")
    # What it prints: every accuracy of the card, and where the files are.
    assert list(card.accuracy) == ["clean", "l2 0.5 pgd10", "linf 4/255 pgd10", "none", "swapped"]
    for name, share in card.accuracy.items():
        assert f"{name}: {share:.1%}" in result.output
    assert "small.safetensors" in "".join(result.output.split())
    assert "Finished: trained in " in result.output
    # A line per epoch, on standard error.
    epochs = [line for line in result.stderr.splitlines() if line.startswith("epoch ")]
    assert [line.split(":")[0] for line in epochs] == ["epoch 1 of 2", "epoch 2 of 2"]
    assert re.fullmatch(r"epoch 2 of 2: loss \d\.\d{3}, attacked \d+\.\d%, learning rate [\de.-]+, .* s", epochs[1])
    # The log has a line for the end of each epoch.
    lines = [json.loads(text) for text in (folder / "log.jsonl").read_text(encoding="utf-8").splitlines()]
    assert [(line["step"], line["epoch"]) for line in lines] == [(2, 1), (4, 2)]
    line = lines[-1]
    assert {"loss", "cross_entropy", "logit_squeezing", "attacked_accuracy"} <= set(line)


def test_a_trained_model_can_be_loaded(command: list[str], tmp_path: Path) -> None:
    assert CliRunner().invoke(app, command).exit_code == 0
    model = load_model(tmp_path / "runs/small/small.safetensors")
    assert model.spec.name == "small"
    assert sum(value.numel() for value in model.parameters()) == read_card(tmp_path / "runs/small/small.json").parameters


def test_an_interrupted_run_resumes(command: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same command again ends with the same weights as a run that was not interrupted."""
    assert CliRunner().invoke(app, command).exit_code == 0
    whole = (tmp_path / "runs/small/small.safetensors").read_bytes()
    command[3] = str(tmp_path / "interrupted")
    monkeypatch.setattr(loop, "SECONDS_BETWEEN_STATES", -1.0)

    def stop(state: RunState, path: Path) -> None:
        write_state(state, path)
        raise KeyboardInterrupt

    monkeypatch.setattr(loop, "write_state", stop)
    assert CliRunner().invoke(app, command).exit_code != 0
    assert not (tmp_path / "interrupted/small/small.safetensors").exists()
    monkeypatch.setattr(loop, "write_state", write_state)
    assert CliRunner().invoke(app, command).exit_code == 0
    assert (tmp_path / "interrupted/small/small.safetensors").read_bytes() == whole


def test_a_finished_run_says_so(command: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither training nor the measurement of accuracies is repeated, unless a file is missing."""
    first = CliRunner().invoke(app, command)
    assert first.exit_code == 0
    monkeypatch.setattr(export, "accuracies", lambda *_: pytest.fail("they were measured before"))
    again = CliRunner().invoke(app, command)
    assert again.exit_code == 0, again.output
    assert "The run was finished before, in " in again.stdout
    assert next(line for line in first.stdout.splitlines() if line.startswith("clean: ")) in again.stdout
    monkeypatch.undo()
    (tmp_path / "runs/small/small.json").unlink()
    monkeypatch.setattr(shapes, "DEFAULT_COUNT", {"eval": 60, "train": 60})
    assert "Finished: trained in " in CliRunner().invoke(app, command).stdout
    assert (tmp_path / "runs/small/small.json").exists()


def test_ctrl_c_is_one_sentence(command: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Stopping(EpochLines):
        def __call__(self, report: Report) -> None:
            super().__call__(report)
            signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(reports, "EpochLines", Stopping)
    result = CliRunner().invoke(app, command)
    assert result.exit_code == 130
    resume = result.stderr.splitlines()[-1].removeprefix("Interrupted. The state is saved; resume with: locality ")
    assert shlex.split(resume) == command
    assert torch.load(tmp_path / "runs/small/state.pt", weights_only=True)["step"] == 2
    monkeypatch.undo()
    monkeypatch.setattr(shapes, "DEFAULT_COUNT", {"eval": 60, "train": 60})
    resumed = CliRunner().invoke(app, command)
    assert resumed.exit_code == 0
    assert [line[:12] for line in resumed.stderr.splitlines() if line.startswith("epoch ")] == ["epoch 2 of 2"]

    def at_once(*_: object, **options: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(new_model, "load_dataset", at_once)
    command[3] = str(tmp_path / "other")
    result = CliRunner().invoke(app, command)
    assert (result.exit_code, result.stderr) == (130, "Interrupted. Nothing was saved yet.\n")
    monkeypatch.undo()
    monkeypatch.setattr(shapes, "DEFAULT_COUNT", {"eval": 60, "train": 60})
    monkeypatch.setattr(export, "accuracies", at_once)  # after the last step, the state is saved, too
    result = CliRunner().invoke(app, command)
    assert (result.exit_code, result.stderr.splitlines()[-1][:34]) == (130, "Interrupted. The state is saved; r")


def test_of_several_processes_only_the_first_one_prints(
    command: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each has the same mistake to report; the others end with the same code."""
    (tmp_path / "recipe.toml").write_text(RECIPE.replace("epochs = 2", "epochs = -1"), encoding="utf-8")
    for rank, said in (("0", "RecipeError"), ("1", "SystemExit")):
        monkeypatch.setenv("RANK", rank)
        result = CliRunner().invoke(app, command)
        assert type(result.exception).__name__ == said
        assert result.output == ""
    assert result.exit_code == 2
    monkeypatch.undo()
    monkeypatch.setattr(shapes, "DEFAULT_COUNT", {"eval": 60, "train": 60})
    (tmp_path / "recipe.toml").write_text(RECIPE, encoding="utf-8")
    monkeypatch.setattr("locality.cli.processes.is_main_process", lambda: False)
    assert "epoch 1" not in CliRunner().invoke(app, command).stderr


def test_validation_is_part_of_the_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shapes, "DEFAULT_COUNT", {"eval": 20, "train": 60})
    path = tmp_path / "recipe.toml"
    text = RECIPE.replace('"swa", start = 0.5', '"ema"').replace("limit = 32", "limit = 40")
    path.write_text(text + "[validation]\nshare = 0.5\n", encoding="utf-8")
    command = ["train", str(path), "--out", str(tmp_path / "runs"), "--device", "cpu"]
    result = CliRunner().invoke(app, command)
    assert result.exit_code == 0, result.output
    first, *_, last = [line for line in result.stderr.splitlines() if line.startswith(("training on", "epoch "))]
    assert first.startswith("training on 20 images of 10 classes at 64×64 pixels, 20 more held out; ")
    assert first.endswith(" parameters, random weights")
    line = json.loads((tmp_path / "runs/small/log.jsonl").read_text(encoding="utf-8").splitlines()[-1])
    assert f", validation {line['validation_accuracy']:.1%} (loss {line['validation_loss']:.3f}; best" in last
    assert (
        f"The weights are those of epoch {line['best_epoch']} of 2, which has the best validation accuracy" in result.stdout
    )


def test_the_monitor_is_part_of_the_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shapes, "DEFAULT_COUNT", {"eval": 20, "train": 60})
    path = tmp_path / "recipe.toml"
    text = RECIPE.replace('"shapes_vit", width = 24, depth = 1, heads = 2', '"shapes_cnn"')
    path.write_text(text + "[monitor]\nimages = 10\nsteps = 1\n", encoding="utf-8")
    result = CliRunner().invoke(app, ["train", str(path), "--out", str(tmp_path / "runs"), "--device", "cpu"])
    assert result.exit_code == 0, result.output
    (_, line) = [line for line in result.stderr.splitlines() if line.startswith("epoch ")]
    measured = json.loads((tmp_path / "runs/small/monitor.jsonl").read_text(encoding="utf-8").splitlines()[-1])
    gap = f"{measured['error_gap']:+.1%} ± {measured['error_gap_error']:.1%}"
    assert f", eval robust {1 - measured['eval_robust_error']:.1%}, gap {gap}, " in line
    assert f", WCI {measured['wci']:.4g} ± {measured['wci_error']:.2g}, " in line
    assert re.search(r" s \(\d+% for the monitor\)$", line)


def test_only_the_main_process_prints(command: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(locality.progress, "SECONDS_BEFORE_FIRST_LINE", 0.0)
    monkeypatch.setattr(locality.progress, "SECONDS_BETWEEN_LINES", 0.0)
    assert "training small: 2 of 4 steps" in CliRunner().invoke(app, command).stderr
    command[3] += "_other"
    monkeypatch.setenv("RANK", "1")  # the bar is chosen before the processes know each other
    assert "training small" not in CliRunner().invoke(app, command).stderr


def events(folder: Path) -> dict[str, list[tuple[int, float]]]:
    """What TensorBoard shows: steps and values by tag."""
    accumulator = EventAccumulator(str(folder), size_guidance={"scalars": 0})
    accumulator.Reload()
    return {tag: [(one.step, one.value) for one in accumulator.Scalars(tag)] for tag in accumulator.Tags()["scalars"]}


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_tensorboard_has_each_step_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that is killed after a few lines repeats some of them; TensorBoard shows those of the log."""
    monkeypatch.setattr(shapes, "DEFAULT_COUNT", {"eval": 20, "train": 60})
    monkeypatch.setattr(loop, "STEPS_BETWEEN_LINES", 1)
    path = tmp_path / "recipe.toml"
    text = RECIPE.replace('"shapes_vit", width = 24, depth = 1, heads = 2', '"shapes_cnn"')
    path.write_text(text + "[monitor]\nimages = 10\nsteps = 1\n", encoding="utf-8")
    command = ["train", str(path), "--out", str(tmp_path / "runs"), "--device", "cpu", "--tensorboard"]
    monkeypatch.setattr(loop, "SECONDS_BETWEEN_STATES", -1.0)

    def kill(state: RunState, file: Path) -> None:
        if state.step == 3:
            raise InterruptedError  # the line of step 3 is written, its state is not
        write_state(state, file)

    monkeypatch.setattr(loop, "write_state", kill)
    assert isinstance(CliRunner().invoke(app, command).exception, InterruptedError)
    folder = tmp_path / "runs/small"
    assert [step for step, _ in events(folder / "tensorboard")["log/loss"]] == [1, 2, 3]
    monkeypatch.setattr(loop, "write_state", write_state)
    time.sleep(1.1)  # event files are named, and so ordered, by the second
    assert CliRunner().invoke(app, command).exit_code == 0
    shown = events(folder / "tensorboard")
    for name in ("log", "monitor"):
        lines = [json.loads(line) for line in (folder / f"{name}.jsonl").read_text(encoding="utf-8").splitlines()]
        for key in ("loss", "learning_rate") if name == "log" else ("wci", "eval_robust_error"):
            steps, values = zip(*shown[f"{name}/{key}"], strict=True)
            assert list(steps) == [line["step"] for line in lines]
            assert list(values) == pytest.approx([line[key] for line in lines], rel=1e-6)
    assert [step for step, _ in shown["log/loss"]] == [1, 2, 3, 4]
    assert {tag for tag in shown if tag.endswith("/trace")} > {"monitor/trace"}


def test_tensorboard_is_an_extra(command: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    result = CliRunner().invoke(app, [*command, "--tensorboard"])
    assert isinstance(result.exception, ValueError)
    assert str(result.exception) == (
        "`--tensorboard` needs TensorBoard, which is not installed: pip install 'locality[tensorboard]'"
    )
    assert not (tmp_path / "runs").exists()


def test_mistakes_are_one_sentence_before_anything_is_made(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "wrong.toml").write_text(RECIPE.replace("fast_at", "fast_att").replace("= 16", "= 0"), encoding="utf-8")
    runs = ["--out", str(tmp_path / "runs")]
    for words, sentence in [
        (["nothing", *runs], "`recipe` must be one of pets_lite0"),
        (["shapes_cnn", "--out", str(tmp_path / "file")], "`--out` must be a folder"),
        (["shapes_cnn", *runs, "--device", "cuda:1"], "`device` must be cpu, or omitted for torch's choice, got 'cuda:1'"),
        ([str(tmp_path / "wrong.toml"), *runs], "is not a valid recipe, 2 problems: `loss.name` must be one of"),
    ]:
        result = CliRunner().invoke(app, ["train", *words])
        assert isinstance(result.exception, ValueError), result.output
        assert sentence in str(result.exception)
        assert "\n" not in str(result.exception)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "wrong.toml"]


@pytest.mark.parametrize(
    ("sizes", "net"),
    [
        ([(90, 60), (64, 64), (200, 100)], "shapes_cnn"),
        ([(100, 80), (100, 80), (100, 80)], "shapes_vit"),  # one size, which the network does not take
    ],
)
def test_images_of_other_sizes_are_fitted_to_the_network(
    tmp_path: Path,
    write_csv: Callable[..., Path],
    write_image: Callable[..., str],
    sizes: list[tuple[int, int]],
    net: str,
) -> None:
    rows = []
    for number, (width, height) in enumerate(sizes * 4):
        label, name = number % 2, f"{number}.png"
        write_image(tmp_path / name, width, height, seed=number)
        rows.append({"id": str(number), "path": name, "width": width, "height": height, "label": label, "wnid": f"n{label}"})
    manifest = write_csv(*rows, name="mixed.csv")
    recipe = tmp_path / "mixed.toml"
    recipe.write_text(
        f'name = "mixed"\nnet = {{ name = "{net}" }}\nepochs = 1\nbatch_size = 4\ndata = {{ name = "{manifest}" }}\n'
        "augmentation = { flip = true, shift = 4 }\n",
        encoding="utf-8",
    )
    result = CliRunner().invoke(app, ["train", str(recipe), "--out", str(tmp_path / "runs"), "--device", "cpu"])
    assert result.exit_code == 0, result.output
    assert "preprocessing: resize 64 bilinear, crop 64×64, mean 0.45, std 0.25\n" in result.output
    card = read_card(tmp_path / "runs/mixed/mixed.json")
    assert (card.spec.input_size, card.spec.resize) == ((64, 64), 64)


def test_a_stated_size_is_the_input_size_of_the_model(command: list[str], tmp_path: Path) -> None:
    text = RECIPE.replace("limit = 32", "limit = 32, size = 32")
    Path(command[1]).write_text(text.replace(NET, 'name = "shapes_cnn"'), encoding="utf-8")
    result = CliRunner().invoke(app, command)
    assert result.exit_code == 0, result.output
    card = read_card(tmp_path / "runs/small/small.json")
    assert (card.spec.input_size, card.spec.resize) == ((32, 32), 32)
    assert card.run is not None
    assert card.run.recipe["data"] == {"name": "shapes", "limit": 32, "size": 32}
    weights = str(tmp_path / "runs/small/small.safetensors")
    words = ["eval", "--model", weights, "--data", "shapes", "--limit", "10", "--methods", "SM", "--json"]
    done = CliRunner().invoke(app, words, catch_exceptions=False)
    measured = json.loads(done.stdout)
    assert measured["n"] == 10
    assert measured["provenance"]["preprocessing"].startswith("resize 32 bilinear, crop 32×32")


def test_training_on_images_without_boxes(command: list[str], tmp_path: Path, small_cifar10: Path) -> None:
    text = RECIPE.replace('"shapes", limit = 32', f'"cifar10:{small_cifar10}"')
    Path(command[1]).write_text(text.replace(NET, 'name = "shapes_cnn"'), encoding="utf-8")
    result = CliRunner().invoke(app, command)
    assert result.exit_code == 0, result.output
    card = read_card(tmp_path / "runs/small/small.json")
    assert (card.data, card.spec.input_size, card.spec.classes) == ("cifar10", (32, 32), CLASSES)
    assert 20 * card.accuracy["clean"] == round(20 * card.accuracy["clean"])  # of 20 test images
