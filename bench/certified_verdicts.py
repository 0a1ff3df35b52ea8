"""The six hypotheses about the locality of certified networks, from stored tables."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from locality.report.certified import CertifiedImages, certificates
from locality.report.estimates import floats
from locality.results.results import Results
from locality.statistics import Paired, paired, summary, unpaired

METHODS, SCORES = ("SM", "IG", "BIG"), ("f1", "lift")
EPSILON = 36 / 255
RESAMPLES = 2_000
FEWEST = 20  # images of a group that is compared


@dataclass(frozen=True)
class Family:
    """Networks of one architecture that differ in their training only."""

    data: str
    standard: str
    certified: dict[float, str]  # radius ↦ name
    adversarial: str = ""
    early: str = ""  # standard training that stopped at the accuracy of a certified network
    names: tuple[str, ...] = field(init=False)

    def __post_init__(self) -> None:
        others = [name for name in (self.adversarial, self.early) if name]
        object.__setattr__(self, "names", (self.standard, *others, *self.certified.values()))


@dataclass(frozen=True)
class Change:
    """A number with its interval, and the images behind it."""

    difference: float
    low: float
    high: float
    used: int


def verdicts(results: Results, others: Results, families: Mapping[str, Sequence[Family]]) -> dict[str, Any]:
    """Numbers per network, verdicts with their evidence, what explains a difference, and the answer.

    Families of one title differ in their seed: each is compared within itself, and the comparisons are counted together.
    """
    known = {one.model: one for one in certificates(results)}
    there = set(map(str, results.models["model"]))
    evidence: dict[str, list[dict[str, Any]]] = {f"H{number}": [] for number in range(1, 7)}
    correct, matched, architecture = [], [], []
    for name, family in ((name, family) for name, seeds in families.items() for family in seeds):
        certified = {radius: model for radius, model in family.certified.items() if model in there}
        for model in certified.values() if family.standard in there else ():
            evidence["H1"] += compared(results, family.standard, model, name)
            correct += compared(results, family.standard, model, name, both_correct=True)
            evidence["H3"] += similar(results, family.standard, model, name)
        doses = {0.0: family.standard, **certified} if family.standard in there else certified
        if len(doses) >= 3:
            evidence["H2"] += trend(results, doses, name)
        if family.adversarial in there and certified:
            evidence["H4"] += compared(
                results, family.adversarial, _twin(results, family.adversarial, certified, _robust), name
            )
        if family.early in there and certified:
            nearest = _twin(results, family.early, certified, _accuracy)
            matched += compared(results, family.early, nearest, name)
        for model in certified.values():
            evidence["H5"] += certified_images(results, known[model], name)
        if family.data == "tiny-imagenet" and family.standard in there:
            joined = _joined(results, others)
            architecture += compared(joined, "tiny_resnet", family.standard, name)
    for model, one in known.items():
        evidence["H6"].append(bracketed(results, one, model))
    hypotheses = [
        {
            "id": key,
            "claim": claim,
            "verdict": verdict(evidence[key]),
            "by family": by_family(evidence[key]),
            "evidence": evidence[key],
        }
        for key, claim in CLAIMS.items()
    ]
    cause = {
        "certification: certified − standard, one architecture": by_family(evidence["H1"]),
        "accuracy: the same, on images that both classify correctly": by_family(correct),
        "accuracy: certified − standard training stopped at equal accuracy": by_family(matched),
        "architecture: standard LiResNet − standard ResNet": by_family(architecture),
    }
    return {
        "models": {model: numbers(results, known.get(model), model) for model in map(str, results.models["model"])},
        "hypotheses": hypotheses,
        "both correct": correct,
        "equal accuracy": matched,
        "architecture": architecture,
        "cause": cause,
        "answer": answer(evidence, correct),
    }


CLAIMS = {
    "H1": "a certified network scores higher than its standard twin",
    "H2": "locality grows with the certified radius",
    "H3": "SM and BSM agree more in a certified network",
    "H4": "at equal accuracy under attack, a certified network scores higher than an adversarially trained one",
    "H5": "images that are certified score higher than those that are not, in one network",
    "H6": "every boundary point lies outside its certified radius",
}


def compared(results: Results, first: str, second: str, family: str, both_correct: bool = False) -> list[dict[str, Any]]:
    """Second − first on the same images, for every method and score."""
    found = []
    for method in METHODS:
        one, other = (_scores(results, name, method) for name in (first, second))
        if both_correct:
            right = one.index[one["correct"].eq(True)].intersection(other.index[other["correct"].eq(True)])
            one, other = one.loc[right], other.loc[right]
        for score in SCORES:
            change = paired(one[score], other[score])
            found.append(_evidence(family, f"{second} − {first}", f"{score} {method}", change))
    return found


def similar(results: Results, first: str, second: str, family: str) -> list[dict[str, Any]]:
    """Cosine of SM and BSM, second − first."""
    rows = results["similarity"]
    columns = [
        rows[(rows["model"] == name) & (rows["pair"] == "SM-BSM")].set_index("image_id")["cosine"]
        for name in (first, second)
    ]
    change = paired(*columns)
    words = f"{second} − {first}"
    return [_evidence(family, words, "cosine of SM and BSM", change)]


def trend(results: Results, doses: Mapping[float, str], family: str) -> list[dict[str, Any]]:
    """Spearman's correlation of radius and mean score over the networks; the interval resamples images."""
    found = []
    order = sorted(doses)
    random = np.random.default_rng(0)
    for method in METHODS:
        for score in SCORES:
            table = pd.concat([_scores(results, doses[radius], method)[score].rename(radius) for radius in order], axis=1)
            values = table.dropna().to_numpy(dtype=np.float64)
            if len(values) < FEWEST:
                continue
            draws = random.integers(0, len(values), (RESAMPLES, len(values)))
            several = [_spearman(values[rows].mean(0)) for rows in draws]
            low, high = np.quantile(several, [0.025, 0.975]).tolist()
            change = Change(_spearman(values.mean(0)), low, high, len(values))
            found.append(_evidence(family, f"radius 0 to {order[-1]:.3g}", f"ρ of {score} {method}", change))
    return found


