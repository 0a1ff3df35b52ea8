"""The page: self-contained, and safe with any name."""

import json
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest
from report.made_up_results import MODELS, abstaining, made_up_results, nothing_measured
from report.page.page_results import SCRIPT, only_figures

from locality.report.page import html
from locality.report.page.html import json_in_html, report_page
from locality.report.tables.build import TABLES
from locality.results.results import Results


class Page(HTMLParser):
    """Elements and their attributes, as a parser sees them."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))


def test_untrusted_names_are_text(hostile: Path) -> None:
    text = hostile.read_text(encoding="utf-8")
    parsed = Page(text)
    scripts = [attributes for tag, attributes in parsed.elements if tag == "script"]
    assert scripts == [{"type": "application/json", "id": "page-data"}, {}]
    assert all(not name.startswith("on") for _, attributes in parsed.elements for name in attributes)
    assert "alert(1)</script>" not in text
    assert "<h1>a_b%&amp; &lt;script&gt;alert(1)&lt;/script&gt;</h1>" in text
    data = re.search(r'id="page-data">(.*?)</script>', text, re.DOTALL)
    assert data is not None
    assert json.loads(data[1])["gallery"]["images"][0]["id"] == f"</script>{SCRIPT}"


def test_the_page_needs_nothing_from_elsewhere(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    for _, attributes in Page(text).elements:
        for name in ("src", "href", "action", "data", "srcset"):
            assert str(attributes.get(name, "#")).startswith(("#", "data:"))
        assert "style" not in attributes  # the policy would block it
    assert "@import" not in text
    assert "url(" not in text
    [policy] = [attributes["content"] for tag, attributes in Page(text).elements if attributes.get("http-equiv")]
    assert policy is not None
    assert policy.startswith("default-src 'none'; img-src data:; style-src 'sha256-")
    assert "unsafe" not in policy


def test_every_part_is_there(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    ids = [attributes["id"] for tag, attributes in Page(text).elements if tag == "section"]
    assert ids == ["summary", "figures", "gallery", "tables", "images", "provenance"]
    shown = len(html.SHOWN_FIGURES) - 1  # `means` is for one model
    assert text.count("<figure><img") == shown
    assert text.count("Data: tiny-imagenet.") == shown
    assert text.count('<table class="sortable"') == len(TABLES)
    assert "Robust models have a higher F1 than their standard counterparts with IG in" in text


def test_every_data_set_has_its_own_figures_under_its_name() -> None:
    results = made_up_results(8, 0, MODELS[:4])
    both = results.with_tables(models=results.models.assign(data=["shapes", "shapes", "tiny <b>", "tiny <b>"]))
    with only_figures("3.2"):
        text = report_page(both)
    assert text.count("<figure><img") == 2
    found = [
        text.index(words)
        for words in ("<h3>shapes</h3>", "Data: shapes.", "<h3>tiny &lt;b&gt;</h3>", "Data: tiny &lt;b&gt;.")
    ]
    assert found == sorted(found)
    with only_figures("3.2"):
        assert "<h3>shapes</h3>" not in report_page(both.with_tables(models=results.models.assign(data="shapes")))


def test_a_stopped_benchmark_is_said_to_be_unfinished() -> None:
    units = {"planned": 15, "finished": 3, "with faults": 1}
    with only_figures():
        text = report_page(replace(made_up_results(8, 0, MODELS[1:2]), provenance={"units": units}))
    assert "<ul><li>Unfinished: 4 of 15 units " in text


def test_a_figure_is_as_wide_as_its_letters_want() -> None:
    def width(results: Results) -> int:
        with only_figures("2.4"):
            [found] = [attributes["width"] for tag, attributes in Page(report_page(results)).elements if tag == "img"]
        return int(str(found))

    one, three = (width(made_up_results(8, 0, MODELS[:count])) for count in (1, 3))
    assert 2 * one < three < 1000
    assert three / one == pytest.approx(6.8 / 3.3, rel=0.01)


def test_the_same_results_are_the_same_page() -> None:
    results = made_up_results(8, 1, MODELS[1:3])
    with only_figures("3.2"):
        assert report_page(results) == report_page(results)


def test_nothing_measured_is_a_page_all_the_same() -> None:
    text = report_page(nothing_measured())
    assert "No model was measured." in text
    assert [attributes["id"] for tag, attributes in Page(text).elements if tag == "section"] == ["summary"]
    assert '{"gallery":null,"images":null,"csv":{}}</script>' in text


def test_abstentions_are_in_summary_captions_and_tables() -> None:
    results = made_up_results(8, 1, MODELS[1:3])
    with only_figures("3.2"):
        with_abstentions, without = report_page(abstaining(results, "tiny_vgg", 2)), report_page(results)
    for words in ("<li>Abstentions: tiny_vgg on 25.0% of the", "Abstentions are neither correct nor scored", ">abstained<"):
        assert words in with_abstentions
        assert words not in without


def test_json_cannot_leave_its_element() -> None:
    value = {"<!--": "</script>", "&": "\u2028"}
    text = json_in_html(value)
    assert not set("<>&\u2028") & set(text)
    assert json.loads(text) == value
    with pytest.raises(ValueError, match="not JSON compliant"):
        json_in_html(float("nan"))
