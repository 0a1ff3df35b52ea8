import numpy as np
import torch

from locality import Box, Sample, load_dataset
from locality.pictures import BOX_COLOUR
from locality.report.contact_sheet import CAPTION, GAP, TITLE, SheetRow, contact_sheet


def test_boxes_are_drawn_where_they_are() -> None:
    image = torch.full((3, 40, 40), 0.5)
    sample = Sample("a", image, 0, (Box(10, 20, 30, 40),), torch.zeros(1, 40, 40).bool())
    sheet = np.asarray(contact_sheet([SheetRow("title", [sample], ["thing"])], cell=80))
    tile = sheet[GAP + TITLE : GAP + TITLE + 80, GAP : GAP + 80]
    rows, columns = np.nonzero((tile == BOX_COLOUR).all(-1))
    assert (columns.min(), rows.min(), columns.max() + 1, rows.max() + 1) == (20, 40, 60, 80)
    assert (tile[5, 5] == 128).all()


def test_a_tiny_box_in_a_large_image_is_drawn() -> None:
    sample = Sample("a", torch.zeros(3, 800, 1000), 0, (Box(500, 400, 502, 402),), torch.zeros(1, 800, 1000).bool())
    sheet = np.asarray(contact_sheet([SheetRow("t", [sample], ["thing"])], cell=100))
    assert (sheet == BOX_COLOUR).all(-1).any()


def test_rows_wrap() -> None:
    data = load_dataset("shapes", count=10)
    samples = [data[index] for index in range(7)]
    sheet = contact_sheet([SheetRow("one", samples, data.classes), SheetRow("two", samples[:2])], cell=64, columns=3)
    assert sheet.width == 3 * (64 + GAP) + GAP
    assert sheet.height == GAP + 2 * (TITLE + GAP) + 4 * (64 + CAPTION + GAP)


def test_a_label_the_model_does_not_know_is_captioned_by_its_id() -> None:
    sample = Sample("my image", torch.zeros(3, 8, 8), -1, (), torch.zeros(1, 8, 8).bool())
    assert contact_sheet([SheetRow("t", [sample], ["a", "b"])]).size[0] > 0
