"""Requests to a model server: bounded in time, size and number of attempts; every failure is one line."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import tenacity
import urllib3
from urllib3.exceptions import HTTPError, NewConnectionError, ProtocolError, ProxyError, SSLError
from urllib3.exceptions import TimeoutError as SlowError

from ptopt.model.interface import ModelUnavailableError

log = logging.getLogger(__name__)

MAX_BODY = 4 << 20  # bytes
MAX_WAIT = 10.0  # seconds, whatever Retry-After says
_ONCE = urllib3.Retry(total=False, redirect=False)  # what is tried again is decided here
_BUSY = frozenset({408, 409, 425, 429, 500, 502, 503, 504})


class RefusedError(ModelUnavailableError):
    """The server answered with an error; `detail` is its message."""

    def __init__(self, status: int, detail: str) -> None:
        super().__init__(f"the model server refused ({status}): {detail}")
        self.status = status
        self.detail = detail


class _TryAgainError(Exception):
    """A failure that may pass; `after` seconds, if the server named a time."""

    def __init__(self, what: str, after: float | None = None) -> None:
        super().__init__(what)
        self.after = after


class Http:
    """A client of one server. Any request may be sent twice. Safe to share between threads.

    urllib3, as its pool takes the next idle connection; that of httpx looks through all of them for each request, and with
    64 of them a request took ten times as much of the CPU (`python -m benchmarks.serving`).

    timeout: seconds for one attempt, from connecting to the last byte; after so long no other begins. Messages never
    name the address.
    """

    def __init__(
        self, url: str, *, api_key: str | None, timeout: float, attempts: int, connections: int
    ) -> None:
        if not url.startswith(("http://", "https://")):
            raise ModelUnavailableError("the address of the model server must begin with http:// or https://")
        api_key = (api_key or "").strip()  # secrets come out of files, with a line end
        if not (api_key.isascii() and api_key.isprintable()):
            raise ModelUnavailableError(
                "the key of the model server holds characters that no header can carry"
            )
        self._headers = {"Content-Type": "application/json"}
        if api_key:
            self._headers["Authorization"] = f"Bearer {api_key}"
        self._timeout = timeout
        self._again = tenacity.Retrying(
            retry=tenacity.retry_if_exception_type(_TryAgainError),
            stop=tenacity.stop_any(tenacity.stop_after_attempt(attempts), tenacity.stop_after_delay(timeout)),
            wait=_wait,
            reraise=True,
        )
        self._base = url.rstrip("/").removesuffix("/v1")
        self._pool = _pool(self._base, maxsize=connections)

    def json(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """The object that the server answers with. Raises ModelUnavailableError."""
        text = self.text(method, path, body)
        try:
            value = json.loads(text)
        except (ValueError, RecursionError):
            raise ModelUnavailableError("the model server did not answer in JSON") from None
        if not isinstance(value, dict):
            raise ModelUnavailableError("the model server did not answer with an object")
        return value

    def text(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> str:
        """The body of a successful answer. Raises ModelUnavailableError."""
        try:
            return self._again(self._once, method, path, body)
        except _TryAgainError as error:
            log.warning("%s %s: %s", method, path, error)
            raise ModelUnavailableError(f"the model server {error}") from None

    def close(self) -> None:
        self._pool.clear()

    def _once(self, method: str, path: str, body: Mapping[str, Any] | None) -> str:
        until = time.monotonic() + self._timeout
        try:
            response = self._pool.request(
                method,
                self._base + path,
                body=None if body is None else json.dumps(body),
                headers=self._headers,
                timeout=urllib3.Timeout(connect=min(self._timeout, 5.0), read=self._timeout),
                retries=_ONCE,
                redirect=False,
                preload_content=False,
            )
            try:
                content = _read(response, until)
            finally:
                response.close()  # what was read to its end has given its connection back
        except _TooLargeError:
            raise ModelUnavailableError("the model server's answer is too large") from None
        except NewConnectionError as error:
            raise self._unreachable(method, path, error) from None
        except SlowError:
            raise _TryAgainError(f"took longer than {self._timeout:g} s") from None
        except (ProtocolError, ProxyError, SSLError) as error:
            raise self._unreachable(method, path, error) from None
        except (HTTPError, ValueError) as error:
            raise ModelUnavailableError(f"the model server cannot be used ({type(error).__name__})") from None
        if response.status in _BUSY:
            raise _TryAgainError(f"failed ({response.status})", _retry_after(response))
        text = content.decode("utf-8", "replace")
        if not 200 <= response.status < 300:
            raise RefusedError(response.status, _error_message(text))
        return text

    def _unreachable(self, method: str, path: str, error: Exception) -> _TryAgainError:
        log.info("%s %s: %s", method, path, type(error).__name__)
        return _TryAgainError(f"cannot be reached ({type(error).__name__})")


class _TooLargeError(Exception):
    """The body is above `MAX_BODY`."""


def _pool(url: str, maxsize: int) -> urllib3.PoolManager:
    """Through the proxy that the environment names for this address, if any."""
    try:
        place = urlsplit(url)
        proxy = None if proxy_bypass(place.hostname or "") else getproxies().get(place.scheme)
        if proxy:
            return urllib3.ProxyManager(proxy, maxsize=maxsize)
    except (HTTPError, ValueError) as error:
        raise ModelUnavailableError(f"the model server cannot be used ({type(error).__name__})") from None
    return urllib3.PoolManager(maxsize=maxsize)


def _read(response: urllib3.BaseHTTPResponse, until: float) -> bytes:
    """The body as it was sent: no encoding was offered. A read waits `timeout` at most, and so all of them may."""
    body = bytearray()
    while chunk := response.read(2**16, decode_content=False):
        body += chunk
        if len(body) > MAX_BODY:
            raise _TooLargeError
        if time.monotonic() > until:
            raise SlowError
    return bytes(body)


def _wait(state: tenacity.RetryCallState) -> float:
    error = state.outcome.exception() if state.outcome else None
    named = error.after if isinstance(error, _TryAgainError) else None
    return named if named is not None else tenacity.wait_random_exponential(0.2, max=2.0)(state)


def _retry_after(response: urllib3.BaseHTTPResponse) -> float | None:
    value = response.headers.get("Retry-After", "")
    return min(float(value), MAX_WAIT) if value.isascii() and value.isdigit() and len(value) < 9 else None


def _error_message(text: str) -> str:
    """The message in an error of the OpenAI protocol, on one line."""
    try:
        value = json.loads(text)
        error = value.get("error", value) if isinstance(value, dict) else value
        message = error.get("message", error) if isinstance(error, dict) else error
    except (ValueError, RecursionError):
        message = text
    return "".join(c if c.isprintable() else " " for c in str(message)[:200])
