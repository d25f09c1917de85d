from __future__ import annotations

import ast
import itertools
from collections.abc import Iterator

from ptopt.rules.base import Evidence, Invalid, Problem, Rule, SourceFile
from ptopt.rules.code import has_unpacking, quote
from ptopt.rules.ops._pure import changes, cost, costly, is_pure, reads, steady
from ptopt.rules.shared.flow import block_of
from ptopt.source.frequency import Often
from ptopt.source.index import FUNCTIONS, FunctionNode


class ArgumentReworkedByEachCall(Rule):
    """A function computes the same from an argument in each of several calls that hand it the same value.

    ## What it does
    Finds functions of a file that are called twice and more in one function with the same value for a parameter, and that
    apply costly tensor functions to that parameter alone: the sine and cosine of rotary positions for queries and for keys.

    ## Why it is slow
    Each call computes the same result.

    ## Fix safety
    No fix: the signature of the function changes.

    ## Sources
    - [OLMo: sine and cosine are computed once and handed in](https://github.com/allenai/OLMo)
    """

    id = "PTO484"
    name = "argument-reworked-by-each-call"
    family = "ops"
    most_stated = 0.45
    nodes = FUNCTIONS
    triggers = ("def ",)
    when_wrong = "the code is compiled"

    VALID = (
        """
        def rotate(cos, sin, t):
            return t * cos + t.flip(-1) * sin

        def forward(cos, sin, q, k):
            return rotate(cos, sin, q), rotate(cos, sin, k)
        """,
        """
        def rotate(pos, t):
            return t * torch.cos(pos)

        def forward(pos, other, q, k):
            return rotate(pos, q), rotate(other, k)
        """,
        """
        def rotate(pos, t):
            return t * torch.cos(pos)

        def forward(pos, q, k, training):
            if training:
                return rotate(pos, q)
            else:
                return rotate(pos, k)
        """,
    )
    INVALID = (
        Invalid("""
            def rotate(pos, t):
                return t * torch.cos(pos) + t.flip(-1) * torch.sin(pos)  # !

            def forward(pos, q, k):
                return rotate(pos, q), rotate(pos, k)
        """),
        Invalid("""
            def kl(p, q):
                return (p.softmax(-1) * (p.log_softmax(-1) - q.log_softmax(-1))).sum(-1)  # !

            def loss(teacher, first, second):
                return kl(teacher, first) + kl(teacher, second)
        """),
        Invalid("""
            class Attention(nn.Module):
                def _apply(self, freqs, t):
                    emb = torch.exp(freqs)  # !
                    return t * emb

                def forward(self, q, k, freqs):
                    q = self._apply(freqs, q)
                    k = self._apply(freqs, k)
                    return q @ k
        """),
    )

    def check(self, node: ast.AST, file: SourceFile) -> Iterator[Problem]:
        if not isinstance(node, FUNCTIONS):
            return
        callers = file.calls.callers(node)
        work = file.once(_work_of).get(node) if len(callers) > 1 else None
        if not work or file.frequencies.of_function(node).often in _SELDOM:
            return
        for first, second in _pairs(callers, file):
            shared = _shared(first, second, node, file)
            done = [w for w in work if _reads_only(w, shared, node, file)] if shared else []
            if not done:
                continue
            names = ", ".join(f"`{n}`" for n in sorted(shared & set().union(*(reads(w, file) for w in done))))
            listed = ", ".join(quote(file, w, 40) for w in done[:2])
            yield Problem(
                done[0],
                f"{listed} depend{'s' if len(done) == 1 else ''} on {names} alone, and the calls of `{node.name}` at lines "
                f"{first.lineno} and {second.lineno} hand in the same value: it is computed in each of them. Compute it once "
                "there and pass the result.",
                0.45,
                (
                    Evidence(first.lineno, f"calls `{node.name}`"),
                    Evidence(second.lineno, "calls it with the same value"),
                ),
                subject=done[0],
                facts={"works": len(done), "cost": max(cost(w, file) for w in done), "calls": len(callers)},
            )
            return


_SELDOM = (Often.RARELY, Often.ONCE, Often.EPOCH)


def _work_of(file: SourceFile) -> dict[FunctionNode | None, list[ast.expr]]:
    """Function -> its costly operations, in source order."""
    table: dict[FunctionNode | None, list[ast.expr]] = {}
    for node, worth in costly(file).items():
        if worth > 1:
            table.setdefault(file.index.function_of(node), []).append(node)
    for found in table.values():
        found.sort(key=lambda n: (n.lineno, n.col_offset))
    return table


def _reads_only(work: ast.expr, shared: frozenset[str], function: FunctionNode, file: SourceFile) -> bool:
    keys = reads(work, file)
    parameters = {key for key in keys if not key.startswith("self.")}
    start = (function.lineno, 10**6)
    return (
        bool(parameters)
        and parameters <= shared
        and is_pure(work, file)
        and steady(keys, work, file)
        and not changes(function, file).between(keys, start, (work.lineno, work.col_offset))
    )


def _pairs(callers: list[ast.Call], file: SourceFile) -> Iterator[tuple[ast.Call, ast.Call]]:
    """Neighbouring calls of one block of one function."""
    for first, second in itertools.pairwise(callers):
        if has_unpacking(first) or has_unpacking(second):
            continue
        one, two = file.index.statement_of(first), file.index.statement_of(second)
        if file.index.parent(one) is file.index.parent(two) and two in block_of(one, file):
            yield first, second


def _shared(first: ast.Call, second: ast.Call, callee: FunctionNode, file: SourceFile) -> frozenset[str]:
    """The parameters to which both calls give the same, unchanged value, when they differ in another."""
    one, two = _given(first, callee), _given(second, callee)
    found = changes(file.index.function_of(first), file)
    start, end = (first.lineno, first.col_offset), (second.lineno, second.col_offset)
    same = {
        name
        for name, value in one.items()
        if name in two
        and isinstance(value, (ast.Name, ast.Attribute, ast.Subscript))
        and ast.dump(value) == ast.dump(two[name])
        and not found.between(reads(value, file), start, end)
    }
    return frozenset(same) if len(same) < len(one) else frozenset()


def _given(call: ast.Call, callee: FunctionNode) -> dict[str, ast.expr]:
    names = [a.arg for a in [*callee.args.posonlyargs, *callee.args.args]]
    if names and names[0] in ("self", "cls"):
        names = names[1:]
    return dict(zip(names, call.args, strict=False)) | {k.arg: k.value for k in call.keywords if k.arg}
