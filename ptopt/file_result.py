"""What the inspection of one file leaves: values only, so that its syntax tree can go."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ptopt.change import ChangedFile
from ptopt.findings import NotReviewed, Span
from ptopt.proposals import Proposal
from ptopt.suppress import Suppressions, Use

if TYPE_CHECKING:
    from ptopt.model.region import Region


@dataclass(frozen=True, slots=True)
class FileResult:
    """One file: what is proposed on it, what silences what, and what a model is to be shown of it."""

    path: str
    reviewed: bool = True
    not_reviewed: tuple[NotReviewed, ...] = ()  # the file, or parts of it
    proposals: tuple[Proposal, ...] = ()
    left_out: tuple[Proposal, ...] = ()  # what the ranker left out: without fixes and reasons
    suppressions: Suppressions = field(default_factory=Suppressions)
    used: frozenset[Use] = frozenset()  # the suppressions that silence a hit, of the change or not
    line_numbers: tuple[int, ...] | None = None  # of notebooks: the line on disk of each line of the text
    change: ChangedFile | None = None  # None: the file as a whole is under review
    text: str | None = None  # as on disk, where a finding may quote it
    cells: Mapping[int, tuple[int, int]] | None = None  # of a notebook that has one: see `cell_lines`
    disk_lines: Mapping[int, int] | None = None  # of a notebook that was spread: see `spread`
    # For a model alone:
    regions: tuple[Region, ...] = ()
    changed: tuple[
        Region, ...
    ] = ()  # all that the change touched, where the model reviews changes as a whole
    head: bytes = b""  # to parse the file again where the model has findings of its own
    taken: tuple[Span, ...] = ()  # lines on which a rule has a hit

    @classmethod
    def skipped(cls, note: NotReviewed) -> FileResult:
        return cls(note.path, reviewed=False, not_reviewed=(note,))

    def head_line(self, line: int) -> int:
        """The line on disk of a line of the text."""
        numbers = self.line_numbers
        return line if numbers is None else numbers[min(line, len(numbers)) - 1]
