"""Reading a pull request from the fake GitHub: every rung of the ladder gives the same change, or says what is missing."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable

import pytest

from fake_github import FakeGitHub
from fake_github.http import Request, Response
from fake_github.pulls import Pull
from fake_github.repos import Repo
from ptopt.change import Change, Status
from ptopt.config import Config, load_config
from ptopt.findings import NotReviewed
from ptopt.github import git_diff, reading
from ptopt.github.auth import for_token
from ptopt.github.client import GitHubClient
from ptopt.github.errors import RateLimitedError, RejectedError, SupersededError, TooLargeError
from ptopt.github.reading import list_files, project_files, read_change
from ptopt.github.values import PullFile
from ptopt.inputs import MAX_FILE
from ptopt.project.facts import NO_FACTS, read_facts
from ptopt.review import review_change

OLD = b"import torch\nx = 1\ny = 2\n"
NEW = b"import torch\nx = 1\nnew = torch.zeros(3)\ny = 2\n"


@pytest.fixture
def repo(github: FakeGitHub) -> Repo:
    return github.repository("octo/models", {"train.py": OLD, "README.md": b"# Models\n"})


def client(repo: Repo) -> GitHubClient:
    return for_token(repo.github.token(repo), repo.github.url)


def read(pull: Pull, config: Config | None = None) -> Change:
    github = client(pull.repo)
    return read_change(github, github.pull(pull.repo.full_name, pull.number), config or Config())


def asked(github: FakeGitHub, part: str) -> int:
    return sum(part in request.path for request in github.requests)


def meanwhile(github: FakeGitHub, part: str, act: Callable[[], object]) -> None:
    """Do that once, when the first request with `part` in its path has been answered."""
    acts = [act]

    def check(request: Request, response: Response) -> None:
        if part in request.path and acts:
            acts.pop()()

    github.checks.append(check)


# --- the files API


def test_a_change_with_its_heads(github: FakeGitHub, repo: Repo) -> None:
    pull = repo.pull(files={"train.py": NEW, "README.md": b"# Faster\n", "new.py": b"x = 1\n"})
    change = read(pull)
    assert not change.not_reviewed
    added, modified = change.files
    assert (added.path, added.status, added.head) == ("new.py", Status.ADDED, b"x = 1\n")
    assert (modified.path, modified.status, modified.head) == ("train.py", Status.MODIFIED, NEW)
    assert modified.added == {3}
    assert asked(github, "/git/blobs/") == 2
    assert asked(github, ".git/") == 0


def test_a_pull_request_from_a_fork(repo: Repo) -> None:
    pull = repo.pull("mallory:evil", author="mallory", files={"train.py": NEW})
    (file,) = read(pull).files
    assert file.head == NEW


def test_renamed_deleted_and_empty_files(repo: Repo) -> None:
    long = b"".join(b"value_%d = %d\n" % (n, n) for n in range(30))
    repo.commit("main", {"old.py": long, "same.py": long + b"s = 1\n", "gone.py": OLD})
    pull = repo.pull(
        files={
            "old.py": None,
            "new.py": b"import torch\n" + long,
            "same.py": None,
            "moved.py": long + b"s = 1\n",
            "gone.py": None,
            "__init__.py": b"",
        }
    )
    change = read(pull)
    (file,) = change.files
    assert (file.path, file.old_path, file.status, file.added) == ("new.py", "old.py", Status.RENAMED, {1})
    assert not change.not_reviewed


@pytest.mark.parametrize(
    "name",
    ["näme 模型.py", 'quo"te.py', "back\\slash.py", "tab\there.py", "line\nbreak.py", "a b/c d.py", "..py"],
)
def test_names_that_need_care(repo: Repo, name: str) -> None:
    (file,) = read(repo.pull(files={name: NEW})).files
    assert (file.path, file.head) == (name, NEW)


def test_line_ends_of_windows_and_no_line_end(repo: Repo) -> None:
    repo.commit("main", {"crlf.py": OLD.replace(b"\n", b"\r\n"), "bare.py": b"x = 1"})
    pull = repo.pull(files={"crlf.py": NEW.replace(b"\n", b"\r\n"), "bare.py": b"x = 2"})
    bare, crlf = read(pull).files
    assert (bare.head, bare.added) == (b"x = 2", {1})
    assert (crlf.head, crlf.added) == (NEW.replace(b"\n", b"\r\n"), {3})


def test_a_notebook(repo: Repo) -> None:
    cells = [
        {"cell_type": "code", "metadata": {}, "outputs": [], "source": ["x = 1"], "execution_count": None}
    ]
    notebook = json.dumps(
        {"nbformat": 4, "nbformat_minor": 5, "metadata": {}, "cells": cells}, indent=1
    ).encode()
    (file,) = read(repo.pull(files={"nb/train.ipynb": notebook})).files
    assert (file.path, file.head) == ("nb/train.ipynb", notebook)


def test_files_that_are_left_out_are_not_fetched(github: FakeGitHub, repo: Repo) -> None:
    config = load_config({".ptopt.toml": b"exclude = ['vendor/']"}, {})
    pull = repo.pull(files={"vendor/a.py": NEW, "tests/test_a.py": NEW, "b.txt": NEW, "train.py": NEW})
    change = read(pull, config)
    assert [file.path for file in change.files] == ["train.py"]
    assert change.not_reviewed == (
        NotReviewed("tests/test_a.py", "tests are skipped by default (`skip`)"),
        NotReviewed("vendor/a.py", "excluded by `exclude` ('vendor/')"),
    )
    assert asked(github, "/git/blobs/") == 1


def test_launch_scripts_are_named_as_on_the_command_line(github: FakeGitHub, repo: Repo) -> None:
    start = b"torchrun train.py\n"
    config = load_config({".ptopt.toml": b"exclude = ['vendor/']"}, {})
    files = {"train.py": NEW, "run.sh": start, "build.sh": b"make\n", "vendor/run.sh": start}
    change = read(repo.pull(files=files), config)
    review = review_change(change, config=config, facts=NO_FACTS)
    assert review.reviewed == ("train.py",)
    assert review.not_reviewed == (
        NotReviewed("run.sh", "a launch script: its options and environment are not read"),
    )
    assert asked(github, "/git/blobs/") == 3
    many = {f"run{number}.sh": start for number in range(20)}
    change = read(repo.pull("many", files={"train.py": NEW, **many}))
    assert 1 < len(change.files) < 12


def test_a_file_above_the_limit_is_told(repo: Repo) -> None:
    big = b"# " + b"x" * 98 + b"\n"
    repo.commit("main", {"big.py": big * (MAX_FILE // 100)})
    pull = repo.pull(files={"big.py": big * (MAX_FILE // 100) + b"x = 1\n", "train.py": NEW})
    change = read(pull)
    assert [file.path for file in change.files] == ["train.py"]
    assert change.not_reviewed == (NotReviewed("big.py", "too large: the limit is 5 MB"),)


def test_all_files_together_have_a_limit(repo: Repo, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "MAX_HEADS", 2 * len(NEW))
    change = read(repo.pull(files={f"{name}.py": NEW for name in "abc"}))
    assert [file.path for file in change.files] == ["a.py", "b.py"]
    (told,) = change.not_reviewed
    assert told.path == "c.py" and "too large together" in told.reason


def test_a_push_while_it_is_read(github: FakeGitHub, repo: Repo) -> None:
    """The blob is gone and the head is another one: this review is of no use."""
    pull = repo.pull(files={"train.py": NEW})
    api = client(repo)
    seen = api.pull(repo.full_name, pull.number)
    files = list_files(api, seen)
    gone = [dataclasses.replace(files[0], blob_sha="1" * 40)]
    change = read_change(api, seen, Config(), gone)
    assert change.not_reviewed == (NotReviewed("train.py", "the head version of the file is missing"),)
    pull.push({"train.py": OLD + b"z = 1\n"})
    with pytest.raises(SupersededError, match="moved while it was read"):
        read_change(api, seen, Config(), gone)


def test_a_limit_of_github_is_no_reason_to_leave_files_out(github: FakeGitHub, repo: Repo) -> None:
    pull = repo.pull(files={"train.py": NEW})
    github.faults.add("GET", "/git/blobs/", "primary-limit", times=-1)
    with pytest.raises(RateLimitedError):
        read(pull)


# --- git itself


def both_ways(pull: Pull, github: FakeGitHub) -> tuple[Change, Change]:
    """What the API gives, and what git gives when the API gives no patch."""
    first = read(pull)
    assert asked(github, ".git/") == 0
    github.limits.file_lines = 0
    second = read(pull)
    assert asked(github, ".git/") > 0
    return first, second


def test_git_gives_what_the_api_gives(github: FakeGitHub, repo: Repo) -> None:
    long = b"".join(b"value_%d = %d\n" % (n, n) for n in range(30))
    repo.commit("main", {"old.py": long, "crlf.py": OLD.replace(b"\n", b"\r\n"), "bare.py": b"x = 1"})
    pull = repo.pull(
        "mallory:evil",
        author="mallory",
        files={
            "train.py": NEW,
            "old.py": None,
            "new.py": b"import torch\n" + long,
            "crlf.py": NEW.replace(b"\n", b"\r\n"),
            "bare.py": b"x = 2",
            'odd "näme".py': NEW,
            "tests/test_a.py": NEW,
        },
    )
    repo.commit(
        "main", {"train.py": b"import os\n" + OLD}
    )  # the merge base is not the tip of the base branch
    first, second = both_ways(pull, github)
    assert first.files and first == second


def test_only_the_files_without_a_patch_come_from_git(github: FakeGitHub, repo: Repo) -> None:
    huge = b"".join(b"value_%d = %d\n" % (n, n) for n in range(500))
    github.limits.file_lines = 300
    pull = repo.pull(files={"train.py": NEW, "huge.py": huge, "data.json": huge})
    change = read(pull)
    assert [file.path for file in change.files] == ["huge.py", "train.py"]
    assert change.files[0].head == huge and len(change.files[0].added) == 500
    assert not change.not_reviewed
    assert asked(github, "/git/blobs/") == 1


def test_a_file_that_is_not_utf8_comes_from_git(github: FakeGitHub, repo: Repo) -> None:
    head = b"# coding: latin-1\nname = 'caf\xe9'\n"
    (file,) = read(repo.pull(files={"latin.py": head})).files
    assert (file.head, file.added) == (head, {1, 2})


def test_more_files_than_github_lists(github: FakeGitHub, repo: Repo) -> None:
    github.limits.files = 10
    pull = repo.pull(files={f"m{number:02}.py": NEW for number in range(25)} | {"run.sh": b"python m00.py\n"})
    change = read(pull)
    assert [file.path for file in change.files] == [*(f"m{number:02}.py" for number in range(25)), "run.sh"]
    assert asked(github, "/git/blobs/") == 0


@pytest.mark.parametrize("error", [TooLargeError("", status=406), RejectedError("", status=422)])
def test_a_diff_that_github_refuses_to_make(
    repo: Repo, error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(self: GitHubClient, repo: str, number: int) -> list[PullFile]:
        raise error

    pull = repo.pull(files={"train.py": NEW})
    monkeypatch.setattr(GitHubClient, "pull_files", refuse)
    (file,) = read(pull).files
    assert (file.head, file.added) == (NEW, {3})


def test_a_submodule_and_a_link_are_told(github: FakeGitHub, repo: Repo) -> None:
    tree = repo.git.add_tree(
        repo.git.refs["refs/heads/main"],
        [("120000", "link.py", repo.git.add_blob(b"train.py")), ("160000", "module.py", "1" * 40)],
    )
    person = repo.person("dev")
    base = repo.git.refs["refs/heads/main"]
    repo.git.set_ref("refs/heads/odd", repo.git.add_commit(tree, [base], "odd", person, person))
    github.limits.files = 0
    change = read(repo.pull("odd"))
    assert change.not_reviewed == (
        NotReviewed("link.py", "a symbolic link, not a file"),
        NotReviewed("module.py", "a submodule, not a file"),
    )


def test_where_git_fails_too_the_review_says_so(
    github: FakeGitHub, repo: Repo, monkeypatch: pytest.MonkeyPatch
) -> None:
    huge = b"".join(b"value_%d = %d\n" % (n, n) for n in range(500))
    pull = repo.pull(files={"huge.py": huge, "train.py": NEW})
    github.faults.add("*", r"\.git/", "503", times=-1)
    github.limits.file_lines = 300
    change = read(pull)
    assert [file.path for file in change.files] == ["train.py"]
    assert change.not_reviewed == (NotReviewed("huge.py", "GitHub omits its diff, and git fetch failed"),)
    github.limits.files = 1
    github.limits.file_lines = 20_000
    change = read(pull)
    assert [file.path for file in change.files] == ["huge.py"]
    assert change.not_reviewed == (
        NotReviewed("*.py", "GitHub does not list 1 of the 2 changed files, and git fetch failed"),
    )


def test_a_push_before_the_fetch(github: FakeGitHub, repo: Repo) -> None:
    github.limits.files = 0
    pull = repo.pull(files={"train.py": NEW})
    meanwhile(github, "/compare/", lambda: pull.push({"train.py": OLD + b"z = 1\n"}))
    with pytest.raises(SupersededError, match="moved while it was fetched"):
        read(pull)


def test_git_and_the_bounds_of_its_diff_and_heads(
    github: FakeGitHub, repo: Repo, monkeypatch: pytest.MonkeyPatch
) -> None:
    github.limits.files = 0
    pull = repo.pull(files={"a.py": NEW, "b.py": NEW, "c.py": NEW})
    monkeypatch.setattr(git_diff, "MAX_HEADS", 2 * len(NEW))
    change = read(pull)
    assert [file.path for file in change.files] == ["a.py", "b.py"]
    assert "too large together" in change.not_reviewed[0].reason
    monkeypatch.setattr(git_diff, "MAX_DIFF", 100)
    (told,) = read(pull).not_reviewed
    assert told.path == "*.py" and told.reason.endswith("and the diff is too large, the limit is 0.0001 MB")


# --- the versions of the project


def test_versions_come_from_the_head(github: FakeGitHub, repo: Repo) -> None:
    repo.commit("main", {"requirements.txt": b"torch==2.1.0\n"})
    pull = repo.pull(
        files={
            "requirements.txt": b"-r requirements/train.txt\n",
            "requirements/train.txt": b"torch==2.6.0\n",
            "docker/Dockerfile": b"FROM python:3.11\n",
            "pyproject.toml": b"[project]\nname = 'm'\ndependencies = ['torch>=2.5']\n",
            "uv.lock": b"#" * 1_000_001,
            "src/requirements.txt": b"torch==1.0\n",
        }
    )
    api = client(repo)
    found = read_facts(project_files(api, api.pull(repo.full_name, pull.number)))
    assert found.describe("torch") == "torch==2.6.0 (requirements/train.txt:1)"
    assert asked(github, "/git/trees/") == 3
    assert asked(github, "/git/blobs/") == 4


def test_a_project_that_names_no_versions(github: FakeGitHub, repo: Repo) -> None:
    api = client(repo)
    pull = repo.pull(files={"train.py": NEW})
    assert project_files(api, api.pull(repo.full_name, pull.number)) == {"README.md": b"# Models\n"}
    assert asked(github, "/git/") == 2
