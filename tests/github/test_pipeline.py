"""A review from end to end: what is looked at, what is written, and when nothing is."""

from __future__ import annotations

import pytest

from fake_github import FakeGitHub, Request, Response
from fake_github.pulls import Pull
from fake_github.repos import Repo
from ptopt.github import markers
from ptopt.github.auth import AppAuth, for_installation, for_token
from ptopt.github.client import GitHubClient
from ptopt.github.errors import SupersededError
from ptopt.github.filters import Limits
from ptopt.github.pipeline import Outcome, PreparedReview, post_prepared, prepare_review, review_pull
from ptopt.project.around import MOST_FILES
from ptopt.rules import find_rule

SLOW = b"""\
import torch


def train(model, loader, optimizer, device):
    total = 0.0
    for images, labels in loader:
        images, labels = images.to(device), labels.to(device)
        loss = torch.nn.functional.cross_entropy(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.item()
    return total
"""
FAST = SLOW.replace(b"        total += loss.item()\n", b"        total += loss.detach()\n")
CLEAN = b"import torch\n\nprint(torch.__version__)\n"


@pytest.fixture
def repo(github: FakeGitHub) -> Repo:
    return github.repository("octo/models", {"train.py": FAST, "README.md": b"# Models\n"})


@pytest.fixture
def client(github: FakeGitHub, repo: Repo) -> GitHubClient:
    auth = AppAuth(github.url, github.app.id, github.app.private_key, seconds_between_writes=0)
    assert repo.installation is not None
    return for_installation(auth, repo.installation.id)


def nothing() -> None:
    """A lease that holds."""


def review(client: GitHubClient, pull: Pull, **more: object) -> Outcome:
    return review_pull(client, pull.repo.full_name, pull.number, before_write=nothing, **more)  # type: ignore[arg-type]


def writes(github: FakeGitHub) -> list[str]:
    """What was written about pull requests: no tokens, no GraphQL."""
    return [
        f"{request.method} {request.path}"
        for request in github.requests
        if request.method not in ("GET", "HEAD") and "/repos/" in request.path
    ]


def test_a_finding_is_posted_once(github: FakeGitHub, repo: Repo, client: GitHubClient) -> None:
    pull = repo.pull("mallory:slow", author="mallory", files={"train.py": SLOW})
    outcome = review(client, pull, head_sha=pull.head_sha)
    assert outcome.status == "posted" and outcome.reason == ""
    (comment,) = pull.review_comments
    assert (comment.path, comment.start_line, comment.line) == ("train.py", 12, 13)
    assert outcome.posted is not None and not outcome.posted.already_reviewed
    assert outcome.review is not None
    assert [finding.name for finding in outcome.review.findings] == ["item-every-step"]
    again = review(client, pull)
    assert again.posted is not None and again.posted.already_reviewed
    assert len(pull.review_comments) == len(pull.reviews) == 1


def test_a_typical_review_is_few_requests(github: FakeGitHub, repo: Repo, client: GitHubClient) -> None:
    repo.commit("main", {"requirements.txt": b"torch==2.6.0\n", "pyproject.toml": b"[project]\nname = 'm'\n"})
    pull = repo.pull(files={"train.py": SLOW, "more.py": CLEAN, "README.md": b"# Faster\n"})
    client.identity()
    client.token()
    before = len(github.requests)
    prepared = prepare_review(client, repo.full_name, pull.number)
    assert isinstance(prepared, PreparedReview)
    assert [r.method for r in github.requests[before:]] == ["GET"] * 12
    assert post_prepared(client, prepared, before_write=nothing).status == "posted"
    assert len(github.requests) - before <= 16
    # What has a SHA is read once: of another one on the same base, its own files and the head's tree.
    another = repo.pull(files={"train.py": SLOW, "third.py": CLEAN + b"\n"})
    before = len(github.requests)
    assert review(client, another).status == "posted"
    assert len(github.requests) - before <= 11


def test_files_around_the_change_are_read(github: FakeGitHub, repo: Repo, client: GitHubClient) -> None:
    repo.commit("main", {f"lib/part{n}.py": b"x = %d\n" % n for n in range(50)} | {"lib/data.bin": b"\0"})
    pull = repo.pull(files={"lib/train.py": SLOW})
    before = len(github.requests)
    outcome = review(client, pull)
    assert outcome.change is not None
    assert len(outcome.change.around) == MOST_FILES
    assert sum(path.startswith("lib/part") for path in outcome.change.around) >= MOST_FILES - 2
    paths = [request.path for request in github.requests[before:]]
    # The head, and the README, as nothing else names a torch.
    assert sum("/git/blobs/" in path for path in paths) == 2
    assert sum(path == "/graphql" for path in paths) == 1


