from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator

from ptopt.rules.base import Evidence, Invalid, Problem, Rule, SourceFile
from ptopt.rules.code import quote
from ptopt.rules.ops._pure import (
    changes,
    cost,
    costly,
    is_conditional,
    is_deferred,
    is_module_call,
    is_pure,
    reads,
    result_changes,
    steady,
)
from ptopt.rules.shared.flow import block_of
from ptopt.source.calls import called_name, last_name
from ptopt.source.frequency import Often
from ptopt.source.index import FUNCTIONS, FunctionNode, walk


class RepeatedExpression(Rule):
    """The same tensor expression is computed twice in one function.

    ## What it does
    Finds two equal expressions of torch functions, or two equal calls of one submodule, in a function that changes none
    of their operands in between.

    ## Why it is slow
    Eager PyTorch does not merge equal expressions: each copy launches its kernels, and in training each keeps what the
    backward pass needs.

    ## When this is wrong
    When the submodule holds dropout and two different samples are wanted.

    ## Fix safety
    No fix: the name of the shared value is for the author to choose.

    ## Sources
    - [torch.compile, which does merge equal expressions](https://docs.pytorch.org/docs/stable/torch.compiler.html)
    """

    id = "PTO470"
    name = "repeated-expression"
    family = "ops"
    most_stated = 0.45
    nodes = FUNCTIONS
    triggers = ("def ",)
    when_wrong = "the two calls are meant to draw different random numbers, or the function is compiled"

    VALID = (
        """
        def loss(x, mu):
            first = torch.log(mu)
            mu = mu + 1
            return first + torch.log(mu)
        """,
        """
        def views(self, x):
            return F.dropout(x), F.dropout(x)
        """,
        """
        def loss(x, log):
            if log:
                y = torch.softmax(x, -1)
            else:
                y = torch.softmax(x, -1) + 1
            return y
        """,
        """
        def target(x):
            with torch.no_grad():
                t = torch.softmax(x, -1)
            return torch.softmax(x, -1) - t
        """,
    )
    INVALID = (
        Invalid("""
            def log_likelihood(x, mu, theta, eps):
                a = theta * torch.log(theta + mu + eps)
                # ~ shared = torch.log(theta + mu + eps)
                # ~ a = theta * shared
                return a + x * torch.log(theta + mu + eps)  # !
                # ~ return a + x * shared
        """),
        Invalid("""
            class Decoder(nn.Module):
                def __init__(self):
                    super().__init__()
                    self.scale = nn.Linear(8, 8)

                def forward(self, z):
                    raw = self.scale(z)
                    return raw, torch.exp(self.scale(z))  # !
        """),
        Invalid("""
            def scores(q, k):
                weights = torch.softmax(q @ k.transpose(-2, -1), dim=-1)
                return weights, q @ k.transpose(-2, -1)  # !
        """),
    )

    def check(self, node: ast.AST, file: SourceFile) -> Iterator[Problem]:
        if not isinstance(node, FUNCTIONS):
            return
        reported: set[ast.AST] = set()
        for first, second, others in file.once(_pairs).get(node, ()):
            if any(file.index.within(second, whole) for whole in reported):
                continue  # part of a larger expression that is reported
            reported.add(second)
            if Often.UNKNOWN < file.frequencies.of(second).often <= Often.ONCE:
                continue  # set-up, and branches that only report
            kernels = sum(1 for n in walk(second) if isinstance(n, (ast.Call, ast.BinOp)) and cost(n, file))
            module = isinstance(second, ast.Call) and is_module_call(second, file)
            if not module and kernels + len(others) < 2 and cost(second, file) < 2:
                continue  # one reduction: no time to speak of
            again = f", and again at line {others[0]}" if others else ""
            yield Problem(
                second,
                f"{quote(file, second)} was computed at line {first.lineno} already, and nothing it reads has changed "
                f"since{again}. Give the first result a name and use it here: each copy "
                f"{'runs the whole submodule' if module else 'computes it, and in training keeps it,'} again.",
                0.45 if module or cost(second, file) > 1 else 0.35,
                (Evidence(first.lineno, "computed here first"),),
                subject=second,
                facts={
                    "cost": 3 if module else cost(second, file),
                    "kernels": kernels,
                    "copies": 2 + len(others),
                    "module": module,
                    "lines_apart": second.lineno - first.lineno,
                },
            )


