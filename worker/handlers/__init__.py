"""One module for each kind of job. Each has `handle(context, payload) -> str`, with the payload of its kind.

The text is a note on what could not be done.

A handler may be run again after it broke off anywhere, so it looks before it writes.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

from service.jobs import Kind
from worker.job_context import JobContext

Handler = Callable[[JobContext, Any], str]

HANDLERS = {
    Kind.REVIEW: "worker.handlers.review",
    Kind.COMMAND: "worker.handlers.command",
    Kind.CLOSED: "worker.handlers.closed",
    Kind.THREAD: "worker.handlers.thread",
    Kind.REPLY: "worker.handlers.reply",
    Kind.DELETED: "worker.handlers.deleted",
    Kind.POLL: "worker.handlers.poll",
    Kind.AUDIT: "worker.handlers.audit",
    Kind.INSTALLATION: "worker.handlers.installation",
}


def handler_of(kind: Kind) -> Handler:
    """Imported at first use: the worker of one queue does not load what the others need."""
    handler: Handler = import_module(HANDLERS[kind]).handle
    return handler
