"""The client against the fake GitHub, which checks each request and answer against GitHub's own description."""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
from typing import Any

import pytest

from fake_github import FakeGitHub, Pull
from fake_github.pulls import shape
from ptopt.github.auth import for_token
from ptopt.github.client import MAX_FILE, GitHubClient
from ptopt.github.errors import (
    NotFoundError,
    RejectedError,
    TooLargeError,
    UnavailableError,
)
from ptopt.github.values import Annotation, CheckRun, CommentDraft
from tests.github.octo import NEW, OLD, REPO, draft, writes
from tests.github.scripted import Say, Scripted

# Reading


def test_a_pull_request(client: GitHubClient, pull: Pull) -> None:
    found = client.pull(REPO, pull.number)
    assert (found.repo, found.repo_id, found.number) == (REPO, pull.repo.id, 1)
    assert (found.title, found.author.login, found.author.is_bot) == ("Faster", "dev", False)
    assert (found.open, found.merged, found.draft, found.labels) == (True, False, False, ("speed",))
    assert (found.head_sha, found.head_ref, found.head_repo) == (pull.head_sha, "change", REPO)
    assert (found.base_sha, found.base_ref) == (pull.base_sha, "main")
    assert (found.changed_files, found.changed_lines) == (1, 4)
    pull.close(merged=True)
    found = client.pull(REPO, pull.number)
    assert (found.open, found.merged) == (False, True)


def test_a_pull_request_whose_fork_is_gone(client: GitHubClient, pull: Pull) -> None:
    fork = pull.repo.pull("mallory:fix", files={"train.py": NEW}, author="mallory")
    assert client.pull(REPO, fork.number).head_repo == "mallory/models"
    data = shape(fork)
    data["head"]["repo"] = None
    with Scripted(lambda _got: Say(200, data)) as server:
        assert for_token("t", server.url).pull(REPO, fork.number).head_repo is None


def test_files(client: GitHubClient, pull: Pull) -> None:
    pull.push({"tools/run.sh": None, "new.py": b"x\n", "image.png": b"\x00\x01"})
    files = {file.path: file for file in client.pull_files(REPO, pull.number)}
    assert {path: file.status for path, file in files.items()} == {
        "image.png": "added", "new.py": "added", "tools/run.sh": "removed", "train.py": "modified",
    }  # fmt: skip
    assert files["image.png"].patch is None
    assert files["new.py"].patch == "@@ -0,0 +1 @@\n+x"
    assert client.blob(REPO, str(files["train.py"].blob_sha), 10_000) == NEW


def test_files_of_all_pages(client: GitHubClient, pull: Pull, github: FakeGitHub) -> None:
    pull.push({f"many/{number:03}.py": b"x\n" for number in range(250)})
    files = client.pull_files(REPO, pull.number)
    assert len({file.path for file in files}) == 251
    asked = [request.query for request in github.requests if request.path.endswith("/files")]
    assert [query.get("per_page") for query in asked] == ["100"] * 3


def test_what_did_not_change_is_not_sent_again(client: GitHubClient, pull: Pull, github: FakeGitHub) -> None:
    first = client.pull_files(REPO, pull.number)
    assert client.pull_files(REPO, pull.number) == first
    pull.push({"other.py": b"x\n"})
    assert len(client.pull_files(REPO, pull.number)) == 2
    assert [request.status for request in github.requests if request.path.endswith("/files")] == [
        200,
        304,
        200,
    ]


def test_the_merge_base(client: GitHubClient, pull: Pull) -> None:
    fork_point = pull.base_sha
    main = pull.repo.commit("main", {"else.py": b"x\n"})
    assert client.merge_base(REPO, main, pull.head_sha) == fork_point


