"""Reactions to a comment. GitHub sends no webhook for them: they are polled, and what is no longer there was taken back."""

from __future__ import annotations

from collections.abc import Sequence

from ptopt.github.values import Reaction
from service.models import Signal


def source_of(reaction: Reaction) -> str:
    return f"reaction-{reaction.id}"


def new(listed: Sequence[Reaction], known: Sequence[Signal]) -> list[Reaction]:
    """Reactions of people that are not known yet. All deleted accounts are one, to GitHub: nobody's opinion."""
    sources = {signal.source for signal in known}
    return [
        reaction
        for reaction in listed
        if not reaction.actor.is_bot and reaction.actor.id != 0 and source_of(reaction) not in sources
    ]


def gone(listed: Sequence[Reaction], standing: Sequence[Signal]) -> list[Signal]:
    """The reactions that were taken back. `listed` are all that there are."""
    here = {source_of(reaction) for reaction in listed}
    return [signal for signal in standing if signal.source not in here]
