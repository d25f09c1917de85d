"""The files around a change: all of them by GraphQL in one request, a few by REST where that is refused."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fake_github import FakeGitHub, Request, server
from fake_github.http import Answer, ApiError, Call
from fake_github.repos import Repo
from ptopt.config import Config
from ptopt.github import reading
from ptopt.github.auth import for_token
from ptopt.github.client import GitHubClient
from ptopt.github.errors import RateLimitedError
from ptopt.github.reading import list_repository, read_around, read_change, read_naming
from ptopt.github.values import TreeEntry
from ptopt.project.around import MOST_BYTES, MOST_FILES, files_around
from ptopt.project.naming import NO_NAMING, Naming

Around = Callable[..., dict[str, bytes]]
MANY = {f"lib/part{n}.py": b"x = %d\n" % n for n in range(60)}


@pytest.fixture
def repo(github: FakeGitHub) -> Repo:
    return github.repository("octo/models", {"README.md": b"# Models\n"})


@pytest.fixture
def client(repo: Repo) -> GitHubClient:
    return for_token(repo.github.token(repo), repo.github.url)


@pytest.fixture
def around(repo: Repo, client: GitHubClient) -> Around:
    """What is read around a new pull request on a base with `files`, which forgets the requests before that."""

    def read(files: dict[str, bytes], changed: str = "lib/train.py") -> dict[str, bytes]:
        repo.commit("main", files)
        pull = client.pull(repo.full_name, repo.pull(files={changed: b"import torch\n"}).number)
        change, entries = read_change(client, pull, Config()), list_repository(client, pull)
        repo.github.requests.clear()
        return dict(read_around(client, pull, change, entries).around)

    return read


def queries(github: FakeGitHub) -> list[Request]:
    return [request for request in github.requests if request.path.endswith("/graphql")]


def by_rest(github: FakeGitHub) -> int:
    return sum("/git/blobs/" in request.path for request in github.requests)


# --- by GraphQL


def test_one_request_reads_as_many_files_as_the_command_line(github: FakeGitHub, around: Around) -> None:
    nearest = files_around(MANY, {"lib/train.py"})
    assert around(MANY) == {path: MANY[path] for path in nearest}
    assert len(nearest) == MOST_FILES
    assert [request.path for request in github.requests] == ["/graphql"]


def test_the_nearest_come_first(around: Around) -> None:
    assert list(around(MANY)) == files_around(MANY, {"lib/train.py"})


def test_files_of_the_same_content_are_requested_once(github: FakeGitHub, around: Around) -> None:
    same = {f"lib/{name}/__init__.py": b"" for name in "abc"} | {
        "lib/a.py": b"a = 1\n",
        "lib/b.py": b"a = 1\n",
    }
    assert around(same) == same
    assert github.requests[0].json["query"].count("object(") == 2


def test_what_is_known_is_not_requested_again(github: FakeGitHub, around: Around) -> None:
    around(MANY)
    assert list(around({}, "lib/other.py")) == files_around(MANY, {"lib/other.py"})
    assert not github.requests
    assert around({"lib/part0.py": b"new = 1\n"}, "lib/third.py")["lib/part0.py"] == b"new = 1\n"
    (query,) = github.requests
    assert query.json["query"].count("object(") == 1


def test_no_file_around_is_no_request(github: FakeGitHub, around: Around) -> None:
    assert around({"notes.txt": b"\n", "tests/test_a.py": b"\n"}) == {}
    assert not github.requests


def test_large_files_take_more_requests(
    github: FakeGitHub, around: Around, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "_QUERY_BYTES", 1000)
    files = {f"lib/part{n}.py": b"# %d" % n + b"x" * 400 for n in range(5)}
    assert around(files) == files
    asked = sorted(request.json["query"].count("object(") for request in queries(github))
    assert asked == [1, 2, 2]
    assert len(github.requests) == 3


@given(st.lists(st.integers(0, MOST_BYTES), min_size=1, max_size=MOST_FILES))
def test_requests_are_never_more_than_eight(sizes: list[int]) -> None:
    entries = [TreeEntry(f"{at}.py", "blob", f"{at:040x}", size) for at, size in enumerate(sizes)]
    parts = reading._queries(entries)
    assert [sha for part in parts for sha in part] == [entry.sha for entry in entries]
    assert all(parts) and len(parts) <= 8


def test_a_file_above_the_limit_is_not_requested(github: FakeGitHub, around: Around) -> None:
    small = {"lib/small.py": b"x = 1\n", "lib/at_limit.py": b"#" * MOST_BYTES}
    assert around({**small, "lib/large.py": b"#" * (MOST_BYTES + 1)}) == small


def test_what_graphql_does_not_give_unchanged_is_left_out(github: FakeGitHub, around: Around) -> None:
    github.limits.blob_text = 100
    plain = {
        "lib/plain.py": b"name = 'caf\xc3\xa9'\r\n",
        "lib/mark.py": b"\xef\xbb\xbfx = 1\n",
        "lib/bare.py": b"x",
    }
    odd = {
        "lib/binary.py": b"x = 1\0\n",
        "lib/latin.py": b"# coding: latin-1\nname = 'caf\xe9'\n",
        "lib/truncated.py": b"#" * 101,
        "lib/halved.py": b"#" * 99 + "é".encode(),
    }
    assert around({**plain, **odd}) == plain
    assert len(github.requests) == 1


def test_blobs_that_are_gone_or_none_are_left_out(repo: Repo, client: GitHubClient) -> None:
    repo.commit("main", MANY)
    pull = client.pull(repo.full_name, repo.pull(files={"train.py": b"import torch\n"}).number)
    change, entries = read_change(client, pull, Config()), list_repository(client, pull)
    (here,) = [entry for entry in entries if entry.path == "lib/part3.py"]
    (folder,) = [entry for entry in entries if entry.path == "lib"]
    odd = [
        dataclasses.replace(here, path="lib.py"),
        dataclasses.replace(here, path="gone.py", sha="0" * 40),
        dataclasses.replace(here, path="folder.py", sha=folder.sha),
        dataclasses.replace(here, path="commit.py", sha=pull.head_sha),
    ]
    assert read_around(client, pull, change, odd).around == {"lib.py": MANY["lib/part3.py"]}
    assert by_rest(repo.github) == 1  # the head of the change


@pytest.mark.parametrize(
    "name",
    [
        '") { viewer { login } } }.py', "$blob0: GitObjectID!.py", "line\nbreak.py", "}}}\\u0022 mutation { x }.py",
        "näme 模型.py", "#.py", "'; --.py",
    ],
)  # fmt: skip
def test_no_name_gets_into_a_query(github: FakeGitHub, around: Around, name: str) -> None:
    plain = {"lib/plain.py": b"x = 1\n"}
    around(plain)
    (expected,) = [request.json["query"] for request in queries(github)]
    assert around({f"lib/{name}": b"y = 1\n"}, "lib/other.py") == {**plain, f"lib/{name}": b"y = 1\n"}
    (query,) = [request.json for request in queries(github)]
    assert query["query"] == expected
    sha = next(value for key, value in query["variables"].items() if key not in ("owner", "name"))
    assert query["variables"] == {"owner": "octo", "name": "models", "blob0": sha}


def test_private_repositories_and_forks(github: FakeGitHub) -> None:
    private = github.repository("octo/secret", MANY, private=True)
    client = for_token(github.token(private, {"contents": "read", "pull_requests": "read"}), github.url)
    opened = private.pull(
        "mallory:evil", author="mallory", files={"train.py": b"x = 1\n", "new.py": b"n = 1\n"}
    )
    pull = client.pull(private.full_name, opened.number)
    change = read_change(client, pull, Config())
    change = dataclasses.replace(
        change, files=tuple(file for file in change.files if file.path == "train.py")
    )
    found = read_around(client, pull, change, list_repository(client, pull)).around
    assert found["new.py"] == b"n = 1\n"  # which only the fork has
    assert len(found) == MOST_FILES


# --- by REST


def refusing(answer: Answer | ApiError) -> Callable[[Call], Answer]:
    def handle(call: Call) -> Answer:
        if isinstance(answer, ApiError):
            raise answer
        return answer

    return handle


def errors(kind: str, **data: object) -> Answer:
    return Answer({"errors": [{"type": kind, "message": f"This is {kind}.", "path": ["repository"]}], **data})


@pytest.mark.parametrize(
    "refusal",
    [
        ApiError(401, "This endpoint requires you to be authenticated."),
        ApiError(403, "Resource not accessible by personal access token"),
        ApiError(404, "Not Found"),  # an enterprise server without it
        ApiError(410, "Gone"),
        ApiError(400, "A query attribute must be specified and must be a string."),
        errors("FORBIDDEN", data={"repository": {"blob0": None}}),
        errors("NOT_FOUND", data={"repository": None}),
        errors("INSUFFICIENT_SCOPES"),
        errors("RESOURCE_LIMITS_EXCEEDED", data={"repository": {"blob0": {"text": "x = 0\n"}}}),
        errors("undefinedField"),
        Answer({"errors": [{"message": "Something went wrong while executing your query."}]}),
    ],
    ids=lambda refusal: str(refusal if isinstance(refusal, ApiError) else refusal.data["errors"])[:60],
)
def test_where_graphql_is_refused_a_few_are_read(
    github: FakeGitHub, around: Around, monkeypatch: pytest.MonkeyPatch, refusal: Answer | ApiError
) -> None:
    monkeypatch.setattr(server.graphql, "handle", refusing(refusal))
    assert list(around(MANY)) == files_around(MANY, {"lib/train.py"}, 8)
    assert (len(queries(github)), by_rest(github), len(github.requests)) == (1, 8, 9)


@pytest.mark.parametrize("fault", ["502", "drop"])
def test_a_query_that_takes_too_long_is_repeated_and_then_done_without(
    github: FakeGitHub, around: Around, fault: str
) -> None:
    github.faults.add("POST", "/graphql", fault, times=-1)
    assert list(around(MANY)) == files_around(MANY, {"lib/train.py"}, 8)
    assert (len(queries(github)), by_rest(github)) == (3, 8)
    github.faults.clear()
    github.faults.add("POST", "/graphql", fault)
    assert len(around({}, "lib/other.py")) == MOST_FILES
    assert (len(queries(github)), by_rest(github)) == (2, 0)


def test_one_query_of_several_that_fails(
    github: FakeGitHub, around: Around, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is read is all or the nearest, whichever query it was."""
    monkeypatch.setattr(reading, "_QUERY_BYTES", 100)
    handle, answers = server.graphql.handle, [errors("RESOURCE_LIMITS_EXCEEDED")]
    monkeypatch.setattr(server.graphql, "handle", lambda call: answers.pop() if answers else handle(call))
    assert list(around(MANY)) == files_around(MANY, {"lib/train.py"}, 8)
    assert not answers
    assert by_rest(github) <= 8  # less what another query brought before


