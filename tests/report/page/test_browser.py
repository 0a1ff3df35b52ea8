"""The page in a real browser: tables, gallery, policy."""

import io
import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from PIL import Image
from report.browser import Browser, browser, missing_browser
from report.made_up_results import CERTIFIED, MODELS, abstaining, made_up_results, small_results
from report.page.page_results import SCRIPT, only_figures

from locality.report.figures.heatmaps import heat_picture, shared_limit
from locality.report.page.html import write_report
from locality.report.tables.build import TABLES

NO_BROWSER = missing_browser()
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
    wide_tables = {name for name, (is_wide, *_) in zip([*TABLES, "images"], found, strict=True) if is_wide}
    # Two intervals per radius, six per test, seven scores with chance levels.
    assert wide_tables <= {"certified", "region_tests", "removal"}
    assert all(is_wide == hint == more for is_wide, hint, more in found)
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


@needs_browser
@pytest.mark.slow
def test_rows_are_filtered_images_lead_to_the_gallery_and_tables_are_saved(window: Browser, page: Path) -> None:
    shown(window, page)
    rows = "return Array.from(document.querySelectorAll('#image-table tbody tr')).length"
    assert window.run(rows) == 100
    assert window.run("return document.getElementById('image-count').textContent") == "100 of 144 rows"
    window.click("#more-images")
    assert window.run(rows) == 144
    window.run(
        "const field = document.querySelector('#images .filter'); field.value = 'image-1 resnet_RANDOM';"
        "field.dispatchEvent(new Event('input'))"
    )
    assert window.run(rows) == 11  # image-1 and image-10 to image-19
    before = turn(window)
    window.click("#image-table .link")
    redrawn(window, before)
    assert window.run("return document.getElementById('shown').textContent") == "Image 2 of 2: square, image-1"
    window.run(
        "window.saved = []; URL.createObjectURL = (blob) => { blob.text().then((text) => window.saved.push(text));"
        " return '#' }; HTMLAnchorElement.prototype.click = () => {}"
    )
    window.click("button.csv[data-table=images]")
    window.click("button.csv[data-table=overview]")
    images, overview = window.wait("return window.saved.length === 2 && window.saved")
    assert images.splitlines()[0].startswith('"image","model","prediction","distance","F1 SM"')
    assert len(images.splitlines()) == 12
    assert overview.startswith("model,training,accuracy")
    window.run(
        "const field = document.querySelector('#tables .filter'); field.value = 'robust8';"
        "field.dispatchEvent(new Event('input'))"
    )
    visible = (
        "return Array.from(document.querySelector('table.sortable').tBodies[0].rows).filter((row) => !row.hidden).length"
    )
    assert window.run(visible) == 1
    assert window.log() == []


@needs_browser
@pytest.mark.slow
def test_dark_mode_and_the_first_column(window: Browser, page: Path) -> None:
    def emulate(scheme: str) -> list[int]:
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        window.call("/goog/cdp/execute", {"cmd": "Emulation.setEmulatedMedia", "params": {"features": features}})
        colour = window.run("return getComputedStyle(document.body).backgroundColor")
        return [int(part) for part in re.findall(r"\d+", colour)]

    shown(window, page)
    assert min(emulate("light")) > 240
    assert max(emulate("dark")) < 60
    emulate("light")
    sticky = "return getComputedStyle(document.querySelector('table.sortable tbody td')).position"
    assert window.run(sticky) == "sticky"


@needs_browser
@pytest.mark.slow
def test_on_a_phone_figures_scroll_at_a_size_at_which_they_can_be_read(window: Browser, page: Path) -> None:
    phone = {"width": 390, "height": 844, "deviceScaleFactor": 1, "mobile": True}
    window.call("/goog/cdp/execute", {"cmd": "Emulation.setDeviceMetricsOverride", "params": phone})
    try:
        shown(window, page)
        widths = window.run(
            "return Array.from(document.querySelectorAll('#figures img')).map((image) => [image.clientWidth, image.width])"
        )
        captions = window.run(
            "return Array.from(document.querySelectorAll('#figures figcaption')).map((text) => text.clientWidth)"
        )
        assert window.run("return document.documentElement.scrollWidth") == 390  # the page itself does not scroll sideways
        assert widths
        assert max(width for width, _ in widths) > 600
        assert max(captions) < 390
    finally:
        window.call("/goog/cdp/execute", {"cmd": "Emulation.clearDeviceMetricsOverride", "params": {}})
