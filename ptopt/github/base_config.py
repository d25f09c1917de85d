"""The settings of a pull request's review, from its base branch: a pull request cannot change its own review."""

from __future__ import annotations

from collections.abc import Sequence

from ptopt.config import MAX_BYTES, OWN_FILE, PROJECT_FILE, Config, ConfigError, load_config
from ptopt.github.client import GitHubClient
from ptopt.github.errors import ForbiddenError, NotFoundError, TooLargeError
from ptopt.github.values import PullFile, PullRequest
from ptopt.rules import known_names

_ORGANISATION_REPOSITORY = ".github"


def settings_of(github: GitHubClient, pull: PullRequest) -> tuple[Config, tuple[str, ...]]:
    """What is in force for a pull request: `base_config`, or the defaults and what is wrong with the settings."""
    try:
        return base_config(github, pull), ()
    except ConfigError as error:
        return Config(), error.problems


def base_config(github: GitHubClient, pull: PullRequest) -> Config:
    """The settings at the base commit, else those of the owner's `.github` repository, else the defaults.

    The files of the two repositories are never mixed. ConfigError names the file.
    """
    known = known_names()
    config = load_config(_present(github, pull.repo, pull.base_sha), known)
    shared = f"{pull.repo.partition('/')[0]}/{_ORGANISATION_REPOSITORY}"
    if config.origin or pull.repo == shared:
        return config
    name = f"{shared}/{OWN_FILE}"
    try:
        data = _file(github, shared, OWN_FILE, "")
        if data is None:
            return config
        return load_config({OWN_FILE: data}, known).read_from(name)
    except ForbiddenError:  # it may be private, and not shared with us
        return config
    except ConfigError as error:
        raise ConfigError(problem.replace(OWN_FILE, name, 1) for problem in error.problems) from None


def head_config_problems(
    github: GitHubClient, pull: PullRequest, files: Sequence[PullFile]
) -> tuple[str, ...]:
    """What is wrong with the settings that will count once it is merged; () when it does not touch them."""
    edited = {path for file in files for path in (file.path, file.previous_path)} & {OWN_FILE, PROJECT_FILE}
    if not edited:
        return ()
    try:
        found = _present(github, pull.repo, pull.head_sha)
        # A project file beside a .ptopt.toml does not count; without it, one that nobody edited may.
        if OWN_FILE in edited or not edited.isdisjoint(found):
            load_config(found, known_names())
    except ConfigError as error:
        return error.problems
    return ()


def _present(github: GitHubClient, repo: str, commit: str) -> dict[str, bytes]:
    """The one file of the two that counts, if there is one."""
    try:  # one read for both, and none for the next pull request on the same commit
        there = {entry.path for entry in github.tree(repo, commit)}
    except NotFoundError:
        return {}
    for name in (OWN_FILE, PROJECT_FILE):
        data = _file(github, repo, name, commit) if name in there else None
        if data is not None:
            return {name: data}
    return {}


def _file(github: GitHubClient, repo: str, name: str, ref: str) -> bytes | None:
    try:
        return github.file(repo, name, ref)
    except TooLargeError:
        if name == PROJECT_FILE:  # none of our business, as it is on the command line
            return None
        raise ConfigError([f"{name}: too large, at most {MAX_BYTES} bytes are read"]) from None
