"""A pull request: what it changes and what people do with it."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from fake_github import shapes
from fake_github.comments import IssueComment, Reaction, Reactions
from fake_github.diffs import FileDiff
from fake_github.reviews import Review, ReviewComment, Thread
from fake_github.suggestions import apply_suggestion

if TYPE_CHECKING:
    from fake_github.accounts import Account
    from fake_github.checks import CheckRun
    from fake_github.fake import FakeGitHub
    from fake_github.repos import Repo
    from fake_github.webhooks import Send

Json = dict[str, Any]


class Pull:
    """Made by `Repo.pull`. Methods act as the person `login` in GitHub's own pages, and deliver webhooks."""

    def __init__(
        self, repo: Repo, number: int, head_repo: Repo, head_ref: str, base: str, title: str, author: Account
    ) -> None:
        self.repo = repo
        self.github = repo.github
        self.id = self.github.next_id()
        self.number = number
        self.head_repo: Repo | None = head_repo
        self.head_label = f"{head_repo.owner.login}:{head_ref}"
        self.head_ref = head_ref
        self.base_ref = base
        self.title = title
        self.body: str | None = None
        self.author = author
        self.draft = False
        self.open = True
        self.merged = False
        self.closed_by: Account | None = None
        self.merge_commit: str | None = None
        self.labels: list[str] = []
        self.created = self.updated = time.time()
        self.closed: float | None = None
        self.base_sha = self.head_sha = ""
        self.commits: set[str] = set()  # all that ever were part of it
        self.all_reviews: list[Review] = []
        self.threads: list[Thread] = []
        self.issue_comments: list[IssueComment] = []
        self.move_head(head_repo.git.refs[f"refs/heads/{head_ref}"])

    def __repr__(self) -> str:
        return f"<Pull {self.repo.full_name}#{self.number}>"

    @property
    def url(self) -> str:
        return f"{self.github.url}/repos/{self.repo.full_name}/pulls/{self.number}"

    @property
    def html_url(self) -> str:
        return f"{self.github.html}/{self.repo.full_name}/pull/{self.number}"

    @property
    def merge_base(self) -> str:
        return self.repo.git.merge_base(self.base_sha, self.head_sha) or self.base_sha

    @property
    def files(self) -> tuple[FileDiff, ...]:
        return self.files_at(self.head_sha)

    def files_at(self, sha: str) -> tuple[FileDiff, ...]:
        """The pull request's diff when `sha` was its head."""
        git = self.repo.git
        return git.diff(git.merge_base(self.base_sha, sha) or self.base_sha, sha)

    @property
    def log(self) -> list[str]:
        return self.repo.git.log(self.merge_base, self.head_sha)

    @property
    def reviews(self) -> list[Review]:
        """Submitted reviews, oldest first."""
        return [review for review in self.all_reviews if review.state != "PENDING"]

    @property
    def review_comments(self) -> list[ReviewComment]:
        """Comments of submitted reviews, oldest first."""
        found = [comment for review in self.reviews for comment in review.comments]
        return sorted(found, key=lambda comment: comment.id)

    @property
    def check_runs(self) -> list[CheckRun]:
        """Check runs of all heads this pull request ever had, oldest first."""
        return [run for run in self.repo.check_runs.values() if run.head_sha in self.commits]

    def comment_of(self, comment_id: int) -> ReviewComment:
        return next(comment for comment in self.review_comments if comment.id == comment_id)

    def move_head(self, sha: str) -> None:
        self.head_sha = sha
        self.base_sha = self.repo.git.refs[f"refs/heads/{self.base_ref}"]
        self.repo.git.set_ref(f"refs/pull/{self.number}/head", sha)
        self.commits.update(self.log)
        self.updated = time.time()

    def delivery(self, action: str, login: str, **more: Any) -> Send:
        """A `pull_request` webhook, built now and sent when called."""
        payload = {"number": self.number, "pull_request": shape(self), **more}
        return self.github.webhooks.prepare("pull_request", action, self.repo, login, payload)

    def push(
        self, files: Mapping[str, bytes | None], message: str = "Change", login: str | None = None
    ) -> str:
        """A commit on the head branch."""
        assert self.head_repo, "the fork is gone"
        return self.head_repo.commit(self.head_ref, files, message, login=login or self.author.login)

    def force_push(self, files: Mapping[str, bytes | None], message: str = "Again") -> str:
        """Replaces all commits of the head branch by one."""
        assert self.head_repo, "the fork is gone"
        with self.github.lock:
            self.head_repo.git.set_ref(f"refs/heads/{self.head_ref}", self.merge_base)
        return self.push(files, message)

    def close(self, merged: bool = False, login: str | None = None) -> None:
        """Closes it, or merges it with a merge commit."""
        login = login or self.repo.owner.login
        with self.github.lock:
            if merged:
                self.merge_commit = self._merge(login)
            self.open, self.merged, self.closed = False, merged, time.time()
            self.closed_by = self.github.account(login)
            self.updated = time.time()
            send = self.delivery("closed", login)
        send()

    def _merge(self, login: str) -> str:
        git = self.repo.git
        files = dict(git.files(self.base_sha))
        mine = {file.path for file in self.files} | {f.previous_path for f in self.files if f.previous_path}
        head = git.files(self.head_sha)
        entries = [
            (
                *(head.get(path) or files.get(path) or ("", ""))[:1],
                path,
                head[path][1] if path in head else None,
            )
            for path in sorted(mine)
        ]
        base = git.refs[f"refs/heads/{self.base_ref}"]
        tree = git.add_tree(base, entries)
        person = self.repo.person(login)
        message = (
            f"Merge pull request #{self.number} from {self.head_label.replace(':', '/')}\n\n{self.title}"
        )
        sha = git.add_commit(tree, [base, self.head_sha], message, person, self.repo.person("web-flow"))
        git.set_ref(f"refs/heads/{self.base_ref}", sha)
        return sha

    def reopen(self, login: str | None = None) -> None:
        self._change("reopened", login, open=True, closed=None)

    def ready(self, login: str | None = None) -> None:
        self._change("ready_for_review", login, draft=False)

    def edit(self, title: str, login: str | None = None) -> None:
        self._change("edited", login, {"changes": {"title": {"from": self.title}}}, title=title)

    def label(self, name: str, login: str | None = None) -> None:
        self.repo.label(name)
        more = {"label": shapes.label(self.repo, name)}
        self._change("labeled", login, more, labels=[*self.labels, name])

    def _change(self, action: str, login: str | None, more: Json | None = None, **values: Any) -> None:
        with self.github.lock:
            for name, value in values.items():
                setattr(self, name, value)
            self.updated = time.time()
            send = self.delivery(action, login or self.author.login, **(more or {}))
        send()

    def comment(self, login: str, body: str) -> int:
        """A comment in the conversation; its id."""
        with self.github.lock:
            comment, send = IssueComment.create(self, self.github.account(login), body)
        send()
        return comment.id

    def edit_comment(self, login: str, comment_id: int, body: str) -> None:
        with self.github.lock:
            comment = next(c for c in self.issue_comments if c.id == comment_id)
            send = comment.edit(login, body)
        send()

    def reply(self, login: str, comment_id: int, body: str) -> int:
        """An answer in the thread of a review comment; its id."""
        with self.github.lock:
            comment, sends = self.comment_of(comment_id).thread.reply(self.github.account(login), body)
        for send in sends:
            send()
        return comment.id

    def review_comment(self, login: str, path: str, line: int, body: str, *, side: str = "RIGHT") -> int:
        """A review comment of a person on one line of the diff; its id."""
        with self.github.lock:
            account = self.github.account(login)
            drafts = [{"path": path, "line": line, "side": side, "body": body}]
            review, sends = Review.create(self, account, "", "COMMENTED", self.head_sha, drafts)
        for send in sends:
            send()
        return review.comments[0].id

    def react(self, login: str, comment_id: int, content: str) -> Reaction:
        """A reaction to a comment of either kind. GitHub sends no webhook for it."""
        with self.github.lock:
            return self.reactions_to(comment_id).add(self.github.account(login), content)[0]

    def reactions_to(self, comment_id: int) -> Reactions:
        """Those to a comment of either kind."""
        both: list[IssueComment | ReviewComment] = [*self.issue_comments, *self.review_comments]
        return next(comment.reactions for comment in both if comment.id == comment_id)

    def minimize(self, comment_id: int, reason: str | None = "off-topic") -> None:
        """Hides a review comment, as people with write access may; None shows it again. GitHub sends no webhook for it."""
        with self.github.lock:
            self.comment_of(comment_id).minimized = reason

    def delete_comment(self, login: str, comment_id: int) -> None:
        """Deletes a review comment."""
        with self.github.lock:
            send = self.comment_of(comment_id).delete(login)
        send()

    def thread_of(self, thread: str | int | Thread) -> Thread:
        """A thread by itself, by its node id, or by the id of one of its comments."""
        if isinstance(thread, Thread):
            return thread
        return next(
            each
            for each in self.threads
            if each.id == thread or any(comment.id == thread for comment in each.comments)
        )

    def resolve(self, login: str, thread: str | int | Thread, resolved: bool = True) -> None:
        with self.github.lock:
            send = self.thread_of(thread).resolve(self.github.account(login), resolved)
        send()

    def accept(self, comment_id: int, login: str) -> str:
        """Applies the suggestion of a comment as the button does; the SHA of the new commit.

        SuggestionRefusedError where GitHub's page refuses.
        """
        return apply_suggestion(self, comment_id, login)


