"""Where changes come from: git, a patch with a tree, or files and folders on disk."""

from __future__ import annotations

import difflib
import os
import re
import shlex
import stat
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path, PurePosixPath
from types import TracebackType

from ptopt.change import HEAD_MISSING, MISMATCH, Change, ChangedFile, parse_diff, whole_file
from ptopt.difftext import show
from ptopt.findings import NotReviewed
from ptopt.project.around import MOST_BYTES, files_around

MAX_FILE = 5_000_000  # bytes of a file under review
MAX_PROJECT_FILE = 1_000_000  # bytes of a requirements file and the like

_SKIPPED_FOLDERS = frozenset({"node_modules", "__pycache__", "build", "dist", "site-packages"})
_ENVIRONMENT_MARKS = frozenset({"pyvenv.cfg", "conda-meta"})
_SUFFIXES = (".py", ".ipynb")
_NO_PYTHON = "not a Python file or a notebook"
_NOT_UTF8 = "the file name is not UTF-8"

# Nothing that a user or a repository configures may change the format or run a program of its own.
_GIT = ("git", "--no-pager", "-c", "core.quotepath=on", "-c", "core.fsmonitor=false", "-c", "diff.external=")
DIFF = ("diff", "--no-color", "--no-ext-diff", "--no-textconv", "--no-relative", "--submodule=short",
         "--ignore-submodules=dirty", "--src-prefix=a/", "--dst-prefix=b/", "-M", "-U3")  # fmt: skip
_COMMIT = re.compile(r"[~^]|^[0-9a-f]{7,64}$")  # what names a commit rather than a branch
_UNSHALLOW = "fetch the rest: git fetch --unshallow origin (with actions/checkout: fetch-depth: 0)"
_DROPPED_VARIABLES = frozenset({"GIT_DIFF_OPTS", "GIT_EXTERNAL_DIFF"})


class CheckoutError(RuntimeError):
    """The change cannot be read. The text is for the user: what is wrong, where, and what to do."""


def change_between(root: Path, base: str, head: str | None = None) -> Change:
    """What a pull request from `head` into `base` would show: the diff since they parted.

    Without `head` it is the working tree of the repository that holds `root`: the commits of the branch, the
    uncommitted changes of tracked files, and the files that are neither tracked nor ignored. A `base` that is no
    revision here but a branch of `origin` means that branch. Paths are relative to the top of the repository. Raises
    CheckoutError and ChangeError.
    """
    base_commit = _commit(root, base, remote_too=True)
    head_commit = _commit(root, head if head is not None else "HEAD")
    ancestor = _merge_base(root, base, base_commit, head_commit)
    if head is None:
        top = repository_root(root)
        files = _Tree(top)
        change = parse_diff(_output(root, *DIFF, ancestor, "--"), files)
        change = files.explain(_with_new(change, untracked_files(top), files))
        listed = _output(top, "ls-files", "-z", "--", "*.py")
        return _with_around(change, listed, _Tree(top, MOST_BYTES))
    with _Blobs(root, head_commit) as blobs:
        change = blobs.explain(parse_diff(_output(root, *DIFF, ancestor, head_commit, "--"), blobs))
        listed = _output(root, "ls-tree", "-r", "-z", "--full-tree", "--name-only", head_commit)
        return _with_around(change, listed, blobs)


def untracked_files(top: Path) -> tuple[str, ...]:
    """The Python files and notebooks that git neither tracks nor ignores; `top` is the top of the repository.

    Without those of folders that are not walked either (see `change_from_paths`).
    """
    listed = _output(top, "ls-files", "-z", "--others", "--exclude-standard")
    paths = [PurePosixPath(os.fsdecode(path)) for path in listed.split(b"\0") if path]
    foreign = {parent for path in paths for parent in path.parents if parent.name in _ENVIRONMENT_MARKS}
    foreign |= {path for path in paths if path.name in _ENVIRONMENT_MARKS}
    environments = {mark.parent for mark in foreign} - {PurePosixPath()}
    return tuple(
        str(path)
        for path in paths
        if path.suffix in _SUFFIXES
        and not any(part.startswith(".") or part in _SKIPPED_FOLDERS for part in path.parts[:-1])
        and environments.isdisjoint(path.parents)
    )


