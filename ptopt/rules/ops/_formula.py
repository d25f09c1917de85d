"""Loop bodies that are one formula of the loop's indices, so that a few calls on whole tensors replace them."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass

from ptopt.rules.base import SourceFile
from ptopt.rules.code import method_call
from ptopt.rules.ops._calls import names_in, torch_op
from ptopt.rules.shared.flow import assigned
from ptopt.source.index import walk

_POINTWISE = frozenset(
    "abs exp log log1p log2 log10 sqrt rsqrt sin cos tan tanh sigmoid relu clamp clip round floor ceil pow square "
    "minimum maximum where float int long bool min max to item sign erf".split()
)
_MASK = re.compile(r"mask|keep|valid|select|active", re.I)
_ROW_REDUCTIONS = ("norm", "sum", "mean", "std", "max", "min", "argmax", "argmin", "softmax")


@dataclass(slots=True)
class Formula:
    """Reads a loop body that is one formula: it stores what it computes from the indices, and carries nothing over."""

    file: SourceFile
    scalars: set[str]  # loop variables, and names computed from them
    tensors: frozenset[str]  # names that are tensors by the way the loop is written
    simple: bool = True  # the statements would do as they are, with all indices at once
    reduces: bool = False  # a row is reduced
    gathered: ast.Subscript | None = None  # `x[i, idx[i]]`, an element of each row

    def output(self, body: list[ast.stmt]) -> ast.expr | None:
        """The tensor or list that the body fills, or None when it is no formula."""
        later = {
            t.id for s in body if isinstance(s, ast.Assign) for t in s.targets if isinstance(t, ast.Name)
        }
        stores = [store for stmt in body if (store := _store(stmt)) is not None]
        if len(stores) < len(body):
            return None  # as most bodies, before what takes the values of the names to tell
        outputs: list[ast.expr] = []
        values: list[ast.expr] = []
        for stmt, (target, value) in zip(body, stores, strict=True):
            if not self.computed(value) or names_in(value) & (later - self.scalars):
                return None
            values.append(value)
            if isinstance(target, ast.Subscript):
                if not self.computed(target.slice) or not _indexed(target.slice, self.scalars):
                    return None
                looked_up = _looked_up(target.slice)
                if names_in(target.value) & self.scalars or (looked_up and not isinstance(stmt, ast.Assign)):
                    return None  # a place that the data name, perhaps several times
                # A number for each row would have to get a dimension of its own.
                self.simple = self.simple and not looked_up and not names_in(value) & self.scalars
                outputs.append(target.value)
            elif isinstance(stmt, ast.Assign) and isinstance(target, ast.Name):
                self.scalars.add(target.id)
            elif not isinstance(stmt, ast.Assign) and self.takes_element(value):
                self.simple = False
                outputs.append(target)
            else:
                return None
        written = {self.file.source(out) for out in outputs}
        read = {
            self.file.source(n) for v in values for n in walk(v) if isinstance(n, (ast.Name, ast.Attribute))
        }
        return outputs[0] if outputs and not written & read else None

    def computed(self, expr: ast.expr) -> bool:
        """Is the value made by arithmetic from loop variables, outer names, and elements of tensors at the indices?"""
        if isinstance(expr, ast.Constant):
            return not isinstance(expr.value, (str, bytes))
        if isinstance(expr, (ast.Name, ast.Attribute)):
            # Beside a tensor of some shape, all indices at once would have to get a dimension of their own.
            self.simple = self.simple and self.file.values.of(expr).kind not in ("tensor", "array")
            return isinstance(expr, ast.Name) or isinstance(expr.value, ast.Name)
        if isinstance(expr, ast.BinOp):
            return self.computed(expr.left) and self.computed(expr.right)
        if isinstance(expr, ast.UnaryOp):
            return self.computed(expr.operand)
        if isinstance(expr, ast.Compare):
            return all(self.computed(e) for e in [expr.left, *expr.comparators])
        if isinstance(expr, ast.Tuple):
            return all(self.computed(e) for e in expr.elts)
        if isinstance(expr, ast.Slice):
            bounds = [b for b in (expr.lower, expr.upper, expr.step) if b is not None]
            self.simple = self.simple and not any(names_in(b) & self.scalars for b in bounds)
            # A bound read from elsewhere (`: lengths[i]`) is ragged data, not a formula.
            return all(self.computed(b) and not isinstance(b, ast.Subscript) for b in bounds)
        if isinstance(expr, ast.Subscript):
            if self.gathers(expr) and self.is_tensor(expr.value):
                self.gathered = expr
                return True
            return self.is_tensor(expr.value) and self.computed(expr.slice) and not self.is_mask(expr.slice)
        if isinstance(expr, ast.Call):
            return self.row_reduction(expr) or (
                self.pointwise(expr) and all(self.computed(a) for a in expr.args)
            )
        return False

    def is_mask(self, index: ast.expr) -> bool:
        """Does it pick as many elements as a comparison finds, which differs between iterations?"""
        if isinstance(index, ast.Name):
            made = assigned(index, self.file)
            return made is not None and self.is_mask(made)
        if isinstance(index, ast.BinOp) and isinstance(index.op, (ast.BitAnd, ast.BitOr)):
            return self.is_mask(index.left) or self.is_mask(index.right)
        return isinstance(index, ast.Compare)

    def gathers(self, expr: ast.expr) -> bool:
        """`x[i, idx[i]]`: of each row the element that data name. A mask in the place of `idx` gives as many as it finds."""
        entries = (
            expr.slice.elts if isinstance(expr, ast.Subscript) and isinstance(expr.slice, ast.Tuple) else []
        )
        own = [e for e in entries if isinstance(e, ast.Name) and e.id in self.scalars]
        read = [
            e
            for e in entries
            if isinstance(e, ast.Subscript)
            and isinstance(e.slice, ast.Name)
            and e.slice.id in self.scalars
            and not (self.is_mask(e.value) or _MASK.search(self.file.source(e.value)))
        ]
        fixed = [e for e in entries if isinstance(e, (ast.Constant, ast.UnaryOp))]  # `x[i, -1, idx[i]]`
        return bool(own and read) and len(own) + len(read) + len(fixed) == len(entries)

    def takes_element(self, expr: ast.expr) -> bool:
        """Does it read `x[i]`, and no blocks of rows?"""
        reads = [n.slice for n in walk(expr) if isinstance(n, ast.Subscript) and self.is_tensor(n.value)]
        if isinstance(expr, ast.Subscript) and self.is_tensor(expr.value) and self.gathers(expr):
            return True
        plain = all(isinstance(index, ast.Name) for index in reads)
        return plain and any(names_in(index) & self.scalars for index in reads)

    def is_tensor(self, expr: ast.expr) -> bool:
        return self.file.source(expr) in self.tensors or self.file.values.is_a(expr, "tensor", "array")

    def row_reduction(self, call: ast.Call) -> bool:
        """`x[i].norm()`, `torch.sum(x[i])`: a reduction along the other dimensions, once the loop is gone."""
        op = torch_op(call, self.file, *_ROW_REDUCTIONS)
        if op is None or op.rest or any(k.arg not in ("dim", "p") for k in call.keywords):
            return False
        row = op.operand
        if (
            not isinstance(row, ast.Subscript)
            or not isinstance(row.slice, ast.Name)
            or not self.is_tensor(row.value)
        ):
            return False
        self.simple, self.reduces = False, True
        return row.slice.id in self.scalars

    def pointwise(self, call: ast.Call) -> bool:
        if call.keywords:
            return False
        if isinstance(call.func, ast.Name):
            self.simple = False  # takes numbers only
            return call.func.id in ("abs", "min", "max", "float", "int", "round")
        if not isinstance(call.func, ast.Attribute) or call.func.attr not in _POINTWISE:
            return False
        module = self.file.imports.qualified(call.func).rpartition(".")[0]
        if module:
            self.simple = self.simple and module.startswith("torch")
            return module in ("torch", "math", "numpy", "torch.nn.functional")
        return isinstance(call.func.value, ast.Subscript) and self.is_tensor(call.func.value.value)


def _store(stmt: ast.stmt) -> tuple[ast.expr, ast.expr] | None:
    """(Where to, what) of `out[i] = v`, `name = v`, `out[i] += v` and `parts.append(v)`; None for other statements."""
    if isinstance(stmt, ast.Assign) and len(stmt.targets) == 1:
        return stmt.targets[0], stmt.value
    if isinstance(stmt, ast.AugAssign) and isinstance(stmt.target, ast.Subscript):
        return stmt.target, stmt.value
    call = stmt.value if isinstance(stmt, ast.Expr) else None
    parts = method_call(call, "append") if isinstance(call, ast.Call) and len(call.args) == 1 else None
    return (parts, call.args[0]) if isinstance(call, ast.Call) and parts is not None else None


def _looked_up(index: ast.expr) -> bool:
    """Is an index read from data, so that two iterations may store to one place?"""
    return any(isinstance(n, ast.Subscript) for n in walk(index))


def _indexed(index: ast.expr, scalars: set[str]) -> bool:
    """Does a loop variable stand as an index itself? Where it only bounds a slice, the loop copies blocks."""
    entries = index.elts if isinstance(index, ast.Tuple) else [index]
    return any(names_in(e) & scalars for e in entries if not isinstance(e, ast.Slice))
