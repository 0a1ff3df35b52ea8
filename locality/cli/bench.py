"""`locality bench`: run a suite, or print what it would cost."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, NoReturn

import typer

from locality.cli import completion, options
from locality.cli.printing import note, print_table, say, say_json
from locality.cli.warnings_as_lines import warnings_as_lines
from locality.data.kinds import sources_text
from locality.progress import duration_text

if TYPE_CHECKING:
    import pandas as pd

    from locality.runner.dry_run import Cost, Estimate
    from locality.runner.plan import Plan
    from locality.runner.run import Machine, Outcome
    from locality.runner.suite_file import SuiteError

SHOWN_FAULTS = 20
SHOWN_IDS = 3  # of one fault


def bench(
    suite: Annotated[
        str,
        typer.Argument(
            metavar="SUITE",
            help="A TOML file, or demo, tiny, imagenet, cifar, pets, pets_outlines, similarity, regions, curvature, "
            "certified, zoo, paper.",
            autocompletion=completion.suites,
        ),
    ],
    out: Annotated[
        Path | None, typer.Option(help="Folder for the results; an interrupted run resumes there (default: results/SUITE).")
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print the units, evaluations and estimated time, then stop.")
    ] = False,
    engine: Annotated[
        Literal["local", "ray"], typer.Option(help="local: the cores or devices of this machine; ray: a Ray cluster.")
    ] = "local",
    address: Annotated[
        str | None,
        typer.Option(help="Address of a Ray cluster that you trust. By default, one is started here."),
    ] = None,
    processes: Annotated[
        int | None, typer.Option(help="Number of units at the same time. By default, one per core or device.")
    ] = None,
    threads: Annotated[
        int, typer.Option(help="Threads per unit. Results with another number of threads differ by rounding.")
    ] = 1,
    gpus: Annotated[float, typer.Option(help="GPUs per unit on Ray; 0.5 lets two units share one.")] = 0.0,
    device: Annotated[
        str | None,
        typer.Option(help="Devices, separated by commas, such as cuda:0,cuda:1. By default, all CUDA devices."),
    ] = None,
    unit_minutes: Annotated[
        float, typer.Option(help="Minutes after which a unit is stopped and listed as a fault; not with --processes 0.")
    ] = 360.0,
    data: Annotated[
        str | None,
        typer.Option(help=f"Images to use instead of the suite's: {sources_text()}.", autocompletion=completion.data),
    ] = None,
    boxes: options.Boxes = None,
    limit: Annotated[int | None, typer.Option(help="Maximum number of images, for a quick run.")] = None,
    download: options.Download = False,
    trust_first_download: options.TrustFirstDownload = False,
    no_code: Annotated[
        bool, typer.Option("--no-code", help="Refuse models and architectures of the form package.module:function.")
    ] = False,
    as_json: options.AsJson = False,
) -> None:
    """Run a suite: models × methods × images to tables. An interrupted run resumes where it stopped."""
    with warnings_as_lines():
        from locality.progress import progress
        from locality.runner.no_code import without_code
        from locality.runner.plan import make_plan
        from locality.runner.run import machine_here, run_suite
        from locality.runner.suite_file import SuiteError, draft_suite, with_images

        machine = machine_here(engine, processes, threads, device, address, gpus, unit_minutes)
        try:
            draft = with_images(draft_suite(suite, download, trust_first_download), data, boxes, limit)
            draft = without_code(draft) if no_code else draft
            folder = out or Path("results") / draft.suite.name
            if not dry_run and not draft.problems:
                options.check_folder(folder)
            with progress("opening models", "models") as report:
                plan = make_plan(draft.suite, draft.problems, machine.device, download, report, trust_first_download)
        except SuiteError as error:
            _refuse(error)
        if not as_json:
            _print_preprocessing(plan)
        if dry_run:
            _print_estimate(plan, machine, folder, as_json)
            return
        try:
            with progress(plan.suite.name, "images") as report:
                outcome = run_suite(plan, folder, machine, report)
        except KeyboardInterrupt:
            say("Interrupted. Finished units are saved; run the same command to resume.", error=True)
            raise typer.Exit(130) from None
    _print_outcome(outcome, plan, as_json)
    if len(outcome.faults):
        raise typer.Exit(1)


def _print_preprocessing(plan: Plan) -> None:
    """How images are prepared: one line for all models that agree."""
    names: dict[str, list[str]] = {}
    for model in plan.models:
        names.setdefault(model.preprocessing, []).append(model.name)
    for line, models in names.items():
        whose = f" of {', '.join(models)}" if len(names) > 1 else ""
        say(f"preprocessing{whose}: {line}")


def _refuse(error: SuiteError) -> NoReturn:
    say(f"locality: `{error.name}` cannot run:", error=True)
    for problem in error.problems:
        say(f"  - {problem}", error=True)
    raise typer.Exit(2)


def _print_outcome(outcome: Outcome, plan: Plan, as_json: bool) -> None:
    new = outcome.units - outcome.kept
    if as_json:
        say_json(outcome.to_json(plan))
    else:
        units = "1 unit" if outcome.units == 1 else f"{outcome.units:,} units"
        say(f"{units}: {outcome.kept:,} kept, {new:,} measured in {duration_text(outcome.seconds)}")
    if outcome.outdated.units:
        count = outcome.outdated.units
        units = "1 unit of the last run was" if count == 1 else f"{count:,} units of the last run were"
        text = f"{units} measured again; changed since then: {', '.join(outcome.outdated.changes)}"
        say(text, error=as_json)
    for warning in outcome.notes:
        say(f"locality: warning: {warning}", error=True)
    if len(outcome.faults):
        _print_faults(outcome.faults)
    if not as_json:
        say(f"results: {outcome.folder} (`locality table {outcome.folder}`)")


def _print_faults(faults: pd.DataFrame) -> None:
    count = "1 unit has" if len(faults) == 1 else f"{len(faults):,} units have"
    say(f"{count} images that could not be measured; the next run will try again:", error=True)
    for row in faults.head(SHOWN_FAULTS).to_dict("records"):
        say(f"  - {row['model']}, {row['unit']}: {_some_ids(row['image_ids'])}: {row['problem']}", error=True)
    if len(faults) > SHOWN_FAULTS:
        say(f"  and {len(faults) - SHOWN_FAULTS:,} more", error=True)


def _some_ids(ids: str) -> str:
    """The first few of them: a unit has up to 64.

    >>> _some_ids("a, b, c, d, e"), _some_ids("a, b, c")
    ('a, b, c and 2 more', 'a, b, c')
    """
    split = ids.split(", ")
    more = len(split) - SHOWN_IDS
    return ids if more <= 0 else f"{', '.join(split[:SHOWN_IDS])} and {more} more"


def _print_estimate(plan: Plan, machine: Machine, folder: Path, as_json: bool) -> None:
    from locality.progress import progress
    from locality.runner.dry_run import estimate
    from locality.runner.store import Store

    store = Store(folder)
    left = store.missing(plan)
    if not left and not as_json:
        count = len(plan.units)
        say(f"{'the 1 unit is' if count == 1 else f'all {count:,} units are'} finished: {folder}")
        return
    with progress("calibrating", "models and parts") as report:
        cost = estimate(plan, machine, left, progress=report)
    if as_json:
        say_json(cost.to_json())
    else:
        _print_parts(cost)
        _print_methods(cost)
        _print_models(plan, cost)
        known = f"{'at least' if cost.failed else 'about'} {duration_text(cost.seconds)}" if cost.seconds else "unknown"
        processes = "1 process" if cost.processes == 1 else f"{cost.processes} processes"
        threads = "1 thread" if machine.threads == 1 else f"{machine.threads} threads"
        say(f"time here: {known} with {processes} of {threads} each (calibrated in {duration_text(cost.calibration)})")
        if any(not speed.images for speed in cost.speeds.values()):
            note("~ typical numbers of evaluations: a single image takes too long to calibrate, or cannot be measured")
    for (model, part), reason in cost.failed.items():
        say(f"locality: warning: {model}, {part} cannot be calibrated and its time is not included: {reason}", error=True)
    if cost.failed:
        raise typer.Exit(1)


def _print_parts(cost: Estimate) -> None:
    rows = []
    for part in cost.parts():
        sign = "~" if part.nominal else ""
        per_image = [f"{sign}{value / max(1, part.images):,.1f}" for value in (part.gradients, part.forwards)]
        counts = [f"{count:,}" for count in (part.units, part.kept, part.images)]
        rows.append((part.name, *counts, *per_image, f"{part.gradients:,.0f}", _seconds(part)))
    header = [
        "part",
        "units",
        "kept",
        "images left",
        "gradients/image",
        "forwards/image",
        "gradients",
        "time of one process",
    ]
    print_table(header, rows, leave_out=["kept", "forwards/image", "gradients/image"])


def _print_methods(cost: Estimate) -> None:
    """Gradients of each method by itself, and how many they save by sharing those at the image and at the boundary."""
    images, gradients, shared = cost.method_gradients()
    if not images:
        return
    rows = [(name, f"{count:g}", f"{count * images:,.0f}") for name, count in gradients.items()]
    if shared:
        rows.append(("shared", f"−{shared:g}", f"−{shared * images:,.0f}"))
    print_table(["method", "gradients/image", "gradients"], rows)


def _print_models(plan: Plan, cost: Estimate) -> None:
    data = {model.name: model.data for model in plan.models}
    rows = [
        (own.name, data[own.name], f"{plan.images(own.name):,}", f"{own.gradients:,.0f}", _seconds(own))
        for own in cost.models()
    ]
    print_table(["model", "data", "images", "gradients", "time of one process"], rows, leave_out=["gradients", "images"])


def _seconds(cost: Cost) -> str:
    """Time of one process; "unknown" if nothing could be calibrated."""
    return "unknown" if cost.seconds is None else f"{'more than ' if cost.more else ''}{duration_text(cost.seconds)}"
