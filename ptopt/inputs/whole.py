"""All of a folder that an audit reads: Python files, notebooks, shell scripts, configurations, the documentation."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from ptopt.findings import NotReviewed
from ptopt.inputs.folders import NOT_UTF8, printable, walk_files
from ptopt.inputs.git import CheckoutError
from ptopt.inputs.heads import MAX_FILE, Tree
from ptopt.pathkind import PYTHON, is_config_of_lines, is_dockerfile, is_readme
from ptopt.project.naming import may_name
from ptopt.project.surroundings import is_requirements

_ALSO_READ = (".sh", ".yaml", ".yml", ".json", ".md")
_LARGEST = 256_000  # bytes of these: a configuration that people write has a few thousand
_MOST_ABOVE = 1000  # entries of a folder above
MOST_BYTES = 200_000_000  # of all files together


@dataclass(frozen=True, slots=True)
class Folder:
    """Files by path from the root; those that were not read are named. `above`: the modules and packages in the folders above it."""

    name: str
    files: dict[str, bytes]
    not_read: tuple[NotReviewed, ...] = ()
    above: frozenset[str] = frozenset()
    part: bool = False  # of a repository


def is_read(path: str) -> bool:
    """Does an audit read the file: code, what starts it or tells how to, what it requires, or what may be or name a configuration?"""
    return (
        path.endswith((*PYTHON, *_ALSO_READ))
        or is_dockerfile(path)
        or is_readme(path)
        or is_requirements(path)
        or may_name(path)
        or is_config_of_lines(path)
    )


def _is_read(entry: os.DirEntry[str]) -> bool:
    return is_read(entry.path) and not entry.is_dir()


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
    for place, trouble in walk_files(start, _is_read):
        name = place.removeprefix(top).replace(os.sep, "/")
        shown = printable(name)
        if trouble or name != shown:
            lost.append(NotReviewed(shown, trouble or NOT_UTF8))
        elif wants(name) and not name.endswith(PYTHON):
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
    name = os.path.basename(start.rstrip(os.sep)) or "repository"
    return Folder(name, files, tuple(lost), _above(start, top), part=os.path.join(start, "") != top)


def _above(start: str, top: str) -> frozenset[str]:
    """The first names of what code in a folder may import from the rest of its repository; none of the repository itself."""
    found: set[str] = set()
    folder = start
    while folder.startswith(top):
        found.add(os.path.basename(folder))
        folder = os.path.dirname(folder)
        for place in (folder, os.path.join(folder, "src")):
            found.update(_modules(place))
    return frozenset(found - {os.path.basename(start)})


def _modules(folder: str) -> Iterator[str]:
    """The modules in a folder, and the folders in it that hold Python files."""
    try:
        entries = list(islice(os.scandir(folder), _MOST_ABOVE))
    except OSError:
        return
    for entry in entries:
        if entry.is_dir(follow_symlinks=False):
            if not entry.name.startswith(".") and any(name.endswith(".py") for name in _names(entry.path)):
                yield entry.name
        elif entry.name.endswith(".py"):
            yield entry.name.removesuffix(".py")


def _names(folder: str) -> list[str]:
    try:
        return [entry.name for entry in islice(os.scandir(folder), _MOST_ABOVE)]
    except OSError:
        return []
