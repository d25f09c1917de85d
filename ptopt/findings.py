"""The values a review is made of: what was found, where, why, and how to fix it.

Lines are 1-based and inclusive, in the head version of the file. Byte offsets count in the UTF-8 form of
the head text (the form whose columns `ast` reports), whatever encoding the file has on disk.
"""

from __future__ import annotations

import enum
import hashlib
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field


class Safety(str, enum.Enum):
    """How safe it is to apply a fix."""

    SAFE = "safe"  # same behaviour: posted as a suggestion, applied by `ptopt fix`
    UNSAFE = "unsafe"  # posted as a suggestion that states its assumption
    DISPLAY = "display"  # shown as text only: nothing can write it

    def __str__(self) -> str:
        return self.value


# The confidence of the textbook case of a rule, proved by the code around it: worth a comment whatever the ranker makes of the
# few examples that it has seen.
TEXTBOOK = 0.9
# P(useful) of such a case at least: 7 of the first 8 that readers judged were useful, on the safe side.
TEXTBOOK_WORTH = 0.7

# P(right) at least of what the change itself shows, such as `num_workers=0` in place of `num_workers=4`.
SHOWN_RIGHT = 0.95


def as_shown(probability: float) -> float:
    """A probability as reports print it, never rounded up: what is printed as 0.55 has reached a threshold of 0.55."""
    return math.floor(probability * 100 + 1e-9) / 100


# The feature of a finding that a model was asked about: the probability that it gave, the mean of its further opinions.
CHECKED = "stated when checked"


class Severity(str, enum.Enum):
    """How much the problem costs where the rule is right: orders findings of equal confidence."""

    HIGH = "high"
    MEDIUM = "medium"
    LOW = "low"

    def __str__(self) -> str:
        return self.value


class Condition(str, enum.Enum):
    """What must hold for a comment to be made, besides the comment limit."""

    CONFIDENCE = "confidence"  # a maintainer would act on it: the threshold, or `min-confidence`
    RIGHT = "right"  # the statement is true
    STATED = "stated"  # the rule is sure of its own statement

    def __str__(self) -> str:
        return self.value


@dataclass(frozen=True, slots=True, order=True)
class Span:
    """Lines `start` to `end` of the head file, both included."""

    start: int
    end: int

    def __post_init__(self) -> None:
        if not 1 <= self.start <= self.end:
            raise ValueError(f"a span needs 1 <= start <= end, got {self.start}..{self.end}")

    def lines(self) -> range:
        return range(self.start, self.end + 1)


@dataclass(frozen=True, slots=True, order=True)
class Edit:
    """Replace the bytes `[start, end)` of the UTF-8 head text by `replacement`."""

    start: int
    end: int
    replacement: str

    def __post_init__(self) -> None:
        if not 0 <= self.start <= self.end:
            raise ValueError(f"an edit needs 0 <= start <= end, got {self.start}..{self.end}")


@dataclass(frozen=True, slots=True)
class Fix:
    """Edits of one file that belong together. An `unsafe` fix names its `assumption`: clauses with `; ` between them.

    That of a `safe` one names the inputs for which it gives a better result than the code before, if there are any.
    """

    safety: Safety
    edits: tuple[Edit, ...]
    assumption: str = ""
    # As one suggestion on the change: it stays in a hunk, and its edits are near each other.
    postable: bool = True


@dataclass(frozen=True, slots=True, order=True)
class Evidence:
    """A line that proves the finding, and what it shows. It may be old: the finding itself stands on a changed line."""

    line: int
    note: str


@dataclass(frozen=True, slots=True, order=True)
class Place:
    """Another place that a comment lists: the rule that sees it, what it says there, and when that is wrong."""

    span: Span
    rule: str
    name: str
    family: str
    message: str  # "" where the comment says the same
    when_wrong: str = ""
    severity: Severity | None = field(default=None, compare=False)
    impact: tuple[Impact, ...] = field(default=(), compare=False)  # what the comment itself does not state
    path: str = ""  # "" for the file of the comment


@dataclass(frozen=True, slots=True)
class Impact:
    """What the fix is worth, and who says so. Never a bare number.

    `low` and `high` are factors: 1.0 is no gain, 2.0 is half the time (or memory) for `scope`.
    """

    gain: str  # "time" | "memory"
    low: float
    high: float
    scope: str  # what the factor is of: "this operation", "the training step", ...
    conditions: str  # hardware, versions, sizes
    provenance: str  # "measured" | "published"
    source: str  # link
    device: str = ""  # "cpu" | "cuda" where we measured it


