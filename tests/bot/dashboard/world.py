"""The dashboard of a service beside a fake GitHub: people who sign in, and rows for them to see."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import datetime, timedelta, timezone
from hashlib import sha1
from itertools import count
from typing import Any

import httpx
from sqlalchemy import Engine

from fake_github import FakeGitHub, Repo
from service.database import writing
from service.models import CommentRow, Installation, Job, JobState, Repository, ReviewRow, Signal
from tests.bot.conftest import Serve, Served
from tests.worker.processes import free_port

KEY = "a long random text that is the secret key"
NOW = datetime.now(timezone.utc).replace(microsecond=0)
_numbers = count(1)


class World:
    """`person(login)` is a browser of somebody who is signed in; `review`, `comment`, `signal` and `job` add rows."""

    def __init__(self, github: FakeGitHub, served: Served, url: str, browsers: ExitStack) -> None:
        self.github, self.served, self.url = github, served, url
        self.engine: Engine = served.engine
        self._browsers = browsers

    def stranger(self) -> httpx.Client:
        return self._browsers.enter_context(httpx.Client(base_url=self.url, timeout=30.0))

    def person(self, login: str) -> httpx.Client:
        client = self.stranger()
        answer = self.callback(client, login)
        assert answer.status_code == 303, answer.text
        return client

    def callback(self, client: httpx.Client, login: str, onward: str = "") -> httpx.Response:
        """Goes through the sign-in as a browser does; the answer to GitHub's redirect."""
        begun = client.get("/dashboard/sign-in/github", params={"onward": onward})
        assert begun.status_code == 303
        return client.get(self.authorized(begun.headers["location"], login))

    def authorized(self, location: str, login: str) -> str:
        """Where GitHub leads after the person clicked."""
        self.github.person = login
        self.github.account(login)
        shown = httpx.get(location)
        assert shown.status_code == 200, shown.text
        fields = dict(re.findall(r'<input type="hidden" name="([^"]+)" value="([^"]*)">', shown.text))
        answer = httpx.post(location.partition("?")[0], data=fields)
        assert answer.status_code == 302
        return str(answer.headers["location"])

    def repository(self, full_name: str, **roles: str) -> Repo:
        """A private one that the service knows; `roles` of people."""
        repo = self.github.repository(full_name, private=True)
        for login, role in roles.items():
            repo.permission(login, role)
        assert repo.installation is not None
        with writing(self.engine) as session:
            if session.get(Installation, repo.installation.id) is None:
                session.add(Installation(id=repo.installation.id, account=repo.owner.login, created_at=NOW))
                session.flush()
            session.add(
                Repository(id=repo.id, installation_id=repo.installation.id, full_name=repo.full_name)
            )
        return repo

    def review(self, repo: Repo, **more: Any) -> int:
        number = next(_numbers)
        values = {
            "repository_id": repo.id,
            "pull": number,
            "head_sha": sha1(str(number).encode()).hexdigest(),
            "github_id": number,
            "ptopt_version": "0",
            "files_reviewed": 3,
            "findings": 1,
            "received_at": NOW - timedelta(seconds=8),
            "posted_at": NOW,
        }
        return self._add(ReviewRow(**values | more))

    def comment(self, repo: Repo, review_id: int, **more: Any) -> int:
        number = next(_numbers)
        values = {
            "review_id": review_id,
            "repository_id": repo.id,
            "pull": 1,
            "github_id": number,
            "rule": "PTO101",
            "fingerprint": f"f{number}",
            "origin": "rule",
            "confidence": 0.7,
            "score": 0.7,
            "safety": "safe",
            "path_hash": "p",
            "suggestion": {},
            "posted_at": NOW,
        }
        return self._add(CommentRow(**values | more))

    def signal(self, comment_id: int, kind: str = "reaction", value: str = "+1", **more: Any) -> int:
        values = {
            "comment_id": comment_id,
            "kind": kind,
            "value": value,
            "actor": "somebody",
            "actor_writes": True,
            "source": str(next(_numbers)),
            "created_at": NOW,
        }
        return self._add(Signal(**values | more))

    def job(self, repo: Repo, state: JobState = JobState.DEAD, **more: Any) -> int:
        number = next(_numbers)
        assert repo.installation is not None
        values = {
            "kind": "review",
            "installation_id": repo.installation.id,
            "repository_id": repo.id,
            "repository": repo.full_name,
            "pull": number,
            "head_sha": sha1(str(number).encode()).hexdigest(),
            "subject": "",
            "payload": {},
            "state": state.value,
            "due_at": NOW + timedelta(days=1),
            "created_at": NOW,
        }
        return self._add(Job(**values | more))

    def _add(self, row: Any) -> int:
        with writing(self.engine) as session:
            session.add(row)
            session.flush()
            return int(row.id)


@contextmanager
def world(serve: Serve, **more: Any) -> Iterator[World]:
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    with FakeGitHub() as github, ExitStack() as browsers:
        github.app.callback_urls.append(f"{url}/dashboard/callback")
        values = {
            "github_url": github.url,
            "public_url": url,
            "secret_key": KEY,
            "app_id": github.app.id,
            "private_key": github.app.private_key,
            "client_id": github.app.client_id,
            "client_secret": github.app.client_secret,
        }
        with serve(port=port, **values | more) as served:
            yield World(github, served, url, browsers)


def form(page: httpx.Response, action: str) -> dict[str, str]:
    """The hidden fields of the form that posts to the address that ends in `action`."""
    for attributes, body in re.findall(r"<form([^>]*)>(.*?)</form>", page.text, re.S):
        if re.search(rf'action="[^"]*{re.escape(action)}"', attributes):
            return dict(re.findall(r'<input type="hidden" name="([^"]+)" value="([^"]*)">', body))
    raise AssertionError(f"no form posts to {action}")