def test_texts_of_blobs(client: GitHubClient, pull: Pull) -> None:
    files = {
        "a.py": b"a = 1\n",
        "b.py": b"b = '\xc3\xa9\xe6\xa8\xa1 \xf0\x9f\x94\xa5 </x>'\r\n\x0c",
        "empty.py": b"",
    }
    pull.push(files)
    shas = {entry.path: entry.sha for entry in client.tree(REPO, pull.head_sha)}
    wanted = [shas[path] for path in files]
    found = client.text_blobs(REPO, [*wanted, wanted[0]])
    assert found == {shas[path]: data for path, data in files.items()}
    before = len(pull.repo.github.requests)
    assert client.text_blobs(REPO, wanted) == found
    assert client.blob(REPO, shas["b.py"], 100) == files["b.py"]
    assert len(pull.repo.github.requests) == before
    for repo, sha in (("octo", wanted[0]), (REPO, "HEAD"), (REPO, '"')):
        with pytest.raises(ValueError, match="not "):
            client.text_blobs(repo, [sha])


@pytest.mark.parametrize(
    "answer",
    [
        {}, {"blob0": None}, {"blob0": {}}, {"blob0": {"text": None}}, {"blob0": {"text": 1}}, {"blob1": {"text": "b\n"}},
        {"blob0": {"text": "another\n"}}, {"blob0": {"text": "a"}}, {"blob0": {"text": "\ud800"}},
    ],
)  # fmt: skip
def test_an_answer_that_lacks_blobs(answer: Any) -> None:
    sha, other = (hashlib.sha1(b"blob 2\0" + text).hexdigest() for text in (b"a\n", b"c\n"))
    data = {"blob1": {"text": "c\n"}, **answer}
    with Scripted(lambda _got: Say(200, {"data": {"repository": data}})) as server:
        found = for_token("t", server.url).text_blobs(REPO, [sha, other])
    assert found == ({} if "blob1" in answer else {other: b"c\n"})


@pytest.mark.parametrize(
    "data", [None, [], {}, {"repository": None}, {"repository": []}, {"repository": {"blob0": "text"}}]
)
def test_an_answer_that_holds_no_blobs(data: Any) -> None:
    with Scripted(lambda _got: Say(200, {"data": data})) as server, pytest.raises(UnavailableError):
        for_token("t", server.url).text_blobs(REPO, ["1" * 40])


def test_blobs_of_sha256(pull: Pull) -> None:
    sha = hashlib.sha256(b"blob 2\0a\n").hexdigest()
    with Scripted(lambda _got: Say(200, {"data": {"repository": {"blob0": {"text": "a\n"}}}})) as server:
        assert for_token("t", server.url).text_blobs(REPO, [sha]) == {sha: b"a\n"}


def test_blobs_up_to_a_limit(client: GitHubClient, pull: Pull) -> None:
    content = bytes(range(256)) * 1000
    pull.push({"data.bin": content})
    sha = pull.repo.git.files(pull.head_sha)["data.bin"][1]
    assert client.blob(REPO, sha, len(content)) == content
    with pytest.raises(TooLargeError):
        client.blob(REPO, sha, len(content) - 1)
    with pytest.raises(TooLargeError):
        client.blob(REPO, sha, 100)
    with pytest.raises(NotFoundError):
        client.blob(REPO, "0" * 40, 100)


def test_a_file_at_a_ref(client: GitHubClient, pull: Pull, github: FakeGitHub) -> None:
    assert client.file(REPO, "train.py", pull.base_sha) == OLD
    assert client.file(REPO, "train.py", pull.head_sha) == NEW
    assert client.file(REPO, "folder/deep/x.py", "main") == b"1\n"
    assert client.file(REPO, "folder", "main") is None
    assert client.file(REPO, "missing.py", "main") is None
    assert client.file(REPO, "train.py", "no-such-branch") is None
    assert client.file("octo/none", "train.py", "main") is None
    odd = "a b/ü#?%2e;x.py"
    pull.push({odd: b"odd\n", "empty": b""})
    assert client.file(REPO, odd, pull.head_sha) == b"odd\n"
    assert client.file(REPO, "empty", pull.head_sha) == b""