@dataclass(frozen=True, slots=True)
class Measured:
    """What the code of a finding takes of a run that somebody recorded."""

    share: float  # of the step, 0 to 1
    of: str  # "these lines" | "data loading" | "the optimizer" | ...
    at_most: bool  # the lines are some of several that can have taken it
    trace: str  # the name of the file: untrusted


@dataclass(frozen=True, slots=True)
class Proof:
    """What came of running a fix beside the code it replaces, as `ptopt prove` does."""

    inputs: int = 0  # on which both gave the same
    low: float = 0.0  # how many times as fast the fix is: a 95 % interval
    high: float = 0.0
    conditions: str = ""  # sizes, processor, versions
    refused: str = ""  # why it is not proved, a value of `ptopt.prove.reasons.Reason`; "" when it is
    why: str = ""  # the same in words

    @property
    def proved(self) -> bool:
        return not self.refused


@dataclass(frozen=True, slots=True)
class Finding:
    """One problem at one place, proven by lines of the code under review."""

    rule: str
    name: str
    family: str
    severity: Severity
    path: str
    span: Span
    symbol: str  # qualified name of the enclosing function or class; "" at module level
    message: str  # the problem in this code, one or two sentences
    when_wrong: str  # the condition under which the advice is wrong
    confidence: float  # 0..1: how likely a maintainer would act on it
    fingerprint: str
    evidence: tuple[Evidence, ...] = ()
    fix: Fix | None = None
    fix_rule: str = ""  # the rule of the comment whose fix it is; "" for its own
    impact: tuple[Impact, ...] = ()
    assumes: str = ""  # library versions taken for granted, as in "torch >= 2.5"; "" when they are pinned
    origin: str = "rule"  # "rule" | "model"
    also: tuple[Place, ...] = ()  # the other places of this comment, in order
    explanation: str = ""  # what a model wrote about it: untrusted, shown as a quotation
    features: tuple[tuple[str, float], ...] = ()  # what the ranker weighed, by name
    right: float | None = None  # how likely the statement is true, where the ranker's weights tell
    reasons: tuple[
        tuple[str, float], ...
    ] = ()  # the features that moved the confidence most: (name, log-odds)
    # The confidence before the feedback of the repository; None where there is none.
    score: float | None = None
    proof: Proof | None = None  # None: its fix was not run
    explored: bool = False  # shown although people made the rule quiet: the rule may return
    # In a run that the user recorded; None without one, or where it does not show.
    measured: Measured | None = None
    stated: float | None = None  # how sure the rule is of its own statement
    missed: tuple[Condition, ...] = ()  # the conditions of a comment that it does not meet
    excuse: str = ""  # the reason that the comment which suppresses it gives

    def as_place(self) -> Place:
        return Place(
            self.span,
            self.rule,
            self.name,
            self.family,
            self.message,
            self.when_wrong,
            self.severity,
            self.impact,
        )

    def places(self) -> tuple[Place, ...]:
        """All places of the comment, its own first."""
        return (self.as_place(), *self.also)

    def path_of(self, place: Place) -> str:
        return place.path or self.path

    def message_at(self, place: Place) -> str:
        """What is said at a place of the comment. Another rule that says nothing there means what this one says there.

        Where this one says nothing there, it is named with the line on which it does: its words are about that line.
        """
        if place.message:
            return place.message
        own = [
            p for p in self.places() if p.rule == self.rule and p.span == place.span and p.path == place.path
        ]
        if not own and place.rule != self.rule:
            return f"The same as {self.rule} says at line {self.span.start}."
        return next((p.message for p in own if p.message), self.message)

    def sort_key(self) -> tuple[str, int, int, str]:
        return (self.path, self.span.start, self.span.end, self.rule)


def lines_of(findings: Iterable[Finding]) -> frozenset[tuple[str, Span]]:
    """The lines that they stand on, which are what is counted as places: once, however many rules comment on them."""
    return frozenset((f.path_of(place), place.span) for f in findings for place in f.places())


def places_of(findings: Iterable[Finding]) -> int:
    """On how many places they stand."""
    return len(lines_of(findings))


