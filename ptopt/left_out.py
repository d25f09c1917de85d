"""What the ranker left out of a review, counted as the findings that are shown are counted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

from ptopt.file_result import FileResult
from ptopt.findings import Condition, Finding, LeftOut, Span, lines_of
from ptopt.ranker.model import comment_conditions
from ptopt.ranking import across_files, grouped, merged, split_ignored, without_repeated

if TYPE_CHECKING:
    from ptopt.config import Config


def counted_left_out(
    results: Sequence[FileResult],
    comments: Sequence[Finding],
    config: Config,
    muted: Collection[str],
    limit: int | None,
) -> LeftOut | None:
    """What stands below the conditions of a comment; None where nothing does. `comments` are those that meet them and
    are not ignored.

    Counted are findings of one cause as one, also where the caller wants each place by itself.
    """
    shown = lines_of(comments)
    everything: list[Finding] = []
    ignored: list[Finding] = []
    missed: dict[tuple[str, Span], tuple[Condition, ...]] = {}
    for file in results:
        proposals = [p for p in (*file.proposals, *file.left_out) if p.reported]
        if not proposals:
            continue
        kept, left = split_ignored(grouped(proposals), muted)
        everything += map(merged, kept)
        ignored += map(merged, left)
        for finding in (p.finding for p in file.left_out):
            missed[finding.path, finding.span] = finding.missed
    everything = across_files(without_repeated(everything, ignored))
    all_places = lines_of(everything)
    # What is not in the list misses the threshold: a model, or people, moved it there.
    hidden = [missed.get(key, (Condition.CONFIDENCE,)) for key in all_places - shown]
    if not hidden:
        return None
    places = Counter(conditions[0] for conditions in hidden)
    by_rule = Counter(
        f"{place.rule} {place.name}"
        for place in {
            (finding.path_of(place), place.span, place.rule): place
            for finding in everything
            for place in finding.places()
            if (finding.path_of(place), place.span) not in shown
        }.values()
    )
    least = comment_conditions(config.min_confidence)
    also = Counter(condition for conditions in hidden for condition in conditions[1:])
    return LeftOut(dict(places), least, len(everything), len(all_places), limit, dict(by_rule), dict(also))
