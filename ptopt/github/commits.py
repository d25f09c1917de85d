"""A commit through the git data API: whole files onto a branch, and only if nobody else was there first."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any

from ptopt.github.endpoint import checked_sha, quoted, repo_path
from ptopt.github.errors import AmbiguousError, RejectedError, UnavailableError
from ptopt.github.transport import Transport

_FILE, _EXECUTABLE = "100644", "100755"


def commit_files(
    transport: Transport,
    repo: str,
    branch: str,
    expected_head: str,
    files: Mapping[str, bytes],
    message: str,
) -> str:
    """Commits `files` (path: new content) on top of `expected_head`; the new commit's id.

    RejectedError when the branch moved, or a path is no regular file. AmbiguousError only when the branch may have
    been moved to the new commit and reading it did not show.
    """
    head = f"{repo_path(repo)}/git/ref/heads/{quoted(branch)}"
    base = repo_path(repo) + "/git"
    if transport.get(head, _target) != checked_sha(expected_head):
        raise RejectedError(f"{repo}: branch {branch!r} is no longer at {expected_head}", status=409)
    tree = transport.get(f"{base}/commits/{expected_head}", lambda data: str(data["tree"]["sha"]))
    modes = _modes(transport, base, tree, files)
    try:
        entries = [
            {"path": path, "mode": modes[path], "type": "blob", "sha": _blob(transport, base, content)}
            for path, content in files.items()
        ]
        new_tree = transport.write("POST", f"{base}/trees", {"base_tree": tree, "tree": entries}, _sha)
        commit = transport.write(
            "POST",
            f"{base}/commits",
            {"message": message, "tree": new_tree, "parents": [expected_head]},
            _sha,
        )
    except AmbiguousError as error:  # objects that nothing points to yet: nobody sees them
        raise UnavailableError(str(error), status=error.status) from None
    try:
        return transport.write(
            "PATCH", f"{base}/refs/heads/{quoted(branch)}", {"sha": commit, "force": False}, _target
        )
    except AmbiguousError:
        if transport.get(head, _target) != commit:
            raise
        return commit


def _blob(transport: Transport, base: str, content: bytes) -> str:
    payload = {"content": base64.b64encode(content).decode("ascii"), "encoding": "base64"}
    return transport.write("POST", f"{base}/blobs", payload, _sha)


def _modes(transport: Transport, base: str, tree: str, paths: Mapping[str, bytes]) -> dict[str, str]:
    """The mode that each path has, so that a script stays executable. A new path is a plain file."""
    folders: dict[str, dict[str, tuple[str, str]]] = {}

    def listing(sha: str) -> dict[str, tuple[str, str]]:
        if sha not in folders:
            folders[sha] = transport.get(f"{base}/trees/{checked_sha(sha)}", _entries)
        return folders[sha]

    modes = {}
    for path in paths:
        quoted(path)
        *above, name = path.split("/")
        here: str | None = tree
        for folder in above:
            kind, sha = listing(here).get(folder, ("", "")) if here else ("", "")
            if kind not in ("", "040000"):
                raise RejectedError(f"not below a folder: {path!r}", status=422)
            here = sha or None
        mode = listing(here).get(name, (_FILE, ""))[0] if here else _FILE
        if mode not in (_FILE, _EXECUTABLE):
            raise RejectedError(f"not a regular file: {path!r}", status=422)
        modes[path] = mode
    return modes


def _entries(data: Any) -> dict[str, tuple[str, str]]:
    if data.get("truncated"):
        raise ValueError("a folder too large to list")
    return {str(entry["path"]): (str(entry["mode"]), str(entry["sha"])) for entry in data["tree"]}


def _sha(data: Any) -> str:
    return checked_sha(str(data["sha"]))


def _target(data: Any) -> str:
    return checked_sha(str(data["object"]["sha"]))
