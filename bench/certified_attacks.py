"""Whether any attack crosses a certified radius, over small networks with thousands of images and over trained LiResNets.

    python bench/certified_attacks.py [--images 1750] [--seed 0] [--checkpoint FILE …] [--out FILE]

Networks: drawn ones (linear, orthogonal layers with MinMax, LiResNets), ones trained for a few seconds on `shapes` shrunk to
10×10, foreign sequences with BatchNorm in eval mode and pools, and the checkpoints that are given, on a few images each.

Attacks, all against the certified class of each image:
- thorough: `find_boundary(search="thorough")`, not confined to [0, 1];
- autoattack: the standard version in ℓ2 at the median radius, on 200 images with a larger one;
- foolbox: DDN, DeepFool, and Carlini and Wagner's minimum-norm attack;
- singular: float64 gradient descent in the certified ball, from the ends of the top singular directions of the Jacobian at
  the image and of the first layer.

A point is broken if the float64 network contradicts the certificate there. Every pair of network and attack is stored when
it is done; the same command resumes. The exit code is 1 if a certificate was broken.
"""

from __future__ import annotations

import argparse
import copy
import json
import math
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from certified_networks import Case, large_cases, small_cases
from torch import Tensor, nn

from locality import certify, certify_boundary, find_boundary
from locality.certified.bracket import FalseCertificateError
from locality.certified.certificate import Certificate
from locality.files import write_atomically
from locality.model_calls.checks import UNIT, Bounds
from locality.perturbation import margin, per_image
from locality.robustness.robust_accuracy import robust_accuracy
from locality.types import Boundary
from locality.zoo.pixel_model import PixelModel

RESULT = Path(__file__).parent / "results/certified_attacks.json"
FOOLBOX: dict[str, dict[str, Any]] = {
    "DDNAttack": {},
    "L2DeepFoolAttack": {},
    "L2CarliniWagnerAttack": {"steps": 100, "binary_search_steps": 5},
}
AUTOATTACKED = 200  # images per network: every one of them takes all 7,000 evaluations, because none is broken
SINGULAR, STEPS = 3, 12  # directions per image, steps from each end
LARGE = {"thorough": 4, "singular": 16, "foolbox": 4, "autoattack": 2}  # images of 64×64 networks
Attack = Callable[[nn.Module, Tensor, Certificate], dict[str, Any]]


def minimum_norm(search: str, bounds: Bounds = UNIT, **options: Any) -> Attack:
    """Boundary points of a search: broken where the certificates of image and point contradict each other."""

    def attack(model: nn.Module, images: Tensor, certificate: Certificate) -> dict[str, Any]:
        edge = find_boundary(model, images, bounds=bounds, search=search, **options)
        broken = 0
        for row in range(len(images)):
            if bool(edge.found[row]) and float(edge.distance[row]) < float(certificate.radius[row]):
                here = slice(row, row + 1)
                columns = (edge.points, edge.distance, edge.found, edge.labels, edge.crossed_to, edge.optimality)
                points, distance, found, labels, crossed_to, optimality = (column[here] for column in columns)
                one = Boundary(points, distance, found, labels, crossed_to, optimality)
                try:
                    certify_boundary(model, images[here], one)
                except FalseCertificateError:
                    broken += 1
        ratio = (edge.distance.double() / certificate.radius)[edge.found]
        return {"points": len(images), "found": int(edge.found.sum()), "broken": broken, "nearest": _least(ratio)}

    return attack


def foolbox(model: nn.Module, images: Tensor, certificate: Certificate) -> dict[str, Any]:
    parts = {
        name: minimum_norm(f"foolbox:{name}", **options)(model, images, certificate) for name, options in FOOLBOX.items()
    }
    totals = {key: sum(part[key] for part in parts.values()) for key in ("found", "broken")}
    nearest = [part["nearest"] for part in parts.values() if part["nearest"] is not None]
    return {"points": len(images), **totals, "nearest": min(nearest, default=None), "attacks": parts}


def autoattack(model: nn.Module, images: Tensor, certificate: Certificate) -> dict[str, Any]:
    """Images with a radius above the median, at the median: AutoAttack has one radius for all."""
    epsilon = float(certificate.radius.quantile(0.5)) * (1 - 1e-6)
    chosen = (certificate.radius > epsilon).nonzero()[:AUTOATTACKED, 0]
    labels = certificate.prediction[chosen]
    result = robust_accuracy(model, images[chosen], labels, "l2", epsilon, "standard", batch_size=len(chosen))
    return {"points": int(result.clean.sum()), "epsilon": epsilon, "broken": int((result.clean & ~result.robust).sum())}