@pytest.mark.parametrize("fault", ["primary-limit", "secondary-limit", "secondary-limit-429"])
def test_a_rate_limit_is_no_reason_to_read_less(github: FakeGitHub, around: Around, fault: str) -> None:
    github.faults.add("POST", "/graphql", fault, times=-1)
    with pytest.raises(RateLimitedError):
        around(MANY)
    assert len(github.requests) == 1


def test_by_rest_too_what_is_gone_is_left_out(
    github: FakeGitHub, repo: Repo, client: GitHubClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server.graphql, "handle", refusing(ApiError(404, "Not Found")))
    pull = client.pull(repo.full_name, repo.pull(files={"train.py": b"import torch\n"}).number)
    change = read_change(client, pull, Config())
    (here,) = [entry for entry in list_repository(client, pull) if entry.path == "train.py"]
    entries = [
        dataclasses.replace(here, path="lib.py"),
        dataclasses.replace(here, path="gone.py", sha="0" * 40),
    ]
    assert read_around(client, pull, change, entries).around == {"lib.py": b"import torch\n"}


# --- what names a configuration

SETTINGS = b'{"zero_optimization": {"stage": 2}, "memory_breakdown": true}\n'


def naming_of(repo: Repo, client: GitHubClient, base: dict[str, bytes], changed: dict[str, bytes]) -> Naming:
    repo.commit("main", base)
    pull = client.pull(repo.full_name, repo.pull(files=changed).number)
    change, entries = read_change(client, pull, Config()), list_repository(client, pull)
    repo.github.requests.clear()
    return read_naming(client, pull, read_around(client, pull, change, entries), entries)


