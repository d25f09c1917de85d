"""The HTTP client of all sources: rate-limited, restricted to named hosts, with retries and a cache.

It waits between requests, obeys Retry-After and robots.txt, revalidates what it has cached, and reads answers only up to a
limit.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import timezone
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Any

import httpx
import tenacity
from hishel import CacheOptions, SqliteStorage
from hishel.httpx import CacheTransport
from protego import Protego

from ptopt import __version__
from ptopt.http import TooMuchError, read_bounded
from training.sources.base import QuotaError, SourceError, UnusableError
from training.sources.throttle import Clock, RequestPolicy, SystemClock, ThrottledTransport

USER_AGENT = f"ptopt-training/{__version__}"
_ROBOTS_BYTES = 500_000
_ROBOTS_ABSENT = frozenset(range(400, 500)) - {429}  # statuses that say there is none
_MAX_REDIRECTS = 3


@dataclass(frozen=True, slots=True)
class Reply:
    """A complete response with one of the expected statuses."""

    url: str
    status: int
    headers: httpx.Headers
    body: bytes

    def json(self) -> Any:
        """Raises UnusableError."""
        try:
            return json.loads(self.body)
        except (ValueError, RecursionError):
            raise UnusableError(f"{self.url}: the answer is not JSON", self.status) from None

    @property
    def text(self) -> str:
        return self.body.decode("utf-8", "replace")

    def next_url(self) -> str | None:
        """The `rel="next"` of the Link header."""
        for link in httpx.Response(200, headers=self.headers).links.values():
            if link.get("rel") == "next":
                return link.get("url")
        return None


class _RetryError(Exception):
    """A transient failure. `wait`: seconds that the server named, or 0."""

    def __init__(self, why: str, wait: float = 0.0) -> None:
        super().__init__(why)
        self.wait = wait


class HttpClient:
    """Sends requests to `hosts` ("name" or "name:port") only, whatever a redirect or a link names.

    `secrets` are headers by host; they are sent to that host alone. `cache` is a file; without it nothing is kept.
    """

    def __init__(
        self,
        hosts: Collection[str],
        *,
        policy: RequestPolicy | None = None,
        clock: Clock | None = None,
        cache: Path | None = None,
        secrets: Mapping[str, Mapping[str, str]] | None = None,
        contact: str = "",
    ) -> None:
        self._hosts = frozenset(hosts)
        self._policy = policy = policy or RequestPolicy()
        self.clock = clock or SystemClock()
        self._throttled = ThrottledTransport(policy, self.clock, secrets or {})
        transport: httpx.BaseTransport = self._throttled
        if cache is not None:
            cache.parent.mkdir(parents=True, exist_ok=True)
            storage = SqliteStorage(database_path=cache, max_stream_size=policy.max_bytes)
            transport = CacheTransport(transport, storage=storage, rfc=CacheOptions(shared=False))
        self._http = httpx.Client(
            transport=transport,
            timeout=policy.timeout,
            trust_env=False,  # no .netrc
            headers={
                "user-agent": f"{USER_AGENT} ({contact})" if contact else USER_AGENT,
                "accept-encoding": "gzip, deflate",
            },
        )
        self._robots: dict[str, Protego] = {}

    def __enter__(self) -> HttpClient:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._http.close()

    @property
    def sent(self) -> int:
        """Requests that left this machine."""
        return self._throttled.sent

    def pause(self, url: str, seconds: float) -> None:
        """Send nothing to this host for so long. Raises QuotaError for more than the policy's `max_wait`."""
        self._check_wait(seconds, url)
        self._throttled.pause(httpx.URL(url).netloc.decode(), seconds)

    def get(
        self,
        url: str,
        params: Mapping[str, str | int] | None = None,
        *,
        headers: Mapping[str, str] | None = None,
        accept: Collection[int] = (),
        max_bytes: int | None = None,
    ) -> Reply:
        """A successful response, or one with a status in `accept`. Raises UnusableError, QuotaError, SourceError."""
        target = httpx.URL(url)
        request = self._http.build_request(
            "GET", target.copy_merge_params(dict(params)) if params else target, headers=headers
        )
        return self._with_retries(request, accept, max_bytes)

    def post_json(self, url: str, payload: object) -> Reply:
        """As `get`. The request is retried after a transient failure: only for calls that change nothing."""
        return self._with_retries(self._http.build_request("POST", url, json=payload), (), None)

    # -- one request

    def _with_retries(self, request: httpx.Request, accept: Collection[int], max_bytes: int | None) -> Reply:
        retrying = tenacity.Retrying(
            sleep=self.clock.sleep,
            stop=tenacity.stop_after_attempt(self._policy.attempts),
            wait=_wait,
            retry=tenacity.retry_if_exception_type(_RetryError),
            reraise=True,
        )
        try:
            return retrying(self._follow, request, accept, max_bytes or self._policy.max_bytes)
        except _RetryError as error:
            kind = QuotaError if error.wait else SourceError
            raise kind(
                f"{_without_query(request.url)}: {error}, {self._policy.attempts} times; pull again later"
            ) from None

    def _follow(self, request: httpx.Request, accept: Collection[int], max_bytes: int) -> Reply:
        for _ in range(_MAX_REDIRECTS + 1):
            self._check_allowed(request.url)
            reply = self._once(request, accept, max_bytes)
            if not 300 <= reply.status < 400:
                return reply
            try:
                target = request.url.join(reply.headers.get("location", ""))
            except (httpx.InvalidURL, ValueError):
                raise UnusableError(
                    f"{_without_query(request.url)}: redirects to no address", reply.status
                ) from None
            if target.netloc != request.url.netloc or (target.scheme, request.url.scheme) == (
                "http",
                "https",
            ):
                raise UnusableError(
                    f"{_without_query(request.url)}: redirects to another host, {target.host!r:.100}",
                    reply.status,
                )
            request = self._http.build_request("GET", target, headers={"accept": request.headers["accept"]})
        raise UnusableError(f"{_without_query(request.url)}: redirects too often")

    def _once(self, request: httpx.Request, accept: Collection[int], max_bytes: int) -> Reply:
        try:
            response = self._http.send(request, stream=True)
            try:
                self._check_status(response, accept)
                body = read_bounded(response, max_bytes)
            finally:
                response.close()
        except TooMuchError:
            where = f"{_without_query(request.url)}: larger than {max_bytes / 1e6:g} MB"
            raise UnusableError(where, response.status_code) from None
        except httpx.DecodingError as error:
            raise UnusableError(
                f"{_without_query(request.url)}: a body that does not decode ({error})"
            ) from None
        except (httpx.TransportError, httpx.StreamError) as error:
            raise _RetryError(f"no answer ({type(error).__name__})") from None
        return Reply(str(request.url), response.status_code, response.headers, body)

    def _check_status(self, response: httpx.Response, accept: Collection[int]) -> None:
        """Return for a response that can be used or followed; raise for any other."""
        status, headers = response.status_code, response.headers
        where = _without_query(response.request.url)
        if response.is_success or status in accept or (300 <= status < 400 and "location" in headers):
            return
        exhausted = headers.get("x-ratelimit-remaining") == "0"
        if status == 429 or status >= 500 or (status == 403 and (exhausted or "retry-after" in headers)):
            wait = _retry_after(headers, self.clock.now())
            if not wait and exhausted:
                wait = max(1.0, _number(headers.get("x-ratelimit-reset", "")) - self.clock.now())
            self._check_wait(wait, where)
            raise _RetryError(f"status {status}", wait or (1.0 if status == 429 else 0.0))
        if status == 401:
            raise SourceError(f"{where}: the credentials were refused")
        raise UnusableError(f"{where}: status {status}", status)

    def _check_wait(self, seconds: float, where: str) -> None:
        if seconds > self._policy.max_wait:
            raise QuotaError(f"{where}: asks to wait {seconds:.0f} s; pull again after that")

    # -- which URLs are allowed

    def _check_allowed(self, url: httpx.URL) -> None:
        if url.scheme not in ("http", "https") or url.netloc.decode() not in self._hosts or url.userinfo:
            raise UnusableError(f"{_without_query(url)}: not one of the hosts of this source")
        if self._policy.robots and not self._robots_rules(url).can_fetch(str(url), USER_AGENT):
            raise UnusableError(f"{_without_query(url)}: robots.txt says no", 403)

    def _robots_rules(self, url: httpx.URL) -> Protego:
        """The host's robots.txt: a missing one allows all, an unreachable one forbids all (RFC 9309)."""
        host = url.netloc.decode()
        if host not in self._robots:
            address = url.copy_with(raw_path=b"/robots.txt", fragment=None)
            request = self._http.build_request("GET", address)
            try:
                reply = self._once(request, _ROBOTS_ABSENT, _ROBOTS_BYTES)
            except _RetryError as error:
                raise _RetryError(f"its robots.txt: {error}", error.wait) from None
            if 300 <= reply.status < 400:
                raise SourceError(f"{address} redirects; without it nothing may be read")
            rules = Protego.parse(reply.text if reply.status < 300 else "")
            self._robots[host] = rules
            self._throttled.delays[host] = min(
                float(rules.crawl_delay(USER_AGENT) or 0.0), self._policy.max_wait
            )
        return self._robots[host]


def _wait(state: tenacity.RetryCallState) -> float:
    error = state.outcome.exception() if state.outcome else None
    named = error.wait if isinstance(error, _RetryError) else 0.0
    return max(named, float(min(60, 2**state.attempt_number)))


def _retry_after(headers: httpx.Headers, now: float) -> float:
    """Seconds of a Retry-After header, given as a number or a date; 0 without one."""
    text = headers.get("retry-after", "")
    if not text or text.isdigit():
        return _number(text)
    try:
        when = parsedate_to_datetime(text)
    except ValueError:
        return 0.0
    return max(0.0, when.replace(tzinfo=when.tzinfo or timezone.utc).timestamp() - now)


def _number(text: str) -> float:
    return float(text) if text.isascii() and text.isdigit() and len(text) < 16 else 0.0


def _without_query(url: httpx.URL) -> str:
    """The URL without its query, which may hold a key; at most 200 characters."""
    return f"{url.scheme}://{url.host}{url.path}"[:200]
