"""Certified radii: one row per image, from which the verified accuracy at every radius follows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, fields
from typing import Any

import pandas as pd

from locality.certified import CERTIFICATES, Certifier
from locality.certified.certificate import RADII, check_radii, radius_text
from locality.errors import ArgumentError, Problem, unknown_choice
from locality.model_calls.decisions import correct
from locality.results.schema import Schema
from locality.runner.measurement import Block, Measurement, Part, Tables, as_json
from locality.runner.suite import Suite
from locality.runner.work import Work

# One row per model × image × certificate.
TABLE: Schema = {
    "model": str,
    "image_id": str,
    "by": str,  # the certificate's name in CERTIFICATES
    "settings": str,  # JSON
    "prediction": int,  # −1 for an abstention
    "abstained": bool,
    "correct": bool | None,  # missing where the model does not know the label
    "radius": float,  # open ball in which the prediction does not change; 0 for an abstention
    "norm": str,
    "failure_probability": float,
    "lipschitz": float,  # largest constant of a margin; nan for certificates without one
    "radii": str,  # at which tables state the verified accuracy
}
FLOAT64_PASS = Work(0, 5)  # a float64 pass takes about as long as five in float32


@dataclass(frozen=True)
class CertifiedSettings:
    """One certificate with its own options, and the radii at which tables state the verified accuracy."""

    by: str = "lipschitz"
    radii: tuple[float, ...] = RADII
    options: dict[str, Any] = field(default_factory=dict)
    limit: int | None = None
    models: tuple[str, ...] = ()

    def certifier(self, seed: int) -> Certifier:
        """The certificate; raises where an option is unknown or wrong."""
        if self.by not in CERTIFICATES:
            raise unknown_choice("by", self.by, CERTIFICATES)
        kind = CERTIFICATES[self.by]
        known = {entry.name for entry in fields(kind)}
        for name in self.options:
            if name not in known:
                raise unknown_choice("options", name, sorted(known - {"seed"}))
        return kind(**({"seed": seed} if "seed" in known else {}) | self.options)


def parts(suite: Suite) -> Iterator[Part]:
    """One part per certificate."""
    for index, settings in enumerate(suite.requested("certified")):
        certifier = {"by": settings.by, "settings": recorded(settings.certifier(suite.seed))}
        yield Part(
            f"certified {index + 1}",
            "certified",
            settings,
            as_json(certifier | {"radii": settings.radii}),
            limit=settings.limit,
            block=suite.block,
            models=settings.models,
        )


def recorded(certifier: Certifier) -> dict[str, Any]:
    """The settings that rows and keys have: `tight` only where it is on, so that units of before it existed stay valid."""
    settings = asdict(certifier)
    if not settings.get("tight", True):
        del settings["tight"]
    return settings


def rows(block: Block) -> Tables:
    """One row per image."""
    settings: CertifiedSettings = block.settings
    certifier = settings.certifier(block.suite.seed)
    certificate = certifier(block.model, block.images)
    right = pd.array(correct(certificate.prediction, block.batch.accepted).tolist(), dtype="boolean")
    right[[not accepted for accepted in block.batch.accepted]] = pd.NA
    lipschitz = certificate.facts.get("lipschitz")
    table = pd.DataFrame(
        {
            "model": block.name,
            "image_id": block.batch.ids,
            "by": settings.by,
            "settings": as_json(recorded(certifier)),
            "prediction": certificate.prediction.numpy(),
            "abstained": certificate.abstained.numpy(),
            "correct": right,
            "radius": certificate.radius.numpy(),
            "norm": certificate.norm,
            "failure_probability": certificate.failure_probability.numpy(),
            "lipschitz": lipschitz["margin"] if isinstance(lipschitz, dict) else float("nan"),
            "radii": " ".join(map(radius_text, settings.radii)),
        }
    )
    return {"certified": table[list(TABLE)]}


def problems(suite: Suite) -> list[Problem]:
    """Certificates and options that do not exist, radii that are none, and certificates that are given twice."""
    found: list[Problem] = []
    seen: dict[str, tuple[str, CertifiedSettings]] = {}
    for where, settings in suite.located("certified"):
        try:
            certifier = as_json([settings.by, asdict(settings.certifier(suite.seed))])
            check_radii(settings.radii)
        except (ArgumentError, TypeError) as error:
            key = f"{where}.{error.argument}" if isinstance(error, ArgumentError) else where
            found.append(Problem.of(key, error))
            continue
        first, other = seen.setdefault(certifier, (where, settings))
        if first != where and (not settings.models or not other.models or set(settings.models) & set(other.models)):
            found.append(Problem(where, f"must not repeat the certificate of `{first}`: change or remove it"))
    return found


def work(suite: Suite, part: Part) -> Work:
    """Of the noisy copies, or of one float64 pass."""
    certifier = asdict(part.settings.certifier(suite.seed))
    copies = certifier.get("samples", 0) + certifier.get("selection_samples", 0)
    return Work(0, copies) if copies else FLOAT64_PASS


CERTIFIED = Measurement("certified", CertifiedSettings, {"certified": TABLE}, parts, rows, problems, work)