def test_a_file_that_the_contents_api_leaves_out(
    client: GitHubClient, pull: Pull, github: FakeGitHub
) -> None:
    github.limits.contents = 10
    assert client.file(REPO, "train.py", pull.head_sha) == NEW
    pull.push({"huge": b"x" * (MAX_FILE + 1)})
    with pytest.raises(TooLargeError):
        client.file(REPO, "huge", pull.head_sha)


def test_a_rename_is_followed_for_reads_only(client: GitHubClient, pull: Pull, github: FakeGitHub) -> None:
    pull.repo.rename("octo/networks")
    assert client.pull(REPO, pull.number).repo == "octo/networks"
    with pytest.raises(RejectedError, match="moved"):
        client.create_issue_comment(REPO, pull.number, "hello")
    assert pull.issue_comments == []
    assert len(writes(github)) == 1


@pytest.mark.parametrize(
    ("login", "role"),
    [
        ("octo", "admin"), ("keeper", "maintain"), ("writer", "write"), ("sorter", "triage"), ("dev", "read"),
        ("nobody-at-all", "none"), ("helper[bot]", "read"),
    ],
)  # fmt: skip
def test_permissions(client: GitHubClient, pull: Pull, login: str, role: str) -> None:
    pull.repo.permission("keeper", "maintain")
    pull.repo.permission("writer", "write")
    pull.repo.permission("sorter", "triage")
    pull.github.account("helper[bot]")
    assert client.permission(REPO, login) == role


@pytest.mark.parametrize(
    ("answer", "role"),
    [
        ({"permission": "write", "role_name": "release-managers"}, "write"),
        ({"permission": "read"}, "read"),
        ({"permission": "anything", "role_name": None}, "none"),
    ],
)
def test_a_custom_role_counts_as_what_it_is_built_upon(answer: dict[str, Any], role: str) -> None:
    with Scripted(lambda _got: Say(200, answer)) as server:
        assert for_token("t", server.url).permission(REPO, "dev") == role


# Posting


def test_a_review(client: GitHubClient, pull: Pull) -> None:
    one = CommentDraft("train.py", 7, None, "one line")
    more = CommentDraft("train.py", 30, 29, "```suggestion\r\n\tline\r\n```")
    same = CommentDraft("train.py", 31, 31, "start is line")
    posted = client.create_review(REPO, pull.number, draft(pull, one, more, same))
    assert (posted.author.login, posted.author.is_bot) == ("ptopt[bot]", True)
    assert (posted.body, posted.commit_id) == ("Words", pull.head_sha)
    assert posted.submitted_at is not None and posted.submitted_at.tzinfo is not None
    assert [review.id for review in pull.reviews] == [posted.id]
    assert client.reviews(REPO, pull.number) == [posted]
    comments = client.review_comments(REPO, pull.number)
    assert [(c.path, c.line, c.body) for c in comments] == [
        ("train.py", 7, "one line"),
        ("train.py", 30, "```suggestion\r\n\tline\r\n```"),
        ("train.py", 31, "start is line"),
    ]
    assert {c.review_id for c in comments} == {posted.id}
    assert {c.original_commit_id for c in comments} == {pull.head_sha}
    assert {(c.in_reply_to, c.author.login) for c in comments} == {(None, "ptopt[bot]")}
    client.edit_review(REPO, pull.number, posted.id, "Other words")
    assert pull.reviews[0].body == "Other words"


def test_an_outdated_comment_has_no_line(client: GitHubClient, pull: Pull) -> None:
    client.create_review(REPO, pull.number, draft(pull, CommentDraft("train.py", 7, None, "x")))
    pull.push({"train.py": NEW.replace(b"line seven\n", b"line 7 again\n")})
    comment = client.review_comments(REPO, pull.number)[0]
    assert (comment.line, comment.original_line) == (None, 7)


