from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from ptopt.rules.base import TEXTBOOK, Edit, Fix, Invalid, Problem, Rule, Safety, Severity, SourceFile
from ptopt.rules.code import is_literal, quote, replace_node
from ptopt.rules.shared.networks import path_of
from ptopt.source.calls import last_name
from ptopt.source.file import remembered

_MISSPELT = (
    "require_grad", "require_grads", "requires_grads", "requires_gradient", "requires_gradients", "require_gradient",
    "required_grad", "requires_gard", "requires_gred", "reguires_grad", "requried_grad", "requires_garad", "requirs_grad",
    "require_grad_", "requiers_grad", "require_gradients",
)  # fmt: skip
_MODULE_METHODS = ("eval", "train", "parameters", "named_parameters", "named_modules", "children")
_MODEL = re.compile(r"(^|_)(model|net|network|encoder|decoder|backbone|features|classifier)$", re.I)
_PART = re.compile(
    r"(block|conv|layers?|head|embed_tokens|encoder|decoder|backbone|features|model|net|norm|bn|linear|classifier|transformer"
    r"|unet|vae|patch_embed)_?\d*$",
    re.I,
)
_PARAMETERS = re.compile(r"(^|_)(named_)?parameters$")


class FreezesNothing(Rule):
    """An assignment that should freeze weights sets an attribute that nothing reads.

    ## What it does
    Finds `requires_grad` misspelt on a parameter, and `requires_grad` assigned to a module, which has no such attribute.

    ## Why it is slow
    Python accepts any attribute and torch reads none of these: the weights stay trainable. Their gradients are computed,
    stored, averaged over processes and applied, with the optimizer state that belongs to them.

    ## Fix safety
    Unsafe: the weights are frozen for the first time.

    ## Sources
    - [torch.nn.Module.requires_grad_](https://docs.pytorch.org/docs/stable/generated/torch.nn.Module.html#torch.nn.Module.requires_grad_)
    """

    id = "PTO506"
    name = "freezes-nothing"
    family = "autograd"
    severity = Severity.HIGH
    triggers = (*_MISSPELT, "requires_grad")
    nodes = (ast.Attribute,)
    when_wrong = "code of the project reads the attribute"

    VALID = (
        """
        for p in model.parameters():
            p.requires_grad = False
        """,
        """
        class Layer(nn.Module):
            def __init__(self, requires_grad):
                super().__init__()
                self.require_grad = requires_grad
                self.weight = nn.Parameter(torch.ones(3))
                self.weight.requires_grad = False
        """,
        """
        class Embedding(nn.Module):
            def __init__(self, size, dim):
                super().__init__()
                pe = torch.zeros(size, dim)
                pe.require_grad = False
                self.register_buffer("pe", pe)
        """,
        """
        def freeze(parts):
            for part in parts:
                if isinstance(part, nn.Parameter):
                    part.requires_grad = False
                else:
                    for p in part.parameters():
                        p.requires_grad = False
        """,
        """
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.head = nn.Linear(3, 3)
                self.head.requires_grad = False

            def loss(self, x):
                return self.head(x) if self.head.requires_grad else x
        """,
    )
    INVALID = (
        Invalid("""
            for p in model.encoder.parameters():
                p.require_grad = False  # !
                # + p.requires_grad = False
        """),
        Invalid("""
            class Net(nn.Module):
                def __init__(self):
                    super().__init__()
                    self.encoder = nn.Linear(3, 3)
                    self.encoder.requires_grad = False  # !
                    # + self.encoder.requires_grad_(False)
        """),
        Invalid("""
            class Quantizer(nn.Module):
                def __init__(self):
                    super().__init__()
                    self.scale = nn.Parameter(torch.ones(1))
                    self.scale.requires_gradient = False  # !
                    # + self.scale.requires_grad = False
        """),
        Invalid("""
            teacher = build(config)
            teacher.eval()
            teacher.requires_grad = False  # !
            # + teacher.requires_grad_(False)
        """),
    )

    def candidates(self, file: SourceFile) -> list[ast.AST]:
        found = file.index.attributes_named(*_MISSPELT, "requires_grad")
        return [node for node in found if isinstance(node.ctx, ast.Store)]

    def check(self, node: ast.AST, file: SourceFile) -> Iterator[Problem]:
        statement = file.index.parent(node)
        if not isinstance(node, ast.Attribute) or not isinstance(statement, ast.Assign):
            return
        of, value = node.value, file.source(statement.value)
        module = _is_module(of, file)
        spelt = node.attr == "requires_grad"
        if len(statement.targets) != 1 or path_of(of) == "self" or _is_read(node, file):
            return  # of `self`: most often a setting of the class
        if not (module and is_literal(statement.value, False)) and (spelt or not _is_parameter(of, file)):
            return
        if module:
            cure = f"{file.source(of)}.requires_grad_({value})"
            edit = replace_node(file, statement, cure)
        else:
            cure = f"{file.source(of)}.requires_grad = {value}"
            end = file.bounds(node)[1]
            edit = Edit(end - len(node.attr.encode()), end, "requires_grad")
        yield Problem(
            statement,
            f"torch reads no attribute `{node.attr}` of a {'module' if module else 'parameter'}: {quote(file, statement, 50)} does "
            f"nothing, and autograd treats the weights as before. `{cure}` was meant.",
            TEXTBOOK,
            fix=Fix(Safety.UNSAFE, (edit,), "the weights are meant to be frozen"),
            facts={"module": float(module)},
        )