def fingerprint(rule: str, path: str, symbol: str, code: str, occurrence: int = 0) -> str:
    """Identity of a finding that survives line shifts and re-indentation.

    `code` is normalised by dropping white space; `occurrence` numbers equal code in one symbol.
    Returns 32 hexadecimal digits.
    """
    normal = "".join(code.split())
    text = "\0".join((rule, path, symbol, normal, str(occurrence)))
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:32]


@dataclass(frozen=True, slots=True, order=True)
class NotReviewed:
    """A file, or a part of one, that was not reviewed, and why."""

    path: str
    reason: str
    syntax_error: bool = False  # it is no valid Python: `--exit-code` fails, as that of other linters does


@dataclass(frozen=True, slots=True, order=True)
class UnusedSuppression:
    """An unused suppression comment."""

    path: str
    line: int
    codes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ModelRecord:
    """The model that a review was made with, for the record."""

    name: str  # base model, adapter, engine
    adapter: str  # hash of the adapter; "" without one
    prompt_version: str
    schema_version: str
    judged: int = 0  # candidates of the rules that it gave an answer on
    invalid: int = 0  # answers that do not match the schema
    note: str = ""  # why it was not used in this review; "" when it was


@dataclass(frozen=True, slots=True)
class LeftOut:
    """What rules proposed and the ranker left out, counted as the findings that are shown are counted.

    Where a comment needs a rule to be sure (`least` has that condition), what rules are unsure of is not looked for.
    """

    places: Mapping[Condition, int]  # left out, each under the first condition that it does not meet
    least: Mapping[Condition, float]  # what each condition asks for
    all_findings: int  # that there are without the conditions, those that are shown among them
    all_places: int  # where these stand
    limit: int | None = None  # of comments; None where there is none
    rules: Mapping[str, int] = field(default_factory=dict)  # "PTO101 item-every-step" -> at how many of them
    also: Mapping[Condition, int] = field(
        default_factory=dict
    )  # of `places`, those that miss this one besides
    doubted: int = 0  # of `places`, where all that is proposed is less sure than a comment usually needs


@dataclass(frozen=True, slots=True)
class Review:
    """The result of a review: the findings that are reported, and what was left out."""

    findings: tuple[Finding, ...]  # within the budget, best first
    over_limit: tuple[Finding, ...] = ()  # above the comment limit: only listed in the summary
    suppressed: tuple[Finding, ...] = ()  # suppressed by a comment in the code
    not_reviewed: tuple[NotReviewed, ...] = ()
    unused_suppressions: tuple[UnusedSuppression, ...] = ()
    files_reviewed: int = 0
    reviewed: tuple[str, ...] = ()  # their paths
    partly: int = 0  # of them those for which the configuration switches rules off by their path
    config_path: str = ""  # "" when the defaults are in force
    # Path -> the code of each file with a finding, line by line as on disk.
    sources: dict[str, str] | None = None
    dropped: tuple[Finding, ...] = ()  # those of the rules that the model moved below the threshold
    model: ModelRecord | None = None  # None: reviewed without a model
    apart: bool = False  # each place of each rule is a finding by itself, as fixes are run
    muted: tuple[Finding, ...] = ()  # ignored in this pull request with `/ptopt ignore`
    quieted: tuple[Finding, ...] = ()  # below the threshold by the feedback of the repository
    cells: Mapping[str, Mapping[int, tuple[int, int]]] = field(
        default_factory=dict
    )  # notebook -> line on disk -> (cell, line in the cell)
    disk_lines: Mapping[str, Mapping[int, int]] = field(
        default_factory=dict
    )  # notebook saved without line breaks -> line of a finding, as if it had them -> line on disk
    in_baseline: tuple[Finding, ...] = ()  # each place that the baseline lists
    left_out: LeftOut | None = None  # what the ranker left out; None where nothing
    conditions: Mapping[Condition, float] = field(default_factory=dict)  # what a comment usually needs
    # Places that are shown and usually are not: by the first condition that they miss, those that rules are unsure of under STATED.
    unusual: Mapping[Condition, int] = field(default_factory=dict)
    least_stated: float = 0.0  # what rules themselves estimate lower was not looked for
    asked: frozenset[str] = frozenset()  # rules of which everything is shown, because the user named them
    compared: str = ""  # what the change was taken from, where git gave it: `origin/main...working tree`
    fix_arguments: str = ""  # with which `ptopt fix` applies the fixes that are shown
    in_hook: bool = False  # of pre-commit, whose configuration alone passes options
