from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from ptopt.rules.base import Edit, Fix, Invalid, Problem, Rule, Safety, SourceFile
from ptopt.rules.code import add_keyword, has_unpacking, keyword_of
from ptopt.rules.shared.flow import value_of
from ptopt.rules.shared.places import every_step, step_evidence
from ptopt.source.file import remembered
from ptopt.source.index import FunctionNode

_WRAPPERS = ("torch.from_numpy", "torch.tensor", "torch.as_tensor")
# NumPy functions whose result is float64 when no dtype is given.
_DOUBLES = frozenset(
    (
        "rand",
        "randn",
        "random",
        "random_sample",
        "normal",
        "uniform",
        "standard_normal",
        "exponential",
        "beta",
        "gamma",
    )
)
_FILLS = frozenset(("zeros", "ones", "linspace", "eye", "hanning", "hamming"))
_WANTED = re.compile(r"float64|\bdouble\b|set_default_dtype|precise|enable_x64", re.I)
_CASTS = frozenset(("float", "half", "bfloat16", "type", "type_as", "long", "int", "bool", "double"))


class AccidentalFloat64(Rule):
    """A NumPy array brings float64 into the training step.

    ## What it does
    Finds `torch.from_numpy(...)` or `torch.tensor(...)` of a NumPy result that is float64 by default, on
    every step of a training loop, in a file that never speaks of float64.

    ## Why it is slow
    NumPy computes in float64, and a float64 tensor turns every float32 tensor it meets into float64. GPUs do float64
    arithmetic 2 to 64 times slower than float32, and the tensors are twice as large.

    ## Fix safety
    Unsafe: the values are rounded to float32.

    ## Sources
    - [torch.from_numpy keeps the dtype of the array](https://docs.pytorch.org/docs/stable/generated/torch.from_numpy.html)
    """

    id = "PTO755"
    name = "accidental-float64"
    family = "precision"
    triggers = ("from_numpy", "torch.tensor(", "as_tensor")
    requires = ("np.", "numpy.")
    nodes = (ast.Call,)
    calls = frozenset({"from_numpy", "tensor", "as_tensor"})
    when_wrong = "the extra digits of float64 are wanted"

    VALID = (
        """
        for x, y in loader:
            noise = torch.from_numpy(np.random.randn(*x.shape)).float().to(device)
            criterion(model(x.to(device) + noise), y).backward()
            optimizer.step()
        """,
        """
        for x, y in loader:
            noise = torch.from_numpy(np.random.randn(*x.shape).astype(np.float32)).cuda()
            criterion(model(x.cuda() + noise), y).backward()
            optimizer.step()
        """,
        """
        grid = torch.from_numpy(np.linspace(0, 1, 64))
        for x, y in loader:
            order = torch.from_numpy(np.random.permutation(len(x)))
            criterion(model(x[order].cuda()), y).backward()
            optimizer.step()
        """,
        """
        for x, y in loader:
            weights = torch.tensor(np.random.rand(8), dtype=torch.float32, device=device)
            (criterion(model(x.cuda()), y) * weights).sum().backward()
            optimizer.step()
        """,
        """
        for x, y in loader:
            noise = torch.from_numpy(np.random.randn(*x.shape))
            noise = noise.to(device, torch.float32)
            criterion(model(x.to(device) + noise), y).backward()
            optimizer.step()
        """,
    )
    INVALID = (
        Invalid("""
            for x, y in loader:
                noise = torch.from_numpy(np.random.randn(*x.shape)).to(device)  # !
                # + noise = torch.from_numpy(np.random.randn(*x.shape)).float().to(device)
                criterion(model(x.to(device)) + noise, y).backward()
                optimizer.step()
        """),
        Invalid("""
            for x, y in loader:
                weights = torch.tensor(np.random.rand(len(x)), device="cuda")  # !
                # + weights = torch.tensor(np.random.rand(len(x)), device="cuda", dtype=torch.float32)
                (criterion(model(x.cuda()), y.cuda()) * weights).mean().backward()
                optimizer.step()
        """),
        Invalid("""
            for x, y in loader:
                ramp = np.linspace(0, 1, x.shape[-1])
                fade = torch.as_tensor(ramp).cuda()  # !
                # + fade = torch.as_tensor(ramp, dtype=torch.float32).cuda()
                criterion(model(x.cuda()) * fade, y.cuda()).backward()
                optimizer.step()
        """),
    )

    def check(self, node: ast.AST, file: SourceFile) -> Iterator[Problem]:
        if not isinstance(node, ast.Call) or not node.args or has_unpacking(node):
            return
        name = file.imports.qualified(node.func)
        if name not in _WRAPPERS or keyword_of(node, "dtype") is not None:
            return
        source = value_of(node.args[0], file)
        if not _is_double(source, file) or _cast_later(node, file) or file.search(_WANTED):
            return
        step = every_step(node, file)
        if step is None:
            return
        if name == "torch.from_numpy":
            end = file.bounds(node)[1]
            edit = Edit(end, end, ".float()")
        else:
            edit = add_keyword(file, node, "dtype=torch.float32")
        leaf = file.source(source.func) if isinstance(source, ast.Call) else "the array"
        yield Problem(
            node,
            f"`{leaf}` gives float64, so this tensor is float64 and turns what it meets into float64 too, which GPUs "
            "compute 2 to 64 times slower. Cast it to float32 here.",
            0.7,
            step_evidence(step, file),
            Fix(Safety.UNSAFE, (edit,), "float32 is precise enough"),
            cause=step.node,
            facts={"drawn": float("random" in leaf or "rng" in leaf)},
        )


