"""The pipeline, on one page: propose, verify, rank. Text in, values out; no network, no disk, no clock."""

from __future__ import annotations

import dataclasses
import gc
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ptopt.change import Change, ChangedFile
from ptopt.findings import Finding, ModelRecord, NotReviewed, Review, UnusedSuppression
from ptopt.model.port import ModelUnavailableError
from ptopt.project.facts import ProjectFacts
from ptopt.proposals import Proposal, by_cause, merged, propose, rank
from ptopt.rules import rules
from ptopt.rules.base import Rule
from ptopt.rules.engine import Prefilter, run
from ptopt.source.file import SourceFile
from ptopt.suppress import Suppressions, find_suppressions
from ptopt.syntax import ParseError

if TYPE_CHECKING:
    from ptopt.config import Config
    from ptopt.model.advisor import Advisor
    from ptopt.model.region import Region

_SUFFIXES = (".py", ".ipynb")
_LONGEST_NOTE = 200


def review_change(
    change: Change, *, config: Config, facts: ProjectFacts, advisor: Advisor | None = None
) -> Review:
    """Review a pull request: comments on what it changed, the best `config.budget` of them."""
    files: list[ChangedFile | NotReviewed] = [*change.files, *change.not_reviewed]
    return review_files(files, config=config, facts=facts, limit_to_change=True, advisor=advisor)


def review_files(
    files: Iterable[ChangedFile | NotReviewed],
    *,
    config: Config,
    facts: ProjectFacts,
    limit_to_change: bool,
    one_per_cause: bool = True,
    advisor: Advisor | None = None,
) -> Review:
    """Review files one at a time: propose, verify, rank.

    With `limit_to_change`, only what their hunks touch is reported, within the budget. Without `one_per_cause`, every
    place is a finding of its own, each with its own fix. An `advisor` is heard at the end, on all files at once; when
    it does not answer each question, the review is what it would be without it, and its `model.note` says why.
    """
    reviewer = _Reviewer(config, facts, limit_to_change, one_per_cause, advisor)
    with _no_cycle_collection():
        for file in files:
            reviewer.look_at(file)
    return reviewer.review()


