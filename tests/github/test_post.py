from __future__ import annotations

import dataclasses
from types import SimpleNamespace

import pytest

from fake_github import FakeGitHub
from fake_github.http import Answer, ApiError
from fake_github.rest import checks
from ptopt.github import markers
from ptopt.github.auth import for_token
from ptopt.github.comment import offers
from ptopt.github.post import Posted
from tests.github.desk import BASE, BOT, BOTH, CLEAN, EXTRAS, ITEM, Desk
from tests.github.reviews import finding, reviewed


@pytest.fixture
def desk(github: FakeGitHub) -> Desk:
    return Desk(github)


def test_the_first_review(desk: Desk) -> None:
    posted = desk.post()
    (review,) = desk.pull.reviews
    (comment,) = desk.pull.review_comments
    assert review.author.login == BOT
    assert (review.state, review.commit_id) == ("COMMENTED", desk.pull.head_sha)
    assert markers.read(review.body) == (markers.review(desk.pull.head_sha),)
    assert "ptopt: 1 performance finding in 1 file." in review.body
    assert (comment.path, comment.place[1]) == ("train.py", 10)
    ((finding, told),) = posted.comments
    assert finding.rule == "PTO101"
    assert told.id == comment.id
    assert posted == Posted(review.id, posted.comments, already_reviewed=False, resolved=0)
    assert desk.writes == 1


def test_no_finding_no_word(github: FakeGitHub) -> None:
    desk = Desk(github, CLEAN)
    assert desk.post() == Posted(None, (), already_reviewed=False, resolved=0)
    assert (desk.pull.reviews, desk.writes) == ([], 0)


def test_again_changes_nothing(desk: Desk) -> None:
    first = desk.post()
    again = desk.post()
    assert again == dataclasses.replace(first, already_reviewed=True)
    assert len(desk.pull.reviews) == 1
    assert desk.writes == 1


def test_a_push_brings_only_what_is_new(desk: Desk) -> None:
    desk.post()
    desk.push(BOTH)
    posted = desk.post()
    first, second = desk.pull.reviews
    assert "ptopt: 2 performance findings in 1 file." in first.body
    assert markers.read(first.body) == (markers.review(first.commit_id),)
    assert second.body == f"<!-- ptopt:review {desk.pull.head_sha} -->\n\nptopt: 1 new performance finding.\n"
    assert desk.rules() == ["PTO101", "PTO201"]
    assert {f.rule for f, _ in posted.comments} == {"PTO101", "PTO201"}
    assert posted.review_id == second.id
    assert desk.post() == dataclasses.replace(posted, already_reviewed=True)
    assert desk.writes == 3


def test_a_suggestion_that_can_still_be_accepted_comes_first(desk: Desk) -> None:
    """A better one for the same lines is shown without a button, unless the old one is outdated."""
    worse = finding(ITEM, "        print(loss.item())\n", "", fingerprint="a")
    change, _ = desk.look()
    desk.post(change, reviewed(worse, source=ITEM))
    longer, changed = "# more\n" + ITEM, ITEM.replace("print(", "print(1, ")
    for name, other, free in (("b", longer, False), ("c", changed, True)):
        desk.push(other)
        change, _ = desk.look()
        end = other[other.index("        optimizer.step()") :]
        better = finding(other, end, end.replace("step()", "step(None)"), fingerprint=name)
        desk.post(change, reviewed(better, worse, source=other))
        assert offers(desk.pull.review_comments[-1].body) is free
    assert len(desk.pull.review_comments) == 3 and offers(desk.pull.review_comments[0].body)


def test_a_push_without_news_is_silent(desk: Desk) -> None:
    first = desk.post()
    desk.push("# a comment\n" + ITEM)
    posted = desk.post()
    assert len(desk.pull.reviews) == 1
    assert desk.writes == 1
    assert posted.review_id is None
    assert [c.id for _, c in posted.comments] == [c.id for _, c in first.comments]


