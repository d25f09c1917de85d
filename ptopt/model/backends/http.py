"""Requests to a model server: bounded in time, size and number of attempts; every failure is one line."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Mapping
from typing import Any

import httpx
import tenacity

from ptopt.http import TooMuchError, read_bounded
from ptopt.model.interface import ModelUnavailableError

log = logging.getLogger(__name__)

MAX_BODY = 4 << 20  # bytes
MAX_WAIT = 10.0  # seconds, whatever Retry-After says
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
        headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
        self._timeout = timeout
        self._attempts = attempts
        self._client = httpx.Client(
            base_url=url.rstrip("/").removesuffix("/v1"),
            headers=headers,
            timeout=httpx.Timeout(timeout, connect=min(timeout, 5.0)),
            limits=httpx.Limits(max_connections=connections, max_keepalive_connections=connections),
        )

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
        again = tenacity.Retrying(
            retry=tenacity.retry_if_exception_type(_TryAgainError),
            stop=tenacity.stop_any(
                tenacity.stop_after_attempt(self._attempts), tenacity.stop_after_delay(self._timeout)
            ),
            wait=_wait,
            reraise=True,
        )
        try:
            return again(self._once, method, path, body)
        except _TryAgainError as error:
            log.warning("%s %s: %s", method, path, error)
            raise ModelUnavailableError(f"the model server {error}") from None

    def close(self) -> None:
        self._client.close()

    def _once(self, method: str, path: str, body: Mapping[str, Any] | None) -> str:
        until = time.monotonic() + self._timeout
        try:
            with self._client.stream(method, path, json=body) as response:
                content = read_bounded(response, MAX_BODY, until=until)
        except TooMuchError:
            raise ModelUnavailableError("the model server's answer is too large") from None
        except httpx.TimeoutException:
            raise _TryAgainError(f"took longer than {self._timeout:g} s") from None
        except httpx.TransportError as error:
            log.info("%s %s: %s", method, path, error)
            raise _TryAgainError(f"cannot be reached ({type(error).__name__})") from None
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise ModelUnavailableError(f"the model server cannot be used ({type(error).__name__})") from None
        if response.status_code in _BUSY:
            raise _TryAgainError(f"failed ({response.status_code})", _retry_after(response))
        text = content.decode("utf-8", "replace")
        if not response.is_success:
            raise RefusedError(response.status_code, _error_message(text))
        return text


def _wait(state: tenacity.RetryCallState) -> float:
    error = state.outcome.exception() if state.outcome else None
    named = error.after if isinstance(error, _TryAgainError) else None
    return named if named is not None else tenacity.wait_random_exponential(0.2, max=2.0)(state)


def _retry_after(response: httpx.Response) -> float | None:
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
