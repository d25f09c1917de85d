"""The HTML page of an audit, looked at in a browser: narrow and wide, light and dark."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import pytest

from ptopt.audit.values import Measure, Place, State
from ptopt.report.audit import render
from tests.browser import check_page, needs_chromium, page
from tests.report.audit.test_formats import audit_of

if TYPE_CHECKING:
    from playwright.sync_api import Page

__all__ = ["page"]  # a fixture
_ROWS = 20


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> str:
    """An audit of one script with as many rows as a real one, half of them off."""
    audit = audit_of("scripts/finetune.py", scripts=1)
    rows = tuple(
        Measure(
            f"m{n}", f"Measure {n}", State.OFF if n % 2 else State.ON, "the default of `DataLoader`", (Place("a.py", n + 1),)
        )
        for n in range(_ROWS)
    )  # fmt: skip
    audit = dataclasses.replace(audit, entries=(dataclasses.replace(audit.entries[0], measures=rows),))
    path: Path = tmp_path_factory.mktemp("audit") / "audit.html"
    path.write_text(render("html", audit), encoding="utf-8")
    return path.as_uri()


@needs_chromium
@pytest.mark.slow  # axe comes with npm
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [360, 1440])
def test_the_page_fits_and_axe_finds_no_fault(
    page: Page, url: str, width: int, scheme: Literal["light", "dark"]
) -> None:
    page.set_viewport_size({"width": width, "height": 900})
    page.emulate_media(color_scheme=scheme)
    page.goto(url)
    check_page(page, f"audit-{width}-{scheme}")


@needs_chromium
def test_a_narrow_page_shows_what_is_to_do_and_folds_the_rest(page: Page, url: str) -> None:
    page.set_viewport_size({"width": 360, "height": 900})
    page.goto(url)
    assert page.get_by_text("Measure 1", exact=True).is_visible()  # off
    assert not page.get_by_text("Measure 2", exact=True).is_visible()  # on
    table = page.locator("#measures").bounding_box()
    assert table is not None and table["height"] < 40 * _ROWS
    page.get_by_text("10 on", exact=True).click()
    assert page.get_by_text("Measure 2", exact=True).is_visible()


@needs_chromium
def test_a_wide_page_shows_each_row_in_one_table(page: Page, url: str) -> None:
    page.set_viewport_size({"width": 1440, "height": 900})
    page.goto(url)
    rows = [page.get_by_text(f"Measure {n}", exact=True) for n in (1, 2)]
    assert all(row.is_visible() for row in rows)
    assert not page.locator("details.rest > summary").is_visible()
    states = [page.locator("td:nth-child(2)").nth(n).bounding_box() for n in (0, _ROWS - 1)]
    assert states[0] is not None and states[1] is not None and states[0]["x"] == states[1]["x"]
