"""Locality by intervention beside locality by attribution, for every network that ships.

    python bench/regions.py [--out bench/results/regions]

Runs the suite `regions` (bench/suites/regions.toml) on all cores; an interrupted run resumes where it stopped. The scores of
SM, IG and BIG are those of bench/results/zoo, which has the same images. `locality table`, `figures` and `report` then read
the folder.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import pandas as pd

from locality.progress import progress
from locality.results.folder import read_results, write_results
from locality.results.region_tests import REGIONS
from locality.results.results import Results
from locality.runner.run import run_suite
from locality.runner.suite_file import read_suite

ZOO = Path("bench/results/zoo")


def with_scores(tests: Results, zoo: Results) -> Results:
    """The region tests, with the scores of the same models on the same images; refused if any was not measured there."""
    pairs = tests["regions"][["model", "image_id"]].drop_duplicates()
    rows = zoo.rows.merge(pairs, on=["model", "image_id"])
    missing = set(map(tuple, pairs.to_numpy())) - set(map(tuple, rows[["model", "image_id"]].to_numpy()))
    if missing:
        raise SystemExit(f"{len(missing)} images are not in {ZOO}, such as {min(missing)}: run python bench/zoo.py again")
    weights = [results.models.set_index("model")["weights_sha256"] for results in (tests, zoo)]
    both = pd.concat(weights, axis=1, join="inner")
    if (both.iloc[:, 0] != both.iloc[:, 1]).any():
        raise SystemExit(f"{ZOO} has other weights: run python bench/zoo.py again")
    return tests.with_tables(rows=rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("bench/results/regions"), help="folder of the results")
    given = parser.parse_args()
    with progress("regions", "images") as report:
        outcome = run_suite(read_suite("regions"), given.out, progress=report)
    if len(outcome.faults):
        raise SystemExit(f"{len(outcome.faults)} units failed: {outcome.faults['problem'].unique().tolist()}")
    write_results(with_scores(read_results(given.out), read_results(ZOO)), given.out, {"regions": REGIONS})


if __name__ == "__main__":
    main()
