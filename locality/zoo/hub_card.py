"""A model card in the format of the Hugging Face Hub: YAML between two lines of dashes, then Markdown."""

from __future__ import annotations

import json
from typing import Any

from locality.zoo.model_card import ModelCard

# Identifiers on the Hub, where a data set has one.
HUB_DATA = {"imagenet": "ILSVRC/imagenet-1k", "tiny-imagenet": "zh-plus/tiny-imagenet", "cifar10": "uoft-cs/cifar10"}
LICENCES = {"Apache-2.0": "apache-2.0", "MIT": "mit", "BSD-3-Clause": "bsd-3-clause"}


def hub_card(card: ModelCard) -> str:
    """The `README.md` of a repository with the model: what is known of it, and nothing else.

    >>> from locality.zoo.catalog import find_card
    >>> print(hub_card(find_card("vit_b16_robust")).splitlines()[1])
    license: "apache-2.0"
    """
    # Values in JSON are YAML, too, and no text in them can become another value.
    header = [f"{key}: {json.dumps(value, ensure_ascii=False)}" for key, value in _metadata(card).items()]
    return "\n".join(["---", *header, "---", "", *_body(card)]) + "\n"


def _metadata(card: ModelCard) -> dict[str, Any]:
    known = LICENCES.get(card.licence)
    licence = {"license": known} if known else {"license": "other", "license_name": card.licence or "unknown"}
    data = HUB_DATA.get(card.data)
    metadata: dict[str, Any] = {**licence, "library_name": "locality", "pipeline_tag": "image-classification"}
    metadata["tags"] = ["image-classification", "locality", card.kind]
    if data is not None:
        metadata["datasets"] = [data]
    if card.accuracy:
        metadata["metrics"] = ["accuracy"]
        metadata["model-index"] = [{"name": card.name, "results": _results(card, data)}]
    return metadata


def _results(card: ModelCard, data: str | None) -> list[dict[str, Any]]:
    """One result per measurement: unperturbed images, attacks, variants of the data."""
    task = {"type": "image-classification"}
    return [
        {
            "task": task,
            "dataset": {"name": f"{card.data}{'' if name == 'clean' else f', {name}'}", "type": data or card.data},
            "metrics": [{"type": "accuracy", "value": share, "name": f"accuracy, {name}"}],
        }
        for name, share in card.accuracy.items()
    ]


def _body(card: ModelCard) -> list[str]:
    spec = card.spec
    height, width = spec.input_size
    facts = {
        "architecture": f"`{card.architecture or 'not stated'}`, {card.parameters:,} parameters",
        "trained on": card.data,
        "training": card.trained,
        "classes": f"{len(spec.classes)}" if spec.classes else f"those of {card.data}",
        "images": f"{spec.interpolation} resize of the short side to {spec.resize}, crop of {height}×{width}",
        "mean, standard deviation": f"{spec.mean}, {spec.std} (applied inside the model)",
        "weights": _checksum(card),
        "paper": card.paper,
        "licence": card.licence,
        "note": card.note.replace("NAME", card.name),
    }
    lines = [f"# {card.name}", "", "| | |", "|---|---|"]
    lines += [f"| {title} | {_cell(text)} |" for title, text in facts.items() if text]
    if card.accuracy:
        lines += ["", "## Accuracy", "", "| measured on | share of images |", "|---|---|"]
        lines += [f"| {_cell(name)} | {share:.2%} |" for name, share in card.accuracy.items()]
    if card.run is not None:
        recipe = json.dumps(card.run.recipe, indent=2, ensure_ascii=False)
        versions = ", ".join(f"{name} {version}" for name, version in card.run.versions.items())
        lines += ["", "## Training", "", f"Seed {card.run.seed}, {card.run.minutes:g} minutes; {versions}. The recipe:"]
        lines += ["", "```json", recipe, "```"]
    code = f'import locality\n\nmodel = locality.load_model("{card.name}")  # pixels in [0, 1] to logits'
    return [*lines, "", "## Use", "", "```python", code, "```"]


def _checksum(card: ModelCard) -> str:
    checksum = getattr(card.weights, "checksum", None)
    return f"`{checksum}`" if checksum else ""


def _cell(text: str) -> str:
    """The text in a cell of a table: on one line, and without a bar."""
    return " ".join(text.split()).replace("|", "\\|")
