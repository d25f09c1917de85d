"""Finds the handlers of an event. Handlers are pure: a delivery in, the jobs that it requests out.

A handler is one function in the file named after its event:

    @on("pull_request", "closed")
    def closed(event: PullRequestEvent, delivery: Delivery) -> list[NewJob]: ...
"""

from __future__ import annotations

import hashlib
import importlib
import pkgutil
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar, get_type_hints

from bot.payloads import Event, RepositoryEvent
from service.jobs import Kind, NewJob, NoPayload, Payload


@dataclass(frozen=True, slots=True)
class Delivery:
    """What a handler may use besides the payload."""

    body: bytes | bytearray = field(repr=False)
    debounce: float  # seconds to wait for another push

    def digest(self) -> str:
        """Names this event, also when it is delivered again, under whatever delivery id: that one is not signed."""
        return hashlib.sha256(self.body).hexdigest()[:32]


Handler = Callable[[Any, Delivery], list[NewJob]]
_Handler = TypeVar("_Handler", bound=Handler)


@dataclass(slots=True)
class Entry:
    """How an event is read, and who handles which of its actions. `""` stands for events without actions."""

    model: type[Event]
    handlers: dict[str, Handler] = field(default_factory=dict)


_registry: dict[str, Entry] = {}


def on(event: str, *actions: str) -> Callable[[_Handler], _Handler]:
    """Registers a handler. All handlers of one event read the same model: the annotation of their first parameter."""

    def register(handler: _Handler) -> _Handler:
        model = next(iter(get_type_hints(handler).values()))
        entry = _registry.setdefault(event, Entry(model))
        for action in actions or ("",):
            if entry.model is not model or action in entry.handlers:
                raise ValueError(f"two handlers disagree about {event} {action}")
            entry.handlers[action] = handler
        return handler

    return register


def load() -> dict[str, Entry]:
    """The handlers by event, from all files of this folder."""
    for module in pkgutil.iter_modules(__path__):
        importlib.import_module(f"{__name__}.{module.name}")
    return _registry


def job(
    event: RepositoryEvent,
    kind: Kind,
    pull: int,
    *,
    head_sha: str = "",
    subject: str = "",
    payload: Payload = NoPayload(),  # noqa: B008 (frozen)
    delay: float = 0.0,
) -> NewJob:
    """A job about a pull request of the event's repository."""
    return NewJob(
        kind,
        installation_id=event.installation_id,
        repository_id=event.repository.id,
        repository=event.repository.full_name,
        pull=pull,
        head_sha=head_sha,
        subject=subject,
        payload=payload,
        actor=event.actor.login,
        delay=delay,
    )
