"""Changes as a reviewer gets them, read from git clones: labelled cases and random commits, kept on disk for the next run.

A labelled clean commit is shown as it is. A labelled fix is shown the way the problem came in: the commit that wrote it
(`intro`: one of at most 400 added lines that wrote at least half of the range), else the fix backwards (`revert`), else the
file as it stood before the fix (`snapshot`); the first of these that adds a line of the range. All Python files of the
commit belong to it, at most MOST_FILES; files that the clone lacks are left out.
"""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Collection, Iterator, Mapping
from dataclasses import asdict, dataclass
from hashlib import sha256
from itertools import islice
from pathlib import Path
from typing import Any

from benchmarks.quality.mine import USES_TORCH, clone_name, clones
from ptopt.change import Change, ChangedFile, ChangeError, Hunk, Status, parse_diff, whole_file
from ptopt.config import Config
from ptopt.findings import NotReviewed, Review
from ptopt.inputs import MAX_FILE
from ptopt.model.advisor import Advisor
from ptopt.project.around import MOST_BYTES, files_around
from ptopt.project.facts import FACT_FILES, read_facts
from ptopt.review import review_files
from ptopt.rules import known_names
from training.sources.base import SourceError
from training.sources.git import Clone

MOST_FILES = 60  # Python files of one change
MOST_DIFF = 2_000_000  # bytes of the diff of a random commit: more is data or vendored code
MOST_LOOKED_AT = 2000  # commits of a repository, in search of those that may be drawn
_FORMAT = 3  # of what is kept on disk
_EMPTY_TREE = "4b825dc642cb6eb9a060e54bf8d69288fbee4904"
_COMMITS_AT_ONCE = 50


class NotAvailableError(Exception):
    """The clone lacks what the case needs."""


@dataclass(frozen=True)
class Material:
    """A change in plain values, the project's fact files at its head, and where the labelled lines are there."""

    repo: str
    commit: str  # whose files are the head files
    mode: str  # "intro", "revert", "snapshot" or "commit"
    path: str
    start: int
    end: int
    files: list[dict[str, Any]]
    not_reviewed: list[tuple[str, str]]
    facts: dict[str, str]  # latin-1, one character a byte, as is the head of each file
    around: dict[str, str]  # other files of the repository

    def without_removed(self) -> Material:
        """Where a fix is read backwards, the lines that it removes are the answer."""
        files = [file | {"removed": []} for file in self.files]
        return dataclasses.replace(self, files=files) if self.mode == "revert" else self

    def change(self) -> Change:
        return Change(
            tuple(
                ChangedFile(
                    path=file["path"],
                    old_path=file["old_path"],
                    status=Status(file["status"]),
                    hunks=tuple(Hunk(*hunk) for hunk in file["hunks"]),
                    added=frozenset(file["added"]),
                    head=file["head"].encode("latin-1"),
                    removed=tuple((line, text) for line, text in file["removed"]),
                )
                for file in self.files
            ),
            tuple(NotReviewed(*note) for note in self.not_reviewed),
            {path: text.encode("latin-1") for path, text in self.around.items()},
        )

    def review(self, config: Config, *, one_per_cause: bool = True, advisor: Advisor | None = None) -> Review:
        """As on a pull request; without `one_per_cause`, each place is a finding of its own."""
        change = self.change()
        return review_files(
            [*change.files, *change.not_reviewed],
            config=config,
            facts=read_facts({name: text.encode("latin-1") for name, text in self.facts.items()}),
            limit_to_change=True,
            one_per_cause=one_per_cause,
            around=change.around,
            advisor=advisor,
        )


def config_of(
    *, min_confidence: float | None, all_rules: bool, budget: int | None, all_paths: bool
) -> Config:
    """The defaults, as far as nothing else is given; all rules are limited by no budget unless one is given."""
    update: dict[str, object] = {"skip": ()} if all_paths else {}
    if min_confidence is not None:
        update["min_confidence"] = min_confidence
    if all_rules:
        update |= {"select": tuple(known_names()), "budget": 10**9}
    if budget is not None:
        update["budget"] = budget
    return Config().model_copy(update=update)


def find_clones(top: Path) -> dict[str, Path]:
    """The clones below `top` by the OWNER/NAME of their folder."""
    return {name: folder for folder in clones(top) if (name := clone_name(folder))}


