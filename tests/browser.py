"""A real browser, the Chromium that is installed, and what every page has to pass in it."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

NODE = Path(__file__).parents[1] / ".venv/prism/node_modules"
_AXE = NODE / "axe-core/axe.min.js"
_SCREENSHOTS = os.environ.get("PTOPT_SCREENSHOTS")  # a folder, to look at them
_CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
needs_chromium = pytest.mark.skipif(
    _CHROMIUM is None, reason="no Chromium is installed (apt-get install chromium)"
)


@contextmanager
def launched() -> Iterator[Browser]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=_CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture
def page() -> Iterator[Page]:
    """A page in a browser of its own. No page that it opens may break its own policy."""
    with launched() as browser:
        opened = browser.new_page()
        problems: list[str] = []
        opened.on("console", lambda message: problems.append(message.text))
        yield opened
    assert not any("Security Policy" in problem for problem in problems), "a page breaks its own policy"


def check_page(page: Page, name: str, *, axe: bool = True) -> None:
    """Nothing is cut off, and axe finds no fault. A picture, where somebody asked for it."""
    if _SCREENSHOTS:
        page.screenshot(path=Path(_SCREENSHOTS, f"{name}.png"), full_page=True)
    wider = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
    assert wider <= 0, f"{name} is {wider} pixels too wide"
    if axe:
        assert _AXE.exists(), "axe is missing: run `make .venv/prism/.ready`, which needs node and npm"
        # The policy keeps scripts out of the page; this one is ours.
        page.evaluate(_AXE.read_text(encoding="utf-8"))
        found = page.evaluate("axe.run()")
        faults = [(each["id"], [node["html"] for node in each["nodes"]]) for each in found["violations"]]
        assert not faults, (name, faults)
        assert len(found["passes"]) > 10
