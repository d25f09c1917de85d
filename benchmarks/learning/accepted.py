"""Accepted suggestions: how many are found, on generated histories of which the truth is known.

The suggestions are those of the rules' own examples. Each history is a git repository with two or three of them in one file; one
is accepted in every second history, in the others something else is done in the same way (ignored, changed otherwise, half of it,
the same text elsewhere, …). Detection is what the workers do: each head is compared, and the one that was merged once more.
"""

from __future__ import annotations

import argparse
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from pathlib import Path

from benchmarks.learning.histories import BEYOND, KINDS, History, history
from benchmarks.learning.people import Signal
from feedback.labels import Comment, label
from feedback.signals import SignalKind
from feedback.signals.stored_suggestion import suggestion_hashes
from feedback.signals.suggestions import Match, is_undone, match_suggestion, signals_of

PRECISION, RECALL = 0.98, 0.95  # the bars
HISTORIES = 200
_KEY = b"a key of the benchmark"
_START = datetime(2026, 1, 1, tzinfo=timezone.utc)


@dataclass(frozen=True, slots=True)
class Verdict:
    """One suggestion of one history."""

    kind: str
    how: str
    accepted: bool
    found: bool


def detected(one: History, offer: int) -> bool:
    """Whether the signals of the history make the comment a good one."""
    mine = one.suggestions[offer]
    others = [other for other in one.suggestions if other is not mine]
    stored = suggestion_hashes(one.heads[0], mine, _KEY, others)
    known: list[Signal] = []
    looks = [(text, False) for text in one.heads[1:]] + [(one.heads[-1], one.merged)]
    for number, (text, merged) in enumerate(looks):
        source, at = str(number), _START + timedelta(hours=number)
        standing = _standing(known)
        match = match_suggestion(text, stored, _KEY)
        undone = match is Match.NO and bool(standing) and is_undone(text, stored, _KEY)
        new, back = signals_of(match, undone, merged, {SignalKind(signal.kind) for signal in standing})
        known += [Signal(kind.value, value, "", None, source, at) for kind, value in new]
        withdrawn = SignalKind.WITHDRAWN.value
        known += [
            Signal(withdrawn, s.value, "", None, s.source, at) for s in standing if SignalKind(s.kind) in back
        ]
    comment = Comment(1, 1, 1, "PTO101", 1, 0.5, "author", _START)
    return label(comment, known).good is True


def _standing(known: Sequence[Signal]) -> list[Signal]:
    back = {(s.value, s.source) for s in known if s.kind == SignalKind.WITHDRAWN.value}
    return [s for s in known if s.kind != SignalKind.WITHDRAWN.value and (s.value, s.source) not in back]


def verdicts(kinds: Sequence[str], number: int, seed: int) -> Iterator[Verdict]:
    """Of `number` histories, as many of each kind as of any other."""
    with tempfile.TemporaryDirectory(prefix="histories-") as folder:
        for at in range(number):
            kind = kinds[at % len(kinds)]
            one = history(kind, at // len(kinds), seed, Path(folder) / kind)
            for offer, accepted in enumerate(one.accepted):
                yield Verdict(kind, one.how, accepted, detected(one, offer))


def precision_recall(found: Iterable[Verdict]) -> tuple[float, float]:
    """1.0 where there is nothing to be wrong about."""
    counted = Counter((v.accepted, v.found) for v in found)
    right = counted[True, True]
    wrong, missed = counted[False, True], counted[True, False]
    return right / (right + wrong) if right + wrong else 1.0, right / (
        right + missed
    ) if right + missed else 1.0


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.learning accepted",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--histories", type=int, default=HISTORIES)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--show", action="store_true", help="name what was missed or wrong")
    options = parser.parse_args(arguments)
    found = list(verdicts(KINDS, options.histories, options.seed))
    beyond = list(verdicts(BEYOND, max(1, options.histories // len(KINDS)), options.seed))
    print(
        f"{options.histories} histories, {len(found)} suggestions, {sum(v.accepted for v in found)} of them accepted\n"
    )
    print(f"{'kind':24}{'suggestions':>12}{'accepted':>10}{'found':>7}{'missed':>8}{'wrong':>7}")
    for kind in KINDS:
        _row(kind, [v for v in found if v.kind == kind])
    for kind in BEYOND:
        _row(f"({kind})", [v for v in beyond if v.kind == kind and v.accepted])
    print()
    for what, value, bar in zip(
        ("precision", "recall"), precision_recall(found), (PRECISION, RECALL), strict=True
    ):
        print(f"{what:24}{value:>8.1%}   bar >= {bar:.0%} {'reached' if value >= bar else 'MISSED'}")
    if options.show:
        for v in found:
            if v.accepted != v.found:
                print(f"{'missed' if v.accepted else 'wrong'}: {v.kind}, {v.how}")
    return 0


def _row(name: str, found: Sequence[Verdict]) -> None:
    counted = Counter((v.accepted, v.found) for v in found)
    right, missed, wrong = counted[True, True], counted[True, False], counted[False, True]
    print(f"{name:24}{len(found):12}{right + missed:10}{right:7}{missed:8}{wrong:7}")
