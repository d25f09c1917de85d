"""What rules ask of a piece of code, write in its place, and quote of it."""

from __future__ import annotations

import ast
import re
from typing import TypeGuard

from ptopt.findings import Edit, Evidence
from ptopt.source.file import SourceFile

_IN_A_WORD = re.compile(r"\w\w")
_CLOSES = {"(": ")", "[": "]", "{": "}"}
_LAST_WORD = re.compile(r"\w+$")


def replace_node(file: SourceFile, node: ast.AST, text: str) -> Edit:
    """Edit that puts `text` in the place of `node`."""
    start, end = file.bounds(node)
    return Edit(start, end, text)


def add_keyword(file: SourceFile, call: ast.Call, keyword: str) -> Edit:
    """Edit that adds `name=value` as last argument of `call`, in the layout that the call already has."""
    name, _, value = keyword.partition("=")
    if writes_spaces(file, call):
        keyword = f"{name} = {value}"
    _, end = file.bounds(call)
    close = end - 1  # the call ends with its closing parenthesis
    last = max((file.bounds(a)[1] for a in [*call.args, *(k.value for k in call.keywords)]), default=-1)
    if last < 0:
        return Edit(close, close, keyword)
    while file.data[last:close].lstrip().startswith(b")"):
        last = file.data.index(b")", last) + 1  # the last argument stands in parentheses of its own
    between = file.data[last:close]
    comma = between.find(b",")
    hash_at = between.find(b"#")
    if comma != -1 and (hash_at == -1 or comma < hash_at):
        if b"\n" not in between:
            return Edit(last + comma, close, f", {keyword}")
        line = file.line(file.line_at(last))
        indent = line[: len(line) - len(line.lstrip())]
        newline = "\r\n" if b"\r\n" in between else "\n"
        at = last + comma + 1
        rest = file.data[at:close].partition(b"\n")[0].rstrip()
        if rest.lstrip().startswith(b"#"):  # a comment on the last argument stays beside it
            at += len(rest)
        return Edit(at, at, f"{newline}{indent}{keyword},")
    return Edit(last, last, f", {keyword}")


def beside(node: ast.AST, other: ast.AST, note: str) -> tuple[Evidence, ...]:
    """Evidence on the line of `other`, unless the comment on `node` stands on that line."""
    line: int = getattr(other, "lineno", 0)
    return (Evidence(line, note),) if line != getattr(node, "lineno", 0) else ()


def writes_spaces(file: SourceFile, call: ast.Call) -> bool:
    """Is each keyword argument of the call on one line with its value written `a = b`?"""
    named = [k for k in call.keywords if k.arg is not None]
    between = [file.source(k)[len(k.arg or "") :] for k in named]
    return bool(between) and all(re.match(r"[ \t]+=[ \t]", text) for text in between)


def keyword_of(call: ast.Call, name: str) -> ast.expr | None:
    """Value of a keyword argument, or None."""
    for keyword in call.keywords:
        if keyword.arg == name:
            return keyword.value
    return None


def has_unpacking(call: ast.Call) -> bool:
    """Does the call pass `*args` or `**kwargs`, so that its arguments are not known?"""
    for keyword in call.keywords:
        if keyword.arg is None:
            return True
    return ast.Starred in map(type, call.args)


def method_call(node: ast.AST, *names: str) -> ast.expr | None:
    """The receiver of `receiver.name(...)`, or None."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in names:
        return node.func.value
    return None


def is_call_of(node: ast.AST | None, *names: str) -> TypeGuard[ast.Call]:
    """Is it a call of a plain name, one of these: `len(x)`?"""
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in names


def first_call(expr: ast.AST | None) -> ast.AST | None:
    """The call that a chain of method calls begins with: `zeros(n)` of `zeros(n).view(-1).to(device)`."""
    while (
        isinstance(expr, ast.Call)
        and isinstance(expr.func, ast.Attribute)
        and isinstance(expr.func.value, ast.Call)
    ):
        expr = expr.func.value
    return expr


def is_literal(node: ast.expr | None, value: object) -> bool:
    return isinstance(node, ast.Constant) and node.value is value


def quote(file: SourceFile, node: ast.AST, limit: int = 60) -> str:
    """The node's code on one line and in a code span, for a message."""
    text = re.sub(r"\\\r?\n", "\n", file.source(node))
    text = re.sub(r"([(\[])\s*\n\s*|\s*\n\s*(?=[)\].])", r"\1", text)
    text = " ".join(text.split())
    if len(text) > limit:
        tail = ""  # the end of a chain, such as `.item()`, is what the message is about
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            tail = text[text.rfind(f".{node.func.attr}(") :]
        tail = tail if len(tail) <= limit // 3 else ""
        whole = text.removesuffix(tail)
        room = limit - 1 - len(tail)
        close = whole[-1] if whole[-1] in ")]}" else ""
        head = _without_part(whole[: room - len(close)], whole)
        if close:
            head = _without_part(whole[: room - len(_closing(head))], whole)
            close = _closing(head)
            if _goes_on(whole[len(head) :], close):
                close += "…"  # as before `.item()` in `(a == b).sum().item()`
        text = f"{head}…{close}{tail}"
    return f"`{text}`"


def _closing(head: str) -> str:
    """What closes the brackets that the start of a code leaves open, as far as that start shows."""
    still_open: list[str] = []
    for character in head:
        if character in _CLOSES:
            still_open.append(_CLOSES[character])
        elif still_open and character == still_open[-1]:
            still_open.pop()
    return "".join(reversed(still_open))


def _goes_on(cut: str, close: str) -> bool:
    """Does the code that was cut go on behind the brackets that its start leaves open?"""
    open_brackets = list(reversed(close))
    for at, character in enumerate(cut):
        if not open_brackets:
            return bool(cut[at:].strip())
        if character in _CLOSES:
            open_brackets.append(_CLOSES[character])
        elif character == open_brackets[-1]:
            open_brackets.pop()
    return False


def _without_part(head: str, whole: str) -> str:
    """The start of a code without the part of a name or a number that it ends in."""
    in_a_word = _IN_A_WORD.match(whole, len(head) - 1)
    shorter = _LAST_WORD.sub("", head) if in_a_word else head
    return shorter or head
