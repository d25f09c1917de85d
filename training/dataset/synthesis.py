"""Reverse synthesis: from a region of real code to samples, each checked against the rule it is about."""

from __future__ import annotations

import ast
import dataclasses
import difflib
import functools
import hashlib
import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from ptopt.change import whole_file
from ptopt.config import Config
from ptopt.findings import Edit, Finding, Safety
from ptopt.model.deletions import takes_away
from ptopt.model.prompt import COMMON_WORDS
from ptopt.project.facts import NO_FACTS
from ptopt.review import review_files
from ptopt.rules import rules
from ptopt.rules.base import SURE, Rule
from ptopt.rules.engine import Prefilter, run
from ptopt.source.file import SourceFile
from ptopt.source.frequency import Often
from ptopt.syntax import ParseError
from ptopt.verify import EditError, apply_edits
from training.dataset.regions import Region, cut
from training.dataset.rows import Positive, Sample, Speedup, difficulty
from training.mutators import Mutation, Mutator, mutators
from training.mutators.base import apply
from training.mutators.names import Names

PER_RULE = 2  # mutations of one rule in one region, guarded ones apart
CORRECTED = "corrected"  # the kind of samples that are the answer to another
_REPEATED = frozenset(
    {"autograd", "memory", "ops", "sync", "transfer"}
)  # families about what runs again and again
_CONFIG = Config.model_validate({"min-confidence": 0.0, "skip": []})


@dataclass(frozen=True, slots=True)
class Origin:
    """Where regions come from."""

    project: str
    licence: str
    source: str
    provenance: str  # the part before the path


def samples_of(region: Region, origin: Origin) -> list[Sample]:
    """The samples of a region: the unmutated code, its mutations, and its look-alikes."""
    text = region.as_file()
    try:
        source = SourceFile.parse(region.path, text.encode())
    except (ParseError, UnicodeError):
        return []
    found = review(region.path, text)
    if any(not _inside(f, region) for f in found):
        return []
    make = functools.partial(_sample, region, origin)
    sure = [f for f in found if f.confidence >= SURE]
    samples = _unmutated(region, text, found, make)
    taken: Counter[tuple[str, bool]] = Counter()
    for mutator in mutators():
        rule = _rule(mutator.rule)
        for mutation in _in_order(mutator, source):
            if taken[mutator.rule, mutation.guarded] >= PER_RULE:
                continue
            sample = _mutated(region, source, rule, mutation, sure, make)
            if sample is not None:
                taken[mutator.rule, mutation.guarded] += 1
                samples.append(sample)
                samples += corrected(sample)
    return samples


def review(path: str, text: str) -> tuple[Finding, ...]:
    """All findings in the text, with the confidence that their rules state: a ranker's is not that of being true."""
    file = whole_file(path, text.encode())
    result = review_files([file], config=_CONFIG, facts=NO_FACTS, limit_to_change=False, one_per_cause=False)
    stated = (dict(finding.features).get("stated confidence", 0.0) for finding in result.findings)
    return tuple(
        dataclasses.replace(finding, confidence=confidence)
        for finding, confidence in zip(result.findings, stated, strict=True)
    )


def look_alikes(text: str, context: str) -> list[str]:
    """Names of the rules whose trigger words are in the text."""
    return [
        rule.name
        for rule in _PREFILTER(f"{context}{text}".encode())
        if rule.default and _has_trigger(rule, text)
    ]


_PREFILTER = Prefilter(rules())


def _has_trigger(rule: Rule, text: str) -> bool:
    words = [w for w in rule.triggers if w not in COMMON_WORDS] or [f"{c}(" for c in rule.calls]
    return any(re.search(rf"(?<!\w){re.escape(w)}" if w[0].isalpha() else re.escape(w), text) for w in words)


@functools.cache
def _rule(name: str) -> Rule:
    return next(rule for rule in rules() if rule.name == name)


