"""What people did about a comment, as votes and one label. Pure functions: the order of their arguments never matters.

Votes can be bought, or cast by mistake. People who may write to the repository count, and the author of the pull request;
one person has one effective vote on a rule in a repository, and all people who may not write together have one.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Protocol

from feedback.signals import SignalKind

# Pull requests on which a person voted on a rule that make up the opinion, and what a vote weighs of the next newer one.
_NEWEST, _OLDER = 3, 0.3
# An opinion weighs so much of the next newer one on the rule, so that a change of mind is noticed.
FADES = 0.85
STRANGERS = 1.0  # the weight of all people together who may not write to the repository, on a rule
ORGANISATION = 3.0  # repositories that an organisation counts as on a rule, at most
_SILENCE, _SILENCES = 0.15, 0.5  # the weight of one comment without an answer, and of all on a rule
_SUSPICIOUS = 0.001  # probability by chance
_FEWEST = 5  # votes that say something of a person, and people that are a ring


class Evidence(Protocol):
    """A row of `service.models.Signal`, as far as it matters here."""

    @property
    def kind(self) -> str: ...
    @property
    def value(self) -> str: ...
    @property
    def actor(self) -> str: ...
    @property
    def actor_writes(self) -> bool | None: ...
    @property
    def source(self) -> str: ...
    @property
    def created_at(self) -> datetime: ...


@dataclass(frozen=True, slots=True)
class Comment:
    """A comment of ours. `score` is what ranker and model gave it, before any feedback."""

    id: int
    organisation: int
    repository: int
    rule: str
    pull: int
    score: float
    author: str  # of the pull request, as a hash; "" where it is not known
    posted_at: datetime


@dataclass(frozen=True, slots=True)
class Tier:
    """How far a kind of signal is trusted, and what its values say."""

    kind: str
    weight: float
    says: Mapping[str, bool]


_REACTIONS = {"+1": True, "heart": True, "hooray": True, "rocket": True, "-1": False, "confused": False}
# The most trusted first.
TIERS = (
    Tier(SignalKind.MERGED.value, 1.0, {"exact": True, "similar": True}),
    Tier(SignalKind.APPLIED.value, 0.95, {"exact": True, "similar": True}),
    Tier(SignalKind.CHANGED.value, 0.9, {"suggested": True}),  # the line, by hand
    Tier(SignalKind.VERDICT.value, 0.9, {"good": True, "bad": False}),
    Tier(SignalKind.IGNORED.value, 0.85, {"rule": False, "here": False}),
    Tier(SignalKind.REPLY.value, 0.8, {"agreement": True, "disagreement": False, "intentional": False}),
    Tier(SignalKind.HIDDEN.value, 0.8, {"hidden": False, "deleted": False}),
    # Resolved is done with, not accepted: where the same person reacted, the reaction tells which way.
    Tier(SignalKind.THREAD.value, 0.75, {}),
    Tier(SignalKind.REACTION.value, 0.7, _REACTIONS),
)
_RANK = {tier.kind: at for at, tier in enumerate(TIERS)}
_RESOLVED_ALONE = 0.3
# What counts although nobody is named for it.
_NAMES_NOBODY = frozenset(
    kind.value for kind in (SignalKind.MERGED, SignalKind.APPLIED, SignalKind.CHANGED, SignalKind.HIDDEN)
)
SILENCE = "silence"


@dataclass(frozen=True, slots=True)
class Vote:
    """What one person says of one comment."""

    comment: Comment
    person: str  # "" where nobody can be named: then the pull request stands for its author
    good: bool
    weight: float
    kind: str
    writes: bool  # may the person write to the repository?
    at: datetime

    @property
    def voter(self) -> str:
        return self.person or f"#{self.comment.pull}"


@dataclass(frozen=True, slots=True)
class Label:
    """What the votes on a comment add up to; `good` is None where they say nothing."""

    good: bool | None
    weight: float
    reason: str


@dataclass(frozen=True, slots=True)
class Opinion:
    """One effective vote: what one voter says of a rule in a repository, from 0 to 1, by the newest votes."""

    organisation: int
    repository: int
    rule: str
    voter: str
    named: bool
    writes: bool
    good: float
    weight: float
    score: float  # what the ranker gave those comments, on average
    at: datetime


@dataclass(frozen=True, slots=True)
class Outlier:
    """A person, or a group of them, whose votes are not like those of the others. For people to look at."""

    repository: int
    people: tuple[str, ...]
    reason: str


def votes(comment: Comment, signals: Iterable[Evidence]) -> tuple[Vote, ...]:
    """The votes of those who count, one for each, by what is trusted most."""
    known = {(s.kind, s.value, s.actor, s.actor_writes, s.source, s.created_at): s for s in signals}
    ordered = sorted(known.values(), key=_chronological)
    withdrawn = {(s.actor, s.value, s.source) for s in ordered if s.kind == SignalKind.WITHDRAWN.value}
    by_person: defaultdict[str, list[Evidence]] = defaultdict(list)
    for signal in ordered:
        if (signal.actor, signal.value, signal.source) not in withdrawn and _counts(signal, comment):
            # What nobody is named for is the author's: it was pushed to the pull request, or merged with it. But not that
            # the comment was hidden: that was one of those who may write.
            nobody = "" if signal.kind == SignalKind.HIDDEN.value else comment.author
            by_person[signal.actor or nobody].append(signal)
    cast = [_vote(comment, person, several) for person, several in sorted(by_person.items())]
    found = tuple(vote for vote in cast if vote is not None)
    if found:
        return found
    merged = [s for s in ordered if s.kind == SignalKind.CLOSED.value and s.value == "merged"]
    if not merged:
        return ()
    return (Vote(comment, "", False, _SILENCE, SILENCE, True, merged[-1].created_at),)


def label(comment: Comment, signals: Iterable[Evidence]) -> Label:
    """The label of a comment: what is trusted most decides, and of a draw what comes next."""
    return label_of(votes(comment, signals))


def label_of(cast: Sequence[Vote]) -> Label:
    by_kind: defaultdict[str, list[Vote]] = defaultdict(list)
    for vote in cast:
        by_kind[vote.kind].append(vote)
    for kind in sorted(by_kind, key=lambda kind: _RANK.get(kind, len(TIERS))):
        good = math.fsum(v.weight for v in by_kind[kind] if v.good)
        bad = math.fsum(v.weight for v in by_kind[kind] if not v.good)
        if good != bad:
            number = sum(v.good == (good > bad) for v in by_kind[kind])
            weight = max(v.weight for v in by_kind[kind])
            reason = (
                "merged without a reaction"
                if kind == SILENCE
                else f"{kind} ({number} of {len(by_kind[kind])})"
            )
            return Label(good > bad, weight, reason)
    return Label(
        None,
        0.0,
        "as many for it as against it"
        if cast
        else "neither the author nor anybody with write access has answered",
    )


def opinions(cast: Iterable[Vote]) -> tuple[Opinion, ...]:
    """One opinion for each voter, rule and repository. What was cast twice counts once."""
    by_voter: defaultdict[tuple[int, str, str], list[Vote]] = defaultdict(list)
    for vote in distinct(cast):
        by_voter[vote.comment.repository, vote.comment.rule, vote.voter].append(vote)
    return tuple(_opinion(several) for _, several in sorted(by_voter.items()))


def distinct(cast: Iterable[Vote]) -> tuple[Vote, ...]:
    """Of the votes of one voter on a rule in a pull request the one that is trusted most."""
    found: dict[tuple[int, str, str, int], Vote] = {}
    for vote in cast:
        key = (vote.comment.repository, vote.comment.rule, vote.voter, vote.comment.pull)
        other = found.get(key)
        if other is None or _trust(vote) > _trust(other):
            found[key] = vote
    return tuple(found.values())


def limited(found: Iterable[Opinion]) -> tuple[Opinion, ...]:
    """The opinions on each rule in a repository: older ones fade, and those of people who may not write weigh together
    `STRANGERS` at most, and half of what those who may weigh: without these they move nothing."""
    cells: defaultdict[tuple[int, str], list[Opinion]] = defaultdict(list)
    for opinion in found:
        cells[opinion.repository, opinion.rule].append(opinion)
    kept: list[Opinion] = []
    for _, cell in sorted(cells.items()):
        silent = [o for o in cell if o.weight <= _SILENCE]
        spoken = [o for o in cell if o.weight > _SILENCE]
        trusted = _faded(o for o in spoken if o.writes)
        most = min(STRANGERS, math.fsum(o.weight for o in trusted) / 2)
        kept += trusted
        kept += _scaled(_faded(o for o in spoken if not o.writes), most)
        kept += _scaled(_faded(silent), _SILENCES)
    return tuple(kept)


def _faded(found: Iterable[Opinion]) -> list[Opinion]:
    """The newest first, by voter where times are equal."""
    ordered = sorted(found, key=lambda o: (o.at, o.voter), reverse=True)
    return [replace(o, weight=o.weight * FADES**age) for age, o in enumerate(ordered)]


def per_organisation(repositories: Iterable[tuple[int, str]]) -> dict[tuple[int, str], float]:
    """What each repository weighs where organisations are added up, by organisation and rule; there is one such pair for each
    repository that voted on the rule. An organisation weighs `ORGANISATION` at most on a rule."""
    return {key: min(1.0, ORGANISATION / number) for key, number in Counter(repositories).items()}


def outliers(cast: Iterable[Vote]) -> tuple[Outlier, ...]:
    """People who disagree with the others on the same rules more often than chance explains, and rings: several people
    without write access who say of a rule what those with it do not."""
    cells: defaultdict[tuple[int, str], dict[tuple[str, int], Vote]] = defaultdict(dict)
    for vote in cast:
        if vote.person:
            cell, key = cells[vote.comment.repository, vote.comment.rule], (vote.person, vote.comment.id)
            cell[key] = max(cell.get(key, vote), vote, key=_trust)
    against: defaultdict[tuple[int, str], list[bool]] = defaultdict(list)
    found: list[Outlier] = []
    for (repository, rule), cell in sorted(cells.items()):
        good = {
            person: _mean([v.good for (who, _), v in cell.items() if who == person]) for person, _ in cell
        }
        for (person, _), vote in sorted(cell.items(), key=lambda item: item[0]):
            others = [share for who, share in good.items() if who != person]
            if others and _mean(others) != 0.5:
                against[repository, person].append(vote.good != (_mean(others) > 0.5))
        writers = [good[who] for who in sorted({w for (w, _), v in cell.items() if v.writes})]
        strangers = sorted({who for (who, _), v in cell.items() if not v.writes})
        for says in (True, False):
            ring = tuple(who for who in strangers if (good[who] > 0.5) == says and good[who] != 0.5)
            if len(ring) >= _FEWEST and writers and (_mean(writers) > 0.5) != says:
                found.append(
                    Outlier(
                        repository,
                        ring,
                        f"{rule}: {len(ring)} people without write access against those with",
                    )
                )
    usual = _mean([one for several in against.values() for one in several])
    for (repository, person), several in sorted(against.items()):
        chance = _tail(sum(several), len(several), min(max(usual, 0.05), 0.5))
        if len(several) >= _FEWEST and chance < _SUSPICIOUS:
            reason = f"against the others in {sum(several)} of {len(several)} votes"
            found.append(Outlier(repository, (person,), reason))
    return tuple(sorted(found, key=lambda o: (o.repository, o.people, o.reason)))


def _counts(signal: Evidence, comment: Comment) -> bool:
    if not signal.actor:
        return signal.kind in _NAMES_NOBODY
    return signal.actor_writes is True or (signal.actor == comment.author and bool(comment.author))


def _vote(comment: Comment, person: str, signals: Sequence[Evidence]) -> Vote | None:
    """The vote of one person; the signals are in order of time."""
    last = {s.kind: s for s in signals}
    # Of a push nobody knows who made it: what else the author did here tells whether the author may write. Where the author
    # is not known, nothing does: that a comment was hidden was one of those who may, who need not be the one that pushed.
    known = [s.actor_writes for s in signals if person and s.actor_writes is not None]
    writes = bool(known) and known[-1]
    for tier in TIERS:
        said = [s for s in signals if s.kind == tier.kind and s.value in tier.says]
        resolved = last.get(SignalKind.THREAD.value)
        if tier.kind == SignalKind.THREAD.value and resolved is not None and resolved.value == "resolved":
            reacted = [s for s in signals if s.kind == SignalKind.REACTION.value and s.value in _REACTIONS]
            way = _REACTIONS[reacted[-1].value] if reacted else True
            weight = tier.weight if reacted else _RESOLVED_ALONE
            return _cast(comment, person, way, weight, tier.kind, resolved, writes)
        if said:
            return _cast(comment, person, tier.says[said[-1].value], tier.weight, tier.kind, said[-1], writes)
    return None


def _cast(
    comment: Comment, person: str, good: bool, weight: float, kind: str, signal: Evidence, writes: bool
) -> Vote:
    """`writes` counts where the signal itself does not say whether the person may write."""
    said = writes if signal.actor_writes is None else signal.actor_writes
    return Vote(
        comment, person, good, weight, kind, kind == SignalKind.MERGED.value or said, signal.created_at
    )


def _opinion(cast: Iterable[Vote]) -> Opinion:
    newest = sorted(cast, key=lambda v: (v.at, v.comment.pull, _trust(v)), reverse=True)[:_NEWEST]
    shares = [vote.weight * _OLDER**age for age, vote in enumerate(newest)]
    total = math.fsum(shares)
    first = newest[0]
    return Opinion(
        first.comment.organisation,
        first.comment.repository,
        first.comment.rule,
        first.voter,
        bool(first.person),
        any(vote.writes for vote in newest),
        math.fsum(share for share, vote in zip(shares, newest, strict=True) if vote.good) / total,
        max(vote.weight for vote in newest),
        math.fsum(share * vote.comment.score for share, vote in zip(shares, newest, strict=True)) / total,
        first.at,
    )


def _scaled(found: Sequence[Opinion], most: float) -> list[Opinion]:
    total = math.fsum(o.weight for o in found)
    scale = min(1.0, most / total) if total else 1.0
    return [replace(o, weight=o.weight * scale) for o in found if scale]


def _chronological(signal: Evidence) -> tuple[datetime, str, str, str, str]:
    return (signal.created_at, signal.kind, signal.value, signal.actor, signal.source)


def _trust(vote: Vote) -> tuple[int, datetime, Hashable]:
    """Compares votes of one voter: the most trusted kind, of that the newest; the rest makes the order a total one."""
    return (
        -_RANK.get(vote.kind, len(TIERS)),
        vote.at,
        (vote.comment.id, vote.comment.score, vote.good, vote.weight, vote.writes),
    )


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values) if values else 0.0


def _tail(hits: int, number: int, chance: float) -> float:
    """The probability of so many hits or more."""
    return math.fsum(
        math.comb(number, k) * chance**k * (1 - chance) ** (number - k) for k in range(hits, number + 1)
    )