def test_what_is_gone_is_resolved_and_the_summary_says_so_once(desk: Desk) -> None:
    desk.post()
    desk.push(CLEAN)
    assert desk.post().resolved == 1
    (thread,) = desk.pull.threads
    assert thread.resolved
    (review,) = desk.pull.reviews
    assert "ptopt: all findings resolved: no performance findings in 1 file." in review.body
    writes = desk.writes
    assert desk.post().resolved == 0
    assert desk.writes == writes == 3


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_a_suggestion_that_is_accepted_is_gone(github: FakeGitHub, end: str) -> None:
    base, head = (text.replace("    ", "\t").replace("\n", end) for text in (BASE, BOTH))
    desk = Desk(github, head, base)
    desk.post()
    comment = next(c for c in desk.pull.review_comments if "```suggestion" in c.body)
    desk.pull.accept(comment.id, "dev")
    wanted = head.replace("torch.zeros(y.shape).to(device)", "torch.zeros(y.shape, device=device)")
    assert desk.pull.repo.file("train.py", desk.pull.head_sha) == wanted.encode()
    writes = desk.writes
    desk.post()
    assert [t.resolved for t in desk.pull.threads] == [
        t.comments[0].id == comment.id for t in desk.pull.threads
    ]
    assert desk.writes == writes + 1  # the summary; GitHub itself resolves the thread


def test_a_thread_in_which_a_person_spoke_stays_open(desk: Desk) -> None:
    desk.post()
    desk.pull.reply("dev", desk.pull.review_comments[0].id, "on purpose")
    desk.push(CLEAN)
    assert desk.post().resolved == 0
    assert not desk.pull.threads[0].resolved


def test_what_was_not_looked_at_is_not_gone(desk: Desk) -> None:
    desk.post()
    desk.push(ITEM + "def broken(:\n")
    assert desk.post().resolved == 0
    assert "1 file not reviewed" in desk.pull.reviews[0].body


def test_markers_of_strangers_count_for_nothing(desk: Desk) -> None:
    _, review = desk.look()
    mark = markers.finding("PTO101", review.findings[0].fingerprint)
    desk.pull.review_comment("mallory", "train.py", 10, f"{mark}\n\nmine")
    stranger = for_token(desk.github.user_token("mallory"), desk.github.url, seconds_between_writes=0)
    desk.post(client=stranger)  # the marker of the review, too
    posted = desk.post()
    assert not posted.already_reviewed
    assert [r.author.login for r in desk.pull.reviews if r.body] == ["mallory", BOT]
    assert [c.author.login for _, c in posted.comments] == [BOT]
    desk.push(CLEAN)
    assert desk.post().resolved == 1
    assert [t.resolved for t in desk.pull.threads] == [False, True]


def test_two_findings_with_one_fingerprint_are_one_comment(desk: Desk) -> None:
    change, review = desk.look()
    posted = desk.post(change, dataclasses.replace(review, findings=review.findings * 2))
    assert len(desk.pull.review_comments) == len(posted.comments) == 1


# -- besides the review ------------------------------------------------------------------------------------------


def test_check_run_and_code_scanning(desk: Desk) -> None:
    desk.post(options=EXTRAS)
    desk.post(options=EXTRAS)
    (run,) = desk.pull.check_runs
    assert (run.conclusion, run.title) == ("neutral", "1 performance finding in 1 file")
    assert [a["start_line"] for a in run.annotations] == [10]
    sarif = desk.pull.repo.sarifs[0]
    assert (sarif.commit_sha, sarif.ref) == (desk.pull.head_sha, EXTRAS.ref)
    assert [r["ruleId"] for r in sarif.data["runs"][0]["results"]] == ["PTO101"]


def test_a_missing_permission_costs_only_the_extras(desk: Desk) -> None:
    token = desk.github.token("octo/repo", {"contents": "read", "pull_requests": "write"})
    client = for_token(token, desk.github.url, seconds_between_writes=0)
    posted = desk.post(client=client, options=EXTRAS)
    assert [r.author.login for r in desk.pull.reviews] == ["github-actions[bot]"]
    assert len(posted.comments) == 1
    assert [note.split(":")[0] for note in posted.notes] == [
        "could not create the check run",
        "could not upload to code scanning",
    ]


def test_what_is_too_large_for_code_scanning_costs_only_that(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_data: bytes) -> bytes:
        error = ApiError(413, "")
        error.answer = Answer(None, 413)
        raise error

    monkeypatch.setattr(checks, "gzip", SimpleNamespace(decompress=refuse))  # the fake GitHub's side of it
    posted = desk.post(options=EXTRAS)
    assert len(desk.pull.reviews) == 1
    (note,) = posted.notes
    assert note.startswith("could not upload to code scanning: ") and "413" in note