def test_all_texts_of_a_small_repository_tell_whether_a_configuration_is_used(
    repo: Repo, client: GitHubClient
) -> None:
    base = {"run.sh": b"deepspeed train.py --deepspeed conf/ds_config.json\n", "train.py": b"import torch\n"}
    changed = {"conf/ds_config.json": SETTINGS, "conf/ds_other.json": SETTINGS}
    found = naming_of(repo, client, base, changed)
    assert set(found.files) == {"README.md", "run.sh", "train.py"} and found.whole
    assert found.used("conf/ds_config.json") is True and found.used("conf/ds_other.json") is False
    assert len(queries(repo.github)) == 1


def test_of_a_large_repository_the_likeliest_texts_are_read(repo: Repo, client: GitHubClient) -> None:
    found = naming_of(repo, client, MANY, {"conf/ds_config.json": SETTINGS})
    assert len(found.files) == MOST_FILES and "README.md" in found.files
    assert found.used("conf/ds_config.json") is None


def test_code_and_configurations_share_the_budget(repo: Repo, client: GitHubClient) -> None:
    changed = {"conf/ds_config.json": SETTINGS, "lib/train.py": b'CONFIG = "conf/ds_config.json"\n'}
    found = naming_of(repo, client, MANY, changed)
    assert len(found.files) == MOST_FILES


def test_a_change_of_code_alone_asks_for_no_names(repo: Repo, client: GitHubClient) -> None:
    assert naming_of(repo, client, MANY, {"lib/train.py": b"import torch\n"}) == NO_NAMING
