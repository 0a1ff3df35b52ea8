"""Which parts a suite has for a model, and what is wrong with them once models and data were opened."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from locality.errors import Problem
from locality.runner.measurement import Part
from locality.runner.measurements import MEASUREMENTS
from locality.runner.suite import Suite
from locality.runner.suite_file import data_problems
from locality.runner.suite_images import opened_source
from locality.runner.suite_models import PlannedModel
from locality.zoo.preprocessing import check_same_pixels


def grouped_parts(suite: Suite, has_regions: bool = True) -> list[tuple[Part, ...]]:
    """The parts that have units of their own, each followed by the parts that are measured along with it.

    Data without regions have no parts of measurements that need them; what would be measured along with one has units of
    its own.
    """
    measured = [one for one in MEASUREMENTS.values() if has_regions or not one.needs_regions]
    parts = [part for measurement in measured for part in measurement.parts(suite)]
    names = {part.name for part in parts}
    parts = [part if part.along in names else replace(part, along="") for part in parts]
    return [(part, *(other for other in parts if other.along == part.name)) for part in parts if not part.along]


def model_has(part: Part, model: PlannedModel) -> bool:
    """Whether the part is measured for the model."""
    return not part.models or model.name in part.models


def data_is_broken(suite: Suite, problems: list[Problem]) -> bool:
    """Whether the suite's data cannot be opened; the problem is listed once, not once per model."""
    wrong = data_problems(suite.data)
    problems += wrong
    if wrong or not suite.data.name:
        return bool(wrong)
    try:
        opened_source(suite.data.name, suite.data.seed, suite.data.options)
    except (ValueError, TypeError, OSError) as error:
        problems.append(Problem("data", f"cannot be opened: {error}"))
        return True
    return False


def region_problems(suite: Suite, data: str) -> list[Problem]:
    """What the suite asks for on data without boxes: something that needs them, or nothing that does without."""
    needing = [name for name, measurement in MEASUREMENTS.items() if measurement.needs_regions and suite.requested(name)]
    problems = [Problem(name, f"cannot be measured on {data}, which has no boxes: leave it out") for name in needing]
    if not needing and not grouped_parts(suite, has_regions=False):
        text = f"has no boxes ({data}), so locality cannot be measured: ask for something else, such as similarity or robust"
        problems.append(Problem("data", text))
    return problems


def surrogate_problems(suite: Suite, models: Sequence[PlannedModel]) -> list[Problem]:
    """Models that do not see the same pixels as the surrogate of a part that they are measured in."""
    pairs = [(part, other) for part, *_ in grouped_parts(suite) for other in models if other.name == part.surrogate]
    problems = []
    for part, surrogate in pairs:
        for model in models:
            try:
                if model_has(part, model):
                    check_same_pixels(model.spec, surrogate.spec, "surrogate")
            except ValueError as error:
                problems.append(Problem(part.name, f"cannot be measured for {model.name}: {error}"))
    return problems
