"""Text that the reports share, and escaping of untrusted text for each of them."""

from __future__ import annotations

import re
import sys
import textwrap
from collections.abc import Collection, Iterable, Mapping

from ptopt.address import rule_page
from ptopt.findings import (
    CHECKED,
    TEXTBOOK,
    TEXTBOOK_WORTH,
    Condition,
    Finding,
    Impact,
    LeftOut,
    Review,
    Safety,
    Severity,
    Span,
    UnusedSuppression,
    lines_of,
    places_of,
)
from ptopt.ranker.model import LACKING
from ptopt.rules import find_rule, known_names
from ptopt.spelling import BY_MODEL, similar

_CODE_SPAN = re.compile(r"(?<!`)(`+)(?!`)(.+?)(?<!`)\1(?!`)", re.S)
_BACKTICKS = re.compile(r"`+")
_CODE_IN_PROSE = re.compile(r"`[^`\n]*`")
_STAND_IN = "\0"  # of a space at which no line ends
_MARKUP = re.compile(r"[\\`*_\[\]<>|~&$#@]|:(?=//|[\w+-])")
_AT_START = re.compile(r"^(?:(\d+)([.)])(?=\s|$)|([-+=]))")
# GitHub links these also right after an underscore, and where the number is that of a commit.
_AUTOLINK = re.compile(r"(?<![a-z0-9])(www(?=\.)|gh-(?=\d)|[0-9a-f]{7,}(?![a-z0-9]))", re.I | re.A)
_LINK = re.compile(r"https://[\w.~/%#?=&+:-]+", re.A)
_LINE_NAMES = re.compile(r"\blines? [1-9]\d{0,6}\b(?:(?:, | and )[1-9]\d{0,6}\b)*", re.A)
PROSE = 100  # columns in which prose is easy to read, however wide the terminal; code takes all of them
# A finding has a severity of its own, too, which the features do not know.
_FEATURES = {
    "severity": "usual severity of the rule", "often": "how often it runs", "often by": "shown by", "layers": "layers of the file",
    "value": "kind of value", "use": "use of the value", "exit": "exit before it", "guard": "condition around it",
    "made": "the tensor it makes", "waits": "waits beside it", "path": "the path of the file tells of", "symbol": "the name of its function or class tells of",
    "kind": "kind of file", "class": "its class", "file": "the file", "function": "its function", "function uses": "what its function uses",
    "file about": "what the file is about", "mentioned": "the function is named", "works on": "what it works on",
    "trips": "how many times the loop goes round", "device": "device of the value", "graph": "graph of the value",
}  # fmt: skip
_WHAT = {
    "often:evaluation": "each batch, in a loop that does not train", "made:one number": "a number or a short list",
    "guard:none": "a test for None", "guard:none not": "a test for None, on its other side", "exit:none": "a test for None",
    "function uses:tensor operations": "products, attention or losses", "function uses:generation": "a method that samples or decodes",
    "file:old torch": "has words of an old torch", "file:new torch": "has words of a new torch",
}  # fmt: skip
# Features that need words of their own, where a finding has them and where it has none.
_ALONE = {
    "layers:batch": ("batch size in the file", "no batch size in the file"),
    "layers:widest": ("widest layer of the file", "no layer of the file has a width"),
    "layers:widest by name": ("largest width that the file names", "the file names no width"),
    "trips:known": ("how many times the loop goes round", "how often the loop goes round is not known"),
    "function:lines": ("lines of its function", "in no function"),
    "path:depth": ("folders of the path", "folders of the path"), "path:top": ("in the topmost folder", "not in the topmost folder"),
    "fix": ("has a fix", "has no fix"), "evidence": ("evidence", "no evidence on other lines"),
    "stated log-odds": ("the rule's own estimate", "the rule's own estimate"),
    "stated confidence": ("the rule's own estimate", "the rule's own estimate"),
    "often:unknown": ("how often it runs is not known", "how often it runs is known"),
    "value:unknown": ("kind of value not known", "kind of value known"), "device:unknown": ("device not known", "device known"),
    "callers:none seen": ("no caller seen", "a caller is seen"), "function:none": ("in no function", "in a function"),
    "class:none": ("in no class", "in a class"), "mentioned:nowhere else": ("named nowhere else", "named elsewhere"),
    "file:named nowhere else": ("no other file names this one", "other files name this one"),
    "waits:none other": ("nothing else waits beside it", "not known to be the only wait"),
    "often:in training": ("how often it runs: in training", "its own line is in no training step"),
    "trips:few": ("the loop goes round a few times", "not known to be a short loop"),
}  # fmt: skip
_RULES = 3  # of which places are left out, that are named
_MANY = 50  # comments, where it is not known how many there would be
FIX_HOOK = "applied by the hook `ptopt-fix`"
SHOWS = " shows "  # between the options that show what was left out, and how much that is
_ZERO_WIDTH = "&#8203;"
_SPACES = "\u3000"  # the wide space of Chinese and Japanese text
# Characters that Python calls printable and nobody sees: fillers, joiners, and all but the two variation selectors
# that emoji use.
_UNSEEN = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\ufe00-\ufe0d\uffa0\U000e0100-\U000e01ef]"
)


