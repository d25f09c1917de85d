"""The bodies of our reviews: the first one sums up and is edited on later pushes, the others are one line."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ptopt.findings import Finding, Review
from ptopt.github import markers
from ptopt.github.comment import LIMIT, body_section, size
from ptopt.github.markers import Marker
from ptopt.report.text import MODEL_AWAY, code_span, count, headline, markdown_text, place, unused

_LISTED = 20  # entries of a list
_LONGEST_PATH = 300
_LIST_ROOM = 5_000  # characters; a list beyond holds no honest paths, and is only counted


def summary(
    review: Review, uncommented: Sequence[Finding], leading: Iterable[Marker], *, ignoring: bool = False
) -> str:
    """The body of the first review, as it stands after the latest review.

    `uncommented` are the findings that GitHub takes no comment on. `leading` begin the body. `ignoring`: people ignored rules or
    findings in the pull request.
    """
    blocks = overview(review, uncommented, left=True, ignoring=ignoring)
    return "\n\n".join(["\n".join(map(str, leading)), *blocks]) + "\n"


def later(review: Review, head_sha: str, new: Sequence[Finding], refused: Sequence[Finding]) -> str:
    """The body of a review after the first: how much is new, and what GitHub takes no comment on."""
    blocks = ["\n".join(map(str, body_markers(head_sha, refused)))]
    blocks.append(f"ptopt: {count(len(new), 'new performance finding')}.")
    return "\n\n".join([*blocks, *_uncommented(review, refused)]) + "\n"


def body_markers(head_sha: str, refused: Iterable[Finding]) -> tuple[Marker, ...]:
    """What begins the body of a review: its head, and the findings that it has in place of a comment."""
    return (markers.review(head_sha), *(markers.finding(f.rule, f.fingerprint) for f in refused))


def overview(
    review: Review, uncommented: Sequence[Finding], *, left: bool = False, ignoring: bool = False
) -> list[str]:
    """The state of the pull request, as blocks of Markdown. `left`: there were findings before; `ignoring`: some may stand."""
    opening = markdown_text(headline(review))
    if not review.files_reviewed or review.findings or review.over_limit:
        pass
    elif ignoring:
        opening += " but for what is ignored here, which `/ptopt status` counts"
    elif left:
        opening = f"all findings resolved: {opening[:1].lower()}{opening[1:]}"
    away = review.model is not None and bool(review.model.note)
    blocks = [f"ptopt: {opening}.", *([MODEL_AWAY] if away else []), *_uncommented(review, uncommented)]
    blocks += _details(
        f"{count(len(review.over_limit), 'finding')} not shown (comment limit reached)",
        [f"{_where(f)} {f.rule} {markdown_text(f.name)}" for f in review.over_limit],
    )
    blocks += _details(
        f"{count(len(review.unused_suppressions), 'unused suppression')}",
        [
            f"{_path(f'{u.path}:{u.line}')} {code_span(unused(u)) if u.codes else 'any rule'}"
            for u in review.unused_suppressions
        ],
    )
    blocks += _details(
        f"{count(len(review.not_reviewed), 'file')} not reviewed",
        [f"{_path(n.path)}: {markdown_text(n.reason)}" for n in review.not_reviewed],
    )
    config = _path(review.config_path) if review.config_path else "defaults"
    model = f" Model: {_path(review.model.name)}." if review.model is not None and not away else ""
    return [*blocks, f"<sub>Configuration: {config}.{model} Commands: `/ptopt help`.</sub>"]


def _uncommented(review: Review, findings: Sequence[Finding]) -> list[str]:
    """Findings without a comment of their own, as long as there is room; the rest by path and line."""
    if not findings:
        return []
    blocks = ["Findings on lines that GitHub takes no comment on:"]
    left: list[str] = []
    room = LIMIT // 2
    for finding in findings:
        text = body_section(review, finding)
        room -= size(text)
        if room > 0:
            blocks.append(text)
        else:
            left.append(f"{finding.rule} at {_where(finding)}")
    return [*blocks, *([_bullets(left)] if left else [])]


def _where(finding: Finding) -> str:
    return _path(place(finding.path, finding.span))


def _path(path: str) -> str:
    return code_span(path if len(path) <= _LONGEST_PATH else f"…{path[-_LONGEST_PATH:]}")


def _details(title: str, entries: list[str]) -> list[str]:
    if not entries:
        return []
    more = [f"and {len(entries) - _LISTED:,} more"] if len(entries) > _LISTED else []
    body = _bullets([*entries[:_LISTED], *more])
    if size(body) > _LIST_ROOM:
        return [f"{title}."]
    return [f"<details><summary>{title}</summary>\n\n{body}\n\n</details>"]


def _bullets(entries: list[str]) -> str:
    return "\n".join(f"- {entry}" for entry in entries)
