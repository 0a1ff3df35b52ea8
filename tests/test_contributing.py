"""The examples of CONTRIBUTING.md run as they are written."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pandas as pd
import pytest
import torch

from locality import find_boundary, load_dataset, load_model
from locality.attribution import METHODS, attribute_all
from locality.boundary import SEARCHES
from locality.certified import CERTIFICATES
from locality.report.figures.catalogue import FIGURES
from locality.report.tables.build import TABLES
from locality.results.results import Results
from locality.runner.measurements import MEASUREMENTS
from locality.scores import SCORES, score_maps
from locality.training.averaging import AVERAGES
from locality.training.losses import LOSSES
from locality.training.regularisers import REGULARISERS
from locality.training.step_size import STEP_SIZES
from locality.training.weight_shifts import WEIGHT_SHIFTS

TEXT = (Path(__file__).parents[1] / "CONTRIBUTING.md").read_text(encoding="utf-8")
EXAMPLES = [part.split("```")[0] for part in TEXT.split("```python\n")[1:]]
EXTENDED: list[tuple[dict[str, Any], set[str]]] = [
    (METHODS, {"GradientMagnitude"}),
    (SEARCHES, {"white"}),
    (SCORES, {"share_inside"}),
    (MEASUREMENTS, {"brightness"}),
    (LOSSES, {"scaled"}),
    (REGULARISERS, {"feature_decay"}),
    (WEIGHT_SHIFTS, {"noise"}),
    (AVERAGES, {"slow_ema"}),
    (STEP_SIZES, {"linear"}),
    (CERTIFICATES, {"unbounded"}),
    (TABLES, {"sizes"}),
    (FIGURES, {"empty"}),
]


@pytest.fixture
def _examples(monkeypatch: pytest.MonkeyPatch) -> None:
    """All examples, run; the tables are as before when the test ends."""
    for table, names in EXTENDED:
        for name in names:
            monkeypatch.setitem(table, name, None)
    example = ModuleType("example")
    monkeypatch.setitem(sys.modules, "example", example)  # where dataclasses look for it
    for code in EXAMPLES:
        exec(compile(code, "CONTRIBUTING.md", "exec"), vars(example))


@pytest.mark.usefixtures("_examples")
def test_every_table_of_the_house_has_an_example_that_works() -> None:
    for table, names in EXTENDED:
        assert all(table[name] is not None for name in names)
    model, batch = load_model("shapes_cnn"), load_dataset("shapes", limit=2, count=10).batch(range(2))
    maps = attribute_all(model, batch.images, ["GradientMagnitude"])["GradientMagnitude"]
    assert isinstance(maps, torch.Tensor)
    assert bool((maps >= 0).all())
    assert bool((score_maps(maps, batch.masks, ["share_inside"])["share_inside"] <= 1).all())
    with pytest.warns(UserWarning, match="probably not the nearest"):
        assert bool((find_boundary(model, batch.images, search="white").distance > 0).all())
    assert bool((CERTIFICATES["unbounded"]()(model, batch.images).radius > 0).all())
    results = Results("made up", {"faults": pd.DataFrame({"model": ["a"]})})
    assert ("faults", "1") in {(name.text, count.text) for name, count in TABLES["sizes"](results).rows}