def _is_double(expr: ast.expr, file: SourceFile) -> bool:
    """A NumPy call whose result is a float64 array: no dtype, no integers."""
    if not isinstance(expr, ast.Call) or has_unpacking(expr) and not expr.args:
        return False
    name = file.imports.qualified(expr.func)
    root, _, leaf = name.rpartition(".")
    if keyword_of(expr, "dtype") is not None:
        return False
    if root == "numpy.random":
        return leaf in _DOUBLES
    return root == "numpy" and leaf in _FILLS and len(expr.args) + len(expr.keywords) < 4


def _cast_later(node: ast.Call, file: SourceFile) -> bool:
    """Is the tensor cast in the same expression, or under the name that it is given?"""
    for ancestor, child in file.index.ancestors(node):
        if isinstance(ancestor, ast.Attribute):
            if ancestor.attr in _CASTS:
                return True
        elif isinstance(ancestor, ast.Call):
            if child is not ancestor.func:
                return True  # an argument: the callee may cast
            if (
                isinstance(ancestor.func, ast.Attribute)
                and ancestor.func.attr == "to"
                and _names_dtype(ancestor, file)
            ):
                return True
        elif isinstance(ancestor, ast.Assign):
            target = ancestor.targets[0]
            return not isinstance(target, ast.Name) or _name_cast(target.id, node, file)
        else:
            return not isinstance(ancestor, (ast.BinOp, ast.Subscript))
    return True


def _names_dtype(call: ast.Call, file: SourceFile) -> bool:
    return bool(
        re.search(
            r"dtype|float|half|torch\.\w*int|long|type\(",
            " ".join(map(file.source, [*call.args, *call.keywords])),
        )
    )


def _name_cast(name: str, node: ast.AST, file: SourceFile) -> bool:
    return name in _cast_names(file.index.function_of(node), file)


@remembered
def _cast_names(function: FunctionNode | None, file: SourceFile) -> frozenset[str]:
    """Names that the function casts to another type."""
    names: set[str] = set()
    for call in file.calls.calls_in(function):
        func = call.func
        if not isinstance(func, ast.Attribute) or not isinstance(func.value, ast.Name):
            continue
        if func.attr in _CASTS or (func.attr == "to" and _names_dtype(call, file)):
            names.add(func.value.id)
    return frozenset(names)
