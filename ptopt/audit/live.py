"""What a script runs: the functions and classes of the repository that are reached from it, and what others ask of them.

Code that is only reached through strings (registries, configuration) may be missing; the measures know that from `Live.dynamic`.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property
from typing import Any, TypeVar

from ptopt.audit.byname import ByName
from ptopt.audit.configured import Setting
from ptopt.audit.modules import Module, Modules, dotted_name
from ptopt.audit.summaries import Summaries, Summary
from ptopt.source.index import FunctionNode

T = TypeVar("T")


class Live(ByName):
    """The code that one script runs."""

    def __init__(
        self, modules: Modules, start: Module, summaries: Summaries, targets: Sequence[Setting] = (), classes: Sequence[str] = ()
    ) -> None:  # fmt: skip
        """`targets`, `classes`: what the configurations name."""
        super().__init__(modules, start, summaries, targets, classes)
        self._calls_named: dict[str, list[tuple[Module, ast.Call]]] = {}
        self._calls_spelled: dict[str, list[tuple[Module, ast.Call]]] = {}
        self._computed: dict[Callable[[Live], Any], Any] = {}
        self._packages: frozenset[str] | None = None  # asked for when all is read
        self._follow_start()

    def once(self, compute: Callable[[Live], T]) -> T:
        """`compute(self)`, remembered: for tables that several ask for when all is read."""
        if compute not in self._computed:
            self._computed[compute] = compute(self)
        known: T = self._computed[compute]
        return known

    @cached_property
    def calls(self) -> list[tuple[Module, ast.Call]]:
        """All that runs and calls something; to be asked for when all is read."""
        return [(module, call) for module, summary in self._units for call in summary.calls]

    def calls_in(self, function: FunctionNode) -> list[tuple[Module, ast.Call]]:
        """Those of a function that runs and is nested in no other, without those of the functions in it."""
        module = self.functions[function]
        summary = self._summaries.of(module, function, imported=True)
        index = module.file.index
        return [(module, call) for call in summary.calls if index.function_of(call) is function]

    def calls_named(self, name: str) -> list[tuple[Module, ast.Call]]:
        """Those of this last part of a dotted name."""
        if name not in self._calls_named:
            self._calls_named[name] = [
                (module, call)
                for module, call in self.calls_of(frozenset({name}))
                if dotted_name(call.func).rpartition(".")[2] == name
            ]
        return self._calls_named[name]

    def calls_spelled(self, name: str) -> list[tuple[Module, ast.Call]]:
        """Those of this last name, as its package spells it; to be asked for when all is read."""
        if name not in self._calls_spelled:
            places = self._spelled.get(name, ())
            self._calls_spelled[name] = [
                (module, call)
                for module, summary in (self._units[place] for place in places)
                for call in summary.by_name(module)[name]
            ]
        return self._calls_spelled[name]

    def summary(self, module: Module, unit: ast.AST) -> Summary:
        """What a function, class or module that runs mentions."""
        return self._summary(module, unit)

    def enter(self, module: Module, summary: Summary) -> None:
        """Looks up what a part of a module mentions, also where it does not run."""
        self._summaries.entered(module, summary)

    def methods_named(self, name: str) -> list[tuple[FunctionNode, Module]]:
        """The methods of this name that run."""
        return [
            (method, module) for module, method in self._methods.get(name, ()) if method in self.functions
        ]

    def spelled(self) -> Iterable[str]:
        """The last names of all that is called, as their packages spell them."""
        return self._spelled

    @cached_property
    def _spelled(self) -> dict[str, list[int]]:
        table: defaultdict[str, list[int]] = defaultdict(list)
        for place, (module, summary) in enumerate(self._units):
            for name in summary.by_name(module):
                table[name].append(place)
        return dict(table)

    def found(self, compute: Callable[[Module, ast.Call], T | None]) -> Iterator[tuple[Module, ast.Call, T]]:
        """What `compute` finds in the calls that run: computed once for all scripts, on which it must not depend."""
        for module, summary in self._units:
            for call, answer in summary.found(compute, module):
                yield module, call, answer

    def packages(self) -> frozenset[str]:
        """The packages of others that what runs imports, by the first part of their names."""
        if self._packages is None:
            self._packages = self._packages_of_others()
        return self._packages

    def _packages_of_others(self) -> frozenset[str]:
        found: set[str] = set()
        for module in self.read.values():
            for level, name, _ in module.imports:
                root = name.partition(".")[0]
                if not level and root and root not in found and not self.modules.is_ours(root, module.path):
                    found.add(root)
        return frozenset(found)

    def runs(self, module: Module, node: ast.AST) -> bool:
        """Does the node stand in what runs?"""
        function = self.outermost(module, node)
        if function is not None:
            return function in self.functions
        return module.path in self.read and not (
            self._idle and any(a in self._idle for a, _ in ((node, None), *module.file.index.ancestors(node)))
        )

    @cached_property
    def _idle(self) -> frozenset[ast.AST]:
        """What variables hold that nobody reads."""
        waiting = {held for each in self._held.values() for _, held in each} - self._started
        return frozenset(part for held in waiting for part in held.parts)

    def outermost(self, module: Module, node: ast.AST) -> FunctionNode | None:
        """The function or method around a node, nested ones left out."""
        found = module.file.index.function_of(node)
        while found is not None:
            outer = module.file.index.function_of(found)
            if outer is None:
                return found
            found = outer
        return None
