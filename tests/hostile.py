"""Files made to keep the reviewer busy: one bomb of each kind, and programs made of the rules' own examples."""

from __future__ import annotations

import ast
import itertools
import json
import textwrap
from collections.abc import Callable

from ptopt.rules.base import Rule
from ptopt.rules.examples import as_file

# -- bombs: what took minutes or gigabytes before it was bounded -----------------------------------------------

STEP = """\
import torch
import torchmetrics

def train(model, loader, opt, metric):
    for x, y in loader:
        loss = model(x).sum()
        loss.backward()
        opt.step()
        print(loss.item())
"""
_ATTENTION = """\
        s = q @ k.transpose(-2, -1) / math.sqrt(64)
        p = torch.softmax(s, dim=-1)
        o = p @ v
"""
_LOADERS = "".join(f"l{i} = DataLoader(d)\nfor x in l{i}:\n    x.cuda()\n" for i in range(4_000))
_LOOPS = "".join("    " * (i + 1) + f"for i{i} in range(9):\n" for i in range(18))
_NAMES = "abcdef"
_RENAMED = "".join(f"    {x} = {y}\n" for x, y in itertools.pairwise(_NAMES) for _ in range(60))
_READS = "".join("    " * 19 + f"v{i} = model(x{i}).sum().item()\n" for i in range(3_000))


def _notebook(lines: list[str]) -> str:
    cell = {"cell_type": "code", "source": lines, "metadata": {}, "outputs": [], "execution_count": None}
    return json.dumps({"cells": [cell], "metadata": {}, "nbformat": 4, "nbformat_minor": 5})


PROGRAMS = {
    "attention in one function": (
        f"import torch, math\nclass A(torch.nn.Module):\n    def forward(self, q, k, v):\n{_ATTENTION * 600}"
    ),
    "many loaders": f"import torch\nfrom torch.utils.data import DataLoader\n{_LOADERS}",
    "many reads in a step": STEP + "".join(f"        a{i} = loss.item()\n" for i in range(15_000)),
    "many metrics in a step": STEP + "".join(f"        a{i} = metric(x, y)\n" for i in range(9_000)),
    "names that stand for one another": (
        f"import torch\nclass Average:\n    def update(self, x):\n        return x.sum().item()\ndef train(f, model, loader, opt):\n{_RENAMED}"
        "    for x in loader:\n        model(x).sum().backward()\n        opt.step()\n"
        + "        a.update(x)\n"
        * 3_000
    ),
    "deep loops": f"import torch\ndef f(model):\n{_LOOPS}{_READS}",
    "a long list": f"{STEP}x = [\n{'a,a,a,a,a,' * 190_000}]",
    "a list of many lines": STEP + "x = [\n" + "a,a,a,a,a,\n" * 170_000 + "]",
    "nested parentheses": f"{STEP}x = {'(' * 40_000}{')' * 40_000}",
    "magics in a notebook": _notebook([*STEP.splitlines(keepends=True), *["foo?\n"] * 60_000]),
}
"""Reviewed as `train.py`, or `train.ipynb` where it is one."""

PROJECT_FILES = {
    "runs of blanks": ("setup.cfg", b"[options]\n" + (b"a" + b" " * 9_900 + b"b\n") * 50),
    "one run of blanks": ("setup.cfg", b"[options]\na" + b" " * 490_000 + b"b\n"),
    "one dotted key": ("pyproject.toml", b"a." * 240_000 + b"b = 1\n"),
    "many dotted keys": ("pyproject.toml", (b"a." * 4_000 + b"b = 1\n") * 60),
    "many requirements": ("requirements.txt", b"".join(b"torch>=1.%d\n" % i for i in range(35_000))),
    "many dependencies": (
        "pyproject.toml",
        b"[project]\ndependencies = [\n%b]\n" % b"".join(b'"torch>=1.%d",\n' % i for i in range(30_000)),
    ),
    "one long requirement": ("requirements.txt", b"torch" + b"[" * 490_000 + b"\n"),
    "many locked packages": ("uv.lock", b'[[package]]\nname = "torch"\nversion = "1"\n' * 200_000),
}
"""(path, content) for the reader of version pins."""


# -- programs of about so many lines, made of a rule's example -------------------------------------------------


def examples(rule: Rule) -> list[str]:
    """The rule's examples as files, those with a problem first."""
    return [as_file(code) for code in (*(case.code for case in rule.INVALID), *rule.VALID)]


def _repeated_file(text: str, lines: int) -> str:
    """The example again and again."""
    imports, rest = _parts(ast.parse(text))
    return "\n".join([imports, *[rest] * _times(rest, lines)]) + "\n"


def _repeated_block(text: str, lines: int) -> str:
    """The statements of its innermost block again and again, where they stand."""
    tree = ast.parse(text)
    return _with_repeated_body(tree, max(_blocks(tree), key=lambda block: block[0])[1], lines)


def _repeated_function(text: str, lines: int) -> str:
    """The statements of its longest function, or of the module, again and again: one long function."""
    tree = ast.parse(text)
    functions = [n for n in ast.walk(tree) if isinstance(n, (ast.FunctionDef, ast.AsyncFunctionDef))]
    longest = max(functions, key=lambda f: len(ast.unparse(f)), default=tree)
    return _with_repeated_body(tree, longest, lines)


def _nested(text: str, lines: int) -> str:
    """The example again and again, in fifteen loops of one function."""
    imports, rest = _parts(ast.parse(text))
    loops = [f"{'    ' * (level + 1)}for n{level} in range(9):" for level in range(15)]
    body = "\n".join([rest] * _times(rest, lines))
    return "\n".join([imports, "def everything():", *loops, textwrap.indent(body, "    " * 16)]) + "\n"


SHAPES: dict[str, Callable[[str, int], str]] = {
    "file": _repeated_file,
    "block": _repeated_block,
    "function": _repeated_function,
    "loops": _nested,
}


def _parts(tree: ast.Module) -> tuple[str, str]:
    """The imports, and the rest."""
    imports = [s for s in tree.body if isinstance(s, (ast.Import, ast.ImportFrom))]
    rest = [s for s in tree.body if s not in imports]
    return "\n".join(map(ast.unparse, imports)), "\n".join(map(ast.unparse, rest))


def _times(text: str, lines: int) -> int:
    return max(1, lines // (text.count("\n") + 1))


def _blocks(node: ast.AST, depth: int = 0) -> list[tuple[int, ast.AST]]:
    """(depth, node) of all that has a body."""
    found = [(depth, node)]
    for statement in getattr(node, "body", []):
        if isinstance(getattr(statement, "body", None), list):
            found += _blocks(statement, depth + 1)
    return found


def _with_repeated_body(tree: ast.Module, node: ast.AST, lines: int) -> str:
    body: list[ast.stmt] = node.body  # type: ignore[attr-defined]
    once = [s for s in body if isinstance(s, (ast.Import, ast.ImportFrom))]
    last = [s for s in body if isinstance(s, ast.Return)]
    again = [s for s in body if s not in once and s not in last] or last
    times = _times("\n".join(map(ast.unparse, again)), lines)
    node.body = [*once, *again * times, *last]  # type: ignore[attr-defined]
    return ast.unparse(tree) + "\n"
