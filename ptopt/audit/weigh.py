"""How much a finding of the review weighs in the audit: by severity, confidence and how often the code runs."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from ptopt.audit.critical import is_finding_critical
from ptopt.audit.measures.evaluation import RECORDS_GRAPH
from ptopt.audit.values import EntryPoint, Gap, Level, Lines, Measure, Place, State, Weighed
from ptopt.findings import Finding, Severity
from ptopt.pathkind import PYTHON

_LINE = re.compile(r"\bline \d+")
_ORDER = {level: number for number, level in enumerate(Level)}
_OF_ACCUMULATION = ("accumulation-syncs-every-micro-batch",)
_OF_SCALER = ("clipped-while-scaled",)
_EACH_STEP = ("often:step", "often:layer", "often:element")
# Rules of what is switched on once, and slows down every step from then on.
_IN_FORCE = frozenset(
    {"anomaly-detection-on", "blocking-launches", "deterministic-left-on", "profiler-around-training"}
)
# Rules that say of a file what the table says of a script: the table has it.
_IN_THE_TABLE = {
    "full-precision-training": "precision", "trainer-in-full-precision": "precision", "optimizer-not-fused": "fused_optimizer",
    "loader-without-workers": "workers", "trainer-without-workers": "workers", "loader-without-pinning": "pin_memory",
    "workers-restarted-each-epoch": "persistent_workers", "data-parallel": "distributed", "cudnn-autotune-off": "cudnn_benchmark",
    "blocking-copy-from-pinned-loader": "non_blocking", "batch-copy-waits": "non_blocking",
    "zero-grad-fills-zeros": "set_to_none", "zero-grad-keeps-tensors": "set_to_none",
}  # fmt: skip

# Measures of which rules say more than the table: which line, and what to write there.
_SAYS_MORE = {
    "attention": frozenset({"attention-by-hand", "attention-in-steps"}),
    "evaluation": frozenset({"evaluation-records-graph", "no-grad-removed"}),
}


def weighed(finding: Finding, sure: float, entries: tuple[EntryPoint, ...]) -> Weighed:
    """`sure`: the confidence from which a review of a change would comment. `entries`: the scripts that train."""
    features = dict(finding.features)
    if not _may_be_run(finding, entries):
        finding = replace(finding, impact=())  # measured on code which that is not known to resemble
    each_step = finding.name in _IN_FORCE or any(features.get(name) for name in _EACH_STEP)
    often = each_step or bool(features.get("often:evaluation"))
    if finding.confidence < sure:
        return Weighed(finding, Level.LOW, "below the confidence from which a review comments")
    if finding.name == "full-precision-training" and entries and not _is_trained(finding.path, entries):
        return Weighed(finding, Level.LOW, "no listed script is known to train here")
    if finding.name in _OF_SCALER and _is_off("precision", finding.path, entries):
        return Weighed(finding, Level.LOW, "mixed precision is off here, by default or in the commands")
    if finding.severity is not Severity.LOW and often:
        how = _how_often(finding, features, entries)
        if entries and not any(_is_run(finding, entry) for entry in entries):
            how += "; no listed script is known to run it"
        heavy = finding.severity is Severity.HIGH and is_finding_critical(finding, entries)
        return Weighed(finding, Level.CRITICAL if heavy else Level.MODERATE, how)
    if finding.severity is Severity.HIGH and _of_unknown_frequency(features):
        return Weighed(finding, Level.MODERATE, "how often it runs is not known")
    return Weighed(finding, Level.LOW, "little each time" if often else "seldom, or unknown how often")


def _how_often(finding: Finding, features: Mapping[str, float], entries: tuple[EntryPoint, ...]) -> str:
    """As much as is known: the review knows the loops and callers of a file, the audit what the scripts surely run."""
    if finding.name in _IN_FORCE:
        return "on every step"
    if features.get("often:in a worker"):
        return "for each sample"
    if finding.name in _SAYS_MORE["evaluation"]:
        return "for each batch"  # of an evaluation, which may run once in a thousand steps
    in_loop = features.get("in a loop")
    if not any(features.get(name) for name in _EACH_STEP):
        return "on each call" if features.get("often by:unknown") and not in_loop else "for each batch"
    # Of a network, a loss or a helper it is known that they work on batches, and not which step calls them.
    of_step = in_loop and features.get("often:step")  # in the loop of the training itself
    surely = of_step or any(_surely_runs(finding, entry) for entry in entries)
    return "on every step" if surely and features.get("often:in training") else "on each call"


def is_planned(each: Weighed, sure: float, entries: tuple[EntryPoint, ...]) -> bool:
    """Is it worth a step of the plan: sure enough for a comment, and of code that a training runs, or of no Python?"""
    return any(f.confidence >= sure and _may_be_run(f, entries) for f in (each.finding, *each.others))


def _may_be_run(finding: Finding, entries: tuple[EntryPoint, ...]) -> bool:
    """Does a listed script run it, as far as is known; where none is listed, or it is no Python, nothing tells that none does."""
    return (
        not entries or not finding.path.endswith(PYTHON) or any(_is_run(finding, entry) for entry in entries)
    )


def _of_unknown_frequency(features: Mapping[str, float]) -> bool:
    """Is it code of which nothing tells how often it runs, such as the handler of a request?"""
    seldom = (features.get(f"often:{word}") for word in ("rarely", "once", "epoch"))
    return any(name.startswith("often:") for name in features) and not any(seldom)


def folded(findings: Iterable[Weighed]) -> tuple[Weighed, ...]:
    """Each statement once, at the first place where it is made: a repository can have a dozen workflows of one form. The lines
    that statements name may differ.
    """
    groups: dict[tuple[str, str, Level, str], list[Weighed]] = {}
    for each in findings:
        finding = each.finding
        groups.setdefault((finding.rule, without_lines(finding.message), each.level, each.reason), []).append(
            each
        )
    return tuple(
        replace(
            group[0],
            also=tuple(place for each in group for place in _files(each.finding))[1:],
            others=tuple(each.finding for each in group[1:]),
        )
        for group in groups.values()
    )


def without_lines(text: str) -> str:
    """A statement without the numbers of the lines that it names."""
    return _LINE.sub("line", text)


def of_table(findings: Iterable[Finding], gap: Gap) -> list[Finding]:
    """The findings that say of a line what a row of the table says of a script, where the row rests on their file."""
    paths = {place.path for place in gap.evidence}
    return [f for f in findings if _IN_THE_TABLE.get(f.name) == gap.key and f.path in paths]


def _files(finding: Finding) -> Iterator[Place]:
    """Where it stands: its first place in each file."""
    yield Place(finding.path, finding.span.start)
    yield from (Place(place.path, place.span.start) for place in finding.also if place.path)


def _is_trained(path: str, entries: tuple[EntryPoint, ...]) -> bool:
    """Does the training of a listed script stand in the file?"""
    return any(path == entry.path or _trains_in(entry, path) for entry in entries)


def _is_run(finding: Finding, entry: EntryPoint) -> bool:
    """Does the script run the line, as far as names and options tell?"""
    if not finding.symbol:
        return finding.path == entry.path or finding.path in entry.modules
    return _stands_in(finding, entry.reached - entry.idle)


def _surely_runs(finding: Finding, entry: EntryPoint) -> bool:
    """No condition that is open stands before its function."""
    if not finding.symbol:
        return finding.path == entry.path
    return _stands_in(finding, entry.certain)


def _stands_in(finding: Finding, functions: Iterable[Lines]) -> bool:
    line = finding.span.start
    return any(path == finding.path and first <= line <= last for path, first, last in functions)


def is_switched_off(finding: Finding, entries: tuple[EntryPoint, ...]) -> bool:
    """Is it about accumulation of gradients, which no script that trains with this file does, as their tables say?"""
    return finding.name in _OF_ACCUMULATION and _is_off("accumulation", finding.path, entries)


def _is_off(key: str, path: str, entries: tuple[EntryPoint, ...]) -> bool:
    """Is a measure off in each script that trains with the file, as their tables say?"""
    states = [
        measure.state
        for entry in entries
        for measure in entry.measures
        if measure.key == key and (path == entry.path or _trains_in(entry, path) or _rests_on(measure, path))
    ]
    return bool(states) and all(state is State.OFF for state in states)


def is_in_table(finding: Finding, entries: tuple[EntryPoint, ...]) -> bool:
    """Does the table of a script already say it: with this file as its evidence, or of the training that stands in it?

    The table has read all that runs, the review this file.
    """
    key = _IN_THE_TABLE.get(finding.name)
    return any(
        measure.key == key and (_trains_in(entry, finding.path) or _rests_on(measure, finding.path))
        for entry in entries
        for measure in entry.measures
    )


def each_once(
    gaps: Iterable[Gap], findings: tuple[Weighed, ...]
) -> tuple[tuple[Gap, ...], tuple[Weighed, ...]]:
    """What gaps and findings both say of a file is said by the one that weighs more; by the finding where they are equal,
    which has the line and what to write there.
    """
    left = []
    for gap in gaps:
        alike = [each for each in findings if each.finding.name in _SAYS_MORE.get(gap.key, ())]
        better = {path for each in alike if _ORDER[each.level] <= _ORDER[gap.level] for path in _paths(each)}
        evidence = tuple(place for place in gap.evidence if place.path not in better)
        if gap.evidence and not evidence:
            continue
        left.append(replace(gap, evidence=evidence))
        said = {place.path for place in evidence}
        findings = tuple(
            each
            for each in findings
            if each not in alike
            or _ORDER[each.level] <= _ORDER[gap.level]
            or not said.issuperset(_paths(each))
        )
    return tuple(left), findings


def _paths(each: Weighed) -> set[str]:
    return {each.finding.path, *(place.path for place in each.also)}


def with_findings(entry: EntryPoint, findings: Iterable[Finding], sure: float) -> EntryPoint:
    """With a row that does not deny or doubt an evaluation, where a finding shows one in what the script runs, nor says that it is
    under `no_grad`, where a finding that is `sure` shows the opposite and only code of other files is.
    """
    every = [f for f in findings if f.name == "evaluation-records-graph"]
    shown = [
        f for f in every if f.path == entry.path or (f.confidence >= sure and _stands_in(f, entry.reached))
    ]
    # What the script itself says comes first.
    shown.sort(key=lambda finding: finding.path != entry.path)
    places = tuple(Place(finding.path, finding.span.start) for finding in shown)[:4]
    paths = {finding.path for finding in shown if finding.confidence >= sure}
    if not places:
        return entry
    return replace(
        entry,
        measures=tuple(
            replace(row, state=State.OFF, detail=RECORDS_GRAPH, evidence=places)
            if row.key == "evaluation"
            and not row.by_model
            and (
                row.state in (State.NOT_APPLICABLE, State.UNKNOWN)
                or (row.state is State.ON and any(not _rests_on(row, path) for path in paths))
            )
            else row
            for row in entry.measures
        ),
    )


def _trains_in(entry: EntryPoint, path: str) -> bool:
    return entry.loop is not None and entry.loop.path == path


def _rests_on(measure: Measure, path: str) -> bool:
    return any(place.path == path for place in measure.evidence)
