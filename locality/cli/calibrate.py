"""`locality calibrate`: which methods and scores can be trusted on these images and this architecture?"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from locality.cli import options
from locality.cli.preprocessing_options import say_preprocessing, with_preprocessing
from locality.cli.printing import note, print_table, say, say_json, with_interval
from locality.cli.warnings_as_lines import warnings_as_lines

if TYPE_CHECKING:
    from locality.runner.calibration import Calibration

OUT_HELP = (
    "Folder for calibration.json, rows.csv and the twins, which the same command reads instead of training them again."
)
TrainLimit = Annotated[int, typer.Option(help="Maximum number of images to train on, balanced over the classes.")]
Epochs = Annotated[
    int, typer.Option(help="Passes over the training images in each of up to six rounds; twins that learn it stop earlier.")
]
LearningRate = Annotated[
    float, typer.Option(help="Largest learning rate of AdamW in the first round; further ones double it.")
]
CueSize = Annotated[float, typer.Option(help="Side of the stickers, as a share of the image's short side.")]
Object = Annotated[
    Literal["box", "object"], typer.Option("--region", help="What stands for the object: its box, or its mask.")
]
ScoreNames = Annotated[str, typer.Option(help="Scores besides lift and F1, separated by commas.")]
FIRST_HIDDEN = ("object", "object ", "clean twin: cue", "sticker twin: cue", "object − cue")  # on a narrow terminal


@with_preprocessing
def calibrate(
    model: options.ModelName,
    data: options.DataName = None,
    methods: options.Methods = "SM,IG,BIG",
    scores: ScoreNames = "pointing_game,relevance_rank_accuracy,roc_auc",
    search: options.SearchName = "fast",
    region: Object = "box",
    limit: Annotated[int, typer.Option(help="Maximum number of images to measure, balanced over the classes.")] = 100,
    train_limit: TrainLimit = 400,
    epochs: Epochs = 3,
    learning_rate: LearningRate = 5e-4,
    cue_size: CueSize = 0.2,
    boxes: options.Boxes = None,
    data_option: options.DataOption = None,
    device: options.Device = None,
    seed: options.Seed = 0,
    points: options.PathPoints = "20",
    arch: options.Arch = None,
    num_classes: options.NumClasses = None,
    preprocessing: Any = None,
    download: options.Download = False,
    out: Annotated[Path | None, typer.Option(help=OUT_HELP)] = None,
    as_json: options.AsJson = False,
) -> None:
    """Plant stickers on your images, fine-tune a copy of the model that uses them and one that does not, and report which
    methods and scores tell the two apart. Model and data stay as they are.
    """
    options.check_folder(out)
    with warnings_as_lines():
        from locality.data.defaults import default_data
        from locality.progress import progress
        from locality.runner.calibrate import calibrate as calibrated
        from locality.runner.twins import check_outside, split_images
        from locality.zoo.catalog import model_cards

        if out is not None and model not in model_cards():
            check_outside(out, Path(model).expanduser(), "the model's folder, which stays as it is", "--out")
        network = options.loaded_model(model, arch, num_classes, device, download, preprocessing)
        name = data or default_data(network.spec)
        with progress(f"reading {name}") as report:
            report(0, None)
            given = options.source_options(boxes, data_option)
            images, train = split_images(name, limit, train_limit, seed, region, **given)
        result = calibrated(
            network,
            images,
            train,
            options.method_names(methods),
            options.method_names(scores),
            search,
            epochs,
            learning_rate=learning_rate,
            cue_size=cue_size,
            points=options.path_points(points),
            seed=seed,
            device=device,
            folder=out,
        )
    if out is not None:
        result.write(out)
    if as_json:
        say_json(result.to_json())
        return
    say(f"{model} on {images}; trained on {len(train):,} other images")
    say_preprocessing(network)
    _print(result)
    if out is not None:
        say(f"rows: {out / 'rows.csv'}; all numbers: {out / 'calibration.json'}")
    say(result.sentence)


def _print(result: Calibration) -> None:
    rows = []
    for name, one in result.summary.learned.items():
        shares = (one.without, one.sticker, one.swapped, one.changed)
        rows.append((f"{name} twin", *map(with_interval, shares), f"{one.chance:.3f}", "" if one.trained else "given model"))
    header = ["", "accuracy without stickers", "with them", "with another class's", "decided by them", "chance", "note"]
    print_table(header, rows, leave_out=["note", "chance"])
    table = result.table()
    shown = table[table["score"].isin(["lift", "reliance"])].drop(columns="score")
    print_table(list(shown.columns), [tuple(row) for row in shown.itertuples(index=False)], leave_out=FIRST_HIDDEN)
    note("lift, and the reliance of region tests, which use no attribution; 0 is chance; 95 % intervals over images")
    answers = table.pivot(index="score", columns="method", values=["finds cue", "finds object"])
    others = [
        (str(score), *(f"{row['finds cue', method]} / {row['finds object', method]}" for method in _methods(result)))
        for score, row in answers.reindex(list(result.scores)).iterrows()
    ]
    print_table(["finds cue / object", *_methods(result)], others)


def _methods(result: Calibration) -> list[str]:
    return [one.method for one in result.summary.findings if one.score == "lift"]