def _in_order(mutator: Mutator, source: SourceFile) -> list[Mutation]:
    """The mutations, in the order of their hashes, so that the first place in the file is not preferred."""
    try:
        found = list(mutator.mutate(source))
    except RecursionError:
        return []
    return sorted(found, key=lambda m: hashlib.sha256(repr(m.edits).encode()).digest())


def _inside(finding: Finding, region: Region) -> bool:
    return finding.span.start >= region.first_line


def _unmutated(
    region: Region, text: str, found: Sequence[Finding], make: functools.partial[Sample]
) -> list[Sample]:
    sure = [f for f in found if f.confidence >= SURE]
    if found and not sure:
        return []  # nobody read what a rule proposes there: it is neither a problem nor an example of code without one
    if sure:
        positives = tuple(positive(f, text, _fixed_by(f), region.first_line, region.method) for f in sure)
        main = min(positives, key=lambda p: (p.replacement is None, p.start))
        return [make(region.text, kind="organic", main_rule=main.rule, positives=positives)]
    # That no rule speaks is no proof: such code is an example of an empty list of findings, not of a "no" to one of them.
    return [
        make(region.text, kind="original", main_rule=name)
        for name in look_alikes(region.text, region.context)
    ]


def _mutated(
    region: Region,
    source: SourceFile,
    rule: Rule,
    mutation: Mutation,
    before: Sequence[Finding],
    make: functools.partial[Sample],
) -> Sample | None:
    """The mutation as a sample; None unless it parses, can be reverted, and the rule has a finding there."""
    if any(e.start != 0 and source.line_at(e.start) < region.first_line for e in mutation.edits):
        return None
    try:
        slow, back = apply(source.text, mutation.edits)
        after = SourceFile.parse(source.path, slow.encode())
    except (ParseError, UnicodeError, ValueError):
        return None
    if slow == source.text or apply(slow, back)[0] != source.text:
        return None
    first = region.first_line + sum(
        e.replacement.count("\n") for e in mutation.edits if e.start == 0 and e.end == 0
    )
    text = cut(slow, first, region.method)
    if text is None:
        return None
    context = "\n".join(slow.split("\n")[: first - 1]) + "\n" if first > 1 else ""
    lines = [
        range(after.line_at(e.start), after.line_at(max(e.start, e.end - 1)) + 1)
        for e in back
        if e.end > first
    ]
    hits = run(after, [rule])
    if mutation.guarded:
        if hits or before or any(f.confidence >= SURE for f in review(region.path, slow)):
            return None
        change = _change(region.text, text)
        return make(
            text, context=context, kind="guarded", main_rule=rule.name, negatives=(rule.name,),
            attributes={f"lines of {rule.name}": change["changed"], **change},
        )  # fmt: skip
    known = [f for f in before if f.name == rule.name]
    new = [
        h
        for h in hits
        if h.problem.confidence >= SURE
        and _is_near(after.span(h.problem.node).start, lines)
        and _matters(after, rule, h.problem.node)
    ]
    if not new or len(known) >= sum(h.problem.confidence >= SURE for h in hits):
        return None
    proposed = review(region.path, slow)
    found = [f for f in proposed if f.confidence >= SURE]
    about = [f for f in found if f.name == rule.name and _is_near(f.span.start, lines)]
    if not about or any(f.span.start < first for f in found):
        return None
    way = _way_to_fast(source, after, mutation, back, about[0])
    positives = tuple(
        positive(f, slow, way if f in about else _fixed_by(f), first, region.method)
        for f in sorted(found, key=lambda f: (f not in about, f.sort_key()))
    )
    fast = region.text if way == back else cut(apply_edits(slow, way), first, region.method)
    fast = None if positives[0].replacement is None else fast
    return make(
        text, context=context, kind="mutated", main_rule=rule.name, positives=positives,
        before=None if fast is None else text, after=fast, attributes=_change(region.text, text),
    )  # fmt: skip


