"""The fake GitHub as a whole: its state and what tests do with it."""

from __future__ import annotations

import itertools
import json
import secrets
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any

from fake_github import server, shapes
from fake_github.accounts import Account, App, Installation, Token, new_token_value, private_key
from fake_github.faults import Faults
from fake_github.http import Request, Response, not_found
from fake_github.oauth import Authorization
from fake_github.pulls import Pull
from fake_github.repos import Repo
from fake_github.webhooks import Delivery, Send, Webhooks

Json = dict[str, Any]
Check = Callable[[Request, Response], Iterable[str] | None]
default_checks: list[Check] = []


@dataclass
class Limits:
    """GitHub's limits; a test may lower them to reach them."""

    files: int = 3000  # of a pull request that the files API lists
    file_lines: int = 20_000  # of one file's patch
    file_bytes: int = 500_000
    total_bytes: int = 1_000_000  # of all patches
    diff_files: int = 300  # that the diff media type and compare give
    diff_lines: int = 20_000
    contents: int = 1_000_000  # bytes that the JSON of the contents API gives
    blob: int = 100_000_000
    blob_text: int = 512_000  # bytes of a blob that GraphQL gives as text
    requests: int = 5000  # an hour and token, as the headers tell; not enforced


@dataclass
class _Manifest:
    app: App
    made: float = field(default_factory=time.time)