def test_reads_do_not_wait_for_each_other(github: FakeGitHub, repo: Repo, client: GitHubClient) -> None:
    pull = repo.pull(files={f"{n}.py": SLOW + b"# %d\n" % n for n in range(6)})
    client.identity()
    at_work, most = 0, 0

    def count(request: Request, response: Response) -> None:
        nonlocal at_work
        at_work -= 1

    def delay() -> float:
        nonlocal at_work, most
        at_work += 1
        most = max(most, at_work)
        return 0.1

    github.delay = delay
    github.checks.append(count)
    assert review(client, pull).status == "posted"
    assert 4 <= most <= 14  # the heads, beside the versions
    assert at_work == 0


def test_no_finding_no_word(github: FakeGitHub, repo: Repo, client: GitHubClient) -> None:
    pull = repo.pull(files={"clean.py": CLEAN})
    outcome = review(client, pull)
    assert (outcome.status, writes(github)) == ("silent", [])
    assert outcome.change is not None and outcome.change.files


@pytest.mark.parametrize(
    ("settings", "options", "reason"),
    [
        (b"enabled = false", {}, "switched off"),
        (b"max-files = 1", {}, "changes 2 files"),
        (b"max-lines = 3", {}, "more than the 3"),
        (b"", {"draft": True}, "a draft"),
        (b"skip-labels = ['wip']", {"labels": ["wip"]}, "has a label"),
        (b"skip-authors = ['dev']", {}, "its author"),
        (b"", {"author": "renovate[bot]"}, "a bot"),
    ],
)
def test_what_the_base_branch_leaves_out(
    github: FakeGitHub,
    repo: Repo,
    client: GitHubClient,
    settings: bytes,
    options: dict[str, object],
    reason: str,
) -> None:
    repo.commit("main", {".ptopt.toml": b"[pull-requests]\n" + settings})
    mine = {".ptopt.toml": b"[pull-requests]\ndrafts = true\nbots = true\n"}
    pull = repo.pull(files={"train.py": SLOW, **mine}, **options)  # type: ignore[arg-type]
    outcome = review(client, pull)
    assert (outcome.status, writes(github)) == ("skipped", [])
    assert reason in outcome.reason


def test_limits_of_the_operator_count_whatever_the_repository_sets(
    github: FakeGitHub, repo: Repo, client: GitHubClient
) -> None:
    repo.commit("main", {".ptopt.toml": b"[pull-requests]\nmax-lines = 1000000\n"})
    repo.permission("dev", "write")
    mine = repo.pull(files={"train.py": SLOW}, author="dev")
    theirs = repo.pull("mallory:slow", author="mallory", files={"train.py": SLOW})
    limits = Limits(files=10, lines=10, stranger_files=10, stranger_lines=1)
    assert review(client, mine, limits=limits).status == "posted"
    outcome = review(client, theirs, limits=limits, requested=True)
    assert outcome.status == "skipped"
    assert "more than the 1 that this service reviews of people without write access" in outcome.reason
    small = Limits(files=10, lines=1, stranger_files=10, stranger_lines=1)
    assert review(client, mine, limits=small).status == "skipped"


def test_a_closed_pull_request(github: FakeGitHub, repo: Repo, client: GitHubClient) -> None:
    pull = repo.pull(files={"train.py": SLOW})
    prepared = prepare_review(client, repo.full_name, pull.number)
    pull.close()
    assert isinstance(prepared, PreparedReview)
    assert post_prepared(client, prepared, before_write=nothing).status == "superseded"
    assert review(client, pull).status == "skipped"
    assert writes(github) == []


def test_another_head(github: FakeGitHub, repo: Repo, client: GitHubClient) -> None:
    pull = repo.pull(files={"train.py": SLOW})
    old = pull.head_sha
    pull.push({"more.py": CLEAN})
    outcome = review(client, pull, head_sha=old)
    assert (outcome.status, outcome.reason) == ("superseded", f"the head is now {pull.head_sha}")
    assert len(github.requests) <= 3


@pytest.mark.parametrize("moment", ["/files", "/git/blobs/", "/git/trees/", "/reviews"])
def test_a_push_while_it_is_reviewed(
    github: FakeGitHub, repo: Repo, client: GitHubClient, moment: str
) -> None:
    pull = repo.pull(files={"train.py": SLOW})
    pushes = [{"train.py": b"# pushed\n" + SLOW}]

    def push(request: Request, response: Response) -> None:
        if moment in request.path and pushes:
            pull.push(pushes.pop())

    github.checks.append(push)
    outcome = review(client, pull)
    assert (outcome.status, writes(github)) == ("superseded", [])
    assert review(client, pull).status == "posted"