def _with_new(change: Change, paths: Iterable[str], read: _Tree) -> Change:
    """The change with files that git does not track yet, each as a new one."""
    files, not_reviewed = list(change.files), list(change.not_reviewed)
    for path in paths:
        printable = _printable(path)
        content = read(path) if path == printable else None
        if content is not None:
            files.append(whole_file(path, content))
        else:
            reason = "the file is gone" if path == printable else _NOT_UTF8
            not_reviewed.append(NotReviewed(printable, reason))
    files.sort(key=lambda file: file.path)
    return replace(change, files=tuple(files), not_reviewed=tuple(sorted(not_reviewed)))


def _printable(path: str) -> str:
    return path.encode("utf-8", "backslashreplace").decode("utf-8")


def _with_around(change: Change, listed: bytes, read: Callable[[str], bytes | None]) -> Change:
    """The change with the files around it; `listed` are the paths of the repository, as git gives them with `-z`."""
    if not change.files:
        return change
    paths = (os.fsdecode(path) for path in listed.split(b"\0") if path.endswith(b".py"))
    chosen = files_around(paths, {file.path for file in change.files})
    around = {path: data for path in chosen if (data := read(path)) is not None and len(data) <= MOST_BYTES}
    return replace(change, around=around)


def change_of_commit(
    root: Path,
    diff: bytes,
    head: str,
    *,
    why_not: Callable[[str], str | None],
    most: int,
    environment: Mapping[str, str],
) -> Change:
    """The change in `diff`; its head files are those of the commit `head` of the repository `root`.

    `why_not` says why the head of a path shall not be read, or None; `most` bounds the bytes of all of them
    together; git runs in `environment`. Raises as `change_between`.
    """
    with _Blobs(root, head, most, environment) as blobs:

        def wanted(path: str) -> bytes | None:
            reason = why_not(path)
            return blobs(path) if reason is None else blobs.refuse(path, reason)

        return blobs.explain(parse_diff(diff, wanted))


def change_from_patch(diff: bytes, tree: Path) -> Change:
    """The change in `diff`; its head files lie under `tree`. Raises as `change_between`, and where no file fits."""
    if not tree.is_dir():
        raise CheckoutError(f"{tree}: not a folder; give the folder that holds the patched files")
    files = _Tree(tree)
    change = parse_diff(diff, files)
    change = files.explain(change)
    lost = [item for item in change.not_reviewed if item.path.endswith(_SUFFIXES)]
    if lost and not any(file.path.endswith(_SUFFIXES) for file in change.files):
        if all(item.reason == HEAD_MISSING for item in lost):
            raise CheckoutError(
                f"{tree}: holds no Python file of the patch, such as {show(lost[0].path)}; give the folder that the "
                "paths of the patch start from"
            )
        if all(item.reason == HEAD_MISSING or item.reason.startswith(MISMATCH) for item in lost):
            raise CheckoutError(
                f"{tree}: the patch is not applied here; give the files as the patch leaves them"
            )
    return change


def change_from_paths(
    paths: Sequence[Path], root: Path, *, wants: Callable[[str], bool]
) -> Iterator[ChangedFile | NotReviewed]:
    """The `*.py` and `*.ipynb` files under `paths`, each whole and once, one at a time.

    Folders are walked in order of path. Skipped, unless named in `paths`: hidden folders, virtual
    environments, `node_modules`, `__pycache__`, `build`, `dist`, `site-packages`. Links are not followed.
    `wants` sees each path before its file is read. Paths are relative to `root`, or absolute when outside it.
    Raises CheckoutError for a path that does not exist, before anything is read.
    """
    for path in paths:
        if not os.path.exists(path):
            raise CheckoutError(f"{path}: no such file or folder")
    return _walk_all(paths, root, wants)


