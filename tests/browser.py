"""A real browser: the Chromium that is installed."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

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