def visible(text: str, *, keep: str = "") -> str:
    r"""Control, direction and invisible characters as escapes such as `\x1b`, but for those in `keep`."""
    text = _UNSEEN.sub(lambda m: _as_escape(m[0]), text)
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c in keep or c in _SPACES else _as_escape(c) for c in text)


def _as_escape(char: str) -> str:
    return char.encode("unicode_escape").decode("ascii")


def wrapped(text: str, width: int) -> str:
    """A paragraph in lines of at most `width` columns, and of what is easy to read; code in backticks and paths stay whole."""
    kept = _CODE_IN_PROSE.sub(lambda code: code[0].replace(" ", _STAND_IN), text)
    lines = textwrap.wrap(kept, max(min(width, PROSE), 40), break_long_words=False, break_on_hyphens=False)
    return "\n".join(lines).replace(_STAND_IN, " ")


def one_line(text: str) -> str:
    """Text for a line of its own: white space folded, nothing invisible left."""
    return visible(" ".join(text.split()))


def code_line(line: str) -> str:
    """A line of code for display: tabs expanded, nothing invisible left."""
    return visible(line.rstrip("\r\n").expandtabs(4))


def split_code(text: str) -> list[tuple[str, bool]]:
    """Text cut at its Markdown code spans; True marks the code, without its backticks."""
    parts: list[tuple[str, bool]] = []
    position = 0
    for match in _CODE_SPAN.finditer(text):
        if match.start() > position:
            parts.append((text[position : match.start()], False))
        parts.append((_unpadded(match[2]), True))
        position = match.end()
    if position < len(text):
        parts.append((text[position:], False))
    return parts


def _unpadded(code: str) -> str:
    padded = len(code) > 2 and code[0] == code[-1] == " " and code.strip()
    return code[1:-1] if padded else code


# -- Markdown -------------------------------------------------------------------------------------------------


def markdown_text(text: str) -> str:
    """Prose that renders as itself on GitHub: no link, image, mention, reference or HTML; code spans stay."""
    parts = (code_span(part) if code else _escaped(part) for part, code in split_code(one_line(text)))
    return _AT_START.sub(lambda m: f"{m[1]}\\{m[2]}" if m[1] else f"\\{m[3]}", "".join(parts))


def _escaped(text: str) -> str:
    return _AUTOLINK.sub(_unlinked, _MARKUP.sub(_escape, text))


def _unlinked(match: re.Match[str]) -> str:
    return "".join(match[0][at : at + 6] + _ZERO_WIDTH for at in range(0, len(match[0]), 6))


def _escape(match: re.Match[str]) -> str:
    char = match[0]
    if char in "@#:":  # GitHub looks for these in the rendered text, where a backslash no longer helps
        return f"{char}{_ZERO_WIDTH}"
    # Around a dollar sign a backslash does not keep GitHub from reading mathematics.
    return {"<": "&lt;", ">": "&gt;", "&": "&amp;", "$": "<span>$</span>"}.get(char, f"\\{char}")


def markdown_quote(finding: Finding) -> str:
    """What a model wrote about the finding, as a quotation; "" where it wrote nothing."""
    return f"> The model says: {markdown_text(finding.explanation)}" if finding.explanation else ""


