"""What becomes of the results of a network: do they keep its graph, and leave the function with it?"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence

from ptopt.rules.base import SourceFile
from ptopt.rules.shared.networks import COMPUTES_LOSS, path_of
from ptopt.source.calls import last_name
from ptopt.source.index import COMPREHENSIONS, FunctionNode, Loop, own_nodes
from ptopt.source.torch_names import GRADLESS_FUNCTIONS, KEEPS_TENSOR, TENSOR_FACTORIES

_GRADLESS_METHODS = GRADLESS_FUNCTIONS | frozenset(
    "item numpy tolist detach multinomial size dim numel batch_decode argmax topk_indices".split()
)
_WITHOUT_GRAPH = frozenset({"data", "shape", "dtype", "device", "sequences", "indices"})
_JOIN = frozenset({"torch.cat", "torch.concat", "torch.concatenate", "torch.hstack", "torch.vstack"})
_PICKS = frozenset({"topk", "max", "min", "sort", "kthvalue"})  # give values and indices
_PLAIN_BUILTINS = frozenset({"float", "int", "len", "str", "bool", "print", "range", "type", "isinstance"})
_SCORE = re.compile(
    r"acc(uracy)?\d*$|metric|auc|f1|bleu|rouge|iou|nms|psnr|ssim|wer|cer|evaluat|post_?process|decode_batch|to_numpy",
    re.I,
)


def escapes(function: FunctionNode, calls: Sequence[ast.Call], file: SourceFile) -> bool:
    """Can a result of `calls` leave `function` with its graph: returned, yielded, or kept in an attribute?"""
    sources: set[ast.AST] = set(calls)
    tainted: set[str] = set()
    nodes = list(own_nodes(function))
    for _ in range(2):  # twice, for names that a loop carries back
        for node in nodes:
            if isinstance(node, (ast.Assign, ast.AnnAssign, ast.AugAssign, ast.NamedExpr)):
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                if node.value is not None and _carries(node.value, sources, tainted, file):
                    for target in targets:
                        tainted |= _names(_without_indices(target, node.value))
            elif isinstance(node, ast.For) and _carries(node.iter, sources, tainted, file):
                tainted |= _names(node.target)
            elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                grows = node.func.attr in ("append", "extend", "update", "add")
                path = path_of(node.func.value) if grows else ""
                if path and any(_carries(arg, sources, tainted, file) for arg in node.args):
                    tainted.add(path)
    for node in nodes:
        out = [node.value] if isinstance(node, (ast.Return, ast.Yield)) and node.value is not None else []
        call = node.value if isinstance(node, ast.Expr) else None
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute):
            # `token.set_embedding(output)`: somebody else keeps it.
            out = call.args if re.match(r"set|add_|put|store|push", call.func.attr) else []
        if any(_carries(value, sources, tainted, file) for value in out):
            return True
    return any(path.startswith("self.") for path in tainted)


def summed_with_graph(calls: Sequence[ast.Call], file: SourceFile) -> ast.AugAssign | None:
    """`total += output.loss` of what `calls` give in a loop: each sum holds on to the graph of the one before."""
    sources: set[ast.AST] = set(calls)
    for loop in {loop for call in calls for loop in file.index.loops_of(call)}:
        tainted: set[str] = set()
        for node in own_nodes(loop):
            if isinstance(node, ast.Assign) and _carries(node.value, sources, tainted, file):
                for target in node.targets:
                    tainted |= _names(target)
            elif (
                isinstance(node, ast.AugAssign)
                and isinstance(node.op, ast.Add)
                and isinstance(node.target, (ast.Name, ast.Attribute))
                and file.values.of(node.value).kind in ("tensor", "")
                and _carries(node.value, sources, tainted, file)
            ):
                return node
    return None


def listed_with_graph(calls: Sequence[ast.Call], loop: Loop, file: SourceFile) -> ast.expr | None:
    """`losses` of `losses.append(loss)`, or of `losses = torch.cat([losses, loss])`, of what `calls`, all of them in the loop,
    give: it was made before the loop, and keeps the graph of each pass.

    Only where nothing but tensor operations stands between: what an unknown function returns may have no graph.
    """
    sources: set[ast.AST] = set(calls)
    nodes = list(own_nodes(loop))
    made = {
        name for node in nodes if isinstance(node, ast.Assign) for t in node.targets for name in _names(t)
    }
    tainted: set[str] = set()
    for node in nodes:
        if isinstance(node, ast.Assign):
            grown = _grown(node, file)
            if (
                grown is not None
                and next(file.index.loops_of(node), None) is loop
                and len(list(_stores(grown.id, nodes))) == 1
                and _keeps_graph(node.value, sources, tainted - {grown.id}, file)
            ):
                return grown
            for target in node.targets:
                keeps = _keeps_graph(node.value, sources, tainted, file)
                tainted = tainted - _names(target)
                if keeps:
                    tainted |= _names(_without_indices(target, node.value))
        elif (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr == "append"
            and len(node.args) == 1
            and next(file.index.loops_of(node), None) is loop
            and (path := path_of(node.func.value))
            and path not in made
            and _keeps_graph(node.args[0], sources, tainted, file)
            and not _is_emptied(path, nodes)
        ):
            return node.func.value
    return None


def _grown(node: ast.Assign, file: SourceFile) -> ast.Name | None:
    """`scores` of `scores = torch.cat([scores, more])`."""
    target, parts = node.targets[0], _joined_parts(node.value, file)
    if len(node.targets) > 1 or not isinstance(target, ast.Name):
        return None
    return target if any(isinstance(part, ast.Name) and part.id == target.id for part in parts) else None


def _joined_parts(expr: ast.expr, file: SourceFile) -> list[ast.expr]:
    """The tensors that `torch.cat` or its like joins, where they are listed in the call."""
    listed = expr.args[0] if isinstance(expr, ast.Call) and expr.args else None
    if not isinstance(listed, (ast.List, ast.Tuple)) or not isinstance(expr, ast.Call):
        return []
    return listed.elts if file.imports.qualified(expr.func) in _JOIN else []


def _stores(name: str, nodes: Sequence[ast.AST]) -> Iterator[ast.Name]:
    return (n for n in nodes if isinstance(n, ast.Name) and n.id == name and not isinstance(n.ctx, ast.Load))


def _keeps_graph(expr: ast.expr, sources: set[ast.AST], tainted: set[str], file: SourceFile) -> bool:
    """Is it a value of `sources`, or computed of one by tensor operations that pass gradients on?"""
    if expr in sources:
        return True
    if isinstance(expr, (ast.Name, ast.Attribute)):
        return path_of(expr) in tainted
    if isinstance(expr, ast.Subscript):
        call = expr.value
        if isinstance(
            expr.slice, ast.Constant
        ):  # of a tuple, perhaps: only of `scores.max(1)` is known what it is
            if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Attribute):
                return False
            if call.func.attr not in _PICKS or expr.slice.value != 0:
                return False
            parts = [call.func.value, *call.args[:1]]
            return any(_keeps_graph(part, sources, tainted, file) for part in parts)
        return _keeps_graph(call, sources, tainted, file)
    if isinstance(expr, ast.UnaryOp):
        return not isinstance(expr.op, ast.Not) and _keeps_graph(expr.operand, sources, tainted, file)
    if isinstance(expr, ast.BinOp):
        return any(_keeps_graph(side, sources, tainted, file) for side in (expr.left, expr.right))
    if not isinstance(expr, ast.Call) or not _carries(expr, sources, tainted, file):
        return False
    func, name = expr.func, last_name(expr.func)
    if joined := _joined_parts(expr, file):
        return any(_keeps_graph(part, sources, tainted, file) for part in joined)
    qualified = file.imports.qualified(func)
    if (qualified.startswith("torch.") and name not in TENSOR_FACTORIES) or (
        not qualified and COMPUTES_LOSS.search(name)
    ):
        return any(_keeps_graph(arg, sources, tainted, file) for arg in expr.args)
    return (
        isinstance(func, ast.Attribute)
        and name in KEEPS_TENSOR - {"numpy"}
        and _keeps_graph(func.value, sources, tainted, file)
    )


def _is_emptied(path: str, nodes: Sequence[ast.AST]) -> bool:
    """Does the code take entries out of the list again?"""
    return any(
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in ("clear", "pop", "popleft")
        and path_of(node.func.value) == path
        for node in nodes
    )


def _without_indices(target: ast.expr, value: ast.expr) -> ast.expr:
    """`values` of `values, indices = scores.topk(5)`: indices carry no graph."""
    func = value.func if isinstance(value, ast.Call) else None
    picks = isinstance(func, ast.Attribute) and func.attr in _PICKS
    return target.elts[0] if picks and isinstance(target, ast.Tuple) and len(target.elts) == 2 else target


def _names(target: ast.expr) -> set[str]:
    if isinstance(target, (ast.Tuple, ast.List)):
        return {name for element in target.elts for name in _names(element)}
    if isinstance(target, (ast.Subscript, ast.Starred)):
        return _names(target.value)
    path = path_of(target)
    return {path} if path else set()


def _carries(expr: ast.expr, sources: set[ast.AST], tainted: set[str], file: SourceFile) -> bool:
    """May the value of `expr` hold a graph that comes from `sources`?"""
    if expr in sources:
        return True
    if isinstance(expr, (ast.Constant, ast.Compare, ast.JoinedStr)):
        return False
    if isinstance(expr, (ast.Name, ast.Attribute)) and path_of(expr) in tainted:
        return True
    if isinstance(expr, ast.Attribute) and expr.attr in _WITHOUT_GRAPH:
        return False
    if isinstance(expr, ast.BinOp) and isinstance(expr.op, ast.Mod) and _is_text(expr.left):
        return False
    if isinstance(expr, COMPREHENSIONS):
        return _comprehension_carries(expr, sources, tainted, file)
    if isinstance(expr, ast.Call):
        func = expr.func
        if isinstance(func, ast.Name) and (func.id in _PLAIN_BUILTINS or _SCORE.search(func.id)):
            return False
        if isinstance(func, ast.Attribute):
            if func.attr in _GRADLESS_METHODS or _SCORE.search(func.attr):
                return False
            if func.attr == "decode" and re.search(
                r"token|processor|sp(_?model)?$|vocab", path_of(func.value), re.I
            ):
                return False
            if file.imports.qualified(func).partition(".")[0] in ("numpy", "sklearn", "scipy", "math"):
                return False
        parts = [func.value] if isinstance(func, ast.Attribute) else []
        parts += [*expr.args, *(k.value for k in expr.keywords)]
        return any(_carries(part, sources, tainted, file) for part in parts)
    return any(
        _carries(child, sources, tainted, file)
        for child in ast.iter_child_nodes(expr)
        if isinstance(child, ast.expr)
    )


def _comprehension_carries(
    expr: ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp,
    sources: set[ast.AST],
    tainted: set[str],
    file: SourceFile,
) -> bool:
    """`[x.item() for x in outputs]` carries nothing, `[x * 2 for x in outputs]` what `outputs` does."""
    inside = set(tainted)
    for generator in expr.generators:
        if _carries(generator.iter, sources, inside, file):
            inside |= _names(generator.target)
        else:
            inside -= _names(generator.target)
    parts = [expr.key, expr.value] if isinstance(expr, ast.DictComp) else [expr.elt]
    return any(_carries(part, sources, inside, file) for part in parts)


def _is_text(expr: ast.expr) -> bool:
    return isinstance(expr, ast.JoinedStr) or (isinstance(expr, ast.Constant) and isinstance(expr.value, str))
