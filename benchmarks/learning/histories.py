"""Histories of pull requests with suggestions, of which it is known whether they were accepted.

Each is a real git repository; what counts is the text of the file at every head that was pushed.
"""

from __future__ import annotations

import difflib
import random
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from benchmarks.learning.clones import Clone
from benchmarks.learning.drafts import (
    Draft,
    Line,
    by_hand,
    compose,
    moved,
    neighbours,
    renamed,
    tried,
    unrelated,
)
from feedback.signals.stored_suggestion import Replacement

KINDS = (
    "button",
    "by hand",
    "with other edits",
    "moved lines",
    "rebased",
    "force-pushed",
    "squash-merged",
    "reverted",
)
BEYOND = ("in other words",)  # what comparing text cannot find; all of them are accepted
_TRIES = 20


@dataclass(slots=True)
class History:
    """`accepted` says it of each of `suggestions`, which are for the first of `heads`."""

    kind: str
    how: str
    heads: list[str]
    suggestions: list[Replacement]
    accepted: list[bool]
    merged: bool


class NotPossibleError(Exception):
    """Not with this file and this chance."""


def history(kind: str, number: int, seed: int, folder: Path) -> History:
    """Every second one ends with an accepted suggestion; in the others something else happens, in the same way."""
    for attempt in range(_TRIES):
        chance = random.Random(f"{seed} {kind} {number} {attempt}")
        try:
            return _Story(
                kind, number % 2 == 0 or kind in BEYOND, chance, folder / f"{number}-{attempt}"
            ).played()
        except NotPossibleError:
            continue
    raise RuntimeError(f"no history {number} of the kind {kind}")


