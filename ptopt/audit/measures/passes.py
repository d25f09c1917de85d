"""Over which loaders a training goes once: their workers are started once, whatever keeps them."""

from __future__ import annotations

import ast
import re

from ptopt.audit.arguments import TrainerArguments, lightning_argument
from ptopt.audit.calling import callers
from ptopt.audit.known import Value
from ptopt.audit.modules import Module, dotted_name, text_of
from ptopt.audit.setup import Setup
from ptopt.audit.values import Place
from ptopt.source.calls import last_name
from ptopt.source.index import FUNCTIONS, FunctionNode, own_nodes

_OWN_LOOPS = ("PyTorch", "Accelerate", "Fabric", "DeepSpeed", "Colossal-AI")
_DEEPEST = 6  # calls of calls
_AROUND = frozenset(
    {"enumerate", "tqdm", "trange", "track", "Progress", "progress_bar"}
)  # what shows the progress of a loop
_BEGINS_AGAIN = re.compile(r"cycle|infinit|endless|forever|repeat|\binf_", re.I)


def single_pass(setup: Setup) -> tuple[str, Place | None] | None:
    """Why each batch loop of the training runs over its loader once, and what says so; None where one may run more often."""
    if setup.framework in ("transformers", "TRL"):
        return _one_epoch(TrainerArguments(setup).of("num_train_epochs"), "num_train_epochs")
    if setup.framework == "Lightning":
        return _one_epoch(lightning_argument(setup, "max_epochs", None), "max_epochs")
    if setup.framework not in _OWN_LOOPS or setup.start is None or setup.blind_loop:
        return None
    found = _Passes(setup)
    backward = [pair for pair in setup.calls("backward") if setup.runs(*pair).truth is not False]
    if not backward or not all(found.is_once(module, call) for module, call in (setup.start, *backward)):
        return None
    note = f": {found.note}" if found.note else ""
    return f"the only loop over the loader runs once{note}", setup.place(*setup.start)


def _one_epoch(value: Value, name: str) -> tuple[str, Place | None] | None:
    try:
        one = value.known and float(value.value) == 1
    except (TypeError, ValueError):
        return None
    note = f" ({value.note})" if value.note else ""
    return (f"there is one epoch, `{name}` is 1{note}", value.place) if one else None


class _Passes:
    def __init__(self, setup: Setup) -> None:
        self._setup = setup
        self.note = ""  # why a loop around the one over the loader runs once

    def is_once(self, module: Module, node: ast.AST, over: bool = False, depth: int = 0) -> bool:
        """Is one loop over a loader all that repeats a node, on every way that leads to it? `over`: inside of that loop."""
        for loop in module.file.index.loops_of(node):
            if self._turns_once(loop, module):
                continue
            if over or not self._goes_over_loader(loop, module):
                return False
            over = True
        function = module.file.index.function_of(node)
        if function is None:
            return over
        nested = module.file.index.function_of(function) is not None  # who calls a closure is not followed
        if nested or depth == _DEEPEST or function in self._setup.live.hooks:
            return False
        sites = [
            (other, call)
            for other, call, _ in callers(self._setup.live, function, module)
            if self._setup.runs(other, call).truth is not False
        ]
        # Two calls may be two passes.
        return len(sites) == 1 and self.is_once(*sites[0], over, depth + 1)

    def _turns_once(self, loop: ast.AST, module: Module) -> bool:
        """`for epoch in range(epochs)`, of one epoch by default"""
        if (
            not isinstance(loop, ast.For)
            or not isinstance(loop.iter, ast.Call)
            or last_name(loop.iter.func) != "range"
        ):
            return False
        bounds = [self._setup.value(module, given) for given in loop.iter.args[:2]]
        numbers = [bound.value for bound in bounds if bound.known and isinstance(bound.value, int)]
        if (
            not bounds
            or len(numbers) != len(bounds)
            or numbers[-1] - (numbers[0] if len(numbers) > 1 else 0) != 1
        ):
            return False
        self.note = bounds[-1].note
        return True

    def _goes_over_loader(self, loop: ast.AST, module: Module) -> bool:
        if not isinstance(loop, ast.For) or any(
            isinstance(n, ast.Call) and last_name(n.func) in ("iter", "next") for n in own_nodes(loop)
        ):
            return False
        over = loop.iter
        while isinstance(over, ast.Call) and last_name(over.func) in _AROUND and over.args:
            over = over.args[0]
        return self._ends(over, module, 0)

    def _ends(self, over: ast.expr, module: Module, depth: int) -> bool:
        """Is it a loader, and nothing that goes over one again and again?"""
        if depth > _DEEPEST or _BEGINS_AGAIN.search(text_of(over)):
            return False
        if isinstance(over, ast.Call):
            return self._makes_loader(over, module, depth)
        if isinstance(over, ast.Attribute):
            owner = module.file.index.class_of(over)
            made = module.file.bindings.attribute(owner, over.attr) if owner is not None else None
            return made is not None and self._ends(made, module, depth + 1)
        if not isinstance(over, ast.Name):
            return False
        binding = module.file.bindings.last_before(over)
        if binding is None:
            return False
        if binding.kind == "parameter":
            function = module.file.index.function_of(over)
            sites = callers(self._setup.live, function, module) if function is not None else []
            given = [
                self._argument(call, function, over.id, before)
                for _, call, before in sites
                if function is not None
            ]
            return bool(sites) and all(
                each is not None and self._ends(each, other, depth + 1)
                for each, (other, _, _) in zip(given, sites, strict=True)
            )
        return (
            binding.kind in ("assign", "unpack")
            and binding.value is not None
            and self._ends(binding.value, module, depth + 1)
        )

    @staticmethod
    def _argument(call: ast.Call, function: FunctionNode, name: str, before: int) -> ast.expr | None:
        keyword = next((k.value for k in call.keywords if k.arg == name), None)
        names = [parameter.arg for parameter in (*function.args.posonlyargs, *function.args.args)]
        at = names.index(name) - before if name in names else -1
        return keyword if keyword is not None else call.args[at] if 0 <= at < len(call.args) else None

    def _makes_loader(self, call: ast.Call, module: Module, depth: int) -> bool:
        """`DataLoader(...)`, `accelerator.prepare(model, loader)`, or a function of the repository that returns loaders"""
        last = last_name(call.func)
        if last == "prepare":
            return not any(_BEGINS_AGAIN.search(text_of(given)) for given in call.args)
        if last in ("DataLoader", "DistributedDataLoader"):
            return True
        found = (
            self._setup.live.modules.resolve(module, dotted_name(call.func))
            if dotted_name(call.func)
            else None
        )
        if found is None or not isinstance(found[1], FUNCTIONS):
            return False
        inside = list(own_nodes(found[1]))
        return (
            not any(isinstance(node, (ast.Yield, ast.YieldFrom)) for node in inside)
            and not any(
                isinstance(node, ast.Call) and _BEGINS_AGAIN.search(text_of(node.func)) for node in inside
            )
            and any(
                isinstance(node, ast.Call) and self._makes_loader(node, found[0], depth + 1)
                for node in inside
            )
            if depth < _DEEPEST
            else False
        )
