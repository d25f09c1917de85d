"""The records of a dataset: samples, and instruction rows. The model's views are in `views`."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

VIEWS = ("judge", "advise", "explain")
INSTRUCTIONS = (
    "Review this PyTorch code for performance. Name the problem and its lines, and give the faster code.",
    "What in this PyTorch code is needlessly slow? Say where, why, and what to write instead.",
    "Find the performance problem in this PyTorch code, if there is one, and mend it.",
)
Difficulty = Literal["easy", "medium", "hard"]
JUDGED = "judged"  # the kind of samples whose labels are verdicts of people
ACCEPTED = "accepted"  # of comments whose suggestion somebody took
NOTHING = "Nothing here is needlessly slow."


@dataclass(frozen=True, slots=True)
class Positive:
    """A problem in the text: its rule, its 1-based lines in the text, and the code that fixes it.

    `replacement` takes the place of the lines `fix_start` to `fix_end`; None when no replacement is known.
    """

    rule: str
    start: int
    end: int
    message: str
    when_wrong: str = ""
    fix_start: int = 0
    fix_end: int = 0
    replacement: str | None = None


@dataclass(frozen=True, slots=True)
class Speedup:
    """A factor of time, and how it was measured."""

    factor: float
    how: str


@dataclass(frozen=True, slots=True)
class Sample:
    """One piece of code with what is known about it.

    `text` is a whole function or class, dedented. `context` is what stands above it (imports, the class) and makes it a
    file. `main_rule` is the rule that the sample is about: one of `positives`, or of `negatives` (rules that look
    present and are not).
    """

    text: str
    context: str
    path: str
    project: str
    licence: str  # SPDX
    source: str  # which source it came from
    provenance: str  # a link, or package==version:path
    kind: str  # how it was made; see the card
    main_rule: str
    positives: tuple[Positive, ...] = ()
    negatives: tuple[str, ...] = ()
    before: str | None = None
    after: str | None = None
    difficulty: Difficulty = "medium"
    executed: bool = False
    speedup: Speedup | None = None
    group: str = ""  # the piece of original code it was made from
    facts: tuple[str, ...] | None = (
        None  # static facts in lines of the text; None: what the text and context show
    )
    attributes: Mapping[str, str] = field(default_factory=dict)

    @property
    def hash(self) -> str:
        """Identity of the sample: the text and its labels."""
        key = "\0".join([self.text, self.kind, self.main_rule, *(p.rule for p in self.positives)])
        return hashlib.sha256(key.encode("utf-8", "surrogatepass")).hexdigest()[:32]

    def lines_of(self, rule: str) -> tuple[int, ...]:
        """The lines of the text that a comment of this rule stood on, where that is known of a rule without a point."""
        return tuple(int(n) for n in self.attributes.get(f"lines of {rule}", "").split())

    def change(self) -> tuple[frozenset[int], tuple[tuple[int, str], ...]] | None:
        """The lines of the text that a change wrote, and what it removed (line that it stood before, text); None where the
        text is new, or nothing says it."""
        if "changed" not in self.attributes:
            return None
        removed = json.loads(self.attributes.get("removed", "[]"))
        changed = frozenset(map(int, self.attributes["changed"].split()))
        return changed, tuple((int(line), str(text)) for line, text in removed)

    def to_json(self) -> str:
        return json.dumps(asdict(self), ensure_ascii=False, sort_keys=True)

    @classmethod
    def from_json(cls, line: str) -> Sample:
        data: dict[str, Any] = json.loads(line)
        data["positives"] = tuple(Positive(**p) for p in data["positives"])
        data["negatives"] = tuple(data["negatives"])
        data["facts"] = None if data.get("facts") is None else tuple(data["facts"])
        data["speedup"] = Speedup(**data["speedup"]) if data["speedup"] else None
        return cls(**data)


def difficulty(text: str, kind: str, positives: Sequence[Positive]) -> Difficulty:
    """By the length of the text, and how far the problem is from a pattern on one line."""
    lines = text.count("\n")
    score = (lines > 15) + (lines > 45) + (kind in ("guarded", "organic", JUDGED))
    score += any(p.end > p.start or p.fix_end > p.fix_start + 1 for p in positives)
    levels: tuple[Difficulty, ...] = ("easy", "medium", "hard")
    return levels[min(score, 2)]


def numbered(text: str) -> str:
    """The text with 1-based line numbers."""
    lines = text.rstrip("\n").split("\n")
    width = len(str(len(lines)))
    return "\n".join(f"{n:>{width}}| {line}" for n, line in enumerate(lines, 1))


def instruct_row(sample: Sample) -> dict[str, Any]:
    """The instruction row of a sample: an instruction, the code, and the answer as text."""
    instruction = INSTRUCTIONS[int(sample.hash[:8], 16) % len(INSTRUCTIONS)]
    output = "\n\n".join(_finding_text(p) for p in sample.positives) or _no_finding_text(sample)
    return row(sample, "instruct", instruction, numbered(sample.text), output)


def expected_speedup(sample: Sample) -> str:
    """The expected gain of the fix and its provenance; "" when nobody measured it."""
    from ptopt import impact

    if sample.speedup is not None:
        return f"{sample.speedup.factor:.2f}x ({sample.speedup.how})"
    if not sample.positives:
        return ""
    for gain in impact.of_rule(sample.main_rule):
        what = "" if gain.gain == "time" else f" {gain.gain}"
        return f"{gain.low:g}-{gain.high:g}x{what} for {gain.scope} ({gain.provenance}: {gain.conditions})"
    return ""


def row(sample: Sample, view: str, instruction: str, text: str, output: str) -> dict[str, Any]:
    """A row of the dataset: a question, its answer, and where both come from."""
    return {
        "instruction": instruction,
        "input": text,
        "output": output,
        "metadata": {
            "optimization_type": _family(sample.main_rule),
            "expected_speedup": expected_speedup(sample),
            "difficulty": sample.difficulty,
            "rule": sample.main_rule,
            "label": "yes" if any(p.rule == sample.main_rule for p in sample.positives) else "no",
            "kind": sample.kind,
            "project": sample.project,
            "license": sample.licence,
            "source": sample.source,
            "provenance": sample.provenance,
            "executed": sample.executed,
            "view": view,
            "group": sample.group,
            "hash": sample.hash,
        },
    }


def _finding_text(p: Positive) -> str:
    lines = f"Line {p.start}" if p.start == p.end else f"Lines {p.start}-{p.end}"
    text = f"{lines}: {p.rule}. {p.message}"
    if p.replacement is None:
        return text
    where = f"line {p.fix_start}" if p.fix_start == p.fix_end else f"lines {p.fix_start}-{p.fix_end}"
    if not p.replacement.strip():
        return f"{text}\nDelete {where}."
    return f"{text}\nReplace {where} by:\n```python\n{p.replacement}\n```"


def _no_finding_text(sample: Sample) -> str:
    if not sample.negatives:
        return NOTHING
    if sample.kind == JUDGED:
        return f"A comment on {sample.main_rule} is not worth making here."
    return f"{NOTHING} It looks like {sample.main_rule}, and is not: {_why_not(sample)}"


def _why_not(sample: Sample) -> str:
    if sample.kind == "guarded":
        return "it is switched off, or runs only now and then."
    return "the pattern that makes it slow is not there."


def _family(rule: str) -> str:
    from ptopt.rules import find_rule

    found = find_rule(rule)
    return found.family if found is not None else "other"
