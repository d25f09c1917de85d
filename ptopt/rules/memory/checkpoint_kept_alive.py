from __future__ import annotations

import ast
import re
from bisect import bisect_right
from collections.abc import Iterator
from itertools import islice

from ptopt.rules.base import Evidence, Invalid, Problem, Rule, SourceFile
from ptopt.rules.code import quote
from ptopt.source.file import remembered
from ptopt.source.index import FunctionNode, Loop, walk

_LOADS = frozenset({"torch.load", "safetensors.torch.load_file"})
_FILLS = re.compile(r"load_state_dict|load_from|restore|load_weights|load_param|from_state")
_DATA = re.compile(r"data|feat|emb|graph|label|sample|token|split|mask|idx|prompt|image", re.I)


class CheckpointKeptAlive(Rule):
    """A checkpoint stays in memory while the model that was filled from it trains.

    ## What it does
    Finds a name that is given `torch.load(...)`, is read to fill a model or optimizer, and is neither deleted nor bound again in
    a function, or script, that trains or evaluates afterwards.

    ## Why it is slow
    `load_state_dict` copies the values. The dictionary, often with the optimizer's state three times the model, stays
    allocated as long as the name exists: in each process of the node, and on the GPU when it was loaded there.

    ## When this is wrong
    When the checkpoint is small, or the parameters are assigned from it rather than copied.

    ## Fix safety
    There is no fix: where the last read is depends on branches.

    ## Sources
    - [torch.load](https://docs.pytorch.org/docs/stable/generated/torch.load.html)
    """

    id = "PTO888"
    name = "checkpoint-kept-alive"
    family = "memory"
    most_stated = 0.4
    nodes = (ast.Assign,)
    triggers = ("torch.load(", "load_file(")
    requires = ("load_state_dict",)
    when_wrong = "the checkpoint is small, or freed elsewhere"

    VALID = (
        """
        def resume(model, path):
            checkpoint = torch.load(path)
            model.load_state_dict(checkpoint["model"])
        """,
        """
        def main(model, path, loader):
            checkpoint = torch.load(path)
            model.load_state_dict(checkpoint["model"])
            del checkpoint
            for x in loader:
                model(x).sum().backward()
                optimizer.step()
        """,
        """
        def main(model, path, loader):
            model.load_state_dict(torch.load(path))
            for x in loader:
                model(x).sum().backward()
                optimizer.step()
        """,
    )
    INVALID = (
        Invalid("""
            def main(model, path, loader):
                checkpoint = torch.load(path, map_location="cpu")  # !
                model.load_state_dict(checkpoint["model"])
                # ~ model.load_state_dict(checkpoint["model"])
                # ~ del checkpoint
                for x in loader:
                    model(x).sum().backward()
                    optimizer.step()
        """),
        Invalid("""
            state = torch.load(path)  # !
            net.load_state_dict(state)
            for epoch in range(epochs):
                train(net)
        """),
        Invalid("""
            def test(args, loader):
                ckpt = torch.load(args.path)  # !
                net.load_state_dict(ckpt["net"])
                for x in loader:
                    results.append(net(x).cpu())
        """),
    )

    def check(self, node: ast.AST, file: SourceFile) -> Iterator[Problem]:
        if (
            not isinstance(node, ast.Assign)
            or not isinstance(node.value, ast.Call)
            or not isinstance(node.targets[0], ast.Name)
        ):
            return
        if file.imports.qualified(node.value.func) not in _LOADS:
            return
        name = node.targets[0].id
        function = file.index.function_of(node)
        loads = file.uses.loads(function, name)
        if not loads or _DATA.search(name) or _released(name, node, function, file):
            return
        if not any(
            _FILLS.search(file.source(file.index.statement_of(load)).partition("\n")[0]) for load in loads
        ):
            return
        last = max(load.lineno for load in loads)
        own = next(file.index.loops_of(node), None)
        loops = file.once(_loops).get((function, own), [])
        first = bisect_right(loops, last, key=lambda loop: loop.lineno)
        work = next((loop for loop in islice(loops, first, None) if _works(loop, file)), None)
        if work is None:
            return
        where = file.source(node.value)
        host = "cpu" in where
        yield Problem(
            node,
            f"`{name}` is last read on line {last}, but stays in memory, optimizer state and all, through the loop on line {work.lineno}"
            f"{'' if host else ', on the GPU if it was saved from there'}. `load_state_dict` has copied what it needs: write `del {name}` after "
            f"line {last}, or do not give {quote(file, node.value, 30)} a name.",
            0.4,
            (Evidence(last, "last read"), Evidence(work.lineno, "runs while it is alive")),
            cause=node,
            subject=node.value,
            facts={"host": host, "script": function is None, "reads": len(loads)},
        )


def _released(name: str, node: ast.Assign, function: FunctionNode | None, file: SourceFile) -> bool:
    """Is the name deleted, bound again, or read by a nested function?"""
    if len(file.bindings.of(function, name)) > 1:
        return True
    if name in file.once(_deleted):
        return True
    return any(reader is not function for reader in file.once(_readers).get(name, ()))


def _deleted(file: SourceFile) -> frozenset[str]:
    """The names that the file deletes anywhere."""
    targets = (t for statement in file.index.of_type(ast.Delete) for t in statement.targets)
    return frozenset(t.id for t in targets if isinstance(t, ast.Name))


def _readers(file: SourceFile) -> dict[str, set[FunctionNode | None]]:
    """Name -> the functions that read it (None: the module)."""
    table: dict[str, set[FunctionNode | None]] = {}
    for n in file.index.of_type(ast.Name):
        if isinstance(n.ctx, ast.Load):
            table.setdefault(n.id, set()).add(file.index.function_of(n))
    return table


def _loops(file: SourceFile) -> dict[tuple[FunctionNode | None, Loop | None], list[ast.For]]:
    """(function, loop around it) -> the `for` loops that stand there, in source order."""
    table: dict[tuple[FunctionNode | None, Loop | None], list[ast.For]] = {}
    for loop in file.index.of_type(ast.For):
        place = (file.index.function_of(loop), next(file.index.loops_of(loop), None))
        table.setdefault(place, []).append(loop)
    return table


@remembered
def _works(loop: ast.For, file: SourceFile) -> bool:
    """Does the loop train, or run over epochs or batches?"""
    text = file.source(loop.iter) + " " + file.source(loop.target)
    calls = any(isinstance(n, ast.Call) for n in walk(loop.body[0])) or len(loop.body) > 1
    return calls and (
        file.context.step_mark(loop) is not None
        or file.context.is_eval_loop(loop)
        or re.search(r"epoch|loader|batch|(^|\W)dl\b|dataset|steps|iters", text, re.I) is not None
    )
