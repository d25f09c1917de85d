"""What a review of two commits reads of them besides the change: settings, facts, and what names configurations."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from ptopt.inputs.folders import walked
from ptopt.inputs.git import commit_of, output
from ptopt.inputs.heads import MAX_PROJECT_FILE, Blobs
from ptopt.inputs.naming import Texts, naming_of
from ptopt.project.naming import MOST_BYTES, Naming, may_name


def files_of_commit(root: Path, revision: str, names: Iterable[str]) -> dict[str, bytes]:
    """Those of the named files that the commit holds and that are at most 1 MB, by name. Raises CheckoutError.

    A revision that is none here but a branch of `origin` means that branch.
    """
    commit = commit_of(root, revision, remote_too=True)
    with Blobs(root, commit, limit=MAX_PROJECT_FILE) as blobs:
        contents = {name: blobs(name) for name in dict.fromkeys(names)}
    return {name: content for name, content in contents.items() if content is not None}


def naming_in_commit(root: Path, revision: str) -> Naming:
    """What in the commit may name a configuration, as `naming_below` has it of a folder."""

    def read(texts: Texts) -> bool:
        commit = commit_of(root, revision)
        paths = _namers(output(root, "ls-tree", "-r", "-z", "-l", "--full-tree", commit))
        with Blobs(root, commit, limit=MOST_BYTES) as blobs:
            return all(texts.add(path, blobs(path)) for path in paths)

    return naming_of(read)


def _namers(listed: bytes) -> list[str]:
    """The files to read of what git lists with `-z -l`, in order: regular ones of a readable size, in folders that are walked."""
    paths: list[str] = []
    readable: set[str] = set()
    for line in filter(None, listed.split(b"\0")):
        about, _, name = line.partition(b"\t")
        mode, _, _, size = about.split()
        paths.append(os.fsdecode(name))
        if mode.startswith(b"100") and int(size) <= MOST_BYTES:
            readable.add(paths[-1])
    return sorted(path for path in walked(paths) if path in readable and may_name(path))
