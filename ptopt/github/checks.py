"""The check run of a review: its findings as annotations, for those who filter by checks."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Callable

from ptopt.findings import Finding, Review
from ptopt.github.client import CHECK_NAME, GitHubClient
from ptopt.github.summary import overview
from ptopt.github.values import Annotation, CheckRun
from ptopt.report.plain import plain_message
from ptopt.report.text import headline, is_minor, one_line

_LONGEST_TITLE = 255
_LONGEST_MESSAGE = 16_000  # GitHub takes 64 KB


def check_run(head_sha: str, review: Review) -> CheckRun:
    """Never a failure: slow code must not block a merge. The same review gives the same `external_id`."""
    silent = not (review.findings or review.over_limit)
    blind = review.not_reviewed and not review.files_reviewed
    run = CheckRun(
        head_sha=head_sha,
        conclusion="success" if silent and not blind else "neutral",
        title=headline(review),
        summary="\n\n".join(overview(review, ())) + "\n",
        annotations=tuple(_annotation(finding) for finding in review.findings),
        external_id="",
    )
    digest = hashlib.sha256(repr(run).encode("utf-8", "surrogatepass")).hexdigest()[:32]
    return dataclasses.replace(run, external_id=digest)


def ensure_check_run(
    github: GitHubClient, repo: str, head_sha: str, review: Review, before_write: Callable[[], None]
) -> None:
    """Create the check run, unless it is there."""
    run = check_run(head_sha, review)
    if run.external_id not in {
        external_id for _, external_id in github.check_runs(repo, head_sha, CHECK_NAME)
    }:
        before_write()
        github.create_check_run(repo, run)


def _annotation(finding: Finding) -> Annotation:
    return Annotation(
        path=finding.path,
        start_line=finding.span.start,
        end_line=finding.span.end,
        level="notice" if is_minor(finding.severity) else "warning",
        title=one_line(f"{finding.rule} {finding.name}")[:_LONGEST_TITLE],
        message=plain_message(finding)[:_LONGEST_MESSAGE],
    )