class _Story:
    def __init__(self, kind: str, wanted: bool, chance: random.Random, folder: Path) -> None:
        self.kind, self.wanted, self.chance = kind, wanted, chance
        self.twins = not wanted and kind != "reverted" and chance.random() < 0.2
        self.draft = compose(chance, twins=self.twins)
        offers = sorted(self.draft.new)
        self.suggestions = [self.draft.replacement(offer) for offer in offers]
        self.accepted = [False] * len(offers)
        self.fillers = [block for block in {line.block for line in self.draft.lines} if block % 2 == 0]
        changed = [2 * offer + 1 for offer in offers]
        self.clone = Clone(folder, self.draft.without(changed))
        self.base = Draft([line for line in self.draft.copy().lines if line.block not in changed])
        self.clone.branch(self.draft.text)
        self.heads = [self.draft.text]
        self.how = ""

    def played(self) -> History:
        if self.sometimes():
            self.other_commit()
        if self.kind == "rebased" and self.sometimes():
            self.rebase()
        if self.wanted:
            self.accept(0)
        else:
            self.do_something_else()
        self.push()
        if self.kind != "reverted" and (self.kind == "squash-merged" or self.sometimes()):
            self.other_commit()
        {"rebased": self.rebase, "force-pushed": self.force_push, "reverted": self.revert}.get(
            self.kind, _nothing
        )()
        merged = self.kind == "squash-merged" or self.chance.random() < 0.8
        if merged:
            self.clone.merge(squash=self.kind == "squash-merged")
        return History(self.kind, self.how, self.heads, self.suggestions, self.accepted, merged)

    def sometimes(self) -> bool:
        return self.chance.random() < 0.5

    def push(self) -> None:
        self.clone.commit(self.draft.text)
        self.heads.append(self.clone.text())

    def other_commit(self) -> None:
        unrelated(self.draft, self.chance)
        self.push()

    # -- accepting

    def accept(self, offer: int) -> None:
        self.accepted[offer] = True
        if self.kind == "with other edits":
            neighbours(self.draft, offer, self.chance)
            unrelated(self.draft, self.chance)
        if self.kind == "by hand" or (self.kind != "button" and self.chance.random() < 0.3):
            self.how = by_hand(self.draft, offer, self.chance)
            if not self.how:
                raise NotPossibleError
        else:
            self.apply(offer)
        if self.kind == "moved lines":
            if self.sometimes():
                self.push()
            self.how = (
                f"{self.how}, {moved(self.draft, offer, self.chance)}" if self.draft.new[offer] else self.how
            )
        if self.kind == "in other words" and not (
            self.draft.new[offer] and renamed(self.draft, offer, self.chance)
        ):
            raise NotPossibleError

    def apply(self, offer: int) -> None:
        self.how = "applied"
        if not tried(self.draft, lambda: self.draft.put(offer, self.draft.new[offer])):
            raise NotPossibleError

    # -- doing something else

    def do_something_else(self) -> None:
        if self.twins:
            self.apply(1)
            self.accepted[1] = True
            self.how = "applied at the other of two places alike"
            return
        if self.kind == "reverted":
            self.apply(0)
            return
        deeds: list[tuple[str, Callable[[], bool]]] = [
            ("ignored", lambda: True),
            ("ignored", lambda: True),
            ("another suggestion applied", self._another),
            ("changed otherwise", self._otherwise),
            ("deleted", self._deleted),
            ("half of it", self._half),
            ("elsewhere", self._elsewhere),
        ]
        self.chance.shuffle(deeds)
        for self.how, deed in deeds:
            if deed():
                break
        if self.kind in ("with other edits", "moved lines"):
            if self.draft.where(0) != slice(0, 0):
                neighbours(self.draft, 0, self.chance)
            unrelated(self.draft, self.chance)
        if self.kind == "moved lines" and self.draft.where(0) != slice(0, 0):
            moved(self.draft, 0, self.chance)

    def _another(self) -> bool:
        self.apply(1)
        self.accepted[1] = True
        return True

    def _otherwise(self) -> bool:
        """Another name in the old lines, or a comment beside them."""
        at = self.draft.where(0)
        names = [
            name
            for line in self.draft.lines[at]
            for name in re.findall(r"(?<![.\w])[a-z_]\w{2,}(?!\w)", line.text)
        ]

        def edit() -> None:
            for line in self.draft.lines[at]:
                if names and self.sometimes():
                    line.text = re.sub(rf"(?<![.\w]){names[-1]}(?!\w)", f"{names[-1]}_b", line.text)
                elif line.text:
                    line.text += "  # on purpose"

        return tried(self.draft, edit)

    def _deleted(self) -> bool:
        """The function with the old lines, or the lines alone unless that is what was suggested."""
        at = self.draft.where(0)
        block = self.draft.lines[at.start].block
        old = ["".join(line.text.split()) for line in self.draft.lines[at]]
        new = ["".join(text.split()) for text in self.draft.new[0]]
        keeps_old_ones_only = all(line in old for line in new)
        if keeps_old_ones_only or self.sometimes():
            self.draft.lines = [line for line in self.draft.lines if line.block != block]
            return True

        def edit() -> None:
            del self.draft.lines[at]

        return tried(self.draft, edit)

    def _half(self) -> bool:
        """The first of several changes that the suggestion makes."""
        at = self.draft.where(0)
        old, new = [line.text for line in self.draft.lines[at]], self.draft.new[0]
        changes = [
            c
            for c in difflib.SequenceMatcher(None, old, new, autojunk=False).get_opcodes()
            if c[0] != "equal"
        ]
        if len(changes) < 2:
            return False
        _, start, stop, first, last = changes[0]
        return tried(self.draft, lambda: self.draft.put(0, [*old[:start], *new[first:last], *old[stop:]]))

    def _elsewhere(self) -> bool:
        """What was suggested, in a new function; the old lines stay, or become something else."""
        new = self.draft.new[0]
        if not any(text.strip() for text in new):
            return False
        indent = min(len(text) - len(text.lstrip()) for text in new if text.strip())
        body = [Line(" " * 4 + text[indent:] if text else "", 99) for text in new]

        def edit() -> None:
            self.draft.lines += [Line("", 99), Line("", 99), Line("def another(model, loader):", 99), *body]

        if not tried(self.draft, edit):
            return False
        if self.sometimes():
            self._otherwise()
        return True

    # -- git

    def rebase(self) -> None:
        for _ in range(_TRIES):
            base = self.base.copy()
            unrelated(base, self.chance, self.fillers)
            if self.clone.rebase(base.text):
                self.base = base
                self.draft.follow(self.clone.text())
                self.heads.append(self.clone.text())
                return
        raise NotPossibleError

    def force_push(self) -> None:
        if self.how == "ignored" and self.sometimes():
            self.apply(0)  # accepted, and then the branch is made anew without it
            self.push()
            self.how = "accepted, and pushed away"
            self.clone.replace(self.heads[0])
        else:
            unrelated(self.draft, self.chance)
            self.clone.replace(self.draft.text)
        self.heads.append(self.clone.text())

    def revert(self) -> None:
        if self.wanted:  # what is reverted is another commit
            before = self.draft.copy()
            self.other_commit()
            self.clone.revert()
            self.draft.lines, self.how = before.lines, "another commit was reverted"
        else:
            self.clone.revert()
            self.how = "it was reverted"
        self.heads.append(self.clone.text())


def _nothing() -> None:
    pass
