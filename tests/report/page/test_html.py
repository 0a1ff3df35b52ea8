"""The page: self-contained, safe with any name, and working in a real browser."""

import io
import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from PIL import Image
from report.browser import Browser, browser, missing_browser
from report.made_up_results import CERTIFIED, MODELS, abstaining, made_up_results, nothing_measured, small_results

from locality.report.page import html
from locality.report.page.html import json_in_html, report_page, write_report
from locality.report.tables.build import TABLES
from locality.results.gallery import GalleryImage, gallery_table
from locality.results.results import Results

NO_BROWSER = missing_browser()
SCRIPT = "<script>alert(1)</script>"


class Page(HTMLParser):
    """Elements and their attributes, as a parser sees them."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))


def hostile_results() -> Results:
    """Everything that has a name has a bad one."""
    models = tuple(
        replace(
            model,
            name=f"{model.name}{SCRIPT}",
            family=f'"><img src=x onerror=alert(1)>{model.family}',
            counterpart=counterpart,
        )
        for model in MODELS[1:6]
        for counterpart in [None if model.counterpart is None else f"{model.counterpart}{SCRIPT}"]
    )
    found = made_up_results(8, 1, models, name=f"a_b%& {SCRIPT}")
    image = found.gallery[0]
    bad = GalleryImage(
        f"</script>{SCRIPT}",
        image.image,
        image.boxes,
        f"<img src=x onerror=alert(2)>{SCRIPT}",
        image.maps,
        image.predictions,
    )
    faults = found.faults.assign(problem=SCRIPT, image_ids="</script>", model="javascript:alert(1)")
    return replace(found.with_tables(gallery=gallery_table([bad]), faults=faults), provenance={SCRIPT: "&lt;"})


@contextmanager
def only_figures(*names: str) -> Iterator[None]:
    """Pages with these figures only, which is faster."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(html, "SHOWN_FIGURES", names)
        yield


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Path:
    with only_figures("3.4", "3.5"):
        return write_report(hostile_results(), tmp_path_factory.mktemp("hostile") / "report <b>.html")


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_report(small_results(), tmp_path_factory.mktemp("page") / "report.html")


def test_untrusted_names_are_text(hostile: Path) -> None:
    text = hostile.read_text(encoding="utf-8")
    parsed = Page(text)
    scripts = [attributes for tag, attributes in parsed.elements if tag == "script"]
    assert scripts == [{"type": "application/json", "id": "gallery-data"}, {}]
    assert all(not name.startswith("on") for _, attributes in parsed.elements for name in attributes)
    assert "alert(1)</script>" not in text
    assert "<h1>a_b%&amp; &lt;script&gt;alert(1)&lt;/script&gt;</h1>" in text
    data = re.search(r'id="gallery-data">(.*?)</script>', text, re.DOTALL)
    assert data is not None
    assert json.loads(data[1])["images"][0]["id"] == f"</script>{SCRIPT}"


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
    assert ids == ["summary", "figures", "gallery", "tables", "provenance"]
    assert text.count("<figure><img") == len(html.SHOWN_FIGURES)
    assert text.count("Data: tiny-imagenet.") == len(html.SHOWN_FIGURES)
    assert text.count('<table class="sortable"') == len(TABLES)
    assert "Robust models have a higher F1 than their standard counterparts with IG in" in text


def test_every_data_set_has_its_own_figures_under_its_name() -> None:
    results = made_up_results(8, 0, MODELS[1:4])
    both = results.with_tables(models=results.models.assign(data=["shapes", "tiny <b>", "tiny <b>"]))
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
    assert ">null</script>" in text


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


needs_browser = pytest.mark.skipif(NO_BROWSER is not None, reason=str(NO_BROWSER))


