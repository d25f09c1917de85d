"""Edits that take code away: a statement, a keyword argument."""

from __future__ import annotations

import ast

from ptopt.rules.base import Edit, SourceFile
from ptopt.rules.shared.flow import block_of


def remove_statement(file: SourceFile, node: ast.AST) -> Edit | None:
    """Edit that deletes the lines of the statement around `node`.

    None when the statement shares a line with other code, or when its block would be left empty.
    """
    statement = file.index.statement_of(node)
    if len(block_of(statement, file)) < 2:
        return None
    start, end = file.bounds(statement)
    first = file.offset(statement.lineno, 0)
    newline = file.data.find(b"\n", end)
    after = file.data[end : newline if newline != -1 else len(file.data)].strip()
    if newline == -1 or file.data[first:start].strip() or (after and not after.startswith(b"#")):
        return None
    last = newline + 1
    before = file.line(statement.lineno - 1).strip() if statement.lineno > 1 else ""
    next_line = file.data.find(b"\n", last)
    if not before and next_line != -1 and not file.data[last:next_line].strip():
        last = next_line + 1  # it stood between two blank lines: one of them is enough
    return Edit(first, last, "")


def remove_keyword(file: SourceFile, call: ast.Call, name: str) -> Edit | None:
    """Edit that deletes the argument `name=...` and one comma; None when a comment stands in the way."""
    keyword = next((k for k in call.keywords if k.arg == name), None)
    if keyword is None:
        return None
    arguments = sorted([*call.args, *call.keywords], key=file.bounds)
    place = arguments.index(keyword)
    start, end = file.bounds(keyword)
    if place > 0:
        start = file.bounds(arguments[place - 1])[1]
    elif len(arguments) > 1:
        end = file.bounds(arguments[1])[0]
    removed = file.data[start:end]
    brackets = any(c in removed for c in (b"#", b"(", b")"))  # a comment, or an argument in parentheses
    return None if brackets else Edit(start, end, "")
