"""The report in a notebook, and the answer to its headline."""

import html
import re
from pathlib import Path

import pytest
from report.made_up_results import MODELS, made_up_results, small_results, without, write_results
from report.page.page_results import SCRIPT, hostile_results, only_figures

from locality import html_report
from locality.report.findings import sentences
from locality.report.findings.verdicts import answer, verdicts
from locality.report.page.html import report_page
from locality.report.page.images import image_table


def test_the_page_is_shown_in_a_frame_of_its_own(tmp_path: Path) -> None:
    with only_figures():
        shown = html_report(hostile_results())
        frame = shown._repr_html_()
        assert 'sandbox="allow-scripts allow-downloads"' in frame
        [inside] = re.findall(r'srcdoc="([^"]*)"', frame)
        assert html.unescape(inside) == shown.page
        assert SCRIPT not in frame
        saved = html_report(write_results(small_results(), tmp_path / "results")).save(tmp_path / "report.html")
    assert saved.read_text(encoding="utf-8").startswith("<!DOCTYPE html>")
    with pytest.raises(ValueError, match="`results` must be an Evaluation, Results or a folder of results, got 'int'"):
        html_report(3)  # type: ignore[arg-type]


def test_the_headline_is_answered_first() -> None:
    results = small_results()
    found = verdicts(results)
    assert found["tiny_resnet_robust8"].looks is True
    assert found["tiny_resnet_random"].looks is False
    with only_figures():
        page = report_page(results)
    assert page.index(html.escape(answer(results))) < page.index("<h2>Summary</h2>")
    looking = [name for name, one in found.items() if one.looks]
    assert answer(results).startswith(f"{len(looking)} of 6 models look at the object (")
    assert found["tiny_resnet_random"].sentence("tiny_resnet_random") in sentences(results)


def test_one_model_is_answered_with_its_reason_and_old_results_are_not() -> None:
    one = made_up_results(24, 0, MODELS[6:7])
    assert answer(one).startswith("tiny_resnet_robust8 looks at the object: the lift of ")
    with only_figures():
        assert "Does this model look at the object?" in report_page(one)
    assert answer(without(one, "model_free")).startswith("Not answered: the results are of an earlier version")


def test_the_table_of_images_has_their_scores() -> None:
    results = small_results()
    found = image_table(results)
    assert found is not None
    assert found["columns"][:6] == ["image", "model", "prediction", "distance", "F1 SM", "lift SM"]
    assert len(found["rows"]) == 24 * 6
    assert found["pictures"] == {"image-0": 0, "image-1": 1}
    rows = results.rows.set_index(["image_id", "model", "method"])
    image, model, prediction, distance, f1, lift, *_ = found["rows"][30]
    own = rows.loc[(image, model, "SM")]
    assert (f1, lift) == pytest.approx((own["f1"], own["lift"]), abs=1e-4)
    assert prediction == ("correct" if own["correct"] else "wrong")
    assert distance is None or distance == pytest.approx(own["distance"], abs=1e-4)
    assert image_table(made_up_results(0)) is None
