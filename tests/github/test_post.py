from __future__ import annotations

import contextlib
import dataclasses
import random
from collections.abc import Callable, Iterator

import pytest

from ptopt.change import Change, Hunk
from ptopt.config import Config
from ptopt.findings import Review, Span
from ptopt.github import markers
from ptopt.github.auth import AppAuth, for_installation, for_token
from ptopt.github.client import GitHubClient
from ptopt.github.errors import AmbiguousError, GitHubError, RateLimitedError, RejectedError, SupersededError
from ptopt.github.post import Posted, PostOptions, post
from ptopt.github.reading import read_change
from ptopt.review import review_change
from ptopt.source.project import NO_FACTS
from tests.github.reviews import changed
from tests.standin import Pull, StandIn
from tests.standin.reviews import Review as PendingReview

BOT = "ptopt[bot]"
BASE = """\
import torch


def train(model, loader, optimizer, device):
    for x, y in loader:
        loss = model(x, y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
"""
ITEM = BASE.replace("def train", "def fit").replace(
    "        optimizer.step()\n", "        optimizer.step()\n        print(loss.item())\n"
)
BOTH = ITEM.replace(
    "        loss = model(x, y)\n",
    "        y = y + torch.zeros(y.shape).to(device)\n        loss = model(x, y)\n",
)
EXTRAS = PostOptions(check_run=True, sarif=True, ref="refs/pull/1/head")
CLEAN = BASE.replace("def train", "def fit")


class Desk:
    """A pull request on the stand-in, reviewed and posted as the service does it."""

    def __init__(self, github: StandIn, head: str = ITEM, base: str = BASE) -> None:
        self.github = github
        repo = github.repository("octo/repo", {"train.py": base.encode()})
        self.pull: Pull = repo.pull(files={"train.py": head.encode()})
        auth = AppAuth(github.url, github.app.id, github.app.private_key, seconds_between_writes=0)
        installation = repo.installation
        assert installation is not None
        self.client = for_installation(auth, installation.id)
        self.writes = 0

    def look(self, client: GitHubClient | None = None) -> tuple[Change, Review]:
        client = client or self.client
        change = read_change(client, client.pull("octo/repo", self.pull.number), Config())
        return change, review_change(change, config=Config(), facts=NO_FACTS)

    def post(
        self,
        change: Change | None = None,
        review: Review | None = None,
        *,
        client: GitHubClient | None = None,
        options: PostOptions = PostOptions(),  # noqa: B008 (a value)
        before_write: Callable[[], None] | None = None,
    ) -> Posted:
        client = client or self.client
        seen, found = self.look(client)
        pull = client.pull("octo/repo", self.pull.number)

        def count() -> None:
            self.writes += 1

        return post(
            client, pull, change or seen, review or found, options=options, before_write=before_write or count
        )

    def push(self, text: str) -> None:
        self.pull.push({"train.py": text.encode()})

    def rules(self) -> list[str]:
        marks = [markers.first(c.body, "finding") for c in self.pull.review_comments]
        return [mark.words[0] for mark in marks if mark is not None]


@pytest.fixture
def github() -> Iterator[StandIn]:
    with StandIn() as standin:
        yield standin


@pytest.fixture
def desk(github: StandIn) -> Desk:
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
    assert posted == Posted(review.id, posted.comments, already=False, resolved=0)
    assert desk.writes == 1


def test_no_finding_no_word(github: StandIn) -> None:
    desk = Desk(github, CLEAN)
    assert desk.post() == Posted(None, (), already=False, resolved=0)
    assert (desk.pull.reviews, desk.writes) == ([], 0)


def test_again_changes_nothing(desk: Desk) -> None:
    first = desk.post()
    again = desk.post()
    assert again == dataclasses.replace(first, already=True)
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
    assert desk.post() == dataclasses.replace(posted, already=True)
    assert desk.writes == 3


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
    assert "ptopt: nothing left: no performance findings in 1 file." in review.body
    writes = desk.writes
    assert desk.post().resolved == 0
    assert desk.writes == writes == 3


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_a_suggestion_that_is_accepted_is_gone(github: StandIn, end: str) -> None:
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
    assert "1 file not looked at" in desk.pull.reviews[0].body


def test_markers_of_strangers_count_for_nothing(desk: Desk) -> None:
    _, review = desk.look()
    mark = markers.finding("PTO101", review.findings[0].fingerprint)
    desk.pull.review_comment("mallory", "train.py", 10, f"{mark}\n\nmine")
    stranger = for_token(desk.github.user_token("mallory"), desk.github.url, seconds_between_writes=0)
    desk.post(client=stranger)  # the marker of the review, too
    posted = desk.post()
    assert not posted.already
    assert [r.author.login for r in desk.pull.reviews if r.body] == ["mallory", BOT]
    assert [c.author.login for _, c in posted.comments] == [BOT]
    desk.push(CLEAN)
    assert desk.post().resolved == 1
    assert [t.resolved for t in desk.pull.threads] == [False, True]


def test_two_findings_with_one_fingerprint_are_one_comment(desk: Desk) -> None:
    change, review = desk.look()
    desk.post(change, dataclasses.replace(review, findings=review.findings * 2))
    assert len(desk.pull.review_comments) == 1


# -- faults ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("fault", ["502-after", "500-after", "drop-after"])
def test_a_write_that_happened_all_the_same(desk: Desk, fault: str) -> None:
    desk.github.faults.add("POST", r"/reviews$", fault)
    posted = desk.post()
    assert [r.id for r in desk.pull.reviews] == [posted.review_id]
    assert len(posted.comments) == 1
    assert not posted.already


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
    assert posted.already
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
def refused(github: StandIn) -> Desk:
    return Desk(github, "# changed\n" + FAR, FAR)


def test_comments_that_github_refuses_move_to_the_body(refused: Desk) -> None:
    posted = refused.post(*far(refused))
    (review,) = refused.pull.reviews
    assert refused.pull.review_comments == []
    assert posted == Posted(review.id, (), already=False, resolved=0)
    assert [m.kind for m in markers.read(review.body)] == ["review", "finding"]
    assert "Without a comment on their lines:\n\n`train.py:41` PTO101 item-every-step: " in review.body
    assert refused.writes == 2
    assert refused.post(*far(refused)) == dataclasses.replace(posted, already=True)
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
    assert "ptopt: 1 new performance finding.\n\nWithout a comment on their lines:\n" in second.body
    assert "`train.py:200` PTO201" in second.body
    assert "`train.py:200` PTO201" in first.body
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
