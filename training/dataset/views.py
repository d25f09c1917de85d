"""The views of a sample: prompts of `ptopt.model.prompt` with the right answers.

The region is found as in a review, from the file form of the sample, so that training and serving read the same text.
A long region is cut around lines that do not give the answer away: for a rule that has a point the lines of its finding, for
one that has none a line with the rule's words, which is where a finding would be.
"""

from __future__ import annotations

import dataclasses
import hashlib
import re
import textwrap
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from typing import Any

from ptopt.model import prompt
from ptopt.model.interface import ChatPrompt, JudgePrompt
from ptopt.model.region import (
    ADVISE_TOKENS,
    JUDGE_TOKENS,
    Candidate,
    Region,
    estimate,
    fit,
    regions_of,
    render,
)
from ptopt.model.schema import MAX_FINDINGS, MAX_REASON, MAX_REPLACEMENT, Advice, answer
from ptopt.source.file import SourceFile
from ptopt.syntax import ParseError
from training.dataset.rows import JUDGED, Positive, Sample, row

Count = Callable[[str], int]
_MIN_TOKENS = 40  # of code; a shorter cut cannot be judged
_HEADER = re.compile(r"\s*(def |class |import |from |async def |@|#)")
_SENTENCE = re.compile(r"(?<=[.!?])\s+(?=[A-Z`])")


def judge_examples(
    sample: Sample, max_tokens: int | None = None, count: Count = estimate, code: int = JUDGE_TOKENS
) -> list[tuple[JudgePrompt, tuple[bool, ...]]]:
    """Prompts about the candidates of the sample, and for each piece whether the code has the problem.

    One prompt a function; their order and that of the questions does not depend on the answers. The code is cut to
    `code` tokens, as in a review. With `max_tokens`, a prompt takes at most so many, as `count` counts; what does not fit
    is left out.
    """
    present = {p.rule for p in sample.positives}
    examples = []
    for region in judge_regions(sample):
        smaller = _within(region, _judge_text, code, max_tokens, 0, count)
        if smaller is None:
            continue
        shown = {line.number for line in smaller.lines}
        asked = tuple(
            c for c in smaller.candidates if shown.intersection(c.lines)
        )  # not of lines that were cut
        smaller = dataclasses.replace(smaller, candidates=asked)
        answers = [c.rule in present for c in smaller.candidates]
        for one in prompt.judge(smaller):
            examples.append((one, tuple(answers[: len(one.pieces)])))
            del answers[: len(one.pieces)]
    return examples


def judge_regions(sample: Sample) -> list[Region]:
    """The whole regions of the sample that have candidates."""
    source = source_of(sample)
    if source is None:
        return []
    # Of a mutation the main rule alone: what else rules say of such code, nobody looked at.
    present = {sample.main_rule} if sample.kind == "mutated" else {p.rule for p in sample.positives}
    names = sorted(present | set(sample.negatives), key=lambda rule: _draw(sample, rule))
    candidates = [Candidate(rule, lines) for rule in names if (lines := _asked(sample, rule))]
    found = [region for region in _regions_of(sample, source, candidates) if region.candidates]
    if sample.facts is None:
        return found
    return [dataclasses.replace(region, facts=sample.facts) for region in found]


def advise_example(
    sample: Sample, max_tokens: int | None = None, count: Count = estimate
) -> tuple[ChatPrompt, str] | None:
    """The prompt for findings of the model's own, and the JSON that is right.

    None where the right answer cannot be given: a problem without a known replacement, or one too long for the schema
    or for the room; and for code of which single comments were judged, as there may be more to say.
    """
    region = _main_region(sample)
    if region is None or sample.kind == JUDGED:
        return None
    here = [p for p in sample.positives if region.start <= _in_file(sample, p.start) <= region.end]
    here = sorted(here, key=lambda p: (p.rule != sample.main_rule, p.start))[:MAX_FINDINGS]
    advice = [_advice(sample, region, p) for p in sorted(here, key=lambda p: p.start)]
    known = [a for a in advice if a is not None]
    if len(known) < len(advice):
        return None
    text = answer(known, region)
    smaller = _within(region, _advise_text, ADVISE_TOKENS, max_tokens, count(text), count)
    if smaller is None:
        return None
    shown = {line.number for line in smaller.lines}
    if any(not shown.issuperset(range(a.start, a.end + 1)) for a in known):
        return None
    return prompt.advise(smaller), text


