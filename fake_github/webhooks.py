"""Webhook deliveries: signed, sent over HTTP, remembered, and sent again on demand."""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import http.client
import json
import time
import urllib.error
import urllib.request
import uuid
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from fake_github import shapes

if TYPE_CHECKING:
    from fake_github.accounts import Installation
    from fake_github.fake import FakeGitHub
    from fake_github.repos import Repo

Json = dict[str, Any]
MAXIMUM = 25 * 1024 * 1024  # larger ones are never delivered
ALWAYS = ("installation", "installation_repositories", "ping")  # an App gets these without asking


@dataclass(eq=False)
class Delivery:
    id: int
    guid: str
    event: str
    action: str | None
    body: bytes
    headers: dict[str, str]
    installation_id: int | None
    repository_id: int | None
    redelivery: bool = False
    delivered: float = field(default_factory=time.time)
    duration: float = 0.0  # seconds
    status: str = "Pending"
    status_code: int = 0
    answer: str = ""
    answer_headers: dict[str, str] = field(default_factory=dict)

    def shape(self, *, full: bool) -> Json:
        data = {
            "id": self.id,
            "guid": self.guid,
            "delivered_at": shapes.stamp(self.delivered),
            "redelivery": self.redelivery,
            "duration": round(self.duration, 2),
            "status": self.status,
            "status_code": self.status_code,
            "event": self.event,
            "action": self.action,
            "installation_id": self.installation_id,
            "repository_id": self.repository_id,
            "throttled_at": None,
        }
        if full:
            hidden = {**self.headers, "X-Hub-Signature-256": "sha256=***"}
            data |= {
                "url": "",
                "request": {"headers": hidden, "payload": json.loads(self.body)},
                "response": {"headers": self.answer_headers, "payload": self.answer},
            }
        return data


Send = Callable[[], Delivery | None]


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *arguments: Any) -> None:
        return None