def test_what_github_refuses_is_told(client: GitHubClient, pull: Pull) -> None:
    off = CommentDraft("train.py", 18, None, "not in the diff")
    with pytest.raises(RejectedError) as caught:
        client.create_review(REPO, pull.number, draft(pull, off))
    assert caught.value.status == 422
    assert caught.value.errors
    assert pull.reviews == []


def test_conversation(client: GitHubClient, pull: Pull) -> None:
    theirs = pull.comment("dev", "please /ptopt help")
    ours = client.create_issue_comment(REPO, pull.number, "answer")
    found = client.issue_comments(REPO, pull.number)
    assert [(c.id, c.author.login, c.body) for c in found] == [
        (theirs, "dev", "please /ptopt help"),
        (ours.id, "ptopt[bot]", "answer"),
    ]
    client.edit_issue_comment(REPO, ours.id, "better")
    assert client.issue_comments(REPO, pull.number)[1].body == "better"
    client.delete_issue_comment(REPO, ours.id)
    assert [c.id for c in client.issue_comments(REPO, pull.number)] == [theirs]
    with pytest.raises(NotFoundError):
        client.delete_issue_comment(REPO, ours.id)


def test_comments_of_many_pages_are_oldest_first(client: GitHubClient, pull: Pull) -> None:
    ids = [pull.comment("dev", str(number)) for number in range(205)]
    assert [comment.id for comment in client.issue_comments(REPO, pull.number)] == ids


def test_threads(client: GitHubClient, pull: Pull) -> None:
    lines = (7, 29, 30, 31)
    review = draft(pull, *(CommentDraft("train.py", line, None, str(line)) for line in lines))
    client.create_review(REPO, pull.number, review)
    ids = [comment.id for comment in client.review_comments(REPO, pull.number)]
    reply = pull.reply("dev", ids[1], "no")
    ours = client.reply(REPO, pull.number, ids[2], "more")
    assert (ours.in_reply_to, ours.body) == (ids[2], "more")
    pull.resolve("dev", ids[3])
    found = client.threads(REPO, pull.number)
    assert [[comment_id for comment_id, _ in thread.comments] for thread in found] == [
        [ids[0]], [ids[1], reply], [ids[2], ours.id], [ids[3]],
    ]  # fmt: skip
    us = client.review_comments(REPO, pull.number)[0].author
    assert found[0].comments[0][1] == us  # GraphQL and REST call a bot by different names
    assert found[1].comments[1][1].login == "dev"
    assert [thread.resolved for thread in found] == [False, False, False, True]
    assert found[3].resolved_by == "dev"
    client.resolve_thread(found[0].id)
    client.resolve_thread(found[0].id)
    assert pull.thread_of(ids[0]).resolved
    with pytest.raises(NotFoundError):
        client.resolve_thread("PRRT_nothing")
    with pytest.raises(NotFoundError):
        client.threads(REPO, 99)


def test_threads_of_many_pages(client: GitHubClient, pull: Pull) -> None:
    drafts = (CommentDraft("train.py", 7, None, str(number)) for number in range(120))
    client.create_review(REPO, pull.number, draft(pull, *drafts))
    ids = [comment.id for comment in client.review_comments(REPO, pull.number)]
    assert [thread.comments[0][0] for thread in client.threads(REPO, pull.number)] == ids


