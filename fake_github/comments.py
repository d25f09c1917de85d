"""Comments in the conversation, and reactions to comments."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fake_github import shapes
from fake_github.http import ApiError, invalid

if TYPE_CHECKING:
    from fake_github.accounts import Account
    from fake_github.fake import FakeGitHub
    from fake_github.pulls import Pull
    from fake_github.webhooks import Send

Json = dict[str, Any]
MAXIMUM = 65_536


def check_body(body: str, resource: str = "IssueComment") -> None:
    if not body.strip():
        raise invalid(resource, "body", "missing_field")
    if len(body) > MAXIMUM:
        text = f"body is too long (maximum is {MAXIMUM} characters)"
        raise ApiError(
            422,
            "Validation Failed",
            [{"resource": resource, "code": "custom", "field": "body", "message": text}],
        )


@dataclass(eq=False)
class Reaction:
    id: int
    account: Account
    content: str
    created: float

    def shape(self, github: FakeGitHub) -> Json:
        return {
            "id": self.id,
            "node_id": f"REA_{self.id:x}",
            "user": shapes.user(github, self.account),
            "content": self.content,
            "created_at": shapes.stamp(self.created),
        }


class Reactions(list[Reaction]):
    """Those to one comment; each person has each kind at most once."""

    def __init__(self, github: FakeGitHub) -> None:
        super().__init__()
        self.github = github

    def add(self, account: Account, content: str) -> tuple[Reaction, bool]:
        """The reaction, and whether it is new."""
        if content not in shapes.REACTIONS:
            raise invalid("Reaction", "content")
        for known in self:
            if known.account is account and known.content == content:
                return known, False
        self.append(Reaction(self.github.next_id(), account, content, time.time()))
        return self[-1], True


class IssueComment:
    def __init__(self, pull: Pull, account: Account, body: str) -> None:
        check_body(body)
        self.pull = pull
        self.id = pull.github.next_id()
        self.author = account
        self.body = body
        self.created = self.updated = time.time()
        self.reactions = Reactions(pull.github)
        self.minimized: str | None = None  # the reason, as GraphQL shows it

    def __repr__(self) -> str:
        return f"<IssueComment {self.id} {self.author.login} {self.body[:60]!r}>"

    @property
    def node_id(self) -> str:
        return f"IC_{self.id:x}"

    @classmethod
    def create(cls, pull: Pull, account: Account, body: str) -> tuple[IssueComment, Send]:
        comment = cls(pull, account, body)
        pull.issue_comments.append(comment)
        return comment, comment.delivery("created", account.login)

    def edit(self, login: str, body: str) -> Send:
        check_body(body)
        before, self.body, self.updated = self.body, body, time.time()
        return self.delivery("edited", login, changes={"body": {"from": before}})

    def delete(self, login: str) -> Send:
        send = self.delivery("deleted", login)
        self.pull.issue_comments.remove(self)
        return send

    def delivery(self, action: str, login: str, **more: Any) -> Send:
        payload = {"issue": issue_shape(self.pull), "comment": self.shape(), **more}
        return self.pull.github.webhooks.prepare("issue_comment", action, self.pull.repo, login, payload)

    def shape(self) -> Json:
        pull, github = self.pull, self.pull.github
        url = f"{github.url}/repos/{pull.repo.full_name}/issues/comments/{self.id}"
        return {
            "url": url,
            "html_url": f"{pull.html_url}#issuecomment-{self.id}",
            "issue_url": f"{github.url}/repos/{pull.repo.full_name}/issues/{pull.number}",
            "id": self.id,
            "node_id": self.node_id,
            "user": shapes.user(github, self.author),
            "created_at": shapes.stamp(self.created),
            "updated_at": shapes.stamp(self.updated),
            "author_association": pull.repo.association(self.author.login),
            "body": self.body,
            "reactions": shapes.reactions(url, [reaction.content for reaction in self.reactions]),
            "performed_via_github_app": None,
        }


def issue_shape(pull: Pull) -> Json:
    """The pull request as an issue."""
    github = pull.github
    repo_url = f"{github.url}/repos/{pull.repo.full_name}"
    url = f"{repo_url}/issues/{pull.number}"
    return {
        "url": url,
        "repository_url": repo_url,
        "labels_url": f"{url}/labels{{/name}}",
        "comments_url": f"{url}/comments",
        "events_url": f"{url}/events",
        "timeline_url": f"{url}/timeline",
        "html_url": pull.html_url,
        "id": pull.id + 1_000_000_000,
        "node_id": f"PR_{pull.id:x}",
        "number": pull.number,
        "title": pull.title,
        "user": shapes.user(github, pull.author),
        "labels": [shapes.label(pull.repo, name) for name in pull.labels],
        "state": "open" if pull.open else "closed",
        "state_reason": None,
        "locked": False,
        "assignee": None,
        "assignees": [],
        "milestone": None,
        "comments": len(pull.issue_comments),
        "created_at": shapes.stamp(pull.created),
        "updated_at": shapes.stamp(pull.updated),
        "closed_at": shapes.stamp(pull.closed) if pull.closed else None,
        "author_association": pull.repo.association(pull.author.login),
        "active_lock_reason": None,
        "draft": pull.draft,
        "pull_request": {
            "url": pull.url,
            "html_url": pull.html_url,
            "diff_url": f"{pull.html_url}.diff",
            "patch_url": f"{pull.html_url}.patch",
            "merged_at": shapes.stamp(pull.closed) if pull.closed and pull.merged else None,
        },
        "body": pull.body,
        "reactions": shapes.reactions(url, []),
        "performed_via_github_app": None,
    }