@pytest.fixture(scope="module")
def window(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    if NO_BROWSER is not None:
        pytest.skip(NO_BROWSER)
    with browser(tmp_path_factory.mktemp("browser")) as opened:
        yield opened


def shown(window: Browser, path: Path) -> None:
    window.open(path)
    window.wait("return document.getElementById('sheet').dataset.drawn")


def redrawn(window: Browser, before: str) -> None:
    window.wait(f"return document.getElementById('sheet').dataset.drawn !== {before!r}")


def turn(window: Browser) -> str:
    return str(window.run("return document.getElementById('sheet').dataset.drawn"))


def column(window: Browser, place: int) -> list[str]:
    return list(
        window.run(
            "return Array.from(document.querySelector('table.sortable').tBodies[0].rows)"
            ".map((row) => row.cells[arguments[0]].textContent)",
            place,
        )
    )


@needs_browser
@pytest.mark.slow
def test_it_opens_without_an_error_and_is_not_blank(window: Browser, page: Path) -> None:
    shown(window, page)
    assert window.log() == []
    picture = np.asarray(Image.open(io.BytesIO(window.screenshot())).convert("RGB"))
    assert picture.shape[1] > 1000
    assert picture.std() > 15
    assert window.run("return Array.from(document.images).every((image) => image.complete && image.naturalWidth > 0)")
    # The policy holds: a script that slipped in would not run.
    window.run(
        "const made = document.createElement('script'); made.textContent = 'window.evil = 1'; document.body.append(made)"
    )
    assert window.run("return window.evil") is None
    assert any("Content Security Policy" in entry for entry in window.log())


@needs_browser
@pytest.mark.slow
def test_tables_are_sorted_by_mouse_and_keyboard(window: Browser, page: Path) -> None:
    shown(window, page)
    before = column(window, 0)
    head = "table.sortable thead th:nth-child({}) button".format
    window.click(head(7))
    heights = [float(text) for text in column(window, 6)]
    assert heights == sorted(heights, reverse=True)
    assert window.run("return document.querySelector('th:nth-child(7)').getAttribute('aria-sort')") == "descending"
    window.click(head(7))
    assert [float(text) for text in column(window, 6)] == sorted(heights)
    window.run("document.querySelector(arguments[0]).focus()", head(1))
    window.press("Enter")
    assert column(window, 0) == sorted(before)
    assert window.run("return document.querySelectorAll('table.sortable')[0].querySelectorAll('[aria-sort]').length") == 1
    window.press("Space")
    assert column(window, 0) == sorted(before, reverse=True)
    assert window.log() == []


@needs_browser
@pytest.mark.slow
def test_what_has_no_number_stays_last(window: Browser, tmp_path: Path) -> None:
    results = small_results()
    rows = results.rows.copy()
    rows.loc[rows["model"] == "tiny_vgg", "correct"] = None
    with only_figures():
        shown(window, write_report(results.with_tables(rows=rows), tmp_path / "report.html"))
    for _ in range(2):
        window.click("table.sortable thead th:nth-child(3) button")
        assert column(window, 2)[-1] == "undefined"


@needs_browser
@pytest.mark.slow
def test_tables_fit_or_say_that_there_is_more(window: Browser, tmp_path: Path) -> None:
    look = (
        "return Array.from(document.querySelectorAll('.wide')).map((frame) => [frame.scrollWidth > frame.clientWidth + 1,"
        " frame.previousElementSibling.offsetHeight > 0, frame.classList.contains('more')])"
    )
    results = small_results()
    with only_figures():
        shown(window, write_report(results, tmp_path / "page.html"))
    found = window.run(look)
    assert [wide for wide, *_ in found] == [False] * len(TABLES)
    assert not any(hint or more for _, hint, more in found)
    longer = {name: f"{name}_trained_on_one_thing_and_then_on_another" for name in results.models["model"]}
    robust = [results["robust"].assign(epsilon=levels / 255) for levels in range(1, 9)]
    rows, models = (table.assign(model=table["model"].map(longer)) for table in (results.rows, results.models))
    attacked = pd.concat(robust).assign(model=lambda table: table["model"].map(longer))
    wide = results.with_tables(robust=attacked, rows=rows, models=models)
    with only_figures():
        shown(window, write_report(wide, tmp_path / "wide.html"))
    assert window.run(look)[0] == [True, True, True]
    window.run("const frame = document.querySelector('.wide'); frame.scrollLeft = frame.scrollWidth")
    window.wait("return !document.querySelector('.wide').classList.contains('more')")
    assert window.log() == []


@needs_browser
@pytest.mark.slow
def test_nothing_that_rounds_to_zero_has_a_minus_sign(window: Browser, tmp_path: Path) -> None:
    results = small_results()
    with only_figures():
        path = write_report(results.with_tables(rows=results.rows.assign(lift=-0.004)), tmp_path / "report.html")
    shown(window, path)
    captions = window.run("return Array.from(document.querySelectorAll('#sheet figcaption')).map((one) => one.textContent)")
    assert any("lift 0.00" in caption for caption in captions)
    assert not any("−0.00" in caption for caption in captions)


@needs_browser
@pytest.mark.slow
def test_images_models_and_methods_are_picked_by_mouse_and_keyboard(window: Browser, page: Path) -> None:
    shown(window, page)
    status = "return document.getElementById('shown').textContent"
    rows = "return Array.from(document.querySelectorAll('#sheet h4')).map((title) => title.firstChild.textContent)"
    captions = (
        "return Array.from(document.querySelectorAll('#sheet .row:first-child figcaption')).map((one) => one.textContent)"
    )
    ink = "const canvas = document.querySelectorAll('#sheet canvas')[1]; return canvas.toDataURL()"
    assert window.run(status) == "Image 1 of 2: circle, image-0"
    assert window.run(rows) == ["tiny_vgg", "tiny_vgg_robust"]
    first, seen = turn(window), window.run(ink)
    window.click("#picture-1")
    redrawn(window, first)
    assert window.run(status) == "Image 2 of 2: square, image-1"
    assert window.run(ink) != seen
    before = turn(window)
    window.press("ArrowDown")  # from the last one to the first
    redrawn(window, before)
    assert window.run(status) == "Image 1 of 2: circle, image-0"
    assert window.run("return document.activeElement.id") == "picture-0"
    assert window.run(ink) == seen
    before = turn(window)
    window.click("#models label:nth-of-type(2)")
    redrawn(window, before)
    assert window.run(rows) == ["tiny_vgg", "tiny_resnet", "tiny_vgg_robust"]
    before = turn(window)
    window.run("document.getElementById('methods-0').focus()")
    window.press("Space")
    redrawn(window, before)
    own = small_results().rows
    scores = own[(own["model"] == "tiny_vgg") & (own["image_id"] == "image-0")].set_index("method")
    expected = [f"{name}: F1 {scores['f1'][name]:.2f} · lift {scores['lift'][name]:.2f}" for name in ("IG", "BIG")]
    assert window.run(captions) == ["image and box", *(text.replace("-", "−") for text in expected)]
    assert window.log() == []


@needs_browser
@pytest.mark.slow
def test_canvases_show_what_the_figures_show(window: Browser, page: Path) -> None:
    from locality.report.figures.heatmaps import heat_picture, shared_limit

    shown(window, page)
    image = small_results().gallery[0]
    maps = [image.maps["tiny_vgg", method] for method in ("SM", "IG", "BIG")]
    expected = heat_picture(image.image, maps[1], shared_limit(maps)).astype(float)
    flat = window.run(
        "const canvas = document.querySelectorAll('#sheet canvas')[2];"
        "return Array.from(canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data)"
    )
    drawn = np.array(flat, dtype=float).reshape(64, 64, 4)[..., :3]
    # A map is kept in 255 levels, so the two differ by little.
    assert np.abs(drawn - expected).mean() < 2
    box = window.run("return document.querySelector('#sheet svg').innerHTML")
    x0, y0, x1, y1 = image.boxes[0]
    assert f'x="{x0:g}" y="{y0:g}" width="{x1 - x0:g}" height="{y1 - y0:g}"' in box


@needs_browser
@pytest.mark.slow
def test_hostile_names_do_nothing(window: Browser, hostile: Path) -> None:
    shown(window, hostile)
    assert window.log() == []
    assert SCRIPT in window.run("return document.getElementById('shown').textContent")
    assert SCRIPT in window.run("return document.querySelector('#models label').textContent")
    assert window.run("return document.querySelectorAll('script').length") == 2
    assert window.run("return document.querySelectorAll('img[src=x]').length") == 0


@needs_browser
@pytest.mark.slow
def test_the_gallery_names_kinds_and_abstentions(window: Browser, tmp_path: Path) -> None:
    models = (*MODELS[1:2], *MODELS[4:5], *CERTIFIED[:1], MODELS[-1])
    with only_figures():
        path = write_report(abstaining(made_up_results(8, 1, models), "tiny_vgg_robust", 1), tmp_path / "report.html")
    shown(window, path)
    for number in (3, 4):
        before = turn(window)
        window.click(f"#models label:nth-of-type({number})")
        redrawn(window, before)
    titles = "return Array.from(document.querySelectorAll('#sheet h4')).map((title) => [title.className, title.textContent])"
    assert window.run(titles) == [
        ["standard", "tiny_vgg standard, predicts circle"],
        ["robust", "tiny_vgg_robust AT ℓ∞ 4/255, abstained (label circle)"],
        ["certified", "tiny_vgg_certified certified ℓ2 0.5, predicts circle"],
        ["random", "tiny_resnet_random random, predicts circle"],
    ]
    assert window.log() == []