def markdown_source(source: str) -> str:
    """A link where it is one. Sources of impact are our own words, not those of the pull request."""
    return markdown_link("source", source)


def markdown_link(word: str, source: str) -> str:
    """The word as a link to the source; the source itself where it is no address."""
    return f"[{word}](<{source}>)" if _LINK.fullmatch(source) else markdown_text(source)


def code_span(text: str) -> str:
    """Inline code, whatever backticks the text holds."""
    text = visible(text) or " "
    ticks = "`" * (_longest_run(text) + 1)
    pad = " " if text[0] in "` " or text[-1] in "` " else ""
    return f"{ticks}{pad}{text}{pad}{ticks}"


def code_fence(text: str, language: str) -> str:
    """A fenced block that no line of `text` can end, with the line ends of the report: who copies from it gets no `\\r`."""
    lines = (line.removesuffix("\r") for line in text.rstrip("\n").split("\n"))
    text = visible("\n".join(lines), keep="\n\t")
    ticks = "`" * max(3, _longest_run(text) + 1)
    return f"{ticks}{language}\n{text}\n{ticks}"


def _longest_run(text: str) -> int:
    return max((len(run) for run in _BACKTICKS.findall(text)), default=0)


# -- texts that all formats share --------------------------------------------------------------------------------


def place(path: str, span: Span) -> str:
    """`path:line`, or `path:first-last`."""
    return f"{visible(path)}:{lines(span)}"


def where(review: Review, path: str, span: Span) -> str:
    """`place`; in a notebook `path:cell 2:5`, with the line in the cell."""
    cell = cell_of(review, path, span)
    return place(path, span) if cell is None else f"{visible(path)}:cell {cell[0]}:{lines(cell[1])}"


def cell_of(review: Review, path: str, span: Span) -> tuple[int, Span] | None:
    """The cell of a notebook and the lines in it, where all of the span lies in one."""
    found = review.cells.get(path, {})
    start, end = found.get(span.start), found.get(span.end)
    if start is None or end is None or start[0] != end[0]:
        return None
    return start[0], Span(start[1], end[1])


def with_cells(review: Review, path: str, text: str) -> str:
    """The text with `line 5` as `line 2 of cell 3` where the file is a notebook."""
    if path not in review.cells:
        return text

    def named(match: re.Match[str]) -> str:
        cell = cell_of(review, path, Span(int(match[0]), int(match[0])))
        return match[0] if cell is None else f"{lines(cell[1])} of cell {cell[0]}"

    return _LINE_NAMES.sub(lambda names: re.sub(r"\d+", named, names[0]), text)


def lines(span: Span) -> str:
    return str(span.start) if span.start == span.end else f"{span.start}-{span.end}"


def rule_link(rule_id: str) -> str:
    """The documentation page of a rule; "" for one of another package."""
    rule = find_rule(rule_id)
    return rule_page(rule.name) if rule is not None and rule.__module__.startswith("ptopt.rules.") else ""


def count(number: int, noun: str) -> str:
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def headline(review: Review) -> str:
    """The outcome in one line, without the full stop."""
    if not review.files_reviewed:
        return (
            "No files reviewed" if review.not_reviewed else "No Python, notebooks or configurations to review"
        )
    files = count(review.files_reviewed, "file")
    if not review.findings and not review.over_limit:
        return f"No performance findings in {files}"
    counts = review.findings or review.over_limit  # all of them, where none is shown
    having = len({path for path, _ in lines_of(counts)})
    of = "" if having == review.files_reviewed else f"{having:,} of "
    apart = " (not grouped)" if review.apart else ""
    return f"{counted(counts, 'performance finding')}{apart} in {of}{files}"


