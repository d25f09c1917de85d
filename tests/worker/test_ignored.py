"""What is ignored in a pull request is heard of nowhere, and is not called resolved."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from fake_github import FakeGitHub, Pull
from fake_github.repos import Repo
from ptopt.github import markers
from tests.worker.pulls import SLOW
from tests.worker.service import Service

EXAMPLE = Path(__file__).parents[2] / "examples" / "pull-request"


@pytest.fixture
def pull(service: Service, repo: Repo, tmp_path: Path) -> Pull:
    """That of the demonstration, reviewed."""
    head = {path.name: path.read_bytes() for path in (EXAMPLE / "head").iterdir() if path.is_file()}
    for name, text in head.items():
        (tmp_path / name).write_bytes(text)
    subprocess.run(["git", "apply", "-R", str(EXAMPLE / "change.patch")], cwd=tmp_path, check=True)
    repo.commit("main", {path.name: path.read_bytes() for path in tmp_path.iterdir() if path.is_file()})
    pull = repo.pull(files=head, author="dev")
    service.catch_up()
    return pull


def rules(pull: Pull) -> list[str]:
    found = (markers.first(c.body, "finding") for c in pull.review_comments)
    return [marker.words[0] for marker in found if marker is not None]


def on(pull: Pull, rule: str) -> int:
    return next(c.id for c in pull.review_comments if f"ptopt:finding {rule} " in c.body)


def test_an_ignored_finding_does_not_come_back_as_a_part_of_another(service: Service, pull: Pull) -> None:
    """Being ignored counts against its rule, so that another rule on the same code may rank before it."""
    assert "PTO503" in next(c.body for c in pull.review_comments if c.id == on(pull, "PTO501"))
    pull.reply("dev", on(pull, "PTO501"), "/ptopt ignore here")
    service.catch_up()
    before = rules(pull)
    pull.comment("dev", "/ptopt review --full")
    service.catch_up()
    written = [r.body for r in pull.reviews] + [c.body for c in pull.issue_comments]
    assert not any("PTO501" in text or "PTO503" in text for text in written)
    assert "takes no comment on" not in "".join(written)
    # Its place in the budget goes to the next best, which gets a comment though the head had a review.
    assert rules(pull) == [*before, "PTO101"]
    assert written[-1].endswith("5 findings, see the review. No findings outside the diff.\n")
    assert not any(markers.first(c.body, "full") for c in pull.issue_comments)
    service.twice()
    assert rules(pull) == [*before, "PTO101"]


@pytest.mark.parametrize("fault", ["502", "502-after"])
def test_a_full_review_whose_outcome_is_not_known_is_posted_once(
    service: Service, github: FakeGitHub, pull: Pull, fault: str
) -> None:
    """The review that the head has already is not taken for it."""
    pull.reply("dev", on(pull, "PTO501"), "/ptopt ignore here")
    service.catch_up()
    before = rules(pull)
    github.faults.add("POST", r"/pulls/\d+/reviews$", fault, times=1)
    pull.comment("dev", "/ptopt review --full")
    service.catch_up()
    assert rules(pull) == [*before, "PTO101"]


def test_a_deleted_comment_is_not_told_in_the_review(service: Service, repo: Repo) -> None:
    pull = repo.pull(files={"train.py": SLOW}, author="dev")
    service.catch_up()
    pull.delete_comment("dev", pull.review_comments[0].id)
    pull.close(login="dev")
    pull.reopen("dev")
    service.catch_up()
    assert "takes no comment on" not in pull.reviews[0].body


def test_what_is_ignored_is_not_resolved(service: Service, pull: Pull) -> None:
    for rule in rules(pull)[1:]:
        pull.reply("dev", on(pull, rule), "/ptopt ignore here")
    pull.comment("dev", "/ptopt ignore PTO101")
    service.catch_up()
    pull.accept(on(pull, "PTO501"), "dev")
    service.catch_up()
    (first, *_) = [r.body for r in pull.reviews]
    assert "all findings resolved" not in first
    assert (
        "No performance findings in 2 files but for what is ignored here, which `/ptopt status` counts."
        in first
    )
    pull.comment("dev", "/ptopt status")
    service.catch_up()
    assert "- Findings: 0 open, 1 resolved, 4 ignored." in pull.issue_comments[-1].body


def test_fixes_that_assume_something_have_a_next_step(service: Service, pull: Pull) -> None:
    pull.reply("dev", on(pull, "PTO901"), "/ptopt fix")
    pull.reply("dev", on(pull, "PTO401"), "/ptopt fix")
    service.catch_up()
    assumes, unfixable = (c.body for c in pull.review_comments if "Nothing was committed" in c.body)
    assert "Where an assumption holds: `Commit suggestion`" in assumes and "ptopt fix --unsafe" in assumes
    assert "assumption holds" not in unfixable
