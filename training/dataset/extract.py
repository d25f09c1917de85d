"""From documents to samples: pairs by people or by a teacher, and findings in the code of threads and pages.

Only code with a finding of our rules becomes a sample. A pair gives two: the slow form, and the fast one as a hard negative.
"""

from __future__ import annotations

import ast
import difflib
import hashlib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence

from ptopt.findings import Finding
from ptopt.model.deletions import takes_away
from ptopt.rules.base import SURE
from ptopt.rules.examples import PRELUDE
from training.dataset.regions import MAX_LINES, MIN_LINES, Region, regions
from training.dataset.rows import Positive, Sample, difficulty
from training.dataset.synthesis import Origin, look_alikes, review, samples_of
from training.sources.base import Block, Document

_MIN_SIMILARITY = 0.5  # of the lines of an answer and of its question, to be taken as its fixed form
_MAX_REPLACED = 30  # lines


def samples(documents: Iterable[Document], *, only_trainable: bool = True) -> Iterator[Sample]:
    """The samples of each document, in order; documents that the licence gate keeps from training are left out."""
    for document in documents:
        if document.train or not only_trainable:
            yield from samples_of_document(document)


def samples_of_document(document: Document) -> Iterator[Sample]:
    """Every sample once, by its hash."""
    seen = set[str]()
    for sample in _all(document):
        if sample.hash not in seen:
            seen.add(sample.hash)
            yield sample


def _all(document: Document) -> Iterator[Sample]:
    pairs: defaultdict[int, dict[str, Block]] = defaultdict(dict)
    for block in document.blocks:
        if block.pair:
            pairs[block.pair][block.role] = block
        elif block.role == "file":
            yield from _file(document, block)
        elif block.role == "tuned":
            yield from _hard_negative(document, block, block.rules, "look-alike", _group(block))
    for pair in pairs.values():
        slow, fast = pair.get("before") or pair.get("slow"), pair.get("after") or pair.get("fast")
        if slow is not None and fast is not None:
            yield from _pair(document, slow, fast, "taught" if slow.role == "slow" else "pair")
    yield from _thread(document)


def _file(document: Document, block: Block) -> Iterator[Sample]:
    provenance = document.provenance.removesuffix(f":{block.path}")
    origin = Origin(document.project, block.licence or document.licence, document.source, provenance)
    for region in regions(block.path, block.code):
        yield from samples_of(region, origin)


def _pair(document: Document, slow: Block, fast: Block, kind: str) -> Iterator[Sample]:
    """The slow form with the findings that the fast one lacks, and the fast form with these rules as hard negatives."""
    before, after = _region(slow), _region(fast)
    if before is None or after is None:
        return
    found = _confident(before)
    remaining = {f.name for f in _confident(after)}
    resolved = [f for f in found if f.name not in remaining and f.name in slow.rules]
    if not resolved or any(f.span.start < before.first_line for f in found):
        return
    positives = tuple(
        _positive(f, before, after, alone=len(resolved) == 1 and f in resolved) for f in resolved
    ) + tuple(_positive(f, before, after, alone=False) for f in found if f not in resolved)
    group = _group(slow)
    yield _sample(
        document,
        slow,
        before,
        kind,
        resolved[0].name,
        group,
        positives,
        before_text=slow.code,
        after_text=fast.code,
    )
    if not remaining:
        yield from _hard_negative(
            document, fast, tuple(dict.fromkeys(f.name for f in resolved)), "corrected", group
        )


def _hard_negative(
    document: Document, block: Block, names: Sequence[str], kind: str, group: str
) -> Iterator[Sample]:
    """Code that looks as if it had the problems, and does not. No sample where a rule has a finding after all."""
    region = _region(block)
    if region is None or not names or _confident(region):
        return
    alike = [n for n in look_alikes(region.text, region.context) if n not in names][:2]
    yield _sample(document, block, region, kind, names[0], group, negatives=(*names, *alike))


