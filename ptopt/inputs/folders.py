"""Files and folders on disk, each file whole."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path, PurePosixPath

from ptopt.change import ChangedFile, whole_file
from ptopt.configs.file import load
from ptopt.configs.reading import MAX_BYTES
from ptopt.findings import NotReviewed
from ptopt.inputs.git import CheckoutError
from ptopt.inputs.heads import MAX_PROJECT_FILE, Tree
from ptopt.launch_scripts import may_launch, unread_script
from ptopt.pathkind import PYTHON, is_config, is_reviewable

SKIPPED_FOLDERS = frozenset({"node_modules", "__pycache__", "build", "dist", "site-packages"})
_ENVIRONMENT_MARKS = frozenset({"pyvenv.cfg", "conda-meta"})
NOT_UTF8 = "the file name is not UTF-8"
_OTHER = "not Python, a notebook or a configuration"
_UNKNOWN = (
    "not recognised as a configuration of Hugging Face trainers, axolotl, LLaMA-Factory, torchtune, Lightning, "
    "DeepSpeed, accelerate, vLLM, Docker, Compose, Kubernetes or GitHub workflows, or of Hydra with the `_target_` of a loader "
    "or a trainer"
)
_WALKED_THOUGH_HIDDEN = frozenset({".github"})  # workflows


def change_from_paths(
    paths: Sequence[Path], root: Path, *, wants: Callable[[str], bool]
) -> Iterator[ChangedFile | NotReviewed]:
    """The Python files, notebooks and configurations under `paths`, each whole and once, one at a time.

    Folders are walked in order of path. Skipped, unless named in `paths`: hidden folders but `.github`, virtual
    environments, `node_modules`, `__pycache__`, `build`, `dist`, `site-packages`. Links are not followed.
    `wants` sees each path before its file is read. Paths are relative to `root`, or absolute when outside it.
    Raises CheckoutError for a path that does not exist, before anything is read.
    """
    missing = [str(path) for path in paths if not os.path.exists(path)]
    dangling = [path for path in missing if os.path.islink(path)]
    if dangling:
        raise CheckoutError(f"{', '.join(dangling)}: a symbolic link that leads to no file or folder")
    if missing:
        raise CheckoutError(f"{', '.join(missing)}: no such file or folder")
    return _walk_all(paths, root, wants)


def named_files(paths: Iterable[Path], root: Path) -> frozenset[str]:
    """Those of `paths` that are files, by the paths that `change_from_paths` gives them."""
    top = _top(root)
    return frozenset(_name(os.path.realpath(path), top) for path in paths if os.path.isfile(path))


def file_from_bytes(
    path: Path, root: Path, data: bytes, *, wants: Callable[[str], bool]
) -> Iterator[ChangedFile | NotReviewed]:
    """A file that need not exist, as `change_from_paths` would give it."""
    name = _name(os.path.realpath(path), _top(root))
    if not is_reviewable(name):
        yield unread_script(printable(name), data) or NotReviewed(printable(name), _OTHER)
    elif wants(name):
        yield whole_file(name, data)


def project_files(root: Path, names: Iterable[str]) -> dict[str, bytes]:
    """Those of the named files that exist under `root` and are at most 1 MB, by name."""
    tree = Tree(root, MAX_PROJECT_FILE)
    contents = {name: tree(name) for name in dict.fromkeys(names)}
    return {name: content for name, content in contents.items() if content is not None}


def walked(paths: Sequence[str]) -> list[str]:
    """Those of the files that a walk of their folder would reach, in the same order; `paths` are all that it holds, with "/"."""
    places = [PurePosixPath(path) for path in paths]
    marks = {mark for place in places for mark in (place, *place.parents) if mark.name in _ENVIRONMENT_MARKS}
    environments = {mark.parent for mark in marks} - {PurePosixPath()}
    return [
        path
        for path, place in zip(paths, places, strict=True)
        if not any(map(_is_passed_over, place.parts[:-1])) and environments.isdisjoint(place.parents)
    ]


def _is_passed_over(folder: str) -> bool:
    return (folder.startswith(".") and folder not in _WALKED_THOUGH_HIDDEN) or folder in SKIPPED_FOLDERS


def printable(path: str) -> str:
    return path.encode("utf-8", "backslashreplace").decode("utf-8")


def _top(root: Path) -> str:
    return os.path.join(os.path.realpath(root), "")


def _name(place: str, top: str) -> str:
    return place.removeprefix(top).replace(os.sep, "/")


def _walk_all(
    paths: Sequence[Path], root: Path, wants: Callable[[str], bool]
) -> Iterator[ChangedFile | NotReviewed]:
    top = _top(root)
    seen: set[str] = set()
    trees: dict[str, Tree] = {}
    for path in paths:
        start = os.path.realpath(path)  # a link that the user names is followed: it is what he asked for
        folder = start if os.path.isdir(start) else os.path.dirname(start)
        tree = trees[folder] if folder in trees else trees.setdefault(folder, Tree(folder))
        for place, trouble in walk_files(start, _is_reviewed):
            name = _name(place, top)
            if name in seen:
                continue
            seen.add(name)
            shown = printable(name)
            if trouble:
                yield NotReviewed(shown, trouble)
            elif not is_reviewable(name):
                script = tree(place) if may_launch(name) else None
                yield unread_script(shown, script) or NotReviewed(shown, _OTHER)
            elif name != shown:
                yield NotReviewed(shown, NOT_UTF8)
            elif wants(name):
                content = tree(place)
                if content is None:
                    yield NotReviewed(name, tree.reasons.get(place, "the file is gone"))
                elif place == start and is_config(name) and load(name, content) is None:
                    yield NotReviewed(name, _UNKNOWN)  # it was named, so that it is not passed over
                else:
                    yield whole_file(name, content)


def _is_reviewed(entry: os.DirEntry[str]) -> bool:
    """A file that may be reviewed; of configurations those of a size that people write: data is larger."""
    if entry.name.endswith(PYTHON):
        return not entry.is_dir()
    return is_config(entry.path) and entry.is_file() and entry.stat().st_size <= MAX_BYTES


def walk_files(start: str, takes: Callable[[os.DirEntry[str]], bool]) -> Iterator[tuple[str, str]]:
    """The files under `start` that are taken in order of path, and the folders that cannot be listed with the reason."""
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
            try:
                if entry.is_dir(follow_symlinks=False):
                    if not _is_passed_over(entry.name):
                        children.append(os.path.join(entry.path, ""))
                elif takes(entry):
                    children.append(entry.path)
            except OSError:  # a link that leads back to itself, a file that is gone
                continue
        waiting.extend(sorted(children, reverse=True))
