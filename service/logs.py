"""Structured logs: one line an event, JSON or for people; those of uvicorn, Celery and SQLAlchemy, too.

`structlog.contextvars.bound_contextvars(delivery=…, job=…, repository=…)` puts these on every line inside it. Values come
from strangers: each is cut, has no control characters, and loses what looks like a secret.
"""

from __future__ import annotations

import json
import logging
import re
import sys
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, TextIO

import structlog
from structlog.typing import EventDict, Processor, WrappedLogger

_MAX_TEXT = 2_000  # characters
_MAX_TRACEBACK = 20_000
_SLACK = 4_000  # looked at for secrets beyond the cut, so that none is cut in half
_MAX_ITEMS = 50
_MAX_DEPTH = 4
_encode = json.JSONEncoder(default=str, separators=(",", ":")).encode
_PLAIN = (bool, int, float)
_SEVERAL = (list, tuple, set, frozenset)

# The last line of defence: nothing should log a secret. No length of a token is assumed, nor that a token ends before
# the cut.
_SECRETS = re.compile(
    r"""
    \bgh[a-z]_[\w.-]+ | \bgithub_pat_\w+        # tokens of GitHub, of whatever form
    | \beyJ[\w-]+\.[\w-]+(?:\.[\w-]*)?          # JWT
    | (?<=://)[^/\s@]+(?=@)                     # user and password in a URL
    | (?i:\b(?:bearer|basic|token)[ ]+)[\w.~+/=-]{8,}
    | (?i:\b(?:code|state|token|secret|password)=)[^\s&"']+
    | -----BEGIN[ ][A-Z ]*PRIVATE[ ]KEY-----.*?(?:-----END[ ][A-Z ]*PRIVATE[ ]KEY-----|\Z)
    """,
    re.VERBOSE | re.DOTALL,
)
_SECRET_NAMES = re.compile(r"token|secret|password|authorization|private_key|cookie|signature", re.IGNORECASE)
_REDACTED = "[redacted]"


def configure(level: str, format: str, stream: TextIO | None = None) -> None:  # noqa: A002 (named as the setting)
    """Sets up structlog and `logging` for this process. `format` is "json" or "console"."""
    out = stream or sys.stderr
    number: int = getattr(logging, level)
    shared: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.format_exc_info,
        clean,
    ]
    renderer = _render_json if format == "json" else _render_console
    structlog.configure(
        processors=[*shared, renderer],
        wrapper_class=structlog.make_filtering_bound_logger(number),
        logger_factory=structlog.WriteLoggerFactory(out),
        cache_logger_on_first_use=False,  # loggers of modules outlive a second `configure`
    )
    handler = logging.StreamHandler(out)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=[
                structlog.stdlib.add_logger_name,
                structlog.stdlib.ExtraAdder(),
                *shared,
            ],
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, renderer],
        )
    )
    # It says what it is connected to at each look at the schema, and `/readyz` looks often.
    logging.getLogger("alembic.runtime.migration").addFilter(_is_a_migration)
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(number)
    for name in ("uvicorn", "uvicorn.error", "uvicorn.access", "celery", "alembic"):
        logger = logging.getLogger(name)
        logger.handlers.clear()
        logger.setLevel(logging.NOTSET)
        logger.propagate = name != "uvicorn.access"  # it would hold the setup token
    for name in ("httpx", "httpcore", "urllib3", "github", "kombu", "amqp", "asyncio"):
        logging.getLogger(name).setLevel(max(number, logging.WARNING))


def _is_a_migration(record: logging.LogRecord) -> bool:
    return record.levelno > logging.INFO or record.getMessage().startswith("Running")


def clean(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    """Cuts, escapes and redacts every value of a log line."""
    event.pop("color_message", None)  # of uvicorn: the same once more
    # Of this process and of structlog, not of strangers: needed as they are.
    return {
        key: value if key in ("_record", "_from_structlog") else _clean(value, str(key), _MAX_DEPTH)
        for key, value in event.items()
    }


def _clean(value: Any, key: str, depth: int) -> Any:
    if _names_secret(key):
        return _REDACTED
    if isinstance(value, str) and key != "exception":
        return _text(value, _MAX_TEXT)
    if value is None or isinstance(value, _PLAIN):
        return value
    if depth and isinstance(value, _SEVERAL):
        return [_clean(item, key, depth - 1) for item in list(value)[:_MAX_ITEMS]]
    if depth and isinstance(value, Mapping):
        items = list(value.items())[:_MAX_ITEMS]
        return {_text(str(k), 100): _clean(v, str(k), depth - 1) for k, v in items}
    if key == "exception":
        # Redacted as a whole: a private key has many lines. The end says what happened.
        text = _SECRETS.sub(_REDACTED, str(value)[-_MAX_TRACEBACK - _SLACK :])[-_MAX_TRACEBACK:]
        return "\n".join(_text(line, _MAX_TEXT) for line in text.split("\n"))
    return _text(str(value), _MAX_TEXT)


@lru_cache(maxsize=1000)
def _names_secret(key: str) -> bool:
    return _SECRET_NAMES.search(key) is not None


def _suspect(text: str) -> bool:
    """Whatever `_SECRETS` matches has one of these; most texts have none, and this is the cheap way to see it."""
    if (
        "gh" in text
        or "github_pat_" in text
        or "eyJ" in text
        or "://" in text
        or "=" in text
        or "-----" in text
    ):
        return True
    if " " not in text:
        return False
    lower = text.lower()
    return "bearer " in lower or "basic " in lower or "token " in lower


def _text(text: str, limit: int) -> str:
    if len(text) <= limit and text.isascii() and text.isprintable() and not _suspect(text):
        return text
    safe = _SECRETS.sub(_REDACTED, text[: limit + _SLACK])
    if len(text) > limit:
        safe = safe[:limit] + "…"
    if safe.isprintable():
        return safe
    # Line ends of all kinds, other control characters, marks that turn the direction of text, lone surrogates.
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in safe)


def _render_json(_logger: WrappedLogger, _method: str, event: EventDict) -> str:
    return _encode(event)


def _render_console(_logger: WrappedLogger, _method: str, event: EventDict) -> str:
    traceback = event.pop("exception", "")
    line = f"{event.pop('timestamp', '')} {event.pop('level', ''):<8} {event.pop('event', '')}"
    line += "".join(f" {key}={value}" for key, value in event.items())
    # Indented, so that no line of it can pass for one of ours.
    return line + "".join(f"\n    {row}" for row in traceback.split("\n") if row)
