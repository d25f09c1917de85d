"""Whole functions and small classes cut out of files, with the imports and the class line that a rule needs to judge them."""

from __future__ import annotations

import ast
import hashlib
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass

from ptopt.model.region import TORCH_WORDS

MIN_LINES = 4
MAX_LINES = 120
MAX_CLASS_LINES = 90
MAX_CONSTRUCTOR_LINES = 60
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


@dataclass(frozen=True, slots=True)
class Region:
    """A function or a class, dedented, and the `context` above it that makes it a file: imports, the class line, its `__init__`."""

    path: str
    symbol: str
    context: str
    text: str
    method: bool  # stands in a class: indented by four in the file

    def as_file(self, text: str | None = None) -> str:
        body = self.text if text is None else text
        return self.context + (textwrap.indent(body, "    ") if self.method else body)

    @property
    def first_line(self) -> int:
        """The line of the file form that the text starts on."""
        return self.context.count("\n") + 1

    @property
    def group(self) -> str:
        return hashlib.sha256(f"{self.context}\0{self.text}".encode("utf-8", "surrogatepass")).hexdigest()[
            :24
        ]


def cut(file: str, first_line: int, method: bool) -> str | None:
    """The text of a region out of its file form; None when a line of it cannot be dedented."""
    lines = file.split("\n")[first_line - 1 :]
    if method:
        if any(line.strip() and not line.startswith("    ") for line in lines):
            return None
        lines = [line[4:] for line in lines]
    return "\n".join(lines)


def regions(path: str, text: str) -> Iterator[Region]:
    """The functions and small classes of a file that work with torch, in source order."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return
    lines = text.split("\n")
    imports = list(_imports(tree))
    for node in tree.body:
        if isinstance(node, _FUNCTIONS):
            yield from _region(path, lines, node, None, imports)
        elif isinstance(node, ast.ClassDef):
            methods = [m for m in node.body if isinstance(m, _FUNCTIONS)]
            size = (node.end_lineno or node.lineno) - node.lineno
            if len(methods) >= 2 and size <= MAX_CLASS_LINES and _whole(path, node.name):
                yield from _region(path, lines, node, None, imports)
                continue
            for method in methods:
                yield from _region(path, lines, method, node, imports)


def _whole(path: str, name: str) -> bool:
    """Half of the small classes are taken whole, the others method by method."""
    return hashlib.sha256(f"{path}:{name}".encode()).digest()[0] % 2 == 0


def _region(
    path: str,
    lines: list[str],
    node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef,
    owner: ast.ClassDef | None,
    imports: list[tuple[frozenset[str], ast.Import | ast.ImportFrom]],
) -> Iterator[Region]:
    first = min([node.lineno, *(d.lineno for d in node.decorator_list)])
    last = node.end_lineno or node.lineno
    limit = MAX_CLASS_LINES if isinstance(node, ast.ClassDef) else MAX_LINES
    if not MIN_LINES <= last - first + 1 <= limit:
        return
    block = lines[first - 1 : last]
    indent = " " * node.col_offset
    if any(line.strip() and not line.startswith(indent) for line in block) or any(
        "\r" in x or "\t" in x for x in block
    ):
        return
    text = "\n".join(line[node.col_offset :].rstrip() if line.strip() else "" for line in block) + "\n"
    if not text.isprintable() and any(ord(c) > 0xFFFF or (ord(c) < 32 and c != "\n") for c in text):
        return
    if not TORCH_WORDS.search(text):
        return
    context = _context(node, owner, imports)
    symbol = f"{owner.name}.{node.name}" if owner else node.name
    region = Region(path, symbol, context, text, owner is not None)
    if cut(region.as_file(), region.first_line, region.method) == text:
        yield region


def context_of(
    tree: ast.Module,
    node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef,
    owner: ast.ClassDef | None,
) -> str:
    """What stands above a function to make it a file: the imports that it uses, the line of its class."""
    return _context(node, owner, list(_imports(tree)))


def _context(
    node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef,
    owner: ast.ClassDef | None,
    imports: list[tuple[frozenset[str], ast.Import | ast.ImportFrom]],
) -> str:
    used = {n.id for n in ast.walk(node) if isinstance(n, ast.Name)}
    header = ""
    if owner is not None:
        bases = [ast.unparse(b) for b in owner.bases]
        used |= {n.id for b in owner.bases for n in ast.walk(b) if isinstance(n, ast.Name)}
        header = f"class {owner.name}({', '.join(bases)}):\n" if bases else f"class {owner.name}:\n"
        made = _constructor(owner, node)
        if made is not None:
            used |= {n.id for n in ast.walk(made) if isinstance(n, ast.Name)}
            header += textwrap.indent(ast.unparse(made), "    ") + "\n\n"
    names = "".join(f"{line}\n" for line in _needed(imports, used))
    return names + ("\n\n" if names and header else "\n" if names else "") + header


def _constructor(
    owner: ast.ClassDef, node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
) -> ast.FunctionDef | None:
    """The `__init__` of the class, which says what the attributes are; none for itself, and none that is long."""
    made = next((m for m in owner.body if isinstance(m, ast.FunctionDef) and m.name == "__init__"), None)
    if made is None or made is node or (made.end_lineno or 0) - made.lineno > MAX_CONSTRUCTOR_LINES:
        return None
    return None if "\t" in ast.unparse(made) else made


def _imports(tree: ast.Module) -> Iterator[tuple[frozenset[str], ast.Import | ast.ImportFrom]]:
    """Imports at module level, in source order, also those behind a `try` or an `if`."""
    stack: list[ast.stmt] = list(reversed(tree.body))
    while stack:
        node = stack.pop()
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            yield frozenset(a.asname or a.name.split(".")[0] for a in node.names), node
        elif isinstance(node, (ast.Try, ast.If)):
            stack += reversed(node.body)


def _needed(
    imports: list[tuple[frozenset[str], ast.Import | ast.ImportFrom]], used: set[str]
) -> Iterator[str]:
    seen = set()
    for names, node in imports:
        if names.isdisjoint(used):
            continue
        kept = [a for a in node.names if (a.asname or a.name.split(".")[0]) in used]
        if isinstance(node, ast.Import):
            line = ast.unparse(ast.Import(names=kept))
        else:
            line = ast.unparse(ast.ImportFrom(module=node.module, names=kept, level=node.level))
        if line not in seen:
            seen.add(line)
            yield line
