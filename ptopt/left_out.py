"""What the ranker left out of a review, counted as the findings that are shown are counted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING

from ptopt.file_result import FileResult
from ptopt.findings import Condition, Finding, LeftOut, Span, lines_of
from ptopt.ranker.model import comment_conditions
from ptopt.ranking import across_files, grouped, merged, split_ignored, without_repeated

if TYPE_CHECKING:
    from ptopt.config import Config
    from ptopt.proposals import Proposal


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
    return LeftOut(
        dict(places),
        least,
        len(everything),
        len(all_places),
        limit,
        dict(by_rule),
        dict(also),
        doubted=len(
            (all_places - shown) & _doubted(results, comment_conditions(config.usual_min_confidence))
        ),
    )


def unusual_places(
    results: Sequence[FileResult], comments: Sequence[Finding], config: Config
) -> dict[Condition, int]:
    """The places of the comments that usually are left out, by why: each under the first condition that it misses.

    What a rule doubts is usually not looked for. So it counts apart, and the others are those that are usually counted.
    """
    least = comment_conditions(config.usual_min_confidence)
    doubted = _doubted(results, least)
    missed: dict[tuple[str, Span], tuple[Condition, ...]] = {}
    for file in results:
        for p in file.proposals:
            place = (p.finding.path, p.finding.span)
            if p.reported and (place in doubted or not _is_doubt(p, least)):
                missed[place] = min(missed.get(place, p.finding.missed), p.finding.missed, key=bool)
    why = {place: missed[place] for place in lines_of(comments) if missed.get(place)}
    return dict(Counter(Condition.STATED if place in doubted else each[0] for place, each in why.items()))


def _doubted(results: Sequence[FileResult], least: Mapping[Condition, float]) -> set[tuple[str, Span]]:
    """The places at which rules doubt all that they propose."""
    sure: set[tuple[str, Span]] = set()
    doubted: set[tuple[str, Span]] = set()
    for file in results:
        for p in (*file.proposals, *file.left_out):
            if p.reported:
                (doubted if _is_doubt(p, least) else sure).add((p.finding.path, p.finding.span))
    return doubted - sure


def _is_doubt(proposal: Proposal, least: Mapping[Condition, float]) -> bool:
    return proposal.doubted and Condition.STATED in least
