"""PAC-Bayes numbers of a trained network: every term of the bounds, and whether they say anything."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from locality.curvature import gaussian_bounds as terms
from locality.curvature.diagonal import gauss_newton_diagonal
from locality.curvature.open_network import OpenNetwork, open_network
from locality.errors import ArgumentError
from locality.progress import Progress, no_progress

DRAWS = 20
CANDIDATES = 64  # prior variances that may be chosen from after training: a union bound costs ln(64) for each choice
TEMPERATURES = 10  # β = n, n/2, …, n/512
SMALLEST_PROBABILITY = 1e-4  # losses are clipped at C = ln(1/1e-4) = 9.2, because the theorem needs a bounded loss


@dataclass(frozen=True)
class SampledPosterior:
    """The bound without a Taylor step: the loss of networks drawn from the posterior, and the exact KL divergence."""

    prior_variance: float
    draws: int
    loss: float  # mean over draws and images, clipped
    loss_error: float  # standard error of that mean over the draws
    expected_loss: float  # what the Taylor expansion expects: R̂ + ½ Σ σ_n² H_nn
    error: float  # share of wrong decisions
    divergence: float  # KL(Q ‖ P)
    bound: float  # loss + KL/β + constant, and the choice of the variance where it was chosen
    square_root: float  # error + 4 √((KL + ln(2n/τ))/n)


@dataclass(frozen=True)
class PacBayes:
    """Every term in nats of cross-entropy, except for errors. `nan` where a term is not defined.

    The weights of the layers are random; biases and normalisation parameters are fixed, and the theorem would need them to
    be fixed before training. The attacked images are those of the trained weights. So these numbers compare checkpoints.
    They are no certificate.
    """

    training_images: int  # n
    measured_images: int  # those that losses and curvature are means over
    weights: int  # N
    beta: float
    failure_probability: float  # τ
    largest_loss: float  # C, at which losses are clipped
    classes: int
    loss: float  # R̂: mean clipped cross-entropy of the attacked training images
    error: float
    squared_norm: float  # ‖θ‖²
    squared_distance: float  # ‖θ − θ0‖²
    trace: float
    weight_curvature: float  # Σ_k ‖W_k‖ √Tr(H_k), from the same traces
    prior_variance: float  # σ0²
    norm_term: float
    norm_term_from_start: float
    trace_term: float
    spherical_term: float
    diagonal_term: float
    constant: float
    linear: float  # Eq. 4.6 of the thesis: loss + norm term + trace term + constant
    linear_from_start: float
    spherical: float
    diagonal: float
    best_variance: float
    best_term: float  # ‖θ‖ √(Tr/β)
    best: float  # with that variance, chosen among 64
    layerwise_term: float  # WCI/√β
    layerwise: float  # with a variance per layer, each chosen among 64
    best_beta: float
    best_over_betas: float  # as `best`, with β chosen among 10, too
    sampled: SampledPosterior
    sampled_best: SampledPosterior | None  # None where the best variance is not defined

    @property
    def smallest(self) -> float:
        """The smallest bound on the loss."""
        sampled = [one.bound for one in (self.sampled, self.sampled_best) if one is not None]
        totals = [self.linear, self.linear_from_start, self.spherical, self.diagonal, self.best, self.layerwise]
        return min(value for value in (*totals, self.best_over_betas, *sampled) if not math.isnan(value))

    @property
    def trivial_loss(self) -> float:
        """What a bound must stay below to say anything: the loss of a uniform guess, ln K, and no loss is above C."""
        return min(self.largest_loss, math.log(self.classes))

    @property
    def vacuous(self) -> bool:
        """Whether no bound says more than a uniform guess does."""
        return self.smallest >= self.trivial_loss

    def sentence(self) -> str:
        """What the bounds say, in one line."""
        what = f"the smallest bound is {self.smallest:.3g} nats, a uniform guess has {self.trivial_loss:.3g}"
        return f"vacuous: {what}" if self.vacuous else f"not vacuous: {what}"

    def to_json(self) -> dict[str, Any]:
        """All terms as plain values: an undefined one is None."""
        return _plain(asdict(self)) | {"smallest": self.smallest, "vacuous": self.vacuous}


def pac_bayes(
    model: nn.Module,
    images: Tensor,
    labels: Tensor,
    training_images: int,
    *,
    initial: Mapping[str, Tensor] | None = None,
    prior_variance: float | None = None,
    beta: float | None = None,
    failure_probability: float = 0.05,
    draws: int = DRAWS,
    seed: int = 0,
    chunk: int | None = None,
    progress: Progress = no_progress,
) -> PacBayes:
    """PAC-Bayes bounds of a network from (attacked) training images, of which it had `training_images` in all.

    `initial` are the weights that training began with, by name. `prior_variance` is σ0², by default one over the number of
    input features; `beta` is Catoni's temperature, by default the number of training images. `progress` counts images and
    draws.
    """
    _check(len(images), training_images, prior_variance, beta, failure_probability, draws)
    temperature = float(training_images) if beta is None else float(beta)
    variance = 1 / images[0].numel() if prior_variance is None else float(prior_variance)
    largest = math.log(1 / SMALLEST_PROBABILITY)
    total = len(images) + 2 * draws
    with open_network(model, images, labels, seed, chunk, lambda done, _: progress(done, total)) as network:
        curvature = gauss_newton_diagonal(network)
        theta, diagonal = _flat(network.layers), _flat([curvature[name] for name in network.names])
        squared_norm, trace = float(theta.square().sum()), float(diagonal.sum())
        best = terms.best_variance(squared_norm, trace, temperature)
        losses, wrong = _losses(network, {}, largest)
        loss = float(losses.mean())
        fixed = terms.constant(temperature, training_images, largest, failure_probability)
        choice = math.log(CANDIDATES) / temperature

        def sampled(prior: float, cost: float, before: int) -> SampledPosterior:
            posterior = terms.posterior_variance(diagonal, temperature, prior)
            drawn = []
            for draw in range(draws):
                drawn.append(_drawn(network, posterior, largest, seed + draw))
                progress(len(images) + before + draw + 1, total)
            means = torch.tensor(drawn, dtype=torch.float64)
            kl = terms.divergence(theta, posterior, prior)
            average, error = means.mean(0).tolist()
            return SampledPosterior(
                prior_variance=prior,
                draws=draws,
                loss=average,
                loss_error=float(means[:, 0].std()) / math.sqrt(draws),
                expected_loss=loss + float((posterior * diagonal).sum()) / 2,
                error=error,
                divergence=kl,
                bound=average + kl / temperature + fixed + cost,
                square_root=terms.square_root_bound(error, kl, training_images, failure_probability),
            )

        at_prior = sampled(variance, 0.0, 0)
        at_best = None if math.isnan(best) else sampled(best, choice, draws)
        classes = network.logits(network.images[:1]).shape[1]
        by_layer = [
            terms.best_term(float(layer.double().square().sum()), float(curvature[name].sum()), temperature)
            for name, layer in zip(network.names, network.layers, strict=True)
        ]
        distance = _squared_distance(network, initial)
    norm, from_start = (terms.norm_term(squared, temperature, variance) for squared in (squared_norm, distance))
    forms = {
        "linear": terms.trace_term(trace, variance),
        "spherical": terms.spherical_term(trace, len(theta), temperature, variance),
        "diagonal": terms.diagonal_term(diagonal, temperature, variance),
    }
    over_betas = {
        one: loss
        + terms.best_term(squared_norm, trace, one)
        + terms.constant(one, training_images, largest, failure_probability)
        + math.log(CANDIDATES * TEMPERATURES) / one
        for one in terms.betas(training_images, TEMPERATURES)
    }
    best_beta = min(over_betas, key=lambda one: over_betas[one])
    return PacBayes(
        training_images=training_images,
        measured_images=len(images),
        weights=len(theta),
        beta=temperature,
        failure_probability=failure_probability,
        largest_loss=largest,
        classes=classes,
        loss=loss,
        error=float(wrong.mean()),
        squared_norm=squared_norm,
        squared_distance=distance,
        trace=trace,
        weight_curvature=sum(by_layer) * math.sqrt(temperature),
        prior_variance=variance,
        norm_term=norm,
        norm_term_from_start=from_start,
        trace_term=forms["linear"],
        spherical_term=forms["spherical"],
        diagonal_term=forms["diagonal"],
        constant=fixed,
        linear=loss + norm + forms["linear"] + fixed,
        linear_from_start=loss + from_start + forms["linear"] + fixed,
        spherical=loss + norm + forms["spherical"] + fixed,
        diagonal=loss + norm + forms["diagonal"] + fixed,
        best_variance=best,
        best_term=terms.best_term(squared_norm, trace, temperature),
        best=loss + terms.best_term(squared_norm, trace, temperature) + fixed + choice,
        layerwise_term=sum(by_layer),
        layerwise=loss + sum(by_layer) + fixed + len(by_layer) * choice,
        best_beta=best_beta,
        best_over_betas=over_betas[best_beta],
        sampled=at_prior,
        sampled_best=at_best,
    )


def _losses(network: OpenNetwork, weights: Mapping[str, Tensor], largest: float) -> tuple[Tensor, Tensor]:
    """N each: the clipped cross-entropy, and 1 where the decision is wrong."""

    def of_chunk(images: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        with torch.no_grad():
            logits = network.logits(images, dict(weights))
        losses = cross_entropy(logits.double(), labels, reduction="none").clamp_max(largest)
        return losses, (logits.argmax(1) != labels).double()

    losses, wrong = network.calls.in_chunks(of_chunk, network.images, network.labels)
    return losses, wrong


def _drawn(network: OpenNetwork, variances: Tensor, largest: float, seed: int) -> tuple[float, float]:
    """Mean loss and error of one network drawn from the posterior."""
    generator = torch.Generator().manual_seed(seed)
    weights, first = {}, 0
    for name, layer in zip(network.names, network.layers, strict=True):
        deviations = variances[first : first + layer.numel()].sqrt().view(layer.shape).to(layer)
        weights[name] = layer + deviations * torch.randn(layer.shape, generator=generator).to(layer)
        first += layer.numel()
    losses, wrong = _losses(network, weights, largest)
    return float(losses.mean()), float(wrong.mean())


def _flat(tensors: list[Tensor]) -> Tensor:
    return torch.cat([tensor.detach().double().flatten() for tensor in tensors])


def _squared_distance(network: OpenNetwork, initial: Mapping[str, Tensor] | None) -> float:
    """‖θ − θ0‖², or nan without initial weights."""
    if initial is None:
        return math.nan
    missing = [name for name in network.names if name not in initial or initial[name].shape != network.tensors[name].shape]
    if missing:
        raise ArgumentError("initial", "weights of every layer, by name", f"none of this shape for {missing[0]}")
    layers = zip(network.names, network.layers, strict=True)
    return sum(float((layer.double() - initial[name].to(layer.device).double()).square().sum()) for name, layer in layers)


def _plain(values: dict[str, Any]) -> dict[str, Any]:
    plain: dict[str, Any] = {}
    for name, value in values.items():
        if isinstance(value, dict):
            plain[name] = _plain(value)
        else:
            plain[name] = None if isinstance(value, float) and not math.isfinite(value) else value
    return plain


def _check(
    images: int, training_images: int, variance: float | None, beta: float | None, failure: float, draws: int
) -> None:
    if training_images < images:
        raise ArgumentError("training_images", f"the number of all training images, at least {images}", training_images)
    for name, value in (("prior_variance", variance), ("beta", beta)):
        if value is not None and not 0 < value < math.inf:
            raise ArgumentError(name, "a positive number, or None", value)
    if not 0 < failure < 1:
        raise ArgumentError("failure_probability", "between 0 and 1", failure)
    if isinstance(draws, bool) or not isinstance(draws, int) or draws < DRAWS:
        raise ArgumentError("draws", f"a whole number of at least {DRAWS}", draws, "fewer do not check anything")
