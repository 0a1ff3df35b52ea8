"""`locality explain`: one image, explained."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Any

import typer

from locality import __version__
from locality.cli import options
from locality.cli.preprocessing_options import say_preprocessing, with_preprocessing
from locality.cli.printing import print_table, say, say_json
from locality.cli.warnings_as_lines import warnings_as_lines
from locality.errors import ArgumentError


@with_preprocessing
def explain(
    image: Annotated[Path, typer.Argument(metavar="IMAGE", help="An image file: JPEG, PNG, WebP.")],
    model: options.ModelName,
    methods: options.Methods = "SM,IG,BIG",
    search: options.SearchName = "fast",
    to: options.To = None,
    out: Annotated[
        Path | None,
        typer.Option(help="The picture to write (.png, .pdf or .svg). Default: IMAGE_MODEL.png."),
    ] = None,
    device: options.Device = None,
    seed: options.Seed = 0,
    arch: options.Arch = None,
    num_classes: options.NumClasses = None,
    preprocessing: Any = None,
    download: options.Download = False,
    as_json: options.AsJson = False,
) -> None:
    """Explain one image: predicted classes, heat maps side by side, and the nearest image with another prediction."""
    if not image.is_file():
        raise ArgumentError("IMAGE", "an image file", str(image), f"that is {'a folder' if image.is_dir() else 'missing'}")
    if out is not None and out.suffix.lower() not in (".png", ".pdf", ".svg"):
        raise ArgumentError("--out", "a file that ends in .png, .pdf or .svg", str(out))
    options.check_file(out)
    with warnings_as_lines():
        from locality.report.explanation import explain_image
        from locality.zoo.preprocessing import model_preprocessing
        from locality.zoo.state_dict import weights_hash

        network = options.loaded_model(model, arch, num_classes, device, download, preprocessing)
        towards = options.class_number(to, network.spec)
        explanation = explain_image(network, image, options.method_names(methods), search=search, seed=seed, to=towards)
    path = out or Path(re.sub(r"[^\w.-]+", "_", f"{image.stem}_{network.spec.name}") + ".png")
    if as_json:
        about = {"weights_sha256": weights_hash(network), "preprocessing": model_preprocessing(network)}
        provenance = {"locality": __version__, **about, "methods": options.method_names(methods), "seed": seed}
        say_json({**explanation.to_json(), "n": 1, "file": str(explanation.save(path)), "provenance": provenance})
        return
    say_preprocessing(network)
    for sentence in explanation.sentences():
        say(sentence)
    print_table(["class", "probability"], [(name, f"{probability:.1%}") for name, probability in explanation.classes])
    say(str(explanation.save(path)))
