"""The one place that sends requests to GitHub: through PyGithub's `Requester`, over connections of our own.

What PyGithub 2.10 does and we do not want, hence the connections: it follows a 301 for writes too and loses the
query, sleeps and asks without end while a read answers 202, writes whole answers (tokens among them) to its debug
log, and its retries sleep for as long as `Retry-After` says. urllib3 repeats any method after a TLS error, also one
that comes after the request was read. So reads and writes have a connection each, and that for writes has no
retries at all. The requester adds authentication and the pause between writes.
"""

from __future__ import annotations

import json
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any, NoReturn, Protocol, TypeVar, cast, runtime_checkable

import requests
from github.Auth import Auth
from github.Requester import HTTPSRequestsConnectionClass, Requester
from requests.adapters import HTTPAdapter
from urllib3 import Retry
from urllib3.exceptions import NewConnectionError

from ptopt import __version__
from ptopt.github.endpoint import Endpoint
from ptopt.github.error_responses import one_line, refusal
from ptopt.github.errors import AmbiguousError, GitHubError, TooLargeError, UnavailableError

T = TypeVar("T")

API_VERSION = "2022-11-28"
PER_PAGE = 100
MAX_PAGES = 100
MAX_ANSWER = 64 * 2**20  # bytes
TIMEOUT = (10.0, 30.0)  # seconds to connect, and of silence
_REDIRECTS = 3
_MOVED = (301, 302, 307, 308)


@runtime_checkable
class Renewable(Protocol):
    """Authentication that can do away with a token that GitHub no longer takes."""

    def renew(self, refused: str) -> None:
        """`refused` is the value of the Authorization header that got a 401."""


@dataclass(slots=True)
class Answer:
    status: int = 0
    headers: dict[str, str] = field(default_factory=dict)  # names in lower case
    body: str = ""


