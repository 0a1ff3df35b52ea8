"""Models of a suite that are less accurate than they should be."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow.parquet as pq

from locality.results.folder import RunFolder
from locality.runner.plan import Plan
from locality.runner.suite import ModelChoice
from locality.zoo.expected_accuracy import low_accuracy_text, published_accuracy


def low_accuracies(plan: Plan, files: RunFolder) -> Iterator[str]:
    """One sentence per model whose accuracy in the merged tables is far below the suite's `expect_accuracy` or its card."""
    path = files.tables / "rows.parquet"
    if not path.is_file():
        return
    rows = pq.read_table(path, columns=["model", "image_id", "correct"]).to_pandas()
    images = rows.drop_duplicates(["model", "image_id"])  # one row per method
    for model in plan.models:
        known = images.loc[images["model"] == model.name, "correct"].dropna()
        expected, source = _expected(model.choice, model.data)
        if expected is not None:
            sentence = low_accuracy_text(model.name, int(known.sum()), len(known), expected, source)
            if sentence is not None:
                yield sentence


def _expected(choice: ModelChoice, data: str) -> tuple[float | None, str]:
    if choice.expect_accuracy is not None:
        return choice.expect_accuracy, "`expect_accuracy`"
    return (None if choice.arch else published_accuracy(choice.source, data)), "its card"
