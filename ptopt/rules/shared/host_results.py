"""Results of a network that are copied to the host, as a collection of embeddings is made."""

from __future__ import annotations

import ast

from ptopt.rules.base import SourceFile
from ptopt.source.index import FunctionNode, walk


def copies_each_to_host(function: FunctionNode, calls: list[ast.Call], file: SourceFile) -> bool:
    """Is what each of the passes gives copied to the host in its loop: `out.append(model(x).cpu())`, or through a name?

    A loss that is computed from a few hundred batches on the host is rare: such code collects results.
    """
    copies = [call for call in file.calls.calls_in(function) if _to_host(call)]
    return bool(calls) and all(
        any(
            _holds(copy, call, file) and file.index.within(copy, loop)
            for loop in file.index.loops_of(call)
            for copy in copies
        )
        for call in calls
    )


def _to_host(call: ast.Call) -> bool:
    func = call.func
    return isinstance(func, ast.Attribute) and (
        (func.attr == "cpu" and not call.args)
        or (func.attr == "to" and bool(call.args) and ast.unparse(call.args[0]) == "'cpu'")
    )


def _holds(copy: ast.Call, run: ast.Call, file: SourceFile) -> bool:
    """Does the copy take what the pass gives, itself or by the name that it is given?"""
    statement = file.index.statement_of(run)
    targets = statement.targets if isinstance(statement, ast.Assign) else []
    names = {target.id for target in targets if isinstance(target, ast.Name)}
    return any(node is run or (isinstance(node, ast.Name) and node.id in names) for node in walk(copy.func))
