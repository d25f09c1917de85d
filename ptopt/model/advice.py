"""From a model's proposal to a verified finding, or to nothing: no statement of the model is trusted.

The replacement is for whole lines that the model was shown. It may use no word that is neither in the file nor on the page of
the rule, so that it can add no import, command or address.
"""

from __future__ import annotations

import ast
import io
import re
import symtable
import tokenize
import warnings
from collections import Counter
from collections.abc import Iterator
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from functools import cache

from ptopt.findings import Edit, Finding, Fix, Safety, Span, fingerprint
from ptopt.model.deletions import takes_away
from ptopt.model.region import Region
from ptopt.model.schema import Advice
from ptopt.project.added import named_in
from ptopt.rules import rules
from ptopt.rules.base import Rule
from ptopt.rules.engine import applies, assumptions, run
from ptopt.source.file import SourceFile
from ptopt.source.index import FUNCTIONS
from ptopt.syntax import ParseError
from ptopt.verify import EditError, apply_edits, only_edited_lines_differ

ASSUMPTION = "what a model wrote behaves as the code it replaces"

_WORD = re.compile(r"\w+")
_NEW_NAME = re.compile(r"[a-z_][a-z0-9_]{0,40}", re.ASCII)


@dataclass(slots=True)
class Adviser:
    """Turns the advice on one file into findings. `taken` are lines that a rule already reports."""

    source: SourceFile
    changed: AbstractSet[int] | None  # lines that the change wrote; None: all
    taken: list[Span]
    model: str  # name, for the message of each finding
    _seen: Counter[str] = field(default_factory=Counter)
    _hits: Counter[str] | None = None

    def finding(self, region: Region, advice: Advice) -> Finding | None:
        """The finding, with confidence 0 for now; None where any check fails."""
        span = Span(advice.start, advice.end)
        shown = {line.number for line in region.lines}
        rule = _by_name().get(advice.rule)
        if rule is None or self.source.is_notebook or not shown.issuperset(span.lines()):
            return None
        if not applies(rule, self.source.facts) or any(_overlap(span, other) for other in self.taken):
            return None
        if self.changed is not None and self.changed.isdisjoint(span.lines()):
            return None
        edit = self._edit(region, advice)
        if edit is None or not self._is_valid(rule, edit, span):
            return None
        new = named_in(f"{advice.reason}\n{edit.replacement}") - named_in(self.source.text)
        if not all(map(self.source.facts.has, new)):
            return None
        return self._finding(rule, region, span, edit)

    def takes_away(self, region: Region, advice: Advice) -> bool:
        """Does the advice do nothing but remove code that the program needs?"""
        edit = self._edit(region, advice)
        try:
            after = apply_edits(self.source.text, [edit] if edit is not None else [])
            return takes_away(advice.rule, self.source.tree, ast.parse(after))
        except (EditError, SyntaxError, ValueError, RecursionError, MemoryError):
            return False

    def _edit(self, region: Region, advice: Advice) -> Edit | None:
        """Whole lines for whole lines, indented as the region is."""
        if not all(c.isprintable() or c in "\n\t" for c in advice.replacement):
            return None
        source = self.source
        start = source.offset(advice.start, 0)
        last = source.line(advice.end).encode("utf-8", "surrogatepass")
        end = source.offset(advice.end, len(last))
        if not advice.replacement.strip():
            after = source.data.find(b"\n", end)
            return Edit(start, len(source.data) if after < 0 else after + 1, "")
        lines = advice.replacement.rstrip("\n").split("\n")
        text = "\n".join(region.indent + line if line.strip() else "" for line in lines)
        return Edit(start, end, text)

    def _is_valid(self, rule: Rule, edit: Edit, span: Span) -> bool:
        source = self.source
        try:
            text = apply_edits(source.text, [edit])
            after = SourceFile.parse(source.path, text.encode(source.parsed.encoding), source.facts)
            return (
                only_edited_lines_differ(source, [edit], text)
                and _same_around(source, after, span)
                and not takes_away(rule.name, source.tree, after.tree)
                and _adds_no_words(source, after, rule)
                and self._all_defined(after)
                and self._no_new_hits(after)
            )
        except (EditError, ParseError, UnicodeError):
            return False
        except RecursionError:  # Python parses expressions that it cannot dump
            return False

    def _all_defined(self, after: SourceFile) -> bool:
        before, now = _undefined(self.source.text), _undefined(after.text)
        return before is not None and now is not None and now <= before | _BUILTINS

    def _no_new_hits(self, after: SourceFile) -> bool:
        if self._hits is None:
            self._hits = Counter(hit.rule.id for hit in run(self.source, rules(), []))
        failed: list[tuple[Rule, Exception]] = []
        hits = Counter(hit.rule.id for hit in run(after, rules(), failed))
        return not failed and hits <= self._hits

    def _finding(self, rule: Rule, region: Region, span: Span, edit: Edit) -> Finding:
        code = "\n".join(self.source.line(n) for n in span.lines())
        # A namespace of its own: the rule may report equal code elsewhere in the function.
        own = f"{rule.id} by a model"
        base = fingerprint(own, self.source.path, region.symbol, code)
        self._seen[base] += 1
        return Finding(
            rule=rule.id,
            name=rule.name,
            family=rule.family,
            severity=rule.severity,
            path=self.source.path,
            span=span,
            symbol=region.symbol,
            message=f"Found by a model (`{_in_code(self.model)}`), not by a rule: {rule.summary()}",
            when_wrong=rule.when_wrong,
            confidence=0.0,
            fingerprint=fingerprint(own, self.source.path, region.symbol, code, self._seen[base] - 1),
            fix=Fix(Safety.UNSAFE, (edit,), ASSUMPTION),
            assumes=assumptions(rule, self.source.facts),
            origin="model",
        )


