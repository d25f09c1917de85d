"""Review a pull request on GitHub, on one page: look at it without a write, then post what there is to say."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from ptopt.change import Change
from ptopt.config import Config
from ptopt.findings import Finding, NotReviewed, Review, lines_of
from ptopt.github import base_config, config_comment, post, pullstate, reading, together
from ptopt.github.client import GitHubClient
from ptopt.github.errors import ForbiddenError, NotFoundError, RejectedError, SupersededError
from ptopt.github.filters import CLOSED, WRITERS, Limits, why_skipped
from ptopt.github.post import Posted, PostOptions
from ptopt.github.values import IssueComment, PostedComment, PullRequest
from ptopt.learned import NOTHING_LEARNED, Learned
from ptopt.project.facts import NO_FACTS, ProjectFacts, read_facts
from ptopt.project.naming import NO_NAMING
from ptopt.review import review_change, review_files
from ptopt.rules import known_names
from ptopt.runner import AnalysisError, Runner, in_process

if TYPE_CHECKING:
    from ptopt.model.advisor import Advisor

_ONE_PAGE = 100  # files that one request lists: worth asking for before it is known that they are reviewed
Status = Literal["posted", "silent", "skipped", "superseded", "paused"]


@dataclass(frozen=True, slots=True)
class PreparedReview:
    """A pull request as reviewed, nothing written yet."""

    pull: PullRequest
    config: Config
    change: Change
    review: Review
    outside_diff: tuple[Finding, ...]  # with `full`: findings of the changed files that the change left alone
    comments: tuple[IssueComment, ...]  # the conversation
    review_comments: tuple[PostedComment, ...]
    base_problems: tuple[str, ...]  # why the settings of the base branch are not in force
    head_problems: tuple[str, ...]  # what is wrong with the settings that the pull request brings
    ignoring: bool = False  # people ignored rules or findings in it
    again: bool = False  # a person wants this head reviewed again


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a review. `reason` says why nothing was looked at, in our own words."""

    status: Status
    reason: str = ""
    pull: PullRequest | None = None
    change: Change | None = None
    review: Review | None = None
    posted: Posted | None = None
    outside_diff: tuple[Finding, ...] = ()
    learn: bool = False  # the base branch lets its feedback be learned from


def review_pull(
    github: GitHubClient,
    repo: str,
    number: int,
    *,
    before_write: Callable[[], None],
    head_sha: str | None = None,
    muted: Collection[str] = (),
    learned: Learned = NOTHING_LEARNED,
    requested: bool = False,
    full: bool = False,
    advisor: Advisor | None = None,
    runner: Runner = in_process,
    limits: Limits | None = None,
) -> Outcome:
    """Review a pull request and post the review.

    With `head_sha`, only while that is the head. `muted` are rules and fingerprints not to be reported, besides
    those that people ignored in the pull request. `learned` is the feedback of the repository. `requested`: a person wants it now, so
    drafts and paused ones are reviewed too. `before_write` is called before each write, and may raise SupersededError.
    `advisor` is the model; the review is made without it where it does not answer. `runner` is where what strangers
    wrote is analysed. `limits` are the operator's.
    """
    prepared = prepare_review(
        github,
        repo,
        number,
        head_sha=head_sha,
        muted=muted,
        learned=learned,
        requested=requested,
        full=full,
        advisor=advisor,
        runner=runner,
        limits=limits,
    )
    if isinstance(prepared, Outcome):
        return prepared
    return post_prepared(github, prepared, before_write=before_write)


