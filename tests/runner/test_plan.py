"""Plans: the parts of a suite, and keys that change with everything a unit's numbers depend on."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from suite_examples import EVERYTHING, OTHER

from locality.runner.measurements.gallery import GallerySettings
from locality.runner.plan import make_plan
from locality.runner.plan_problems import grouped_parts
from locality.runner.suite import Suite


def keys(suite: Suite) -> dict[str, set[str]]:
    """The keys of each part."""
    found: dict[str, set[str]] = {}
    for unit in make_plan(suite).units:
        found.setdefault(unit.part, set()).add(unit.key)
    return found


SMALL = replace(EVERYTHING, models=EVERYTHING.models[:1], data=replace(EVERYTHING.data, limit=2))
ALL = {
    "locality",
    "regions",
    "robust 1",
    "faithfulness",
    "removal",
    "sensitivity",
    "layer_randomisation",
    "searches fast",
    "certified 1",
    "curvature",
    "curvature test",
    "gallery",
}
EVAL = ALL - {"curvature"}  # measured on the suite's own data; the training images are not
MAPS = {"locality", "faithfulness", "removal", "sensitivity", "layer_randomisation", "gallery"}


def measuring(name: str, *several: object) -> dict[str, Any]:
    """The change of a suite to other settings of one measurement."""
    return {"measurements": {**SMALL.measurements, name: several}}


def changed(name: str, **fields: object) -> dict[str, Any]:
    (settings,) = SMALL.requested(name)
    return measuring(name, replace(settings, **fields))


CHANGES: list[tuple[Mapping[str, Any], set[str]]] = [
    ({"methods": ("SM", "IG")}, {"locality", "gallery"}),
    ({"search": "thorough"}, MAPS),
    ({"target": "label"}, MAPS),
    ({"rho": 0.1}, {"locality"}),
    ({"channels": "sum"}, {"locality"}),
    ({"seed": 1}, ALL),
    (measuring("similarity"), {"locality"}),  # measured in the units of locality
    (changed("regions", sigma=0.1), {"regions"}),
    (changed("regions", draws=2), {"regions"}),
    (changed("regions", edge=0.1), {"regions"}),
    (changed("robust", epsilon=0.1), {"robust 1"}),
    (changed("robust", attack="cw20"), {"robust 1"}),
    (changed("robust", norm="l2"), {"robust 1"}),
    (changed("certified", options={"samples": 6, "selection_samples": 2}), {"certified 1"}),
    (changed("faithfulness", samples=4), {"faithfulness"}),
    (changed("faithfulness", methods=("SM",)), {"faithfulness"}),
    (measuring("localisation"), {"locality"}),
    (changed("removal", steps=4), {"removal"}),
    (changed("removal", fill="black"), {"removal"}),
    (changed("removal", start="black"), {"removal"}),
    (changed("removal", shares=(0.4,)), {"removal"}),
    (changed("removal", noise=0.1), {"removal"}),
    (changed("sensitivity", radius=0.1), {"sensitivity"}),
    (changed("sensitivity", samples=2), {"sensitivity"}),
    (changed("layer_randomisation", layers_at_once=2), {"layer_randomisation"}),
    ({"data": replace(SMALL.data, seed=1)}, EVAL),
    # The same names, labels and boxes: only the pixels outside the box differ.
    ({"data": replace(SMALL.data, name="shapes:none")}, EVAL),
    ({"data": replace(SMALL.data, region="object")}, EVAL),
    ({"models": (replace(SMALL.models[0], load=OTHER),)}, ALL),
    (changed("curvature", steps=3), {"curvature", "curvature test"}),
    (changed("curvature", train="shapes:none"), {"curvature"}),
    (changed("curvature", method="probed"), {"curvature"}),
    (measuring("gallery", GallerySettings(1)), {"gallery"}),
    ({"models": EVERYTHING.models}, set()),
    ({"pairs": (("steady", "steady"),)}, set()),
]


@pytest.fixture(scope="module")
def small_keys() -> dict[str, set[str]]:
    return keys(SMALL)


@pytest.mark.parametrize(("change", "parts"), CHANGES)
def test_a_changed_setting_never_reuses_a_row(
    change: Mapping[str, Any], parts: set[str], small_keys: dict[str, set[str]]
) -> None:
    """What a setting decides is looked up under new keys, everything else under the old ones."""
    other = keys(replace(SMALL, **change))
    for part, before in small_keys.items():
        if part in parts:
            assert not before & other[part], part
        else:
            assert before <= other[part], part


def test_versions_and_devices_are_part_of_the_key(monkeypatch: pytest.MonkeyPatch, small_keys: dict[str, set[str]]) -> None:
    assert not {unit.key for unit in make_plan(SMALL, device="cuda").units} & set().union(*small_keys.values())
    monkeypatch.setattr("locality.runner.plan.installed_versions", lambda: (("locality", "0.0"),))
    assert not {unit.key for unit in make_plan(SMALL).units} & set().union(*small_keys.values())


def test_parts_along_others_have_no_units() -> None:
    groups = [[part.name for part in group] for group in grouped_parts(SMALL)]
    assert groups[0] == ["locality", "similarity", "localisation"]
    assert {name for name, *_ in groups} == ALL
    assert {unit.part for unit in make_plan(SMALL).units} == ALL
