"""Reviews, review comments and their threads."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from fake_github import shapes
from fake_github.anchors import Anchor, anchor, place
from fake_github.comments import MAXIMUM, Reactions, check_body
from fake_github.http import ApiError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fake_github.accounts import Account
    from fake_github.pulls import Pull
    from fake_github.webhooks import Send

Json = dict[str, Any]
REVIEW_DOCS = "https://docs.github.com/rest/pulls/reviews#create-a-review-for-a-pull-request"
STATES = {"APPROVE": "APPROVED", "REQUEST_CHANGES": "CHANGES_REQUESTED", "COMMENT": "COMMENTED"}


def unprocessable(*errors: str) -> ApiError:
    return ApiError(422, "Unprocessable Entity", list(errors), docs=REVIEW_DOCS)


class Review:
    def __init__(self, pull: Pull, account: Account, body: str, state: str, commit_id: str) -> None:
        self.pull = pull
        self.id = pull.github.next_id()
        self.author = account
        self.body = body
        self.state = state  # PENDING | COMMENTED | APPROVED | CHANGES_REQUESTED | DISMISSED
        self.commit_id = commit_id
        self.submitted: float | None = None
        self.comments: list[ReviewComment] = []

    def __repr__(self) -> str:
        return f"<Review {self.id} {self.author.login} {self.state} of {self.commit_id[:7]}>"

    @classmethod
    def create(
        cls, pull: Pull, account: Account, body: str, state: str, commit_id: str, drafts: Sequence[Json]
    ) -> tuple[Review, list[Send]]:
        """All of it or, when one comment does not fit, nothing. `drafts` are as in the REST API."""
        if commit_id not in pull.commits:
            raise unprocessable("Commit is not part of the pull request")
        if len(body) > MAXIMUM:
            raise unprocessable(f"Body is too long (maximum is {MAXIMUM} characters)")
        pending = any(each.author is account and each.state == "PENDING" for each in pull.all_reviews)
        if pending:
            raise unprocessable("User can only have one pending review per pull request")
        anchors = []
        for draft in drafts:
            text = draft.get("body")
            if not isinstance(text, str) or not text.strip():
                raise unprocessable("Body can't be blank")
            if len(text) > MAXIMUM:
                raise unprocessable(f"Body is too long (maximum is {MAXIMUM} characters)")
            found = anchor(pull, commit_id, draft)
            if isinstance(found, list):
                raise unprocessable(_sentence(found))
            anchors.append(found)
        review = cls(pull, account, body, "PENDING", commit_id)
        for draft, where in zip(drafts, anchors, strict=True):
            thread = Thread(pull)
            ReviewComment(review, thread, account, draft["body"], where)
        pull.all_reviews.append(review)
        return review, review.submit(state) if state != "PENDING" else []

    def submit(self, state: str) -> list[Send]:
        self.state, self.submitted = state, time.time()
        for comment in self.comments:
            if comment.thread not in self.pull.threads:
                self.pull.threads.append(comment.thread)
        self.pull.updated = time.time()
        login = self.author.login
        hooks, payload = (
            self.pull.github.webhooks,
            {"review": self.shape(hook=True), "pull_request": self._pull()},
        )
        sends = [hooks.prepare("pull_request_review", "submitted", self.pull.repo, login, payload)]
        return sends + [comment.delivery("created", login) for comment in self.comments]

    def _pull(self) -> Json:
        from fake_github.pulls import shape

        return shape(self.pull, full=False)

    def shape(self, *, hook: bool = False) -> Json:
        pull, github = self.pull, self.pull.github
        html = f"{pull.html_url}#pullrequestreview-{self.id}"
        data = {
            "id": self.id,
            "node_id": f"PRR_{self.id:x}",
            "user": shapes.user(github, self.author),
            "body": self.body,
            "state": self.state.lower() if hook else self.state,
            "html_url": html,
            "pull_request_url": pull.url,
            "author_association": pull.repo.association(self.author.login),
            "_links": {"html": {"href": html}, "pull_request": {"href": pull.url}},
            "commit_id": self.commit_id,
        }
        if self.submitted:
            data["submitted_at"] = shapes.stamp(self.submitted)
        return data


class Thread:
    """A conversation on lines of the diff."""

    def __init__(self, pull: Pull) -> None:
        self.pull = pull
        self.number = pull.github.next_id()
        self.comments: list[ReviewComment] = []
        self.resolved = False
        self.resolved_by: Account | None = None

    def __repr__(self) -> str:
        return f"<Thread {self.id} of {len(self.comments)}{' resolved' if self.resolved else ''}>"

    @property
    def id(self) -> str:
        return f"PRRT_{self.number:x}"

    @property
    def outdated(self) -> bool:
        return self.comments[0].place[1] is None and self.comments[0].anchor.line is not None

    def reply(self, account: Account, body: str) -> tuple[ReviewComment, list[Send]]:
        """A reply is a review of its own with an empty body, as on GitHub."""
        check_body(body, "PullRequestReviewComment")
        first = self.comments[0]
        review = Review(self.pull, account, "", "PENDING", first.commit_id)
        comment = ReviewComment(review, self, account, body, first.anchor, in_reply_to=first.id)
        self.pull.all_reviews.append(review)
        return comment, review.submit("COMMENTED")

    def resolve(self, account: Account, resolved: bool) -> Send:
        from fake_github.pulls import shape

        changed = self.resolved != resolved
        self.resolved, self.resolved_by = resolved, account if resolved else None
        payload = {
            "pull_request": shape(self.pull, full=False),
            "thread": {
                "node_id": self.id,
                "comments": [comment.shape() for comment in self.comments],
            },
            "updated_at": shapes.stamp(time.time()),
        }
        action = "resolved" if resolved else "unresolved"
        hooks = self.pull.github.webhooks
        if not changed:
            return hooks.nothing
        return hooks.prepare("pull_request_review_thread", action, self.pull.repo, account.login, payload)


class ReviewComment:
    def __init__(
        self,
        review: Review,
        thread: Thread,
        account: Account,
        body: str,
        where: Anchor,
        in_reply_to: int | None = None,
    ) -> None:
        self.pull = review.pull
        self.id = review.pull.github.next_id()
        self.review = review
        self.thread = thread
        self.author = account
        self.body = body
        self.anchor = where
        self.in_reply_to = in_reply_to
        self.original_commit_id = where.commit_id
        self.commit_id = where.commit_id
        self.created = self.updated = time.time()
        self.reactions = Reactions(review.pull.github)
        self.minimized: str | None = None  # the reason, as GraphQL shows it
        self._placed: tuple[str, tuple[int | None, int | None, int | None]] | None = None
        review.comments.append(self)
        thread.comments.append(self)

    def __repr__(self) -> str:
        return f"<ReviewComment {self.id} {self.author.login} {self.path}:{self.line} {self.body[:60]!r}>"

    @property
    def node_id(self) -> str:
        return f"PRRC_{self.id:x}"

    @property
    def path(self) -> str:
        return self.anchor.path

    @property
    def place(self) -> tuple[int | None, int | None, int | None]:
        """(start line, line, position) in the diff of today's head; line None when outdated."""
        if self._placed is None or self._placed[0] != self.pull.head_sha:
            self._placed = (self.pull.head_sha, place(self.pull, self.anchor))
            if self._placed[1][1] is not None:
                self.commit_id = self.pull.head_sha
        return self._placed[1]

    @property
    def line(self) -> int | None:
        return self.place[1]

    @property
    def start_line(self) -> int | None:
        return self.place[0]

    def edit(self, login: str, body: str) -> Send:
        check_body(body, "PullRequestReviewComment")
        before, self.body, self.updated = self.body, body, time.time()
        return self.delivery("edited", login, changes={"body": {"from": before}})

    def delete(self, login: str) -> Send:
        send = self.delivery("deleted", login)
        self.review.comments.remove(self)
        self.thread.comments.remove(self)
        if not self.thread.comments:
            self.pull.threads.remove(self.thread)
        return send

    def delivery(self, action: str, login: str, **more: Any) -> Send:
        from fake_github.pulls import shape

        payload = {"comment": self.shape(), "pull_request": shape(self.pull, full=False), **more}
        hooks = self.pull.github.webhooks
        return hooks.prepare("pull_request_review_comment", action, self.pull.repo, login, payload)

    def shape(self) -> Json:
        """`pull-request-review-comment`. Line and position of an outdated one are null."""
        pull, where = self.pull, self.anchor
        start, line, position = self.place
        url = f"{pull.github.url}/repos/{pull.repo.full_name}/pulls/comments/{self.id}"
        html = f"{pull.html_url}#discussion_r{self.id}"
        data = {
            "url": url,
            "pull_request_review_id": self.review.id,
            "id": self.id,
            "node_id": self.node_id,
            "diff_hunk": where.diff_hunk,
            "path": where.path,
            "commit_id": self.commit_id,
            "original_commit_id": self.original_commit_id,
            "user": shapes.user(pull.github, self.author),
            "body": self.body,
            "created_at": shapes.stamp(self.created),
            "updated_at": shapes.stamp(self.updated),
            "html_url": html,
            "pull_request_url": pull.url,
            "author_association": pull.repo.association(self.author.login),
            "_links": {"self": {"href": url}, "html": {"href": html}, "pull_request": {"href": pull.url}},
            "reactions": shapes.reactions(url, [reaction.content for reaction in self.reactions]),
            "start_line": start,
            "original_start_line": where.start_line,
            "start_side": where.start_side,
            "line": line,
            "side": where.side,
            "original_position": where.position,
            "position": position,
            "subject_type": "line" if where.line else "file",
        }
        if where.line is not None:
            data["original_line"] = where.line
        if self.in_reply_to:
            data["in_reply_to_id"] = self.in_reply_to
        return data


def _sentence(errors: list[str]) -> str:
    """GitHub joins the reasons into one sentence."""
    if len(errors) < 3:
        return " and ".join(errors)
    return ", ".join(errors[:-1]) + f", and {errors[-1]}"
