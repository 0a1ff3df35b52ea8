"""What a notebook displays: short texts, and small pictures with boxes."""

import base64
import io
import re

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image

from locality import load_dataset
from locality.pictures import BOX_COLOUR, SIDE, pictures_html
from locality.types import Box, Sample


def pictures(html: str) -> list[NDArray[np.uint8]]:
    found = re.findall(r'src="data:image/png;base64,([^"]+)"', html)
    return [np.asarray(Image.open(io.BytesIO(base64.b64decode(text)))) for text in found]


def test_a_sample_is_one_line_and_a_picture_with_its_box() -> None:
    sample = Sample("<b>", torch.zeros(3, 56, 56), 3, (Box(28, 0, 56, 28),), torch.zeros(1, 56, 56, dtype=torch.bool))
    assert repr(sample) == "<Sample <b>: label 3, 3×56×56, 1 box>"
    html = sample._repr_html_()
    assert "<b>" not in html
    [picture] = pictures(html)
    assert picture.shape == (SIDE, SIDE, 3)
    rows, columns = np.nonzero((picture == BOX_COLOUR).all(-1))
    assert (rows.min(), rows.max(), columns.min(), columns.max()) == (0, SIDE // 2 - 1, SIDE // 2, SIDE - 1)


def test_batches_and_data_sets_show_their_first_images() -> None:
    data = load_dataset("shapes", limit=20, count=40)
    batch = data.batch(range(8))
    assert repr(batch) == "<Batch of 8 images 3×64×64, 8 boxes>"
    assert repr(data).startswith("<ImageDataset shapes: 20 images of 10 classes, 2 each")
    for html in (batch._repr_html_(), data._repr_html_()):
        assert len(pictures(html)) == 6
        assert len(html) < 300_000
    assert np.array_equal(pictures(batch._repr_html_())[1], pictures(data[1]._repr_html_())[0])


def test_names_are_escaped() -> None:
    html = pictures_html("<i>", [(torch.zeros(3, 2, 2), (), '"><script>')])
    assert "<i>" not in html
    assert "<script>" not in html
