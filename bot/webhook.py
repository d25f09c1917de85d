"""`POST /webhooks/github`: verify the delivery, find the jobs that it requests, store them, answer 202. Nothing else."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Mapping, Sequence

import structlog
from pydantic import ValidationError
from sqlalchemy.exc import SQLAlchemyError
from starlette.requests import Request
from starlette.types import Receive, Scope, Send

from bot import signature
from bot.body import BodyError, BodyReader
from bot.events import Delivery, Entry
from bot.metrics import Metrics
from bot.payloads import Event
from bot.problems import problem
from service.credentials import CredentialsError, WebhookSecrets
from service.inbox import Inbox
from service.jobs import NewJob

PATH = "/webhooks/github"
_GUID = re.compile(rb"[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}")
_EVENT = re.compile(rb"[a-z0-9_]{1,64}")
_log = structlog.get_logger(__name__)


class RefusedError(Exception):
    """The request is answered with an error. `reason` is for the metrics, `detail` for the answer."""

    def __init__(
        self, status: int, reason: str, detail: str, headers: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(detail)
        self.status = status
        self.reason = reason
        self.detail = detail
        self.headers = headers


class Webhook:
    """The endpoint, as plain ASGI: routing, injection and validation of a framework would be a third of its work."""

    def __init__(
        self,
        inbox: Inbox,
        secrets: WebhookSecrets,
        entries: Mapping[str, Entry],
        metrics: Metrics,
        *,
        debounce: float,
        reader: BodyReader,
    ) -> None:
        self._inbox = inbox
        self._secrets = secrets
        self._entries = entries
        self._metrics = metrics
        self._debounce = debounce
        self._reader = reader

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        started = time.perf_counter()
        headers = dict(reversed(scope["headers"]))  # the first of each name
        guid = headers.get(b"x-github-delivery", b"")
        # On every line from here on; also on those about deliveries that are not believed.
        structlog.contextvars.bind_contextvars(
            delivery=guid.decode().lower() if _GUID.fullmatch(guid) else ""
        )
        try:
            if scope["method"] != "POST":
                raise RefusedError(405, "method", "Send deliveries by POST.", {"Allow": "POST"})
            outcome = await self._receive(Request(scope, receive), headers)
        except RefusedError as refused:
            self._metrics.rejected.labels(refused.reason).inc()
            _log.warning("delivery rejected", reason=refused.reason, status=refused.status)
            # What was not read of the body is not waited for.
            unread = refused.reason in ("too_large", "slow", "busy")
            more = dict(refused.headers or {}) | ({"Connection": "close"} if unread else {})
            await problem(refused.status, refused.detail, headers=more)(scope, receive, send)
        else:
            body = b'{"outcome":"%s"}' % outcome.encode()
            answer_headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
            await send({"type": "http.response.start", "status": 202, "headers": answer_headers})
            await send({"type": "http.response.body", "body": body})
        finally:
            structlog.contextvars.clear_contextvars()
            self._metrics.accept_seconds.observe(time.perf_counter() - started)

    async def _receive(self, request: Request, headers: Mapping[bytes, bytes]) -> str:
        """The outcome of the delivery."""
        body = await self._body(request)
        await self._verify(request, body)
        guid, event = _named(headers)
        structlog.contextvars.bind_contextvars(github_event=event)
        action, jobs, outcome = self._handle(event, body)
        if jobs:
            structlog.contextvars.bind_contextvars(repository=jobs[0].repository)
            outcome = await self._store(guid, event, action, jobs)
        else:
            _log.info("delivery ignored", action=action, outcome=outcome)
        self._metrics.delivery(event, outcome)
        return outcome

    async def _body(self, request: Request) -> bytes | bytearray:
        try:
            return await self._reader.read(request)
        except BodyError as error:
            reason = {413: "too_large", 408: "slow", 503: "busy"}.get(error.status, "cut_off")
            headers = {"Retry-After": "60"} if error.status == 503 else None
            raise RefusedError(error.status, reason, error.detail, headers) from None

    async def _verify(self, request: Request, body: bytes | bytearray) -> None:
        secrets = self._secrets.known()
        if not secrets:
            try:
                secrets = await asyncio.to_thread(self._secrets.look)
            except (CredentialsError, SQLAlchemyError) as error:
                _log.error("the webhook secret cannot be read", error=str(error))
            if not secrets:
                raise RefusedError(503, "no_secret", "The service has no webhook secret yet.")
        given = [value for name, value in request.scope["headers"] if name == b"x-hub-signature-256"]
        failure = signature.check(body, given, secrets)
        if failure is not None:
            # One text for all: whoever has no secret learns nothing.
            raise RefusedError(401, f"signature_{failure.value}", "The signature is missing or wrong.")

    def _handle(self, event: str, body: bytes | bytearray) -> tuple[str, Sequence[NewJob], str]:
        """The action, the jobs, and the outcome when there are none."""
        entry = self._entries.get(event)
        try:
            payload = (entry.model if entry else Event).model_validate_json(body)
        except ValidationError as error:
            return self._malformed(entry, body, error)
        handler = entry.handlers.get(payload.action) if entry else None
        if handler is None:
            return payload.action, (), "ignored"
        jobs = handler(payload, Delivery(body, self._debounce))
        if jobs and not payload.installation_id:
            # We can only speak to GitHub as an installation of the App.
            _log.warning("this delivery is of a repository's or an organisation's webhook, not of the App's")
            return payload.action, (), "no_installation"
        return payload.action, jobs, "ignored"

    def _malformed(
        self, entry: Entry | None, body: bytes | bytearray, error: ValidationError
    ) -> tuple[str, Sequence[NewJob], str]:
        """GitHub signed it, but it does not have the shape that we know: answered 202 nevertheless.

        With an error it would count as failed, and be delivered again and again, each time in vain. It is counted and
        logged instead, without the values. What is no JSON object was not made by GitHub: that is an error.
        """
        kinds = {(item["type"], item["loc"]) for item in error.errors(include_url=False, include_input=False)}
        if any(kind == "json_invalid" or (kind == "model_type" and not where) for kind, where in kinds):
            raise RefusedError(400, "not_json", "The body is not a JSON object.")
        try:
            action = Event.model_validate_json(body).action
        except ValidationError:
            action = ""
        if entry is None or (action and action not in entry.handlers):
            return action, (), "ignored"
        where = sorted(".".join(map(str, loc)) + ": " + kind for kind, loc in kinds)
        _log.error("the payload does not have the expected shape", problems=where[:10])
        return action, (), "malformed"

    async def _store(self, guid: str, event: str, action: str, jobs: Sequence[NewJob]) -> str:
        try:
            new = await self._inbox.accept(guid, event, action, jobs[0].installation_id, jobs)
        except SQLAlchemyError as error:
            _log.error("the delivery cannot be stored", error=str(error))
            # GitHub notes the failure, and our sweeper asks it to deliver again.
            raise RefusedError(
                503, "database", "The database cannot be reached.", {"Retry-After": "30"}
            ) from None
        outcome = "accepted" if new else "duplicate"
        _log.info("delivery " + outcome, action=action, jobs=[str(job.kind) for job in jobs])
        return outcome


def _named(headers: Mapping[bytes, bytes]) -> tuple[str, str]:
    """The delivery's GUID and its event."""
    kind = headers.get(b"content-type", b"").partition(b";")[0].strip().lower()
    if kind != b"application/json":
        raise RefusedError(
            415,
            "content_type",
            "The payload is not JSON. Set the webhook's content type to application/json in the settings of the "
            "GitHub App.",
        )
    guid = headers.get(b"x-github-delivery", b"")
    if not _GUID.fullmatch(guid):
        raise RefusedError(400, "delivery_id", "X-GitHub-Delivery is not a GUID.")
    event = headers.get(b"x-github-event", b"")
    if not _EVENT.fullmatch(event):
        raise RefusedError(400, "event", "X-GitHub-Event is not the name of an event.")
    return guid.decode().lower(), event.decode()
