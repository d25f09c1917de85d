"""Whose settings count: the base branch's, then the organisation's; never the pull request's."""

from __future__ import annotations

import pytest

from fake_github import FakeGitHub
from fake_github.pulls import Pull
from fake_github.repos import Repo
from ptopt.config import ConfigError
from ptopt.github.auth import for_token
from ptopt.github.base_config import base_config, head_config_problems
from ptopt.github.client import GitHubClient
from ptopt.github.values import PullRequest


def seen(pull: Pull) -> tuple[GitHubClient, PullRequest]:
    api = for_token(pull.github.token(pull.repo), pull.github.url)
    return api, api.pull(pull.repo.full_name, pull.number)


def repository(github: FakeGitHub, **files: bytes) -> Repo:
    names = {"own": ".ptopt.toml", "project": "pyproject.toml"}
    return github.repository("org/repo", {"a.py": b"", **{names[key]: data for key, data in files.items()}})


def test_the_base_branch_decides(github: FakeGitHub) -> None:
    repo = repository(github, own=b"budget = 2")
    pull = repo.pull("mallory:evil", files={".ptopt.toml": b"budget = 50"})
    config = base_config(*seen(pull))
    assert (config.budget, config.origin) == (2, ".ptopt.toml")


def test_the_table_of_the_project_file(github: FakeGitHub) -> None:
    repo = repository(github, project=b"[tool.ptopt]\nbudget = 3")
    config = base_config(*seen(repo.pull(files={"a.py": b"x = 1\n"})))
    assert (config.budget, config.origin) == (3, "pyproject.toml")


@pytest.mark.parametrize("project", [b"[project]\nname = 'm'\n", b"#" * 1_100_000])
def test_the_organisation_speaks_where_the_repository_does_not(github: FakeGitHub, project: bytes) -> None:
    github.repository("org/.github", {".ptopt.toml": b"budget = 4\n[pull-requests]\ndrafts = true"})
    repo = repository(github, project=project)
    config = base_config(*seen(repo.pull(files={"a.py": b"x = 1\n"})))
    assert (config.budget, config.origin) == (4, "org/.github/.ptopt.toml")
    assert config.pull_requests.drafts
    repo.commit("main", {".ptopt.toml": b"select = ['sync']"})
    config = base_config(*seen(repo.pull("other", files={"a.py": b"y = 1\n"})))
    assert (config.budget, config.pull_requests.drafts) == (5, False)  # files are never mixed


@pytest.mark.parametrize("private", [None, True])
def test_the_defaults_where_nobody_speaks(github: FakeGitHub, private: bool | None) -> None:
    if private:
        github.repository("org/.github", {".ptopt.toml": b"budget = 4"}, private=True, installation=False)
    config = base_config(*seen(repository(github).pull(files={"a.py": b"x = 1\n"})))
    assert (config.budget, config.origin) == (5, "")


def test_an_error_names_the_file(github: FakeGitHub) -> None:
    github.repository("org/.github", {".ptopt.toml": b"budget = 99"})
    repo = repository(github)
    with pytest.raises(ConfigError, match=r"^org/\.github/\.ptopt\.toml: budget: 99 is not allowed"):
        base_config(*seen(repo.pull(files={"a.py": b"x = 1\n"})))
    repo.commit("main", {".ptopt.toml": b"buget = 3"})
    with pytest.raises(ConfigError, match=r"^\.ptopt\.toml: unknown key 'buget'"):
        base_config(*seen(repo.pull("other", files={"a.py": b"y = 1\n"})))
    repo.commit("main", {".ptopt.toml": b"#" * 1_100_000})
    with pytest.raises(ConfigError, match=r"^\.ptopt\.toml: too large"):
        base_config(*seen(repo.pull("third", files={"a.py": b"z = 1\n"})))


def brought(pull: Pull) -> tuple[str, ...]:
    api, value = seen(pull)
    return head_config_problems(api, value, api.pull_files(value.repo, value.number))


def test_what_a_pull_request_brings_is_checked(github: FakeGitHub) -> None:
    repo = repository(github, own=b"budget = 2", project=b"[project]\nname = 'm'\n")
    assert brought(repo.pull("a", files={"a.py": b"x = 1\n"})) == ()
    assert brought(repo.pull("b", files={".ptopt.toml": b"budget = 3"})) == ()
    (problem,) = brought(repo.pull("mallory:c", files={".ptopt.toml": b"buget = 3"}))
    assert problem.startswith(".ptopt.toml: unknown key 'buget'")
    # The table does not count beside the file, but it does once the file is gone.
    table = b"[project]\nname = 'm'\n[tool.ptopt]\nbuget = 3\n"
    assert brought(repo.pull("d", files={"pyproject.toml": table})) == ()
    (problem,) = brought(repo.pull("e", files={"pyproject.toml": table, ".ptopt.toml": None}))
    assert problem.startswith("pyproject.toml [tool.ptopt]: unknown key 'buget'")
    assert brought(repo.pull("f", files={".ptopt.toml": None})) == ()
    repo.commit("main", {"pyproject.toml": table})
    (problem,) = brought(repo.pull("h", files={".ptopt.toml": None}))
    assert problem.startswith("pyproject.toml [tool.ptopt]: unknown key 'buget'")
    assert brought(repo.pull("g", files={"pyproject.toml": b"this is no TOML"})) == ()


def test_nothing_is_asked_where_no_settings_are_edited(github: FakeGitHub) -> None:
    api, value = seen(repository(github).pull(files={"a.py": b"x = 1\n"}))
    files = api.pull_files(value.repo, value.number)
    before = len(github.requests)
    assert head_config_problems(api, value, files) == ()
    assert len(github.requests) == before