def certified_images(results: Results, one: CertifiedImages, family: str) -> list[dict[str, Any]]:
    """Images with a radius above ε minus the others, among those of one network that are classified correctly."""
    certain = pd.Series(one.certified(EPSILON) == 1, index=one.rows["image_id"])
    found = []
    for method in METHODS:
        scores = _scores(results, one.model, method)
        scores = scores[scores["correct"].eq(True)]
        inside = certain.reindex(scores.index).fillna(False).to_numpy(dtype=bool)
        if min(inside.sum(), (~inside).sum()) < FEWEST:
            continue
        for score in SCORES:
            values = floats(scores[score])
            apart = unpaired(summary(values[~inside]), summary(values[inside]))
            change = Change(apart.mean, apart.low, apart.high, len(values))
            words = f"{one.model}, {int(inside.sum())} certified − {int((~inside).sum())} others"
            found.append(_evidence(family, words, f"{score} {method}", change))
    return found


def bracketed(results: Results, one: CertifiedImages, model: str) -> dict[str, Any]:
    """How many images contradict the certificate, and the median of radius / distance."""
    violations = one.violations(results)
    rows = results.rows[(results.rows["model"] == model) & results.rows["found"]].drop_duplicates("image_id")
    direction = "inconclusive" if violations is None else ("higher" if violations == 0 else "lower")
    tightness = one.tightness(results)
    return {
        "family": model,
        "comparison": "images with a boundary point inside the radius, or broken though verified",
        "number": "violations",
        "value": violations,
        "radius over distance": None if math.isnan(tightness) else tightness,
        "n": len(rows),
        "direction": direction,
    }


def verdict(evidence: Sequence[Mapping[str, Any]]) -> str:
    """Over all comparisons: holds, contradicted, mixed, inconclusive or not measured.

    One significant comparison among many is expected by chance, so that half of them must agree and none may object.

    >>> verdict([{"direction": "higher"}, {"direction": "inconclusive"}]), verdict([{"direction": "lower"}]), verdict([])
    ('holds', 'contradicted', 'not measured')
    """
    if not evidence:
        return "not measured"
    higher, lower = (sum(one["direction"] == name for one in evidence) for name in ("higher", "lower"))
    if higher and lower:
        return "mixed"
    if 2 * max(higher, lower) < len(evidence):
        return "inconclusive"
    return "holds" if higher else "contradicted"


