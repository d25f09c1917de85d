"""Names whose value lies in host memory, by what their function and its callers do with them."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Sequence
from functools import cached_property

from ptopt.source.bindings import Bindings
from ptopt.source.calls import CallGraph, last_name
from ptopt.source.imports import Imports
from ptopt.source.index import FunctionNode, Index, walk

# Libraries that take host memory alone: given a tensor on a device, they raise.
_HOST_LIBRARIES = frozenset({"numpy", "cv2", "PIL", "scipy", "sklearn", "skimage", "librosa", "soundfile"})
_HOST_METHODS = frozenset({"imshow", "imsave", "fromarray"})
# Torch functions that make a tensor of what Python or NumPy hold.
_FROM_PYTHON = frozenset(
    "FloatTensor LongTensor IntTensor DoubleTensor ByteTensor BoolTensor HalfTensor".split()
)
_MOVES = frozenset({"to", "cuda"})
_DEVICE = re.compile(r"device|cuda|gpu|rank", re.I)


class HostNames:
    """What shows that a name of one file lies on the host. Computed when first asked for."""

    def __init__(
        self,
        index: Index,
        imports: Imports,
        calls: CallGraph,
        bindings: Bindings,
        sent_elsewhere: Callable[[FunctionNode], Sequence[bool]] = lambda _: (),
    ) -> None:
        self._index = index
        self._imports = imports
        self._calls = calls
        self._bindings = bindings
        self._sent_elsewhere = sent_elsewhere  # of each call of a function in other files

    def is_on_host(self, name: ast.Name) -> bool:
        """Is the value given to what takes host memory alone, or sent to the device, before the name gets another value?"""
        return self._shown(name, self._demanded) or self._sent_next(name)

    def _sent_next(self, name: ast.Name) -> bool:
        """Is what gives the name its next value a move of it: `batch = {k: v.to(device) for k, v in batch.items()}`?"""
        sent = self._sends.get((self._index.function_of(name), name.id))
        if not sent:
            return False
        later = (
            b.node for b in self._bindings.of(self._index.function_of(name), name.id) if b.line > name.lineno
        )
        following = next(later, None)
        return following is not None and self._index.statement_of(following) in sent

    @cached_property
    def _sends(self) -> dict[tuple[FunctionNode | None, str], list[ast.stmt]]:
        """Function and name -> its statements that give the name its own value, on the device."""
        table: dict[tuple[FunctionNode | None, str], list[ast.stmt]] = {}
        for call in self._calls.named("to", "cuda"):
            move = last_name(call.func)
            given = [*call.args, *(keyword.value for keyword in call.keywords)][:2] if move == "to" else []
            if move != "cuda" and not any(_DEVICE.search(ast.unparse(argument)) for argument in given):
                continue
            statement = self._index.statement_of(call)
            if isinstance(statement, ast.Assign):
                names = {n.id for n in walk(statement.value) if isinstance(n, ast.Name)}
                for target in statement.targets:
                    if isinstance(target, ast.Name) and target.id in names:
                        key = (self._index.function_of(call), target.id)
                        table.setdefault(key, []).append(statement)
        return table

    def is_python_data(self, name: ast.Name) -> bool:
        """Does the function make a tensor of the value, so that it is none yet?"""
        function = self._index.function_of(name)
        later = (
            other
            for other in self._made_into_tensors.get((function, name.id), ())
            if (other.lineno, other.col_offset) >= (name.lineno, name.col_offset)
        )
        return any(
            self._rebinds(other) or self._bindings.last_before(other) is self._bindings.last_before(name)
            for other in later
        )

    def _rebinds(self, name: ast.Name) -> bool:
        """Does its statement give the name a new value: `x = torch.from_numpy(x)`?"""
        statement = self._index.statement_of(name)
        targets = statement.targets if isinstance(statement, ast.Assign) else ()
        return any(isinstance(target, ast.Name) and target.id == name.id for target in targets)

    def _shown(self, name: ast.Name, table: dict[tuple[FunctionNode | None, str], list[ast.Name]]) -> bool:
        others = table.get((self._index.function_of(name), name.id))
        if not others:
            return False
        binding = self._bindings.last_before(name)
        return any(self._bindings.last_before(other) is binding for other in others)

    @cached_property
    def _demanded(self) -> dict[tuple[FunctionNode | None, str], list[ast.Name]]:
        """Function and name -> its reads that take host memory alone: `x.numpy()`, `np.mean(x)`, `axis.imshow(x)`."""
        table: dict[tuple[FunctionNode | None, str], list[ast.Name]] = {}
        for call in self._index.of_type(ast.Call):
            for name in self._demanded_by(call):
                table.setdefault((self._index.function_of(call), name.id), []).append(name)
        return table

    def _demanded_by(self, call: ast.Call) -> list[ast.Name]:
        func = call.func
        method = func.attr if isinstance(func, ast.Attribute) else ""
        if isinstance(func, ast.Attribute) and method == "numpy" and not (call.args or call.keywords):
            return [func.value] if isinstance(func.value, ast.Name) else []
        names = [arg for arg in call.args if isinstance(arg, ast.Name)]
        return names if names and (method in _HOST_METHODS or self._runs_on_host(func)) else []

    def _runs_on_host(self, func: ast.expr) -> bool:
        return (
            self._imports_host_library and self._imports.qualified(func).partition(".")[0] in _HOST_LIBRARIES
        )

    @cached_property
    def _imports_host_library(self) -> bool:
        return any(map(self._imports.imports, _HOST_LIBRARIES))

    @cached_property
    def _made_into_tensors(self) -> dict[tuple[FunctionNode | None, str], list[ast.Name]]:
        """Function and name -> its reads in `torch.from_numpy(x)`, `torch.FloatTensor(x)`."""
        table: dict[tuple[FunctionNode | None, str], list[ast.Name]] = {}
        for call in self._calls.named("from_numpy", *sorted(_FROM_PYTHON)):
            root, _, leaf = self._imports.qualified(call.func).partition(".")
            if root != "torch" or not (leaf == "from_numpy" or leaf in _FROM_PYTHON) or len(call.args) != 1:
                continue
            if isinstance(call.args[0], ast.Name):
                table.setdefault((self._index.function_of(call), call.args[0].id), []).append(call.args[0])
        return table

    # -- callers -----------------------------------------------------------------------------------------

    def works_on_host(self, function: FunctionNode) -> bool:
        """Do all calls that are known send what the function returns to the device, and so call it on host data?"""
        known = self._working.get(function)
        if known is None:
            if any(last_name(call.func) in _MOVES for call in self._calls.calls_in(function)):
                self._working[function] = False  # it sends something there itself
                return False
            found = [self.sends_result(call) for call in self._calls.callers(function)]
            if all(found):
                found += self._sent_elsewhere(function)
            known = self._working[function] = bool(found) and all(found)
        return known

    @cached_property
    def _working(self) -> dict[FunctionNode, bool]:
        return {}

    def sends_result(self, call: ast.Call) -> bool:
        """Is a name that the result is bound to sent to the device afterwards?"""
        parent = self._index.parent(call)
        if not isinstance(parent, ast.Assign):
            return False
        names = {
            n.id
            for target in parent.targets
            for n in ([target] if isinstance(target, ast.Name) else getattr(target, "elts", ()))
            if isinstance(n, ast.Name)
        }
        return any(
            last_name(move.func) in _MOVES
            and isinstance(move.func, ast.Attribute)
            and isinstance(move.func.value, ast.Name)
            and move.func.value.id in names
            for move in self._calls.calls_in(self._index.function_of(call))
            if move.lineno >= call.lineno and not self._index.within(move, parent)
        )


class Anywhere:
    """The same of each name without where it lies: only whether it is a tensor yet."""

    def __init__(self, names: HostNames | Anywhere) -> None:
        self._names = names

    def is_python_data(self, name: ast.Name) -> bool:
        return self._names.is_python_data(name)

    def is_on_host(self, name: ast.Name) -> bool:
        return False

    def works_on_host(self, function: FunctionNode) -> bool:
        return False
