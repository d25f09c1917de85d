"""The learned model: a data file, and plain Python to run it.

Two heads over the same features: P(right), that the statement is true of the code, and P(useful), that a maintainer would act
on it. Each is the mean of a logistic regression and of boosted trees. `python -m training ranker` writes the file;
docs/ranking.md says how good it is.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cache, lru_cache
from importlib.resources import files
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple, ParamSpec, TypeVar

from ptopt.findings import SHOWN_RIGHT, TEXTBOOK, TEXTBOOK_WORTH, Condition

P = ParamSpec("P")
T = TypeVar("T")

_FORMAT = 3
SHOWN = "shown by the change"  # the feature of what is true by the change itself
FOREIGN = "rule of another package"  # the feature of what the ranker has learned nothing about
LACKING = "not "  # before the name of a feature that a hit lacks
ENVIRONMENT = "PTOPT_RANKER_WEIGHTS"  # a data file to use instead of the one that ptopt carries


@dataclass(frozen=True, slots=True)
class Weighed:
    """What the ranker makes of a hit. `reasons` are the features that moved P(useful) most, strongest first: (name,
    log-odds). A feature that the hit lacks, or of which it has none, has "not " before its name: lacking it counts, too."""

    right: float | None  # None: the data file does not tell
    useful: float
    reasons: tuple[tuple[str, float], ...]


class Node(NamedTuple):
    """A node of a decision tree. `value` is what the tree adds to the log-odds, at an inner node the mean below it."""

    feature: str  # "" at a leaf
    threshold: float
    left: int  # where the feature is at most the threshold: position in the tree
    right: int
    value: float


Tree = tuple[Node, ...]


@dataclass(frozen=True)
class Head:
    """Log-odds = bias + sum of weight x feature + what the trees add, then a calibration line (slope, offset)."""

    bias: float
    weights: Mapping[str, float]
    slope: float = 1.0
    offset: float = 0.0
    trees: tuple[Tree, ...] = ()

    def log_odds(self, features: Mapping[str, float]) -> float:
        linear = sum(self.weights.get(name, 0.0) * value for name, value in features.items())
        trees = sum(_added(tree, features) for tree in self.trees)
        return self.slope * (self.bias + linear + trees) + self.offset

    def probability(self, features: Mapping[str, float]) -> float:
        odds = max(-30.0, min(30.0, self.log_odds(features)))
        return 1 / (1 + math.exp(-odds))

    def parts(self, features: Mapping[str, float], means: Mapping[str, float]) -> dict[str, float]:
        """What each feature adds to the log-odds of a hit: compared with its mean, and at each turn in a tree."""
        found = {
            name: self.slope * weight * (features.get(name, 0.0) - means.get(name, 0.0))
            for name, weight in self.weights.items()
            if name in features or name in means
        }
        for path in self._paths(features):
            for node, following in pairwise(path):
                moved = self.slope * (following.value - node.value)
                found[node.feature] = found.get(node.feature, 0.0) + moved
        return found

    def _paths(self, features: Mapping[str, float]) -> Iterator[list[Node]]:
        """From the root of each tree to the leaf of the hit."""
        for tree in self.trees:
            path = [tree[0]]
            while path[-1].feature:
                node = path[-1]
                path.append(
                    tree[node.left if features.get(node.feature, 0.0) <= node.threshold else node.right]
                )
            yield path


def _added(tree: Tree, features: Mapping[str, float]) -> float:
    """The value at the leaf of the hit. Written for speed: a review asks a hundred trees of each head about each hit."""
    feature, threshold, left, right, value = tree[0]
    while feature:
        at = left if features.get(feature, 0.0) <= threshold else right
        feature, threshold, left, right, value = tree[at]
    return value


@dataclass(frozen=True)
class Ranker:
    """Both heads and the means of the features, which reasons are measured against."""

    right: Head | None
    useful: Head
    means: Mapping[str, float]
    # What a rule states with less confidence, or what is less likely right, is not posted, however useful it would be.
    least_stated: float = 0.0
    least_right: float = 0.0
    threshold: float = 0.6  # P(useful) from which on a comment is made, unless the user sets another
    origin: str = ""  # what it was learned from

    def worth(self, features: Mapping[str, float]) -> float:
        """P(useful): that of a textbook case is `TEXTBOOK_WORTH` at least; of a rule of another package what it states."""
        if features.get(FOREIGN):
            return features.get("stated confidence", 0.0)
        useful = self.useful.probability(features)
        return max(useful, TEXTBOOK_WORTH) if _is_textbook(features) else useful

    def truth(self, features: Mapping[str, float]) -> float | None:
        """P(right): that of a textbook case is what a comment asks for at least; None where the weights do not tell.

        What the change itself shows is true, however seldom the ranker has seen it.
        """
        if self.right is None or features.get(FOREIGN):
            return None
        right = self.right.probability(features)
        if features.get(SHOWN):
            right = max(right, SHOWN_RIGHT)
        return max(right, self.least_right) if _is_textbook(features) else right

    def is_sure(self, features: Mapping[str, float]) -> bool:
        """Are the rule and the ranker sure enough that the statement is right?"""
        right = self.truth(features)
        return self._is_stated(features) and (right is None or right >= self.least_right)

    def _is_stated(self, features: Mapping[str, float]) -> bool:
        """Is the rule sure enough of its own statement? Of a rule of another package that is all that is known, and `worth` has it."""
        return bool(features.get(FOREIGN)) or features.get("stated confidence", 0.0) >= self.least_stated

    def missed(
        self, features: Mapping[str, float], conditions: Mapping[Condition, float], worth: float | None = None
    ) -> tuple[Condition, ...]:
        """Which of the conditions of a comment a hit with these features does not meet. `worth` is theirs, where it is known."""
        right = self.truth(features)
        met = {
            Condition.CONFIDENCE: (self.worth(features) if worth is None else worth)
            >= conditions[Condition.CONFIDENCE],
            Condition.RIGHT: right is None or right >= self.least_right,
            Condition.STATED: self._is_stated(features),
        }
        return tuple(condition for condition in conditions if not met[condition])

    def conditions(self, chosen: float | None) -> dict[Condition, float]:
        """What a comment asks for, where the settings ask for a confidence, if they do; one below the threshold lifts the rest."""
        every = (self.threshold if chosen is None else chosen, self.least_right, self.least_stated)
        asked = dict(zip(Condition, every, strict=True))
        lifts = chosen is not None and chosen < self.threshold
        return {Condition.CONFIDENCE: asked[Condition.CONFIDENCE]} if lifts else asked

    def admits(self, features: Mapping[str, float], min_confidence: float, lifted: bool = False) -> bool:
        """Is a hit with these features useful and right enough for a comment? With 0.0, every hit is.

        `lifted`: only the confidence counts.
        """
        if not min_confidence:
            return True
        return self.worth(features) >= min_confidence and (lifted or self.is_sure(features))

    def weigh(self, features: Mapping[str, float], reasons: int = 5) -> Weighed:
        parts = {} if features.get(FOREIGN) else self.useful.parts(features, self.means)
        strongest = sorted(parts.items(), key=lambda part: (-abs(part[1]), part[0]))[:reasons]
        return Weighed(
            self.truth(features),
            self.worth(features),
            tuple(
                (_as_reason(name, features), round(weight, 2))
                for name, weight in strongest
                if abs(weight) >= 0.05
            ),
        )


def _as_reason(name: str, features: Mapping[str, float]) -> str:
    return name if features.get(name) else f"{LACKING}{name}"


def _is_textbook(features: Mapping[str, float]) -> bool:
    """Is the statement proved by the code around it, so that it holds however few examples the ranker has seen?"""
    return features.get("stated confidence", 0.0) >= TEXTBOOK


def read(text: str) -> Ranker:
    """A ranker from the JSON text of its data file. Raises ValueError or KeyError when it is none."""
    data = json.loads(text)
    if data["format"] != _FORMAT:
        raise ValueError(
            f"the ranker's data file has format {data['format']}, this version reads format {_FORMAT}"
        )
    names = data["features"]

    def tree(nodes: list[tuple[int, float, int, int, float]]) -> Tree:
        return tuple(
            Node("" if at < 0 else names[at], threshold, left, right, value)
            for at, threshold, left, right, value in nodes
        )

    def head(name: str) -> Head:
        part = data[name]
        trees = tuple(map(tree, part["trees"]))
        return Head(part["bias"], part["weights"], part["slope"], part["offset"], trees)

    right = None if data["right"] is None else head("right")
    return Ranker(
        right,
        head("useful"),
        data["means"],
        data["least_stated"],
        data["least_right"],
        data["threshold"],
        str(data.get("origin", "")),
    )


@lru_cache(maxsize=4)
def _remembered(text: str) -> Ranker:
    return read(text)


class WeightsError(ValueError):
    """The file that PTOPT_RANKER_WEIGHTS names cannot be used."""


_chosen: ContextVar[Ranker | None] = ContextVar("ranker", default=None)


def ranker() -> Ranker:
    """The ranker in use: that of `using`, else that of the process. Raises WeightsError."""
    return _chosen.get() or default_ranker()


@contextmanager
def using(chosen: Ranker | None) -> Iterator[None]:
    """Within the block, and in this thread, `ranker()` is this one; None: that of the process."""
    token = _chosen.set(chosen)
    try:
        yield
    finally:
        _chosen.reset(token)


def call_with(text: str, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
    """Call the function with the ranker of this data file, in whatever process it runs. Raises as `read` does."""
    with using(_remembered(text)):
        return function(*args, **kwargs)


@cache
def default_ranker() -> Ranker:
    """The ranker of the process: of the file that PTOPT_RANKER_WEIGHTS names, else the one that ptopt carries.

    Raises WeightsError.
    """
    chosen = os.environ.get(ENVIRONMENT)
    return from_file(Path(chosen)) if chosen else shipped_ranker()


@cache
def shipped_ranker() -> Ranker:
    """The ranker that ptopt carries, which the documentation of rules speaks of."""
    return read((files("ptopt.ranker") / "weights.json").read_text("utf-8"))


def threshold(chosen: float | None) -> float:
    """The confidence from which on a proposal becomes a comment; `chosen` is what the settings say, if they do."""
    return ranker().threshold if chosen is None else chosen


def is_lifted(chosen: float | None) -> bool:
    """Does a confidence that the settings ask for lift the other conditions of a comment? One below the ranker's threshold does."""
    return len(comment_conditions(chosen)) == 1


def comment_conditions(chosen: float | None = None) -> dict[Condition, float]:
    """What a comment needs; `chosen` is the confidence that the settings ask for, if they do."""
    return ranker().conditions(chosen)


def from_file(path: Path) -> Ranker:
    """A ranker from its data file. Raises WeightsError."""
    try:
        return read(path.read_text("utf-8"))
    except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise WeightsError(f"{ENVIRONMENT}: {path} is no file of ranker weights: {reason}") from None