@cache
def _by_name() -> dict[str, Rule]:
    return {rule.name: rule for rule in rules()}


def _in_code(name: str) -> str:
    return name.replace("`", "'")


def _overlap(a: Span, b: Span) -> bool:
    return max(a.start, b.start) <= min(a.end, b.end)


# -- what may differ -------------------------------------------------------------------------------------------


def _same_around(before: SourceFile, after: SourceFile, span: Span) -> bool:
    """Does the code differ, and are all statements outside of the lines what they were, where they were?

    An open string or bracket in a replacement could swallow lines that it was not offered.
    """
    shift = after.text.count("\n") - before.text.count("\n")
    if ast.dump(before.tree) == ast.dump(after.tree):
        return False
    deleted = shift == span.start - span.end - 1
    same = list(_outside(before, span.start, span.end, 0, deleted))
    return same == list(_outside(after, span.start, span.end + shift, shift, deleted))


def _outside(
    file: SourceFile, first: int, last: int, shift: int, deleted: bool
) -> Iterator[tuple[int, int, str]]:
    """Statements that stand wholly before line `first` or after line `last`, which is moved back by `shift`.

    Where the lines are deleted, a block counts by its first line: they may be the last of it. What takes the place of lines
    could end their block.
    """
    for node in ast.walk(file.tree):
        if not isinstance(node, ast.stmt):
            continue
        simple = not hasattr(node, "body")
        end = node.lineno if deleted and not simple else node.end_lineno or node.lineno
        if end < first or node.lineno > last:
            line = node.lineno if end < first else node.lineno - shift
            yield line, node.col_offset, ast.dump(node) if simple else type(node).__name__


def _adds_no_words(before: SourceFile, after: SourceFile, rule: Rule) -> bool:
    """No import, function, class or comment is new, and no word but the names of new local variables."""
    if _shape(before.tree) != _shape(after.tree) or _comments(after.text) - _comments(before.text):
        return False
    known, strings = _words(before.tree)
    words, new_strings = _words(after.tree)
    known |= _rule_words(rule) | _BUILTINS
    local = {
        node.id
        for node in ast.walk(after.tree)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and _NEW_NAME.fullmatch(node.id)
    }
    string_words = {word for text in new_strings - strings for word in _WORD.findall(text)}
    return words <= known | local and string_words <= known


def _shape(tree: ast.Module) -> Counter[str]:
    """What a replacement may not add: imports, functions, classes, text in bytes."""
    kinds = (ast.Import, ast.ImportFrom, ast.ClassDef, ast.Lambda, ast.Global, ast.Nonlocal, *FUNCTIONS)
    return Counter(
        ast.dump(node) if isinstance(node, (ast.Import, ast.ImportFrom)) else type(node).__name__
        for node in ast.walk(tree)
        if isinstance(node, kinds) or (isinstance(node, ast.Constant) and isinstance(node.value, bytes))
    )


def _words(tree: ast.Module) -> tuple[set[str], set[str]]:
    """Names and attributes; and strings."""
    words: set[str] = set()
    strings: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Name):
            words.add(node.id)
        elif isinstance(node, ast.Attribute):
            words.add(node.attr)
        elif isinstance(node, (ast.keyword, ast.arg)):
            words.add(node.arg or "")
        elif isinstance(node, ast.alias):
            words.update((node.name, node.asname or ""))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            strings.add(node.value)
    return words, strings


@cache
def _rule_words(rule: Rule) -> frozenset[str]:
    """The words of the rule's own examples and advice."""
    written = [code for case in rule.INVALID for code in (case.fixed, case.instead) if code]
    code = "\n".join([rule.sections().get("Use instead", ""), *rule.VALID, *written])
    return frozenset(_WORD.findall(code))


_BUILTINS = frozenset(
    "bool dict enumerate float int len list max min range reversed set sum tuple zip".split()
)
"""Builtins that a replacement may use where the file did not."""


def _comments(text: str) -> Counter[str]:
    try:
        tokens = list(tokenize.generate_tokens(io.StringIO(text.removeprefix("\ufeff")).readline))
    except (SyntaxError, tokenize.TokenError):
        return Counter()  # it was parsed before: only a form feed or the like is at odds here
    return Counter(token.string for token in tokens if token.type == tokenize.COMMENT)


def _undefined(text: str) -> frozenset[str] | None:
    """Names that are read and bound nowhere, neither in their function nor in the module; builtins are among them.

    None where that is unknown.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            top = symtable.symtable(text, "<file>", "exec")
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return None
    defined = {
        s.get_name() for s in top.get_symbols() if s.is_assigned() or s.is_imported() or s.is_namespace()
    }
    found: set[str] = set()
    tables = [top]
    while tables:
        table = tables.pop()
        tables += table.get_children()
        found |= {
            s.get_name() for s in table.get_symbols() if s.is_referenced() and (s.is_global() or table is top)
        }
    return frozenset(found - defined)