def shape(pull: Pull, *, full: bool = True) -> Json:
    """`pull-request`, or with `full` off `pull-request-simple`."""
    github, repo, url = pull.github, pull.repo, pull.url
    issue = f"{github.url}/repos/{repo.full_name}/issues/{pull.number}"
    statuses = f"{github.url}/repos/{repo.full_name}/statuses/{pull.head_sha}"
    links = {
        "self": url,
        "html": pull.html_url,
        "issue": issue,
        "comments": f"{issue}/comments",
        "review_comments": f"{url}/comments",
        "review_comment": f"{github.url}/repos/{repo.full_name}/pulls/comments{{/number}}",
        "commits": f"{url}/commits",
        "statuses": statuses,
    }
    data = {
        "url": url,
        "id": pull.id,
        "node_id": f"PR_{pull.id:x}",
        "html_url": pull.html_url,
        "diff_url": f"{pull.html_url}.diff",
        "patch_url": f"{pull.html_url}.patch",
        "issue_url": issue,
        "commits_url": links["commits"],
        "review_comments_url": links["review_comments"],
        "review_comment_url": links["review_comment"],
        "comments_url": links["comments"],
        "statuses_url": statuses,
        "number": pull.number,
        "state": "open" if pull.open else "closed",
        "locked": False,
        "title": pull.title,
        "user": shapes.user(github, pull.author),
        "body": pull.body,
        "labels": [shapes.label(repo, name) for name in pull.labels],
        "milestone": None,
        "active_lock_reason": None,
        "created_at": shapes.stamp(pull.created),
        "updated_at": shapes.stamp(pull.updated),
        "closed_at": shapes.stamp(pull.closed) if pull.closed else None,
        "merged_at": shapes.stamp(pull.closed) if pull.closed and pull.merged else None,
        "merge_commit_sha": pull.merge_commit,
        "assignee": None,
        "assignees": [],
        "requested_reviewers": [],
        "requested_teams": [],
        "head": _end(github, pull.head_label, pull.head_ref, pull.head_sha, pull.head_repo),
        "base": _end(github, f"{repo.owner.login}:{pull.base_ref}", pull.base_ref, pull.base_sha, repo),
        "_links": {name: {"href": to} for name, to in links.items()},
        "author_association": repo.association(pull.author.login),
        "auto_merge": None,
        "draft": pull.draft,
    }
    if full:
        data |= {
            "merged": pull.merged,
            "mergeable": None if not pull.open else True,
            "rebaseable": None if not pull.open else True,
            "mergeable_state": "clean" if pull.open else "unknown",
            "merged_by": shapes.user(github, pull.closed_by) if pull.merged and pull.closed_by else None,
            "comments": len(pull.issue_comments),
            "review_comments": len(pull.review_comments),
            "maintainer_can_modify": pull.head_repo is not repo,
            "commits": len(pull.log),
            "additions": sum(file.additions for file in pull.files),
            "deletions": sum(file.deletions for file in pull.files),
            "changed_files": len(pull.files),
        }
    return data


def _end(github: FakeGitHub, label: str, ref: str, sha: str, repo: Repo | None) -> Json:
    user = shapes.user(github, github.account(label.partition(":")[0]))
    return {"label": label, "ref": ref, "sha": sha, "user": user, "repo": repo and shapes.repository(repo)}