def _matters(source: SourceFile, rule: Rule, node: ast.AST) -> bool:
    """Would somebody act? What waits, copies or records once costs nothing, and neither does one wait of several."""
    scope = next(source.index.loops_of(node), None) or source.index.function_of(node)
    if rule.family == "sync" and scope is not None and source.waits.others(node, scope):
        return False
    often = source.frequencies.of(node).often
    return often != Often.RARELY and not (often == Often.ONCE and rule.family in _REPEATED)


def corrected(sample: Sample) -> list[Sample]:
    """The answer to a mutation, as code without the problem in the lines that look much the same."""
    if sample.after is None:
        return []
    before = sample.before or ""
    change = _change(before, sample.after)
    lines = change["changed"]
    slow, fast = _tokens(before, _changed_lines(sample.after, before)), _tokens(sample.after, lines)
    if not fast - slow:
        return []  # only something was taken away: nothing that looks like the problem is left
    return [
        dataclasses.replace(
            sample, text=sample.after, kind=CORRECTED, positives=(), negatives=(sample.main_rule,), before=None,
            after=None, difficulty=difficulty(sample.after, CORRECTED, ()),
            attributes={f"lines of {sample.main_rule}": lines, **change},
        )
    ]  # fmt: skip


def _tokens(text: str, lines: str) -> Counter[str]:
    """The words and signs of some lines, with how often each is there."""
    every = text.split("\n")
    return Counter(re.findall(r"\w+|[^\w\s]", "\n".join(every[int(n) - 1] for n in lines.split())))


def _change(before: str, after: str) -> dict[str, str]:
    """The change from one text to the other, as `Sample.attributes` has it: the lines that it wrote, and what it removed."""
    old, new = before.rstrip("\n").split("\n"), after.rstrip("\n").split("\n")
    changed: list[int] = []
    removed: list[tuple[int, str]] = []
    for tag, low, high, first, last in difflib.SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        if tag != "equal":
            changed += [n for n in range(first + 1, last + 1) if new[n - 1].strip()]
            removed += [(min(first + 1, len(new)), line) for line in old[low:high] if line.strip()]
    return {"changed": " ".join(map(str, changed)), "removed": json.dumps(removed)}


def _changed_lines(before: str, after: str) -> str:
    """The lines of `after` that are not in `before`, as "3 4"."""
    return _change(before, after)["changed"]


def _way_to_fast(
    source: SourceFile, slow: SourceFile, mutation: Mutation, back: tuple[Edit, ...], finding: Finding
) -> tuple[Edit, ...]:
    """Edits of the slow form after which it does the same, without the finding: the mutation's own fast form, the way back,
    or the fix of the rule. None where each of them only takes code away, or names what the slow form does not show.
    """
    if not mutation.answered:
        return ()
    own = _from_to(slow.text, apply(source.text, mutation.fast)[0]) if mutation.fast else back
    shown = Names.of(slow.tree)
    for edits in (own, finding.fix.edits if finding.fix is not None else ()):
        try:
            fast = SourceFile.parse(slow.path, apply_edits(slow.text, edits).encode())
        except (ParseError, EditError, UnicodeError):
            continue
        silent = all(h.problem.confidence < SURE for h in run(fast, [_rule(finding.name)]))
        if not edits or not silent or takes_away(finding.name, slow.tree, fast.tree):
            continue
        if not shown.unknown_in(fast.tree):
            return tuple(edits)
    return ()


def _from_to(old: str, new: str) -> tuple[Edit, ...]:
    """The edit of whole lines that makes one text of the other."""
    before, after = old.splitlines(keepends=True), new.splitlines(keepends=True)
    head = _common(before, after)
    tail = _common(before[head:][::-1], after[head:][::-1])
    start = len("".join(before[:head]).encode())
    end = len("".join(before[: len(before) - tail]).encode())
    text = "".join(after[head : len(after) - tail])
    return (Edit(start, end, text),) if (start, text) != (end, "") else ()


def _is_near(line: int, places: Sequence[range]) -> bool:
    return any(place.start - 3 <= line <= place.stop + 3 for place in places)


