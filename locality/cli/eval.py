"""`locality eval`: does one model look at the object?"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from locality.cli import options
from locality.cli.preprocessing_options import (
    check_expected,
    say_preprocessing,
    warn_if_inaccurate,
    with_preprocessing,
)
from locality.cli.printing import note, print_table, say, say_json, with_interval
from locality.cli.warnings_as_lines import warnings_as_lines
from locality.errors import ArgumentError

if TYPE_CHECKING:
    from locality.runner.evaluation import Evaluation
    from locality.runner.region_summary import RegionSummary
    from locality.runner.summary import ModelSummary

OUT_HELP = "Folder for summary.json, rows.csv and the tables that `locality table`, `figures` and `report` read."
FIGURES_HELP = (
    "With --out: keep the maps of the images with the highest and lowest lift, and draw them and a histogram of the scores."
)
REGION_TESTS_HELP = "Also test decisions with the region or the rest greyed, blurred, swapped, noisy: 19 forwards per image."
FIGURES = ("extremes", "histogram")
GALLERY = 8  # images whose maps are kept: four with the highest lift, four with the lowest
LARGE_GAP = 0.1  # of |f(x) − f(baseline)|


@with_preprocessing
def evaluate(
    model: options.ModelName,
    data: options.DataName = None,
    methods: options.Methods = "SM,IG,BIG",
    search: options.SearchName = "fast",
    target: options.Target = "predicted",
    to: options.To = None,
    limit: options.Limit = None,
    boxes: options.Boxes = None,
    data_option: options.DataOption = None,
    cue: options.Cue = None,
    region: options.RegionName = "box",
    device: options.Device = None,
    batch_size: options.BatchSize = None,
    seed: options.Seed = 0,
    channels: options.Channels = "all",
    scores: options.Scores = "",
    points: options.PathPoints = "20",
    region_tests: Annotated[bool, typer.Option(help=REGION_TESTS_HELP)] = True,
    arch: options.Arch = None,
    num_classes: options.NumClasses = None,
    preprocessing: Any = None,
    expect_accuracy: options.ExpectAccuracy = None,
    download: options.Download = False,
    out: Annotated[Path | None, typer.Option(help=OUT_HELP)] = None,
    figures: Annotated[bool, typer.Option("--figures", help=FIGURES_HELP)] = False,
    as_json: options.AsJson = False,
) -> None:
    """Measure locality: the share of a model's attributions that lies inside the boxes people drew."""
    options.check_folder(out)
    if figures and out is None:
        raise ArgumentError("--out", "given with --figures", "none", "name a folder for the files: --out DIR")
    expected = check_expected(expect_accuracy)
    with warnings_as_lines():
        from locality.runner.evaluate import evaluate_with
        from locality.runner.evaluation import refuse_benchmark
        from locality.runner.explain_batch import Settings
        from locality.runner.further_scores import FurtherScores

        if out is not None:
            refuse_benchmark(out)
        settings = Settings(tuple(options.method_names(methods)), search, target, channels, seed=seed)
        path_points = options.path_points(points)
        more_scores = options.method_names(scores)
        FurtherScores.named(more_scores)
        network = options.loaded_model(model, arch, num_classes, device, download, preprocessing)
        images = options.loaded_data(data, network.spec, limit, seed, boxes, data_option, cue, region)
        extent: dict[str, Any] = {"points": path_points, "to": options.class_number(to, network.spec)}
        extent |= {"gallery": GALLERY if figures else 0, "region_tests": region_tests}
        evaluation = evaluate_with(settings, network, images, batch_size, name=model, scores=more_scores, **extent)
    if out is not None:
        evaluation.write(out)
    drawn = _drawn(evaluation, out) if figures and out is not None else []
    accuracy = evaluation.summary.accuracy
    right = round(accuracy.mean * accuracy.used) if accuracy.used else 0
    warn_if_inaccurate(model, options.data_of_cards(data or images.name, images, cue), right, accuracy.used, expected)
    if as_json:
        say_json(evaluation.to_json())
        return
    say(f"{model} on {images}")
    say_preprocessing(network)
    if to is not None:
        say(f"boundary: the nearest points that are predicted as {to}")
    if images.name == "photos":
        note("These are a few photographs. For ImageNet itself pass --data imagenet:PATH --boxes PATH.")
    _print(evaluation.summary)
    if out is not None:
        say(f"rows: {out / 'rows.csv'}; tables and page: locality table {out}, locality report {out}")
    for path in drawn:
        say(str(path))
    say(evaluation.verdict.sentence(model))


