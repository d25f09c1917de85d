"""Every request that the clients can make is one that GitHub describes, on github.com and on an enterprise server."""

from __future__ import annotations

import inspect
import json
import urllib.request
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest

from fake_github import FakeGitHub, Pull, Repo
from fake_github.conformance import OpenAPICheck
from fake_github.graphqlcheck import GraphQLCheck
from ptopt.github.app import AppClient, convert_manifest
from ptopt.github.auth import AppAuth, for_installation, for_token
from ptopt.github.client import GitHubClient
from ptopt.github.errors import ForbiddenError, GitHubError, NotFoundError, RejectedError
from ptopt.github.values import Annotation, CheckRun, CommentDraft, ReviewDraft

HEAD = {
    "pkg/train.py": b"import torch\n\nfor batch in loader:\n    loss.item()\n    print(batch)\n",
    "b.bin": b"\0\1",
}


class Recorder:
    """Hands calls on to a client and remembers which methods were used."""

    def __init__(self, client: object) -> None:
        self._client = client
        self.used: set[str] = set()

    def __getattr__(self, name: str) -> Any:
        self.used.add(name)
        return getattr(self._client, name)

    def unused(self) -> set[str]:
        methods = inspect.getmembers(type(self._client), inspect.isfunction)
        return {name for name, _ in methods if not name.startswith("_")} - self.used


@pytest.fixture(params=["api.github.com", "ghes-3.17"])
def github(request: pytest.FixtureRequest) -> Iterator[FakeGitHub]:
    with FakeGitHub(checks=[OpenAPICheck(request.param), GraphQLCheck()]) as github:
        yield github


@pytest.fixture
def repo(github: FakeGitHub) -> Repo:
    return github.repository("octo/models", {"pkg/train.py": b"import torch\n", "README.md": b"# x\n"})


@pytest.fixture
def pull(repo: Repo) -> Pull:
    return repo.pull("feature/fast", files=HEAD, title="Faster", labels=["perf"], body="Text")


@pytest.fixture
def auth(github: FakeGitHub) -> AppAuth:
    return AppAuth(github.url, github.app.id, github.app.private_key, seconds_between_writes=0)


@pytest.fixture
def client(auth: AppAuth, repo: Repo) -> Any:
    assert repo.installation
    return Recorder(for_installation(auth, repo.installation.id))


def draft(pull: Pull, comments: int = 2) -> ReviewDraft:
    drafts = (
        CommentDraft("pkg/train.py", 4, 3, "a range"),
        *[CommentDraft("pkg/train.py", 4, None, "a line")] * (comments - 1),
    )
    return ReviewDraft(pull.head_sha, "The summary", drafts)


def test_every_method_of_the_client(client: Any, repo: Repo, pull: Pull) -> None:
    name, number = repo.full_name, pull.number
    assert client.identity() == "ptopt[bot]"
    assert client.token() and client.clone_url(name).endswith("/octo/models.git")
    found = client.pull(name, number)
    assert (found.head_sha, found.base_ref, found.labels) == (pull.head_sha, "main", ("perf",))
    files = {file.path: file for file in client.pull_files(name, number)}
    assert set(files) == set(HEAD) and files["b.bin"].patch is None
    assert client.merge_base(name, found.base_sha, found.head_sha) == pull.merge_base
    assert {entry.path for entry in client.tree(name, found.head_sha)} == {"pkg", "b.bin", "README.md"}
    assert client.blob(name, files["pkg/train.py"].blob_sha, 10_000) == HEAD["pkg/train.py"]
    shas = [files[path].blob_sha for path in ("b.bin", "pkg/train.py")]
    assert client.text_blobs(name, [*shas, "0" * 40]) == {shas[1]: HEAD["pkg/train.py"]}
    assert client.file(name, "pkg/train.py", found.head_sha) == HEAD["pkg/train.py"]
    assert client.file(name, "pkg", found.head_sha) is None
    assert client.file(name, "pkg/none.py", found.head_sha) is None

    review = client.create_review(name, number, draft(pull))
    client.edit_review(name, number, review.id, "The summary, edited")
    assert [each.body for each in client.reviews(name, number)] == ["The summary, edited"]
    comments = client.review_comments(name, number)
    assert [(each.line, each.review_id) for each in comments] == [(4, review.id)] * 2
    assert client.reply(name, number, comments[0].id, "An answer").in_reply_to == comments[0].id
    client.edit_review_comment(name, comments[0].id, "Better words")
    assert client.review_comments(name, number)[0].body == "Better words"
    said = client.create_issue_comment(name, number, "Hello")
    client.edit_issue_comment(name, said.id, "Hello again")
    assert [each.body for each in client.issue_comments(name, number)] == ["Hello again"]
    for where, comment_id in (("issue", said.id), ("review", comments[0].id)):
        client.react(name, where, comment_id, "eyes")
        client.react(name, where, comment_id, "eyes")
        assert [each.content for each in client.reactions(name, where, comment_id)] == ["eyes"]
    client.delete_issue_comment(name, said.id)

    threads = client.threads(name, number)
    assert [len(thread.comments) for thread in threads] == [2, 1]
    client.resolve_thread(threads[0].id)
    assert [each.resolved for each in client.threads(name, number)] == [True, False]
    found_threads = client.responses(name, number).threads
    assert [(each.resolved, [r.content for r in each.reactions]) for each in found_threads] == [
        (True, ["eyes"]),
        (False, []),
    ]

    assert client.permission(name, "octo") == "admin"
    assert client.permission(name, "nobody-there") in ("read", "none")
    notes = tuple(Annotation("pkg/train.py", 1, 2, "warning", "Slow", f"message {i}") for i in range(120))
    run = CheckRun(pull.head_sha, "neutral", "Two findings", "Summary", notes, "ptopt-1")
    run_id = client.create_check_run(name, run)
    assert client.check_runs(name, pull.head_sha, "ptopt") == [(run_id, "ptopt-1")]
    assert len(pull.check_runs[0].annotations) == 120
    sarif = json.dumps({"version": "2.1.0", "runs": []}).encode()
    client.upload_sarif(name, pull.head_sha, f"refs/pull/{number}/head", sarif)
    assert len(repo.sarifs) == 1
    fixed = {"pkg/train.py": b"import torch\n# fixed\n", "new/deep/file.py": b""}
    commit = client.commit_files(name, "feature/fast", pull.head_sha, fixed, "Apply fixes")
    assert pull.head_sha == commit and repo.file("new/deep/file.py", "feature/fast") == b""

    assert client.unused() == set()


