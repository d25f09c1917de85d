"""The files of one commit that an audit reads, fetched by git into a temporary bare repository. Nothing is checked out."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from pathlib import Path

from ptopt.findings import NotReviewed
from ptopt.github.git_diff import FetchError, Git, Source
from ptopt.inputs import CheckoutError
from ptopt.inputs.folders import printable
from ptopt.inputs.heads import Blobs
from ptopt.inputs.whole import Folder, is_read

MAX_BYTES = 40_000_000  # of all files together: they go to another process as a whole
MAX_FILES = 20_000

__all__ = ["FetchError", "fetch_files"]


def fetch_files(
    github: Source, repo: str, commit: str, *, wants: Callable[[str], bool], also: frozenset[str]
) -> Folder:
    """Python files, notebooks, scripts and configurations of a commit, and the files named in `also`.

    Raises FetchError, and what the API raises.
    """
    url = github.clone_url(repo)
    with tempfile.TemporaryDirectory(prefix="ptopt-", ignore_cleanup_errors=True) as folder:
        git = Git(Path(folder), url, github.token())
        git.run("init", "--quiet", "--bare", "--template=", ".")
        git.run(
            *("fetch", "--quiet", "--depth=1", "--no-tags", "--no-recurse-submodules", "--no-auto-gc"),
            *("--no-write-fetch-head", url, f"+{commit}:refs/ptopt/head"),
        )
        listed = git.run("ls-tree", "-r", "-z", "--full-tree", "--name-only", commit)
        paths = [os.fsdecode(path) for path in listed.split(b"\0") if path]
        chosen = [path for path in paths if path in also or (is_read(path) and wants(path))]
        files: dict[str, bytes] = {}
        lost = [NotReviewed(printable(path), "too many files") for path in chosen[MAX_FILES:]]
        try:
            with Blobs(git.root, commit, MAX_BYTES, git.environment) as blobs:
                for path in chosen[:MAX_FILES]:
                    data = blobs(path) if path == printable(path) else None
                    if data is not None:
                        files[path] = data
                    else:
                        lost.append(NotReviewed(printable(path), blobs.reasons.get(path, "cannot be read")))
        except CheckoutError:
            raise FetchError("the output of git could not be read") from None
        return Folder(repo.rpartition("/")[2], files, tuple(lost))
