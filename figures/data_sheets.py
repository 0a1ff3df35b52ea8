"""Draw contact sheets of the data that ship with locality: shapes with their planted cue, and photos, both with boxes."""

from __future__ import annotations

import argparse
from pathlib import Path

from locality import load_dataset
from locality.report.contact_sheet import SheetRow, contact_sheet

# WordNet id of `photos` ↦ caption.
WORDS = {
    "n04266014": "space shuttle",
    "n04485082": "tripod",
    "n02123045": "cat",
    "n07920052": "espresso, cup",
    "n03785016": "motorcycle",
    "n03773504": "rocket",
    "n03763968": "uniform",
}


def shapes_sheet(path: Path) -> None:
    """The ten shapes three times: with the cue, with a cue ten times as strong, and without."""
    rows = []
    for title, options in (
        ("shapes, as models see them: a class-specific pattern of ±4/255 outside the box", {}),
        ("the same with the pattern ten times as strong", {"cue_levels": 40}),
        ("the same without it (shapes:none)", {"cue": "none"}),
    ):
        data = load_dataset("shapes", count=10, **options)
        rows.append(SheetRow(title, [data[index] for index in range(10)], data.classes))
    contact_sheet(rows, cell=128).save(path)


def photos_sheet(path: Path) -> None:
    """All photographs with the boxes drawn on them."""
    data = load_dataset("photos", max_box_share=None)
    samples = [data[index] for index in range(len(data))]
    captions = [WORDS[data.classes[sample.label]] for sample in samples]
    row = SheetRow("photos, from scikit-image and matplotlib, with the boxes drawn for locality", samples, captions=captions)
    contact_sheet([row], cell=264, columns=4).save(path)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("demo"), help="folder for the pictures")
    folder = parser.parse_args().out
    folder.mkdir(parents=True, exist_ok=True)
    shapes_sheet(folder / "shapes.png")
    photos_sheet(folder / "photos.png")
    print(f"Ten shapes with their boxes and the planted cue, unchanged, amplified and absent: {folder / 'shapes.png'}")
    print(f"Photographs with their boxes: {folder / 'photos.png'}")