def file_from_bytes(
    path: Path, root: Path, data: bytes, *, wants: Callable[[str], bool]
) -> Iterator[ChangedFile | NotReviewed]:
    """A file that need not exist, as `change_from_paths` would give it."""
    name = _name(os.path.realpath(path), _top(root))
    if path.suffix not in _SUFFIXES:
        yield NotReviewed(_printable(name), _NO_PYTHON)
    elif wants(name):
        yield whole_file(name, data)


def _top(root: Path) -> str:
    return os.path.join(os.path.realpath(root), "")


def _name(place: str, top: str) -> str:
    return place.removeprefix(top).replace(os.sep, "/")


def project_files(root: Path, names: Iterable[str]) -> dict[str, bytes]:
    """Those of the named files that exist under `root` and are at most 1 MB, by name."""
    tree = _Tree(root, MAX_PROJECT_FILE)
    contents = {name: tree(name) for name in dict.fromkeys(names)}
    return {name: content for name, content in contents.items() if content is not None}


def repository_root(start: Path) -> Path:
    """The top folder of the working tree that holds `start`. Raises CheckoutError."""
    return Path(os.fsdecode(_output(start, "rev-parse", "--show-toplevel").removesuffix(b"\n")))


def default_base(root: Path) -> str:
    """What a branch goes into where nobody says it: the default branch of `origin`, else `main`, else `master`."""
    head = _git(root, "symbolic-ref", "--quiet", "--short", "refs/remotes/origin/HEAD")
    if head.returncode == 0 and _is_commit(root, name := os.fsdecode(head.stdout).strip()):
        return name
    for name in ("main", "master"):
        if _is_commit(root, name) or _is_commit(root, f"refs/remotes/origin/{name}"):
            return name
    _output(root, "rev-parse", "--git-dir")  # raises where the trouble is git or the repository
    raise CheckoutError(
        f"{root}: neither origin/HEAD nor a branch main or master; name with --base what the branch goes into"
    )


def _is_commit(root: Path, revision: str) -> bool:
    return _git(root, "rev-parse", "--verify", "--quiet", f"{revision}^{{commit}}").returncode == 0


def comparison(root: Path, base: str, head: str | None = None) -> str:
    """What `change_between` compares, for people: both sides, and how many files are not tracked."""
    sides = f"{base}...{head or 'working tree'}"
    new = 0 if head is not None else len(untracked_files(repository_root(root)))
    return sides + (f", with {new:,} untracked file{'s' * (new > 1)}" if new else "")


def together_too_large(limit: int) -> str:
    """Why a file is not read when `limit` bytes of files are read already, or would be."""
    return f"the files of the change are too large together, the limit is {limit / 1e6:g} MB"


# --- reading heads


class _Heads:
    """Head files by path. Remembers why it did not give one."""

    def __init__(self, limit: int = MAX_FILE) -> None:
        self.limit = limit
        self.reasons: dict[str, str] = {}

    def refuse(self, path: str, reason: str) -> bytes | None:
        self.reasons[path] = reason
        return None

    def explain(self, change: Change) -> Change:
        not_reviewed = (
            replace(item, reason=self.reasons.get(item.path, item.reason)) for item in change.not_reviewed
        )
        return replace(change, not_reviewed=tuple(not_reviewed))

    def too_large(self, size: int) -> str:
        return f"too large: {size / 1e6:.1f} MB, the limit is {self.limit / 1e6:g} MB"


