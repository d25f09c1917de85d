"""Set the probability from which what a general model finds in a change as a whole is a comment.

    python -m benchmarks.quality calibrate FILE.json --model NAME --model-server URL --clones DIR [--part calibrate]

The threshold is written into FILE.json: that of `python -m training calibrate`, or a new one for the model that the server calls NAME, which
then does nothing else in a review. The commits are those of the part that readers
without a tool have read (`experts`): a comment counts as right where one of them would have posted, too (grade 2 or 3, within NEAR lines), and
as wrong elsewhere. The threshold is the least one from which on LEAST_RIGHT of the comments are right, or as much above it as it takes to comment at most
MOST_COMMENTED of all commits: these, and the random ones of RANDOM, which no reader without a tool has read. The confidence of the comments
is the share of those from the threshold on that are right. With `--answers FILE...` the
table is printed and nothing is written.
"""

from __future__ import annotations

import argparse
import dataclasses
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from benchmarks.quality.changes import find_clones
from benchmarks.quality.comments import materials
from benchmarks.quality.common import in_processes
from benchmarks.quality.experts import READINGS, Place, Reading, is_met, readings, unread
from benchmarks.quality.fixes import add_common_options, check_common_options, print_missing
from benchmarks.quality.model import UNANSWERED, is_unanswered, model_options
from benchmarks.quality.summary import share
from ptopt.findings import CHECKED
from ptopt.model.calibration import Calibration
from ptopt.model.general import General, read_general
from ptopt.model.interface import ModelUnavailableError

LEAST_RIGHT = 0.55  # share of the comments from the threshold on; what is less sure than the ranker's own threshold is not shown
RANDOM = Path(__file__).parent / "data" / "model" / "random-commits.jsonl"
LEAST_COMMENTS = 10  # fewer say nothing
# Of all commits: a reviewer that speaks more often is not listened to. Readers would surely post on twice as many.
MOST_COMMENTED = 0.10
_READINGS = READINGS[:3]  # the fourth is of commits that measure
_STEPS = tuple(step / 100 for step in range(20, 100))
_PRINTED = 5  # each so many of them

OFF = Calibration.off()


class Judged(NamedTuple):
    """A finding of the model, or one of a rule that it finds worth a comment: its probability, and whether a reader would have posted
    there; None where none has read the commit."""

    commit: str
    probability: float
    right: bool | None


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.quality calibrate",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("file", type=Path, nargs="?", help="of the model; made where there is none")
    add_common_options(parser)
    parser.add_argument(
        "--reading", choices=READINGS, nargs="+", default=_READINGS, help="default: all but the fourth"
    )
    parser.add_argument(
        "--most-commented", type=float, default=MOST_COMMENTED, metavar="SHARE", help="default: %(default)s"
    )
    parser.add_argument("--random", type=Path, default=RANDOM, help="commits, JSON lines; default: RANDOM")
    parser.set_defaults(part="calibrate")
    options = parser.parse_args(arguments)
    check_common_options(parser, options)
    if (options.file is None) == (not options.answers and options.ask is None):
        parser.error("name either the file of a model, or --answers")
    known = None
    if options.file is not None:
        known = read_general(str(options.file)) if options.file.is_file() else General(options.model, OFF)
        if not known.model or not options.model_server:
            parser.error("name the model that answers (--model, for a new file) and its --model-server")
    asked = known.model if known else ""
    model = dataclasses.replace(model_options(options), model=asked, threshold=0.0)
    options.budget = 10**9
    found: list[Judged] = []
    reviewed = 0
    missing: Counter[str] = Counter()
    folders = find_clones(options.clones)
    works = [read for which in options.reading for read in readings(which, folders, options, model)]
    works += unread(options.random, folders, options, model)
    for some, commits, lost in in_processes(judged, works, options.jobs):
        found += some
        reviewed += commits
        missing += lost
    decided = decide(found, reviewed, options.most_commented)
    _print(found, reviewed, decided)
    print_missing(+missing)
    if known is not None:
        threshold, share_right = decided or (None, 0.0)
        calibration = dataclasses.replace(
            known.calibration, change_threshold=threshold, change_confidence=share_right
        )
        text = dataclasses.replace(known, calibration=calibration).to_json()
        options.file.write_text(text, encoding="utf-8")
    return 0


def judged(reading: Reading) -> tuple[list[Judged], int, Counter[str]]:
    """What the model finds in the commits of a repository, how many these are, and why others are not counted.

    Raises ModelUnavailableError where a server does not answer; recorded answers may be to prompts of another version.
    """
    found, reviewed, lost = [], 0, Counter[str]()
    for sha, material in materials(reading.work):
        if material is None:
            lost["not in the clones"] += 1
            continue
        review = material.review(reading.work.config, advisor=reading.work.model.advisor())
        if is_unanswered(review) and reading.work.model.answers:
            lost[UNANSWERED] += 1
            continue
        if is_unanswered(review):
            raise ModelUnavailableError(f"{reading.work.repo} {sha}: {review.model and review.model.note}")
        reviewed += 1
        for finding in review.findings:
            probability = dict(finding.features).get(CHECKED)
            if probability is not None:
                place = (finding.path, finding.span.start, finding.span.end)
                found.append(Judged(sha, probability, _would_post(reading, sha, place)))
    return found, reviewed, lost


def _would_post(reading: Reading, sha: str, place: Place) -> bool | None:
    if reading.remarks is None:
        return None
    return any(is_met(remark, [place]) for remark in reading.remarks.get(sha, ()) if remark["grade"] > 1)


def decide(
    found: Sequence[Judged], reviewed: int, most_commented: float = MOST_COMMENTED
) -> tuple[float, float] | None:
    """The threshold, and the share of right comments that their confidence is; None where too few are right."""
    for least in _STEPS:
        right = _rights(found, least)
        if len(right) >= LEAST_COMMENTS and sum(right) / len(right) >= LEAST_RIGHT:
            rare = (
                step
                for step in _STEPS
                if step >= least and _commented(found, step) <= most_commented * reviewed
            )
            threshold = next(rare, _STEPS[-1])
            shown = _rights(found, threshold)
            if len(shown) >= LEAST_COMMENTS:
                right = shown
            return threshold, round(sum(right) / len(right), 2)
    return None


def _rights(found: Sequence[Judged], step: float) -> list[bool]:
    return [one.right for one in found if one.probability >= step and one.right is not None]


def _commented(found: Sequence[Judged], step: float) -> int:
    return len({one.commit for one in found if one.probability >= step})


def _print(found: Sequence[Judged], reviewed: int, decided: tuple[float, float] | None) -> None:
    print(f"{'from a probability of':24}{'a reader would post there, too':36}commits commented")
    for step in sorted({*_STEPS[::_PRINTED], *(decided or ())[:1]}):
        right = _rights(found, step)
        print(f"{step:<24.2f}{share(sum(right), len(right)):36}{share(_commented(found, step), reviewed)}")
    print("no threshold" if decided is None else f"threshold {decided[0]:.2f}, confidence {decided[1]:.2f}")
