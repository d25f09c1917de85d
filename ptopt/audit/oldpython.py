"""Files that only older Pythons read, and that an audit understands nevertheless: `x.cuda(async=True)`, indentation by tabs and spaces.

Lines stay as they are. A review leaves such files out: what it proposes would have to run.
"""

from __future__ import annotations

import ast
import re

from ptopt.project.pins import Pin
from ptopt.source.decode import Parsed, decode_python, parse_python
from ptopt.syntax import ParseError, parse_text

_ASYNC = re.compile(r"\basync(?=\s*=(?!=))")  # a keyword since Python 3.7
_STAND_IN = "a5ync"  # of the same length, so that columns stay
_COPIES = frozenset({"cuda", "to", "copy_", "type"})
_TABS = re.compile(r"^[ ]*\t[ \t]*", re.M)
_NEWEST = "1.10.2"  # torch for Python 3.6
_TAB = 8  # columns, in Python 2


def parse_old(path: str, data: bytes) -> tuple[Parsed, Pin | None]:
    """As `parse_python`, also of such files: of these with the newest torch that there is for their Python.

    Raises the ParseError of `parse_python` where this does not help.
    """
    try:
        return parse_python(path, data), None
    except ParseError as error:
        if not error.syntax or not path.endswith(".py"):
            raise
        mixes_tabs = "tabs" in error.reason
        parsed = _repaired(data, mixes_tabs)
        if parsed is None:
            raise
        if mixes_tabs:
            return parsed, None  # a slip in a newer project may do that, too
        pin = Pin("torch", f"<={_NEWEST}", False, path, error.line or 1, python="Python 3.6 for `async=`")
        return parsed, pin


def _repaired(data: bytes, mixes_tabs: bool) -> Parsed | None:
    text, encoding = decode_python(data)
    if mixes_tabs:
        text = _TABS.sub(lambda found: found[0].expandtabs(_TAB), text)
    renames = _ASYNC.search(text) is not None and _STAND_IN not in text
    if not renames and not mixes_tabs:
        return None
    try:
        tree = parse_text(_ASYNC.sub(_STAND_IN, text) if renames else text)
    except ParseError:
        return None
    if renames:
        _restore(tree)
    return Parsed(text, tree, encoding)


def _restore(tree: ast.Module) -> None:
    """The names as they were; of a copy to a device the argument as torch has called it since 0.4, where it means the same."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            copies = isinstance(node.func, ast.Attribute) and node.func.attr in _COPIES
            for keyword in node.keywords:
                if keyword.arg == _STAND_IN:
                    keyword.arg = "non_blocking" if copies else "async"
        elif isinstance(node, ast.Name) and node.id == _STAND_IN:
            node.id = "async"
        elif isinstance(node, ast.arg) and node.arg == _STAND_IN:
            node.arg = "async"
        elif isinstance(node, ast.Attribute) and node.attr == _STAND_IN:
            node.attr = "async"
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and _STAND_IN in node.value:
            node.value = node.value.replace(_STAND_IN, "async")