class _Tree(_Heads):
    """Files of a folder. Links that lead out of it are not followed; links themselves are not read."""

    def __init__(self, root: str | Path, limit: int = MAX_FILE) -> None:
        super().__init__(limit)
        self.root = os.path.realpath(root)
        self._inside: dict[str, bool] = {}

    def __call__(self, path: str) -> bytes | None:
        try:
            place = os.path.join(self.root, path)
            if not self._holds(os.path.dirname(place)):
                return self.refuse(path, "a link in its path leads out of the tree")
            found = os.lstat(place)
            if stat.S_ISLNK(found.st_mode):
                return self.refuse(path, "a symbolic link, not a file")
            if not stat.S_ISREG(found.st_mode):
                return self.refuse(path, "not a regular file")
            if found.st_size > self.limit:
                return self.refuse(path, self.too_large(found.st_size))
            with open(place, "rb") as file:
                return file.read()
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as error:
            return self.refuse(path, f"cannot be read: {getattr(error, 'strerror', None) or error}")

    def _holds(self, folder: str) -> bool:
        """Does the folder lie in the tree, links followed? Remembered: most files have their folder in common."""
        if folder not in self._inside:
            self._inside[folder] = Path(os.path.realpath(folder)).is_relative_to(self.root)
        return self._inside[folder]


class _Blobs(_Heads):
    """Files of a commit, through one `git cat-file` for all."""

    def __init__(
        self,
        root: Path,
        commit: str,
        most: int = sys.maxsize,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__()
        self._left = self._most = most  # bytes of all of them together
        self._commit = commit.encode()
        self._process = subprocess.Popen(
            [*_GIT, "cat-file", "--batch"],
            cwd=root,
            env=_environment() if environment is None else environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )

    def __enter__(self) -> _Blobs:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.kill()
        self._process.communicate()

    def __call__(self, path: str) -> bytes | None:
        requests, answers = self._process.stdin, self._process.stdout
        if requests is None or answers is None:
            raise CheckoutError("git cat-file was started without pipes")
        if "\n" in path:
            return self.refuse(path, "a line break in the file name")
        try:
            requests.write(b"%s:%s\n" % (self._commit, os.fsencode(path)))
            requests.flush()
            line = answers.readline()
        except OSError:
            line = b""
        if not line:
            raise CheckoutError("git cat-file ended early; check the repository with `git fsck`")
        answer = line.split()
        if len(answer) != 3 or answer[1] not in (b"blob", b"tree", b"commit", b"tag"):
            return None
        size = int(answer[2])
        reason = self._refusal(answer[1], size)
        if reason:
            left = size + 1
            while left and (chunk := answers.read(min(left, 1 << 20))):
                left -= len(chunk)
            return self.refuse(path, reason)
        self._left -= size
        content = answers.read(size)
        answers.read(1)
        return content

    def _refusal(self, kind: bytes, size: int) -> str:
        if kind != b"blob":
            return "not a regular file"
        if size > self.limit:
            return self.too_large(size)
        return "" if size <= self._left else together_too_large(self._most)


# --- git


def _commit(root: Path, revision: str, *, remote_too: bool = False) -> str:
    if not revision or revision.startswith("-") or "\0" in revision:
        raise CheckoutError(f"{revision!r} is not a revision; name a branch, a tag or a commit")
    candidates = [revision, f"refs/remotes/origin/{revision}"] if remote_too else [revision]
    for candidate in candidates:
        found = _git(root, "rev-parse", "--verify", "--quiet", "--end-of-options", candidate + "^{commit}")
        if found.returncode == 0:
            return found.stdout.decode().strip()
    _output(root, "rev-parse", "--git-dir")  # raises where the trouble is git or the repository
    if revision == "HEAD":
        raise CheckoutError(f"{root}: the repository has no commit yet; commit something first")
    listed = _output(
        root, "for-each-ref", "--format=%(refname:lstrip=2)", "refs/heads", "refs/remotes", "refs/tags"
    )
    names = os.fsdecode(listed).split("\n")
    near = [
        name for name in difflib.get_close_matches(revision, names) if name and not name.endswith("/HEAD")
    ]
    message = f"{revision!r} is not a revision of {os.path.realpath(root)}"
    message += f"; the nearest: {', '.join(near)}" if near else ""
    if _COMMIT.search(revision) and _is_shallow(root):
        raise CheckoutError(f"{message}; the clone is shallow, {_UNSHALLOW}")
    branch = revision.removeprefix("origin/")
    # A clone of one branch would leave another one in FETCH_HEAD only.
    fetch = f"git fetch origin {shlex.quote(f'{branch}:refs/remotes/origin/{branch}')}"
    raise CheckoutError(f"{message}; if it is a branch of the remote, fetch it: {fetch}")


def _is_shallow(root: Path) -> bool:
    return _output(root, "rev-parse", "--is-shallow-repository").strip() == b"true"


def _merge_base(root: Path, base: str, base_commit: str, head_commit: str) -> str:
    found = _git(root, "merge-base", base_commit, head_commit)
    if found.returncode == 0:
        return found.stdout.decode().split()[0]
    if _is_shallow(root):
        raise CheckoutError(
            f"{root}: the clone is shallow and does not reach back to where the change left {base!r}; "
            f"{_UNSHALLOW}"
        )
    raise CheckoutError(f"{root}: {base!r} and the change have no common commit; is this the right base?")


def _output(root: Path, *arguments: str) -> bytes:
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
            [*_GIT, *arguments], cwd=root, env=_environment(), stdin=subprocess.DEVNULL, capture_output=True
        )
    except FileNotFoundError:
        raise CheckoutError(
            "git is not installed, or not on PATH; install it, or use --diff with --tree"
        ) from None
    except OSError as error:
        raise CheckoutError(f"{root}: git cannot be run: {error.strerror}") from None