def outcome(review: Review) -> str:
    """The headline with what was compared, and how many findings are not shown or can be fixed; without the full stop."""
    facts = [headline(review) + (f" ({one_line(review.compared)})" if review.compared else "")]
    if review.over_limit:
        number = f"{len(review.over_limit):,} not" if review.findings else "none"
        facts.append(f"{number} shown (comment limit reached)")
    if review.in_baseline:
        facts.append(f"{count(places_of(review.in_baseline), 'place')} in the baseline")
    if review.suppressed:
        facts.append(f"{count(places_of(review.suppressed), 'place')} suppressed")
    safe = sum(1 for f in review.findings if f.fix is not None and f.fix.safety is Safety.SAFE)
    if safe:
        how = FIX_HOOK if review.in_hook else f"`{fix_command(review.fix_arguments)}`"
        facts.append(f"{safe:,} with a safe fix ({how})")
    return ", ".join(facts)


def named(finding: Finding, at: str) -> str:
    return f"{at}  {finding.rule} {one_line(finding.name)}"


def suppressed_line(review: Review, finding: Finding) -> str:
    """A finding that a comment silences, with the reason that the comment gives."""
    reason = f"  {one_line(finding.excuse)}" if finding.excuse else ""
    return f"{named(finding, where(review, finding.path, finding.span))}{reason}"


def option(flags: str, in_hook: bool) -> str:
    """Options as a reader can pass them: pre-commit takes those of a hook from its configuration."""
    return f"{flags} in the hook's `args`" if in_hook else flags


def fix_command(arguments: str, unsafe: bool = False) -> str:
    """`ptopt fix --unsafe train.py`"""
    parts = ["ptopt fix", *(["--unsafe"] if unsafe else []), one_line(arguments)]
    return " ".join(part for part in parts if part)


def counted(findings: Collection[Finding], noun: str = "finding") -> str:
    """The one way in which findings are counted: `2 findings at 5 places`."""
    return _at_places(len(findings), places_of(findings), noun)


def _at_places(number: int, places: int, noun: str = "finding") -> str:
    return f"{count(number, noun)}{f' at {places:,} places' if places > number else ''}"


def left_out_lines(left: LeftOut, in_hook: bool = False) -> tuple[str, str]:
    """What the ranker left out, each place by the first condition that it misses, so that the sum adds up; how to see it."""
    places = sum(left.places.values())
    several = f" ({'some miss' if places > 1 else 'it misses'} other conditions, too)" if left.also else ""
    how = f"{_flags_for_all(left, in_hook)}{SHOWS}{_shown_then(left)}"
    return f"{_left_out(left)}{several}", how


def _reasons(places: Mapping[Condition, int], least: Mapping[Condition, float]) -> str:
    """Why places are left out: with the number of each, where there are several reasons."""
    words = {
        Condition.CONFIDENCE: "seldom worth a change (confidence below {})",
        Condition.RIGHT: "perhaps not true (probability below {})",
        Condition.STATED: "doubted by the rule itself (its estimate below {})",
    }
    missed = [(number, words[c].format(_bound(least[c]))) for c in Condition if (number := places.get(c, 0))]
    return ", ".join(f"{number:,} {why}" if len(missed) > 1 else why for number, why in missed)


def _left_out(left: LeftOut) -> str:
    """How many places are left out and why, and how many of them would by default not even be counted."""
    doubted = f"; rules doubt {left.doubted:,} of them" if left.doubted else ""
    return (
        f"{count(sum(left.places.values()), 'place')} left out: {_reasons(left.places, left.least)}{doubted}"
    )


def _bound(value: float) -> str:
    """A threshold, with all its digits where it has more than two."""
    return f"{value:.2f}" if round(value, 2) == value else f"{value:g}"


def unusual_line(review: Review) -> str:
    """Which of the places that are shown are not shown by default, without the full stop; "" where all are."""
    places = sum(review.unusual.values())
    if not places:
        return ""
    each = f"{places:,} of these places {'is' if places == 1 else 'are'}"
    return f"By default {each} not shown: {_reasons(review.unusual, review.conditions)}"


def _flags_for_all(left: LeftOut, in_hook: bool) -> str:
    flags = [("--min-confidence", 0)]
    if left.limit is not None and left.least.get(Condition.STATED):
        flags.append(("--budget", max(_MANY, left.all_findings)))
    elif left.limit is not None and left.all_findings > left.limit:
        flags.append(("--budget", left.all_findings))
    # In a list of arguments an option and its value are one word.
    return option(" ".join(f"{name}{'=' if in_hook else ' '}{value}" for name, value in flags), in_hook)


