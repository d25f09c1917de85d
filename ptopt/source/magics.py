"""Lines that IPython understands and Python does not: `%magic`, `!shell`, `help?`, `%%cell`."""

from __future__ import annotations

import re

_MAGIC = re.compile(
    r"""[ \t]*(?:
        [%!?]                                                  # %matplotlib inline, !ls, ?name
      | [^\W\d][\w.]*\?{1,2}[ \t\r]*$                          # name?
      | [^\W\d][\w., \t]*=[ \t]*[%!]                           # files = !ls
      | (?:pip3?|conda|mamba|uv)[ \t]+(?:install|uninstall)\b  # what "automagic" runs without a sign
    )""",
    re.VERBOSE,
)
_CELL_MAGIC = re.compile(r"%%(\w*)")
_CELL_START = re.compile(r"# (?:%%|In\[|COMMAND -{5,})")  # as editors, nbconvert and Databricks export them
# Databricks names the language of a cell by one sign; with more on the line, `%sql` may be a line magic.
_LANGUAGE = re.compile(r"%(?:md|md-sandbox|sql|scala|r|sh|fs)\s*$|%md\b")
_RUNS_PYTHON = frozenset(
    (
        "capture",
        "debug",
        "memit",
        "prun",
        "px",
        "pyinstrument",
        "scalene",
        "snakeviz",
        "time",
        "timeit",
        "wandb",
    )
)
_TOKEN = re.compile(r"""\\.|\#|\"{3}|'{3}|["'(\[{)\]}]""")
_MAY_HIDE = re.compile(r"""["'()\[\]{}\\]""")


def is_foreign_cell(lines: list[str]) -> bool:
    """Whether a notebook cell holds another language, or Python that runs in another process."""
    for line in lines:
        if not line.strip():
            continue
        if _LANGUAGE.match(line):
            return True
        magic = _CELL_MAGIC.match(line)
        if magic is None:
            return False
        if magic[1] not in _RUNS_PYTHON:
            return True
    return False


def blank_magics(lines: list[str]) -> list[int]:
    """Replace the magics among `lines` in place; returns the indices of the lines replaced.

    A line keeps its indentation, its length in UTF-8 bytes, and a statement where one stood, so that blocks,
    line numbers and byte offsets hold. Only lines that start a statement are taken for magics.
    """
    blanked: list[int] = []
    state = _State()
    index = 0
    while index < len(lines):
        line = lines[index]
        if not (state.at_statement() and _MAGIC.match(line)):
            state.feed(line)
            index += 1
            continue
        end = index + 1
        magic = _CELL_MAGIC.match(line)
        if magic and magic[1] not in _RUNS_PYTHON:
            while end < len(lines) and not (_CELL_START.match(lines[end]) or _CELL_MAGIC.match(lines[end])):
                end += 1
        else:
            while end < len(lines) and lines[end - 1].rstrip("\r").endswith("\\"):
                end += 1
        for at in range(index, end):
            lines[at] = _blank(lines[at], statement=at == index)
            blanked.append(at)
        index = end
    return blanked


def _blank(line: str, statement: bool) -> str:
    body = line.rstrip("\r")
    code = body.lstrip(" \t")
    width = len(code.encode("utf-8", "surrogatepass"))
    kept = ("pass" if width >= 4 else "0") if statement else ""
    return body[: len(body) - len(code)] + kept.ljust(width) + line[len(body) :]


class _State:
    """Where a line of Python begins: inside a string, inside brackets, behind a backslash, or afresh."""

    def __init__(self) -> None:
        self._quote = ""
        self._depth = 0
        self._continued = False

    def at_statement(self) -> bool:
        return not (self._quote or self._depth or self._continued)

    def feed(self, line: str) -> None:
        self._continued = False
        if not self._quote and not _MAY_HIDE.search(line):
            return
        line = line.rstrip("\r")
        comment = False
        last = 0
        for token in _TOKEN.finditer(line):
            sign = token[0]
            last = token.end()
            if self._quote:
                if sign == self._quote or sign == self._quote * 3:
                    self._quote = ""  # `"""` behind `"` closes the string, and is an empty one
            elif sign == "#":
                comment = True
                break
            elif sign[0] in "\"'":
                self._quote = sign
            elif sign in "([{":
                self._depth += 1
            elif sign in ")]}":
                self._depth = max(0, self._depth - 1)
        self._continued = not comment and line.endswith("\\", last)
        if len(self._quote) == 1 and not self._continued:
            self._quote = ""
