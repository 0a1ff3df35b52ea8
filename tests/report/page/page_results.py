"""Results with hostile names, and pages with few figures."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest
from report.made_up_results import MODELS, made_up_results

from locality.report.page import html
from locality.results.gallery import GalleryImage, gallery_table
from locality.results.results import Results

SCRIPT = "<script>alert(1)</script>"


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
