"""`locality curvature`: how flat the loss of a model is, and whether it generalises under attack."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from locality.cli import completion, options
from locality.cli.preprocessing_options import (
    check_expected,
    say_preprocessing,
    warn_if_inaccurate,
    with_preprocessing,
)
from locality.cli.printing import print_table, say, say_json
from locality.cli.warnings_as_lines import warnings_as_lines
from locality.curvature import TraceMethod
from locality.data.kinds import sources_text
from locality.errors import ArgumentError
from locality.types import Threat

if TYPE_CHECKING:
    from locality.curvature.bounds import PacBayes
    from locality.curvature.gap import RobustGap
    from locality.curvature.model_curvature import ModelCurvature
    from locality.statistics import Difference, Summary

DATA_HELP = f"Test images, their `eval` split: {sources_text()}. By default of the data set that the model was trained on."
TRAIN_HELP = "Training images, their `train` split. By default those that the model's card names."
METHOD_HELP = (
    "exact: a backward pass per class; sampled: one per probe; probed: Hutchinson's estimator, for any network; "
    "auto: the first of them that the network allows and that is cheap."
)
NAMES = ("clean_loss", "robust_loss", "clean_error", "robust_error")


@with_preprocessing
def curvature(
    model: options.ModelName,
    data: Annotated[str | None, typer.Option(help=DATA_HELP, autocompletion=completion.data)] = None,
    train: Annotated[str | None, typer.Option(help=TRAIN_HELP, autocompletion=completion.data)] = None,
    limit: Annotated[int, typer.Option(help="Images of each split at most, balanced over the classes.")] = 256,
    boxes: options.Boxes = None,
    data_option: options.DataOption = None,
    norm: options.NormName = "linf",
    eps: Annotated[str, typer.Option(help="Largest perturbation, in pixels of [0, 1]: 8/255, 0.5.")] = "8/255",
    steps: Annotated[int, typer.Option(help="Steps of PGD, all of which are made.")] = 10,
    method: Annotated[TraceMethod, typer.Option(help=METHOD_HELP)] = "auto",
    probes: Annotated[
        int | None, typer.Option(help="Random directions per image (sampled) or per eight images (probed). Default: 4.")
    ] = None,
    bound: Annotated[bool, typer.Option("--bound", help="Also print PAC-Bayes bounds with every term.")] = False,
    seed: options.Seed = 0,
    device: options.Device = None,
    out: Annotated[Path | None, typer.Option(help="Folder for one row per layer, one per image, and the summary.")] = None,
    as_json: options.AsJson = False,
    download: options.Download = False,
    arch: options.Arch = None,
    num_classes: options.NumClasses = None,
    preprocessing: Any = None,
    expect_accuracy: options.ExpectAccuracy = None,
) -> None:
    """Measure curvature: Hessian traces of all layers, the weight-curvature index, and the gap between train and test."""
    threat = _threat(norm, eps)
    for option, value in (("--steps", steps), ("--limit", limit), ("--probes", 1 if probes is None else probes)):
        if value < 1:
            raise ArgumentError(option, "a whole number of at least 1", value)
    options.check_folder(out)
    expected = check_expected(expect_accuracy)
    with warnings_as_lines():
        from locality.curvature.model_curvature import model_curvature
        from locality.curvature.training_run import initial_weights, splits_of
        from locality.progress import progress
        from locality.zoo.load import known_card

        network = options.loaded_model(model, arch, num_classes, device, download, preprocessing)
        card = None if arch else known_card(model)
        splits = splits_of(card, network.spec, train, data, limit, seed, **options.source_options(boxes, data_option))
        with progress(f"curvature of {model}") as report:
            result = model_curvature(
                network,
                splits.train,
                splits.test,
                threat.radius,
                threat.norm,
                steps,
                method,
                probes,
                seed,
                training_images=splits.training_images if bound else None,
                initial=initial_weights(card) if bound else None,
                progress=report,
            )
    wrong = result.gap.test.clean_error
    known = int((~wrong.isnan()).sum())
    warn_if_inaccurate(model, splits.test.name, known - int(wrong.nansum()), known, expected)
    names = {"model": model, "train": splits.train.name, "test": splits.test.name}
    paths = () if out is None else result.write(out, **names)
    if as_json:
        say_json(result.to_json(**names))
        return
    say(f"training images: {splits.train}")
    if not splits.stated:
        say("no card says that the model was trained on them: --train names others")
    say(f"test images: {splits.test}")
    say_preprocessing(network)
    say(f"attack: PGD with {steps} steps at {threat}, which does not stop early, at these weights; seed {seed}")
    _print(result)
    if paths:
        say(f"files: {', '.join(str(path) for path in paths)}")


def _threat(norm: Any, eps: str) -> Threat:
    try:
        return Threat(norm, options.number("--eps", eps, "a distance such as 8/255 or 0.5"))
    except ArgumentError as error:
        raise error.renamed("--eps") from None


def _print(result: ModelCurvature) -> None:
    say("")
    rows = [
        (row.name, f"{row.norm:.4g}", f"{row.trace:.4g}{_plus_minus(row.error)}", f"{row.term:.4g}", f"{row.share:.1%}")
        for row in result.rows.itertuples(index=False)
    ]
    print_table(["layer", "‖W‖", "trace", "‖W‖√trace", "share"], rows, leave_out=["‖W‖√trace"], right=(1, 2, 3, 4))
    traces, index, top = result.traces, result.index, result.top_trace
    drawn = f", {traces.probes} probes" if traces.probes else ""
    say(f"traces: {traces.method}{drawn}, {traces.images} attacked training images, {traces.gradients:,} gradients")
    say(f"WCI = Σ‖W‖√trace: {index.index:.4g}{_plus_minus(index.error)}; with one scale for all layers: {index.upper:.4g}")
    if top is not None:
        say(f"TrH, the top layer's trace: {top.mean:.4g}{_interval(top)}")
    for note in result.notes:
        say(note)
    say("")
    _print_gap(result.gap)
    if result.bound is not None:
        say("")
        _print_bound(result.bound)


def _print_gap(gap: RobustGap) -> None:
    columns = [name.replace("_", " ") for name in NAMES]
    rows = [
        (split, *(f"{losses.means[name].mean:.3f}{_interval(losses.means[name])}" for name in NAMES))
        for split, losses in (("train", gap.train), ("test", gap.test))
    ]
    differences = (gap.clean_loss, gap.loss, gap.clean_error, gap.error)
    rows.append(("gap", *(f"{one.mean:+.3f}{_interval(one)}" for one in differences)))
    print_table(["", *columns], rows, leave_out=["clean error", "clean loss"])
    one = gap.standard_minus_robust
    say(f"clean − robust error of the test images: {one.mean:+.3f}{_interval(one)}; intervals: 95 %")
    for split, losses in (("train", gap.train), ("test", gap.test)):
        if losses.undefined:
            say(f"left out of {split}: {losses.undefined:,} images of classes that the model does not know")


def _print_bound(bound: PacBayes) -> None:
    norms = [("‖θ‖²", bound.norm_term), ("‖θ − θ0‖², from the initial weights", bound.norm_term_from_start)]
    rows = [("loss of the training images, clipped", f"{bound.loss:.4g}")]
    rows += [(f"norm term, {name}", f"{value:.4g}") for name, value in norms if not math.isnan(value)]
    rows += [
        ("trace term, linear", f"{bound.trace_term:.4g}"),
        ("trace term, spherical", f"{bound.spherical_term:.4g}"),
        ("trace term, diagonal", f"{bound.diagonal_term:.4g}"),
        ("constant", f"{bound.constant:.4g}"),
        ("bound, linear (Eq. 4.6)", f"{bound.linear:.4g}"),
        ("bound, diagonal", f"{bound.diagonal:.4g}"),
        (f"norm and trace term at the best σ0², {bound.best_variance:.3g}", f"{bound.best_term:.4g}"),
        ("the same with a σ0² per layer, WCI/√β", f"{bound.layerwise_term:.4g}"),
        ("bound at the best σ0²", f"{bound.best:.4g}"),
        ("bound with a σ0² per layer", f"{bound.layerwise:.4g}"),
        (f"bound at the best σ0² and β, {bound.best_beta:g}", f"{bound.best_over_betas:.4g}"),
    ]
    for name, one in (("σ0²", bound.sampled), ("the best σ0²", bound.sampled_best)):
        if one is not None:
            rows += [
                (
                    f"at {name}, {one.draws} draws: loss (expansion {one.expected_loss:.4g})",
                    f"{one.loss:.4g} ± {one.loss_error:.2g}",
                ),
                (f"at {name}: KL(Q ‖ P)", f"{one.divergence:.4g}"),
                (f"at {name}: bound without expansion", f"{one.bound:.4g}"),
                (f"at {name}: square-root bound of the error", f"{one.square_root:.4g}"),
            ]
    print_table(["PAC-Bayes, nats", "value"], rows, right=(1,))
    settings = f"n = {bound.training_images:,}, β = {bound.beta:g}, σ0² = {bound.prior_variance:.3g}"
    say(f"{settings}, τ = {bound.failure_probability:g}, losses clipped at {bound.largest_loss:.3g}")
    say(bound.sentence())


def _plus_minus(error: float) -> str:
    """The standard error; nothing where it is 0 or unknown."""
    return f" ± {error:.2g}" if error > 0 else ""


def _interval(value: Summary | Difference) -> str:
    return "" if math.isnan(value.low) else f" [{value.low:.3f}, {value.high:.3f}]"
