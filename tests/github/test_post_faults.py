from __future__ import annotations

import contextlib
import dataclasses
import random

import pytest

from fake_github import FakeGitHub
from fake_github.reviews import Review as PendingReview
from ptopt.change import Change, Hunk
from ptopt.config import Config
from ptopt.findings import Review, Span
from ptopt.github import markers
from ptopt.github.errors import AmbiguousError, GitHubError, RateLimitedError, RejectedError, SupersededError
from ptopt.github.post import Posted, PostOptions, post
from ptopt.project.facts import NO_FACTS
from ptopt.review import review_change
from tests.github.desk import BOT, BOTH, CLEAN, EXTRAS, ITEM, Desk
from tests.github.reviews import changed


@pytest.fixture
def desk(github: FakeGitHub) -> Desk:
    return Desk(github)


@pytest.mark.parametrize("fault", ["502-after", "500-after", "drop-after"])
def test_a_write_that_happened_all_the_same(desk: Desk, fault: str) -> None:
    desk.github.faults.add("POST", r"/reviews$", fault)
    posted = desk.post()
    assert [r.id for r in desk.pull.reviews] == [posted.review_id]
    assert len(posted.comments) == 1
    assert not posted.already_reviewed


@pytest.mark.parametrize(
    ("fault", "error"),
    [
        ("502", AmbiguousError),
        ("drop", AmbiguousError),
        ("secondary-limit", RateLimitedError),
        ("abuse", RateLimitedError),
    ],
)
def test_a_write_that_did_not_happen(desk: Desk, fault: str, error: type[Exception]) -> None:
    desk.github.faults.add("POST", r"/reviews$", fault)
    with pytest.raises(error):
        desk.post()
    assert desk.pull.reviews == []
    assert desk.post().review_id == desk.pull.reviews[0].id
    assert len(desk.pull.reviews) == 1


def test_broken_off_after_the_review(desk: Desk) -> None:
    desk.post()
    desk.push(BOTH.replace("print(loss.item())", "pass"))
    desk.github.faults.add("POST", r"/graphql$", "502", times=-1)
    with pytest.raises(Exception, match="502"):
        desk.post()
    desk.github.faults.clear()
    posted = desk.post()
    assert posted.already_reviewed
    assert posted.resolved == 1
    assert len(desk.pull.reviews) == 2


@pytest.mark.parametrize("seed", range(10))
def test_whatever_fails_each_thing_is_said_once(desk: Desk, seed: int) -> None:
    chance = random.Random(seed)
    options = dataclasses.replace(EXTRAS, check_run=chance.random() < 0.5)
    for text in chance.sample([ITEM, BOTH, CLEAN, "# changed\n" + ITEM, "# changed\n" + BOTH], 4):
        desk.push(text)
        for _ in range(2):
            method, path = chance.choice([("POST", "."), ("POST", r"/reviews$"), ("PUT", "."), ("GET", ".")])
            fault = chance.choice(["502", "502-after", "drop", "drop-after", "secondary-limit", "abuse"])
            desk.github.faults.add(method, path, fault, after=chance.randrange(3))
        for _ in range(10):
            with contextlib.suppress(GitHubError):
                desk.post(options=options)
                break
        desk.github.faults.clear()
        posted = desk.post(options=options)
        assert {f.rule for f, _ in posted.comments} == {f.rule for f in desk.look()[1].findings}
    heads = [mark for r in desk.pull.reviews if (mark := markers.first(r.body, "review"))]
    said = [mark for c in desk.pull.review_comments if (mark := markers.first(c.body, "finding"))]
    assert len(heads) == len(set(heads)) > 0
    assert len(said) == len(set(said)) == 2
    ids = [run.external_id for run in desk.pull.check_runs if run.head_sha == desk.pull.head_sha]
    assert len(ids) == len(set(ids)) == options.check_run


def far(desk: Desk) -> tuple[Change, Review]:
    """A look that takes the whole file for changed, so that its comment is off the pull request's diff."""
    data = desk.pull.repo.file("train.py", desk.pull.head_sha)
    assert data is not None
    change = Change((changed(data.decode()),), ())
    return change, review_change(change, config=Config(), facts=NO_FACTS)


FAR = "\n" * 30 + ITEM


@pytest.fixture
def refused(github: FakeGitHub) -> Desk:
    return Desk(github, "# changed\n" + FAR, FAR)


def test_comments_that_github_refuses_move_to_the_body(refused: Desk) -> None:
    posted = refused.post(*far(refused))
    (review,) = refused.pull.reviews
    assert refused.pull.review_comments == []
    assert posted == Posted(review.id, (), already_reviewed=False, resolved=0)
    assert [m.kind for m in markers.read(review.body)] == ["review", "finding"]
    assert "Findings on lines that GitHub takes no comment on:\n\n**[PTO101 item-every-step](<" in review.body
    assert refused.writes == 2
    assert refused.post(*far(refused)) == dataclasses.replace(posted, already_reviewed=True)
    refused.push("# changed again\n" + FAR)
    refused.post(*far(refused))
    assert len(refused.pull.reviews) == 1
    assert refused.writes == 2


def test_refused_on_a_later_push(desk: Desk) -> None:
    desk.post()
    desk.push(BOTH)
    change, review = desk.look()
    (new,) = (f for f in review.findings if f.rule == "PTO201")
    moved = dataclasses.replace(new, span=Span(200, 200), evidence=(), fix=None)
    long = dataclasses.replace(change.files[0], hunks=(Hunk(1, 300),))
    desk.post(Change((long,), ()), dataclasses.replace(review, findings=(moved,)))
    first, second = desk.pull.reviews
    assert (
        "ptopt: 1 new performance finding.\n\nFindings on lines that GitHub takes no comment on:\n"
        in second.body
    )
    assert "**[PTO201 " in second.body and " · `train.py:200`\n" in second.body
    assert "**[PTO201 " in first.body and " · `train.py:200`\n" in first.body
    assert desk.rules() == ["PTO101"]


def test_refused_because_the_head_moved(refused: Desk) -> None:
    look = far(refused)
    pull = refused.client.pull("octo/repo", refused.pull.number)

    def push() -> None:
        refused.push(CLEAN)

    with pytest.raises(SupersededError):
        post(refused.client, pull, *look, options=PostOptions(), before_write=push)
    assert refused.pull.reviews == []


def test_a_commit_that_is_no_longer_in_the_pull_request(desk: Desk) -> None:
    pull = dataclasses.replace(desk.client.pull("octo/repo", desk.pull.number), head_sha="0" * 40)
    with pytest.raises(SupersededError):
        post(desk.client, pull, *desk.look(), options=PostOptions(), before_write=lambda: None)
    assert desk.pull.reviews == []


def test_refused_for_another_reason(desk: Desk) -> None:
    account = desk.github.account(BOT)
    PendingReview.create(desk.pull, account, "", "PENDING", desk.pull.head_sha, [])
    with pytest.raises(RejectedError, match="one pending review"):
        desk.post()
    assert desk.writes == 2


def test_nothing_is_written_once_superseded(desk: Desk) -> None:
    def stop() -> None:
        raise SupersededError("a newer head")

    with pytest.raises(SupersededError):
        desk.post(before_write=stop)
    assert desk.pull.reviews == []