def prepare_review(
    github: GitHubClient,
    repo: str,
    number: int,
    *,
    head_sha: str | None = None,
    muted: Collection[str] = (),
    learned: Learned = NOTHING_LEARNED,
    requested: bool = False,
    full: bool = False,
    advisor: Advisor | None = None,
    runner: Runner = in_process,
    limits: Limits | None = None,
) -> PreparedReview | Outcome:
    """The review, without a write; an Outcome where there is none to be. Arguments as of `review_pull`."""
    pull = github.pull(repo, number)
    if head_sha not in (None, pull.head_sha):
        return Outcome("superseded", f"the head is now {pull.head_sha}", pull)
    # What the pull request alone decides comes before its files are listed, of which there may be thousands.
    reason = CLOSED if not pull.open else limits.why_skipped(pull, True) if limits is not None else None
    if reason is not None:
        return Outcome("skipped", reason, pull)
    with together.threads() as pool:
        in_conversation = pool.submit(github.issue_comments, repo, number)
        on_diff = pool.submit(github.review_comments, repo, number)
        # After the pull request: files of an older head than it shows would be reviewed as its own.
        few = pull.changed_files <= _ONE_PAGE
        listed = pool.submit(reading.list_files, github, pull) if few else None
        config, base_problems = base_config.settings_of(github, pull)
    comments, review_comments = in_conversation.result(), on_diff.result()
    state = pullstate.fold(github.identity(), [*comments, *review_comments])
    if state.paused and not requested:
        return Outcome("paused", "reviews of this pull request are paused", pull)
    reason = why_skipped(pull, config, requested=requested)
    if reason is None and limits is not None:
        writes = not limits.of_strangers(pull) or github.permission(repo, pull.author.login) in WRITERS
        reason = limits.why_skipped(pull, writes)
    if reason is not None:
        return Outcome("skipped", reason, pull)
    files = listed.result() if listed else reading.list_files(github, pull)
    head_problems = base_config.head_config_problems(github, pull, files)
    with together.threads() as pool:
        holds_code = reading.may_hold_code(pull, files)
        repository = pool.submit(reading.list_repository, github, pull) if holds_code else None
        versions = (
            pool.submit(lambda: reading.project_files(github, pull, repository.result()))
            if repository
            else None
        )
        try:
            change = reading.read_change(github, pull, config, files)
        except SupersededError as error:
            return Outcome("superseded", str(error), pull)
    naming = NO_NAMING
    if repository:
        change = reading.read_around(github, pull, change, repository.result())
        naming = reading.read_naming(github, pull, change, repository.result())
    facts = NO_FACTS
    if versions and change.files:
        try:
            facts = runner(read_facts, versions.result())
        except AnalysisError as error:
            note = NotReviewed("(versions of libraries)", str(error))
            change = dataclasses.replace(change, not_reviewed=(*change.not_reviewed, note))
    facts = dataclasses.replace(facts, naming=naming)
    silenced = {*muted, *state.ignored}
    review, outside_diff = review_without(
        change, config, facts, silenced, learned=learned, full=full, advisor=advisor, runner=runner
    )
    return PreparedReview(
        pull,
        config,
        change,
        review,
        outside_diff,
        tuple(comments),
        tuple(review_comments),
        base_problems,
        head_problems,
        ignoring=bool(silenced),
        again=requested and full,
    )


def post_prepared(
    github: GitHubClient, prepared: PreparedReview, *, before_write: Callable[[], None]
) -> Outcome:
    """Post a review that `prepare_review` made, as long as the head is the one that was looked at."""
    pull, settings = prepared.pull, prepared.config.pull_requests

    def check_current() -> None:
        before_write()
        now = github.pull(pull.repo, pull.number)
        if now.head_sha != pull.head_sha:
            raise SupersededError(f"the head is now {now.head_sha}")
        if not now.open:
            raise SupersededError("the pull request was closed")

    options = PostOptions(
        settings.check_run,
        settings.sarif,
        f"refs/pull/{pull.number}/head",
        ignoring=prepared.ignoring,
        again=prepared.again,
    )
    outcome = Outcome(
        "silent",
        "",
        pull,
        prepared.change,
        prepared.review,
        None,
        prepared.outside_diff,
        prepared.config.opted_in,
    )
    try:
        posted = post.post(
            github,
            pull,
            prepared.change,
            prepared.review,
            options=options,
            before_write=check_current,
            comments=prepared.review_comments,
        )
        note = _comment_on_settings(github, prepared, check_current)
    except SupersededError as error:
        return dataclasses.replace(outcome, status="superseded", reason=str(error))
    status: Status = "silent" if posted.review_id is None else "posted"
    posted = dataclasses.replace(posted, notes=(*posted.notes, *note))
    return dataclasses.replace(outcome, status=status, posted=posted)


def _comment_on_settings(
    github: GitHubClient, prepared: PreparedReview, check_current: Callable[[], None]
) -> tuple[str, ...]:
    """The comment on the settings; what GitHub refuses (a locked conversation) is noted."""
    base, head = prepared.base_problems, prepared.head_problems
    try:
        config_comment.update(
            github, prepared.pull, prepared.comments, base=base, head=head, before_write=check_current
        )
    except (ForbiddenError, NotFoundError, RejectedError) as error:
        return (f"could not comment on the settings: {error}",)
    return ()


def review_without(
    change: Change,
    config: Config,
    facts: ProjectFacts,
    silenced: Collection[str],
    *,
    learned: Learned = NOTHING_LEARNED,
    full: bool = False,
    advisor: Advisor | None = None,
    runner: Runner = in_process,
) -> tuple[Review, tuple[Finding, ...]]:
    """The review of a change, less the silenced rules (ids, names, families) and findings (fingerprints).

    A silenced finding leaves its place in the budget to the next best. With `full`, also the findings in the changed
    files that have nothing to do with the change; these are the word of the rules alone.
    """
    rules = tuple(name for name in sorted(silenced) if name in known_names())
    muted = frozenset(silenced).difference(rules)
    config = config.model_copy(update={"ignore": (*config.ignore, *rules)})
    review = review_change(
        change, config=config, facts=facts, advisor=advisor, muted=muted, learned=learned, runner=runner
    )
    if not full:
        return review, ()
    everything = review_files(
        change.files,
        config=config,
        facts=facts,
        limit_to_change=False,
        one_per_cause=False,
        muted=muted,
        learned=learned,
        runner=runner,
    )
    in_review = (
        review.findings,
        review.over_limit,
        review.muted,
        review.suppressed,
        review.dropped,
        review.quieted,
    )
    known = lines_of(f for several in in_review for f in several)
    return review, tuple(f for f in everything.findings if (f.path, f.span) not in known)
