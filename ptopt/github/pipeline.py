"""Review a pull request on GitHub, on one page: look at it without a write, then post what there is to say."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from ptopt.change import Change
from ptopt.config import Config
from ptopt.findings import Finding, Review
from ptopt.github import base_config, config_comment, post, pullstate, reading
from ptopt.github.client import GitHubClient
from ptopt.github.errors import ForbiddenError, NotFoundError, RejectedError, SupersededError
from ptopt.github.filters import why_skipped
from ptopt.github.post import Posted, PostOptions
from ptopt.github.values import IssueComment, PullRequest
from ptopt.project.facts import NO_FACTS, ProjectFacts
from ptopt.review import review_change, review_files
from ptopt.rules import known_names

if TYPE_CHECKING:
    from ptopt.model.advisor import Advisor

Status = Literal["posted", "silent", "skipped", "superseded", "paused"]


@dataclass(frozen=True, slots=True)
class Look:
    """A pull request as reviewed, nothing written yet."""

    pull: PullRequest
    config: Config
    change: Change
    review: Review
    elsewhere: tuple[Finding, ...]  # with `full`: findings in the changed files that the change did not touch
    comments: tuple[IssueComment, ...]  # the conversation
    base_problems: tuple[str, ...]  # why the settings of the base branch are not in force
    head_problems: tuple[str, ...]  # what is wrong with the settings that the pull request brings


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a review. `reason` says why nothing was looked at, in our own words."""

    status: Status
    reason: str = ""
    pull: PullRequest | None = None
    change: Change | None = None
    review: Review | None = None
    posted: Posted | None = None
    elsewhere: tuple[Finding, ...] = ()


def review_pull(
    github: GitHubClient,
    repo: str,
    number: int,
    *,
    before_write: Callable[[], None],
    head_sha: str | None = None,
    muted: Collection[str] = (),
    asked: bool = False,
    full: bool = False,
    advisor: Advisor | None = None,
) -> Outcome:
    """Look at a pull request and post the review.

    With `head_sha`, only while that is the head. `muted` are rules and fingerprints not to be heard of, besides those
    that people ignored in the pull request. `asked`: a person wants it now, so drafts and paused ones are reviewed too.
    `before_write` is called before each write, and may raise SupersededError. `advisor` is the model to be heard; the
    review is made without it where it does not answer.
    """
    seen = look(github, repo, number, head_sha=head_sha, muted=muted, asked=asked, full=full, advisor=advisor)
    return seen if isinstance(seen, Outcome) else write(github, seen, before_write=before_write)


def look(
    github: GitHubClient,
    repo: str,
    number: int,
    *,
    head_sha: str | None = None,
    muted: Collection[str] = (),
    asked: bool = False,
    full: bool = False,
    advisor: Advisor | None = None,
) -> Look | Outcome:
    """The review, without a write; an Outcome where there is none to be. Arguments as of `review_pull`."""
    pull = github.pull(repo, number)
    if head_sha not in (None, pull.head_sha):
        return Outcome("superseded", f"the head is {pull.head_sha} by now", pull)
    comments = github.issue_comments(repo, number)
    state = pullstate.fold(github.identity(), [*comments, *github.review_comments(repo, number)])
    if state.paused and not asked:
        return Outcome("paused", "reviews of this pull request are paused", pull)
    config, base_problems = base_config.settings_of(github, pull)
    reason = why_skipped(pull, config, requested=asked)
    if reason is not None:
        return Outcome("skipped", reason, pull)
    files = reading.list_files(github, pull)
    head_problems = base_config.head_config_problems(github, pull, files)
    try:
        change = reading.read_change(github, pull, config, files)
    except SupersededError as error:
        return Outcome("superseded", str(error), pull)
    facts = reading.facts(github, pull) if change.files else NO_FACTS
    silenced = {*muted, *state.ignored}
    review, elsewhere = review_without(change, config, facts, silenced, full=full, advisor=advisor)
    return Look(pull, config, change, review, elsewhere, tuple(comments), base_problems, head_problems)


def write(github: GitHubClient, seen: Look, *, before_write: Callable[[], None]) -> Outcome:
    """Post a review that `look` made, as long as the head is the one that was looked at."""
    pull, settings = seen.pull, seen.config.pull_requests

    def fence() -> None:
        before_write()
        now = github.pull(pull.repo, pull.number)
        if now.head_sha != pull.head_sha:
            raise SupersededError(f"the head is {now.head_sha} by now")
        if not now.open:
            raise SupersededError("the pull request was closed")

    options = PostOptions(settings.check_run, settings.sarif, f"refs/pull/{pull.number}/head")
    outcome = Outcome("silent", "", pull, seen.change, seen.review, None, seen.elsewhere)
    try:
        posted = post.post(github, pull, seen.change, seen.review, options=options, before_write=fence)
        note = _tell_problems(github, seen, fence)
    except SupersededError as error:
        return dataclasses.replace(outcome, status="superseded", reason=str(error))
    status: Status = "silent" if posted.review_id is None else "posted"
    posted = dataclasses.replace(posted, notes=(*posted.notes, *note))
    return dataclasses.replace(outcome, status=status, posted=posted)


def _tell_problems(github: GitHubClient, seen: Look, fence: Callable[[], None]) -> tuple[str, ...]:
    """The comment on the settings; what GitHub refuses (a locked conversation) is noted."""
    base, head = seen.base_problems, seen.head_problems
    try:
        config_comment.update(github, seen.pull, seen.comments, base=base, head=head, before_write=fence)
    except (ForbiddenError, NotFoundError, RejectedError) as error:
        return (f"could not comment on the settings: {error}",)
    return ()


def review_without(
    change: Change,
    config: Config,
    facts: ProjectFacts,
    silenced: Collection[str],
    *,
    full: bool = False,
    advisor: Advisor | None = None,
) -> tuple[Review, tuple[Finding, ...]]:
    """The review of a change, less the silenced rules (ids, names, families) and findings (fingerprints).

    A silenced finding leaves its place in the budget to the next best. With `full`, also the findings in the changed
    files that have nothing to do with the change; these are the word of the rules alone.
    """
    rules = tuple(name for name in sorted(silenced) if name in known_names())
    muted = frozenset(silenced).difference(rules)
    config = config.model_copy(update={"ignore": (*config.ignore, *rules)})
    review = review_change(change, config=config, facts=facts, advisor=advisor, muted=muted)
    if not full:
        return review, ()
    everything = review_files(
        change.files, config=config, facts=facts, limit_to_change=False, one_per_cause=False, muted=muted
    )
    in_review = (review.findings, review.withheld, review.muted, review.suppressed, review.dropped)
    known = {(f.path, span) for several in in_review for f in several for span in (f.span, *f.also)}
    return review, tuple(f for f in everything.findings if (f.path, f.span) not in known)
