"""The HTTP client of all sources: slow on purpose, patient, and deaf to what it was not meant to hear.

It keeps to the hosts it was given, waits between requests, does what Retry-After and robots.txt say, asks again only if
something changed, and never reads more than it wants to hold.
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
from training.sources.throttle import Clock, Manners, Paced, SystemClock

AGENT = f"ptopt-training/{__version__}"
_ROBOTS_BYTES = 500_000
_NO_ROBOTS = frozenset(range(400, 500)) - {429}  # statuses that say there is none
_HOPS = 3


@dataclass(frozen=True, slots=True)
class Reply:
    """A whole answer with one of the expected statuses."""

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
    """A passing failure. `wait`: as the server asks."""

    def __init__(self, why: str, wait: float = 0.0) -> None:
        super().__init__(why)
        self.wait = wait


class PoliteClient:
    """Reads `hosts` ("name" or "name:port"), and nothing else, whatever an answer says.

    `secrets` are headers by host; they are sent to that host alone. `cache` is a file; without it nothing is kept.
    """

    def __init__(
        self,
        hosts: Collection[str],
        *,
        manners: Manners | None = None,
        clock: Clock | None = None,
        cache: Path | None = None,
        secrets: Mapping[str, Mapping[str, str]] | None = None,
        contact: str = "",
    ) -> None:
        self._hosts = frozenset(hosts)
        self._manners = manners = manners or Manners()
        self.clock = clock or SystemClock()
        self._paced = Paced(manners, self.clock, secrets or {})
        transport: httpx.BaseTransport = self._paced
        if cache is not None:
            cache.parent.mkdir(parents=True, exist_ok=True)
            storage = SqliteStorage(database_path=cache, max_stream_size=manners.max_bytes)
            transport = CacheTransport(transport, storage=storage, rfc=CacheOptions(shared=False))
        self._http = httpx.Client(
            transport=transport,
            timeout=manners.timeout,
            trust_env=False,  # no .netrc
            headers={
                "user-agent": f"{AGENT} ({contact})" if contact else AGENT,
                "accept-encoding": "gzip, deflate",
            },
        )
        self._robots: dict[str, Protego] = {}

    def __enter__(self) -> PoliteClient:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._http.close()

    @property
    def sent(self) -> int:
        """Requests that left this machine."""
        return self._paced.sent

    def hold(self, url: str, seconds: float) -> None:
        """Send nothing to this host for so long. Raises QuotaError where that is longer than we wait."""
        self._patience(seconds, url)
        self._paced.hold(httpx.URL(url).netloc.decode(), seconds)

    def get(
        self,
        url: str,
        params: Mapping[str, str | int] | None = None,
        *,
        headers: Mapping[str, str] | None = None,
        accept: Collection[int] = (),
        max_bytes: int | None = None,
    ) -> Reply:
        """A successful answer, or one whose status is in `accept`. Raises UnusableError, QuotaError, SourceError."""
        target = httpx.URL(url)
        request = self._http.build_request(
            "GET", target.copy_merge_params(dict(params)) if params else target, headers=headers
        )
        return self._retrying(request, accept, max_bytes)

    def post_json(self, url: str, payload: object) -> Reply:
        """As `get`. The request is repeated after a passing failure: only for calls that change nothing."""
        return self._retrying(self._http.build_request("POST", url, json=payload), (), None)

    # -- one request

    def _retrying(self, request: httpx.Request, accept: Collection[int], max_bytes: int | None) -> Reply:
        retrying = tenacity.Retrying(
            sleep=self.clock.sleep,
            stop=tenacity.stop_after_attempt(self._manners.attempts),
            wait=_wait,
            retry=tenacity.retry_if_exception_type(_RetryError),
            reraise=True,
        )
        try:
            return retrying(self._follow, request, accept, max_bytes or self._manners.max_bytes)
        except _RetryError as error:
            kind = QuotaError if error.wait else SourceError
            raise kind(
                f"{_shown(request.url)}: {error}, {self._manners.attempts} times; pull again later"
            ) from None

    def _follow(self, request: httpx.Request, accept: Collection[int], max_bytes: int) -> Reply:
        for _ in range(_HOPS + 1):
            self._check(request.url)
            reply = self._once(request, accept, max_bytes)
            if not 300 <= reply.status < 400:
                return reply
            try:
                target = request.url.join(reply.headers.get("location", ""))
            except (httpx.InvalidURL, ValueError):
                raise UnusableError(f"{_shown(request.url)}: redirects to no address", reply.status) from None
            if target.netloc != request.url.netloc or (target.scheme, request.url.scheme) == (
                "http",
                "https",
            ):
                raise UnusableError(
                    f"{_shown(request.url)}: redirects to another host, {target.host!r:.100}", reply.status
                )
            request = self._http.build_request("GET", target, headers={"accept": request.headers["accept"]})
        raise UnusableError(f"{_shown(request.url)}: redirects too often")

    def _once(self, request: httpx.Request, accept: Collection[int], max_bytes: int) -> Reply:
        try:
            response = self._http.send(request, stream=True)
            try:
                self._judge(response, accept)
                body = read_bounded(response, max_bytes)
            finally:
                response.close()
        except TooMuchError:
            where = f"{_shown(request.url)}: larger than {max_bytes / 1e6:g} MB"
            raise UnusableError(where, response.status_code) from None
        except httpx.DecodingError as error:
            raise UnusableError(f"{_shown(request.url)}: a body that does not decode ({error})") from None
        except (httpx.TransportError, httpx.StreamError) as error:
            raise _RetryError(f"no answer ({type(error).__name__})") from None
        return Reply(str(request.url), response.status_code, response.headers, body)

    def _judge(self, response: httpx.Response, accept: Collection[int]) -> None:
        """Returns for an answer that can be used or followed."""
        status, headers = response.status_code, response.headers
        where = _shown(response.request.url)
        if response.is_success or status in accept or (300 <= status < 400 and "location" in headers):
            return
        spent = headers.get("x-ratelimit-remaining") == "0"
        if status == 429 or status >= 500 or (status == 403 and (spent or "retry-after" in headers)):
            wait = _retry_after(headers, self.clock.now())
            if not wait and spent:
                wait = max(1.0, _number(headers.get("x-ratelimit-reset", "")) - self.clock.now())
            self._patience(wait, where)
            raise _RetryError(f"status {status}", wait or (1.0 if status == 429 else 0.0))
        if status == 401:
            raise SourceError(f"{where}: the credentials were refused")
        raise UnusableError(f"{where}: status {status}", status)

    def _patience(self, seconds: float, where: str) -> None:
        if seconds > self._manners.max_wait:
            raise QuotaError(f"{where}: asks to wait {seconds:.0f} s; pull again after that")

    # -- where it may go

    def _check(self, url: httpx.URL) -> None:
        if url.scheme not in ("http", "https") or url.netloc.decode() not in self._hosts or url.userinfo:
            raise UnusableError(f"{_shown(url)}: not one of the hosts of this source")
        if self._manners.robots and not self._rules(url).can_fetch(str(url), AGENT):
            raise UnusableError(f"{_shown(url)}: robots.txt says no", 403)

    def _rules(self, url: httpx.URL) -> Protego:
        """The host's robots.txt: one that is not there allows all, one that cannot be had forbids all (RFC 9309)."""
        host = url.netloc.decode()
        if host not in self._robots:
            address = url.copy_with(raw_path=b"/robots.txt", fragment=None)
            request = self._http.build_request("GET", address)
            try:
                reply = self._once(request, _NO_ROBOTS, _ROBOTS_BYTES)
            except _RetryError as error:
                raise _RetryError(f"its robots.txt: {error}", error.wait) from None
            if 300 <= reply.status < 400:
                raise SourceError(f"{address} redirects; without it nothing may be read")
            rules = Protego.parse(reply.text if reply.status < 300 else "")
            self._robots[host] = rules
            self._paced.delays[host] = min(float(rules.crawl_delay(AGENT) or 0.0), self._manners.max_wait)
        return self._robots[host]


def _wait(state: tenacity.RetryCallState) -> float:
    error = state.outcome.exception() if state.outcome else None
    asked = error.wait if isinstance(error, _RetryError) else 0.0
    return max(asked, float(min(60, 2**state.attempt_number)))


def _retry_after(headers: httpx.Headers, now: float) -> float:
    """Seconds that Retry-After asks for, as a number or a date; 0 without one."""
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


def _shown(url: httpx.URL) -> str:
    """The address without its query, which may hold a key, and short."""
    return f"{url.scheme}://{url.host}{url.path}"[:200]
