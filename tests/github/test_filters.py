"""Which pull requests are left alone, and what the reason says."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from ptopt.config import Config, load_config
from ptopt.github.filters import Limits, why_skipped
from ptopt.github.values import Actor, PullRequest

PULL = PullRequest(
    repo="org/repo",
    repo_id=1,
    number=7,
    title="Faster",
    open=True,
    merged=False,
    draft=False,
    author=Actor(5, "Ada", is_bot=False),
    labels=("training", "No-Review"),
    head_sha="a" * 40,
    head_ref="faster",
    head_repo="ada/repo",
    base_sha="b" * 40,
    base_ref="main",
    changed_files=3,
    changed_lines=100,
)


def config(text: str) -> Config:
    return load_config({".ptopt.toml": f"[pull-requests]\n{text}".encode()}, {})


def skipped(text: str = "", *, asked: bool = False, **changes: Any) -> str | None:
    return why_skipped(dataclasses.replace(PULL, **changes), config(text), requested=asked)


BOT = Actor(9, "renovate[bot]", is_bot=True)


def test_an_ordinary_pull_request_is_reviewed() -> None:
    assert skipped() is None
    assert why_skipped(PULL, Config()) is None


@pytest.mark.parametrize(
    ("text", "changes", "reason"),
    [
        ("", {"open": False}, "the pull request is closed"),
        ("enabled = false", {}, "reviews are switched off (`pull-requests.enabled`)"),
        ("", {"changed_files": 301}, "it changes 301 files, more than the 300 of `pull-requests.max-files`"),
        ("max-lines = 99", {}, "it changes 100 lines, more than the 99 of `pull-requests.max-lines`"),
    ],
)
@pytest.mark.parametrize("asked", [False, True])
def test_what_nobody_can_ask_for(text: str, changes: dict[str, Any], reason: str, asked: bool) -> None:
    assert skipped(text, asked=asked, **changes) == reason


@pytest.mark.parametrize(
    ("text", "changes", "reason"),
    [
        ("", {"draft": True}, "it is a draft (`pull-requests.drafts`)"),
        ("", {"author": BOT}, "a bot opened it (`pull-requests.bots`)"),
        ("skip-authors = ['ada']", {}, "its author is listed in `pull-requests.skip-authors`"),
        ("skip-labels = ['no-review']", {}, "it has a label listed in `pull-requests.skip-labels`"),
        (
            "bots = true\nskip-authors = ['Renovate[bot]']",
            {"author": BOT},
            "its author is listed in `pull-requests.skip-authors`",
        ),
    ],
)
def test_what_a_person_can_ask_for_all_the_same(text: str, changes: dict[str, Any], reason: str) -> None:
    assert skipped(text, **changes) == reason
    assert skipped(text, asked=True, **changes) is None


@pytest.mark.parametrize(
    ("text", "changes"),
    [
        ("drafts = true", {"draft": True}),
        ("bots = true", {"author": BOT}),
        ("max-files = 3\nmax-lines = 100", {}),
        ("skip-authors = ['bob']", {}),
        ("skip-labels = ['train']", {}),
    ],
)
def test_what_the_settings_let_in(text: str, changes: dict[str, Any]) -> None:
    assert skipped(text, **changes) is None


def test_the_operators_limits() -> None:
    limits = Limits(files=10, lines=1000, stranger_files=3, stranger_lines=100)
    assert not limits.of_strangers(PULL)
    assert limits.why_skipped(PULL, author_writes=False) is None
    larger = dataclasses.replace(PULL, changed_files=4)
    assert limits.of_strangers(larger)
    assert limits.why_skipped(larger, author_writes=True) is None
    assert limits.why_skipped(larger, author_writes=False) == (
        "it changes 4 files, more than the 3 that this service reviews of people without write access"
    )
    huge = dataclasses.replace(PULL, changed_lines=1001)
    assert limits.why_skipped(huge, author_writes=True) == (
        "it changes 1,001 lines, more than the 1,000 that this service reviews"
    )
