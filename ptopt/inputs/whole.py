"""All of a folder that an audit reads: Python files, notebooks, shell scripts, configurations."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from ptopt.audit.audit import PYTHON
from ptopt.findings import NotReviewed
from ptopt.inputs.folders import ENVIRONMENT_MARKS, NOT_UTF8, SKIPPED_FOLDERS, printable
from ptopt.inputs.git import CheckoutError
from ptopt.inputs.heads import MAX_FILE, Tree

_ALSO_READ = (".sh", ".yaml", ".yml", ".json")
_LARGEST = 256_000  # bytes of these: a configuration that people write has a few thousand
MOST_BYTES = 200_000_000  # of all files together


READ = (*PYTHON, *_ALSO_READ)
printable_path = printable


@dataclass(frozen=True, slots=True)
class Folder:
    """Files by path from the root; those that were not read are named."""

    name: str
    files: dict[str, bytes]
    not_read: tuple[NotReviewed, ...] = ()


def whole_folder(path: Path, root: Path, *, wants: Callable[[str], bool]) -> Folder:
    """The files under `path`, in order; hidden folders, environments and build folders are left out. Links are not followed.

    Raises CheckoutError where there is no such folder.
    """
    if not path.is_dir():
        raise CheckoutError(f"{path}: not a folder; an audit is of a whole repository")
    start = os.path.realpath(path)
    top = os.path.join(os.path.realpath(root), "")
    tree, small = Tree(start, MAX_FILE), Tree(start, _LARGEST)
    files: dict[str, bytes] = {}
    lost: list[NotReviewed] = []
    left = MOST_BYTES
    for place, trouble in _walk(start):
        name = place.removeprefix(top).replace(os.sep, "/")
        shown = printable(name)
        if trouble or name != shown:
            lost.append(NotReviewed(shown, trouble or NOT_UTF8))
        elif wants(name) and name.endswith(_ALSO_READ):
            if (data := small(place)) is not None and len(data) <= left:
                left -= len(data)
                files[name] = data
        elif wants(name):
            data = tree(place)
            if data is None:
                lost.append(NotReviewed(name, tree.reasons.get(place, "the file is gone")))
            elif len(data) > left:
                lost.append(NotReviewed(name, f"the files are larger than {MOST_BYTES / 1e6:g} MB together"))
            else:
                left -= len(data)
                files[name] = data
    return Folder(os.path.basename(start.rstrip(os.sep)) or "repository", files, tuple(lost))


def _walk(start: str) -> Iterator[tuple[str, str]]:
    """The files that are read, folder by folder, and the folders that cannot be listed with the reason."""
    lost: list[OSError] = []
    for folder, folders, names in os.walk(start, onerror=lost.append):
        if folder != start and not ENVIRONMENT_MARKS.isdisjoint({*folders, *names}):
            folders.clear()
            continue
        folders[:] = sorted(f for f in folders if not f.startswith(".") and f not in SKIPPED_FOLDERS)
        yield from ((os.path.join(folder, name), "") for name in sorted(names) if name.endswith(READ))
    for error in lost:
        yield str(error.filename), f"the folder cannot be read: {error.strerror}"
