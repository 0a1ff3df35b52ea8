"""Attribution maps compared with each other: boundary-based ones, and those of randomised layers."""

from __future__ import annotations

import numpy as np

from locality.report.aggregates import Aggregates
from locality.report.estimates import estimates, floats
from locality.report.models import COMPARED
from locality.report.pairs import paired_differences
from locality.report.tables.formats import signed_text
from locality.report.tables.similarity import pair_title
from locality.results.results import Results
from locality.results.wording import counted, listed


def closer_maps(results: Results, means: Aggregates) -> list[str]:
    """Table 3.1: whether a map and its boundary-based counterpart are closer in robust models."""
    if "similarity" not in results:
        return []
    parts = {str(name): part for name, part in results["similarity"].groupby("pair", sort=False)}
    sentences = []
    for kind in COMPARED:
        counts = []
        for name, part in parts.items():
            differences = paired_differences(part, ["l2"], means.pairs([kind])).values()
            changes = [float(np.nanmean(values)) for values in differences if not np.isnan(values).all()]
            if changes:
                closer = sum(change < 0 for change in changes)
                counts.append(f"{pair_title(name)} in {closer} of {counted(len(changes), 'pair')}")
        if counts:
            sentences.append(
                f"Maps are closer (ℓ2) to their boundary-based counterparts in the {kind} model than in the standard one: "
                f"{listed(counts)}."
            )
    return sentences


def layer_randomisation(results: Results, means: Aggregates) -> list[str]:
    """Figure 2.4: what is left of the maps when all layers are randomised."""
    if "layer_randomisation" not in results:
        return []
    table = results["layer_randomisation"]
    last = table[table["layers"] == table.groupby("model")["layers"].transform("max")]
    parts = []
    for model, rows in last.groupby("model", sort=False):
        methods = {str(name): floats(part["spearman"]) for name, part in rows.groupby("method", sort=False)}
        correlations = zip(methods, estimates(list(methods.values())), strict=True)
        words = [f"{name} {signed_text(mean.mean)}" for name, mean in correlations if mean.used]
        if words:
            parts.append(f"{listed(words)} in {model}")
    if not parts:
        return []
    return [f"Rank correlation of maps before and after randomising all layers (1: unchanged): {'; '.join(parts)}."]