def _thread(document: Document) -> Iterator[Sample]:
    """Code of questions, answers and pages with findings; the most similar answer without them is its fixed form."""
    answers = [b for b in document.blocks if b.role == "answer"]
    for block in document.blocks:
        if block.role not in ("question", "page", "answer"):
            continue
        region = _region(block)
        if region is None or not (found := _confident(region)):
            continue
        if any(f.span.start < region.first_line for f in found):
            continue
        fast = _best_answer(block, {f.name for f in found}, answers) if block.role == "question" else None
        after = _region(fast) if fast is not None else None
        alone = len(found) == 1
        positives = tuple(_positive(f, region, after, alone=alone) for f in found)
        yield _sample(
            document, block, region, "organic", found[0].name, _group(block), positives,
            before_text=block.code if fast else None, after_text=fast.code if fast else None,
        )  # fmt: skip


def _best_answer(question: Block, names: set[str], answers: Sequence[Block]) -> Block | None:
    """The most similar answer in which none of these rules has a finding; None if none is similar enough."""
    best: tuple[float, Block] | None = None
    lines = question.code.split("\n")
    for answer in answers:
        region = _region(answer)
        if region is None or names & {f.name for f in _confident(region)}:
            continue
        similarity = difflib.SequenceMatcher(None, lines, answer.code.split("\n"), autojunk=False).ratio()
        if similarity >= _MIN_SIMILARITY and (best is None or similarity > best[0]):
            best = (similarity, answer)
    return best[1] if best else None


def _region(block: Block) -> Region | None:
    """The block as a region; a snippet of a page gets the usual imports, unless it brings its own."""
    text = block.code.rstrip("\n") + "\n"
    if not MIN_LINES <= text.count("\n") <= MAX_LINES or "\t" in text:
        return None
    last_line = block.context.rstrip("\n").rpartition("\n")[2]
    own = block.context or text.startswith(("import ", "from ")) or "\nimport torch" in text
    context = block.context if block.context or own else PRELUDE
    region = Region(block.path or "snippet.py", block.symbol, context, text, last_line.startswith("class "))
    try:
        ast.parse(region.as_file())
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    return region


def _confident(region: Region) -> list[Finding]:
    return [f for f in review(region.path, region.as_file()) if f.confidence >= SURE]


def _positive(finding: Finding, before: Region, after: Region | None, *, alone: bool) -> Positive:
    """The finding in lines of the region. Where it is the only one resolved (`alone`), the changed lines are its replacement."""
    shift = before.first_line - 1
    start, end = finding.span.start - shift, finding.span.end - shift
    fix_start, fix_end, replacement = start, end, None
    if alone and after is not None:
        old, new = before.text.rstrip("\n").split("\n"), after.text.rstrip("\n").split("\n")
        head = min(_common(old, new), start - 1)
        tail = min(_common(old[head:][::-1], new[head:][::-1]), len(old) - end)
        lines = new[head : len(new) - tail]
        short = max(len(lines), len(old) - tail - head) <= _MAX_REPLACED
        if short and not takes_away(finding.name, ast.parse(before.as_file()), ast.parse(after.as_file())):
            fix_start, fix_end, replacement = head + 1, len(old) - tail, "\n".join(lines)
    return Positive(
        finding.name, start, end, finding.message, finding.when_wrong, fix_start, fix_end, replacement
    )


def _common(a: Sequence[str], b: Sequence[str]) -> int:
    count = 0
    while count < min(len(a), len(b)) and a[count] == b[count]:
        count += 1
    return count


def _sample(
    document: Document,
    block: Block,
    region: Region,
    kind: str,
    rule: str,
    group: str,
    positives: tuple[Positive, ...] = (),
    negatives: tuple[str, ...] = (),
    *,
    before_text: str | None = None,
    after_text: str | None = None,
) -> Sample:
    return Sample(
        text=region.text,
        context=region.context,
        path=region.path,
        project=document.project,
        licence=block.licence or document.licence,
        source=document.source,
        provenance=block.url or f"{document.provenance}:{region.path}::{region.symbol}",
        kind=kind,
        main_rule=rule,
        positives=positives,
        negatives=negatives,
        before=before_text,
        after=after_text,
        difficulty=difficulty(region.text, kind, positives),
        group=group,
        attributes={"author": block.author or document.author} if block.author or document.author else {},
    )


def _group(block: Block) -> str:
    return hashlib.sha256(block.code.encode("utf-8", "surrogatepass")).hexdigest()[:24]
