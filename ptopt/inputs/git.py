"""git: how it is run, and what revisions and branches there are."""

from __future__ import annotations

import difflib
import os
import re
import shlex
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path

# Nothing that a user or a repository configures may change the format or run a program of its own.
GIT = ("git", "--no-pager", "-c", "core.quotepath=on", "-c", "core.fsmonitor=false", "-c", "diff.external=")
DIFF = ("diff", "--no-color", "--no-ext-diff", "--no-textconv", "--no-relative", "--submodule=short",
         "--ignore-submodules=dirty", "--src-prefix=a/", "--dst-prefix=b/", "-M", "-U3")  # fmt: skip
_COMMIT = re.compile(r"[~^]|^[0-9a-f]{7,64}$")  # what names a commit rather than a branch
_UNSHALLOW = "fetch the rest: git fetch --unshallow origin (with actions/checkout: fetch-depth: 0)"
_NO_COMMIT = "the repository has no commit yet; commit something first, or review files with `ptopt check`"
_DEFAULT_BRANCHES = ("main", "master")
_DROPPED_VARIABLES = frozenset({"GIT_DIFF_OPTS", "GIT_EXTERNAL_DIFF"})


class CheckoutError(RuntimeError):
    """The change cannot be read. The text is for the user: what is wrong, where, and what to do."""


def repository_root(start: Path) -> Path:
    """The top folder of the working tree that holds `start`. Raises CheckoutError."""
    return Path(os.fsdecode(output(start, "rev-parse", "--show-toplevel").removesuffix(b"\n")))


def default_base(root: Path) -> str:
    """What a branch goes into where nobody says it: the default branch of `origin`, else `main`, else `master`."""
    head = _git(root, "symbolic-ref", "--quiet", "--short", "refs/remotes/origin/HEAD")
    if head.returncode == 0 and _is_commit(root, name := os.fsdecode(head.stdout).strip()):
        return name
    for name in _DEFAULT_BRANCHES:
        if _is_commit(root, name) or _is_commit(root, f"refs/remotes/origin/{name}"):
            return name
    output(root, "rev-parse", "--git-dir")  # raises where the trouble is git or the repository
    if not _is_commit(root, "HEAD"):
        raise CheckoutError(f"{root}: {_NO_COMMIT}")
    raise CheckoutError(
        f"{root}: neither origin/HEAD nor a branch main or master; name with --base what the branch goes into"
    )


def _is_commit(root: Path, revision: str) -> bool:
    return _git(root, "rev-parse", "--verify", "--quiet", f"{revision}^{{commit}}").returncode == 0


def commit_of(root: Path, revision: str, *, remote_too: bool = False) -> str:
    """The commit that a revision names; with `remote_too` also one that is a branch of `origin` only."""
    if not revision or revision.startswith("-") or "\0" in revision:
        raise CheckoutError(f"{revision!r} is not a revision; name a branch, a tag or a commit")
    candidates = [revision, f"refs/remotes/origin/{revision}"] if remote_too else [revision]
    for candidate in candidates:
        found = _git(root, "rev-parse", "--verify", "--quiet", "--end-of-options", candidate + "^{commit}")
        if found.returncode == 0:
            return found.stdout.decode().strip()
    output(root, "rev-parse", "--git-dir")  # raises where the trouble is git or the repository
    if revision == "HEAD":
        raise CheckoutError(f"{root}: {_NO_COMMIT}")
    listed = output(
        root, "for-each-ref", "--format=%(refname:lstrip=2)", "refs/heads", "refs/remotes", "refs/tags"
    )
    if not listed.strip():
        raise CheckoutError(f"{root}: {_NO_COMMIT}")
    names = os.fsdecode(listed).split("\n")
    # Who names one of them means the default branch.
    usual = _DEFAULT_BRANCHES if revision.removeprefix("origin/") in _DEFAULT_BRANCHES else ()
    close = (*(name for name in usual if name in names), *difflib.get_close_matches(revision, names))
    near = [name for name in dict.fromkeys(close) if name and not name.endswith("/HEAD")]
    message = f"{revision!r} is not a revision of {os.path.realpath(root)}"
    message += f"; the nearest: {', '.join(near)}" if near else ""
    if _COMMIT.search(revision) and _is_shallow(root):
        raise CheckoutError(f"{message}; the clone is shallow, {_UNSHALLOW}")
    branch = revision.removeprefix("origin/")
    # A clone of one branch would leave another one in FETCH_HEAD only.
    fetch = f"git fetch origin {shlex.quote(f'{branch}:refs/remotes/origin/{branch}')}"
    raise CheckoutError(f"{message}; if it is a branch of the remote, fetch it: {fetch}")


def _is_shallow(root: Path) -> bool:
    return output(root, "rev-parse", "--is-shallow-repository").strip() == b"true"


def merge_base(root: Path, base: str, base_commit: str, head_commit: str) -> str:
    """The commit at which the change left the base."""
    found = _git(root, "merge-base", base_commit, head_commit)
    if found.returncode == 0:
        return found.stdout.decode().split()[0]
    if _is_shallow(root):
        raise CheckoutError(
            f"{root}: the clone is shallow and does not reach back to where the change left {base!r}; "
            f"{_UNSHALLOW}"
        )
    raise CheckoutError(f"{root}: {base!r} and the change have no common commit; is this the right base?")


def compared(before: bytes, after: bytes) -> bytes:
    """The diff of two versions of a file, as git makes that of a change."""
    with tempfile.TemporaryDirectory() as folder:
        for name, data in (("before", before), ("after", after)):
            Path(folder, name).write_bytes(data)
        done = _git(Path(folder), *DIFF, "--no-index", "--", "before", "after")
    if done.returncode > 1:
        raise CheckoutError(f"git diff failed: {os.fsdecode(done.stderr).strip()}")
    return done.stdout


def output(root: Path, *arguments: str) -> bytes:
    """What git prints. Raises CheckoutError, with the words of git."""
    done = _git(root, *arguments)
    if done.returncode == 0:
        return done.stdout
    text = os.fsdecode(done.stderr).strip()
    if "not a git repository" in text:
        raise CheckoutError(
            f"{root}: not a git repository; run ptopt inside one, or review files with `ptopt check`"
        )
    raise CheckoutError(f"{root}: git {arguments[0]} failed: {text or f'exit status {done.returncode}'}")


def _git(root: Path, *arguments: str) -> subprocess.CompletedProcess[bytes]:
    if not root.is_dir():
        raise CheckoutError(f"{root}: no such folder")
    try:
        return subprocess.run(
            [*GIT, *arguments], cwd=root, env=environment(), stdin=subprocess.DEVNULL, capture_output=True
        )
    except FileNotFoundError:
        raise CheckoutError(
            "git is not installed, or not on PATH; install it, or use --diff with --tree"
        ) from None
    except OSError as error:
        raise CheckoutError(f"{root}: git cannot be run: {error.strerror}") from None


def environment() -> Mapping[str, str]:
    """The variables that git runs with."""
    kept = {name: value for name, value in os.environ.items() if name not in _DROPPED_VARIABLES}
    return kept | {"GIT_OPTIONAL_LOCKS": "0", "GIT_TERMINAL_PROMPT": "0", "LC_ALL": "C"}
