"""A review that a person requested by a command: its outcome is added to our answer to the command.

An edit notifies nobody, and the answer is where they look. What a full review found outside of the change is a comment
of its own.
"""

from __future__ import annotations

from collections.abc import Callable

from ptopt.github import markers, outside_diff
from ptopt.github.errors import ForbiddenError, NotFoundError, RejectedError
from ptopt.github.pipeline import Outcome
from ptopt.github.values import IssueComment, PostedComment
from ptopt.report.text import code_span, count, markdown_text
from service.jobs import ReviewPayload
from worker.job_context import JobContext

_PREFIX = "requested-"


def subject(comment_id: int, full: bool) -> str:
    """Of the review job that the command in this comment requests."""
    return f"{_PREFIX}{comment_id}{'-full' if full else ''}"


def report(context: JobContext, payload: ReviewPayload, outcome: Outcome) -> list[str]:
    """Add the outcome to the answer, if the review was requested; doing it twice changes nothing.

    Returns what could not be posted, and why: a locked conversation is no reason to review again.
    """
    job = context.job
    if not payload.requested:
        return []
    comments = context.github.issue_comments(job.repository, job.pull)
    try:
        if payload.full and outcome.review is not None and outcome.pull is not None:
            outside_diff.update(context.github, outcome.pull, outcome.outside_diff, comments, context.check)
        _edit(context, comments, sentence(outcome, code_span(job.head_sha[:7]), payload.full))
    except (ForbiddenError, NotFoundError, RejectedError) as error:
        return [f"could not report the outcome of the review: {error}"]
    return []


def sentence(outcome: Outcome, head: str, full: bool) -> str:
    """The outcome in a sentence or two, as Markdown."""
    if outcome.review is None:
        return f"{head} was not reviewed: {markdown_text(outcome.reason)}."
    findings, posted = len(outcome.review.findings), outcome.posted
    if not outcome.review.files_reviewed:
        text = f"Reviewed {head}: no Python files to review."
    elif posted is not None and posted.review_id is not None and not posted.already_reviewed:
        text = f"Reviewed {head}: {count(findings, 'finding')}, see the review."
    elif findings:
        text = f"Reviewed {head}: no new findings; {count(findings, 'finding')} already reported."
    else:
        text = f"Reviewed {head}: no findings."
    return f"{text} {outside_diff.pointer(outcome.outside_diff)}" if full else text


def _edit(context: JobContext, comments: list[IssueComment], text: str) -> None:
    """Add the text to our answer. When somebody deleted that, nobody waits for more."""
    github, repo = context.github, context.job.repository
    answer: IssueComment | PostedComment | None = _answer(context, comments)
    edit: Callable[[str, int, str], None] = github.edit_issue_comment
    if answer is None:
        answer = _answer(context, github.review_comments(repo, context.job.pull))
        edit = github.edit_review_comment
    if answer is not None and text not in answer.body:
        context.check()
        edit(repo, answer.id, f"{answer.body.rstrip()}\n\n{text}\n")


def _answer(
    context: JobContext, comments: list[IssueComment] | list[PostedComment]
) -> IssueComment | PostedComment | None:
    me, comment_id = context.github.identity(), context.job.subject.removeprefix(_PREFIX).partition("-")[0]
    ours = (c for c in comments if c.author.login == me)
    markers_of = ((c, markers.first(c.body, "answer")) for c in ours)
    found = [c for c, marker in markers_of if marker is not None and marker.words[:1] == (comment_id,)]
    return found[-1] if found else None  # after an edit of the command there are several
