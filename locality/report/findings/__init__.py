"""Findings in sentences, computed from the results. To add one, write a function and add a line to FINDINGS."""

from __future__ import annotations

from collections.abc import Callable

from locality.report.aggregates import Aggregates, aggregate
from locality.report.findings.chance import above_chance, above_random_weights, above_uniform_map
from locality.report.findings.extent import abstentions, extent, faults
from locality.report.findings.maps import closer_maps, layer_randomisation
from locality.report.findings.pairs import above_every_standard_model, boundary_distance, higher_than_counterpart
from locality.report.findings.regions import attribution_and_intervention, higher_reliance_than_counterpart, relied_on
from locality.report.findings.trends import trend_with_accuracy, trend_with_robust_accuracy
from locality.report.findings.verdicts import looking_models
from locality.results.results import Results, unfinished

Finding = Callable[[Results, Aggregates], list[str]]  # the sentences; none where it was not measured

FINDINGS: tuple[Finding, ...] = (
    extent,
    abstentions,
    looking_models,
    higher_than_counterpart,
    above_every_standard_model,
    above_chance,
    above_uniform_map,
    trend_with_accuracy,
    trend_with_robust_accuracy,
    above_random_weights,
    relied_on,
    higher_reliance_than_counterpart,
    attribution_and_intervention,
    boundary_distance,
    closer_maps,
    layer_randomisation,
    faults,
)


def sentences(results: Results) -> list[str]:
    """The findings, one sentence each.

    >>> sentences(Results("nothing measured"))
    ['No model was measured.']
    """
    incomplete = unfinished_sentence(results)
    first = [] if incomplete is None else [incomplete]
    means = aggregate(results)
    if not means.models:
        return [*first, "No model was measured."]
    return [*first, *(sentence for finding in FINDINGS for sentence in finding(results, means))]


def unfinished_sentence(results: Results) -> str | None:
    """Says that a benchmark was interrupted or is still running, which its numbers do not show; else None.

    >>> units = {"planned": 15, "finished": 4, "with faults": 0}
    >>> unfinished_sentence(Results("a", provenance={"units": units}))
    'Unfinished: 4 of 15 units are measured. Run `locality bench` again to resume.'
    """
    counts = unfinished(results)
    if counts is None:
        return None
    return f"Unfinished: {counts[0]:,} of {counts[1]:,} units are measured. Run `locality bench` again to resume."
