"""The review of a whole repository, and the audit made of it."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol, TypeVar

from ptopt.audit.audit import audit
from ptopt.audit.scripts import Scripts, training_scripts
from ptopt.audit.values import Audit, EntryPoint, Level, ModelReading
from ptopt.change import ChangedFile, whole_file
from ptopt.findings import Condition, LeftOut
from ptopt.pathkind import is_notebook, is_reviewable
from ptopt.project.around import Neighbours
from ptopt.project.naming import Naming, may_name
from ptopt.project.surroundings import with_surroundings
from ptopt.ranker.model import threshold
from ptopt.review import review_files
from ptopt.source.notebook import cell_lines

if TYPE_CHECKING:
    from ptopt.config import Config
    from ptopt.findings import Finding, NotReviewed, Review
    from ptopt.inspection import Inspect
    from ptopt.project.facts import ProjectFacts

_BELOW = 0.8  # an audit also lists, as low, what is a little less sure than a comment on a pull request

T = TypeVar("T")


class Aside(Protocol):
    """Does some work beside what follows, of which there are so many files; what it gives back waits for the result."""

    def __call__(self, work: Callable[[], T], files: int) -> Callable[[], T]: ...


def _at_once(work: Callable[[], T], files: int) -> Callable[[], T]:
    result = work()
    return lambda: result


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
    inspect: Inspect | None = None,
    aside: Aside = _at_once,
    reader: SecondReader | None = None,
    above: frozenset[str] = frozenset(),
    part: bool = False,
) -> Audit:
    """The audit of a repository, of its files by path. `inspect` inspects them for the review, `aside` looks for the scripts meanwhile. All that follows
    from the tables follows from them as `reader` leaves them. `above`: of a folder of a repository, the modules in the folders above it. `part`: it is such a folder.
    """
    facts = dataclasses.replace(
        facts, naming=Naming({path: data for path, data in files.items() if may_name(path)}, whole=True)
    )
    sure = threshold(config.min_confidence)
    broad = config.at_least(sure * _BELOW)
    known = with_surroundings(facts, files)
    found = aside(functools.partial(training_scripts, files, known, above=above, part=part), len(files))
    whole = [whole_file(path, data) for path, data in files.items() if is_reviewable(path)]
    reviewed = functools.partial(
        review_files,
        facts=facts,
        limit_to_change=False,
        neighbours=Neighbours(lambda: files, files.get),
        inspect=inspect,
    )
    left_out = {file.path for file in whole if config.why_skipped(file.path) is not None}

    def rest() -> Iterator[ChangedFile | NotReviewed]:
        yield from (file for file in whole if file.path not in left_out)
        trained = found().paths()
        yield from (file for file in whole if file.path in left_out - trained)
        yield from not_read

    review = reviewed(rest(), config=broad)
    scripts = found()
    if reader is not None:
        scripts = dataclasses.replace(scripts, entries=reader.tables(scripts.entries, files, known))
    # What trains is reviewed wherever it lies: often among the examples, which `skip` leaves out elsewhere.
    train = [file for file in whole if file.path in left_out & scripts.paths()]
    more = reviewed(train, config=broad.model_copy(update={"skip": ()}))
    not_listed = _left_out(review, more)
    review = dataclasses.replace(
        review,
        findings=tuple(f for f in (*review.findings, *more.findings) if _OTHERS.isdisjoint(f.missed)),
        not_reviewed=(*review.not_reviewed, *more.not_reviewed),
    )
    cells = _cells(files, review, scripts)
    audited = dataclasses.replace(audit(name, scripts, known, review, sure), cells=cells, left_out=not_listed)
    if reader is None:
        return audited
    weighty = [weighed.finding for weighed in audited.findings if weighed.level in _DOUBTED]
    refuted = reader.refuted(weighty, files, known)
    if refuted:
        left = tuple(finding for finding in review.findings if finding not in refuted)
        audited = audit(name, scripts, known, dataclasses.replace(review, findings=left), sure)
    return dataclasses.replace(audited, model=reader.reading(), cells=cells, left_out=not_listed)


def _left_out(*reviews: Review) -> LeftOut | None:
    """What they left out for its confidence, but for what rules doubt themselves, which `ptopt check` does not count either; None where nothing is."""
    every = [review.left_out for review in reviews if review.left_out is not None]
    places = sum(left.places.get(Condition.CONFIDENCE, 0) - left.doubted for left in every)
    return LeftOut({Condition.CONFIDENCE: places}, every[0].least, 0, 0) if places > 0 else None


def _cells(
    files: Mapping[str, bytes], review: Review, scripts: Scripts
) -> dict[str, dict[int, tuple[int, int]]]:
    """The lines of the notebooks that train or have a finding, by cell."""
    paths = {path for entry in scripts.entries for path in (entry.path, *entry.modules)}
    paths |= {finding.path for finding in review.findings}
    return {path: cell_lines(files[path]) for path in paths if is_notebook(path) and path in files}
