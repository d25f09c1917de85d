"""An answer that is no success, as the error that says what there is to do about it."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Mapping
from email.utils import parsedate_to_datetime

from ptopt.github.errors import (
    AmbiguousError,
    ForbiddenError,
    GitHubError,
    NotFoundError,
    RateLimitedError,
    RejectedError,
    TooLargeError,
    UnavailableError,
)

DEFAULT_WAIT = 60.0  # what GitHub's documentation asks for when a secondary limit names no time
_LONGEST_WAIT = 3600.0
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]+")
_LIMIT = re.compile(r"rate limit|abuse detection|retry your request again later|wait a few minutes", re.I)
_TOO_FAST = re.compile(r"(?:^|: )abuse\b|submitted too quickly", re.I)


def refusal(
    what: str, status: int, headers: Mapping[str, str], body: str, *, repeatable: bool
) -> GitHubError:
    """The error for an answer of `status` outside 2xx. `what` is method and path.

    repeatable: the request changes nothing, or nothing more when sent twice.
    """
    message, errors = _reasons(body)
    text = f"{what}: {status}" + "".join(f" {part};" for part in (message, *errors) if part).rstrip(";")
    if _is_limit(status, headers, message, errors):
        return RateLimitedError(text, status=status, retry_after=wait(headers))
    if status >= 500:
        return (UnavailableError if repeatable else AmbiguousError)(text, status=status)
    if status in (404, 410):
        return NotFoundError(text, status=status)
    if status in (406, 413) or "too_large" in " ".join(errors):
        return TooLargeError(text, status=status)
    if status in (401, 403, 451):
        return ForbiddenError(text, status=status)
    if status in (301, 302, 303, 307, 308):
        return RejectedError(f"{what}: {status} it has moved; not followed", status=status)
    if status >= 400:
        return RejectedError(text, status=status, errors=errors or ((message,) if message else ()))
    return (UnavailableError if repeatable else AmbiguousError)(f"{text} not expected", status=status)


def wait(headers: Mapping[str, str]) -> float:
    """Seconds to wait, from 1 to 3,600: `Retry-After`, else the reset of an exhausted primary limit, else 60."""
    seconds = _number(headers.get("retry-after"))
    reset = _number(headers.get("x-ratelimit-reset"))
    if seconds is None and reset is not None and headers.get("x-ratelimit-remaining") == "0":
        seconds = reset - _now(headers) + 1  # GitHub does not say when in that second
    return DEFAULT_WAIT if seconds is None else min(max(seconds, 1.0), _LONGEST_WAIT)


def one_line(text: str, limit: int = 300) -> str:
    """GitHub's text in a log line."""
    return _CONTROL.sub(" ", text)[:limit].strip()


def _is_limit(status: int, headers: Mapping[str, str], message: str, errors: tuple[str, ...]) -> bool:
    if status == 429:
        return True
    if status == 403:
        exhausted = headers.get("x-ratelimit-remaining") == "0" and "not accessible" not in message
        return exhausted or "retry-after" in headers or bool(_LIMIT.search(message))
    return status == 422 and any(_TOO_FAST.search(error) for error in errors)


def _reasons(body: str) -> tuple[str, tuple[str, ...]]:
    """`message` and `errors` of an error's JSON."""
    try:
        data = json.loads(body)
    except (ValueError, RecursionError):
        return "", ()
    if not isinstance(data, dict):
        return "", ()
    errors = data.get("errors")
    listed = errors if isinstance(errors, list) else [errors] if errors else []
    return one_line(str(data.get("message") or "")), tuple(_reason(error) for error in listed[:20])


def _reason(error: object) -> str:
    if not isinstance(error, dict):
        return one_line(str(error))
    where = ".".join(str(error[key]) for key in ("resource", "field") if error.get(key))
    why = " ".join(str(error[key]) for key in ("code", "message") if error.get(key))
    return one_line(f"{where}: {why}" if where and why else where or why)


def _number(text: str | None) -> float | None:
    try:
        number = float(text or "")
    except ValueError:
        return None
    return number if number == number else None


def _now(headers: Mapping[str, str]) -> float:
    """GitHub's clock where the answer has it, since the reset is by that one."""
    try:
        return parsedate_to_datetime(headers["date"]).timestamp()
    except (KeyError, TypeError, ValueError):
        return time.time()
