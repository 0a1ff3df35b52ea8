"""The tables of docs/speed.md and docs/scaling.md, from stored results; `bench/documents.py` writes them."""

from __future__ import annotations

from stored import RESULTS, markdown, result

from locality.progress import duration_text


def boundary_table() -> str:
    """Every boundary bench: one row per model × search."""
    rows = []
    for path in sorted((RESULTS / "boundary").glob("*.json")):
        for search, row in result(f"boundary/{path.name}")["searches"].items():
            # A reference from an earlier run has no times.
            paper, seconds = row.get("times_faster_than_paper"), row.get("seconds_per_image")
            rows.append(
                (
                    f"[`{path.stem}`](bench/results/boundary/{path.name})",
                    search,
                    row["images"],
                    f"{row['success']:.0%}",
                    f"{row['mean']:.3f}",
                    f"{row['ratio']:.3f}",
                    f"{row['gradients']:.1f} + {row['forwards']:.1f}",
                    "" if seconds is None else f"{seconds:.3f}",
                    "" if paper is None else f"{paper:g} ×",
                )
            )
    titles = [
        "model",
        "search",
        "images",
        "found",
        "mean ℓ2",
        "ratio",
        "gradients + forwards",
        "s per image",
        "speed relative to `paper`",
    ]
    return markdown(titles, rows)


def held_out_table(folder: str, steps: int) -> str:
    """`fast` beside DDN on images, or networks, that it was not tuned on: one row per model."""
    rows = []
    for path in sorted((RESULTS / "boundary" / folder).glob("*.json")):
        searches = result(f"boundary/{folder}/{path.name}")["searches"]
        row, reference = searches["fast"], searches[f"DDN-{steps}"]
        both = [(d, r) for d, r in zip(row["distances"], reference["distances"], strict=True) if max(d, r) < float("inf")]
        hardest = max(d - r for d, r in both) / sum(r for _, r in both)
        success, work = f"{row['success']:.0%}", f"{row['gradients']:.1f} + {row['forwards']:.1f}"
        name = f"[`{path.stem}`](bench/results/boundary/{folder}/{path.name})"
        ratio = f"{row['ratio']:.3f}"
        if row.get("ratio_interval"):  # earlier results have none
            ratio += " ({:.3f} to {:.3f})".format(*row["ratio_interval"])
        rows.append((name, row["images"], success, f"{row['mean']:.3f}", ratio, f"{hardest:.3f}", work))
    titles = [
        "model",
        "images",
        "found",
        "mean ℓ2",
        f"ratio to DDN-{steps}",
        "share added by the hardest image",
        "gradients + forwards",
    ]
    return markdown(titles, rows)


def attribution_table() -> str:
    """SM, IG, BSM and BIG by `attribute_all` and by Captum."""
    rows = [
        (name, f"{row['seconds']:.1f}", f"{row['times_ours']:.2f} ×", f"{row['peak_mb']:,}", f"{row['more_mb']:,}")
        for name, row in result("attribution.json")["rows"].items()
    ]
    return markdown(["method", "s", "relative to ours", "peak MB", "MB above the loaded model"], rows)


def runner_table() -> str:
    """Images per second of the runner and of stock libraries, and the runner's overhead."""
    numbers = result("runner.json")
    cost = numbers["overhead"]
    rows = [
        ("bare calls, one process", f"{cost['bare_images_per_second']:.1f} images per second", ""),
        (
            "the same work as units",
            f"{cost['unit_images_per_second']:.1f} images per second",
            f"{cost['overhead_percent']:+.1f} % time",
        ),
    ]
    stock = numbers["stock libraries"]["images_per_second"]
    for name in ("local, 1 process", "local, 2 processes", "ray, 2 workers"):
        rate = numbers[name]["images_per_second"]
        rows.append((name, f"{rate:.1f} images per second", f"{rate / stock:.0f} × the stock loop"))
    rows.append(("a loop over stock Captum and Foolbox, paper search", f"{stock:.3g} images per second", ""))
    for name, row in numbers.items():
        if name.startswith("memory"):
            peaks = f"{row['worker_peak_mb']:,} MB in a worker, {row['writer_peak_mb']:,} MB in the writer"
            rows.append((f"peak {name}", peaks, ""))
    return markdown(["measurement", "result", "comparison"], rows)


def predicted_table() -> str:
    """The time that the dry run predicted for suites, and the time they took."""
    rows = []
    for name, row in result("scaling.json").get("predicted", {}).items():
        images = sorted(set(row["images"].values()))
        searched = "" if row["search"] == "none" else f" + `{row['search']}`"
        rows.append(
            (
                f"`{name}`",
                row["models"],
                " to ".join(f"{count:,}" for count in dict.fromkeys((images[0], images[-1]))),
                f"{' + '.join(row['methods'])}{searched}",
                row["processes"],
                f"{row['load_before']:g}",
                duration_text(row["calibration_seconds"]),
                duration_text(row["predicted_seconds"]),
                duration_text(row["measured_seconds"]),
                f"{100 * row['error']:+.0f} %",
            )
        )
    titles = ["suite", "models", "images per model", "methods", "processes", "load before", "calibration"]
    return markdown([*titles, "predicted", "measured", "difference"], rows)