def _is_read(node: ast.Attribute, file: SourceFile) -> bool:
    """Does the file read the attribute of the same object, as a flag of its own, or define one of the name?"""
    path = path_of(node.value)
    return any(
        isinstance(other.ctx, ast.Load) and path_of(other.value) == path
        for other in file.index.attributes_named(node.attr)
    ) or any(function.name == node.attr for function in file.calls.functions)


def _is_parameter(expr: ast.expr, file: SourceFile) -> bool:
    """An element of `parameters()`, or something that is given an `nn.Parameter`."""
    if isinstance(expr, ast.Name):
        for loop in file.index.loops_of(expr):
            names = (
                {n.id for n in ast.walk(loop.target) if isinstance(n, ast.Name)}
                if isinstance(loop, ast.For)
                else set()
            )
            if expr.id in names and isinstance(loop, ast.For):
                return _gives_parameters(loop.iter)
    if isinstance(expr, ast.Attribute) and expr.attr in ("weight", "bias") and _is_module(expr.value, file):
        return True
    path = path_of(expr)
    return bool(path) and any(
        isinstance(assign.value, ast.Call)
        and last_name(assign.value.func) == "Parameter"
        and path in map(path_of, assign.targets)
        and file.index.class_of(assign) is file.index.class_of(expr)
        for assign in file.index.of_type(ast.Assign)
    )


def _gives_parameters(iterable: ast.expr) -> bool:
    return any(isinstance(n, ast.Call) and _PARAMETERS.search(last_name(n.func)) for n in ast.walk(iterable))


def _is_module(expr: ast.expr, file: SourceFile) -> bool:
    """By what it is, by a method that only modules have, or a part of a module that is named like one."""
    path = path_of(expr)
    if not path:
        return False
    if file.values.is_a(expr, "module") or path in _used_as_module(_scope(expr, path, file), file):
        return True
    if not isinstance(expr, ast.Attribute) or not _PART.search(expr.attr):
        return False
    return bool(_MODEL.search(last_name(expr.value))) or _is_module(expr.value, file)


def _scope(expr: ast.expr, path: str, file: SourceFile) -> ast.AST | None:
    """Where a path means the same object: in the class for attributes of `self`, else in the function."""
    return file.index.class_of(expr) if path.startswith("self.") else file.index.function_of(expr)


@remembered
def _used_as_module(scope: ast.AST | None, file: SourceFile) -> frozenset[str]:
    """Names of the scope (None: the module level) that a method is called on which only modules have."""
    found = set()
    for call in (call for name in _MODULE_METHODS for call in file.calls_named(name)):
        path = path_of(call.func.value) if isinstance(call.func, ast.Attribute) else ""
        if path and path != "self" and _scope(call, path, file) is scope:
            found.add(path)
    return frozenset(found - _given(scope, file))


def _given(scope: ast.AST | None, file: SourceFile) -> set[str]:
    """Names that may hold a parameter in one call and a module in the next: `if isinstance(x, nn.Parameter)`."""
    tests = (
        c for c in file.calls_named("isinstance") if len(c.args) == 2 and file.index.function_of(c) is scope
    )
    return {path_of(c.args[0]) for c in tests if "Parameter" in ast.unparse(c.args[1])}