def _environment() -> Mapping[str, str]:
    kept = {name: value for name, value in os.environ.items() if name not in _DROPPED_VARIABLES}
    return kept | {"GIT_OPTIONAL_LOCKS": "0", "GIT_TERMINAL_PROMPT": "0", "LC_ALL": "C"}


# --- folders


def _walk_all(
    paths: Sequence[Path], root: Path, wants: Callable[[str], bool]
) -> Iterator[ChangedFile | NotReviewed]:
    top = _top(root)
    seen: set[str] = set()
    trees: dict[str, _Tree] = {}
    for path in paths:
        start = os.path.realpath(path)  # a link that the user names is followed: it is what he asked for
        folder = start if os.path.isdir(start) else os.path.dirname(start)
        tree = trees[folder] if folder in trees else trees.setdefault(folder, _Tree(folder))
        for place, trouble in _walk(start):
            name = _name(place, top)
            if name in seen:
                continue
            seen.add(name)
            printable = _printable(name)
            if trouble:
                yield NotReviewed(printable, trouble)
            elif os.path.splitext(place)[1] not in _SUFFIXES:
                yield NotReviewed(printable, _NO_PYTHON)
            elif name != printable:
                yield NotReviewed(printable, _NOT_UTF8)
            elif wants(name):
                content = tree(place)
                if content is None:
                    yield NotReviewed(name, tree.reasons.get(place, "the file is gone"))
                else:
                    yield whole_file(name, content)


def _walk(start: str) -> Iterator[tuple[str, str]]:
    """The files under `start` in order of path, and the folders that cannot be listed with the reason."""
    if not os.path.isdir(start):
        yield start, ""
        return
    first = os.path.join(start, "")  # a folder ends in a separator here, so that one sort orders all paths
    waiting = [first]
    while waiting:
        place = waiting.pop()
        if not place.endswith(os.sep):
            yield place, ""
            continue
        try:
            with os.scandir(place) as listing:
                entries = list(listing)
        except OSError as error:
            yield place.removesuffix(os.sep), f"the folder cannot be read: {error.strerror}"
            continue
        if place != first and any(entry.name in _ENVIRONMENT_MARKS for entry in entries):
            continue
        children = []
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                if not entry.name.startswith(".") and entry.name not in _SKIPPED_FOLDERS:
                    children.append(os.path.join(entry.path, ""))
            elif entry.name.endswith(_SUFFIXES) and not entry.is_dir():
                children.append(entry.path)
        waiting.extend(sorted(children, reverse=True))