class Transport:
    """Sends requests and reads answers. `parse` makes a value of an answer's JSON; what it cannot read is an error.

    A read is repeated twice on 5xx and broken connections, a write never; both once after a 401 when the
    authentication is `Renewable`. Nothing sleeps for a limit: RateLimitedError.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        auth: Auth | None,
        *,
        seconds_between_writes: float = 1.0,
        timeout: tuple[float, float] = TIMEOUT,
    ) -> None:
        self.endpoint = endpoint
        self._auth = auth
        self._timeout = timeout
        self._cache = _Cache()
        self._writing = threading.Lock()  # GitHub asks for writes one after the other
        again = Retry(
            total=2,
            backoff_factor=0.1,
            status_forcelist=(500, 502, 503, 504),
            allowed_methods=None,  # each that is sent here: GraphQL queries are POSTs
            respect_retry_after_header=False,
            raise_on_status=False,
        )
        self._reads = _session(again), self._requester(None)
        self._writes = _session(Retry(total=0, read=False)), self._requester(seconds_between_writes)

    def get(
        self,
        path: str,
        parse: Callable[[Any], T],
        parameters: Mapping[str, str | int] | None = None,
        *,
        limit: int = MAX_ANSWER,
    ) -> T:
        """`limit`: of the answer in bytes; TooLargeError above."""
        answer = self._get(_with(path, parameters), limit)
        return _parsed(f"GET {path}", answer.body, parse, repeatable=True)

    def pages(
        self, path: str, parse: Callable[[Any], T], parameters: Mapping[str, str | int] | None = None
    ) -> Iterator[T]:
        """One parsed value for each page of at most 100. TooLargeError after 100 pages."""
        url: str | None = _with(path, {"per_page": PER_PAGE, **(parameters or {})})

        def page(data: Any) -> tuple[T, bool]:
            return parse(data), isinstance(data, list) and len(data) >= PER_PAGE

        for _ in range(MAX_PAGES):
            if url is None:
                return
            here, answer = url, self._get(url, MAX_ANSWER)
            value, full = _parsed(f"GET {path}", answer.body, page, repeatable=True)
            url = self._next(path, answer)
            if full and url is None:
                # A page has the same ETag once another one follows it, and a 304 comes without links.
                self._cache.forget(here)
            yield value
        if url is not None:
            raise TooLargeError(f"GET {path}: more than {MAX_PAGES} pages")

    def write(
        self,
        verb: str,
        path: str,
        payload: Mapping[str, Any] | None,
        parse: Callable[[Any], T],
        *,
        shown: str | None = None,
    ) -> T:
        """Sent once. AmbiguousError when it may have been carried out, also when the answer makes no sense.

        `shown` stands for the path in error texts.
        """
        answer = self._send(verb, path, payload, repeatable=False, shown=shown)
        return _parsed(f"{verb} {shown or path}", answer.body, parse, repeatable=False)

    def post_repeatable(self, path: str, payload: Mapping[str, Any], parse: Callable[[Any], T]) -> T:
        """A POST that may be carried out twice."""
        answer = self._send("POST", path, payload, repeatable=True)
        return _parsed(f"POST {path}", answer.body, parse, repeatable=True)

    def graphql(self, payload: Mapping[str, Any], *, repeatable: bool) -> Answer:
        """Answer 200 of the GraphQL API, errors and all."""
        return self._send("POST", "", payload, repeatable=repeatable, graphql=True)

    def _get(self, url: str, limit: int) -> Answer:
        known = self._cache.get(url)
        headers = {"If-None-Match": known.headers["etag"]} if known else {}
        where = url
        for _ in range(_REDIRECTS + 1):
            answer = self._send("GET", where, None, repeatable=True, headers=headers, limit=limit)
            if answer.status not in _MOVED:
                break
            location = answer.headers.get("location", "")
            if location.startswith("/") and not location.startswith("//"):
                location = self.endpoint.origin + location
            target = self.endpoint.path_of(location)
            if target is None:
                raise refusal(f"GET {url}", answer.status, answer.headers, "", repeatable=True)
            where = target
        else:
            raise UnavailableError(f"GET {url}: more than {_REDIRECTS} redirects")
        if answer.status == 304:
            if known is None:
                raise UnavailableError(f"GET {url}: 304 without a condition", status=304)
            return known
        self._cache.put(url, answer)
        return answer

    def _next(self, path: str, answer: Answer) -> str | None:
        for link in requests.utils.parse_header_links(answer.headers.get("link", "")):
            if link.get("rel") == "next":
                url = self.endpoint.path_of(link["url"])
                if url is None:
                    raise UnavailableError(f"GET {path}: the next page is not on {self.endpoint.origin}")
                return url
        return None

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
        session, requester = self._reads if repeatable else self._writes
        for attempt in (1, 2):
            exchange = _Exchange(session, self.endpoint.origin, self._timeout, limit)
            sent = {"Accept": "application/vnd.github+json", **(headers or {})}
            # an absolute URL's path is taken as it is, a relative one's is put below the REST API
            url = self.endpoint.origin + self.endpoint.graphql if graphql else path
            failure: Exception | None = None
            try:
                with nullcontext() if repeatable else self._writing:
                    requester.requestJson(
                        verb, url, None, sent, payload, cast("HTTPSRequestsConnectionClass", exchange)
                    )
            except requests.RequestException as error:
                failure = error
            except _TooLongError:
                raise TooLargeError(f"{what}: the answer is above {limit:,} bytes", status=200) from None
            if failure is not None:  # raised out here: the library's error holds the request and its token
                _raise_broken(what, failure, repeatable)
            answer = exchange.answer
            if answer.status == 401 and attempt == 1 and isinstance(self._auth, Renewable):
                self._auth.renew(exchange.headers.get("Authorization", ""))  # a 401 did nothing yet
                continue
            break
        if 200 <= answer.status < 300 and not (verb == "GET" and answer.status == 202):
            return answer
        if verb == "GET" and answer.status in (*_MOVED, 304):
            return answer
        raise refusal(what, answer.status, answer.headers, answer.body, repeatable=repeatable)

    def _requester(self, seconds_between_writes: float | None) -> Requester:
        return Requester(
            auth=self._auth,
            base_url=self.endpoint.origin + self.endpoint.rest,
            timeout=int(self._timeout[1]),
            user_agent=f"ptopt/{__version__}",
            per_page=PER_PAGE,
            verify=True,
            retry=None,
            pool_size=None,
            seconds_between_writes=seconds_between_writes,
            api_version=API_VERSION,
        )


class _TooLongError(Exception):
    pass


class _Session(requests.Session):
    def get_redirect_target(self, _resp: requests.Response) -> None:
        """Even where no redirect is followed, requests makes the next request and reads all of the answer for it."""


class _Exchange:
    """One request and its answer, in the shape of the connections that PyGithub makes.

    PyGithub is shown the status alone, so it follows, sleeps for and logs nothing; the answer is kept here.
    """

    def __init__(
        self, session: requests.Session, origin: str, timeout: tuple[float, float], limit: int
    ) -> None:
        self._session = session
        self._origin = origin
        self._timeout = timeout
        self._limit = limit
        self.headers: dict[str, str] = {}
        self.answer = Answer()

    def request(self, verb: str, url: str, data: str | None, headers: dict[str, str], _stream: bool) -> None:
        self._request = verb, url, data
        self.headers = headers

    def getresponse(self) -> _Exchange:
        verb, url, data = self._request
        with self._session.request(
            verb,
            self._origin + url,
            headers=self.headers,
            data=data,
            timeout=self._timeout,
            allow_redirects=False,
            stream=True,
        ) as response:
            chunks = bytearray()
            for chunk in response.iter_content(2**16):
                chunks += chunk
                if len(chunks) > self._limit:
                    raise _TooLongError
            headers = {name.lower(): value for name, value in response.headers.items()}
            self.answer = Answer(response.status_code, headers, chunks.decode("utf-8", "replace"))
        return self

    @property
    def status(self) -> int:
        return 200 if self.answer.status == 202 else self.answer.status

    def getheaders(self) -> tuple[tuple[str, str], ...]:
        return ()

    def read(self) -> str:
        return ""


class _Cache:
    """Answers with an ETag, by URL; those that were not asked for the longest go first."""

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

    def forget(self, url: str) -> None:
        with self._lock:
            self._drop(url)

    def put(self, url: str, answer: Answer) -> None:
        with self._lock:
            self._drop(url)
            if not answer.headers.get("etag") or len(answer.body) > self.LONGEST:
                return
            self._answers[url] = answer
            self._size += len(answer.body)
            while self._size > self.SIZE:
                self._size -= len(self._answers.popitem(last=False)[1].body)

    def _drop(self, url: str) -> None:
        old = self._answers.pop(url, None)
        self._size -= len(old.body) if old else 0


def _session(retries: Retry) -> requests.Session:
    session = _Session()
    session.auth = Requester.noopAuth  # else a .netrc would overwrite our Authorization header
    adapter = HTTPAdapter(max_retries=retries)
    session.mount("https://", adapter)
    session.mount("http://", adapter)
    return session


def _with(path: str, parameters: Mapping[str, str | int] | None) -> str:
    return Requester.add_parameters_to_url(path, dict(parameters or {}))


def _raise_broken(what: str, error: Exception, repeatable: bool) -> NoReturn:
    """No answer. Of the error only its kind is told."""
    cause = getattr(error.args[0] if error.args else None, "reason", None)
    unsent = isinstance(error, requests.ConnectTimeout) or isinstance(cause, NewConnectionError)
    kind: type[GitHubError] = UnavailableError if repeatable or unsent else AmbiguousError
    raise kind(f"{what}: no answer ({type(error).__name__})")


def _parsed(what: str, body: str, parse: Callable[[Any], T], *, repeatable: bool) -> T:
    try:
        return parse(json.loads(body) if body else None)
    except (AttributeError, LookupError, RecursionError, TypeError, ValueError) as error:
        kind: type[GitHubError] = UnavailableError if repeatable else AmbiguousError
        text = one_line(f"{type(error).__name__}: {error}")
        raise kind(f"{what}: the answer is not understood ({text})", status=200) from None