def singular(model: nn.Module, images: Tensor, certificate: Certificate) -> dict[str, Any]:
    """Float64 descent of the margin inside the ball of each image, from both ends of its steepest directions."""
    exact, pixels = copy.deepcopy(model).double().requires_grad_(False), images.double()
    radius, labels = per_image(certificate.radius * (1 - 1e-9)), certificate.prediction
    starts = torch.cat([jacobian_directions(exact, pixels), first_layer_directions(exact, pixels)])
    least = torch.full((len(pixels),), math.inf, dtype=torch.float64)
    for start in (*starts, *-starts):
        points = pixels + radius * start
        for step in range(STEPS):
            points.requires_grad_()
            lead = margin(exact(points), labels)
            least = torch.minimum(least, lead.detach())
            (gradient,) = torch.autograd.grad(lead.sum(), points)
            direction = gradient / per_image(gradient.flatten(1).norm(dim=1).clamp_min(1e-300))
            here = points.detach() if step % 2 else pixels  # a linear margin is smallest straight down from the image
            offset = here - radius * direction - pixels
            points = pixels + offset * (radius / per_image(offset.flatten(1).norm(dim=1).clamp_min(1e-300))).clamp(max=1)
    before = margin(exact(pixels), labels)
    # Inside the ball the margin is positive: equality is a tie, which a certificate excludes.
    return {"points": len(pixels), "broken": int((least <= 0).sum()), "least margin left": _least(least / before)}


def jacobian_directions(exact: nn.Module, pixels: Tensor) -> Tensor:
    """SINGULAR × N×C×H×W: top right singular vectors of ∂logits/∂pixels at every image."""
    found = []
    for image in pixels:
        jacobian = torch.func.jacrev(lambda one: exact(one[None])[0])(image).flatten(1)
        found.append(torch.linalg.svd(jacobian, full_matrices=False).Vh[:SINGULAR].view(-1, *image.shape))
    return torch.stack(found, dim=1)


def first_layer_directions(exact: nn.Module, pixels: Tensor) -> Tensor:
    """SINGULAR × N×C×H×W: top right singular vectors of the first affine layer, in pixels."""
    scale = exact.std.to(pixels) if isinstance(exact, PixelModel) else torch.ones(3, 1, 1, dtype=torch.float64)
    layers = exact.net if isinstance(exact, PixelModel) else exact
    assert isinstance(layers, nn.Sequential)
    depth = next(index for index, layer in enumerate(layers) if isinstance(layer, nn.Conv2d | nn.Linear)) + 1
    shape = pixels.shape[1:]
    direction = torch.randn(SINGULAR, *shape, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    zero = layers[:depth](torch.zeros(1, *shape, dtype=torch.float64))
    for _ in range(30):  # subspace iteration with the layer's transpose
        direction.requires_grad_()
        output = layers[:depth](direction / scale.view(3, 1, 1)) - zero
        (direction,) = torch.autograd.grad(output, direction, output.detach())
        direction = torch.linalg.qr(direction.flatten(1).T).Q.T.reshape(SINGULAR, *shape).detach()
    return direction[:, None].expand(-1, len(pixels), *shape)


# Cheap ones first, each on all networks.
ATTACKS: dict[str, Attack] = {
    "thorough": minimum_norm("thorough", bounds=None),
    "singular": singular,
    "foolbox": foolbox,
    "autoattack": autoattack,
}


def _least(values: Tensor) -> float | None:
    return float(values.min()) if len(values) else None


def attacked(case: Case, name: str, count: int) -> dict[str, Any]:
    """The result of one attack on one network."""
    model, images = case.build(), case.images(LARGE[name] if case.large else count)
    certificate = certify(model, images)
    useful = certificate.radius > 0
    images = images[useful]
    certificate = Certificate(
        certificate.prediction[useful], certificate.radius[useful], certificate.failure_probability[useful]
    )
    start = time.process_time()
    result = ATTACKS[name](model, images, certificate)
    return result | {
        "median radius": float(certificate.radius.quantile(0.5)),
        "seconds": round(time.process_time() - start, 1),
    }


def total(results: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """Points and broken points, over all networks and of each attack."""
    by_attack = {
        name: {key: sum(entry[name][key] for entry in results.values() if name in entry) for key in ("points", "broken")}
        for name in ATTACKS
    }
    points = sum(max(entry[name]["points"] for name in entry) for entry in results.values())
    return {"certified points": points, "broken": sum(one["broken"] for one in by_attack.values()), "by attack": by_attack}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, default=1750, help="of each small network")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--checkpoint", type=Path, action="append", default=[], help="a trained network for 64×64 images")
    parser.add_argument("--out", type=Path, default=RESULT)
    given = parser.parse_args()
    torch.set_num_threads(1)
    stored = json.loads(given.out.read_text(encoding="utf-8")) if given.out.exists() else {}
    settings = {"images": given.images, "seed": given.seed}
    results: dict[str, dict[str, Any]] = stored.get("networks", {}) if stored.get("settings") == settings else {}
    cases = [*small_cases(given.seed), *large_cases(given.checkpoint)]
    for name in ATTACKS:
        for case in cases:
            if name in results.get(case.name, {}):
                continue
            results.setdefault(case.name, {})[name] = attacked(case, name, given.images)
            print(f"{case.name}, {name}: {results[case.name][name]}", flush=True)
            summary = {"settings": settings, "total": total(results), "networks": results}
            write_atomically(given.out, json.dumps(summary, indent=1) + "\n")
    print(json.dumps(total(results), indent=1))
    return int(total(results)["broken"] > 0)


if __name__ == "__main__":
    sys.exit(main())
