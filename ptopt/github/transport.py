"""The one place that sends requests to GitHub, over httpx.

httpx follows no redirect and repeats no request, which is what writes need. Reads are repeated and redirected here,
within GitHub's API and their limits. PyGithub's `Requester` does neither as we want it: it follows a 301 for writes
too, sleeps while a read answers 202 and for as long as `Retry-After` says, bounds no answer, and writes whole ones
(tokens among them) to its debug log.
"""

from __future__ import annotations

import functools
import json
import logging
import os
import ssl
import threading
import time
import weakref
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any, NoReturn, TypeVar
from urllib.parse import urlencode

import httpx

from ptopt import __version__
from ptopt.github.endpoint import Endpoint
from ptopt.github.error_responses import one_line, refusal
from ptopt.github.errors import AmbiguousError, GitHubError, TooLargeError, UnavailableError
from ptopt.http import TooMuchError, read_bounded

logging.getLogger("httpcore").setLevel(logging.INFO)  # its debug log holds the headers of answers

T = TypeVar("T")

API_VERSION = "2022-11-28"
PER_PAGE = 100
MAX_PAGES = 100
MAX_ANSWER = 64 * 2**20  # bytes
TIMEOUT = (10.0, 30.0)  # seconds to connect, and of silence
_REDIRECTS = 3
_MOVED = (301, 302, 307, 308)
_TRANSIENT = (500, 502, 503, 504)
_PAUSES = (0.1, 0.2)  # seconds before a read is repeated
_NOT_SENT = '""'  # the ETag of what has none: an immutable answer that is known is not requested again
_UNSENT = (
    httpx.ConnectError,
    httpx.ConnectTimeout,
    httpx.InvalidURL,
    httpx.PoolTimeout,
    httpx.UnsupportedProtocol,
)


@dataclass(slots=True)
class Answer:
    status: int = 0
    headers: httpx.Headers = field(default_factory=httpx.Headers)
    body: str = ""
    next_url: str | None = None  # of the Link header
    location: str = ""