class FakeGitHub:
    """A fake GitHub; see the package for how to use it."""

    def __init__(
        self,
        *,
        checks: Sequence[Check] | None = None,
        webhook_url: str | None = None,
        token_seconds: float = 3600.0,
        port: int = 0,
    ) -> None:
        self.lock = threading.RLock()
        self.checks: list[Check] = list(default_checks if checks is None else checks)
        self.violations: list[str] = []
        self.requests: list[Request] = []
        self.faults = Faults()
        self.delay: Callable[[], float] | None = None  # seconds that the next request waits
        self.limits = Limits()
        self.webhook_url = webhook_url
        self.token_seconds = token_seconds
        self.accounts: dict[str, Account] = {}
        self.repos: dict[str, Repo] = {}
        self.renamed: dict[str, Repo] = {}
        self.installations: dict[int, Installation] = {}
        self.tokens: dict[str, Token] = {}
        self.manifests: dict[str, _Manifest] = {}
        self.person = "octocat"  # who is signed in where pages are shown
        self.authorizations: dict[str, Authorization] = {}  # by code
        self.folder = Path(tempfile.mkdtemp(prefix="fake-github-"))
        self._ids = itertools.count(1001)
        self.webhooks = Webhooks(self)
        self.app = self._new_app("ptopt", private_key(), "a secret of the webhook")
        self._server = server.Server(self, port)
        self.html = f"http://127.0.0.1:{self._server.port}"
        self.url = f"{self.html}/api/v3"

    def __enter__(self) -> FakeGitHub:
        self._server.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.webhooks.close()
        self._server.stop()
        shutil.rmtree(self.folder, ignore_errors=True)
        if self.violations and kind is None:
            raise AssertionError("not as GitHub describes itself:\n" + "\n".join(self.violations))

    def next_id(self) -> int:
        return next(self._ids)

    # People and tokens

    def account(self, login: str) -> Account:
        """The account of that name, made when missing. `[bot]` at the end makes it a bot."""
        with self.lock:
            found = self.accounts.get(login.lower())
            if found is None:
                fixed = {"ghost": 10137, "web-flow": 19864447, "github-actions[bot]": 41898282}
                kind = "Bot" if login.endswith("[bot]") else "User"
                found = Account(fixed.get(login) or self.next_id(), login, kind)
                self.accounts[login.lower()] = found
            return found

    def account_of_email(self, email: str) -> Account | None:
        if email == "noreply@github.com":
            return self.account("web-flow")
        login = email.partition("@")[0].partition("+")[2]
        return self.accounts.get(login.lower())

    def organization(self, login: str) -> Account:
        """An organisation; its repositories are made with `repository` as for a user."""
        account = self.account(login)
        account.type = "Organization"
        return account

    def token(
        self,
        repo: Repo | str,
        permissions: Mapping[str, str] | None = None,
        *,
        login: str = "github-actions[bot]",
        seconds: float | None = None,
    ) -> str:
        """A GITHUB_TOKEN of Actions for one repository; by default it may write what a review needs."""
        found = self.find_repo(repo) if isinstance(repo, str) else repo
        if permissions is None:
            permissions = {"contents": "read", "pull_requests": "write", "checks": "write", "issues": "write"}
        return self._keep("actions", login, permissions, frozenset({found.id}), None, seconds)

    def user_token(self, login: str, *, seconds: float | None = None) -> str:
        """A personal token: what it may do depends on the person's role."""
        return self._keep("user", login, {}, None, None, seconds)

    def signed_in_token(self, login: str) -> str:
        """A user-to-server token: what a person gets who signs in with the App."""
        value = self._keep("user", login, {}, None, None, 8 * 3600, "ghu_")
        self.tokens[value].app = self.app
        return value

    def installation_token(
        self,
        installation: Installation,
        permissions: Mapping[str, str] | None = None,
        repository_ids: frozenset[int] | None = None,
    ) -> str:
        login = installation.app.login
        granted = installation.permissions if permissions is None else permissions
        return self._keep("installation", login, granted, repository_ids, installation, None)

    def _keep(
        self,
        kind: str,
        login: str,
        permissions: Mapping[str, str],
        repository_ids: frozenset[int] | None,
        installation: Installation | None,
        seconds: float | None,
        prefix: str = "",
    ) -> str:
        expires = time.time() + (self.token_seconds if seconds is None else seconds)
        usual = f"ghs_{installation.app.id}_" if installation else "ghs_" if kind == "actions" else "ghp_"
        value = new_token_value(prefix or usual, {"exp": int(expires), "jti": secrets.token_hex(12)})
        account = self.account(login).login
        token = Token(value, kind, account, expires, dict(permissions), repository_ids, installation)
        with self.lock:
            self.tokens[value] = token
        return value

    # The App

    def _new_app(self, slug: str, key: str, webhook_secret: str, owner: str = "octo") -> App:
        app = App(self.next_id(), slug, slug, self.account(owner), key, webhook_secret)
        self.account(app.login)
        return app

    def install(self, login: str, repos: Iterable[Repo] = (), *, deliver: bool = True) -> Installation:
        """Installs the App on an account; one account has one installation."""
        with self.lock:
            account = self.account(login)
            known = next((i for i in self.installations.values() if i.account is account), None)
            if known:
                return known
            made = Installation(self.next_id(), self.app, account, dict(self.app.permissions))
            made.repository_ids = {repo.id for repo in repos}
            self.installations[made.id] = made
            send = self._installation_event("created", made, repositories=self._repositories(made))
        if deliver:
            send()
        return made

    def uninstall(self, installation: Installation) -> None:
        """Its tokens stop working."""
        with self.lock:
            send = self._installation_event(
                "deleted", installation, repositories=self._repositories(installation)
            )
            del self.installations[installation.id]
            self.tokens = {v: t for v, t in self.tokens.items() if t.installation is not installation}
        send()

    def suspend(self, installation: Installation, suspended: bool = True) -> None:
        with self.lock:
            installation.suspended = suspended
            send = self._installation_event("suspend" if suspended else "unsuspend", installation)
        send()

    def add_repository(self, installation: Installation, repo: Repo, *, deliver: bool = True) -> None:
        self._select(installation, repo, True, deliver)

    def remove_repository(self, installation: Installation, repo: Repo, *, deliver: bool = True) -> None:
        self._select(installation, repo, False, deliver)

    def _select(self, installation: Installation, repo: Repo, added: bool, deliver: bool) -> None:
        with self.lock:
            (installation.repository_ids.add if added else installation.repository_ids.discard)(repo.id)
            short = [_short(repo)]
            payload = {
                "installation": shapes.installation(self, installation),
                "repository_selection": "selected",
                "repositories_added": short if added else [],
                "repositories_removed": [] if added else short,
                "requester": None,
            }
            action = "added" if added else "removed"
            login = installation.account.login
            send = self.webhooks.prepare(
                "installation_repositories", action, None, login, payload, installation
            )
        if deliver:
            send()

    def _repositories(self, installation: Installation) -> list[Json]:
        return [_short(repo) for repo in self.repos.values() if repo.id in installation.repository_ids]

    def _installation_event(self, action: str, installation: Installation, **more: Any) -> Send:
        payload = {"installation": shapes.installation(self, installation), "requester": None, **more}
        login = installation.account.login
        return self.webhooks.prepare("installation", action, None, login, payload, installation)

    def manifest(
        self,
        slug: str = "ptopt-made",
        webhook_secret: str = "a secret that GitHub made",
        owner: str = "octo",
    ) -> str:
        """What GitHub does when somebody submits an App manifest: the `code` to convert, once, in an hour."""
        code = secrets.token_hex(20)
        with self.lock:
            self.manifests[code] = _Manifest(self._new_app(slug, private_key(), webhook_secret, owner))
        return code

    # Repositories

    def repository(
        self,
        full_name: str,
        files: Mapping[str, bytes] | None = None,
        *,
        private: bool = False,
        installation: Installation | int | bool = True,
    ) -> Repo:
        """A repository with one commit on main. The App is installed on it unless `installation` is False."""
        with self.lock:
            owner, name = full_name.split("/")
            repo = Repo(self, self.account(owner), name, private=private)
            self.repos[full_name.lower()] = repo
            repo.commit("main", files if files is not None else {"README.md": b"# A repository\n"}, "First")
            if installation is not False:
                if isinstance(installation, bool):
                    found = self.install(owner, deliver=False)
                else:
                    found = self.installations[
                        installation if isinstance(installation, int) else installation.id
                    ]
                found.repository_ids.add(repo.id)
        return repo

    def find_repo(self, full_name: str) -> Repo:
        """The repository, also by a name that it once had; ApiError 404 when there is none."""
        found = self.repos.get(full_name.lower()) or self.renamed.get(full_name.lower())
        if found is None:
            raise not_found()
        return found

    def repo_of(self, repo_id: int) -> Repo:
        for repo in self.repos.values():
            if repo.id == repo_id:
                return repo
        raise not_found()

    # Webhooks

    @property
    def deliveries(self) -> list[Delivery]:
        """All deliveries, oldest first, with what the receiver answered."""
        return self.webhooks.log

    def deliver(
        self,
        event: str,
        action: str | None = None,
        payload: Mapping[str, Any] | bytes | None = None,
        *,
        pull: Pull | None = None,
        repo: Repo | None = None,
        login: str | None = None,
        guid: str | None = None,
    ) -> Delivery | None:
        """Sends a webhook: of a pull request as it is now, with what `payload` adds; or any recorded payload.

        With `pull` or `repo` the payload gets GitHub's shape from our state. Without, `payload` is the whole body
        (bytes are sent as they are).
        """
        repo = repo or (pull.repo if pull else None)
        if repo is None or isinstance(payload, bytes):
            body = payload if isinstance(payload, bytes) else json.dumps(payload or {}).encode()
            return self.webhooks.send(event, body, action=action, guid=guid)
        if pull and event == "pull_request":
            return pull.delivery(action or "opened", login or pull.author.login, **(payload or {}))()
        return self.webhooks.prepare(event, action, repo, login or repo.owner.login, dict(payload or {}))()

    def redeliver(self, delivery: Delivery) -> Delivery | None:
        """As the button "Redeliver": the same GUID and bytes."""
        return self.webhooks.redeliver(delivery)()

    def drain(self, timeout: float = 30.0) -> None:
        """Waits for the webhooks that requests set off."""
        self.webhooks.drain(timeout)


def _short(repo: Repo) -> Json:
    return {
        "id": repo.id,
        "node_id": f"R_{repo.id:x}",
        "name": repo.name,
        "full_name": repo.full_name,
        "private": repo.private,
    }
