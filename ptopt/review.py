"""The pipeline, on one page: propose, verify, rank. Text in, values out; no network, no disk, no clock."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING

from ptopt.change import Change, ChangedFile
from ptopt.file_result import FileResult
from ptopt.findings import Finding, ModelRecord, NotReviewed, Review, UnusedSuppression
from ptopt.learned import FEEDBACK, NOTHING_LEARNED, Learned, log_odds
from ptopt.left_out import comment_threshold, counted_left_out
from ptopt.model.interface import ModelUnavailableError
from ptopt.pathkind import PYTHON, is_config, is_config_for_sure
from ptopt.proposals import MOST_PLACES, Fixes, Proposal, Unlikely, left_out, propose
from ptopt.ranker.model import is_lifted, threshold
from ptopt.ranking import across_files, grouped, joined, merged, rank
from ptopt.rules import config_rules, rules
from ptopt.rules.base import Rule
from ptopt.rules.engine import Prefilter, run
from ptopt.runner import AnalysisError, Runner, in_process, takes_one_by_one
from ptopt.source import work
from ptopt.source.file import SourceFile
from ptopt.source.repository import Parsed, Repository
from ptopt.source.work import WorkLimitError, limited, no_cycle_collection
from ptopt.suppress import Suppressions, find_suppressions
from ptopt.syntax import ParseError
from ptopt.unasked import Unasked

if TYPE_CHECKING:
    from ptopt.config import Config
    from ptopt.model.advisor import Advisor
    from ptopt.model.calibration import Calibration
    from ptopt.project.around import Neighbours
    from ptopt.project.facts import ProjectFacts

_LONGEST_NOTE = 200
# Visited nodes. The costliest of 6,500 files of 18 well-known projects takes 0.4 million.
FILE_WORK = 3_000_000
COUNT_WORK = FILE_WORK // 4  # of one file, for what was left out of its review
CHANGE_WORK = 30_000_000
MOST_PARSED_OF_A_CHANGE = 60  # trees of files around, for all of its files
_UNBROKEN = "cells that stand on one line of the file, which comments cannot tell apart; save the notebook with line breaks, as Jupyter does"
_TOO_MUCH_WORK = "reviewed in part: the analysis limit of one file was reached"
_NONE_LEFT = "not reviewed: the analysis limit of one change was reached"


def review_change(
    change: Change,
    *,
    config: Config,
    facts: ProjectFacts,
    advisor: Advisor | None = None,
    muted: Collection[str] = (),
    learned: Learned = NOTHING_LEARNED,
    runner: Runner = in_process,
) -> Review:
    """Review a pull request: comments on what it changed, the best `config.budget` of them.

    `muted` are fingerprints that are ignored in it: they do not count towards the budget. `learned` is the feedback of the
    repository. `runner` is where the files are analysed.
    """
    files: list[ChangedFile | NotReviewed] = [*change.files, *change.not_reviewed]
    return review_files(
        files,
        config=config,
        facts=facts,
        limit_to_change=True,
        around=change.around,
        advisor=advisor,
        muted=muted,
        learned=learned,
        runner=runner,
    )


def review_files(
    files: Iterable[ChangedFile | NotReviewed],
    *,
    config: Config,
    facts: ProjectFacts,
    limit_to_change: bool,
    one_per_cause: bool = True,
    around: Mapping[str, bytes] = MappingProxyType({}),
    neighbours: Neighbours | None = None,
    advisor: Advisor | None = None,
    muted: Collection[str] = (),
    baseline: frozenset[str] = frozenset(),
    learned: Learned = NOTHING_LEARNED,
    runner: Runner = in_process,
) -> Review:
    """Review files one at a time: propose, verify, rank.

    `around` holds other files of the repository, by path, that may answer questions about these; `neighbours` gives
    those around each file, for callers that have the whole repository at hand.
    `baseline` are fingerprints of places that are reported as old ones only. `learned` moves the confidence of rules last,
    after a model.
    With `limit_to_change`, only what their hunks touch is reported, within the budget. Without `one_per_cause`, every
    place is a finding of its own, each with its own fix. An `advisor` reweighs the proposals of all files at once; when
    it does not answer each question, the review is what it would be without it, and its `model.note` says why.
    """
    model = None if advisor is None or advisor.calibration.silent else advisor
    calibration = None if model is None else model.calibration
    if not takes_one_by_one(runner):
        files = list(files)  # it has to go elsewhere as a whole
    try:
        floor = learned.floor(threshold(config.min_confidence))
        results = runner(
            inspect_files,
            files,
            config,
            facts,
            limit_to_change,
            calibration,
            dict(around),
            baseline,
            floor,
            neighbours,
        )
    except AnalysisError as error:
        results = [
            FileResult.skipped(NotReviewed(file.path, str(error)))
            for file in files
            if file.path.endswith(PYTHON) or is_config_for_sure(file.path)
        ]

    def settle(results: Sequence[FileResult], record: ModelRecord | None) -> Review:
        budget = config.budget if limit_to_change else None
        return _settle(results, config, budget, one_per_cause, frozenset(muted), learned, record)

    if model is None:
        return settle(results, None)
    if not any(result.regions or result.changed for result in results):
        return settle(results, model.record)
    from ptopt.model_review import explained, reweighed

    try:
        weighed, record = reweighed(model, results, facts, config.enabled, runner)
        review = settle(weighed, record)
        return dataclasses.replace(review, findings=explained(model, review.findings, results))
    except ModelUnavailableError as error:
        note = " ".join(str(error).split())[:_LONGEST_NOTE] or "it is unavailable"
        return settle(results, dataclasses.replace(model.record, note=note))


# -- one file: propose and verify ----------------------------------------------------------------------------


def inspect_files(
    files: Iterable[ChangedFile | NotReviewed],
    config: Config,
    facts: ProjectFacts,
    limit_to_change: bool,
    calibration: Calibration | None,
    around: Mapping[str, bytes] = MappingProxyType({}),
    baseline: frozenset[str] = frozenset(),
    floor: float = 1.0,
    neighbours: Neighbours | None = None,
    unasked: Unasked | None = None,
) -> list[FileResult]:
    """What is proposed on each file; the part of a review that reads what strangers wrote. Plain values in and out.

    `calibration` is that of the model that is asked afterwards, None without one. What is below the threshold is
    proposed, too, from the `floor` on. `unasked` has the last word on files that no rule has a question on.
    """
    if limit_to_change:  # the files of a change answer questions about one another
        files = list(files)
        heads = {f.path: f.head for f in files if isinstance(f, ChangedFile) and f.head is not None}
        around = {**heads, **around}
        facts = facts.with_texts(heads)
    near = _Around(around, neighbours)
    inspector = _Inspector(
        config, facts, limit_to_change, calibration, near, baseline, floor, unasked or Unasked()
    )
    with no_cycle_collection():
        return [result for file in files if (result := inspector.inspect(file)) is not None]


class _Around:
    """The repository as the review of each file sees it: what one file asks does not depend on what another one asked."""

    def __init__(self, around: Mapping[str, bytes], neighbours: Neighbours | None) -> None:
        self._around, self._neighbours = around, neighbours
        self._parsed = Parsed(MOST_PARSED_OF_A_CHANGE if neighbours is None else None)

    def of(self, file: ChangedFile) -> Repository:
        near = self._neighbours
        if near is None:
            return Repository(self._around, self._parsed)
        return Repository(lambda: {**near(file.path), file.path: file.head or b""}, self._parsed)


class _Inspector:
    """Looks at one file after the other. What it returns holds no tree, and no text of a file without a proposal."""

    def __init__(
        self,
        config: Config,
        facts: ProjectFacts,
        limit_to_change: bool,
        calibration: Calibration | None,
        around: _Around,
        baseline: frozenset[str],
        floor: float,
        unasked: Unasked,
    ) -> None:
        self._around = around
        self._baseline = baseline
        self._config = config
        self._facts = facts
        self._limit_to_change = limit_to_change
        self._calibration = calibration
        self._prefilter = Prefilter(rules())
        self._work_left = CHANGE_WORK
        self._unasked = unasked
        judged = calibration.floor if calibration is not None and calibration.floor is not None else 1.0
        self._floor = min(floor, judged, threshold(config.min_confidence))
        self._least = comment_threshold(config)
        self._lifted = is_lifted(config.min_confidence)

    def inspect(self, file: ChangedFile | NotReviewed) -> FileResult | None:
        """What is proposed on the file, or why it is not reviewed; None for files of other languages."""
        if not file.path.endswith(PYTHON):
            return self._inspect_config(file) if is_config(file.path) else None
        if isinstance(file, NotReviewed):
            return FileResult.skipped(file)
        reason = self._config.why_skipped(file.path)
        if reason is not None or file.head is None:
            return FileResult.skipped(NotReviewed(file.path, reason or "its head version is not available"))
        change = file if self._limit_to_change else None
        wanted = [r for r in self._prefilter(file.head) if r.concerns(change) and self._enabled(r, file.path)]
        for_rules = bool(wanted) or _mentions_ptopt(file.head)
        if not for_rules and not self._may_be_advised_on(file.head):
            return self._unasked(file.path, file.head)
        try:
            source = SourceFile.parse(file.path, file.head, self._facts, self._around.of(file))
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

    def _old_or_new(self, proposal: Proposal) -> Proposal:
        if proposal.silenced_by or proposal.finding.fingerprint not in self._baseline:
            return proposal
        return dataclasses.replace(proposal, in_baseline=True)

    def _left_out(
        self, source: SourceFile, unlikely: Sequence[Unlikely], suppressions: Suppressions
    ) -> tuple[Proposal, ...]:
        with limited(COUNT_WORK):  # what is only counted takes nothing from what is reviewed
            found = tuple(left_out(source, unlikely, self._least, suppressions))
        return tuple(map(self._old_or_new, found))

    def _enabled(self, rule: Rule, path: str) -> bool:
        return self._config.enabled(*rule.keys(), rule.default, path)

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
        hits = run(source, wanted, failed, change)
        # Comments of other tools matter only where there is something to silence.
        comments = hits or self._calibration is not None or _mentions_ptopt(source.data)
        suppressions = find_suppressions(source.text) if comments else Suppressions()
        fixes = Fixes(source, hits)
        unlikely: list[Unlikely] = []
        places: Counter[str] = Counter()
        found = propose(
            source,
            hits,
            change,
            self._floor,
            fixes,
            suppressions,
            unlikely,
            places,
            self._least,
            self._lifted,
            self._config.asked,
        )
        proposals = joined(tuple(map(self._old_or_new, found)), fixes, change)
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
        result = FileResult(
            path=source.path,
            not_reviewed=tuple(notes),
            proposals=proposals,
            left_out=self._left_out(source, unlikely, suppressions),
            suppressions=suppressions,
            # Also by hits that the change did not touch: the comments that silence these are in use.
            used=frozenset().union(
                *(suppressions.matching(h.rule.keys(), h.span.start, h.span.end) for h in hits)
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


def _mentions_ptopt(data: bytes) -> bool:
    return b"ptopt:" in data or b"PTO" in data


# -- all files: group, cut and rank --------------------------------------------------------------------------


def _settle(
    results: Sequence[FileResult],
    config: Config,
    budget: int | None,
    one_per_cause: bool,
    muted: frozenset[str],
    learned: Learned,
    record: ModelRecord | None,
) -> Review:
    """Drop what is not sure enough, merge what has one cause, leave out what is silenced, rank the rest."""
    comments: list[Finding] = []
    suppressed: list[Finding] = []
    old: list[Finding] = []
    dropped: list[Finding] = []
    quieted: list[Finding] = []
    unused: list[UnusedSuppression] = []
    least = threshold(config.min_confidence)
    for file in results:
        dropped += [
            p.finding
            for p in file.proposals
            if p.confidence < least <= p.ranked_confidence and p.finding.rule not in config.asked
        ]
        sure = []
        for weighed in file.proposals:
            proposal = _with_feedback(weighed, learned, least)
            feedback = learned.of(proposal.finding.rule, proposal.finding.family)
            quiet = learned.quiet(feedback, weighed.confidence, least)
            if proposal.finding.rule in config.asked or (not quiet and proposal.confidence >= least):
                sure.append(proposal)
            elif quiet and weighed.confidence >= least and weighed.reported:
                share = learned.explored(feedback, weighed.confidence)
                explored = learned.explores(proposal.finding.fingerprint, share)
                quieted.append(dataclasses.replace(proposal.finding, explored=explored))
        old += [p.finding for p in sure if p.in_baseline]
        suppressed += [p.finding for p in sure if p.silenced_by]
        loud = [p for p in sure if p.reported]
        comments += map(merged, grouped(loud) if one_per_cause else ([p] for p in loud))
        unused += _unused(file, config)
    comments.sort(key=rank)
    wanted = [f for f in comments if f.fingerprint not in muted]
    if one_per_cause:
        wanted = across_files(wanted)
    shown = wanted[:budget]
    quieted.sort(key=rank)
    if budget is not None and len(shown) < budget:  # a quiet rule takes no place of another
        shown += [f for f in quieted if f.explored and f.fingerprint not in muted][:1]
    texts = {file.path: file.text for file in results if file.text is not None}
    return Review(
        findings=tuple(shown),
        over_limit=tuple(wanted[budget:] if budget is not None else ()),
        muted=tuple(f for f in comments if f.fingerprint in muted),
        suppressed=tuple(sorted(suppressed, key=Finding.sort_key)),
        not_reviewed=tuple(sorted({note for file in results for note in file.not_reviewed})),
        unused_suppressions=tuple(sorted(unused)),
        files_reviewed=sum(file.reviewed for file in results),
        reviewed=tuple(sorted(file.path for file in results if file.reviewed)),
        partly=sum(file.reviewed and config.switches_off_at(file.path) for file in results),
        config_path=config.origin,
        sources={path: texts[path] for path in dict.fromkeys(f.path for f in shown) if path in texts},
        dropped=tuple(sorted(dropped, key=Finding.sort_key)),
        cells={file.path: file.cells for file in results if file.cells is not None},
        disk_lines={file.path: file.disk_lines for file in results if file.disk_lines is not None},
        in_baseline=tuple(sorted(old, key=Finding.sort_key)),
        quieted=tuple(f for f in quieted if f not in shown),
        left_out=counted_left_out(results, comments, config, muted, budget),
        model=record,
        asked=config.asked,
    )


def _with_feedback(proposal: Proposal, learned: Learned, least: float) -> Proposal:
    """The proposal with what the people of the repository say of its rule, which becomes a reason like the others."""
    finding = proposal.finding
    feedback = learned.of(finding.rule, finding.family)
    if not feedback.offset:
        return proposal
    confidence = learned.confidence(feedback, proposal.confidence, least)
    by = round(log_odds(confidence) - log_odds(proposal.confidence), 2)
    finding = dataclasses.replace(
        finding,
        score=round(proposal.confidence, 4),
        reasons=((FEEDBACK, by), *finding.reasons) if by else finding.reasons,
    )
    return dataclasses.replace(proposal, finding=finding).reweighed(confidence)


def _unused(file: FileResult, config: Config) -> Iterator[UnusedSuppression]:
    """Comments of the change that silence nothing; a rule that is switched off may have its comments."""
    used = file.used.union(*(p.silenced_by for p in file.proposals))
    found = file.suppressions.unused(used)
    if not found:
        return
    keys = {True: set[str](), False: set[str]()}
    for rule in (*rules(), *config_rules()):
        on = config.enabled(*rule.keys(), rule.default, file.path)
        keys[on] |= set(map(str.lower, rule.keys()))
    off = keys[False] - keys[True]  # a family is on while one of its rules is
    for line, codes in found:
        at = file.head_line(line)
        left = tuple(code for code in codes if code.lower() not in off)
        if (left or not codes) and (file.change is None or at in file.change.added):
            yield UnusedSuppression(file.path, at, left)
