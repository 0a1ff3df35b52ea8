"""What each part of a training step costs: processor time, passes through the network and memory, beside plain AT or TRADES.

    python bench/speed/training.py [--net tiny_resnet] [--batch 64] [--steps 10] [--repeats 9] [--parts NAME ...]
                                   [--out bench/results/training_speed.json]

One thread. All parts make one step in turn, as often as --repeats says; times are processor times, which a busy machine
hardly changes, and a ratio is the median over the turns of a part's time over that of what it is compared with, in the same
turn: plain AT, or TRADES for parts that contain it. A pass is one evaluation of all images of the batch. Memory is the peak
of a process that makes two steps of one part, minus that of a process that only builds the network; each part has a process
of its own, and the ratio is to the same base. --steps are those of the attack.

Two parts are no steps. `sampled_probe` is one probe of all layers' traces on the batch, beside a plain step without attack
(`standard`). `monitor` is one measurement with its default settings, beside an epoch of AT with two attack steps on
--epoch-images images: its time over that of a step, times the number of steps.
"""

from __future__ import annotations

import argparse
import copy
import json
import multiprocessing
import statistics
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from accelerate import Accelerator
from measuring import about
from torch import Tensor

from locality.curvature.traces import layer_traces
from locality.training.averaging import Ema, Swa
from locality.training.inner_attack import InnerAttack
from locality.training.losses.adversarial import Adversarial
from locality.training.losses.alp import Alp
from locality.training.losses.mart import Mart
from locality.training.losses.rat import Rat
from locality.training.losses.rat_labels import RatLabels
from locality.training.losses.rat_terms import RatTerms
from locality.training.losses.standard import Standard
from locality.training.losses.trades import Trades
from locality.training.monitor import Monitor
from locality.training.monitor_settings import MonitorSettings
from locality.training.network import FeatureModel, Network
from locality.training.new_model import new_net
from locality.training.optimizer import Optimizer
from locality.training.recipe import Recipe
from locality.training.recipe_parts import Net, TrainingData
from locality.training.regularisers.l2 import L2
from locality.training.regularisers.s2o import S2o
from locality.training.regularisers.trh import Trh
from locality.training.regularisers.trh_full import TrhFull
from locality.training.schedules import Moment
from locality.training.step import TrainingStep
from locality.training.weight_shifts.awp import Awp, Awpt
from locality.training.weight_shifts.sam import Sam
from locality.types import ModelSpec, Threat
from locality.zoo.nets import INPUT_SIZE
from locality.zoo.pixel_model import PixelModel

CLASSES = 10
MOMENT = Moment(step=9, steps=10, epoch=0, epochs=1)  # the end of an epoch, where SWA takes in the weights


def parts(attack: InnerAttack) -> dict[str, dict[str, Any]]:
    """What is measured: the settings of a recipe in which each part differs from the base. A new part is one line."""
    return {
        "base": {},
        "standard": {"loss": Standard()},
        "trh": {"regularisers": {"trh": Trh(5e-3)}},
        "trh_full": {"regularisers": {"trh_full": TrhFull(5e-3)}},
        "l2": {"regularisers": {"l2": L2(1e-4)}},
        "s2o": {"regularisers": {"s2o": S2o(0.1)}},
        "ema": {"average": Ema(0.995)},
        "swa": {"average": Swa(0.0)},
        "awp": {"weight_shift": Awp(5e-3)},
        "awpt": {"weight_shift": Awpt(5e-3)},
        "sam": {"weight_shift": Sam(0.05)},
        "trades": {"loss": Trades(attack)},
        "trades_trh": {"loss": Trades(attack), "regularisers": {"trh": Trh(5e-3)}},
        "mart": {"loss": Mart(attack)},
        "alp": {"loss": Alp(attack)},
        "rat": {"loss": Rat(attack)},
        "rat_one_draw": {"loss": Rat(attack, antithetic=False)},
        "rat_terms": {"loss": RatTerms(attack)},
        "rat_labels": {"loss": RatLabels(attack)},
    }


# What a part is compared with, if not plain AT.
COMPARED_WITH = dict.fromkeys(("trades_trh", "rat", "rat_one_draw", "rat_terms", "rat_labels"), "trades")
MEASURED = ("sampled_probe", "monitor")  # parts that are no steps
EPOCH_STEPS = 2  # of the attack of the epoch that the monitor is compared with