def open_clone(folder: Path) -> Clone:
    return Clone(folder, MAX_FILE)


# -- labelled cases --------------------------------------------------------------------------------------------


def label_of(case: Mapping[str, Any]) -> str:
    """ "problem", "clean" or "whole": by its `label`, or by its id."""
    return str(case.get("label") or {"n": "clean", "w": "whole"}.get(case["id"][0], "problem"))


def case_material(clone: Clone, case: Mapping[str, Any]) -> Material:
    """The change that a case is shown as. Raises NotAvailableError."""
    label = label_of(case)
    focused = case.get("intro_kind") == "focused" and case.get("intro_share", 0) >= 0.5
    modes = (
        ["commit"]
        if label == "clean"
        else ["snapshot"]
        if label == "whole"
        else [*(["intro"] if focused else []), "revert", "intro", "snapshot"]
    )
    problem = NotAvailableError("no mode shows it")
    for mode in modes:
        try:
            old, new, path, start, end = _sides(clone, case, mode)
            alone = _change(clone, old, new, [path])
            if label == "problem" and not alone.files[0].added & set(range(start, end + 1)):
                continue
            whole = alone if mode == "snapshot" else _change(clone, old, new, _paths(clone, old, new, path))
            return _material(clone, case["repo"], new, mode, whole, (path, start, end))
        except (ChangeError, SourceError) as error:
            problem = NotAvailableError(str(error))
        except NotAvailableError as error:
            problem = error
    raise problem


def _sides(clone: Clone, case: Mapping[str, Any], mode: str) -> tuple[str, str, str, int, int]:
    """Old and new commit ("" for old: the file is shown as new), and the labelled lines in the new one."""
    path, start, end = case["path"], case.get("start", 1), case.get("end") or case.get("lines", 1)
    if mode == "snapshot":
        return "", case.get("parent") or case["sha"], path, start, end
    if mode == "revert":
        return case["sha"], case["parent"], path, start, end
    if mode == "commit":
        return case.get("parent") or _EMPTY_TREE, case["sha"], path, start, end
    if "intro_sha" not in case:
        raise NotAvailableError("the commit that brought it in is not known")
    new = case["intro_sha"]
    parents = next(clone.read([new])).parent.split()
    return (
        (parents or [_EMPTY_TREE])[0],
        new,
        case["intro_path"],
        case["intro_start"],
        case["intro_end"],
    )


def _paths(clone: Clone, old: str, new: str, first: str) -> list[str]:
    """The Python files that differ and are here, `first` before the others."""
    found = [
        path
        for path, before, after in clone.changed(old, new)
        if path.endswith(".py")
        and path != first
        and all(clone.blob(blob) is not None for blob in (before, after) if blob)
    ]
    return [first, *found[: MOST_FILES - 1]]


def _change(clone: Clone, old: str, new: str, paths: list[str], *, renames: bool = False) -> Change:
    if old:
        diff = clone.diff(old, new, paths, renames=renames)
        if len(diff) > MOST_DIFF and renames:
            raise NotAvailableError("the diff is too large")
        change = parse_diff(diff, lambda path: clone.blob(f"{new}:{path}"))
    else:
        head = clone.blob(f"{new}:{paths[0]}")
        change = Change((whole_file(paths[0], head),) if head else (), ())
    if not change.files:
        raise NotAvailableError("the file is not in the clone, or the change adds nothing to it")
    return change


def _material(
    clone: Clone, repo: str, new: str, mode: str, change: Change, place: tuple[str, int, int]
) -> Material:
    facts = {name: clone.blob(f"{new}:{name}") for name in FACT_FILES}
    blobs = dict(clone.files(new) or ())
    around = {
        path: text
        for path in files_around(blobs, {file.path for file in change.files})
        if (text := clone.blob(blobs[path])) is not None and len(text) <= MOST_BYTES
    }
    return Material(
        repo=repo,
        commit=new,
        mode=mode,
        path=place[0],
        start=place[1],
        end=place[2],
        files=[
            {
                "path": file.path,
                "old_path": file.old_path,
                "status": str(file.status),
                "hunks": [(hunk.start, hunk.count) for hunk in file.hunks],
                "added": sorted(file.added),
                "head": (file.head or b"").decode("latin-1"),
                "removed": file.removed,
            }
            for file in change.files
        ],
        not_reviewed=[(note.path, note.reason) for note in change.not_reviewed],
        facts={name: text.decode("latin-1") for name, text in facts.items() if text is not None},
        around={path: text.decode("latin-1") for path, text in around.items()},
    )


