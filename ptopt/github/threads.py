"""Resolve the threads of findings that are gone."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from ptopt.change import Change
from ptopt.findings import Finding, Review
from ptopt.github import markers
from ptopt.github.values import PostedComment, Thread


def gone(comments: Iterable[PostedComment], change: Change, review: Review) -> list[PostedComment]:
    """Those of `comments` whose finding the latest review no longer has, though it covered their file.

    `comments` are ours, each with the marker of its finding.
    """
    reported = [*review.findings, *review.over_limit]
    alive = {finding.fingerprint for finding in reported}
    skipped = {item.path for item in (*change.not_reviewed, *review.not_reviewed)}
    seen = {file.path for file in change.files if file.head is not None} - skipped
    return [
        comment
        for comment in comments
        if comment.path in seen
        and (marker := markers.first(comment.body, "finding")) is not None
        and marker.words[1] not in alive
        and not _is_another_place(comment, marker.words[0], reported)
    ]


def _is_another_place(comment: PostedComment, rule: str, findings: Iterable[Finding]) -> bool:
    """Findings of one cause are reported once: the place of this comment may now be reported at another one."""
    return any(
        place.rule == rule and finding.path_of(place) == comment.path and comment.line in place.span.lines()
        for finding in findings
        for place in finding.also
    )


def to_resolve(
    threads: Sequence[Thread],
    gone: Iterable[PostedComment],
    comments: Mapping[int, PostedComment],
    identity: str,
) -> list[Thread]:
    """The open threads of comments that are gone, but for those in which a person spoke.

    `comments` are all review comments of the pull request by id.
    """
    ids = {comment.id for comment in gone}
    return [
        thread
        for thread in threads
        if not thread.resolved
        and thread.comments
        and thread.comments[0][0] in ids
        and not any(_by_a_person(comments.get(id_), identity) for id_, _ in thread.comments[1:])
    ]


def _by_a_person(comment: PostedComment | None, identity: str) -> bool:
    """With a person's token we share their name: then only our markers distinguish us."""
    if comment is None:
        return True  # it came a moment ago: not ours
    if comment.author.login == identity and markers.read(comment.body):
        return False
    return comment.author.login == identity or not comment.author.is_bot