def goals(steps: int) -> dict[str, float]:
    """Largest ratios; AWP has one pass more than an attack of `steps` and the pass to train on."""
    awp = 1.05 * (steps + 2) / (steps + 1)
    return {"trh": 1.03, "trades_trh": 1.03, "ema": 1.02, "awp": awp, "rat_labels": 1.05}


@dataclass(eq=False)
class Prepared:
    """A network and its step, on one batch of random images; `images` counts those that went through the network."""

    model: PixelModel
    step: TrainingStep
    batch: tuple[Tensor, Tensor, Sequence[int]]
    images: int = 0

    @classmethod
    def of(cls, recipe: Recipe) -> Prepared:
        spec = ModelSpec("bench", INPUT_SIZE, INPUT_SIZE[0], "bilinear", recipe.mean, recipe.std, tuple("abcdefghij"))
        torch.manual_seed(0)
        model = PixelModel(new_net(recipe, CLASSES), spec)
        model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        accelerator = Accelerator(cpu=True)
        bare = FeatureModel(model).train()
        wrapped, optimizer = accelerator.prepare(bare, recipe.optimizer(model.parameters()))
        step = TrainingStep(
            recipe,
            accelerator,
            Network(wrapped, accelerator.unwrap_model(wrapped), lambda value: accelerator.reduce(value, reduction="mean")),
            optimizer,
            recipe.average(model.net.state_dict(), None),
            recipe.step_size(None),
        )
        images = torch.rand(recipe.batch_size, 3, *INPUT_SIZE)
        labels = torch.randint(CLASSES, (recipe.batch_size,))
        prepared = cls(model, step, (images, labels, range(recipe.batch_size)))
        bare.register_forward_hook(prepared._count)
        return prepared

    def _count(self, module: Any, inputs: tuple[Tensor], seen: Any) -> None:
        self.images += len(inputs[0])

    def seconds(self) -> float:
        """Processor time of one step."""
        start = time.process_time()
        self.step(MOMENT, *self.batch)
        return time.process_time() - start


