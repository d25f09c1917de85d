"""A dataset for the ranker: the findings that people answered, with what the ranker weighed of them.

From repositories that opted in only, private ones only where the operator names them. What the features are was recorded
with the review, so the same that ranked the finding is learned from. Votes can be bought, so that each person, each pull
request and each organisation has a share that is limited; what evaluation sets hold is left out.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from datetime import datetime, timezone
from typing import Any

from training.feedback import MOST_PER_ORGANISATION
from training.feedback.evaluations import Evaluations, evaluations, key
from training.ranker.rows import RIGHT, TRIVIAL, Row
from training.sources.feedback import comments, votes

MOST_PER_PERSON = 5  # comments of a rule on which one person counts
HELD_OUT = 0.2  # of the repositories, and of the newest pull requests of the others
_MOST_FEATURES = 500
# How far a kind of signal is trusted: the weights of `feedback.labels`.
WEIGHTS = {
    "merged": 1.0, "applied": 0.95, "changed": 0.9, "verdict": 0.9, "ignored": 0.85, "reply": 0.8, "hidden": 0.8,
    "reaction": 0.7,
}  # fmt: skip

PRIVATE = "the repository is private, and not named"
BY_MODEL = "a model found it"
NOT_RECORDED = "nothing was recorded of the finding: it is older than the opt-in"
MEASURED = "an evaluation set holds it"
CAPPED = "these people, or this account, had their votes on the rule"
DRAW = "as many people for it as against it"
DUPLICATE = "another comment is about the same"
DISAGREED = "people disagree about the same"


@dataclass(frozen=True, slots=True)
class Answer:
    """A comment with a clear answer. `repository`, `organisation` and `pull` are digests: no name is kept."""

    repository: str
    organisation: str
    pull: str
    rule: str
    good: bool
    weight: float
    at: str  # when it was posted
    features: Mapping[str, float]
    by: str = ""  # the kind of signal that it is
    comment: int = 0  # its id in the service's database
    held_out: bool = False

    def row(self) -> Row:
        """What the ranker learns from: whether it was useful. Whether it was right, nobody said."""
        verdict = RIGHT if self.good else TRIVIAL
        return Row(
            self.repository,
            self.rule,
            verdict,
            self.features,
            "",
            drawn=False,
            judged=False,
            weight=self.weight,
        )


@dataclass(frozen=True, slots=True)
class Dataset:
    """The answers, in the order of time, and how many comments were left out, by reason."""

    answers: tuple[Answer, ...]
    left_out: Mapping[str, int]

    @property
    def learned(self) -> list[Answer]:
        return [answer for answer in self.answers if not answer.held_out]

    @property
    def held_out(self) -> list[Answer]:
        return [answer for answer in self.answers if answer.held_out]

    def text(self) -> str:
        """JSON lines; the same for the same database."""
        return "".join(json.dumps(asdict(answer), sort_keys=True) + "\n" for answer in self.answers)

    @classmethod
    def of_text(cls, text: str) -> Dataset:
        return cls(tuple(Answer(**json.loads(line)) for line in text.splitlines()), {})


def build(
    database_url: str,
    *,
    private: Collection[str] = (),
    until: datetime | None = None,
    against: Evaluations | None = None,
) -> Dataset:
    """The dataset of all that people said until then. Raises SourceError where the database cannot be read."""
    left_out: Counter[str] = Counter()
    measured = against or evaluations()
    found = list(_answers(database_url, frozenset(private), until, measured, left_out))
    found.sort(key=lambda answer: (answer.at, answer.repository, answer.pull, key(answer.features)))
    return Dataset(tuple(_split(list(_distinct(found, left_out)))), dict(sorted(left_out.items())))


def _answers(
    url: str,
    private: Collection[str],
    until: datetime | None,
    measured: Evaluations,
    left_out: Counter[str],
) -> Iterator[Answer]:
    spent: Counter[tuple[str, ...]] = Counter()
    with closing(comments(url)) as pages:
        for page in pages:
            for comment, signals in page:
                counted = votes([s for s in signals if until is None or _utc(s.created_at) <= until])
                if counted is None:
                    continue
                reason = _refused(comment, private, measured)
                if not reason:
                    answer, reason = _counted(comment, *counted, spent)
                    if answer is not None:
                        yield answer
                        continue
                left_out[reason] += 1


def _refused(comment: Any, private: Collection[str], measured: Evaluations) -> str:
    if comment.private and comment.full_name not in private:
        return PRIVATE
    if comment.origin != "rule":
        return BY_MODEL
    features = comment.features
    if not isinstance(features, dict) or not features or len(features) > _MOST_FEATURES:
        return NOT_RECORDED
    if not all(isinstance(v, (int, float)) and math.isfinite(v) for v in features.values()):
        return NOT_RECORDED
    if measured.holds(comment.full_name, comment.head_sha, features):
        return MEASURED
    return ""


def _counted(
    comment: Any, by_person: Mapping[str, bool], tier: str, spent: Counter[tuple[str, ...]]
) -> tuple[Answer | None, str]:
    """The answer with the votes that are left to these people and their account; or why there is none."""
    rule, pull = str(comment.rule), f"{comment.repository_id}#{comment.pull}"
    organisation = str(comment.installation_id)
    if spent["organisation", organisation, rule] >= MOST_PER_ORGANISATION:
        return None, CAPPED
    left = {}
    for actor, vote in by_person.items():
        person = actor or pull  # who pushed is not known: a merge is one for its pull request
        if spent["person", person, rule] < MOST_PER_PERSON and not spent["pull", person, rule, pull]:
            left[person] = vote
    good = sum(left.values())
    if 2 * good == len(left):
        return None, DRAW if left else CAPPED
    for person in left:
        spent["person", person, rule] += 1
        spent["pull", person, rule, pull] += 1
    spent["organisation", organisation, rule] += 1
    features = {str(name): float(value) for name, value in sorted(comment.features.items())}
    answer = Answer(
        _digest("repository", comment.repository_id), _digest("organisation", organisation), _digest("pull", pull),
        rule, 2 * good > len(left), WEIGHTS.get(tier, 0.5), _utc(comment.posted_at).isoformat(), features, tier,
        int(comment.id),
    )  # fmt: skip
    return answer, ""


def _distinct(found: Sequence[Answer], left_out: Counter[str]) -> Iterator[Answer]:
    """One answer for each finding that the ranker can tell from others; none where people disagree about it."""
    same: defaultdict[str, list[Answer]] = defaultdict(list)
    for answer in found:
        same[key(answer.features)].append(answer)
    for several in same.values():
        if len({answer.good for answer in several}) > 1:
            left_out[DISAGREED] += len(several)
            continue
        left_out[DUPLICATE] += len(several) - 1
        yield several[0]
    left_out += Counter()  # drops the zeros


def _split(found: Sequence[Answer]) -> Iterator[Answer]:
    """Held out are some repositories, and of the others the newest pull requests: what is learned is older than both."""
    learned = [answer for answer in found if not _is_held_out(answer.repository)]
    newest: dict[str, str] = {}
    for answer in learned:
        newest[answer.pull] = max(newest.get(answer.pull, ""), answer.at)
    ordered = sorted(newest, key=lambda pull: (newest[pull], pull))
    late = set(ordered[len(ordered) - int(len(ordered) * HELD_OUT) :])
    for answer in sorted(found, key=lambda a: (a.at, a.repository, a.pull, key(a.features))):
        held_out = _is_held_out(answer.repository) or answer.pull in late
        yield Answer(**{**asdict(answer), "held_out": held_out})


def _is_held_out(repository: str) -> bool:
    """By hash, so that a repository stays on its side in the next build."""
    return int(hashlib.sha256(f"held out\0{repository}".encode()).hexdigest()[:8], 16) < HELD_OUT * 16**8


def scaled(rows: Sequence[Row], most: float) -> list[Row]:
    """Rows that weigh `most` together at most: however many people answer, readers are not outvoted."""
    total = math.fsum(row.weight for row in rows)
    scale = min(1.0, most / total) if total else 1.0
    return [
        Row(r.repo, r.rule, r.verdict, r.features, r.text, r.drawn, r.judged, r.weight * scale) for r in rows
    ]


def _digest(kind: str, identity: object) -> str:
    return hashlib.sha256(f"{kind}\0{identity}".encode()).hexdigest()[:16]


def _utc(at: datetime) -> datetime:
    """SQLite forgets time zones: all times of the service are UTC."""
    return at.replace(tzinfo=timezone.utc) if at.tzinfo is None else at
