"""What is proposed on each file of a review, or why a file is not reviewed. Text in, values out; no network, no disk, no clock."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Protocol

from ptopt.change import ChangedFile
from ptopt.file_result import FileResult
from ptopt.findings import Condition, NotReviewed
from ptopt.launch_scripts import unread_script
from ptopt.parse_check import ParseCheck
from ptopt.pathkind import PYTHON, is_config
from ptopt.proposals import MOST_PLACES, Fixes, Proposal, Unlikely, left_out, propose
from ptopt.ranker.model import comment_conditions, is_lifted, threshold
from ptopt.ranking import joined
from ptopt.rules import rules
from ptopt.rules.base import SURE, Rule
from ptopt.rules.engine import Hit, Prefilter, run, that_may_be_sure
from ptopt.source import work
from ptopt.source.file import SourceFile
from ptopt.source.repository import Parsed, Repository
from ptopt.source.work import WorkLimitError, limited, no_cycle_collection
from ptopt.suppress import Suppressions, find_suppressions
from ptopt.syntax import ParseError

if TYPE_CHECKING:
    from ptopt.config import Config
    from ptopt.model.calibration import Calibration
    from ptopt.project.around import Neighbours
    from ptopt.project.facts import ProjectFacts

# Visited nodes. The costliest of 6,500 files of 18 well-known projects takes 0.4 million.
FILE_WORK = 3_000_000
CHANGE_WORK = 30_000_000
MOST_PARSED_OF_A_CHANGE = 60  # trees of files around, for all of its files
_UNBROKEN = "cells that stand on one line of the file, which comments cannot tell apart; save the notebook with line breaks, as Jupyter does"
_TOO_MUCH_WORK = "reviewed in part: the analysis limit of one file was reached"
_NONE_LEFT = "not reviewed: the analysis limit of one change was reached"


@dataclass(frozen=True, slots=True, kw_only=True)
class Inspection:
    """What the files of a review are inspected with: plain values, but for `neighbours`.

    `calibration` is that of the model that is asked afterwards, None without one. What is below the threshold is
    proposed, too, from the `floor` on. The others are those of `review_files`.
    """

    config: Config
    facts: ProjectFacts
    limit_to_change: bool
    calibration: Calibration | None = None
    around: Mapping[str, bytes] = field(default_factory=dict)
    baseline: frozenset[str] = frozenset()
    floor: float = 1.0
    neighbours: Neighbours | None = None


class Inspect(Protocol):
    """Inspects files as `inspect_files` does, wherever that may be."""

    def __call__(
        self, files: Iterable[ChangedFile | NotReviewed], inspection: Inspection, /
    ) -> list[FileResult]: ...


def inspect_files(
    files: Iterable[ChangedFile | NotReviewed],
    inspection: Inspection,
    unasked: Callable[[str, bytes], FileResult] | None = None,
) -> list[FileResult]:
    """What is proposed on each file; the part of a review that reads what strangers wrote. Plain values in and out.

    `unasked` gives the result of a file that no rule has a question on, by its path and content (default: a `ParseCheck`).
    """
    around, facts = inspection.around, inspection.facts
    if inspection.limit_to_change:  # the files of a change answer questions about one another
        files = list(files)
        heads = {f.path: f.head for f in files if isinstance(f, ChangedFile) and f.head is not None}
        inspection = dataclasses.replace(
            inspection, around={**heads, **around}, facts=facts.with_texts(heads)
        )
    with no_cycle_collection():
        inspector = _Inspector(inspection, unasked or ParseCheck())
        results = [result for file in files if (result := inspector.inspect(file)) is not None]
        del inspector  # its trees go before they are looked through for cycles
        return results


def least_looked_for(config: Config, with_model: bool) -> float:
    """The confidence that a rule has to state for what it finds to be looked for; 0.0 where everything is.

    A comment needs it, unless the settings ask for less than the ranker's threshold. A model may be shown what rules are unsure of,
    and whoever names all rules that are on gets all that they find.
    """
    selected = selected_rules(config)
    if with_model or len(named_rules(config, selected)) == len(selected):
        return 0.0
    return comment_conditions(config.min_confidence).get(Condition.STATED, 0.0)


def selected_rules(config: Config) -> list[Rule]:
    return [rule for rule in rules() if config.selects(*rule.keys(), rule.default)]


def named_rules(config: Config, selected: Iterable[Rule]) -> frozenset[str]:
    """The ids of the rules that the settings name, or whoever asks: they are run whatever they state."""
    return frozenset(r.id for r in selected if r.id in config.asked or config.names(*r.keys()))


class _Around:
    """The repository as the review of each file sees it: what one file asks does not depend on what another one asked."""

    def __init__(self, around: Mapping[str, bytes], neighbours: Neighbours | None, *, in_full: bool) -> None:
        self._around, self._neighbours, self._in_full = around, neighbours, in_full
        self.shared = Parsed(MOST_PARSED_OF_A_CHANGE if neighbours is None else None)

    def of(self, file: ChangedFile) -> Repository:
        near = self._neighbours
        if near is None:
            return Repository(self._around, self.shared, in_full=self._in_full)
        return Repository(
            lambda: {**near(file.path), file.path: file.head or b""}, self.shared, in_full=self._in_full
        )


class _Inspector:
    """Looks at one file after the other. What it returns holds no tree, and no text of a file without a proposal."""

    def __init__(self, inspection: Inspection, unasked: Callable[[str, bytes], FileResult]) -> None:
        config, calibration = inspection.config, inspection.calibration
        self._least = least_looked_for(config, calibration is not None)
        self._around = _Around(inspection.around, inspection.neighbours, in_full=not self._least)
        self._baseline = inspection.baseline
        self._config = config
        self._facts = inspection.facts
        self._limit_to_change = inspection.limit_to_change
        self._calibration = calibration
        selected = selected_rules(config)
        self._named = named_rules(config, selected)
        self._prefilter = Prefilter(selected, self._least, self._named)
        self._work_left = CHANGE_WORK
        self._unasked = unasked
        judged = calibration.floor if calibration is not None and calibration.floor is not None else 1.0
        self._floor = min(inspection.floor, judged, threshold(config.min_confidence))
        self._conditions = comment_conditions(config.min_confidence)
        self._usual = comment_conditions(config.usual_min_confidence)
        self._lifted = is_lifted(config.min_confidence)

    @cached_property
    def _every(self) -> Prefilter:
        return Prefilter(selected_rules(self._config))

    def inspect(self, file: ChangedFile | NotReviewed) -> FileResult | None:
        """What is proposed on the file, or why it is not reviewed; None for files of other languages."""
        if not file.path.endswith(PYTHON):
            return self._inspect_config(file) if is_config(file.path) else self._name_script(file)
        if isinstance(file, NotReviewed):
            return FileResult.skipped(file)
        reason = self._config.why_skipped(file.path, file.head)
        if reason is not None or file.head is None:
            return FileResult.skipped(NotReviewed(file.path, reason or "its head version is not available"))
        change = file if self._limit_to_change else None
        text = self._around.shared.text(file.path, file.head)
        wanted = [r for r in self._prefilter(text) if r.concerns(change) and self._enabled(r, file.path)]
        for_rules = bool(wanted) or _mentions_ptopt(file.head)
        if not for_rules and not self._may_be_advised_on(file.head):
            return self._unasked(file.path, file.head)
        try:
            source = self._around.shared.reviewed(file.path, file.head, self._facts, self._around.of(file))
        except ParseError as error:
            return FileResult.skipped(NotReviewed(file.path, str(error), error.syntax))
        lost = source.parsed.lost if for_rules else ()
        notes = [NotReviewed(file.path, reason) for reason in lost]
        unbroken = not source.numbered_as_on_disk
        if not self._limit_to_change:
            if unbroken and (result := self._inspect_spread(file, wanted, notes)) is not None:
                return result
            with limited(FILE_WORK):
                return self._proposed(source, file, wanted, notes)
        if self._work_left <= 0:
            return FileResult.skipped(NotReviewed(file.path, _NONE_LEFT))
        with limited(min(FILE_WORK, self._work_left)) as account:
            result = self._proposed(source, file, wanted, notes)
        self._work_left -= account.spent
        if unbroken and result.proposals:
            note = NotReviewed(file.path, _UNBROKEN)
            return dataclasses.replace(result, not_reviewed=(*result.not_reviewed, note))
        return result

    def _name_script(self, file: ChangedFile | NotReviewed) -> FileResult | None:
        """Where a change edits a script that starts training, that the review did not read it; else nothing."""
        if isinstance(file, NotReviewed) or not self._limit_to_change or self._config.why_skipped(file.path):
            return None
        unread = unread_script(file.path, file.head)
        return FileResult.skipped(unread) if unread is not None else None

    def _inspect_spread(
        self, file: ChangedFile, wanted: Sequence[Rule], notes: list[NotReviewed]
    ) -> FileResult | None:
        """A notebook that was saved without line breaks, as if it had them: its cells and lines tell its findings apart."""
        from ptopt.source.notebook import spread

        found = spread(file.head or b"")
        if found is None:
            return None
        head, disk_lines = found
        source = SourceFile.parse(file.path, head, self._facts, self._around.of(file))
        with limited(FILE_WORK):
            result = self._proposed(source, dataclasses.replace(file, head=head), wanted, notes)
        return dataclasses.replace(result, disk_lines=disk_lines)

    def _inspect_config(self, file: ChangedFile | NotReviewed) -> FileResult | None:
        from ptopt.config_review import inspect_config

        return inspect_config(
            file, self._config, self._facts, self._limit_to_change, self._baseline, self._floor
        )

    def _left_out(
        self,
        source: SourceFile,
        unlikely: Sequence[Unlikely],
        suppressions: Suppressions,
        whole: tuple[Fixes, ChangedFile | None] | None,
    ) -> tuple[Proposal, ...]:
        found = left_out(source, unlikely, self._conditions, suppressions, whole)
        return tuple(p.with_baseline(self._baseline) for p in found)

    def _silenced_by_name(
        self,
        source: SourceFile,
        wanted: Sequence[Rule],
        change: ChangedFile | None,
    ) -> list[Hit]:
        """What rules that were not run see in a file with comments that may silence them: such a comment is in use."""
        if not self._least or not source.once(_may_be_silenced):
            return []
        text = self._around.shared.text(source.path, source.data)
        others = [r for r in self._every(text) if r not in wanted and self._enabled(r, source.path)]
        return run(source, others, [], change)

    def _enabled(self, rule: Rule, path: str) -> bool:
        return not self._config.per_path_ignores or self._config.enabled(*rule.keys(), rule.default, path)

    def _may_be_advised_on(self, head: bytes) -> bool:
        if self._calibration is None:
            return False
        whole = self._limit_to_change and self._calibration.change_threshold is not None
        return whole or (self._calibration.advise_threshold is not None and b"torch" in head)

    def _proposed(
        self, source: SourceFile, file: ChangedFile, wanted: Sequence[Rule], notes: list[NotReviewed]
    ) -> FileResult:
        failed: list[tuple[Rule, Exception]] = []
        change = file if self._limit_to_change else None
        calibration = self._calibration
        asks = change is not None and calibration is not None and calibration.change_threshold is not None
        if self._least > SURE:
            wanted = that_may_be_sure(wanted, source, failed, self._named)
        hits = run(source, wanted, failed, change)
        # Comments of other tools matter only where there is something to silence.
        comments = hits or self._calibration is not None or source.once(_may_be_silenced)
        suppressions = find_suppressions(source.text) if comments else Suppressions()
        fixes = Fixes(source, hits, suppressions)
        unlikely: list[Unlikely] = []
        places: Counter[str] = Counter()
        found = propose(
            source,
            hits,
            change,
            self._floor,
            fixes,
            suppressions=suppressions,
            unlikely=unlikely,
            places=places,
            conditions=self._usual,
            lifted=self._lifted,
            asked=self._config.asked,
            keep_all=asks,
        )
        proposals = joined([p.with_baseline(self._baseline) for p in found], fixes, change)
        notes += [
            NotReviewed(
                source.path,
                f"{rule} has {number:,} places in it, of which the first {MOST_PLACES} were reviewed",
            )
            for rule, number in sorted(places.items())
            if number > MOST_PLACES
        ]
        if work.current().left < 0:  # rules were not run, or fixes not checked and so not offered
            notes.append(NotReviewed(source.path, _TOO_MUCH_WORK))
        notes += [
            NotReviewed(
                source.path, f"{rule.id} crashed on it ({type(error).__name__}); please report this bug"
            )
            for rule, error in failed
            if not isinstance(error, WorkLimitError)
        ]
        silenced = [*hits, *self._silenced_by_name(source, wanted, change)]
        result = FileResult(
            path=source.path,
            not_reviewed=tuple(notes),
            proposals=proposals,
            # A model that reviews whole changes may find them worth a comment.
            left_out=self._left_out(source, unlikely, suppressions, (fixes, change) if asks else None),
            suppressions=suppressions,
            # Also by hits that the change did not touch: the comments that silence these are in use.
            used=frozenset().union(
                *(suppressions.matching(h.rule.keys(), h.span.start, h.span.end) for h in silenced)
            ),
            line_numbers=source.parsed.head_lines,
            change=change,
            text=source.text + "\n" * source.is_notebook
            if proposals and source.numbered_as_on_disk
            else None,
            cells=_cells(file.head) if proposals and source.is_notebook else None,
        )
        if self._calibration is None:
            return result
        from ptopt.model_review import regions
        from ptopt.model_whole_change import changed

        with limited(FILE_WORK):
            shown = regions(source, change, proposals, self._calibration)
            touched = changed(source, change, self._calibration)
        if not shown and not touched:
            return result
        taken = tuple(hit.span for hit in hits)
        text = source.text if source.numbered_as_on_disk else None
        return dataclasses.replace(
            result, regions=shown, changed=touched, head=file.head or b"", taken=taken, text=text
        )


def _cells(data: bytes | None) -> Mapping[int, tuple[int, int]]:
    from ptopt.source.notebook import cell_lines

    return cell_lines(data or b"")


def _may_be_silenced(source: SourceFile) -> bool:
    return _mentions_ptopt(source.data)


def _mentions_ptopt(data: bytes) -> bool:
    return b"ptopt:" in data or b"PTO" in data
