"""What may be called critical: what is known to make most of the cost of a training that the repository is there for.

A consultant calls something critical where the run that is documented certainly meets it, on each step or item, in a training that is
neither small nor one example of many. All else may be true and worth an hour; it is moderate. So is float32: whether a training works in half
precision shows in the values of its tensors, and not in its code (masks of -1e9, geometry, losses near zero).
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from ptopt.audit.values import EntryPoint, Measure, Sign
from ptopt.findings import Finding
from ptopt.pathkind import is_notebook, path_kind

# Findings that cost a multiple of the step, whatever the network is. A graph that is kept is none of them: how much of it a backward pass
# has freed, and over how many batches it grows, decides whether it matters. Nor is anomaly detection: it costs by the number of operations,
# and a step of few large ones hardly notices.
_COSTLY = frozenset(
    {
        "blocking-launches",
        "synchronous-save-every-step",
        "loader-rebuilt-in-loop",
        "file-read-per-item",
        "float16-on-cpu",
    }
)
_FEW = 4  # scripts, of which each may be the one that matters
_MANY = 8  # scripts: a collection, in which only one at the top is the main one
_ALIKE = 3  # scripts of one name in folders of their own: a collection, too
_ASIDE = re.compile(
    r"(^|[_\-/])(old|legacy|backup|deprecated|archived?|third_?party|external|vendor|e2e|toys?|playground|sandbox|scratch|baselines?|"
    r"tutorials?|notebooks?|debug|sanity|dummy|quick_?start|examples?|demos?|projects?|extensions?|contrib|comparisons?)(?=[_\-/.]|$)",
    re.I,
)
_AT_TOP = re.compile(r"((src|scripts?|tools?|train(ing)?)/)?[^/]+$")
_TRAINS = re.compile(r"train|tune|main|run|fit|sft|dpo|imitate|learn", re.I)
# A network that is there already is measured.
_EVALUATES = re.compile(
    r"(^|[_-])(eval\w*|lin(ear)?_?(cls|probe|probing|eval\w*|classif\w*)|knn|prob(e|ing)|test)(?=[_-]|\.py$)",
    re.I,
)
_NO_WORKERS = re.compile(r"^`num_workers` is 0\b")


def is_main(entry: EntryPoint, entries: Sequence[EntryPoint]) -> bool:
    """Is it a script that the repository is there for, and not a toy, a test, or one example of many?"""
    if (
        entry.trial
        or is_notebook(entry.path)
        or path_kind(entry.path) is not None
        or _ASIDE.search(entry.path)
        or Sign.NOT_DOCUMENTED in entry.signs
    ):
        return False
    if _EVALUATES.search(entry.path.rpartition("/")[2]) and any(
        not _EVALUATES.search(other.path.rpartition("/")[2]) for other in entries
    ):
        return False
    depth = entry.path.count("/")
    if depth > 1 + min(other.path.count("/") for other in (entry, *entries)):
        return False
    started = Sign.STARTED in entry.signs
    if not started and (
        any(Sign.STARTED in other.signs for other in entries)
        or not _TRAINS.search(entry.path.rpartition("/")[2])
    ):
        return False
    name = entry.path.rpartition("/")[2]
    alike = sum(other.path.rpartition("/")[2] == name for other in entries)
    if len(entries) > _MANY or (alike >= _ALIKE and depth > 0):
        return started and _AT_TOP.match(entry.path) is not None
    return len(entries) <= _FEW or depth <= 1 or started


def is_measure_critical(key: str, entry: EntryPoint, entries: Sequence[EntryPoint]) -> bool:
    """Does a measure that is off in a script surely cost most of its run? Workers do, where each item is decoded."""
    measure = _measure(entry, key) if key == "workers" else None
    if measure is None or Sign.SMALL in entry.signs or not is_main(entry, entries):
        return False
    # A model has read what the words stand for.
    off = measure.by_model or _NO_WORKERS.search(measure.detail) is not None
    return off and Sign.DECODES in entry.signs and not _outweighs_decoding(entry)


def is_finding_critical(finding: Finding, entries: Sequence[EntryPoint]) -> bool:
    """Does a main script run the line, and does it cost so much there?"""
    return finding.name in _COSTLY and any(
        is_main(entry, entries) and _runs(entry, finding) for entry in entries
    )


def _outweighs_decoding(entry: EntryPoint) -> bool:
    """Does a step take much longer than its pictures take to be decoded: of a published transformer, or of a network that makes
    pictures, but where one process decodes for all GPUs?
    """
    if entry.framework in ("transformers", "TRL") or Sign.PRETRAINED in entry.signs:
        return True
    return Sign.MAKES_PICTURES in entry.signs and Sign.FEEDS_ALL not in entry.signs


def _runs(entry: EntryPoint, finding: Finding) -> bool:
    if not finding.symbol:
        return finding.path in entry.modules
    line = finding.span.start
    return any(path == finding.path and first <= line <= last for path, first, last in entry.reached)


def _measure(entry: EntryPoint, key: str) -> Measure | None:
    return next((m for m in entry.measures if m.key == key), None)
