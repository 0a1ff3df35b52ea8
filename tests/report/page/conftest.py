"""Pages that several tests read."""

from pathlib import Path

import pytest
from report.made_up_results import small_results
from report.page.page_results import hostile_results, only_figures

from locality.report.page.html import write_report


@pytest.fixture(scope="session")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Path:
    with only_figures("3.4", "3.5"):
        return write_report(hostile_results(), tmp_path_factory.mktemp("hostile") / "report <b>.html")


@pytest.fixture(scope="session")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_report(small_results(), tmp_path_factory.mktemp("page") / "report.html")
