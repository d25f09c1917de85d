"""The dashboard as people use it: in a real browser, by keyboard, narrow and wide, light and dark, and through axe."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from service.models import JobState
from tests.bot.dashboard.world import NOW, World
from tests.browser import NODE, check_page, launched, needs_chromium

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

ROOT = Path(__file__).resolve().parents[3]
pytestmark = [pytest.mark.slow, needs_chromium]
SIZES = {"narrow": (360, 740), "wide": (1440, 900)}
PAGES = ("sign-in", "reviews", "review", "rules", "models", "jobs", "job", "health", "nowhere")


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with launched() as browser:
        yield browser


@pytest.fixture(scope="module")
def addresses(world: World) -> dict[str, str]:
    """A repository with something of everything; page -> its address."""
    repo = world.repository("octo/vision-models", octocat="write")
    world.repository("octo/a-repository-with-quite-a-long-name-for-one-line", octocat="read")
    for _ in range(30):
        world.review(repo, github_id=None)
    review = world.review(repo, findings=4)
    for rule, bad in (("PTO101", 0), ("PTO102", 5), ("PTO301", 2), ("PTO402", 3)):
        for person in range(5):
            at = NOW - timedelta(weeks=2 * person)
            comment = world.comment(repo, review, rule=rule, pull=person, confidence=0.62, posted_at=at)
            value = "bad" if person < bad else "good"
            note = "we do this on purpose" if value == "bad" else ""
            world.signal(comment, "verdict", value, actor=f"person {person}", note=note)
    world.comment(repo, review, explored=True)
    done = world.job(repo, JobState.DONE, finished_at=None)
    job = world.job(
        repo, error="Traceback (most recent call last):\n  File x\nRuntimeError: the disk is full"
    )
    assert done < job
    return {
        "sign-in": "sign-in",
        "reviews": "reviews",
        "review": f"reviews/{review}",
        "rules": f"rules?repository={repo.id}",
        "models": "models",
        "jobs": f"jobs?repository={repo.id}",
        "job": f"jobs/{job}",
        "health": "health",
        "nowhere": "nowhere",
    }


def opened(browser: Browser, world: World, **more: Any) -> Page:
    """A page of somebody who signed in by clicking."""
    page = browser.new_page(**more)
    page.goto(f"{world.url}/dashboard")
    world.github.person = "octocat"
    page.get_by_role("link", name="Sign in with GitHub").click()
    page.get_by_role("button", name="Authorize ptopt").click()
    page.get_by_role("heading", name="Reviews").wait_for()
    return page


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("size", SIZES)
def test_every_page(
    browser: Browser, world: World, addresses: dict[str, str], size: str, scheme: str
) -> None:
    width, height = SIZES[size]
    page = opened(browser, world, viewport={"width": width, "height": height}, color_scheme=scheme)
    problems: list[str] = []
    page.on("console", lambda message: problems.append(message.text))
    for name in PAGES:
        page.goto(f"{world.url}/dashboard/{addresses[name]}")
        check_page(page, f"{name}-{size}-{scheme}")
    page.close()
    assert not [text for text in problems if "Security Policy" in text]


def test_htmx_is_what_npm_has() -> None:
    ours = ROOT / "bot/dashboard/static"
    theirs = NODE / "htmx.org"
    assert theirs.exists(), "htmx is missing: run `make .venv/prism/.ready`, which needs node and npm"
    assert (ours / "htmx.min.js").read_bytes() == (theirs / "dist/htmx.min.js").read_bytes()
    assert (ours / "htmx.LICENSE.txt").read_bytes() == (theirs / "LICENSE").read_bytes()


def test_by_keyboard_alone(browser: Browser, world: World, addresses: dict[str, str]) -> None:
    page = opened(browser, world)
    page.goto(f"{world.url}/dashboard/{addresses['jobs']}")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to the content"
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "main"
    for _ in range(40):
        page.keyboard.press("Tab")
        seen = page.evaluate(
            "[document.activeElement.id, getComputedStyle(document.activeElement).outlineStyle]"
        )
        assert seen[1] != "none", f"nobody sees the focus on {seen[0]}"
        if seen[0].startswith("retry-"):
            break
    else:
        raise AssertionError("no Tab leads to the button")
    job = seen[0].removeprefix("retry-")
    page.keyboard.press("Enter")
    page.locator(f"#job-{job}", has_text="queued").wait_for()
    assert addresses["jobs"] in page.url  # htmx replaced the row alone
    assert page.locator("tbody tr").count() == 2
    page.close()


def test_older_rows_come_below(browser: Browser, world: World, addresses: dict[str, str]) -> None:
    page = opened(browser, world)
    assert page.locator("#rows tr").count() == 25
    page.locator("#older-link").focus()
    page.keyboard.press("Enter")
    page.locator("#rows tr").nth(30).wait_for()
    assert page.locator("#rows tr").count() == 31
    assert page.locator("#older-link").count() == 0
    page.close()


def test_without_scripts(browser: Browser, world: World, addresses: dict[str, str]) -> None:
    page = opened(browser, world, java_script_enabled=False)
    page.get_by_role("link", name="Older").click()
    assert page.locator("#rows tr").count() == 6
    page.get_by_label("Repository").select_option(label="octo/vision-models")
    page.get_by_role("button", name="Show").click()
    assert page.locator("#rows tr").count() == 25
    page.get_by_role("button", name="Sign out").click()
    page.get_by_role("link", name="Sign in with GitHub").wait_for()
    page.close()
