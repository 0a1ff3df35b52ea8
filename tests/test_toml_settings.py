"""Files of settings from strangers: limited before they are parsed."""

import os
import time
from pathlib import Path

import pytest

from locality.toml_settings import MAX_BYTES, MAX_DEPTH, number_from, read_json, read_toml

DEEP = "nested deeper than"
HOSTILE = {
    "arrays": ("x = " + "[" * 50_000 + "]" * 50_000, DEEP),
    "open arrays": ("x = " + "[" * 50_000, DEEP),
    "tables": ("x = " + "{a=" * 9_000 + "1" + "}" * 9_000, DEEP),
    "keys": ("[" + "a." * 200_000 + "a]", "parts"),  # tomllib needs hours for it
    "quoted keys": ("[" + '"x[".' * 100_000 + "a]", "parts"),
    "a long number": ("x = " + "9" * 10_000, "digits"),
    "size": ("#" * (MAX_BYTES + 1), "bytes"),
    "strings that do not end": ('x = """' + '\\"""' * 200_000, "Unterminated"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_toml_is_one_sentence_at_once(name: str, tmp_path: Path) -> None:
    text, reason = HOSTILE[name]
    (tmp_path / "x.toml").write_text(text)
    start = time.monotonic()
    with pytest.raises(ValueError, match=f"x.toml` is not a TOML file: .*{reason}"):
        read_toml(tmp_path / "x.toml")
    assert time.monotonic() - start < 5


def test_brackets_and_dots_in_strings_and_comments_do_not_count(tmp_path: Path) -> None:
    brackets = "[{." * 2 * MAX_DEPTH
    texts = [f"'{brackets}'", f'"{brackets}"', f'"""\n{brackets}\\""""', f"'''\n{brackets}'''"]
    for text in texts:
        (tmp_path / "x.toml").write_text(f"# {brackets}\nx = {text}\n")
        assert read_toml(tmp_path / "x.toml")["x"].startswith(brackets)
    (tmp_path / "x.json").write_text(f'{{"\\"{brackets}": 1}}')
    assert read_json(tmp_path / "x.json") == {f'"{brackets}': 1}


@pytest.mark.parametrize("text", ["[" * 100_000 + "]" * 100_000, '{"a":' * 50_000])
def test_deep_json_is_refused_before_it_is_parsed(text: str, tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text(text)
    with pytest.raises(ValueError, match=DEEP):
        read_json(tmp_path / "x.json")


def test_large_json_and_pipes_are_refused(tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text("1" * 11)
    with pytest.raises(ValueError, match="more than 10 bytes"):
        read_json(tmp_path / "x.json", 10)
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ValueError, match="pipe"):
        read_toml(tmp_path / "pipe")


def test_numbers_are_decided_at_once() -> None:
    start = time.monotonic()
    assert number_from("1e10000000") is None
    assert number_from("1e-10000000") is None
    assert number_from("9" * 1_000_000) is None
    assert number_from(10**400) is None
    assert time.monotonic() - start < 1
    assert [number_from(text) for text in ("4/255", "1e-3", ".5", "- 1.5e2", "3.")] == [4 / 255, 0.001, 0.5, -150.0, 3.0]
