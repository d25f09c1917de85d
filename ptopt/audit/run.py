"""The review of a whole repository, and the audit made of it."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

from ptopt.audit.audit import audit, training_scripts
from ptopt.audit.values import Audit, EntryPoint, Level, ModelReading
from ptopt.change import ChangedFile, whole_file
from ptopt.findings import Condition
from ptopt.pathkind import is_reviewable
from ptopt.project.around import Neighbours
from ptopt.project.naming import Naming, may_name
from ptopt.project.surroundings import with_surroundings
from ptopt.ranker.model import threshold
from ptopt.review import review_files

if TYPE_CHECKING:
    from ptopt.config import Config
    from ptopt.findings import Finding, NotReviewed
    from ptopt.project.facts import ProjectFacts

_BELOW = 0.8  # an audit also lists, as low, what is a little less sure than a comment on a pull request

_OTHERS = {Condition.RIGHT, Condition.STATED}  # a lower confidence would lift them, too


_DOUBTED = (Level.CRITICAL, Level.MODERATE)


class SecondReader(Protocol):
    """Who compares what the static audit says with the code. It does not fail: what it cannot tell stays as it is."""

    def tables(
        self, entries: tuple[EntryPoint, ...], files: Mapping[str, bytes], facts: ProjectFacts
    ) -> tuple[EntryPoint, ...]:
        """The scripts with the rows as they are after that."""
        ...

    def refuted(
        self, findings: Sequence[Finding], files: Mapping[str, bytes], facts: ProjectFacts
    ) -> frozenset[Finding]:
        """Those of the findings that are wrong or not worth a change."""
        ...

    def reading(self) -> ModelReading: ...


def audit_of(
    name: str,
    files: Mapping[str, bytes],
    config: Config,
    facts: ProjectFacts,
    not_read: Sequence[NotReviewed] = (),
    watch: Callable[[list[ChangedFile | NotReviewed]], Iterable[ChangedFile | NotReviewed]] = iter,
    reader: SecondReader | None = None,
) -> Audit:
    """The audit of a repository, of its files by path; `watch` sees those that are reviewed, one after the other. All that follows
    from the tables follows from them as `reader` leaves them.
    """
    facts = dataclasses.replace(
        facts, naming=Naming({path: data for path, data in files.items() if may_name(path)}, whole=True)
    )
    sure = threshold(config.min_confidence)
    broad = config.model_copy(update={"min_confidence": sure * _BELOW})
    known = with_surroundings(facts, files)
    scripts = training_scripts(files, known)
    if reader is not None:
        scripts = dataclasses.replace(scripts, entries=reader.tables(scripts.entries, files, known))
    whole = [whole_file(path, data) for path, data in files.items() if is_reviewable(path)]
    reviewed = functools.partial(
        review_files, facts=facts, limit_to_change=False, neighbours=Neighbours(lambda: files, files.get)
    )
    # What trains is reviewed wherever it lies: often among the examples, which `skip` leaves out elsewhere.
    skipped = {path for path in scripts.paths() if config.why_skipped(path) is not None}
    train = [f for f in whole if f.path in skipped]
    rest = [f for f in whole if f.path not in skipped]
    review = reviewed(watch([*rest, *not_read]), config=broad)
    more = reviewed(train, config=broad.model_copy(update={"skip": ()}))
    review = dataclasses.replace(
        review,
        findings=tuple(f for f in (*review.findings, *more.findings) if _OTHERS.isdisjoint(f.missed)),
        not_reviewed=(*review.not_reviewed, *more.not_reviewed),
    )
    found = audit(name, scripts, known, review, sure)
    if reader is None:
        return found
    weighty = [weighed.finding for weighed in found.findings if weighed.level in _DOUBTED]
    refuted = reader.refuted(weighty, files, known)
    if refuted:
        left = tuple(finding for finding in review.findings if finding not in refuted)
        found = audit(name, scripts, known, dataclasses.replace(review, findings=left), sure)
    return dataclasses.replace(found, model=reader.reading())
