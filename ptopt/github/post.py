"""Post a review: once for each head, and of its findings only what was not reported before.

What is on GitHub is the only memory: our reviews and comments are found by their markers. So a run that broke off
anywhere is simply run again.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from ptopt.change import Change
from ptopt.findings import Finding, Review
from ptopt.github import checks, code_scanning, markers, sticky, threads
from ptopt.github.client import GitHubClient
from ptopt.github.comment import draft
from ptopt.github.errors import (
    AmbiguousError,
    ForbiddenError,
    NotFoundError,
    RejectedError,
    SupersededError,
    TooLargeError,
)
from ptopt.github.summary import body_markers, later, summary
from ptopt.github.values import CommentDraft, PostedComment, PostedReview, PullRequest, ReviewDraft


@dataclass(frozen=True, slots=True)
class PostOptions:
    """What is written besides the review. `ref` is the pull request's ref for code scanning.

    `ignoring`: people ignored rules or findings in the pull request. `again`: what is new gets a review also where this head had one.
    """

    check_run: bool = False
    sarif: bool = False
    ref: str = ""
    ignoring: bool = False
    again: bool = False


@dataclass(frozen=True, slots=True)
class Posted:
    """What stands on GitHub after posting."""

    review_id: int | None  # our review of this head; None when there was nothing to report
    comments: tuple[
        tuple[Finding, PostedComment], ...
    ]  # findings of this review with their comments, old and new
    already_reviewed: bool  # this head had been reviewed before, and nothing is new
    resolved: int  # threads resolved now
    notes: tuple[str, ...] = ()  # what could not be done besides, and why: for the log and `/ptopt status`


def post(
    github: GitHubClient,
    pull: PullRequest,
    change: Change,
    review: Review,
    *,
    options: PostOptions,
    before_write: Callable[[], None],
    comments: Sequence[PostedComment] | None = None,
) -> Posted:
    """Bring GitHub to where it should be for this review; doing it twice changes nothing.

    `comments` are the review comments, where they were read since the job began. `before_write` runs before each write, and stops the rest by raising. Raises what the client raises for the
    review itself; what is written besides may be refused, which is noted.
    """
    return _Posting(github, pull, change, review, options, before_write, comments).run()


class _Posting:
    def __init__(
        self,
        github: GitHubClient,
        pull: PullRequest,
        change: Change,
        review: Review,
        options: PostOptions,
        before_write: Callable[[], None],
        comments: Sequence[PostedComment] | None,
    ) -> None:
        self._github = github
        self._pull = pull
        self._change = change
        self._review = review
        # Two findings with one fingerprint would be two comments with one marker.
        self._findings = tuple({f.fingerprint: f for f in reversed(review.findings)}.values())[::-1]
        self._before_write = before_write
        self._options = options
        self._notes: list[str] = []
        self._resolved = 0
        self._refused_now: set[str] = set()  # fingerprints
        self._me = github.identity()
        self._reviews = self._our_reviews()
        # Somebody who reviewed this head meanwhile has commented, too.
        if comments is None or self._of_this_head(self._reviews) is not None:
            comments = github.review_comments(pull.repo, pull.number)
        self._comments: Sequence[PostedComment] = comments

    def run(self) -> Posted:
        here = self._of_this_head(self._reviews)
        already_reviewed = here is not None
        if here is None or self._options.again:
            created = self._create()
            if created is not None:
                self._comments = self._github.review_comments(self._pull.repo, self._pull.number)
                here, already_reviewed = created, False
        if self._reviews:  # as they were before
            self._attempt("edit the summary", self._edit_summary)
        self._attempt("resolve threads", self._resolve_threads)
        if self._options.check_run:
            self._attempt("create the check run", self._check_run)
        if self._options.sarif:
            self._attempt("upload to code scanning", self._upload)
        reported = self._reported()
        pairs = [(f, reported[f.fingerprint]) for f in self._findings if f.fingerprint in reported]
        return Posted(
            None if here is None else here.id,
            tuple(pairs),
            already_reviewed,
            self._resolved,
            tuple(self._notes),
        )

    # -- the review ------------------------------------------------------------------------------------------------

    def _create(self) -> PostedReview | None:
        """The review of this head; None when there is nothing new to report."""
        known = {*self._reported(), *_refused(self._reviews)}
        drafts = {
            f.fingerprint: comment
            for f in self._findings
            if f.fingerprint not in known and (comment := self._draft(f)) is not None
        }
        if not drafts and (self._reviews or not self._findings):
            return None
        new = [f for f in self._findings if f.fingerprint in drafts]
        try:
            return self._submit(ReviewDraft(self._pull.head_sha, self._body(new, ()), tuple(drafts.values())))
        except RejectedError:
            if not drafts:
                raise
            now = self._github.pull(self._pull.repo, self._pull.number).head_sha
            if now != self._pull.head_sha:
                raise SupersededError(f"the head is now {now}") from None
        # GitHub does not say which comment it refuses, so all of them move to the body: nothing is lost.
        self._refused_now.update(drafts)
        return self._submit(ReviewDraft(self._pull.head_sha, self._body(new, new), ()))

    def _draft(self, finding: Finding) -> CommentDraft | None:
        """Its suggestion gives way to those of comments that stand already; what is outdated cannot be accepted any more."""
        reported = self._reported()
        standing = {fingerprint for fingerprint, comment in reported.items() if comment.line is not None}
        first = [f for f in self._findings if f.fingerprint in standing]
        new = [f for f in self._findings if f.fingerprint not in reported]
        return draft(dataclasses.replace(self._review, findings=(*first, *new)), self._change, finding)

    def _body(self, new: Sequence[Finding], refused: Sequence[Finding]) -> str:
        head = self._pull.head_sha
        if self._reviews:
            return later(self._review, head, new, refused)
        reported = {*self._reported(), *(f.fingerprint for f in new if f not in refused)}
        unreported = [f for f in self._findings if f.fingerprint not in reported]
        return summary(self._review, unreported, body_markers(head, refused), ignoring=self._options.ignoring)

    def _submit(self, review: ReviewDraft) -> PostedReview:
        self._before_write()
        try:
            return self._github.create_review(self._pull.repo, self._pull.number, review)
        except AmbiguousError:
            before = {review.id for review in self._reviews}
            found = self._of_this_head(r for r in self._our_reviews() if r.id not in before)
            if found is None:
                raise
            return found

    # -- what stands there already ---------------------------------------------------------------------------------

    def _our_reviews(self) -> list[PostedReview]:
        reviews = self._github.reviews(self._pull.repo, self._pull.number)
        return [r for r in reviews if r.author.login == self._me and markers.first(r.body, "review")]

    def _of_this_head(self, reviews: Iterable[PostedReview]) -> PostedReview | None:
        marker = markers.review(self._pull.head_sha)
        return next((r for r in reviews if markers.first(r.body, "review") == marker), None)

    def _reported(self) -> dict[str, PostedComment]:
        """Our comments by the fingerprint of their finding."""
        found: dict[str, PostedComment] = {}
        for comment in self._comments:
            marker = markers.first(comment.body, "finding")
            ours = comment.author.login == self._me and comment.in_reply_to is None
            if ours and marker is not None and len(marker.words) == 2:
                found.setdefault(marker.words[1], comment)
        return found

    # -- besides the review ----------------------------------------------------------------------------------------

    def _edit_summary(self) -> None:
        first = self._reviews[0]
        reported = self._reported()
        refused = {*self._refused_now, *_refused(self._reviews)}
        unreported = [
            f
            for f in self._findings
            if f.fingerprint not in reported and (f.fingerprint in refused or self._draft(f) is None)
        ]
        body = summary(self._review, unreported, markers.read(first.body), ignoring=self._options.ignoring)
        if not sticky.same_text(first.body, body):
            self._before_write()
            self._github.edit_review(self._pull.repo, self._pull.number, first.id, body)

    def _resolve_threads(self) -> None:
        gone = threads.gone(self._reported().values(), self._change, self._review)
        if not gone:
            return
        known = {comment.id: comment for comment in self._comments}
        all_threads = self._github.threads(self._pull.repo, self._pull.number)
        for thread in threads.to_resolve(all_threads, gone, known, self._me):
            self._before_write()
            self._github.resolve_thread(thread.id)
            self._resolved += 1

    def _check_run(self) -> None:
        checks.ensure_check_run(
            self._github, self._pull.repo, self._pull.head_sha, self._review, self._before_write
        )

    def _upload(self) -> None:
        self._before_write()
        ref = self._options.ref
        code_scanning.upload(self._github, self._pull.repo, self._pull.head_sha, ref, self._review)

    def _attempt(self, what: str, action: Callable[[], None]) -> None:
        """Do what is not worth losing the review for."""
        try:
            action()
        except (ForbiddenError, NotFoundError, RejectedError, TooLargeError) as error:
            self._notes.append(f"could not {what}: {error}")


def _refused(reviews: Iterable[PostedReview]) -> Iterator[str]:
    """Fingerprints of findings that a body tells because GitHub refused their comments."""
    for review in reviews:
        yield from (marker.words[-1] for marker in markers.read(review.body)[1:] if marker.kind == "finding")