@contextmanager
def _no_cycle_collection() -> Iterator[None]:
    """Trees go away by reference counts; collecting cycles would only walk them, again and again."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


@dataclass(slots=True)
class _Said:
    """What is to be said of the files so far."""

    kept: list[Finding] = field(default_factory=list)
    suppressed: list[Finding] = field(default_factory=list)
    dropped: list[Finding] = field(default_factory=list)
    unused: list[UnusedSuppression] = field(default_factory=list)
    sources: dict[str, str] = field(default_factory=dict)

    def copy(self) -> _Said:
        return _Said([*self.kept], [*self.suppressed], [*self.dropped], [*self.unused], dict(self.sources))


class _Reviewer:
    """Collects what is to be said, file by file; keeps no text of a file without a finding.

    Trees are kept only of files on which a model is to be asked.
    """

    def __init__(
        self,
        config: Config,
        facts: ProjectFacts,
        limit_to_change: bool,
        one_per_cause: bool,
        advisor: Advisor | None,
    ) -> None:
        self._config = config
        self._facts = facts
        self._limit_to_change = limit_to_change
        self._one_per_cause = one_per_cause
        self._advisor = None if advisor is None or advisor.calibration.silent else advisor
        self._record = None if self._advisor is None else self._advisor.record
        self._prefilter = Prefilter(rules())
        self._said = _Said()
        self._open: list[tuple[Proposal, list[Region]]] = []  # on these the model is to be heard
        self._skipped: list[NotReviewed] = []
        self._reviewed = 0

    def look_at(self, file: ChangedFile | NotReviewed) -> None:
        """Propose, verify and group the findings of one file."""
        if not file.path.endswith(_SUFFIXES):
            return
        if isinstance(file, NotReviewed):
            self._skipped.append(file)
            return
        reason = self._config.why_skipped(file.path)
        if reason is None and file.head is None:
            reason = "its head version is not available"
        if reason is not None or file.head is None:
            self._skipped.append(NotReviewed(file.path, reason or ""))
            return
        self._reviewed += 1
        wanted = [r for r in self._prefilter(file.head) if self._enabled(*r.keys(), r.default, file.path)]
        for_rules = bool(wanted) or _speaks_to_us(file.head)
        if not for_rules and not self._may_be_advised_on(file.head):
            return
        try:
            source = SourceFile.parse(file.path, file.head, self._facts)
        except ParseError as error:
            if not for_rules:  # nothing that the rules would have told
                return
            self._reviewed -= 1
            self._skipped.append(NotReviewed(file.path, str(error)))
            return
        if for_rules:
            self._skipped += [NotReviewed(file.path, lost) for lost in source.parsed.lost]
        self._propose(source, wanted, file)

    def _enabled(self, rule: str, name: str, family: str, default: bool, path: str) -> bool:
        return self._config.enabled(rule, name, family, default, path)

    def _may_be_advised_on(self, head: bytes) -> bool:
        advises = self._advisor is not None and self._advisor.calibration.advise_threshold is not None
        return advises and b"torch" in head

    def _propose(self, source: SourceFile, wanted: list[Rule], file: ChangedFile) -> None:
        failed: list[tuple[Rule, Exception]] = []
        hits = run(source, wanted, failed)
        self._skipped += [NotReviewed(source.path, _failure(rule, error)) for rule, error in failed]
        change = file if self._limit_to_change else None
        proposal = Proposal(source, change, tuple(hits), tuple(propose(source, hits, change, self._floor)))
        if self._advisor is not None:
            from ptopt.consult import regions

            looked_at = regions(proposal, self._advisor.calibration)
            if looked_at:
                self._open.append((proposal, looked_at))
                return
        self._settle(proposal, self._said)

    @property
    def _floor(self) -> float:
        floor = None if self._advisor is None else self._advisor.calibration.floor
        least = self._config.min_confidence
        return least if floor is None else min(floor, least)

    def _settle(self, proposal: Proposal, said: _Said) -> None:
        """Drop what is not sure enough, merge what has one cause, silence what a comment silences."""
        source, least = proposal.source, self._config.min_confidence
        found = [one for one in proposal.found if one.sure >= least]
        said.dropped += [one.finding for one in proposal.found if one.sure < least <= one.by_rule]
        groups = by_cause(found) if self._one_per_cause else [[one.finding] for one in found]
        groups += [[finding] for finding in proposal.advised if finding.confidence >= least]
        if not groups and not _speaks_to_us(source.data):
            return  # comments of other tools need no reading
        suppressions = find_suppressions(source.text)
        for hit in proposal.hits:  # also those that the change did not touch: their comments are in use
            span = hit.problem.span or source.span(hit.problem.node)
            suppressions.silences(*hit.rule.keys(), span.start, span.end)
        for group in groups:
            loud = [f for f in group if not suppressions.silences(*_keys(f), f.span.start, f.span.end)]
            said.suppressed += [f for f in group if f not in loud]
            if loud:
                said.kept.append(merged(loud))
                if source.numbered_as_on_disk:
                    said.sources[source.path] = source.text
        said.unused += _unused(suppressions, source, proposal.change, self._config)

    def review(self) -> Review:
        """Hear the model where there is one, rank what was found, and cut it to the budget."""
        note = ""
        if self._advisor is not None and self._open:
            try:
                return self._consult(self._advisor)
            except ModelUnavailableError as error:
                note = " ".join(str(error).split())[:_LONGEST_NOTE] or "it is away"
        for proposal, _ in self._open:
            self._settle(proposal, self._said)
        record = self._record
        return self._ranked(self._said, None if record is None else dataclasses.replace(record, note=note))

    def _consult(self, advisor: Advisor) -> Review:
        from ptopt.consult import consult, explained

        looked_at = [regions for _, regions in self._open]
        heard = consult(advisor, [proposal for proposal, _ in self._open], looked_at, self._enabled)
        said = self._said.copy()
        for proposal in heard.proposals:
            self._settle(proposal, said)
        review = self._ranked(said, heard.record)
        return dataclasses.replace(review, findings=explained(advisor, review.findings, looked_at))

    def _ranked(self, said: _Said, record: ModelRecord | None) -> Review:
        ranked = sorted(said.kept, key=rank)
        budget = self._config.budget if self._limit_to_change else len(ranked)
        shown = ranked[:budget]
        paths = {f.path for f in shown}
        return Review(
            findings=tuple(shown),
            withheld=tuple(ranked[budget:]),
            suppressed=tuple(sorted(said.suppressed, key=Finding.sort_key)),
            not_reviewed=tuple(sorted(set(self._skipped))),
            unused_suppressions=tuple(sorted(said.unused)),
            files_reviewed=self._reviewed,
            config_path=self._config.origin,
            sources={path: text for path, text in said.sources.items() if path in paths},
            dropped=tuple(sorted(said.dropped, key=Finding.sort_key)),
            model=record,
        )


def _speaks_to_us(data: bytes) -> bool:
    return b"ptopt:" in data or b"PTO" in data


def _failure(rule: Rule, error: Exception) -> str:
    return f"{rule.id} failed on it ({type(error).__name__}): please report this"


def _keys(finding: Finding) -> tuple[str, str, str]:
    return (finding.rule, finding.name, finding.family)


def _unused(
    suppressions: Suppressions, source: SourceFile, change: ChangedFile | None, config: Config
) -> Iterator[UnusedSuppression]:
    """Comments of the change that silence nothing; a rule that is switched off may have its comments."""
    keys = {True: set[str](), False: set[str]()}
    for rule in rules():
        keys[config.enabled(*rule.keys(), rule.default, source.path)] |= set(map(str.lower, rule.keys()))
    off = keys[False] - keys[True]  # a family is on while one of its rules is
    for line, codes in suppressions.unused():
        at = source.head_line(line)
        left = tuple(code for code in codes if code.lower() not in off)
        if (left or not codes) and (change is None or at in change.added):
            yield UnusedSuppression(source.path, at, left)