def explain_example(
    sample: Sample, max_tokens: int | None = None, count: Count = estimate
) -> tuple[ChatPrompt, str] | None:
    """The prompt for two sentences about the main finding, and the sentences. None for a sample without one."""
    question = explain_question(sample)
    if question is None:
        return None
    region, about, lines, message = question

    def ask(shown: Region) -> ChatPrompt:
        return prompt.explain(shown, about.rule, lines, message)

    text = _two_sentences(sample, region, about)
    smaller = _within(region, lambda r: _chat_text(ask(r)), ADVISE_TOKENS, max_tokens, count(text), count)
    if smaller is None or lines.start not in {line.number for line in smaller.lines}:
        return None
    return ask(smaller), text


def explain_question(sample: Sample) -> tuple[Region, Positive, range, str] | None:
    """The main finding of the sample: its whole region, its lines and message in those of the file; None without one."""
    about = next((p for p in sample.positives if p.rule == sample.main_rule), None)
    region = _main_region(sample)
    if about is None or region is None or sample.kind == JUDGED:
        return None
    lines = range(_in_file(sample, about.start), _in_file(sample, about.end) + 1)
    return region, about, lines, _message_in_file(sample, about)


def view_rows(sample: Sample) -> Iterator[dict[str, Any]]:
    """The rows of all views of the sample."""
    for question, answers in judge_examples(sample):
        text = "\n".join("yes" if right else "no" for right in answers)
        yield row(
            sample,
            "judge",
            "Answer yes or no at the end of each line that ends in Answer.",
            "".join(question.pieces),
            text,
        )
    for view, example in (("advise", advise_example(sample)), ("explain", explain_example(sample))):
        if example is not None:
            yield row(sample, view, example[0].system, example[0].user, example[1])


# -- regions -----------------------------------------------------------------------------------------------


def source_of(sample: Sample) -> SourceFile | None:
    """The file form of the sample; None where it does not parse."""
    path = sample.path if sample.path.endswith(".py") else "code.py"
    body = textwrap.indent(sample.text, "    ") if _in_class(sample) else sample.text
    return _parsed(path, sample.context + body)


def _regions_of(sample: Sample, source: SourceFile, candidates: Sequence[Candidate]) -> list[Region]:
    """The regions, with the marks of the change that made the sample in half of the cases; in the others the code is new."""
    change = sample.change()
    if change is None or _draw(sample, "change") % 2:
        return regions_of(source, None, candidates)
    indent = "    " if _in_class(sample) else ""
    changed = frozenset(_in_file(sample, n) for n in change[0])
    removed = [(_in_file(sample, n), f"{indent}{text}") for n, text in change[1]]
    return regions_of(source, changed, candidates, removed)


@lru_cache(maxsize=4)  # the views of one sample
def _parsed(path: str, text: str) -> SourceFile | None:
    try:
        return SourceFile.parse(path, text.encode())
    except (ParseError, UnicodeError):
        return None


def _in_class(sample: Sample) -> bool:
    """Is the text a method, whose class line, or another method of it, ends the context?"""
    last = sample.context.rstrip().rpartition("\n")[2]
    return last.startswith("    ") or (last.startswith("class ") and last.endswith(":"))


def _in_file(sample: Sample, line: int) -> int:
    """A line of the text, counted in the file form."""
    return line + sample.context.count("\n")


def _asked(sample: Sample, rule: str) -> tuple[int, ...]:
    """The lines, in the file form, that a judge is asked about; none where nothing looks like the problem."""
    known = any(p.rule == rule for p in sample.positives) or sample.lines_of(rule)
    if not known and not any(word in sample.text for word in prompt.words_of(rule)):
        return ()
    return _focus(sample, rule)


def _focus(sample: Sample, rule: str) -> tuple[int, ...]:
    """The lines, in the file form, that a long region is cut around for this rule."""
    found = [n for p in sample.positives if p.rule == rule for n in range(p.start, p.end + 1)]
    found = found or list(sample.lines_of(rule))
    if not found:
        texts = sample.text.rstrip("\n").split("\n")
        words = prompt.words_of(rule)
        alike = [n for n, text in enumerate(texts, 1) if any(word in text for word in words)]
        alike = [n for n in alike if not _HEADER.match(texts[n - 1])] or alike
        alike = alike or [n for n, text in enumerate(texts, 1) if text.strip()]
        found = [alike[_draw(sample, rule) % len(alike)]]
    return tuple(_in_file(sample, n) for n in found)


