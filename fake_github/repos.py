"""A repository: real git behind it, collaborators, labels, forks, pull requests."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from fake_github.accounts import ROLES, Account, Installation
from fake_github.git import Git, Person
from fake_github.pulls import Pull

if TYPE_CHECKING:
    from fake_github.checks import CheckRun, Sarif
    from fake_github.fake import FakeGitHub
    from fake_github.webhooks import Send

_BRANCH = "change"  # of a pull request that names none


class Repo:
    """Made by `FakeGitHub.repository` and `Repo.fork`."""

    def __init__(
        self, github: FakeGitHub, owner: Account, name: str, *, private: bool, parent: Repo | None = None
    ) -> None:
        self.github = github
        self.id = github.next_id()
        self.owner = owner
        self.name = name
        self.private = private
        self.parent = parent
        self.default_branch = "main"
        self.created = time.time()
        self.git: Git = Git(github.folder / f"{self.id}.git", parent.git if parent else None)
        self.collaborators: dict[str, str] = {owner.login: "admin"}
        self.labels: dict[str, int] = {}
        self.forks: list[Repo] = []
        self.pulls: dict[int, Pull] = {}
        self.check_runs: dict[int, CheckRun] = {}
        self.sarifs: list[Sarif] = []

    @property
    def full_name(self) -> str:
        return f"{self.owner.login}/{self.name}"

    @property
    def root(self) -> Repo:
        return self.parent.root if self.parent else self

    @property
    def installation(self) -> Installation | None:
        """The installation of the App that covers this repository."""
        found = self.github.installations.values()
        return next((each for each in found if self.id in each.repository_ids), None)

    def commit(
        self,
        branch: str,
        files: Mapping[str, bytes | None],
        message: str = "Change",
        *,
        login: str | None = None,
        committer: str | None = None,
        deliver: bool = True,
    ) -> str:
        """Commits `files` (None deletes) to `branch` (made from the default branch), as a push would.

        Open pull requests from the branch get the new head, and `synchronize` is delivered for them.
        """
        with self.github.lock:
            ref = f"refs/heads/{branch}"
            parent = self.git.refs.get(ref) or self.git.refs.get(f"refs/heads/{self.default_branch}")
            author = self.person(login or self.owner.login)
            by = self.person(committer) if committer else author
            sha = self.git.commit(ref, parent, files, message, author, by)
            deliveries = self.pushed(branch, sha, login or self.owner.login)
        if deliver:
            for send in deliveries:
                send()
        return sha

    def pushed(self, branch: str, sha: str, login: str) -> list[Send]:
        """Moves the open pull requests from `branch` to `sha`; returns what delivers the webhooks."""
        found = []
        for repo in self.github.repos.values():
            for pull in repo.pulls.values():
                if pull.open and pull.head_repo is self and pull.head_ref == branch and pull.head_sha != sha:
                    before = pull.head_sha
                    pull.move_head(sha)
                    found.append(pull.delivery("synchronize", login, before=before, after=sha))
        return found

    def person(self, login: str) -> Person:
        """Who git says made a commit."""
        if login == "web-flow":
            return Person("GitHub", "noreply@github.com", int(time.time()))
        account = self.github.account(login)
        return Person(login, f"{account.id}+{login}@users.noreply.github.com", int(time.time()))

    def pull(
        self,
        head: str | None = None,
        base: str = "main",
        title: str = "A change",
        author: str = "dev",
        *,
        draft: bool = False,
        labels: Sequence[str] = (),
        files: Mapping[str, bytes | None] | None = None,
        body: str | None = None,
        deliver: bool = True,
    ) -> Pull:
        """Opens a pull request, after committing `files` to the head branch if given.

        `head` is a branch (a new one for every pull request unless told), or "mallory:branch" for one in mallory's
        fork (made when missing).
        """
        with self.github.lock:
            number = 1 + max(self.pulls, default=0)
            taken = f"refs/heads/{_BRANCH}" in self.git.refs
            login, _, branch = (head or (f"{_BRANCH}-{number}" if taken else _BRANCH)).rpartition(":")
            source = self.fork(login) if login and login != self.owner.login else self
            if files is not None:
                source.commit(branch, files, title, login=author, deliver=False)
            for label in labels:
                self.label(label)
            pull = Pull(self, number, source, branch, base, title, self.github.account(author))
            pull.draft, pull.labels, pull.body = draft, list(labels), body
            self.pulls[number] = pull
        if deliver:
            pull.delivery("opened", author)()
        return pull

    def fork(self, login: str) -> Repo:
        """The fork of `login`, with all branches of today; the one there is when made before."""
        with self.github.lock:
            known = next((fork for fork in self.forks if fork.owner.login == login), None)
            if known:
                return known
            fork = Repo(self.github, self.github.account(login), self.name, private=self.private, parent=self)
            for ref, sha in self.git.refs.items():
                if ref.startswith("refs/heads/"):
                    fork.git.set_ref(ref, sha)
            fork.default_branch = self.default_branch
            self.forks.append(fork)
            self.github.repos[fork.full_name.lower()] = fork
            return fork

    def permission(self, login: str, role: str) -> None:
        """Gives `login` a role: none, read, triage, write, maintain or admin."""
        if role not in ROLES:
            raise ValueError(f"no role {role!r}; roles are {', '.join(ROLES)}")
        self.github.account(login)
        self.collaborators[login] = role

    def role(self, login: str) -> str:
        return self.collaborators.get(login, "none" if self.private else "read")

    def association(self, login: str) -> str:
        """GitHub's `author_association`."""
        if login == self.owner.login:
            return "OWNER"
        if ROLES.index(self.collaborators.get(login, "none")) > 1:
            return "MEMBER" if self.owner.type == "Organization" else "COLLABORATOR"
        if any(pull.merged and pull.author.login == login for pull in self.pulls.values()):
            return "CONTRIBUTOR"
        return "NONE"

    def label(self, name: str) -> None:
        self.labels.setdefault(name, self.github.next_id())

    def rename(self, full_name: str) -> None:
        """Renames or transfers; the old name answers 301 from now on."""
        with self.github.lock:
            old = self.full_name
            owner, self.name = full_name.split("/")
            self.owner = self.github.account(owner)
            del self.github.repos[old.lower()]
            self.github.repos[self.full_name.lower()] = self
            self.github.renamed[old.lower()] = self

    def file(self, path: str, ref: str | None = None) -> bytes | None:
        """What a file holds at `ref` (the default branch unless told); None when it is not there."""
        with self.github.lock:
            sha = self.git.resolve(ref or self.default_branch)
            entry = self.git.files(sha).get(path) if sha else None
            return self.git.blob(entry[1]) if entry else None