def test_responses(client: GitHubClient, pull: Pull, github: FakeGitHub) -> None:
    lines = (7, 29, 30, 31)
    client.create_review(
        REPO, pull.number, draft(pull, *(CommentDraft("train.py", n, None, str(n)) for n in lines))
    )
    ids = [comment.id for comment in client.review_comments(REPO, pull.number)]
    pull.react("mallory", ids[0], "-1")
    client.react(REPO, "review", ids[0], "eyes")
    pull.reply("dev", ids[1], "no")
    pull.resolve("dev", ids[1])
    pull.minimize(ids[2])
    before = len(github.requests)
    found = client.responses(REPO, pull.number)
    assert [r.path for r in github.requests[before:]] == ["/graphql"]
    assert (found.open, found.merged, found.head_sha) == (True, False, pull.head_sha)
    assert [t.comment_id for t in found.threads] == ids
    assert [(t.resolved, t.outdated, t.minimized, t.complete) for t in found.threads] == [
        (False, False, None, True),
        (True, False, None, True),
        (False, False, "off-topic", True),
        (False, False, None, True),
    ]
    # The same as by REST, but for one request a comment.
    assert list(found.threads[0].reactions) == client.reactions(REPO, "review", ids[0])
    pull.push({"train.py": NEW.replace(b"line seven\n", b"line 7 again\n")})
    pull.close(merged=True)
    found = client.responses(REPO, pull.number)
    assert (found.open, found.merged, found.head_sha) == (False, True, pull.head_sha)
    assert [t.outdated for t in found.threads] == [True, False, False, False]
    with pytest.raises(NotFoundError):
        client.responses(REPO, 99)


def test_responses_of_many_pages(client: GitHubClient, pull: Pull, github: FakeGitHub) -> None:
    drafts = (CommentDraft("train.py", 7, None, str(number)) for number in range(120))
    client.create_review(REPO, pull.number, draft(pull, *drafts))
    ids = [comment.id for comment in client.review_comments(REPO, pull.number)]
    for number in range(101):
        pull.react(f"person{number}", ids[0], "heart")
    before = len(github.requests)
    found = client.responses(REPO, pull.number)
    assert len(github.requests) - before == 2
    assert [thread.comment_id for thread in found.threads] == ids
    assert [thread.complete for thread in found.threads] == [False] + [True] * 119
    assert len(found.threads[0].reactions) == 100


@pytest.mark.parametrize("where", ["issue", "review"])
def test_reactions(client: GitHubClient, pull: Pull, where: str) -> None:
    comment = pull.comment("dev", "x") if where == "issue" else pull.review_comment("dev", "train.py", 7, "x")
    pull.react("mallory", comment, "-1")
    client.react(REPO, where, comment, "eyes")
    client.react(REPO, where, comment, "eyes")
    found = client.reactions(REPO, where, comment)
    assert [(r.actor.login, r.content) for r in found] == [("mallory", "-1"), ("ptopt[bot]", "eyes")]


def test_a_check_run_with_many_annotations(client: GitHubClient, pull: Pull, github: FakeGitHub) -> None:
    notes = tuple(Annotation("train.py", 7, 8, "warning", f"note {n}", "why") for n in range(120))
    run = CheckRun(pull.head_sha, "neutral", "120 findings", "Summary", notes, "ours-1")
    run_id = client.create_check_run(REPO, run)
    posted = pull.check_runs[0]
    assert (posted.id, posted.conclusion, posted.status) == (run_id, "neutral", "completed")
    assert [note["title"] for note in posted.annotations] == [note.title for note in notes]
    assert [path.rpartition("/")[2] for path in writes(github)] == ["check-runs", str(run_id), str(run_id)]
    actions = for_token(github.token(REPO), github.url, seconds_between_writes=0)
    other = actions.create_check_run(REPO, CheckRun(pull.head_sha, "success", "t", "s", (), "theirs"))
    assert client.check_runs(REPO, pull.head_sha, "ptopt") == [(run_id, "ours-1")]
    assert actions.check_runs(REPO, pull.head_sha, "ptopt") == [(other, "theirs")]
    assert client.check_runs(REPO, pull.head_sha, "other") == []


def test_sarif(client: GitHubClient, pull: Pull, github: FakeGitHub) -> None:
    log = {"version": "2.1.0", "runs": []}
    client.upload_sarif(REPO, pull.head_sha, f"refs/pull/{pull.number}/head", json.dumps(log).encode())
    assert [sarif.data for sarif in pull.repo.sarifs] == [log]
    sent = github.requests[-1].json["sarif"]
    assert json.loads(gzip.decompress(base64.b64decode(sent))) == log