def _draw(sample: Sample, rule: str) -> int:
    """A number that depends on the code and the rule alone, never on the label."""
    return int.from_bytes(
        hashlib.sha256(f"{rule}\0{sample.text}".encode("utf-8", "replace")).digest()[:8], "big"
    )


def _main_region(sample: Sample) -> Region | None:
    """The region that the sample is about, with all that it must show as the lines of one candidate."""
    source = source_of(sample)
    if source is None:
        return None
    main = [p for p in sample.positives if p.rule == sample.main_rule] or list(sample.positives[:1])
    lines = [
        _in_file(sample, n) for p in main for n in range(p.fix_start or p.start, (p.fix_end or p.end) + 1)
    ]
    focus = Candidate(sample.main_rule, tuple(lines) or _focus(sample, sample.main_rule))
    return next((r for r in _regions_of(sample, source, [focus]) if r.candidates), None)


def _within(
    region: Region,
    text_of: Callable[[Region], str],
    code: int,
    max_tokens: int | None,
    answer_tokens: int,
    count: Count,
) -> Region | None:
    """The region as a review cuts it to `code` tokens, and further to what `max_tokens` leave as `count` counts them.

    None when less than `_MIN_TOKENS` is left. The text around the code may only become shorter with it.
    """
    smaller = fit(region, code)
    if max_tokens is not None:
        room = max_tokens - answer_tokens - (count(text_of(smaller)) - count(render(smaller)))
        if room < _MIN_TOKENS:
            return None
        smaller = fit(smaller, room, count)
    return smaller if smaller.lines else None


def _judge_text(region: Region) -> str:
    """The longest prompt: the one with most questions."""
    few = dataclasses.replace(region, candidates=region.candidates[: prompt.MAX_QUESTIONS])
    return "".join(prompt.judge(few)[0].pieces)


def _advise_text(region: Region) -> str:
    return _chat_text(prompt.advise(region))


def _chat_text(chat: ChatPrompt) -> str:
    """A text as long as the rendered chat template: two messages and their delimiters."""
    return f"{chat.system}\n{chat.user}\n" + "user\n" * 8


# -- answers -----------------------------------------------------------------------------------------------


def _advice(sample: Sample, region: Region, p: Positive) -> Advice | None:
    start, end = _in_file(sample, p.fix_start or p.start), _in_file(sample, p.fix_end or p.end)
    if p.replacement is None or not region.start <= start <= end <= region.end:
        return None
    code = _in_region(sample, region, p.replacement)
    if code is None or len(code) > MAX_REPLACEMENT:
        return None
    reason = prompt.in_shown_numbers(region, _SENTENCE.split(_message_in_file(sample, p))[0])
    return Advice(
        p.rule, start, end, code, reason if len(reason) <= MAX_REASON else f"{reason[: MAX_REASON - 3]}..."
    )


def _in_region(sample: Sample, region: Region, code: str) -> str | None:
    """Code of the sample, less the indent that the region has beyond it; None where a line has less."""
    more = region.indent[4:] if _in_class(sample) else region.indent
    lines = code.split("\n")
    if any(line.strip() and not line.startswith(more) for line in lines):
        return None
    return "\n".join(line[len(more) :] if line.strip() else "" for line in lines)


def _message_in_file(sample: Sample, p: Positive) -> str:
    return prompt.with_numbers(p.message.strip(), lambda line: _in_file(sample, line))


def _two_sentences(sample: Sample, region: Region, p: Positive) -> str:
    """Why it is slow, in the words of the rule about this code, and what to write, as the fix has it."""
    sentences = _SENTENCE.split(prompt.in_shown_numbers(region, _message_in_file(sample, p)))
    shown = [
        prompt.shown_number(region, _in_file(sample, n)) for n in (p.fix_start or p.start, p.fix_end or p.end)
    ]
    where = f"line {shown[0]}" if shown[0] == shown[1] else f"lines {shown[0]} to {shown[1]}"
    code = None if p.replacement is None else p.replacement.strip()
    if code == "":
        return f"{sentences[0]} Delete {where}."
    if code is not None and "\n" not in code and len(code) <= 100:
        return f"{sentences[0]} Write `{code}` in place of {where}."
    return " ".join(sentences[:2])
