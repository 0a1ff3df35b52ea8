"""`Work`: evaluations of a network per image, as far as they are known without a model.

An evaluation is one image through the network once (a forward pass), or forward and backward (a gradient). Their
number depends on neither the machine nor its load.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

POINTS = 20  # of a path, both ends included


@dataclass(frozen=True)
class Work:
    """Evaluations per image."""

    gradients: float = 0.0
    forwards: float = 0.0

    def __add__(self, other: Work) -> Work:
        return Work(self.gradients + other.gradients, self.forwards + other.forwards)

    def __sub__(self, other: Work) -> Work:
        return Work(self.gradients - other.gradients, self.forwards - other.forwards)

    def times(self, factor: float) -> Work:
        return Work(self.gradients * factor, self.forwards * factor)


# Searches stop early where they succeed: these are typical numbers.
SEARCH_WORK = {
    "fast": Work(20, 7),
    "thorough": Work(600, 100),
    "paper": Work(1001, 14),
    "autopgd": Work(400, 20),
    "rays": Work(0, 10_000),
}
OTHER_SEARCH_WORK = Work(100, 10)
METHOD_WORK = {
    "SM": Work(1),
    "InputXGradient": Work(1),
    "IG": Work(POINTS),
    "BSM": Work(1),
    "BIG": Work(POINTS),
    "BSG": Work(50),
    "BDeepLIFT": Work(1, 2),
    "SmoothGrad": Work(50),
    "AGI": Work(300),
    "Rollout": Work(1, 1),
    "GradientRollout": Work(1, 1),
}
OTHER_METHOD_WORK = Work(POINTS)


def search_work(search: str) -> Work:
    """Evaluations of a boundary search; none for "none"."""
    return Work() if search == "none" else SEARCH_WORK.get(search, OTHER_SEARCH_WORK)


def single_method_work(method: str) -> Work:
    """Evaluations of one method by itself, without a search."""
    return METHOD_WORK.get(method, OTHER_METHOD_WORK)


def method_work(methods: Sequence[str]) -> Work:
    """Evaluations of several methods together: the gradients at the image and at the boundary are shared.

    >>> method_work(["SM", "IG", "BSM", "BIG"]).gradients
    39.0
    """
    total = sum(map(single_method_work, methods), Work())
    at_image = sum(name in ("SM", "InputXGradient", "IG", "BIG") for name in methods)
    at_boundary = sum(name in ("BSM", "BIG") for name in methods)
    return total - Work(float(max(0, at_image - 1) + max(0, at_boundary - 1)))


def maps_work(search: str, methods: Sequence[str]) -> Work:
    """Evaluations of predictions, boundary points and maps."""
    return search_work(search) + method_work(methods) + Work(0, 1)
