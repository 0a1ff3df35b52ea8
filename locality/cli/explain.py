"""`locality explain`: why a model says what it says about one image."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated

import typer

from locality.cli import options
from locality.cli.printing import print_table, say
from locality.cli.warnings_as_lines import warnings_as_lines


def explain(
    image: Annotated[Path, typer.Argument(metavar="IMAGE", help="A photograph: JPEG, PNG, WebP …")],
    model: options.ModelName,
    methods: options.Methods = "SM,IG,BIG",
    search: options.SearchName = "fast",
    out: Annotated[
        Path | None, typer.Option(help="The picture to write: .png, .pdf or .svg; by default IMAGE_MODEL.png, here.")
    ] = None,
    device: options.Device = None,
    seed: options.Seed = 0,
    arch: options.Arch = None,
    num_classes: options.NumClasses = None,
    download: options.Download = False,
) -> None:
    """Explain one image: predicted classes, heat maps side by side, and the nearest image with another prediction."""
    if not image.is_file():
        raise ValueError(
            f"`IMAGE` must be an image file, got {image}, which is {'a folder' if image.is_dir() else 'missing'}"
        )
    if out is not None and out.suffix.lower() not in (".png", ".pdf", ".svg"):
        raise ValueError(f"`--out` must end in .png, .pdf or .svg, got {out}")
    options.check_file(out)
    with warnings_as_lines():
        from locality.report.explanation import explain_image

        network = options.loaded_model(model, arch, num_classes, device, download)
        found = explain_image(network, image, options.method_names(methods), search=search, seed=seed)
    for sentence in found.sentences():
        say(sentence)
    print_table(["class", "probability"], [(name, f"{chance:.1%}") for name, chance in found.classes])
    place = out or Path(re.sub(r"[^\w.-]+", "_", f"{image.stem}_{network.spec.name}") + ".png")
    say(str(found.save(place)))