def _shown_then(left: LeftOut) -> str:
    """What is shown where nothing is left out."""
    if left.least.get(Condition.STATED):
        return (
            f"{_them(left)}, and what rules are unsure of (estimate below {left.least[Condition.STATED]:.2f})"
        )
    return f"all: {_at_places(left.all_findings, left.all_places)}"


def left_out_line(left: LeftOut, in_hook: bool = False) -> str:
    """How many places the ranker left out and why, and how to see them: what a reader of the outcome needs."""
    return "; ".join(left_out_shortly(left, in_hook))


def left_out_shortly(left: LeftOut, in_hook: bool = False) -> tuple[str, str]:
    """`left_out_lines` in few words."""
    shown = (
        f"{_them(left)}, and what rules are unsure of"
        if left.least.get(Condition.STATED)
        else _shown_then(left)
    )
    return _left_out(left), f"{_flags_for_all(left, in_hook)}{SHOWS}{shown}"


def _them(left: LeftOut) -> str:
    return "them" if sum(left.places.values()) > 1 else "it"


def rules_left_out(left: LeftOut, longest: int = sys.maxsize) -> str:
    """The rules of what was left out, the most frequent ones first, with their numbers of places.

    As many as are `longest` characters at most; "" where not even one is.
    """
    most = sorted(left.rules.items(), key=lambda rule: (-rule[1], rule[0]))
    each = [one_line(name) + f" ({number:,})" * (number > 1) for name, number in most[:_RULES]]
    for named in range(len(each), 0, -1):
        more = len(most) - named
        line = ", ".join(each[:named]) + (f" and {count(more, 'other rule')}" if more else "")
        if len(line) <= longest:
            return line
    return ""


def missed_line(finding: Finding, least: Mapping[Condition, float]) -> str:
    """Why the finding is no comment, although it is shown; "" for one that is."""
    said = {
        Condition.CONFIDENCE: f"confidence {finding.confidence:.2f}",
        Condition.RIGHT: f"true with a probability of {_below(finding.right, least.get(Condition.RIGHT)):.2f}",
        Condition.STATED: f"the rule's own estimate {finding.stated or 0:.2f}",
    }
    return "; ".join(f"{said[c]}, needs {_bound(least[c])}" for c in finding.missed)


def _below(value: float | None, least: float | None) -> float:
    """A value that misses a bound, as shown: rounding must not lift it onto the bound."""
    shown = round(value or 0.0, 2)
    return shown if least is None or shown < round(least, 2) else round(least, 2) - 0.01


def gain(impact: Impact) -> str:
    """The gain and its conditions, and who says so: a factor never stands alone."""
    return one_line(f"{_factor(impact)}{_range(impact)} — {impact.provenance}: {impact.conditions}")


def _range(impact: Impact) -> str:
    """What the two ends are, where we measured them: those of the interval; of several sizes, the outermost."""
    measured = impact.provenance.startswith("measured") and impact.gain == "time"
    return " (95 % interval)" if measured and _rounded(impact.low) != _rounded(impact.high) else ""


def _factor(impact: Impact) -> str:
    what = "less memory for" if impact.gain == "memory" else "as fast on" if impact.low < 1 else "faster on"
    if impact.high == 1:
        return f"no gain on {impact.scope}"
    low, high = _rounded(impact.low), _rounded(impact.high)
    factor = high if low == high else f"{low}–{high}"
    return f"{factor}× {what} {impact.scope}"


def _rounded(factor: float) -> str:
    return f"{factor:,.0f}" if factor >= 100 else f"{factor:.3g}"


def proof_line(finding: Finding) -> str:
    """What came of running the fix, to stand after a label; "" where it was not run."""
    proof = finding.proof
    if proof is None:
        return ""
    if not proof.proved:
        return one_line(f"not proved: {proof.why}")
    factor = f"{_rounded(proof.low)}–{_rounded(proof.high)}× faster"
    return one_line(f"proved on {proof.inputs:,} inputs: the same results, {factor} ({proof.conditions})")