def test_every_method_of_the_app(github: FakeGitHub, auth: AppAuth, repo: Repo, pull: Pull) -> None:
    app: Any = Recorder(AppClient(auth))
    assert repo.installation
    assert app.slug() == "ptopt"
    assert app.installation_of(repo.full_name) == repo.installation.id
    with pytest.raises(NotFoundError):
        app.installation_of("octo/none")
    github.webhook_url = "http://127.0.0.1:9/"  # nobody listens: all deliveries fail
    for count in range(103):
        github.deliver("pull_request", "edited", {"changes": {}}, pull=pull) if count < 101 else pull.comment(
            "dev", "x"
        )
    deliveries = list(app.deliveries(datetime.now(timezone.utc) - timedelta(hours=1)))
    assert len(deliveries) >= 103 and {each.event for each in deliveries} >= {"pull_request", "issue_comment"}
    app.redeliver(deliveries[0].id)
    github.drain()
    assert app.unused() == set()
    made = convert_manifest(github.url, github.manifest("ptopt-two"))
    assert made.slug == "ptopt-two"
    with pytest.raises(NotFoundError):
        convert_manifest(github.url, "a-code-that-is-none")


def test_tokens_of_workflows_and_people(github: FakeGitHub, repo: Repo, pull: Pull) -> None:
    workflow = for_token(github.token(repo), github.url, seconds_between_writes=0)
    assert workflow.identity() == "github-actions[bot]"
    assert (
        workflow.create_review(repo.full_name, pull.number, draft(pull)).author.login == "github-actions[bot]"
    )
    repo.permission("maintainer", "write")
    person = for_token(github.user_token("maintainer"), github.url, seconds_between_writes=0)
    assert person.identity() == "maintainer"
    assert person.pull(repo.full_name, pull.number).number == pull.number
    reader = for_token(github.token(repo, {"contents": "read", "pull_requests": "read"}), github.url)
    with pytest.raises(ForbiddenError):
        reader.create_review(repo.full_name, pull.number, draft(pull))


def test_refusals(github: FakeGitHub, client: GitHubClient, repo: Repo, pull: Pull) -> None:
    name, number = repo.full_name, pull.number
    off = ReviewDraft(pull.head_sha, "b", (CommentDraft("pkg/train.py", 400, None, "off the diff"),))
    for refused in (
        lambda: client.create_review(name, number, off),
        lambda: client.create_review(name, number, ReviewDraft("0" * 40, "b", ())),
        lambda: client.react(name, "issue", pull.comment("dev", "x"), "thumbsup"),
        lambda: client.commit_files(name, "feature/fast", pull.base_sha, {"a.py": b""}, "m"),
        lambda: client.resolve_thread("PRRT_none"),
        lambda: client.pull(name, 999),
        lambda: client.blob(name, "0" * 40, 1000),
        lambda: client.merge_base(name, "0" * 40, pull.head_sha),
        lambda: client.reply(name, number, 1, "x"),
        lambda: client.threads(name, 999),
    ):
        with pytest.raises((NotFoundError, RejectedError)):
            refused()
    # The one that GitHub refuses and its description does not allow: the check must see it.
    assert [each for each in github.violations if "thumbsup" in each]
    github.violations.clear()


def test_pages_conditions_and_a_rename(client: GitHubClient, repo: Repo, pull: Pull) -> None:
    for number in range(205):
        pull.comment("dev", f"comment {number}")
    old = repo.full_name
    assert len(client.issue_comments(old, pull.number)) == 205
    assert len(client.issue_comments(old, pull.number)) == 205
    assert 304 in {request.status for request in repo.github.requests}
    repo.rename("octo/renamed")
    assert client.pull(old, pull.number).number == pull.number
    assert len(client.issue_comments(old, pull.number)) == 205


@pytest.mark.parametrize(
    "fault",
    [
        "500",
        "502",
        "503",
        "502-after",
        "drop",
        "primary-limit",
        "secondary-limit",
        "secondary-limit-429",
        "abuse",
    ],
)
def test_answers_of_a_bad_day(
    github: FakeGitHub, client: GitHubClient, repo: Repo, pull: Pull, fault: str
) -> None:
    github.faults.add("POST", r"/reviews$", fault, seconds=5)
    with pytest.raises(GitHubError):
        client.create_review(repo.full_name, pull.number, draft(pull))


def test_the_stand_in_fails_a_test_for_a_violation(repo: Repo, pull: Pull) -> None:
    """A raw request with what GitHub's description does not know."""
    github = repo.github
    request = urllib.request.Request(
        f"{github.url}/repos/{repo.full_name}/pulls/{pull.number}?verbose=1",
        headers={"Authorization": f"Bearer {github.user_token('octo')}", "User-Agent": "test"},
    )
    urllib.request.urlopen(request).close()
    assert len(github.violations) == 1 and "no query parameter verbose" in github.violations[0]
    with pytest.raises(AssertionError, match="verbose"):
        github.__exit__(None, None, None)
    github.violations.clear()
