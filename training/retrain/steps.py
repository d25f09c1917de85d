"""The steps of a retraining: each ends in a file and then in an event, so that a process may be killed anywhere.

A process that goes on keeps the steps whose file is what the event says, and does the others again.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from training.retrain.records import Records, Run

STEPS = ("dataset", "fitted", "evaluated")
Reached = Callable[[str], None]  # called with each point of a run


class NothingToLearnError(Exception):
    """The run ends without a candidate; the message is one line."""


@dataclass(frozen=True, slots=True)
class Result:
    state: str  # "canary" | "refused"
    reason: str
    hash: str
    card: dict[str, Any]


class Steps:
    """The steps of a run, in the folder `<parent>/<subject>-<run>`; what earlier runs learned from is deleted.

    Some of it may belong to people who have left.
    """

    def __init__(self, records: Records, run: Run, parent: Path, reached: Reached) -> None:
        self.folder = parent / f"{run.subject}-{run.id}"
        self.folder.mkdir(parents=True, exist_ok=True)
        for other in parent.glob(f"{run.subject}-*"):
            if other != self.folder and other.is_dir():
                shutil.rmtree(other, ignore_errors=True)
        self._records, self._run, self._reached = records, run, reached
        reached("claimed")

    def text(
        self,
        kind: str,
        name: str,
        make: Callable[[], tuple[str, dict[str, Any]]],
        holds: Callable[[str], bool] = lambda text: True,
    ) -> str:
        """The text of the file: that of an earlier process where it is unchanged and `holds(text)`, else made now."""
        path = self.folder / name
        known = self._records.step(self._run, kind)
        if known and path.is_file():
            text = path.read_text(encoding="utf-8")
            if hash_of(text) == known and holds(text):
                self._reached(f"{kind} kept")
                return text
        text, detail = make()
        self._reached(f"{kind} made")
        write(path, text)
        self._reached(f"{kind} written")
        self._records.note(self._run, kind, hash_of(text), detail, then=STEPS[STEPS.index(kind) + 1 :])
        self._reached(f"{kind} noted")
        return text


def write(path: Path, text: str) -> None:
    """The whole file, or what was there before, whenever the process ends."""
    part = path.with_name(f".{path.name}.part")
    with part.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    os.replace(part, path)


def hash_of(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
