"""`locality compare`: which of two models looks at the object more?"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from locality.cli import completion, options
from locality.cli.preprocessing_options import (
    check_expected,
    say_preprocessing,
    warn_if_inaccurate,
    with_preprocessing,
)
from locality.cli.printing import print_table, say, say_json, with_interval
from locality.cli.warnings_as_lines import warnings_as_lines

if TYPE_CHECKING:
    from locality.runner.compare import Comparison
    from locality.statistics import Paired


@with_preprocessing
def compare(
    first: Annotated[str, typer.Argument(metavar="MODEL_A", help=options.MODEL_HELP, autocompletion=completion.models)],
    second: Annotated[
        str, typer.Argument(metavar="MODEL_B", help="The model to compare it with.", autocompletion=completion.models)
    ],
    data: options.DataName = None,
    methods: options.Methods = "SM,IG,BIG",
    search: options.SearchName = "fast",
    target: options.Target = "predicted",
    limit: options.Limit = None,
    boxes: options.Boxes = None,
    data_option: options.DataOption = None,
    cue: options.Cue = None,
    region: options.RegionName = "box",
    device: options.Device = None,
    batch_size: options.BatchSize = None,
    seed: options.Seed = 0,
    points: options.PathPoints = "20",
    arch: Annotated[
        list[str] | None,
        typer.Option(help="Architecture of a checkpoint, as in eval. For two that differ, give it twice, in their order."),
    ] = None,
    num_classes: options.NumClasses = None,
    preprocessing: Any = None,
    expect_accuracy: options.ExpectAccuracy = None,
    download: options.Download = False,
    as_json: options.AsJson = False,
) -> None:
    """Compare two models on the same images: the paired difference of their locality, with its interval."""
    expected = check_expected(expect_accuracy)
    with warnings_as_lines():
        from locality.data.defaults import common_data
        from locality.runner.compare import compare as compare_evaluations
        from locality.runner.evaluate import evaluate_with
        from locality.runner.explain_batch import Settings

        settings = Settings(tuple(options.method_names(methods)), search, target, seed=seed)
        path_points = options.path_points(points)
        names = first, second
        models = [
            options.loaded_model(
                name, architecture, None if architecture is None else num_classes, device, download, preprocessing
            )
            for name, architecture in zip(names, _architectures(names, arch or [], num_classes), strict=True)
        ]
        data_name = data or common_data([model.spec for model in models])
        images = [
            options.loaded_data(data_name, model.spec, limit, seed, boxes, data_option, cue, region) for model in models
        ]
        evaluations = [
            evaluate_with(settings, model, own_images, batch_size, name=name, points=path_points, region_tests=False)
            for name, model, own_images in zip(names, models, images, strict=True)
        ]
    comparison = compare_evaluations(*evaluations)
    shown = options.data_of_cards(data_name, images[0], cue)
    for name, evaluation in zip(names, evaluations, strict=True):
        accuracy = evaluation.summary.accuracy
        right = round(accuracy.mean * accuracy.used) if accuracy.used else 0
        warn_if_inaccurate(name, shown, right, accuracy.used, expected)
    if as_json:
        say_json(comparison.to_json())
        return
    say(str(images[1]))
    say_preprocessing(*models)
    _print(comparison)


def _print(comparison: Comparison) -> None:
    from locality.runner.compare import change_text

    both = comparison.first, comparison.second
    rows = []
    for method, scores in comparison.differences.items():
        means = [with_interval(evaluation.summary.methods[method]["f1"]) for evaluation in both]
        changes = [change_text(scores[score]) for score in ("f1", "lift")]
        rows.append((method, *means, *changes, f"{scores['f1'].improved:.0%}", _p_text(scores["f1"])))
    titles = [f"F1 {evaluation.model}" for evaluation in both]
    header = ["method", *titles, "F1 difference", "lift difference", "higher F1", "p"]
    print_table(header, rows, leave_out=["higher F1", "p", "lift difference"])
    accuracies = [f"{evaluation.model} {with_interval(evaluation.summary.accuracy)}" for evaluation in both]
    say(f"accuracy: {', '.join(accuracies)}")
    if any(evaluation.summary.abstained for evaluation in both):
        say(f"abstained: {', '.join(f'{one.model} {one.summary.abstained_share:.1%}' for one in both)}")
    for sentence in comparison.verdicts:
        say(sentence)


def _architectures(names: tuple[str, str], given: list[str], num_classes: int | None) -> list[str | None]:
    """The architecture of each model: one given holds for every checkpoint without a card, two for one each."""
    from locality.errors import ArgumentError
    from locality.zoo.load import needs_architecture

    bare = [needs_architecture(name) for name in names]
    if not any(bare) and (given or num_classes is not None):
        option, value = ("--arch", given) if given else ("--num-classes", num_classes)
        expected = f"given with the path of a checkpoint that has no card, and neither {names[0]!r} nor {names[1]!r} is one"
        raise ArgumentError(option, expected, value, "leave it out")
    if len(given) not in (0, 1, sum(bare)):
        raise ArgumentError("--arch", f"given once, or once for each of the {sum(bare)} checkpoints", given)
    architectures = iter(given * sum(bare) if len(given) == 1 else given)
    return [next(architectures, None) if is_bare else None for is_bare in bare]


def _p_text(value: Paired) -> str:
    return f"{value.p:.1e}" if value.p < 0.001 else f"{value.p:.3f}"
