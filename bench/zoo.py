"""Measure every model that ships: accuracy, accuracy under attack, distance to the boundary, locality.

    python bench/zoo.py [--out bench/results/zoo] [--csv bench/results/zoo.csv]

Runs the suite `zoo` (bench/suites/zoo.toml) on all cores; an interrupted run resumes where it stopped. Shares have 95 %
Wilson intervals, the mean distance a bootstrap interval. `locality table bench/results/zoo` prints the rest.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import pandas as pd

from locality.progress import progress
from locality.results.folder import read_results
from locality.results.results import Results
from locality.runner.run import run_suite
from locality.runner.suite_file import read_suite
from locality.statistics import summary, wilson_interval


def share(name: str, values: pd.Series) -> dict[str, float]:
    """A share of images and its interval, as columns."""
    known = values.dropna().astype(bool)
    low, high = wilson_interval(int(known.sum()), len(known))
    return {name: round(float(known.mean()), 4), f"{name}_low": round(low, 4), f"{name}_high": round(high, 4)}


def table(results: Results) -> pd.DataFrame:
    """One row per model."""
    rows = []
    for model in results.models.to_dict("records"):
        images = results.rows[results.rows["model"] == model["model"]].drop_duplicates("image_id")
        row = {name: model[name] for name in ("model", "data", "training", "norm", "epsilon")}
        row["epsilon"] = "" if pd.isna(model["epsilon"]) else round(float(model["epsilon"]), 5)
        row |= {"images": len(images)} | share("clean", images["correct"])
        attacked = results["robust"][results["robust"]["model"] == model["model"]]
        row["attacked"] = attacked["image_id"].nunique()
        for epsilon, part in attacked.groupby("epsilon"):
            row |= share(f"era_linf_{255 * float(epsilon):.0f}_255", part["robust"])
        distance = summary(images.loc[images["found"].astype(bool), "distance"].to_numpy())
        row |= {"boundary_found": int(images["found"].sum()), "distance": round(distance.mean, 4)}
        rows.append(row | {"distance_low": round(distance.low, 4), "distance_high": round(distance.high, 4)})
    return pd.DataFrame(rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("bench/results/zoo"), help="folder of the results")
    parser.add_argument("--csv", type=Path, default=Path("bench/results/zoo.csv"))
    given = parser.parse_args()
    with progress("zoo", "images") as report:
        outcome = run_suite(read_suite("zoo"), given.out, progress=report)
    if len(outcome.faults):
        raise SystemExit(f"{len(outcome.faults)} units failed: {outcome.faults['problem'].unique().tolist()}")
    models = table(read_results(given.out))
    models.to_csv(given.csv, index=False)
    print(models.to_string(index=False))


if __name__ == "__main__":
    main()
