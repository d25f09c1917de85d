"""A change: what git compares, or a patch with the files as it leaves them."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import islice
from pathlib import Path

from ptopt.change import HEAD_MISSING, MISMATCH, Change, ChangedFile, Status, parse_diff, whole_file
from ptopt.difftext import show
from ptopt.findings import NotReviewed
from ptopt.inputs.folders import NOT_UTF8, printable, walk_files, walked
from ptopt.inputs.git import DIFF, CheckoutError, commit_of, compared, merge_base, output, repository_root
from ptopt.inputs.heads import Blobs, Tree
from ptopt.pathkind import is_reviewable
from ptopt.project.around import MOST_BYTES, Neighbours, files_around

_MOST_LISTED = 20_000  # files of a folder that is no repository


def change_between(root: Path, base: str, head: str | None = None) -> Change:
    """What a pull request from `head` into `base` would show: the diff since they parted.

    Without `head` it is the working tree of the repository that holds `root`: the commits of the branch, the
    uncommitted changes of tracked files, and the files that are neither tracked nor ignored. A `base` that is no
    revision here but a branch of `origin` means that branch. Paths are relative to the top of the repository. Raises
    CheckoutError and ChangeError.
    """
    sides = f"{base}...{head or 'working tree'}"
    base_commit = commit_of(root, base, remote_too=True)
    head_commit = commit_of(root, head if head is not None else "HEAD")
    ancestor = merge_base(root, base, base_commit, head_commit)
    if head is None:
        top = repository_root(root)
        files = Tree(top)
        change = parse_diff(output(root, *DIFF, ancestor, "--"), files)
        new = _untracked_files(top)
        change = files.explain(_with_new(change, new, files))
        listed = output(top, "ls-files", "-z", "--", "*.py")
        sides += f", with {len(new):,} untracked file{'s' * (len(new) > 1)}" if new else ""
        return replace(_with_around(change, listed, Tree(top, MOST_BYTES)), compared=sides)
    with Blobs(root, head_commit) as blobs:
        change = blobs.explain(parse_diff(output(root, *DIFF, ancestor, head_commit, "--"), blobs))
        listed = output(root, "ls-tree", "-r", "-z", "--full-tree", "--name-only", head_commit)
        return replace(_with_around(change, listed, blobs), compared=sides)


def with_head(root: Path, base: str, file: ChangedFile, head: bytes) -> ChangedFile:
    """A file of `change_between(root, base)` as it is once its text is `head`."""
    if file.status is Status.ADDED:
        return whole_file(file.path, head)
    ancestor = merge_base(root, base, commit_of(root, base, remote_too=True), commit_of(root, "HEAD"))
    before = output(root, "cat-file", "blob", f"{ancestor}:{file.old_path or file.path}")
    found = parse_diff(compared(before, head), lambda _: head).files
    if not found:  # the text of the base again
        return replace(file, hunks=(), added=frozenset(), head=head, removed=())
    return replace(found[0], path=file.path, old_path=file.old_path, status=file.status)


def _untracked_files(top: Path) -> tuple[str, ...]:
    """The files to review that git neither tracks nor ignores; `top` is the top of the repository.

    Without those of folders that are not walked either (see `change_from_paths`).
    """
    listed = output(top, "ls-files", "-z", "--others", "--exclude-standard")
    paths = [os.fsdecode(path) for path in listed.split(b"\0") if path]
    return tuple(path for path in walked(paths) if is_reviewable(path))


def _with_new(change: Change, paths: Iterable[str], read: Tree) -> Change:
    """The change with files that git does not track yet, each as a new one."""
    files, not_reviewed = list(change.files), list(change.not_reviewed)
    for path in paths:
        shown = printable(path)
        content = read(path) if path == shown else None
        if content is not None:
            files.append(whole_file(path, content))
        else:
            reason = "the file is gone" if path == shown else NOT_UTF8
            not_reviewed.append(NotReviewed(shown, reason))
    files.sort(key=lambda file: file.path)
    return replace(change, files=tuple(files), not_reviewed=tuple(sorted(not_reviewed)))


def _with_around(
    change: Change, listed: bytes | Iterable[str], read: Callable[[str], bytes | None]
) -> Change:
    """The change with the files around it; `listed` are the paths of the repository, or what git gives of them with `-z`."""
    if not change.files:
        return change
    paths = map(os.fsdecode, listed.split(b"\0")) if isinstance(listed, bytes) else listed
    chosen = files_around(paths, {file.path for file in change.files})
    around = {path: data for path in chosen if (data := read(path)) is not None and len(data) <= MOST_BYTES}
    return replace(change, around=around)


def neighbours_in(root: Path) -> Neighbours:
    """The files around each file of a folder: of a repository those that git does not ignore, as `change_between` has them."""

    def listed() -> Iterable[str]:
        try:
            top = repository_root(root)
        except CheckoutError:
            return _walked(root)
        tracked = output(top, "ls-files", "-z", "--", "*.py").split(b"\0")
        return (*map(os.fsdecode, tracked), *_untracked_files(top))

    return Neighbours(listed, Tree(root, MOST_BYTES))


def _walked(root: Path) -> Iterator[str]:
    top = os.path.join(os.path.realpath(root), "")
    python = walk_files(top, lambda entry: entry.name.endswith(".py") and not entry.is_dir())
    return (
        place.removeprefix(top).replace(os.sep, "/")
        for place, trouble in islice(python, _MOST_LISTED)
        if not trouble
    )


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
    with Blobs(root, head, most, environment) as blobs:

        def wanted(path: str) -> bytes | None:
            reason = why_not(path)
            return blobs(path) if reason is None else blobs.refuse(path, reason)

        return blobs.explain(parse_diff(diff, wanted))


def change_from_patch(diff: bytes, tree: Path) -> Change:
    """The change in `diff`; its head files, and those around them, lie under `tree`. Raises as `change_between`, and where no file fits."""
    if not tree.is_dir():
        raise CheckoutError(f"{tree}: not a folder; give the folder that holds the patched files")
    files = Tree(tree)
    change = parse_diff(diff, files)
    change = files.explain(change)
    lost = [item for item in change.not_reviewed if is_reviewable(item.path)]
    if lost and not any(is_reviewable(file.path) for file in change.files):
        if all(item.reason == HEAD_MISSING for item in lost):
            raise CheckoutError(
                f"{tree}: holds no Python file of the patch, such as {show(lost[0].path)}; give the folder that the "
                "paths of the patch start from"
            )
        if all(item.reason == HEAD_MISSING or item.reason.startswith(MISMATCH) for item in lost):
            raise CheckoutError(
                f"{tree}: the patch is not applied here; give the files as the patch leaves them"
            )
    return _with_around(change, _walked(tree), Tree(tree, MOST_BYTES))