def by_family(evidence: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """The verdict of every family, with counts."""
    names = dict.fromkeys(str(one["family"]) for one in evidence)
    return {name: tally([one for one in evidence if one["family"] == name]) for name in names}


def tally(evidence: Sequence[Mapping[str, Any]]) -> str:
    """The verdict, and how many comparisons are significantly higher, lower, or neither."""
    return f"{verdict(evidence)}: {counted(evidence)}"


def counted(evidence: Sequence[Mapping[str, Any]]) -> str:
    counts = {name: sum(one["direction"] == name for one in evidence) for name in ("higher", "lower", "inconclusive")}
    return ", ".join(f"{count} {name}" for name, count in counts.items())


def answer(evidence: Mapping[str, Sequence[Mapping[str, Any]]], correct: Sequence[Mapping[str, Any]]) -> str:
    """One sentence."""
    start = {
        "holds": "Yes, a certificate makes a model look at the object",
        "contradicted": "No, a certificate does not make a model look at the object",
        "mixed": "No, a certificate alone does not make a model look at the object",
        "inconclusive": "No effect of a certificate on where a model looks can be seen",
        "not measured": "Whether a certificate makes a model look at the object was not measured",
    }[verdict(evidence["H1"])]
    against = f"against the standard twin, F1 and lift of SM, IG and BIG are {counted(evidence['H1'])}"
    matched = f"on images that both classify correctly {counted(correct)}"
    return f"{start}: {against}, {matched}, and with a growing radius {counted(evidence['H2'])} (comparisons at 95 %)."


def numbers(results: Results, one: CertifiedImages | None, model: str) -> dict[str, Any]:
    """The means of one network."""
    rows = results.rows[results.rows["model"] == model]
    scores = {
        f"{score} {method}": float(np.nanmean(floats(_scores(results, model, method)[score])))
        for method in METHODS
        for score in SCORES
    }
    means: dict[str, Any] = {
        "images": int(rows["image_id"].nunique()),
        "accuracy": _accuracy(results, model),
        "under attack": _robust(results, model),
        **scores,
    }
    if one is not None:
        means |= {
            "verified": one.verified(EPSILON).mean,
            "lipschitz": one.lipschitz,
            "radius over distance": one.tightness(results),
        }
    return means


def _evidence(family: str, comparison: str, number: str, change: Change | Paired) -> dict[str, Any]:
    value, low, high = change.difference, change.low, change.high
    direction = "higher" if low > 0 else "lower" if high < 0 else "inconclusive"
    return {
        "family": family,
        "comparison": comparison,
        "number": number,
        "value": round(value, 4),
        "low": round(low, 4),
        "high": round(high, 4),
        "n": change.used,
        "direction": direction,
    }


def _scores(results: Results, model: str, method: str) -> pd.DataFrame:
    rows = results.rows
    return rows[(rows["model"] == model) & (rows["method"] == method)].set_index("image_id")


def _accuracy(results: Results, model: str) -> float:
    rows = results.rows[results.rows["model"] == model].drop_duplicates("image_id")
    return float(floats(rows["correct"]).mean())


def _robust(results: Results, model: str) -> float:
    rows = results["robust"]
    values = floats(rows[rows["model"] == model]["robust"])
    return float(values.mean()) if len(values) else math.nan


def _twin(results: Results, model: str, certified: Mapping[float, str], number: Callable[[Results, str], float]) -> str:
    """The certified network whose number is nearest to that of the model."""
    return min(certified.values(), key=lambda name: abs(number(results, name) - number(results, model)))


def _joined(results: Results, others: Results) -> Results:
    return results.with_tables(rows=pd.concat([results.rows, others.rows], ignore_index=True))


def _spearman(means: NDArray[np.float64]) -> float:
    """Rank correlation with 0, 1, 2 …"""
    ranks = np.argsort(np.argsort(means))
    return float(np.corrcoef(np.arange(len(means)), ranks)[0, 1])