class Webhooks:
    """The deliveries to the App at `github.webhook_url`; nothing is sent while that is None."""

    def __init__(self, github: FakeGitHub) -> None:
        self.github = github
        self.log: list[Delivery] = []
        self.timeout = 10.0  # seconds that a receiver has, as on github.com
        self.wait: Callable[[], float] | None = (
            None  # seconds that the next delivery waits: later ones overtake it
        )
        self._pool = ThreadPoolExecutor(8, "fake-github-webhooks")
        self._pending: set[Future[Delivery | None]] = set()
        self._open = urllib.request.build_opener(_NoRedirect, urllib.request.ProxyHandler({})).open

    def nothing(self) -> None:
        """Sends nothing."""

    def prepare(
        self,
        event: str,
        action: str | None,
        repo: Repo | None,
        login: str,
        payload: Json,
        installation: Installation | None = None,
    ) -> Send:
        """Builds a payload from today's state; calling what is returned delivers it."""
        installation = repo.installation if repo else installation
        asked = event in self.github.app.events or event in ALWAYS
        if (
            self.github.webhook_url is None
            or not asked
            or (repo and (not installation or installation.suspended))
        ):
            return self.nothing
        whole: Json = {"action": action} if action else {}
        whole |= payload
        if repo:
            whole["repository"] = shapes.repository(repo)
            if repo.owner.type == "Organization":
                whole["organization"] = self.organization(repo.owner.login)
        if installation and "installation" not in whole:
            whole["installation"] = {"id": installation.id, "node_id": f"MDIz{installation.id}"}
        whole["sender"] = shapes.user(self.github, self.github.account(login))
        # The state moves on: what is sent is what it was now.
        body = json.dumps(whole).encode()
        return lambda: self.send(
            event, body, action=action, installation=installation, repository_id=repo.id if repo else None
        )

    def organization(self, login: str) -> Json:
        account = self.github.account(login)
        url = f"{self.github.url}/orgs/{login}"
        return {
            "login": login,
            "id": account.id,
            "node_id": f"O_{account.id:x}",
            "url": url,
            "repos_url": f"{url}/repos",
            "events_url": f"{url}/events",
            "hooks_url": f"{url}/hooks",
            "issues_url": f"{url}/issues",
            "members_url": f"{url}/members{{/member}}",
            "public_members_url": f"{url}/public_members{{/member}}",
            "avatar_url": f"{self.github.html}/avatars/u/{account.id}?v=4",
            "description": None,
        }

    def send(
        self,
        event: str,
        body: bytes,
        *,
        action: str | None = None,
        guid: str | None = None,
        installation: Installation | None = None,
        repository_id: int | None = None,
        redelivery: bool = False,
    ) -> Delivery | None:
        """Signs and POSTs `body`; the delivery, or None when GitHub would not send it."""
        url = self.github.webhook_url
        if url is None or len(body) > MAXIMUM:
            return None
        delivery = Delivery(
            id=self.github.next_id(),
            guid=guid or str(uuid.uuid4()),
            event=event,
            action=action,
            body=body,
            headers={},
            installation_id=installation.id if installation else None,
            repository_id=repository_id,
            redelivery=redelivery,
        )
        app = self.github.app
        signature = hmac.new(app.webhook_secret.encode(), body, hashlib.sha256).hexdigest()
        delivery.headers = {
            "Accept": "*/*",
            "Content-Type": "application/json",
            "User-Agent": "GitHub-Hookshot/044aadd",
            "X-GitHub-Delivery": delivery.guid,
            "X-GitHub-Event": event,
            "X-GitHub-Hook-ID": str(app.id + 1),
            "X-GitHub-Hook-Installation-Target-ID": str(app.id),
            "X-GitHub-Hook-Installation-Target-Type": "integration",
            "X-Hub-Signature-256": f"sha256={signature}",
        }
        if self.wait is not None:
            time.sleep(self.wait())
        self._post(url, delivery)
        with self.github.lock:
            self.log.append(delivery)
        return delivery

    def _post(self, url: str, delivery: Delivery) -> None:
        request = urllib.request.Request(url, delivery.body, delivery.headers, method="POST")
        began = time.monotonic()
        try:
            try:
                answer = self._open(request, timeout=self.timeout)
            except urllib.error.HTTPError as error:
                answer = error
            with answer:
                delivery.status_code = answer.status
                delivery.status = answer.reason or str(answer.status)
                delivery.answer_headers = dict(answer.headers)
                delivery.answer = answer.read(10_000).decode("utf-8", "replace")
            if 200 <= delivery.status_code < 300:
                delivery.status = "OK"
        except (OSError, http.client.HTTPException) as error:
            slow = isinstance(error, TimeoutError) or "timed out" in str(error)
            delivery.status = "timed out" if slow else "failed to connect to host"
            delivery.status_code = 0
        delivery.duration = time.monotonic() - began

    def redeliver(self, delivery: Delivery) -> Send:
        """Sends it again with the same GUID."""
        installation = self.github.installations.get(delivery.installation_id or 0)
        return lambda: self.send(
            delivery.event,
            delivery.body,
            action=delivery.action,
            guid=delivery.guid,
            installation=installation,
            repository_id=delivery.repository_id,
            redelivery=True,
        )

    def background(self, *sends: Send) -> None:
        """Sends without making the caller wait, in order."""

        def run() -> Delivery | None:
            last = None
            for send in sends:
                last = send()
            return last

        sends = tuple(send for send in sends if send != self.nothing)
        if sends:
            with contextlib.suppress(RuntimeError):  # we are closing
                future = self._pool.submit(run)
                self._pending.add(future)
                future.add_done_callback(self._pending.discard)

    def drain(self, timeout: float = 30.0) -> None:
        """Waits until what was sent in the background has arrived."""
        for future in list(self._pending):
            future.result(timeout)

    def close(self) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)
