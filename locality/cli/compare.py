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
    from locality.scores.statistics import Paired


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
    download: options.Download = False,
    as_json: options.AsJson = False,
) -> None:
    """Compare two models on the same images: the difference of their locality, image by image, with its interval."""
    with warnings_as_lines():
        from locality.runner.evaluate import Settings, evaluate
        from locality.runner.summary import compared, model_summary
        from locality.runner.verdict import verdict

        names = options.method_names(methods)
        settings = Settings(tuple(names), search, target, seed=seed)  # type: ignore[arg-type]
        models = [options.loaded_model(name, device=device, download=download) for name in (first, second)]
        rows = []
        for network in models:
            images = options.loaded_data(data, network.spec, limit, seed, boxes)
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
    print_table(["method", f"F1 {first}", f"F1 {second}", "F1 difference", "lift difference", "higher F1", "p"], table)
    accuracies = [f"{name} {with_interval(part.accuracy)}" for name, part in zip((first, second), summaries, strict=True)]
    say(f"accuracy: {', '.join(accuracies)}")
    for name, scores in differences.items():
        say(verdict(first, second, name, scores["f1"], scores["lift"]))


def _change(value: Paired) -> str:
    return f"{value.difference:+.3f} [{value.low:+.3f}, {value.high:+.3f}]"


def _p(value: Paired) -> str:
    return f"{value.p:.1e}" if value.p < 0.001 else f"{value.p:.3f}"


def _json(value: Paired) -> dict[str, Any]:
    return {key: None if isinstance(part, float) and math.isnan(part) else part for key, part in asdict(value).items()}
