"""Does a certificate make a model look at the object? The section that the thesis announces on p. 60, and its verdicts.

    python bench/certified_locality.py --runs FOLDER [--runs FOLDER …] [--limit 300] [--join FOLDER]
                                       [--out bench/results/certified_locality]

`--runs` are folders of `bench/certified_study.py`. Every checkpoint of FAMILIES that is there or in the catalog is measured:
locality of SM, IG and BIG, similarity of SM and BSM, accuracy under PGD, certified radii. Within a family only the training
differs. Measured units are kept in --work; an interrupted run resumes. `verdicts.json` has the six hypotheses, each with
paired 95 % intervals over images; `--verdicts` computes them again from the stored tables. `--join` adds stored tables of
other families, whose trained networks are not there.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import replace
from pathlib import Path

from certified_verdicts import EPSILON, Family, verdicts
from merged_results import merged

from locality import load_dataset, load_model
from locality.files import write_atomically
from locality.results.folder import read_results, write_results
from locality.results.results import Results
from locality.runner.measurements import MEASUREMENTS
from locality.runner.measurements.certified import CertifiedSettings
from locality.runner.measurements.robust import RobustSettings
from locality.runner.measurements.similarity import SimilaritySettings
from locality.runner.run import Machine, run_suite
from locality.runner.suite import DataChoice, ModelChoice, Suite
from locality.zoo.catalog import model_cards

OUT = Path(__file__).parent / "results/certified_locality"
CUES = (("with cue", "background", 0), ("without cue", "none", 0), ("follows a swapped cue", "swapped", 1))
OTHERS = Path(__file__).parent / "results/tiny"  # networks of another architecture, on the same photographs


SEEDS = (0, 1, 2)  # of the study
ON_SHAPES = Family("shapes", "shapes_standard_0", {radius: f"shapes_{radius}_0" for radius in (0.14, 0.4, 0.8, 1.6)})
# Architecture ↦ a family per seed.
FAMILIES = {
    "LiResNet L6 W64": (Family("tiny-imagenet", "tiny_liresnet_standard", {EPSILON: "tiny_liresnet"}, "tiny_liresnet_at"),),
    "LiResNet L6 W32": tuple(
        Family(
            "tiny-imagenet",
            f"standard_{seed}",
            {levels / 255: f"emma_{levels}_{seed}" for levels in (18, 36, 72, 144)},
            f"at_{seed}",
            f"standard_early_{seed}",
        )
        for seed in SEEDS
    ),
    "LiResNet L3 W32, shapes": (ON_SHAPES,),
}


def families() -> list[Family]:
    """Of all architectures and seeds."""
    return [family for seeds in FAMILIES.values() for family in seeds]


def checkpoints(runs: list[Path]) -> dict[str, str]:
    """What `load_model` takes for every network of the families that is there."""
    found = {}
    for name in (name for family in families() for name in family.names):
        paths = [folder / name / f"{name}.safetensors" for folder in runs]
        here = [str(path) for path in paths if path.with_suffix(".json").exists()]
        if here or name in model_cards():
            found[name] = here[0] if here else name
    return found


def suite_of(found: dict[str, str], limit: int) -> Suite:
    pairs = [
        (name, family.standard)
        for family in families()
        for name in family.names[1:]
        if {name, family.standard} <= set(found)
    ]
    return Suite(
        "certified_locality",
        tuple(ModelChoice(name, load) for name, load in found.items()),
        DataChoice(limit=limit),
        block=50,
        pairs=tuple(pairs),
        measurements={
            "similarity": (SimilaritySettings(),),
            "robust": (RobustSettings("l2", EPSILON, "pgd20", batch_size=50),),
            "certified": (CertifiedSettings(radii=(EPSILON, 72 / 255, 144 / 255)),),
        },
    )


def cue_use(found: dict[str, str], limit: int = 300) -> dict[str, dict[str, float]]:
    """Accuracy of the networks for `shapes` with the cue, without it, and the share that follows a swapped one."""
    used: dict[str, dict[str, float]] = {}
    for name in ON_SHAPES.names:
        if name in found:
            model = load_model(found[name])
            used[name] = {}
            for title, cue, shift in CUES:
                data = load_dataset(f"shapes:{cue}", limit=limit, spec=model.spec)
                batch = data.batch(range(len(data)))
                wanted = (batch.labels + shift) % 10
                used[name][title] = float((model(batch.images).argmax(1) == wanted).float().mean())
    return used


def cue_sentence(cues: dict[str, dict[str, float]]) -> str:
    """What certified networks for `shapes` do with a cue that lies; empty without such networks."""
    followed = [shares for name, shares in cues.items() if name != ON_SHAPES.standard]
    if not followed:
        return ""
    swapped = [shares["follows a swapped cue"] for shares in followed]
    without = [shares["without cue"] for shares in followed]
    return (
        f" On shapes, {len(followed)} certified networks obey a swapped cue on {min(swapped):.0%} to {max(swapped):.0%} of "
        f"the images and are right without a cue on {min(without):.0%} to {max(without):.0%} (chance: 10%)."
    )


def without_paths(results: Results) -> Results:
    """Results whose provenance names the networks, and not where they were on this machine."""
    suite = results.provenance["suite"]
    models = [{**one, "load": one["name"]} for one in suite["models"]]
    return replace(results, provenance={**results.provenance, "suite": {**suite, "models": models}})


def stored_cues(folder: Path) -> dict[str, dict[str, float]]:
    found: dict[str, dict[str, float]] = json.loads((folder / "verdicts.json").read_text(encoding="utf-8"))["cue"]
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=Path, action="append", default=[], help="folder of trained networks")
    parser.add_argument("--limit", type=int, default=300, help="images of each data set")
    parser.add_argument("--work", type=Path, default=Path("runs/certified_locality"), help="folder for measured units")
    parser.add_argument("--out", type=Path, default=OUT)
    parser.add_argument("--join", type=Path, help="folder of results, such as that of --out, with other families")
    parser.add_argument("--verdicts", action="store_true", help="only compute the verdicts again, from the tables in --out")
    given = parser.parse_args()
    cues: dict[str, dict[str, float]] = {}
    if given.verdicts:
        cues = stored_cues(given.out)
    else:
        found = checkpoints(given.runs)
        run_suite(suite_of(found, given.limit), given.work, Machine(processes=0))
        measured = read_results(given.work)
        if given.join:
            measured = merged([measured, read_results(given.join)], same_images=False)
            cues = stored_cues(given.join)
        tables = {name: one for entry in MEASUREMENTS.values() for name, one in entry.tables.items()}
        write_results(without_paths(measured), given.out, tables)
        cues |= cue_use(found)
    result = verdicts(read_results(given.out), read_results(OTHERS), FAMILIES) | {"cue": cues}
    result["answer"] += cue_sentence(cues)
    write_atomically(given.out / "verdicts.json", json.dumps(result, indent=1, ensure_ascii=False) + "\n")
    for one in result["hypotheses"]:
        print(f"{one['id']} {one['verdict']}: {one['claim']}")
    print(result["answer"])


if __name__ == "__main__":
    main()