def measured_line(finding: Finding) -> str:
    """What the code of the finding takes of a recorded run; "" where that is not known."""
    measured = finding.measured
    if measured is None:
        return ""
    share = f"{'at most ' if measured.at_most else ''}{measured.share:.1%}"
    return one_line(f"{share} of the step ({measured.of}; {measured.trace})")


def fix_line(finding: Finding) -> str:
    """How safe the fix is; "" without a fix."""
    if finding.fix is None:
        return ""
    fix = f"Fix of {finding.fix_rule}" if finding.fix_rule else "Fix"
    assumption = one_line(finding.fix.assumption).rstrip(".")
    if finding.fix.safety is Safety.SAFE:
        return f"{fix} (safe: same behaviour{f', but {assumption}' if assumption else ''})"
    if finding.fix.safety is Safety.UNSAFE:
        return (
            f"{fix} (unsafe: assumes that {assumption})"
            if assumption
            else f"{fix} (unsafe: review before use)"
        )
    return f"{fix} (apply by hand; assumes that {assumption})" if assumption else f"{fix} (apply by hand)"


MODEL_AWAY = "The model did not answer in time. This review comes from the rules alone."


def assumed(finding: Finding) -> str:
    """What is taken for granted about versions, to stand after a label."""
    return one_line(finding.assumes)


def unused(item: UnusedSuppression) -> str:
    """What a suppression names in vain; a name that no rule has is called that."""
    if not item.codes:
        return "any rule"
    known = known_names()
    ours = {name.lower() for name in known}
    return ", ".join(
        one_line(code)
        if code.lower() in ours
        else f"unknown rule {one_line(code)}{_in_brackets(did_you_mean(code, known))}"
        for code in item.codes
    )


def _in_brackets(asked: str) -> str:
    """A question that stands within a sentence."""
    return f" ({asked.removeprefix(', ')})" if asked else ""


def did_you_mean(text: str, known: Iterable[str]) -> str:
    """The names of rules that begin like `text`, or else look like it, to stand behind it; "" where there are none.

    What only a model can find is nothing that somebody meant to write.
    """
    kinds = known_names()
    close = similar(text, (name for name in known if kinds.get(name) != BY_MODEL))
    return f", did you mean {' or '.join(close)}?" if close else ""


def is_minor(severity: Severity) -> bool:
    """Reported as a note; all else is a warning. Slow code is never an error: it must not break a build."""
    return severity is Severity.LOW


def excerpt(review: Review, path: str, span: Span, context: int = 0) -> list[tuple[int, str]]:
    """Line numbers and lines of the span and `context` lines around it; empty where the text is not at hand."""
    source = (review.sources or {}).get(path)
    if source is None:
        return []
    text = source.removesuffix("\n").split("\n")
    first, last = max(1, span.start - context), min(len(text), span.end + context)
    return [(number, text[number - 1]) for number in range(first, last + 1)]


def weighed(finding: Finding) -> str:
    """What the ranker made of a finding: its probabilities, and the features that moved the confidence most."""
    parts = [] if finding.right is None else [f"true {finding.right:.2f}"]
    proved = finding.stated is not None and finding.stated >= TEXTBOOK
    case = (
        " (raised to the minimum of a textbook case)"
        if proved and finding.confidence == TEXTBOOK_WORTH
        else ""
    )
    parts.append(f"confidence (worth acting on) {finding.confidence:.2f}{case}")
    probability = dict(finding.features).get(CHECKED)
    if probability is not None:
        parts.append(f"the model, asked to prove it wrong, gave {probability:.2f}")
    if finding.reasons:
        reasons = ", ".join(f"{_feature(name)} {weight:+.2f}" for name, weight in finding.reasons)
        parts.append(f"moved most, in log-odds, by {reasons}")
    return "; ".join(parts)


def _feature(name: str) -> str:
    """The name of a feature, with the words that it needs to be read alone."""
    present = name.removeprefix(LACKING)
    kind, colon, what = present.partition(":")
    lacking = "" if present == name else LACKING if colon or present.startswith("in ") else "no "
    if present in _ALONE:
        return _ALONE[present][bool(lacking)]
    return (
        f"{_FEATURES.get(kind, kind)}: {lacking}{_WHAT.get(present, what)}"
        if colon
        else f"{lacking}{present}"
    )
