"""The comment on what a full review found beside the change."""

from __future__ import annotations

import dataclasses

import pytest
from markdown_it import MarkdownIt

from fake_github import FakeGitHub
from ptopt.findings import Finding
from ptopt.github import markers, outside_diff
from ptopt.github.comment import LIMIT, size
from ptopt.github.errors import SupersededError
from tests.github.desk import BOT, Desk
from tests.github.reviews import HOSTILE, SOURCE, finding

SHA = "abcdef1" + "0" * 33


def found(path: str = "train.py", message: str = "It waits.") -> Finding:
    return dataclasses.replace(finding(SOURCE, "total += loss.item()", "pass"), path=path, message=message)


def test_nothing_else() -> None:
    text = outside_diff.body(SHA, [])
    assert markers.read(text) == (markers.full(SHA),)
    assert text.endswith("at `abcdef1`.\n\nNo findings outside the diff.\n")


def test_the_list_is_bounded() -> None:
    text = outside_diff.body(SHA, [found(f"{n}.py") for n in range(25)])
    assert "25 findings" in text and "- … and 5 more" in text
    assert text.count("item-every-step") == 20
    long = [found("\N{FIRE}" * 5_000, "@#<&" * 5_000)] * 25
    assert size(outside_diff.body(SHA, long)) < LIMIT


def test_what_it_quotes_is_shown_as_it_is() -> None:
    text = outside_diff.body(SHA, [found(HOSTILE, HOSTILE)])
    assert markers.read(text) == (markers.full(SHA),)
    (line,) = (line for line in text.splitlines() if "item-every-step" in line)
    assert text.splitlines()[-1] == line and line.startswith("- `")
    rendered = MarkdownIt("gfm-like", {"linkify": False}).render(text.partition("\n")[2])
    quoted = rendered.partition("item-every-step")[2]
    assert "<img" not in rendered and "<a " not in rendered and "<details" not in rendered
    assert "@torvalds" not in quoted and "#1" not in quoted and "https://" not in quoted


def test_it_is_found_again_and_kept_as_it_should_be(fake_github: FakeGitHub) -> None:
    desk = Desk(fake_github)
    pull, checks = desk.client.pull("octo/repo", desk.pull.number), []

    def tell(*findings: Finding) -> None:
        comments = desk.client.issue_comments("octo/repo", desk.pull.number)
        outside_diff.update(desk.client, pull, findings, comments, lambda: checks.append(1))

    desk.pull.comment("mallory", f"{markers.full(pull.head_sha)}\nFine.")
    tell(found())
    tell(found())
    _, ours = desk.pull.issue_comments
    assert ours.author.login == BOT and "1 finding" in ours.body
    assert len(checks) == 1
    tell()
    assert "No findings outside" in ours.body and len(desk.pull.issue_comments) == 2
    assert len(checks) == 2


def test_nothing_is_written_when_it_is_not_wanted(fake_github: FakeGitHub) -> None:
    desk = Desk(fake_github)

    def stop() -> None:
        raise SupersededError("a newer head")

    with pytest.raises(SupersededError):
        outside_diff.update(desk.client, desk.client.pull("octo/repo", desk.pull.number), [found()], [], stop)
    assert desk.pull.issue_comments == []
