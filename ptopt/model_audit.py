"""A general model as the second reader of an audit: it compares the tables of the scripts with the code, and doubts what weighs.

No answer is trusted: a row changes only where the lines that are named were shown, and where the change stands when the model is to
prove it wrong. Its words are shown as a quotation, under its name.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Mapping, Sequence

from ptopt.audit.context import Context, Contexts
from ptopt.audit.values import Checked, EntryPoint, Measure, ModelReading, Place, State
from ptopt.audit.words import rows_of
from ptopt.findings import Finding
from ptopt.model.advisor import Advisor
from ptopt.model.audit_rows import DOUBT_TOKENS, TABLE_TOKENS, Row, RowAnswer, Sheet, Shown, chosen
from ptopt.model.interface import ModelUnavailableError
from ptopt.model.region import Region, region_of_file
from ptopt.model.whole_change import Claim
from ptopt.project.facts import ProjectFacts
from ptopt.source.file import SourceFile
from ptopt.syntax import ParseError

MOST_SCRIPTS = 8
MOST_FINDINGS = 20
_AT_ONCE = 4  # scripts: what is lost when the time is up
_AROUND = 12  # lines on each side of one that is evidence
_EVIDENCE_WEIGHT, _AROUND_WEIGHT = 1000.0, 100.0
_OF_THE_ROW, _OF_OTHERS = 3.0, 0.2  # times what a line tells of the table


class ModelReader:
    """For one audit; see `ptopt.audit.run.SecondReader`. `most`: scripts whose tables are read, the first that train in earnest."""

    def __init__(self, advisor: Advisor, most: int = MOST_SCRIPTS) -> None:
        self._advisor = advisor
        self._most = most
        self._reading = ModelReading(advisor.record.name)
        self._failed = False

    def reading(self) -> ModelReading:
        """What came of it so far."""
        return self._reading

    def tables(
        self, entries: tuple[EntryPoint, ...], files: Mapping[str, bytes], facts: ProjectFacts
    ) -> tuple[EntryPoint, ...]:
        wanted = sorted(range(len(entries)), key=lambda at: (entries[at].trial, at))[: self._most]
        if not wanted:
            return entries
        contexts = Contexts(files, facts)
        settled = dict(enumerate(entries))
        for first in range(0, len(wanted), _AT_ONCE):
            some = wanted[first : first + _AT_ONCE]
            try:
                settled.update(zip(some, self._settled([entries[at] for at in some], contexts), strict=True))
            except ModelUnavailableError as error:
                self._failed = True
                self._count(note=str(error))
                break
        rest = len(entries) - self._reading.scripts
        if rest and not self._reading.note:
            self._count(note=f"it read the tables of {self._reading.scripts} of {len(entries)} scripts")
        return tuple(settled[at] for at in range(len(entries)))

    def refuted(
        self, findings: Sequence[Finding], files: Mapping[str, bytes], facts: ProjectFacts
    ) -> frozenset[Finding]:
        asked: list[tuple[Finding, tuple[Claim, Region]]] = []
        for finding in () if self._failed else findings[:MOST_FINDINGS]:
            with contextlib.suppress(ParseError):
                source = SourceFile.parse(finding.path, files.get(finding.path, b""), facts)
                if source.numbered_as_on_disk:
                    asked.append((finding, _claim(finding, source)))
        try:
            checks = self._advisor.check([claim for _, claim in asked])
        except ModelUnavailableError as error:
            self._count(note=str(error))
            return frozenset()
        wrong = [
            finding
            for (finding, _), check in zip(asked, checks, strict=True)
            if check is not None and check.verdict == "wrong"
        ]
        self._count(findings=len(asked), refuted=len(wrong), invalid=checks.count(None))
        return frozenset(wrong)

    def _settled(self, entries: Sequence[EntryPoint], contexts: Contexts) -> list[EntryPoint]:
        """The scripts with the rows that stand. Raises ModelUnavailableError."""
        known = [contexts.of(entry) for entry in entries]
        sheets = [sheet_of(entry, context) for entry, context in zip(entries, known, strict=True)]
        answers = self._advisor.read(sheets)
        changes = [
            (at, row, answer)
            for at, (found, _) in enumerate(answers)
            for row in sheets[at].rows
            if (answer := found.get(row.key)) is not None and not answer.agrees
        ]
        verdicts = self._advisor.doubt(
            [(sheets[at], row, answer, _around(known[at], row, answer)) for at, row, answer in changes]
        )
        standing = {
            (at, row.key): answer
            for (at, row, answer), verdict in zip(changes, verdicts, strict=True)
            if verdict is True
        }
        self._count(
            scripts=len(entries),
            agreed=sum(answer.agrees for found, _ in answers for answer in found.values()),
            changed=len(standing),
            refused=verdicts.count(False),
            invalid=sum(not valid for _, valid in answers) + verdicts.count(None),
        )
        return [
            dataclasses.replace(
                entry,
                measures=tuple(
                    self._row(measure, standing.get((at, measure.key)), answers[at][0].get(measure.key))
                    for measure in entry.measures
                ),
            )
            for at, entry in enumerate(entries)
        ]

    def _row(self, measure: Measure, standing: RowAnswer | None, answer: RowAnswer | None) -> Measure:
        """The row as the model's change has it; marked where it agreed."""
        model = self._advisor.record.name.replace("`", "'")
        if standing is not None:
            words = standing.because.replace('"', "'")
            return Measure(
                measure.key, measure.title, State(standing.state), f'"{words}" ({model})',
                tuple(Place(path, line) for path, line in standing.evidence), Checked(model, measure),
            )  # fmt: skip
        if answer is not None and answer.agrees:
            return dataclasses.replace(measure, checked=Checked(model))
        return measure

    def _count(self, note: str = "", **more: int) -> None:
        sums = {name: getattr(self._reading, name) + number for name, number in more.items()}
        self._reading = dataclasses.replace(self._reading, note=note or self._reading.note, **sums)


def sheet_of(entry: EntryPoint, context: Context) -> Sheet:
    """What the model is shown of a script."""
    rows = tuple(
        Row(m.key, m.title, str(m.state), m.detail, tuple((p.path, p.line) for p in m.evidence))
        for m in entry.measures
    )
    shown = chosen(context.lines, TABLE_TOKENS)
    return Sheet(
        entry.path, entry.framework, rows, entry.limits, shown, context.absent, context.runs, context.options
    )


def _claim(finding: Finding, source: SourceFile) -> tuple[Claim, Region]:
    """The finding as a claim about its whole file."""
    span = finding.span
    view = region_of_file(source, (), range(span.start, span.end + 1))
    return Claim(view, span.start, span.end, finding.name, finding.message, "", 1.0), view


def _around(context: Context, row: Row, answer: RowAnswer) -> Shown:
    """The lines around the evidence of both sides, then those that have to do with the row."""
    places = {*row.evidence, *answer.evidence}
    near = {(path, number) for path, line in places for number in range(line - _AROUND, line + _AROUND + 1)}
    lines = []
    for line in context.lines:
        place = (line.path, line.number)
        weight = line.weight * (_OF_THE_ROW if row.key in rows_of(line.text) else _OF_OTHERS)
        if place in places:
            weight = _EVIDENCE_WEIGHT
        elif place in near:
            weight = _AROUND_WEIGHT
        lines.append(dataclasses.replace(line, weight=weight))
    return chosen(lines, DOUBT_TOKENS)