def _drawn(evaluation: Evaluation, folder: Path) -> list[Path]:
    """Draw the best and worst images and the histogram, as PNG files; what is undefined is skipped with a line."""
    from locality.report.aggregates import NotMeasuredError
    from locality.report.figures.catalogue import draw_figures

    files = []
    for name in FIGURES:
        try:
            files += draw_figures(evaluation.results, folder / "figures", [name], ["png"]).files[name]
        except NotMeasuredError as reason:
            say(f"locality: {reason}", error=True)
    return files


def _print(summary: ModelSummary) -> None:
    methods = summary.methods | {f"model-free: {name}": scores for name, scores in summary.model_free.items()}
    names = list(next(iter(methods.values())))
    rows = [
        (name, *(with_interval(scores[score]) for score in names), str(scores["f1"].undefined))
        for name, scores in methods.items()
    ]
    print_table(["method", *names, "undefined"], rows, leave_out=["undefined", "precision", "recall"])
    accuracy = f"accuracy {with_interval(summary.accuracy)}"
    if not summary.accuracy.used:
        accuracy = "accuracy undefined: the model does not know the classes"
    abstained = f"; abstained on {summary.abstained:,} ({summary.abstained_share:.1%})" if summary.abstained else ""
    say(f"{accuracy}; {summary.images:,} images{abstained}")
    if summary.searched:
        distance = with_interval(summary.distance)
        say(f"boundary found for {summary.found:,} of {summary.searched:,} images; ℓ2 distance {distance}")
    if summary.bracketed:
        ratio = f"{summary.tightness:.1%} of the distance (median)"
        say(f"certified: no boundary is nearer than the radius, which is {ratio}; {summary.bracketed:,} points")
    _print_gaps(summary.gaps)
    note("model-free: maps that depend on neither the model nor the image, for comparison")
    note("lift: 0 is the score of the same attribution values shuffled over the image, 1 is perfect")
    if summary.regions is not None:
        _print_regions(summary.regions)


def _print_regions(regions: RegionSummary) -> None:
    """One row per region test, each beside its chance level."""
    from locality.results.region_tests import title_of

    titles = {"correct": "accuracy", "kept": "decision kept", "logit_change": "logit change"}
    columns = [(title, number + suffix) for number, title in titles.items() for suffix in ("", "_elsewhere")]
    header = [title if "_elsewhere" not in column else f"elsewhere ({title})" for title, column in columns]
    rows = [
        (title_of(test, regions.region), *(with_interval(numbers[column]) for _, column in columns))
        for test, numbers in regions.tests.items()
    ]
    print_table(["region test", *header], rows, leave_out=[*header[:1:-1]])
    core = regions.sensitivity
    if core.used and core.value == core.value:
        sensitivity = f"{core.value:.3f} [{core.low:.3f}, {core.high:.3f}]"
    else:
        sensitivity = "undefined"
    where = "cue" if regions.region == "cue" else "object"
    say(f"reliance on the {where} {with_interval(regions.reliance)}; relative core sensitivity {sensitivity}")
    if regions.followed.used:
        say(f"with another image's surroundings, predicted as that image's class: {with_interval(regions.followed)}")
    note("elsewhere: the same change with the region moved to a random place; reliance: 0 is chance, 1 is the region alone")


def _print_gaps(gaps: dict[str, float]) -> None:
    """The median completeness gap of each method that integrates, and a warning where it is large."""
    known = {name: gap for name, gap in gaps.items() if gap == gap}
    if not known:
        return
    listed = ", ".join(f"{name} {gap:.1%}" for name, gap in known.items())
    say(f"completeness gap (median over images, relative to f(x) − f(baseline)): {listed}")
    large = [name for name, gap in known.items() if gap > LARGE_GAP]
    if large:
        text = f"the completeness gap of {' and '.join(large)} is above {LARGE_GAP:.0%}: use --points auto"
        say(f"locality: warning: {text}", error=True)
