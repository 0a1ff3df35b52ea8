"""Write the tables of docs/ and CONTRIBUTING.md from bench/results and the cards of the shipped models.

    python bench/documents.py

Each table is between `<!-- NAME -->` and `<!-- end -->`. A test checks that the documents are up to date.
`DOCUMENTS` says which tables a page has; most are made by the page's own module, such as certified_tables.py.
"""

from __future__ import annotations

import csv
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))  # for tests, which load this file by its path

import certified_tables
import speed_tables
import training_tables
from certified_tables import certified_table
from stored import RESULTS, ROOT, markdown, result
from suite_tables import faithfulness_of, reported, said, said_of, trends

from locality.zoo.catalog import shipped_cards


def models_table() -> str:
    """The shipped models: the accuracies of their cards, and the measurements of bench/zoo.py."""
    measured = {row["model"]: row for row in csv.DictReader((RESULTS / "zoo.csv").read_text(encoding="utf-8").splitlines())}
    rows = []
    for name, card in sorted(shipped_cards().items()):
        attacked = next(one for one in card.attacked if one.attack == "pgd10" and one.threat.norm == "linf")
        under = f"{100 * attacked.share:.1f} % at {attacked.threat.radius_text}"
        certified = [f"{100 * share:.1f} %" for key, share in card.accuracy.items() if key.startswith("certified")]
        clean = f"{100 * card.accuracy['clean']:.1f} %"
        row = measured.get(name)  # None for models that are newer than the measurement
        era = ["", ""] if row is None else [f"{100 * float(row[f'era_linf_{levels}_255']):.1f} %" for levels in (4, 8)]
        distance = "" if row is None else f"{float(row['distance']):.2f}"
        rows.append((f"`{name}`", card.data, card.trained, clean, "".join(certified), under, *era, distance))
    titles = ["name", "data", "training", "clean", "certified", "under PGD-10", "ERA 4/255", "ERA 8/255", "distance"]
    return markdown(titles, rows)


def coverage_table() -> str:
    """How often 95 % intervals contain the true value, by kind of number and number of images."""
    numbers = result("coverage.json")
    sizes = list(next(iter(numbers["coverage"].values())))
    rows = [
        (kind, *(f"{row[size]['mean']:.1%} ({row[size]['lowest']:.0%} to {row[size]['highest']:.0%})" for size in sizes))
        for kind, row in numbers["coverage"].items()
    ]
    return markdown(["mean of", *(f"{size} images" for size in sizes)], rows)


def walk() -> str:
    """The files that `locality eval` passes; in a process of its own, where nothing is imported yet."""
    command = [sys.executable, str(ROOT / "bench/walk.py"), "eval", "--model", "shapes_cnn", "--limit", "8"]
    return subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT).stdout.strip()


DOCUMENTS: dict[str, dict[str, Callable[[], str]]] = {
    "docs/speed.md": {
        "boundary": speed_tables.boundary_table,
        "held_out": partial(speed_tables.held_out_table, "held_out", 400),
        "other_networks": partial(speed_tables.held_out_table, "other_networks", 300),
        "attribution": speed_tables.attribution_table,
        "runner": speed_tables.runner_table,
    },
    "docs/models.md": {"models": models_table},
    "docs/reproduction.md": {
        "imagenet_said": said("imagenet"),
        "imagenet_locality": reported("locality", "imagenet"),
        "imagenet_trends": trends("imagenet"),
        "imagenet_regions": reported("regions", "imagenet"),
        "imagenet_searches": reported("searches", "imagenet"),
        "imagenet_faithfulness": faithfulness_of("imagenet", ("squeezenet1_0", "efficientnet_lite2")),
        "cifar_similarity": reported("similarity", "cifar"),
        "cifar_robust": reported("robust", "cifar"),
        "cifar_searches": reported("searches", "cifar"),
        "pets_overview": reported("overview", "pets"),
        "pets_boxes": reported("pairs", "pets"),
        "pets_outlines": reported("pairs", "pets_outlines"),
        "pets_regions": reported("regions", "pets_outlines"),
        "said": said("tiny"),
        "overview": reported("overview", "tiny"),
        "pairs": reported("pairs", "tiny"),
        "shapes_pairs": reported("pairs", "zoo", "shapes"),
        "regions": reported("regions", "regions"),
        "regions_tiny": said_of("regions", "eliance", "tiny-imagenet"),
        "regions_shapes": said_of("regions", "eliance", "shapes"),
        "similarity": reported("similarity", "similarity"),
        "searches": reported("searches", "tiny"),
        "faithfulness": faithfulness_of("tiny", ("tiny_resnet", "tiny_resnet_robust")),
    },
    "docs/curvature.md": {"curvature": reported("curvature", "curvature")},
    "docs/training_study.md": {
        "training": training_tables.training_table,
        "associations": training_tables.association_table,
        "overfitting": training_tables.overfitting_table,
        "followers": training_tables.follower_table,
        **{sweep: training_tables.sweep_table(sweep) for sweep in ("trh_at", "trh_trades", "rat_labels", "smoothing")},
    },
    "docs/certified.md": {
        "certified study": certified_tables.certified_study,
        "certified claims": certified_table(certified_tables.claim_rows, "certified_study.json"),
        "certified threats": certified_table(certified_tables.threat_rows, "certified_study.json"),
        "certified settings": certified_table(certified_tables.settings_rows, "certified_settings.json"),
        "certified dose": certified_table(certified_tables.dose_rows, "certified_dose.json"),
        "certified attacks": certified_table(certified_tables.attack_rows, "certified_attacks.json"),
        "certified verdicts": certified_tables.certified_verdicts,
        "certified models": certified_table(certified_tables.model_rows, "certified_locality/verdicts.json"),
    },
    "docs/scores.md": {"coverage": coverage_table},
    "docs/scaling.md": {"predicted": speed_tables.predicted_table},
    "CONTRIBUTING.md": {"walk": walk},
}


def written(text: str, tables: dict[str, Callable[[], str]], folders: int = 0) -> str:
    """The document with up-to-date tables; links lead up from a document that is some folders below the root."""
    for name, table in tables.items():
        start, marked, rest = text.partition(f"<!-- {name} -->\n")
        _, ended, end = rest.partition("<!-- end -->")
        if not marked or not ended:
            raise ValueError(f"the document must mark the table {name}: <!-- {name} --> … <!-- end -->")
        content = table().replace("](bench/", f"]({'../' * folders}bench/")
        text = f"{start}{marked}{content}\n{ended}{end}"
    return text


def updated(document: str) -> str:
    """The text of a document with up-to-date tables."""
    return written((ROOT / document).read_text(encoding="utf-8"), DOCUMENTS[document], document.count("/"))


if __name__ == "__main__":
    for document in DOCUMENTS:
        (ROOT / document).write_text(updated(document), encoding="utf-8")
