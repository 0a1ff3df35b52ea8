"""One small training per part of a recipe, such as a loss or an average, for `kills` to kill.

torch is imported once and every run is a fork of this process, so that a run takes a fraction of a second. Kill -9 hits the
fork as it would any other process: what it had not written is lost.
"""

from __future__ import annotations

import multiprocessing
import sys
import tempfile
import traceback
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from attacks.kill_targets import Target, modified

ATTACK = {"epsilon": 0.03, "steps": 2}
AT: dict[str, Any] = {"name": "at", "attack": ATTACK}
MONITOR: dict[str, Any] = {"images": 10, "steps": 1}
# A third of the run is over after the first epoch, so that SWA, the drop and the control of the rate have been at work.
RECIPE: dict[str, Any] = {
    "name": "killed",
    "net": {"name": "killed_net"},
    "data": {"name": "shapes", "limit": 40},
    "epochs": 3,
    "batch_size": 10,
    "augmentation": {"flip": True, "shift": 2},
    "loss": AT,
    "optimizer": {"name": "sgd", "learning_rate": 0.1},
}
FAST = {"name": "sgd", "learning_rate": 1.0}  # the loss rises in the second epoch, which ends the run
DROP = {"name": "piecewise", "milestones": [0.3]}
# Part of a recipe ↦ name ↦ what the recipe has then.
AXES: dict[str, dict[str, dict[str, Any]]] = {
    "loss": {
        "standard": {"loss": {"name": "standard"}},
        "at": {},
        "fast_at": {"loss": {"name": "fast_at", "attack": {"epsilon": 0.03}}},
        **{name: {"loss": AT | {"name": name}} for name in ("trades", "alp", "mart", "rat", "rat_terms", "rat_labels")},
    },
    "regularisers": {
        name: {"regularisers": {name: {"weight": weight}}}
        for name, weight in {"logit_squeezing": 0.01, "trh": 0.01, "trh_full": 1e-3, "l2": 1e-3, "s2o": 0.1}.items()
    },
    "weight_shift": {
        "none": {},
        **{name: {"weight_shift": {"name": name}} for name in ("awp", "awpt", "sam")},
    },
    "average": {
        "none": {},
        "ema": {"average": {"name": "ema", "decay": 0.9}},
        "swa": {"average": {"name": "swa", "start": 0.3}},
    },
    "step_size": {
        **{name: {"step_size": {"name": name}} for name in ("constant", "one_cycle", "cosine")},
        "piecewise": {"step_size": DROP},
        "equal_mean": {"step_size": {"name": "equal_mean", "plan": DROP, "start": 0.3, "mean": 0.05}},
        "wci": {"step_size": {"name": "wci", "plan": DROP, "start": 0.3, "multiple": 0.5}, "monitor": MONITOR},
    },
    "monitor": {"monitor": {"monitor": MONITOR}},
    # With a tenth of the rate for the body, the head alone in the first epoch, and with frozen statistics.
    "fine_tuning": {
        "careful": {"net": {"name": "shapes_cnn"}, "start": "shapes_cnn", "fine_tuning": {"head_epochs": 1}},
    },
    "validation": {
        "best": {"validation": {"share": 0.25, "by": "loss"}, "average": {"name": "ema", "decay": 0.5}},
        "patience": {"validation": {"share": 0.25, "by": "loss", "patience": 1}, "optimizer": FAST},
    },
}


@dataclass(frozen=True)
class TrainingTarget(Target):
    """A training that runs as a fork of this process."""

    recipe: dict[str, Any] | None = None

    def start(self, out: Path) -> Fork:
        return Fork(self.recipe or {}, out)


class Fork:
    """A training in a fork, with what `kills` asks of a process."""

    def __init__(self, recipe: dict[str, Any], out: Path) -> None:
        self.error = out.with_name(f"{out.name}.error")
        self.process = multiprocessing.get_context("fork").Process(target=_trained, args=(recipe, out, self.error))
        self.process.start()

    @property
    def returncode(self) -> int | None:
        return self.process.exitcode

    def poll(self) -> int | None:
        return self.process.exitcode

    def kill(self) -> None:
        self.process.kill()

    def communicate(self) -> tuple[None, bytes]:
        self.process.join()
        return None, self.error.read_bytes() if self.error.exists() else b""


def _trained(recipe: dict[str, Any], out: Path, error: Path) -> None:
    try:
        _train(recipe, out)
    except Exception:
        error.write_text(traceback.format_exc(), encoding="utf-8")
        sys.exit(1)


def _train(recipe: dict[str, Any], out: Path) -> None:
    from safetensors.torch import save_file

    from locality.data.sources import shapes
    from locality.training import loop
    from locality.training.recipe import recipe_from
    from locality.zoo.nets import NETS

    loop.SECONDS_BETWEEN_STATES = -1.0  # a state after every step
    loop.STEPS_BETWEEN_LINES = 1
    shapes.DEFAULT_COUNT.update({"eval": 20, "train": 40})
    NETS["killed_net"] = _net
    trained = loop.train(recipe_from(recipe, "killed"), out, device="cpu")
    save_file(dict(trained.model.net.state_dict()), out / "weights.safetensors")


def _net(classes: int) -> Any:
    """A small network with BatchNorm, piecewise linear in each layer."""
    from torch import nn

    from locality.zoo.nets.forward_pass import FeatureSequential

    layers = [nn.AvgPool2d(16), nn.Conv2d(3, 4, 1), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(64, classes)]
    return FeatureSequential(*layers)


def axis_targets() -> list[TrainingTarget]:
    """One training per name of every table."""
    import torch

    torch.set_num_threads(1)  # a fork of a process with a pool of threads would hang
    with tempfile.TemporaryDirectory() as folder:  # once here, so that the forks find everything imported
        _train(RECIPE | {"monitor": MONITOR}, Path(folder))
    return [
        TrainingTarget(
            f"{axis}-{name}",
            lambda out: [],
            lambda out: modified(out / "state.pt"),
            ("weights.safetensors", "*.jsonl"),
            RECIPE | change,
        )
        for axis, several in AXES.items()
        for name, change in several.items()
    ]