class Transport:
    """Sends requests and reads answers. `parse` makes a value of an answer's JSON; what it cannot read is an error.

    A read is repeated twice on 5xx and broken connections, a write never; both once after a 401 where `auth` gets
    another token. Nothing sleeps for a limit: RateLimitedError.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        auth: httpx.Auth | None,
        *,
        seconds_between_writes: float = 1.0,
        timeout: tuple[float, float] = TIMEOUT,
    ) -> None:
        self.endpoint = endpoint
        self._cache = _Cache()
        self._writing = threading.Lock()  # GitHub asks for writes one after the other, with a pause
        self._seconds_between_writes = seconds_between_writes
        self._next_write = 0.0
        self._http = httpx.Client(
            auth=auth,
            headers={
                "Accept": "application/vnd.github+json",
                "User-Agent": f"ptopt/{__version__}",
                "X-GitHub-Api-Version": API_VERSION,
            },
            timeout=httpx.Timeout(timeout[1], connect=timeout[0]),
            verify=_trusted(os.environ.get("SSL_CERT_FILE"), os.environ.get("SSL_CERT_DIR")),
            event_hooks={"response": [_keep_location]},
        )
        weakref.finalize(self, self._http.close)

    def get(
        self,
        path: str,
        parse: Callable[[Any], T],
        parameters: Mapping[str, str | int] | None = None,
        *,
        limit: int = MAX_ANSWER,
        immutable: bool = False,
    ) -> T:
        """`limit`: of the answer in bytes; TooLargeError above. `immutable`: an answer that is known is not read again."""
        url = _with(path, parameters)
        known = self._cache.get(url) if immutable else None
        answer = known or self._get(url, limit)
        return _parsed(f"GET {path}", answer.body, parse, repeatable=True)

    def known(self, path: str, parse: Callable[[Any], T]) -> T | None:
        """What an `immutable` read of `path` gives without a request; None where it takes one."""
        answer = self._cache.get(path)
        return None if answer is None else _parsed(f"GET {path}", answer.body, parse, repeatable=True)

    def remember(self, path: str, data: object) -> None:
        """Let `data`, which came another way, be what an `immutable` read of `path` is answered."""
        self._cache.put(path, Answer(200, httpx.Headers({"etag": _NOT_SENT}), json.dumps(data)))

    def pages(
        self,
        path: str,
        parse: Callable[[Any], T],
        parameters: Mapping[str, str | int] | None = None,
        most: int | None = None,
    ) -> Iterator[T]:
        """One parsed value for each page of at most 100. TooLargeError after `most` pages (default: 100)."""
        most = MAX_PAGES if most is None else most
        url: str | None = _with(path, {"per_page": PER_PAGE, **(parameters or {})})

        def page(data: Any) -> tuple[T, bool]:
            return parse(data), isinstance(data, list) and len(data) >= PER_PAGE

        for _ in range(most):
            if url is None:
                return
            here, answer = url, self._get(url, MAX_ANSWER)
            value, full = _parsed(f"GET {path}", answer.body, page, repeatable=True)
            url = self._next(path, answer)
            if full and url is None:
                # A page has the same ETag once another one follows it, and a 304 comes without links.
                self._cache.put(here, Answer())
            yield value
        if url is not None:
            raise TooLargeError(f"GET {path}: more than {most:,} pages")

    def write(
        self,
        verb: str,
        path: str,
        payload: Mapping[str, Any] | None,
        parse: Callable[[Any], T],
        *,
        shown: str | None = None,
        accept: str | None = None,
    ) -> T:
        """Sent once. AmbiguousError when it may have been carried out, also when the answer makes no sense.

        `shown` stands for the path in error texts; `accept` for the media type of the REST API.
        """
        headers = {"Accept": accept} if accept else None
        answer = self._send(verb, path, payload, repeatable=False, headers=headers, shown=shown)
        return _parsed(f"{verb} {shown or path}", answer.body, parse, repeatable=False)

    def post_repeatable(self, path: str, payload: Mapping[str, Any], parse: Callable[[Any], T]) -> T:
        """A POST that may be carried out twice."""
        answer = self._send("POST", path, payload, repeatable=True)
        return _parsed(f"POST {path}", answer.body, parse, repeatable=True)

    def graphql(self, payload: Mapping[str, Any], *, repeatable: bool) -> Answer:
        """Answer 200 of the GraphQL API, errors and all."""
        return self._send("POST", "", payload, repeatable=repeatable, graphql=True)

    def _get(self, path: str, limit: int) -> Answer:
        known = self._cache.get(path)
        headers = {"If-None-Match": known.headers["etag"]} if known else {}
        here = path
        for _ in range(_REDIRECTS + 1):
            answer = self._send("GET", here, None, repeatable=True, headers=headers, limit=limit)
            if answer.status not in _MOVED:
                break
            location = answer.location
            if location.startswith("/") and not location.startswith("//"):
                location = self.endpoint.origin + location
            target = self.endpoint.path_of(location)
            if target is None:
                raise refusal(f"GET {path}", answer.status, answer.headers, "", repeatable=True)
            here = target
        else:
            raise UnavailableError(f"GET {path}: more than {_REDIRECTS} redirects")
        if answer.status == 304:
            if known is None:
                raise UnavailableError(f"GET {path}: 304 without a condition", status=304)
            return known
        self._cache.put(path, answer)
        return answer

    def _next(self, path: str, answer: Answer) -> str | None:
        if answer.next_url is None:
            return None
        target = self.endpoint.path_of(answer.next_url)
        if target is None:
            raise UnavailableError(f"GET {path}: the next page is not on {self.endpoint.origin}")
        return target

    def _send(
        self,
        verb: str,
        path: str,
        payload: Mapping[str, Any] | None,
        *,
        repeatable: bool,
        headers: Mapping[str, str] | None = None,
        limit: int = MAX_ANSWER,
        shown: str | None = None,
        graphql: bool = False,
    ) -> Answer:
        """2xx, or for a GET a redirect or 304; any other answer is raised."""
        what = "POST GraphQL" if graphql else f"{verb} {shown or path}"
        url = self.endpoint.origin + (self.endpoint.graphql if graphql else self.endpoint.rest + path)
        content = None if payload is None else json.dumps(payload)
        sent = {**(headers or {}), **({} if content is None else {"Content-Type": "application/json"})}
        for pause in (*_PAUSES, None) if repeatable else (None,):
            failure: Exception | None = None
            try:
                with (
                    nullcontext() if repeatable else self._turn_to_write(),
                    self._http.stream(verb, url, content=content, headers=sent) as response,
                ):
                    body = read_bounded(response, limit).decode("utf-8", "replace")
            except (httpx.HTTPError, httpx.InvalidURL) as error:
                failure = error
            except TooMuchError:
                raise TooLargeError(f"{what}: the answer is above {limit:,} bytes", status=200) from None
            if pause is None or not (failure or response.status_code in _TRANSIENT):
                break
            time.sleep(pause)
        if failure is not None:  # raised out here: httpx's error holds the request and its token
            _raise_broken(what, failure, repeatable)
        status = response.status_code
        if (200 <= status < 300 and (verb, status) != ("GET", 202)) or (
            verb == "GET" and status in (*_MOVED, 304)
        ):
            next_url = response.links.get("next", {}).get("url")
            return Answer(status, response.headers, body, next_url, response.extensions["location"])
        raise refusal(what, status, response.headers, body, repeatable=repeatable)

    @contextmanager
    def _turn_to_write(self) -> Iterator[None]:
        with self._writing:
            pause = self._next_write - time.monotonic()
            if pause > 0:
                time.sleep(pause)
            try:
                yield
            finally:
                self._next_write = time.monotonic() + self._seconds_between_writes


class _Cache:
    """Answers with an ETag, by URL; the least recently used go first."""

    SIZE = 2**22  # characters of all bodies; a worker keeps many clients
    LONGEST = 2**20  # of one

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._size = 0
        self._answers: OrderedDict[str, Answer] = OrderedDict()

    def get(self, url: str) -> Answer | None:
        with self._lock:
            answer = self._answers.get(url)
            if answer is not None:
                self._answers.move_to_end(url)
            return answer

    def put(self, url: str, answer: Answer) -> None:
        """An answer without an ETag, or a long one, takes away what was known."""
        with self._lock:
            old = self._answers.pop(url, None)
            self._size -= len(old.body) if old else 0
            if not answer.headers.get("etag") or len(answer.body) > self.LONGEST:
                return
            self._answers[url] = answer
            self._size += len(answer.body)
            while self._size > self.SIZE:
                self._size -= len(self._answers.popitem(last=False)[1].body)


@functools.cache
def _trusted(_file: str | None, _folder: str | None) -> ssl.SSLContext:
    """The authorities that httpx and these two variables name. Read once, so that another client costs next to nothing."""
    return httpx.create_ssl_context()


def _keep_location(response: httpx.Response) -> None:
    """httpx makes the request to wherever a redirect leads, even if it does not send it, and fails at some."""
    response.extensions["location"] = response.headers.pop("location", "")


def _with(path: str, parameters: Mapping[str, str | int] | None) -> str:
    return f"{path}?{urlencode(parameters)}" if parameters else path


def _raise_broken(what: str, error: Exception, repeatable: bool) -> NoReturn:
    """No answer. The error's text may hold a secret: only its class is shown."""
    kind: type[GitHubError] = UnavailableError if repeatable or isinstance(error, _UNSENT) else AmbiguousError
    raise kind(f"{what}: no answer ({type(error).__name__})")


def _parsed(what: str, body: str, parse: Callable[[Any], T], *, repeatable: bool) -> T:
    try:
        return parse(json.loads(body) if body else None)
    except (AttributeError, LookupError, RecursionError, TypeError, ValueError) as error:
        kind: type[GitHubError] = UnavailableError if repeatable else AmbiguousError
        text = one_line(f"{type(error).__name__}: {error}")
        raise kind(f"{what}: the answer is not understood ({text})", status=200) from None
