"""Hostile suites, recipes, stored results and states of training runs."""

from __future__ import annotations

import json
import pickle
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from hostile_data import HEADER, photograph
from hostile_file import Hostile, folder, holding, link_to, pipe
from hostile_models import Runs

BENCH = "bench {file} --out {folder}/out --processes 0"
TRAIN = "train {file} --out {folder}/runs --threads 1"
TABLE = "table {folder}"
RESUME = "train {folder}/recipe.toml --out {folder} --threads 1"
TOML = "hostile.toml"
RECIPE = 'name = "run"\nnet = { name = "shapes_cnn" }\ndata = { name = "images.csv" }\nepochs = 1\nbatch_size = 8\n'
SUITE = 'models = ["shapes_cnn"]\nmethods = ["SM"]\ndata = { name = "shapes", limit = 1 }\n'

FILES: dict[str, Callable[[Path], object]] = {  # no TOML at all
    "nested 100,000 deep": holding("a = " + "[" * 100_000),
    "with a key of 100,000 parts": holding(".".join("a" * 100_000) + " = 1"),
    "of two million bytes": holding("#" * 2_000_000),
    "of noise": holding(bytes(range(256))),
    "that is empty": holding(""),
    "that is a pipe": pipe,
    "that is a folder": folder,
    "that is an endless device": link_to("/dev/zero"),
    "that is a link in a circle": link_to(TOML),
}
SUITES = {
    "a name that climbs": SUITE + 'name = "../../evil"',
    "a name that moves the cursor": SUITE + 'name = "\\u001b[2J"',
    "a number of 10^10000000": SUITE + 'rho = "1e10000000"',
    "a fraction by zero": SUITE + 'rho = "1/0"',
    "a rho of nan": SUITE + "rho = nan",
    "a block of -1": SUITE + "block = -1",
    "keys that move the cursor": SUITE + '"\\u001b[2J" = 1',
    "a method that is a path": SUITE.replace('"SM"', '"../../SM"'),
    "a model of 10,000 characters": SUITE.replace("shapes_cnn", "a" * 10_000),
    "a model with a zero byte": SUITE.replace("shapes_cnn", "a\\u0000.pth"),
    "a model that moves the cursor": SUITE.replace("shapes_cnn", "\\u001b[2J"),
    "data of 10,000 characters": SUITE.replace('name = "shapes"', f'name = "{"a" * 10_000}"'),
    "data with a zero byte": SUITE.replace('name = "shapes"', 'name = "a\\u0000.csv"'),
    "data that is a device": SUITE.replace('name = "shapes"', 'name = "/dev/zero"'),
    "a limit of 0": SUITE.replace("limit = 1", "limit = 0"),
    "models of numbers": SUITE.replace('["shapes_cnn"]', "[1, 2]"),
    "models in one another": SUITE.replace('["shapes_cnn"]', '[[["shapes_cnn"]]]'),
}
RECIPES = {
    "a name that climbs": RECIPE.replace('"run"', '"../../evil"'),
    "a batch of 10^18": RECIPE.replace("batch_size = 8", "batch_size = 1000000000000000000"),
    "a batch of 10^30": RECIPE.replace("batch_size = 8", "batch_size = 1" + "0" * 30),
    "a seed of 10^30": RECIPE + "seed = 1" + "0" * 30,
    "a rate of nan": RECIPE + "[optimizer]\nlearning_rate = nan",
    "a network of 10^9 layers": RECIPE.replace('"shapes_cnn"', '"tiny_vit", depth = 1000000000'),
    "a network of 10^9 channels": RECIPE.replace('"shapes_cnn"', '"tiny_vit", width = 1000000000, heads = 1'),
    "a start that is code": RECIPE + 'start = "os:system"',
    "a start that is a device": RECIPE + 'start = "/dev/zero"',
    "a start of 10,000 characters": RECIPE + f'start = "{"a" * 10_000}"',
    "a mean of texts": RECIPE + 'mean = ["a", "b", "c"]',
    "data with a zero byte": RECIPE.replace('name = "images.csv"', 'name = "a\\u0000.csv"'),
}


def write_images(folder: Path) -> None:
    """Sixteen images to train on."""
    rows = [f"{n},{n}.png,,{n % 2},n{n % 2},5,5,40,40,64,64,made,CC0-1.0" for n in range(16)]
    for number in range(16):
        (folder / f"{number}.png").write_bytes(photograph())
    (folder / "images.csv").write_text("\n".join([HEADER, *rows]))


def to_train(text: str) -> Callable[[Path], object]:
    """A recipe, with its images."""

    def both(path: Path) -> None:
        write_images(path.parent)
        path.write_text(text)

    return both


def of_a_run(make: Callable[[Path], object]) -> Callable[[Path], object]:
    """The state of a run, with its recipe and its images."""

    def both(path: Path) -> None:
        to_train(RECIPE)(path.parents[1] / "recipe.toml")
        make(path)

    return both


def bomb(path: Path) -> None:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("archive/data.pkl", pickle.dumps({}))
        archive.writestr("archive/data/0", bytes(20_000_000))


def results(**changes: Any) -> str:
    good = {
        "name": "x",
        "provenance": {"units": {"planned": 1, "finished": 1, "with faults": 0}},
        "sha256": {"rows": "0" * 64},
    }
    return json.dumps(good | changes)


def beside_units(make: Callable[[Path], object]) -> Callable[[Path], object]:
    def both(path: Path) -> None:
        (path.parent / "units").mkdir()
        make(path)

    return both


STATES = {
    "a state that runs a command": lambda path: torch.save({"step": Runs(path)}, path),
    "a state that is a bomb": bomb,
    "a state of noise": holding(bytes(range(256)) * 10),
    "a state with other keys": lambda path: torch.save({"a": 1}, path),
    "a pipe as a state": pipe,
    "an endless device as a state": link_to("/dev/zero"),
}
RESULTS = {
    "results nested 100,000 deep": holding("[" * 100_000),
    "results of noise": holding(bytes(range(256))),
    "results that are a list": holding("[]"),
    "results without tables": holding(results()),
    "results whose table climbs": holding(results(sha256={"../../rows": "0" * 64})),
    "results with a text for provenance": holding(results(provenance="x", sha256={})),
    "a pipe as results": pipe,
    "an endless device as results": link_to("/dev/zero"),
}
PLANS = {
    "a plan nested 100,000 deep": holding("[" * 100_000),
    "a plan of noise": holding(bytes(range(256))),
    "a plan of texts": holding(json.dumps(dict.fromkeys(("suite", "device", "versions", "models", "data", "units"), "x"))),
    "a pipe as a plan": pipe,
    "an endless device as a plan": link_to("/dev/zero"),
}

SETTINGS: dict[str, Hostile] = {
    **{f"a suite {name}": Hostile(BENCH, make, TOML) for name, make in FILES.items()},
    **{f"a recipe {name}": Hostile(TRAIN, make, TOML) for name, make in FILES.items()},
    **{f"a suite with {name}": Hostile(BENCH, holding(text), TOML) for name, text in SUITES.items()},
    "a suite with code": Hostile(f"{BENCH} --no-code", holding(SUITE.replace("shapes_cnn", "os:system")), TOML),
    **{f"a recipe with {name}": Hostile(TRAIN, to_train(text), TOML) for name, text in RECIPES.items()},
    **{name: Hostile(RESUME, of_a_run(make), "run/state.pt") for name, make in STATES.items()},
    **{name: Hostile(TABLE, make, "results.json") for name, make in RESULTS.items()},
    **{name: Hostile(TABLE, beside_units(make), "plan.json") for name, make in PLANS.items()},
}
