"""`locality compare`: which of two models looks at the object more?"""

from __future__ import annotations

import json
import math
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from locality.cli import options
from locality.cli.eval import with_interval
from locality.cli.printing import print_table, say
from locality.cli.warnings_as_lines import warnings_as_lines

if TYPE_CHECKING:
    from locality.statistics import Paired
    from locality.zoo.pixel_model import PixelModel


def compare(
    first: Annotated[str, typer.Argument(metavar="MODEL_A", help=options.MODEL_HELP)],
    second: Annotated[str, typer.Argument(metavar="MODEL_B", help="The model it is compared with.")],
    data: options.DataName = None,
    methods: options.Methods = "SM,IG,BIG",
    search: options.SearchName = "fast",
    target: options.Target = "predicted",
    limit: options.Limit = None,
    boxes: options.Boxes = None,
    device: options.Device = None,
    batch_size: options.BatchSize = None,
    seed: options.Seed = 0,
    arch: Annotated[
        list[str] | None,
        typer.Option(help="The architecture of a checkpoint, as in eval; of two that differ, given twice, in their order."),
    ] = None,
    num_classes: options.NumClasses = None,
    download: options.Download = False,
    as_json: options.AsJson = False,
) -> None:
    """Compare two models on the same images: the difference of their locality, image by image, with its interval."""
    with warnings_as_lines():
        from locality.runner.evaluate import Settings, evaluate
        from locality.runner.summary import compared, model_summary
        from locality.runner.verdict import verdict

        names = options.method_names(methods)
        settings = Settings(tuple(names), search, target, seed=seed)
        architectures = _architectures((first, second), arch or [], num_classes)
        models = [
            options.loaded_model(name, architecture, None if architecture is None else num_classes, device, download)
            for name, architecture in zip((first, second), architectures, strict=True)
        ]
        chosen = data or _data_of(models)
        rows = []
        for network in models:
            images = options.loaded_data(chosen, network.spec, limit, seed, boxes)
            rows.append(evaluate(network, images, names, search, settings.target, seed=seed, batch_size=batch_size))
    differences = compared(rows[0], rows[1])
    if not any(score.used for scores in differences.values() for score in scores.values()):
        raise ValueError(f"`{first}` and `{second}` have no image in common on which both are defined: pass --data")
    if as_json:
        found = {name: {score: _json(value) for score, value in scores.items()} for name, scores in differences.items()}
        typer.echo(json.dumps({"first": first, "second": second, "methods": found}, ensure_ascii=False, allow_nan=False))
        return
    say(str(images))
    summaries = [model_summary(part) for part in rows]
    table = []
    for name, scores in differences.items():
        means = [with_interval(part.methods[name]["f1"]) for part in summaries]
        table.append(
            (name, *means, _change(scores["f1"]), _change(scores["lift"]), f"{scores['f1'].improved:.0%}", _p(scores["f1"]))
        )
    header = ["method", f"F1 {first}", f"F1 {second}", "F1 difference", "lift difference", "higher F1", "p"]
    print_table(header, table, leave_out=["higher F1", "p", "lift difference"])
    accuracies = [f"{name} {with_interval(part.accuracy)}" for name, part in zip((first, second), summaries, strict=True)]
    say(f"accuracy: {', '.join(accuracies)}")
    for name, scores in differences.items():
        say(verdict(first, second, name, scores["f1"], scores["lift"]))


def _architectures(names: tuple[str, str], given: list[str], num_classes: int | None) -> list[str | None]:
    """The architecture of each model: one given holds for every checkpoint without a card, two for one each."""
    from locality.zoo.load import has_card, is_checkpoint

    bare = [is_checkpoint(name) and not has_card(name) for name in names]
    if not any(bare) and (given or num_classes is not None):
        option = "--arch" if given else "--num-classes"
        raise ValueError(
            f"`{option}` goes with the path of a checkpoint that has no card, and neither {names[0]!r} nor {names[1]!r} is "
            "one: leave it out"
        )
    if len(given) not in (0, 1, sum(bare)):
        raise ValueError(f"`--arch` must be given once, or once for each checkpoint, got {len(given)} for {sum(bare)}")
    each = iter(given * sum(bare) if len(given) == 1 else given)
    return [next(each, None) if is_bare else None for is_bare in bare]


def _data_of(models: list[PixelModel]) -> str:
    """The data of both models' classes; of a checkpoint whose classes nobody knows, that of the other model."""
    from locality.data.defaults import default_data

    specs = [model.spec for model in models]
    names = {default_data(spec) for spec in [spec for spec in specs if spec.classes] or specs}
    if len(names) > 1:
        raise ValueError(
            f"`--data` must be given: by default {specs[0].name} and {specs[1].name} are evaluated on other data"
        )
    return names.pop()


def _change(value: Paired) -> str:
    return f"{value.difference:+.3f} [{value.low:+.3f}, {value.high:+.3f}]"


def _p(value: Paired) -> str:
    return f"{value.p:.1e}" if value.p < 0.001 else f"{value.p:.3f}"


def _json(value: Paired) -> dict[str, Any]:
    return {key: None if isinstance(part, float) and math.isnan(part) else part for key, part in asdict(value).items()}