def peak_megabytes(recipe: Recipe | None) -> float:
    """Largest memory of a new process that makes two steps; None stands for the base without a step."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(_peak, (recipe,))


def _peak(recipe: Recipe | None) -> float:
    torch.set_num_threads(1)
    if recipe is None:
        Prepared.of(recipe_of("tiny_resnet", 1, 1, {}))
    else:
        prepared = Prepared.of(recipe)
        for _ in range(2):
            prepared.seconds()
    # Not getrusage: its peak includes that of the parent before the new program was loaded.
    status = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
    return next(int(line.split()[1]) for line in status if line.startswith("VmHWM")) / 1024


def recipe_of(net: str, batch: int, steps: int, change: dict[str, Any]) -> Recipe:
    attack = InnerAttack(4 / 255, steps=steps, step_size=0.25)
    base = Recipe(
        name="bench",
        net=Net(net),
        data=TrainingData("tiny-imagenet"),
        epochs=1,
        batch_size=batch,
        loss=Adversarial(attack),
        optimizer=Optimizer("sgd", learning_rate=0.01),
    )
    return replace(base, **change)


def measured(recipes: dict[str, Recipe], repeats: int, limits: dict[str, float]) -> dict[str, dict[str, Any]]:
    """Time, passes and memory of each part. The first turn, in which memory is allocated, does not count."""
    prepared = {name: Prepared.of(recipe) for name, recipe in recipes.items()}
    turns: list[dict[str, float]] = []
    for turn in range(repeats + 1):
        names = list(prepared) if turn % 2 else list(prepared)[::-1]
        turns.append({name: prepared[name].seconds() for name in names})
    empty = peak_megabytes(None)
    memory = {name: peak_megabytes(recipe) - empty for name, recipe in recipes.items()}
    results: dict[str, dict[str, Any]] = {}
    for name, part in prepared.items():
        base = COMPARED_WITH.get(name, "base")
        ratios = [turn[name] / turn[base] for turn in turns[1:]]
        ratio = statistics.median(ratios)
        results[name] = {
            "seconds": round(statistics.median(turn[name] for turn in turns[1:]), 4),
            "compared_with": base,
            "ratio": round(ratio, 4),
            "ratio_quartiles": [round(value, 4) for value in statistics.quantiles(ratios, n=4)[::2]],
            "passes": part.images / (repeats + 1) / len(part.batch[1]),
            "megabytes": round(memory[name], 1),
            "memory_ratio": round(memory[name] / memory[base], 3),
        }
        if name in limits:
            results[name] |= {"goal": round(limits[name], 4), "reached": ratio <= limits[name]}
    return results


def measured_probe(recipe: Recipe, repeats: int) -> dict[str, Any]:
    """One probe of all layers on the images of a batch, beside a plain step on them."""
    prepared = Prepared.of(recipe)
    images, labels, _ = prepared.batch
    turns = []
    for _ in range(repeats + 1):
        step = prepared.seconds()
        start = time.process_time()
        layer_traces(prepared.model, images, labels, "sampled", probes=1)
        turns.append((time.process_time() - start, step))
    return _against("standard", turns[1:], 1.0)


def measured_monitor(recipe: Recipe, repeats: int, epoch_images: int) -> dict[str, Any]:
    """One measurement of the monitor by default, beside the steps of an epoch of AT."""
    prepared = Prepared.of(recipe)
    settings, epoch_gradients = MonitorSettings(), epoch_images * (1 + EPOCH_STEPS)
    count = settings.affordable_images(epoch_gradients, CLASSES)
    split = torch.rand(count, 3, *INPUT_SIZE), torch.randint(CLASSES, (count,))
    monitor = Monitor(settings, Threat("linf", 4 / 255), split, split, epoch_gradients)
    turns, gradients = [], 0
    for _ in range(repeats + 1):
        step = prepared.seconds()
        start = time.process_time()
        gradients = monitor.measure(copy.deepcopy(prepared.model).eval().requires_grad_(False), seed=0)["gradients"]
        turns.append((time.process_time() - start, step * (epoch_images // recipe.batch_size)))
    row = _against(f"an epoch of {epoch_images:,} images", turns[1:], 0.1)
    return row | {"images": count, "gradients": gradients, "gradients_ratio": round(gradients / epoch_gradients, 4)}


def _against(base: str, turns: Sequence[tuple[float, float]], goal: float) -> dict[str, Any]:
    """A part that is no step: pairs of its seconds and those of its base."""
    ratios = [own / other for own, other in turns]
    ratio = statistics.median(ratios)
    return {
        "seconds": round(statistics.median(own for own, _ in turns), 4),
        "compared_with": base,
        "ratio": round(ratio, 4),
        "ratio_quartiles": [round(value, 4) for value in statistics.quantiles(ratios, n=4)[::2]],
        "goal": goal,
        "reached": ratio <= goal,
    }


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--net", default="tiny_resnet")
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--epoch-images", type=int, default=4_000, help="of the epoch that the monitor is compared with")
    parser.add_argument("--parts", nargs="*", help="some of them; the base is always measured")
    parser.add_argument("--out", type=Path, default=Path("bench/results/training_speed.json"))
    options = parser.parse_args(arguments)
    if options.repeats < 2:
        parser.error("--repeats must be at least 2")
    torch.set_num_threads(1)
    changes = parts(InnerAttack(4 / 255, steps=options.steps, step_size=0.25))
    known = [*changes, *MEASURED]
    unknown = set(options.parts or []) - set(known)
    if unknown:
        parser.error(f"--parts must be of {', '.join(known)}, got {', '.join(sorted(unknown))}")
    chosen = {"base", *(options.parts or known)}
    chosen |= {COMPARED_WITH.get(name, "base") for name in chosen - set(MEASURED)}
    recipes = {
        name: recipe_of(options.net, options.batch, options.steps, change)
        for name, change in changes.items()
        if name in chosen
    }
    result = about(sys.argv, ["torch", "accelerate"])
    result["parts"] = measured(recipes, options.repeats, goals(options.steps))
    if "sampled_probe" in chosen:
        plain = recipe_of(options.net, options.batch, options.steps, changes["standard"])
        result["parts"]["sampled_probe"] = measured_probe(plain, options.repeats)
    if "monitor" in chosen:
        trained = recipe_of(options.net, options.batch, EPOCH_STEPS, {})
        result["parts"]["monitor"] = measured_monitor(trained, options.repeats, options.epoch_images)
    print(result["command"])
    print(f"{'part':14} {'seconds':>8} {'ratio':>7} {'passes':>6} {'MB':>8} {'ratio':>6}  to")
    for name, row in result["parts"].items():
        goal = f", goal {row['goal']:.3f} {'reached' if row['reached'] else 'missed'}" if "goal" in row else ""
        passes = f"{row['passes']:6.2f} {row['megabytes']:8.1f} {row['memory_ratio']:6.2f}" if "passes" in row else " " * 22
        print(f"{name:14} {row['seconds']:8.3f} {row['ratio']:7.3f} {passes}  {row['compared_with']}{goal}")
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
