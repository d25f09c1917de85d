"""What is reached from a script: the modules it imports, and the functions and classes that these name.

An over-approximation like "rapid type analysis": a method counts as called when its class is used somewhere and its name
is mentioned somewhere in what runs.
"""

from __future__ import annotations

import ast
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Iterable, Iterator

from ptopt.audit.modules import Module, Modules
from ptopt.audit.named import Named
from ptopt.audit.summaries import Held, Site, Summaries, Summary, is_hook
from ptopt.source import work
from ptopt.source.calls import last_name
from ptopt.source.index import FUNCTIONS, FunctionNode

MOST_MODULES = 400  # of one entry point


class Reach(ABC):
    """The code that one script runs, as far as it is named there. How code is found by strings a subclass knows."""

    def __init__(self, modules: Modules, start: Module, summaries: Summaries) -> None:
        self.modules = modules
        self.start = start
        self.read: dict[str, Module] = {}
        self.functions: dict[FunctionNode, Module] = {}
        self.classes: dict[ast.ClassDef, Module] = {}
        self.hooks: set[FunctionNode] = set()  # methods that Python or a framework calls
        self.truncated = False
        self._summaries = summaries
        self._units: list[tuple[Module, Summary]] = []  # what was followed
        self._places: dict[Summary, int] = {}  # where in that list
        self._known: set[object] = set()  # definitions, and paths of modules, that were reached
        self._mentioned: set[str] = set()  # attributes
        self.sites = Named(summaries.naming, _sites_of, self._places)  # definition -> where it is named
        self.mentions = Named(
            summaries.mentioning, _mentions_of, self._places
        )  # attribute -> where it is named
        self._methods: defaultdict[str, list[tuple[Module, FunctionNode]]] = defaultdict(list)
        self._waiting: list[tuple[Module, ast.AST | Held]] = []
        self._variables: set[str] = set()  # names that are read
        self._held: defaultdict[str, list[tuple[Module, Held]]] = defaultdict(
            list
        )  # variable -> what it holds
        self._started: set[Held] = set()
        self._open: set[str] = set()  # modules of which any variable may be read

    @abstractmethod
    def _look_up(self, module: Module, summary: Summary) -> None:
        """What the calls of the summary find by a name in a string runs."""

    @abstractmethod
    def _reach_all(self, module: Module, holder: ast.expr, site: ast.AST) -> None:
        """`models.__dict__[name]`, `getattr(models, name)`: any definition of the module."""

    def calls_of(self, names: frozenset[str]) -> Iterator[tuple[Module, ast.Call]]:
        """Those of a function or method of one of these names."""
        calling = self._summaries.calling
        for module, summary in self._followed({s for name in names for s in calling.get(name, ())}):
            yield from ((module, call) for call in summary.calls if last_name(call.func) in names)

    def _followed(self, summaries: Iterable[Summary]) -> Iterator[tuple[Module, Summary]]:
        """Those of the summaries that run, in the order in which they were followed."""
        places = self._places
        for place in sorted(places[summary] for summary in summaries if summary in places):
            yield self._units[place]

    def _follow_all(self) -> None:
        while self._waiting:
            self._follow(*self._waiting.pop())

    def _read(self, module: Module) -> None:
        """The statements of a module run when it is imported, and so do those of what it imports."""
        waiting = [module]
        while waiting:
            one = waiting.pop()
            if one.path in self.read:
                continue
            if len(self.read) >= MOST_MODULES:
                self.truncated = True
                return
            self.read[one.path] = one
            self._waiting.append((one, one.file.tree))
            for path in self._summaries.imports(one):
                other = self.modules.parse(path) if path not in self.read else None
                if other is not None:
                    waiting.append(other)

    def _follow(self, module: Module, unit: ast.AST | Held) -> None:
        if isinstance(unit, Held):
            self._take(module, self._summaries.entered(module, unit.summary))
            return
        summary = self._summary(module, unit)
        self._take(module, summary)
        for held in summary.held:
            if (
                module.path in self._open
                or not self._variables.isdisjoint(held.variables)
                or self._is_called_by_others(module, held)
            ):
                self._start(module, held)
            else:
                for name in held.variables:
                    self._held[name].append((module, held))
        if isinstance(unit, ast.Module):
            self._reads(module.once(_renamed, unit))

    def _reads(self, variables: frozenset[str]) -> None:
        new = variables - self._variables
        if not new:
            return
        self._variables |= new
        for name in sorted(new & self._held.keys()):
            for holder, held in self._held.pop(name):
                self._start(holder, held)

    def _start(self, module: Module, held: Held) -> None:
        if held not in self._started:
            self._started.add(held)
            self._waiting.append((module, held))

    def _is_called_by_others(self, module: Module, held: Held) -> bool:
        """Set as a method of a class of another package, or as one that its base calls."""
        return bool(held.of) and (
            self.modules.resolve(module, held.of) is None or any(map(is_hook, held.variables))
        )

    def _opens(self, module: Module) -> None:
        """Any variable of the module may be read."""
        if module.path not in self._open:
            self._open.add(module.path)
            if module.path in self.read:
                for held in self._summary(module, module.file.tree).held:
                    self._start(module, held)

    def _summary(self, module: Module, unit: ast.AST) -> Summary:
        return self._summaries.of(module, unit, imported=module is not self.start)

    def _take(self, module: Module, summary: Summary) -> None:
        """What the summary mentions runs."""
        work.current().charge(summary.cost)
        self._places[summary] = len(self._units)
        self._units.append((module, summary))
        if new := summary.reached - self._known:
            self._known |= new
            for key, (holder, definition) in summary.definitions.items():
                if key in new:
                    self._arrive(holder, definition)
        new_names = summary.mentions - self._mentioned
        for name, sites in summary.mentioned.items() if new_names or summary.looks_up else ():
            if name in new_names:
                for holder, method in self._methods.get(name, ()):
                    self._run(holder, method)
                self._mentioned.add(name)
            for _, node in sites if name == "__dict__" else ():
                if isinstance(node, ast.Attribute):
                    self._reach_all(module, node.value, node)
        self._reads(summary.variables)
        self._look_up(module, summary)

    def _reach(self, module: Module, definition: ast.AST | None, site: Site) -> None:
        if definition is None:
            self._read(module)
            return
        # After what the unit that is followed names itself, and before what the next one does.
        self.sites.more[definition].append((len(self._units) - 0.5, site))
        self._arrive(module, definition)

    def _arrive(self, module: Module, definition: ast.AST | None) -> None:
        if definition is None:
            self._read(module)
        elif isinstance(definition, ast.ClassDef):
            self._use(module, definition)
        elif isinstance(definition, FUNCTIONS):
            self._run(module, definition)

    def _run(self, module: Module, function: FunctionNode) -> None:
        if function not in self.functions:
            self.functions[function] = module
            if module.path not in self.read:
                self._read(module)
            self._waiting.append((module, function))

    def _use(self, module: Module, cls: ast.ClassDef) -> None:
        if cls in self.classes:
            return
        self.classes[cls] = module
        self._read(module)
        self._waiting.append((module, cls))
        members = self._summaries.members(module, cls)
        for method, hook in zip(members.methods, members.hooks, strict=True):
            self._methods[method.name].append((module, method))
            if hook:
                self.hooks.add(method)
            if hook or method.name in self._mentioned:
                self._run(module, method)


def _sites_of(unit: Summary, definition: ast.AST) -> list[Site]:
    return unit.sites[definition]


def _mentions_of(unit: Summary, name: str) -> list[Site]:
    return unit.mentioned[name]


def _renamed(module: Module, _: ast.Module) -> frozenset[str]:
    """What is imported under another name: `from loaders import TABLE as table`."""
    return frozenset(name for local, (_, _, name) in module.imported.items() if name not in ("", local))