def test_a_lost_lease_stops_before_the_write(github: FakeGitHub, repo: Repo, client: GitHubClient) -> None:
    def lost() -> None:
        raise SupersededError("the lease is lost")

    pull = repo.pull(files={"train.py": SLOW})
    outcome = review_pull(client, repo.full_name, pull.number, before_write=lost)
    assert (outcome.status, outcome.reason) == ("superseded", "the lease is lost")
    assert writes(github) == []


def answer(pull: Pull, *effects: str, login: str) -> None:
    pull.comment(login, f"{markers.answer(1, 'x', *effects)}\nDone.")


def test_paused_by_a_command_of_ours(github: FakeGitHub, repo: Repo, client: GitHubClient) -> None:
    pull = repo.pull(files={"train.py": SLOW}, draft=False)
    answer(pull, "pause", login=github.app.login)
    assert review(client, pull).status == "paused"
    assert review(client, pull, requested=True).status == "posted"


def test_ignored_by_a_command_of_ours_and_of_nobody_else(
    github: FakeGitHub, repo: Repo, client: GitHubClient
) -> None:
    rule = find_rule("item-every-step")
    assert rule is not None
    stranger = repo.pull("stranger", files={"train.py": SLOW})
    ours = repo.pull("ours", files={"train.py": SLOW})
    answer(stranger, f"ignore={rule.id}", login="mallory")
    answer(ours, f"ignore={rule.id}", login=github.app.login)
    assert review(client, ours).status == "silent"
    assert review(client, stranger).status == "posted"
    (comment,) = stranger.review_comments
    mark = markers.first(comment.body, "finding")
    assert mark is not None
    muted = repo.pull("muted", files={"train.py": SLOW})
    assert review(client, muted, muted={mark.words[1]}).status == "silent"


def test_a_draft_that_a_person_asks_for_with_all_that_is_in_its_files(
    repo: Repo, client: GitHubClient
) -> None:
    repo.commit("main", {"train.py": SLOW})
    pull = repo.pull(files={"train.py": SLOW + b"\n\nDONE = True\n"}, draft=True)
    assert review(client, pull).status == "skipped"
    outcome = review(client, pull, requested=True, full=True)
    assert outcome.status == "silent"
    assert [finding.name for finding in outcome.outside_diff] == ["item-every-step"]


# --- settings that cannot be used


def settings_comments(pull: Pull) -> list[str]:
    return [c.body for c in pull.issue_comments if markers.first(c.body, "config")]


def test_settings_that_the_pull_request_brings(github: FakeGitHub, repo: Repo, client: GitHubClient) -> None:
    pull = repo.pull("mallory:conf", files={"train.py": SLOW, ".ptopt.toml": b"buget = 1\n"})
    assert review(client, pull).status == "posted"
    (text,) = settings_comments(pull)
    assert "unknown key 'buget'" in text and "makes the configuration invalid" in text
    review(client, pull)
    assert settings_comments(pull) == [text]
    pull.push({".ptopt.toml": b"budget = -1\n"})
    review(client, pull)
    (edited,) = settings_comments(pull)
    assert "budget: -1 is not allowed" in edited and "buget" not in edited
    pull.push({".ptopt.toml": b"budget = 1\n"})
    review(client, pull)
    (repaired,) = settings_comments(pull)
    assert "is valid again" in repaired
    before = len(writes(github))
    review(client, pull)
    assert len(writes(github)) == before


def test_broken_settings_of_the_base_branch(repo: Repo, client: GitHubClient) -> None:
    repo.commit("main", {".ptopt.toml": b"budget = 0\nselct = []\n"})
    pull = repo.pull(files={"train.py": SLOW})
    outcome = review(client, pull)
    assert outcome.status == "posted"  # with the default budget
    (text,) = settings_comments(pull)
    assert "unknown key 'selct'" in text and "reviewed with the defaults" in text


def test_a_comment_of_somebody_else_is_not_taken_for_ours(repo: Repo, client: GitHubClient) -> None:
    pull = repo.pull(files={"clean.py": CLEAN})
    pull.comment("mallory", f"{markers.config()}\nFine.")
    review(client, pull)
    assert len(settings_comments(pull)) == 1


def test_a_token_that_may_not_comment_on_the_conversation(github: FakeGitHub, repo: Repo) -> None:
    permissions = {"contents": "read", "pull_requests": "write"}
    pull = repo.pull(files={"train.py": SLOW, ".ptopt.toml": b"buget = 1\n"})
    api = for_token(github.token(repo, permissions), github.url, seconds_between_writes=0)
    github.faults.add("POST", r"/issues/\d+/comments$", "expired-token", times=-1)
    outcome = review(api, pull)
    assert outcome.status == "posted"
    assert outcome.posted is not None
    assert any("could not comment on the settings" in note for note in outcome.posted.notes)
    assert len(pull.review_comments) == 1