_Pair = tuple[ast.expr, ast.expr, list[int]]


def _pairs(file: SourceFile) -> dict[FunctionNode, list[_Pair]]:
    """Function -> equal expressions, the largest first, with the lines of further copies."""
    placed = [(file.index.function_of(node), _outline(node), node) for node in costly(file)]
    alike = Counter((function, outline) for function, outline, _ in placed)
    groups: dict[tuple[FunctionNode, str], list[ast.expr]] = {}
    for function, outline, node in placed:
        if function is not None and alike[function, outline] > 1:
            groups.setdefault((function, ast.dump(node)), []).append(node)
    found: dict[FunctionNode, list[_Pair]] = {}
    for (function, _), nodes in sorted(groups.items(), key=lambda item: -len(item[0][1])):
        nodes.sort(key=lambda n: (n.lineno, n.col_offset))
        for place, second in enumerate(nodes[1:], 1):
            first = next((n for n in nodes[:place] if _same_value(n, second, function, file)), None)
            if first is not None:
                rest = [n.lineno for n in nodes[place + 1 :] if _same_value(first, n, function, file)]
                found.setdefault(function, []).append((first, second, rest))
                break
    return found


def _outline(node: ast.expr) -> tuple[object, ...]:
    """What is cheap to compare, and equal in equal expressions."""
    if isinstance(node, ast.Call):
        return _mark(node.func), *map(_mark, node.args), *(_mark(k.value) for k in node.keywords)
    return (_mark(node.left), _mark(node.right)) if isinstance(node, ast.BinOp) else ()


def _mark(node: ast.expr) -> object:
    return last_name(node) or node.__class__


def _same_value(first: ast.expr, second: ast.expr, function: FunctionNode, file: SourceFile) -> bool:
    """Has the first run whenever the second runs, on the same operands, and may the result be shared?"""
    keys = reads(first, file)
    if not is_pure(first, file) or not keys or "self" in keys or not steady(keys, first, file):
        return False
    if is_deferred(first, file) or is_deferred(second, file) or not _dominates(first, second, file):
        return False
    found = changes(function, file)
    if found.between(keys, (first.lineno, first.col_offset), (second.lineno, second.col_offset)):
        return False
    outer = set(file.index.loops_of(first))
    if any(found.in_node(keys, loop) for loop in file.index.loops_of(second) if loop not in outer):
        return False
    if _modes(first, file) != _modes(second, file) or _trained_between(first, second, function, file):
        return False
    return not result_changes(first, file) and not result_changes(second, file)


def _trained_between(first: ast.expr, second: ast.expr, function: FunctionNode, file: SourceFile) -> bool:
    """May the weights of a submodule have changed in between, or a local module been handed to something?"""
    modules = [n for n in walk(first) if isinstance(n, ast.Call) and is_module_call(n, file)]
    if not modules:
        return False
    inside = range(first.lineno + 1, second.lineno)
    handed = [
        load.lineno in inside
        for call in modules
        if isinstance(call.func, ast.Name)
        for load in file.uses.loads(function, call.func.id)
    ]
    return any(handed) or any(
        called_name(call) in ("step", "backward", "train", "eval", "load_state_dict", "manual_seed", "update")
        for call in file.calls.calls_in(function)
        if call.lineno in inside
    )


def _dominates(first: ast.expr, second: ast.expr, file: SourceFile) -> bool:
    one, two = file.index.statement_of(first), file.index.statement_of(second)
    if is_conditional(first, one, file):
        return False
    block = file.index.parent(one)
    if one is two or (hasattr(one, "body") and file.index.within(second, one)):
        return True
    for ancestor, child in file.index.ancestors(second):
        if ancestor is block:
            return child in block_of(one, file)
    return False


def _modes(node: ast.AST, file: SourceFile) -> list[ast.AST]:
    """The `with` blocks around it that change how operations run: autograd, autocast, and whatever is not known."""
    return [a for a, child in file.index.ancestors(node) if isinstance(a, ast.With) and child in a.body]
