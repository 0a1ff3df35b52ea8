from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from locality.data.manifest import Entry, Manifest
from locality.data.manifest_csv import read_manifest, write_manifest
from locality.errors import DataError

WriteCsv = Callable[..., Path]


def test_rows_of_one_id_are_one_image(write_csv: WriteCsv) -> None:
    second = {"id": "b", "path": "b.png", "label": 1, "wnid": "n02279972 n02279973"}
    path = write_csv({}, second, {"x0": 0, "x1": 1.5})
    manifest, faults = read_manifest(path)
    assert faults == []
    assert manifest.images["id"].tolist() == ["a", "b"]
    assert manifest.boxes(0).tolist() == [[2, 1, 12, 9], [0, 1, 1.5, 9]]
    assert manifest.boxes(1).tolist() == [[2, 1, 12, 9]]
    assert manifest.classes() == ("n01443537", "n02279972")
    assert manifest.images["row"].tolist() == [2, 3]


@settings(max_examples=30, deadline=None)
@given(counts=st.lists(st.integers(1, 3), min_size=1, max_size=8), seed=st.integers(0, 99))
def test_what_is_written_is_read_back(tmp_path_factory: pytest.TempPathFactory, counts: list[int], seed: int) -> None:
    generator = np.random.default_rng(seed)
    corners = generator.uniform(0, 50, (sum(counts), 4))
    corners[:, 2:] = corners[:, :2] + generator.uniform(0.01, 49, (sum(counts), 2))
    number = len(counts)
    starts = np.concatenate([[0], np.cumsum(counts)])
    entries = [
        Entry(f'image, "{i}"', f"folder/ünï {i}.png", i, f"n{i:08d}", 100, 100, corners[starts[i] : starts[i + 1]])
        for i in range(number)
    ]
    manifest = Manifest.of(entries, source="test", licence="CC0")
    path = tmp_path_factory.mktemp("manifest") / "m.csv"
    write_manifest(path, manifest)
    found, faults = read_manifest(path)
    assert faults == []
    assert np.array_equal(found.corners, manifest.corners)
    assert np.array_equal(found.first, manifest.first)
    columns = ["id", "path", "label", "wnid", "width", "height", "source", "licence"]
    assert found.images[columns].equals(manifest.images[columns])
    assert not path.with_name("m.csv.part").exists()


@pytest.mark.parametrize(
    ("row", "kind", "word"),
    [
        ({"x1": 21}, "bad box", "leaves the image of 20 × 10"),
        ({"x0": -1}, "bad box", "leaves the image"),
        ({"x1": 2}, "bad box", "empty"),
        ({"x0": 12, "x1": 2}, "bad box", "swapped corners"),
        ({"y0": 9, "y1": 1}, "bad box", "swapped corners"),
        ({"x0": "nan"}, "bad box", "not a number"),
        ({"x0": "wide"}, "bad box", "not a number"),
        ({"y1": "inf"}, "bad box", "not a number"),
        ({"label": ""}, "unknown label", "`label`"),
        ({"label": "cat"}, "unknown label", "'cat'"),
        ({"label": -1}, "unknown label", "whole number"),
        ({"label": 1.5}, "unknown label", "whole number"),
        ({"label": 99999999999}, "unknown label", "whole number"),
        ({"wnid": ""}, "unknown label", "`wnid`"),
        ({"wnid": "n00000009"}, "unknown label", "but n01443537 before"),
        ({"width": 0}, "bad size", "`width`"),
        ({"height": "tall"}, "bad size", "`height`"),
        ({"id": ""}, "bad row", "`id`"),
        ({"path": "../secret.png"}, "unsafe path", "outside the data's folder"),
        ({"path": "a/../../b.png"}, "unsafe path", "outside"),
        ({"path": "/etc/passwd"}, "unsafe path", "outside"),
        ({"path": "C:\\b.png"}, "unsafe path", "outside"),
        ({"path": "\\\\host\\b.png"}, "unsafe path", "outside"),
        ("b,c,d", "bad row", "13 fields, got 3"),
        ({"width": 20_000}, "bad size", "photograph"),
        ({"label": 5}, "unknown label", "`wnid` n01443537 has the label 5 here, but 0 before"),
    ],
)
def test_a_bad_row_is_named_and_only_its_image_lost(write_csv: WriteCsv, row: object, kind: str, word: str) -> None:
    bad = row if isinstance(row, str) else {"id": "b"} | row  # type: ignore[operator]
    path = write_csv({}, {"id": "c"}, bad, {"id": "d"})
    manifest, faults = read_manifest(path)
    assert [(fault.row, fault.kind) for fault in faults] == [(4, kind)]
    assert word in str(faults[0])
    assert str(faults[0]).startswith(f"{path}, row 4: ")
    assert manifest.images["id"].tolist() == ["a", "c", "d"]
    assert len(manifest.corners) == 3


def test_names_with_dots_are_no_climbers(write_csv: WriteCsv) -> None:
    manifest, faults = read_manifest(write_csv({"path": "a..b/..c/d...png"}))
    assert faults == []
    assert len(manifest) == 1