def _fixed_by(finding: Finding) -> tuple[Edit, ...]:
    """The edits of a fix that is the same in every case: what an unsafe one assumes, nobody looked at."""
    safe = finding.fix is not None and finding.fix.safety is Safety.SAFE
    return finding.fix.edits if finding.fix is not None and safe else ()


def positive(finding: Finding, text: str, edits: Sequence[Edit], first: int, method: bool) -> Positive:
    """The finding in lines of a region, with the lines that replace it.

    `text` is the file, whose line `first` is the first of the region; in it a `method` is indented by four.
    """
    start, end = finding.span.start - first + 1, finding.span.end - first + 1
    fix_start, fix_end, replacement = start, end, None
    body = [e for e in edits if not (e.start == 0 and e.replacement == "")]
    fixed = apply_edits(text, body)
    if body and not _takes_away(finding.name, text, fixed):
        old, new = text.split("\n"), fixed.split("\n")
        head = _common(old, new)
        tail = _common(old[head:][::-1], new[head:][::-1])
        # The lines that the finding names are part of what is replaced.
        head = min(head, finding.span.start - 1)
        tail = min(tail, len(old) - finding.span.end)
        lines = new[head : len(new) - tail]
        if head >= first - 1 and len(lines) <= 40:
            fix_start, fix_end = head - first + 2, max(head + 1, len(old) - tail) - first + 1
            cut_off = 4 if method else 0
            replacement = "\n".join(line[cut_off:] if line[:cut_off].isspace() else line for line in lines)
    return Positive(
        finding.name,
        start,
        end,
        _relative(finding.message, first),
        finding.when_wrong,
        fix_start,
        fix_end,
        replacement,
    )


def _takes_away(rule: str, before: str, after: str) -> bool:
    try:
        return takes_away(rule, ast.parse(before), ast.parse(after))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return True


def _relative(message: str, first: int) -> str:
    """The message with line numbers of the text, not of the file it was judged in."""
    return re.sub(r"\bline (\d+)", lambda m: f"line {max(1, int(m.group(1)) - first + 1)}", message)


def _common(a: Sequence[str], b: Sequence[str]) -> int:
    count = 0
    for x, y in zip(a, b, strict=False):
        if x != y:
            break
        count += 1
    return count


def _sample(
    region: Region, origin: Origin, text: str, *, kind: str, main_rule: str, context: str | None = None,
    positives: tuple[Positive, ...] = (), negatives: tuple[str, ...] = (), before: str | None = None, after: str | None = None,
    attributes: Mapping[str, str] = MappingProxyType({}),
) -> Sample:  # fmt: skip
    return Sample(
        text=text,
        context=region.context if context is None else context,
        path=region.path,
        project=origin.project,
        licence=origin.licence,
        source=origin.source,
        provenance=f"{origin.provenance}:{region.path}::{region.symbol}",
        kind=kind,
        main_rule=main_rule,
        positives=positives,
        negatives=negatives,
        before=before,
        after=after,
        difficulty=difficulty(text, kind, positives),
        group=region.group,
        attributes=dict(attributes),
    )


def sample_of(
    region: Region, origin: Origin, found: Sequence[Finding], *, kind: str, main_rule: str, after: str | None = None,
    speedup: Speedup | None = None,
) -> Sample:  # fmt: skip
    """A whole unmutated region, about one rule, with its findings."""
    text = region.as_file()
    first = sorted(found, key=lambda f: (f.name != main_rule, f.sort_key()))
    sample = _sample(
        region, origin, region.text, kind=kind, main_rule=main_rule,
        positives=tuple(positive(f, text, _fixed_by(f), region.first_line, region.method) for f in first),
        negatives=() if any(f.name == main_rule for f in found) else (main_rule,),
        before=region.text if after is not None else None, after=after,
    )  # fmt: skip
    return dataclasses.replace(sample, executed=speedup is not None, speedup=speedup)
