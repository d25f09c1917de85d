"""One comment on what a full review, which a person requested, found in the changed files outside the diff."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from ptopt.findings import Finding
from ptopt.github import markers, sticky
from ptopt.github.client import GitHubClient
from ptopt.github.values import IssueComment, PullRequest
from ptopt.report.text import code_span, count, markdown_text, place

_MOST = 20  # findings listed
_LONGEST = 200  # characters of a place, and of a message


def update(
    github: GitHubClient,
    pull: PullRequest,
    findings: Sequence[Finding],
    comments: Iterable[IssueComment],
    before_write: Callable[[], None],
) -> None:
    """Bring the comment of this head to where it should be; `comments` are all of the conversation.

    That there is nothing is worth no comment: the answer to the command says it.
    """
    text = body(pull.head_sha, findings)
    sticky.upsert(
        github, pull, comments, markers.full(pull.head_sha), text, before_write, create=bool(findings)
    )


def pointer(findings: Sequence[Finding]) -> str:
    """What an answer says of them."""
    return (
        "Findings outside the diff are in a separate comment."
        if findings
        else "No findings outside the diff."
    )


def body(head_sha: str, findings: Sequence[Finding]) -> str:
    """The comment. The texts quote the files, so they are hostile."""
    head = code_span(head_sha[:7])
    lines = [f"Full review of the changed files at {head}.", ""]
    if findings:
        found = count(len(findings), "finding")
        lines += [f"{found} outside the diff:", ""]
    else:
        lines += ["No findings outside the diff."]
    lines += [_line(finding) for finding in findings[:_MOST]]
    if len(findings) > _MOST:
        lines.append(f"- … and {len(findings) - _MOST} more; run `ptopt check` on the files to list them")
    return f"{markers.full(head_sha)}\n" + "\n".join(lines) + "\n"


def _line(finding: Finding) -> str:
    at = place(finding.path, finding.span)
    where = code_span(at if len(at) <= _LONGEST else f"…{at[-_LONGEST:]}")
    return f"- {where} {finding.rule} {markdown_text(finding.name)}: {markdown_text(_cut(finding.message))}"


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]} …"