@pytest.mark.parametrize("column", ["path", "label", "width", "sha256"])
def test_a_duplicate_id_is_found(write_csv: WriteCsv, column: str) -> None:
    other = {"path": "b.png", "label": 0, "width": 30, "sha256": "ff"}[column]
    path = write_csv({"label": 1}, {"label": 1} | {column: other})
    manifest, faults = read_manifest(path)
    assert [(fault.row, fault.kind) for fault in faults] == [(3, "duplicate id")]
    assert len(manifest) == 0


def test_one_bad_box_takes_its_whole_image_out(write_csv: WriteCsv) -> None:
    # The other box alone would be a wrong mask.
    manifest, faults = read_manifest(write_csv({}, {"id": "b"}, {"x1": 99}))
    assert manifest.images["id"].tolist() == ["b"]
    assert len(faults) == 1


def test_a_short_row_takes_its_whole_image_out(write_csv: WriteCsv) -> None:
    manifest, faults = read_manifest(write_csv({}, {"id": "b"}, "a,a.png,,0,n01443537,1,1,2,2,20,10,test"))
    assert manifest.images["id"].tolist() == ["b"]
    assert [fault.image for fault in faults] == ["a"]


def test_empty_lines_and_capital_hashes_are_no_faults(write_csv: WriteCsv) -> None:
    manifest, faults = read_manifest(write_csv({"sha256": "AB" * 32}, "", {"id": "b"}, "", ""))
    assert faults == []
    assert manifest.images["row"].tolist() == [2, 4]
    assert manifest.images["sha256"][0] == "ab" * 32


def test_too_many_boxes_are_a_fault_not_a_memory_hog(write_csv: WriteCsv) -> None:
    manifest, faults = read_manifest(write_csv(*({"x0": n / 1000} for n in range(1001)), {"id": "b"}))
    assert ["1,001 boxes" in str(fault) for fault in faults] == [True]
    assert manifest.images["id"].tolist() == ["b"]


def test_a_byte_order_mark_and_another_order_of_columns_are_read(tmp_path: Path) -> None:
    path = tmp_path / "bom.csv"
    header = "licence,id,path,sha256,label,wnid,x0,y0,x1,y1,width,height,source"
    path.write_bytes(b"\xef\xbb\xbf" + f"{header}\r\nCC0,a,a.png,,0,n01443537,2,1,12,9,20,10,test\r\n".encode())
    manifest, faults = read_manifest(path)
    assert faults == []
    assert manifest.images["licence"].tolist() == ["CC0"]


@pytest.mark.parametrize(
    ("header", "word"),
    [
        ("id,path,sha256,wnid,x0,y0,x1,y1,width,height,source", "row 1: missing column label, licence"),
        ("id,path,sha256,label,wnid,x0,y0,x1,y1,width,height,source,licence,note", "unexpected column 'note'"),
        ("id,path,sha256,label,wnid,x0,y0,x1,y1,width,height,source,licence,id", "twice"),
    ],
)
def test_missing_and_extra_columns_are_named(write_csv: WriteCsv, header: str, word: str) -> None:
    with pytest.raises(DataError, match=word):
        read_manifest(write_csv({}, header=header))


def test_files_that_are_no_manifest(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="is a folder"):
        read_manifest(tmp_path)
    with pytest.raises(DataError, match="does not exist"):
        read_manifest(tmp_path / "no.csv")
    for content, word in [(b"", "empty"), (b"\xff\xfe\x00\x01", "UTF-8"), (b"PK\x03\x04", "missing column")]:
        (tmp_path / "x.csv").write_bytes(content)
        with pytest.raises(DataError, match=word):
            read_manifest(tmp_path / "x.csv")


def test_an_unclosed_quote_is_named(write_csv: WriteCsv) -> None:
    with pytest.raises(DataError, match="row 3: not a CSV"):
        read_manifest(write_csv({}, '"b,b.png'))


def test_a_manifest_without_rows_is_empty(write_csv: WriteCsv) -> None:
    manifest, faults = read_manifest(write_csv())
    assert (len(manifest), faults) == (0, [])


def test_blocks_do_not_show(write_csv: WriteCsv, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [{"id": f"i{n // 2}", "x0": n % 2, "x1": 5 if n != 7 else 99} for n in range(40)]
    path = write_csv(*rows)
    whole, faults = read_manifest(path)
    monkeypatch.setattr("locality.data.manifest_csv.BLOCK", 3)
    pieces, piece_faults = read_manifest(path)
    assert faults == piece_faults
    assert np.array_equal(whole.corners, pieces.corners)
    assert whole.images.equals(pieces.images)
    assert len(whole) == 19


def test_take_keeps_boxes_with_their_images(write_csv: WriteCsv) -> None:
    rows = [{"id": name, "x0": x} for name, x in [("a", 0), ("b", 1), ("b", 2), ("c", 3), ("d", 4), ("d", 5), ("d", 6)]]
    manifest, _ = read_manifest(write_csv(*rows))
    some = manifest.take(np.array([3, 1]))
    assert some.images["id"].tolist() == ["d", "b"]
    assert [some.boxes(i)[:, 0].tolist() for i in range(2)] == [[4, 5, 6], [1, 2]]
