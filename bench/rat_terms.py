"""How large the terms of RAT's losses are, and which other loss their gradients point along.

    python bench/rat_terms.py

Batches of training images go through a TRADES-trained network in training mode, as in a step of its recipe. Gradients are
those of all weights. A cosine near 1 says that two losses ask for the same step.
The result goes to bench/results/rat_terms.json.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from locality.data.dataset import load_dataset
from locality.training.batches import image_seed
from locality.training.inner_attack import InnerAttack
from locality.training.losses.rat import Rat
from locality.training.losses.rat_labels import RatLabels, equal_label_smoothing
from locality.training.losses.rat_terms import RatTerms
from locality.training.losses.split import attacked_pass, clean_pass
from locality.training.losses.trades import Trades, divergence_of
from locality.training.network import FeatureModel, Network
from locality.training.schedules import Moment
from locality.training.soft_labels import label_divergence, label_table
from locality.training.step import Loss, Passes, TrainingBatch
from locality.training.weight_noise import WeightNoise
from locality.zoo.load import load_model

OUT = Path(__file__).resolve().parent / "results/rat_terms.json"
BETA, ETA = 6.0, 0.2
SIGMAS = (0.01, 1e-4)  # of the paper, of the authors' code


@dataclass(frozen=True, eq=False)
class Gradients:
    """Gradients of numbers with respect to all weights of a network."""

    network: Network

    def __call__(self, number: Tensor | float) -> Tensor:
        assert isinstance(number, Tensor)
        weights = list(self.network.weights.values())
        found = torch.autograd.grad(number, weights, retain_graph=True, allow_unused=True, materialize_grads=True)
        return torch.cat([gradient.flatten() for gradient in found])


def uniform_terms(passes: Passes, labels: Tensor) -> tuple[Tensor, Tensor]:
    """KL from uniform soft labels of the same true mass, for clean and for attacked images."""
    classes = clean_pass(passes).logits.shape[1]
    targets = label_table(torch.zeros(classes), 2 / classes)[labels]
    clean, attacked = (label_divergence(targets, one(passes).logits) for one in (clean_pass, attacked_pass))
    return clean, attacked


def of_labels(batch: TrainingBatch, attack: InnerAttack) -> dict[str, float]:
    """Sizes and cosines of `rat_labels`."""
    gradient, labels = Gradients(batch.network), batch.labels
    loss = RatLabels(attack, BETA, ETA)
    passes = loss.passes(batch)
    value, slipped = (RatLabels(attack, BETA, ETA, slip=slip).value(passes, labels) for slip in (False, True))
    clean, attacked = uniform_terms(passes, labels)
    uniform = gradient((clean + attacked) / 2)
    smoothing = equal_label_smoothing(ETA, clean_pass(passes).logits.shape[1])
    smooth = Trades(attack, BETA, smoothing).value(passes, labels).total
    first, second, second_slipped = (
        gradient(terms[name])
        for terms, name in ((value.terms, "first_term"), (value.terms, "second_term"), (slipped.terms, "second_term"))
    )
    total, total_slipped = gradient(value.total), gradient(slipped.total)
    both = gradient(smooth + 0.75 * ETA * attacked)
    plain = gradient(Trades(attack, BETA).value(passes, labels).total)
    return {
        "norm of cross-entropy": norm(gradient(value.terms["cross_entropy"])),
        "norm of β · KL": norm(BETA * gradient(divergence_of(passes))),
        "norm of η · first labels": norm(ETA * first),
        "norm of η/2 · second labels": norm(ETA / 2 * second),
        "cosine of first labels with uniform labels": cosine(first, uniform),
        "cosine of second labels with uniform labels": cosine(second, uniform),
        "cosine of second labels, slip, with uniform labels": cosine(second_slipped, uniform),
        "cosine of rat_labels with trades + label smoothing + uniform labels for attacked images": cosine(total, both),
        "cosine of rat_labels, slip, with the same": cosine(total_slipped, both),
        "cosine of rat_labels with trades + label smoothing": cosine(total, gradient(smooth)),
        "cosine of rat_labels with trades": cosine(total, plain),
    }


def of_noise(batch: TrainingBatch, attack: InnerAttack, sigma: float) -> dict[str, float]:
    """Sizes of the terms of `rat_terms`, and the cosine of `rat` with TRADES on the same images."""
    gradient, labels, noise = Gradients(batch.network), batch.labels, WeightNoise(sigma)
    passes = RatTerms(attack, BETA, noise, ETA).passes(batch)
    squared, divergent = (
        RatTerms(attack, BETA, noise, ETA, distance=kind).value(passes, labels) for kind in ("squared", "kl")
    )
    plain = gradient(Trades(attack, BETA).value(passes, labels).total)
    at = f"σ {sigma:g}: "
    return {
        at + "norm of trades": norm(plain),
        at + "norm of η · first term, squared": norm(ETA * gradient(squared.terms["first_term"])),
        at + "norm of η/2 · second term, squared": norm(ETA / 2 * gradient(squared.terms["second_term"])),
        at + "norm of η · first term, KL": norm(ETA * gradient(divergent.terms["first_term"])),
        at + "norm of η/2 · second term, KL": norm(ETA / 2 * gradient(divergent.terms["second_term"])),
        at + "cosine of rat_terms with trades": cosine(gradient(squared.total), plain),
        at + "cosine of rat with trades": cosine(gradient(Rat(attack, BETA, noise).value(passes, labels).total), plain),
    }


def norm(gradient: Tensor) -> float:
    return float(gradient.double().norm())


def cosine(one: Tensor, other: Tensor) -> float:
    one, other = one.double(), other.double()
    return float(one @ other / (one.norm() * other.norm()))


def summary(rows: Sequence[Mapping[str, float]]) -> dict[str, dict[str, float]]:
    """Mean and range over the batches of every number."""
    table = {}
    for name in rows[0]:
        values = [row[name] for row in rows]
        table[name] = {"mean": sum(values) / len(values), "smallest": min(values), "largest": max(values)}
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="tiny_resnet_trades")
    parser.add_argument("--data", default="tiny-imagenet")
    parser.add_argument("--batches", type=int, default=6)
    parser.add_argument("--batch-size", type=int, default=64)
    options = parser.parse_args()
    model = load_model(options.model)
    data = load_dataset(options.data, spec=model.spec, split="train", limit=options.batches * options.batch_size)
    order = torch.randperm(len(data), generator=torch.Generator().manual_seed(0)).tolist()
    network = Network(*(FeatureModel(model.requires_grad_(True)).train(),) * 2)
    attack = InnerAttack(4 / 255)
    rows = []
    for step in range(options.batches):
        chosen = order[step * options.batch_size : (step + 1) * options.batch_size]
        images = torch.stack([data[index].image for index in chosen])
        labels = torch.tensor([data[index].label for index in chosen])
        seeds = [image_seed(0, 0, index) for index in chosen]
        row: dict[str, float] = {}
        for measure in (None, *SIGMAS):
            loss: Loss = Trades(attack)
            batch = TrainingBatch(images, labels, seeds, Moment(step, 100, 0, 1), network, loss, network.weights)
            row |= of_labels(batch, attack) if measure is None else of_noise(batch, attack, measure)
        rows.append(row)
    table = summary(rows)
    for name, numbers in table.items():
        print(f"{name:90s} {numbers['mean']:11.6g}  ({numbers['smallest']:.6g} to {numbers['largest']:.6g})")
    settings = {"torch": torch.__version__, **vars(options), "beta": BETA, "eta": ETA}
    OUT.write_text(json.dumps({**settings, "results": table}, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