# -- commits -----------------------------------------------------------------------------------------------------


def commit_material(
    clone: Clone, repo: str, sha: str, parent: str, *, least: int = 1, most: int = 10**9
) -> Material:
    """A commit as a pull request shows it. Raises NotAvailableError where it adds fewer or more lines of Python than
    `least` and `most`, uses no torch, or is not all here."""
    try:
        blobs = [
            (path, before, after)
            for path, before, after in clone.changed(parent, sha)
            if path.endswith(".py")
        ]
        if not 0 < len(blobs) <= MOST_FILES:
            raise NotAvailableError("no Python file, or too many")
        heads = [clone.blob(after) for _, _, after in blobs if after]
        if not any(head and USES_TORCH.search(head) for head in heads):
            raise NotAvailableError("no torch")
        if None in heads or any(clone.blob(before) is None for _, before, _ in blobs if before):
            raise NotAvailableError("not all of it is in the clone")
        change = _change(clone, parent, sha, [path for path, _, _ in blobs], renames=True)
        if not least <= sum(len(file.added) for file in change.files) <= most:
            raise NotAvailableError("too small or too large")
        return _material(clone, repo, sha, "commit", change, ("", 0, 0))
    except (ChangeError, SourceError) as error:
        raise NotAvailableError(str(error)) from error


def head_material(clone: Clone, repo: str, sha: str, most: int) -> Material:
    """Files that import torch as they stand at a commit, `most` of them in an order that their paths decide, each as a new file:
    what a repository holds, where its commits hold too few examples of a rule. Raises NotAvailableError."""
    blobs = [(path, blob) for path, blob in clone.files(sha) or () if path.endswith(".py")]
    blobs.sort(key=lambda named: sha256(f"{repo} {named[0]}".encode()).digest())
    files = (
        whole_file(path, head)
        for path, blob in blobs
        if (head := clone.blob(blob)) and USES_TORCH.search(head)
    )
    change = Change(tuple(islice(files, most)), ())
    if not change.files:
        raise NotAvailableError("no torch")
    return _material(clone, repo, sha, "head", change, ("", 0, 0))


def random_commits(
    clone: Clone, repo: str, known: Collection[str], seed: int, least: int, most: int, since: str = ""
) -> Iterator[Material]:
    """Commits of a clone in random order, merges and roots left out, that add `least` to `most` lines of Python.

    With `since` (YYYY-MM-DD) only those committed on that day or later.
    """
    shas = [sha for sha in clone.commits() if sha not in known]
    shas.sort(key=lambda sha: sha256(f"{seed} {sha}".encode()).digest())
    for start in range(0, min(len(shas), MOST_LOOKED_AT), _COMMITS_AT_ONCE):
        for commit in clone.read(shas[start : start + _COMMITS_AT_ONCE]):
            if commit.parent and commit.date >= since:
                try:
                    yield commit_material(clone, repo, commit.sha, commit.parent, least=least, most=most)
                except NotAvailableError:
                    continue


# -- on disk -----------------------------------------------------------------------------------------------------


def default_cache() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "ptopt-quality"


class Cache:
    """Values that take long to make, one JSON file each, by what they were made from."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def _place(self, key: object) -> Path:
        name = sha256(json.dumps([_FORMAT, key], sort_keys=True).encode()).hexdigest()
        return self._folder / name[:2] / f"{name[2:]}.json"

    def get(self, key: object) -> Any:
        """What was put there, or None."""
        try:
            return json.loads(self._place(key).read_text("ascii"))
        except (OSError, ValueError):
            return None

    def put(self, key: object, value: object) -> None:
        place = self._place(key)
        place.parent.mkdir(parents=True, exist_ok=True)
        written = place.with_suffix(f".{os.getpid()}")
        written.write_text(json.dumps(value), "ascii")
        written.replace(place)  # other processes see all of it or nothing

    def material(self, key: object) -> Material | None:
        kept = self.get(key)
        return Material(**kept) if kept else None

    def put_material(self, key: object, material: Material) -> None:
        self.put(key, asdict(material))
