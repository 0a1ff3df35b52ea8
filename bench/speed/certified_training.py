"""What certified training costs: processor time of a step of EMMA beside a plain step and a step of adversarial training.

    python bench/speed/certified_training.py [--repeats 9] [--out bench/results/certified_training_speed.json]

The network of `tiny_liresnet`, batches of 64, one thread, in full precision. All parts make one step in turn; a ratio is the
median over the turns. `emma_N` has N power steps, `at_2` attacks with two steps.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import torch
from measuring import about
from training import Prepared

from locality.training.inner_attack import InnerAttack
from locality.training.losses.adversarial import Adversarial
from locality.training.losses.emma import GloroEmma
from locality.training.losses.standard import Standard
from locality.training.recipe import Recipe, read_recipe

POWER_STEPS = (1, 2, 5, 10)
GOALS = {"plain": 1.15, "at_2": 0.5}  # largest ratios of EMMA with the recipe's power steps


def recipes() -> dict[str, Recipe]:
    base = replace(read_recipe("tiny_liresnet"), precision="no")
    emma = base.loss
    assert isinstance(emma, GloroEmma)
    return {
        "plain": replace(base, loss=Standard()),
        **{f"emma_{steps}": replace(base, loss=replace(emma, power_steps=steps)) for steps in POWER_STEPS},
        "at_2": replace(base, loss=Adversarial(InnerAttack(0.5, "l2", steps=2))),
    }


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--out", type=Path, default=Path("bench/results/certified_training_speed.json"))
    options = parser.parse_args(arguments)
    if options.repeats < 2:
        parser.error("--repeats must be at least 2")
    torch.set_num_threads(1)
    prepared = {name: Prepared.of(recipe) for name, recipe in recipes().items()}
    turns = []
    for turn in range(options.repeats + 1):
        names = list(prepared) if turn % 2 else list(prepared)[::-1]
        turns.append({name: prepared[name].seconds() for name in names})
    result = about(sys.argv, ["torch", "accelerate"])
    result["parts"] = {}
    loss = read_recipe("tiny_liresnet").loss
    assert isinstance(loss, GloroEmma)
    for name in prepared:
        row = {"seconds": round(statistics.median(turn[name] for turn in turns[1:]), 4)}
        for base in GOALS:
            row[f"ratio to {base}"] = round(statistics.median(turn[name] / turn[base] for turn in turns[1:]), 4)
        result["parts"][name] = row
        print(name, row)
    chosen = result["parts"][f"emma_{loss.power_steps}"]
    result["goals"] = {
        f"emma_{loss.power_steps} to {base}": {"goal": most, "reached": chosen[f"ratio to {base}"] <= most}
        for base, most in GOALS.items()
    }
    print(result["goals"])
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
