"""What a script runs: the functions and classes of the repository that are reached from it, by name.

An over-approximation like "rapid type analysis": a method counts as called when its class is used somewhere and its name
is mentioned somewhere in what runs. Code that is only reached through strings (registries, configuration) is missing; the
measures know that from `Live.dynamic`.
"""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, Generic, TypeVar

from ptopt.audit.configured import Setting
from ptopt.audit.modules import Module, Modules, dotted_name, path_is_package, text_of
from ptopt.audit.summaries import DYNAMIC, Held, Site, Summaries, Summary, automain, is_hook
from ptopt.source import work
from ptopt.source.calls import last_name
from ptopt.source.file import SourceFile
from ptopt.source.index import FUNCTIONS, FunctionNode

MOST_IN_PACKAGE = 60  # modules of a package that is imported by names in strings
MOST_MODULES = 400  # of one entry point
_AROUND = re.compile(r"(trainer|callbacks?|loggers?|scheduler|optim\w*|metrics?)$", re.I)
_NETWORK_TYPE = re.compile(r"\bModule\b")  # not `ModuleType`
_PARTS = re.compile(r"\.(named_)?(modules|children)\(")
_SETTINGS = re.compile(r"config|hparam|hyper_?param|settings|(\b|_)cfg|yacs", re.I)
_OF_SETTINGS = ("config.py", "configs.py", "cfg.py", "yacs.py")  # files
_MAKES_TARGETS = frozenset(
    {"instantiate", "instantiate_from_config", "get_obj_from_str", "get_class", "import_module", "locate"}
)
_TARGET = "_target_"
_MOST_ROUNDS = 3
K = TypeVar("K")
T = TypeVar("T")


class _Named(Generic[K]):
    """Where things are named, looked up when somebody asks: most things nobody asks for."""

    def __init__(
        self, naming: Mapping[K, list[Summary]], sites: Callable[[Summary, K], list[Site]], places: dict[Summary, int]
    ) -> None:  # fmt: skip
        self._naming, self._sites, self._places = naming, sites, places
        self.more: defaultdict[K, list[tuple[float, Site]]] = defaultdict(list)
        """What is found in another way, each with its place among the units."""
        self._known: dict[K, tuple[tuple[int, int], list[Site]]] = {}

    def get(self, key: K) -> list[Site]:
        more = self.more.get(key, ())
        state = len(self._places), len(more)  # both only grow
        known = self._known.get(key)
        if known is None or known[0] != state:
            places, sites = self._places, self._sites
            found: list[tuple[float, Site]] = [
                (places[unit], site)
                for unit in self._naming.get(key, ())
                if unit in places
                for site in sites(unit, key)
            ]
            found += more
            found.sort(key=_place)
            known = self._known[key] = state, [site for _, site in found]
        return known[1]

    def __contains__(self, key: K) -> bool:
        return bool(self.get(key))


def _place(found: tuple[float, Site]) -> float:
    return found[0]


def _sites_of(unit: Summary, definition: ast.AST) -> list[Site]:
    return unit.sites[definition]


def _mentions_of(unit: Summary, name: str) -> list[Site]:
    return unit.mentioned[name]


class Live:
    """The code that one script runs."""

    def __init__(
        self, modules: Modules, start: Module, summaries: Summaries, targets: Sequence[Setting] = ()
    ) -> None:
        self.targets = targets  # what the configurations tell a registry to make
        self.modules = modules
        self.start = start
        self.read: dict[str, Module] = {}
        self.functions: dict[FunctionNode, Module] = {}
        self.classes: dict[ast.ClassDef, Module] = {}
        self.hooks: set[FunctionNode] = set()  # methods that Python or a framework calls
        self._units: list[tuple[Module, Summary]] = []  # what was followed
        self._places: dict[Summary, int] = {}  # where in that list
        self._known: set[object] = set()  # definitions, and paths of modules, that were reached
        self._mentioned: set[str] = set()  # attributes
        self.dynamic: list[Site] = []  # calls that find code by a name in a string
        self.truncated = False
        self.registers = False  # models of the repository are made by their names
        self._summaries = summaries
        self._calls_named: dict[str, list[tuple[Module, ast.Call]]] = {}
        self._calls_spelled: dict[str, list[tuple[Module, ast.Call]]] = {}
        self._computed: dict[Callable[[Live], Any], Any] = {}
        self.sites = _Named(summaries.naming, _sites_of, self._places)  # definition -> where it is named
        self.mentions = _Named(
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
        self._packages: frozenset[str] | None = None  # asked for when all is read
        self._read(start)
        if (main := automain(start.file.tree)) is not None:
            self._run(start, main)
        self._follow_all()
        self._reach_registered()
        for _ in range(_MOST_ROUNDS):  # what is found by name may find more
            left = len(self.dynamic)
            self._settle()
            left = min(left, len(self.dynamic))
            self._follow_all()
            if len(self.dynamic) == left:
                break

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

    def calls_of(self, names: frozenset[str]) -> Iterator[tuple[Module, ast.Call]]:
        """Those of a function or method of one of these names."""
        calling = self._summaries.calling
        for module, summary in self._followed({s for name in names for s in calling.get(name, ())}):
            yield from ((module, call) for call in summary.calls if last_name(call.func) in names)

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

    def _followed(self, summaries: Iterable[Summary]) -> Iterator[tuple[Module, Summary]]:
        """Those of the summaries that run, in the order in which they were followed."""
        places = self._places
        for place in sorted(places[summary] for summary in summaries if summary in places):
            yield self._units[place]

    def _follow_all(self) -> None:
        while self._waiting:
            self._follow(*self._waiting.pop())

    # -- reaching ----------------------------------------------------------------------------------------

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
        for name in new & self._held.keys():
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
        for call in summary.special:
            if last_name(call.func) in DYNAMIC and not self._import_all(module, call):
                if not _reads_settings(module, call) and not _makes_no_network(call):
                    self.dynamic.append((module, call))
            elif last_name(call.func) == "eval" and isinstance(call.func, ast.Name):
                if call.args and not isinstance(call.args[0], ast.Constant):
                    self._reach_named(module, call)
            elif (
                last_name(call.func) == "getattr"
                and len(call.args) > 1
                and not isinstance(call.args[1], ast.Constant)
            ):
                self._reach_all(module, call.args[0], call)

    def _reach_named(self, module: Module, call: ast.Call) -> None:
        """`eval(args.model)(...)`: the classes that the module defines or imports, and of these the ones that a configuration, a
        command or a text of the code names; any where none is named.
        """
        self._opens(module)
        found = [self.modules.resolve(module, name) for name in (*module.definitions, *module.imported)]
        for level, origin in module.stars:
            path = self.modules.find(origin, level, module.path)
            other = self.modules.parse(path) if path is not None else None
            found += (
                [(other, definition) for definition in other.definitions.values()]
                if other is not None
                else []
            )
        classes = {
            each[1]: each[0] for each in found if each is not None and isinstance(each[1], ast.ClassDef)
        }
        words = self.modules.words or frozenset()
        named = {cls: holder for cls, holder in classes.items() if cls.name in words}
        for cls, holder in (named or classes).items():
            self._reach(holder, cls, (module, call))

    def _reach_all(self, module: Module, holder: ast.expr, site: ast.AST) -> None:
        """`models.__dict__[name]`, `getattr(models, name)`: any definition of the module."""
        name = dotted_name(holder)
        found = self.modules.resolve(module, name) if name else None
        if found is None and name in ("module", "mod") and not _asks_known(module, holder, site):
            self.dynamic.append((module, site))
        if found is not None and found[1] is None:
            self._opens(found[0])
            for name in (*found[0].definitions, *found[0].imported):
                inner = self.modules.resolve(found[0], name)
                if inner is not None and inner[1] is not None:
                    self._reach(inner[0], inner[1], (module, site))
            for level, origin in found[0].stars:
                path = self.modules.find(origin, level, found[0].path)
                if path is not None and path != found[0].path:
                    self._reach_file(path, (module, site))

    def _import_all(self, module: Module, call: ast.Call) -> bool:
        """`import_module(f"package.models.{name}")`: every module of the package; and names that stand in the code."""
        named = dotted_name(call.func)
        ours = self.modules.resolve(module, named) if named else None
        if ours is not None and isinstance(ours[1], FUNCTIONS):
            return True  # what it calls decides
        text = call.args[0] if call.args and last_name(call.func) == "import_module" else None
        if isinstance(text, ast.Constant) and isinstance(text.value, str):
            self._import_whole(module, text.value, call)
            return True
        first = text.values[0] if isinstance(text, ast.JoinedStr) and text.values else None
        if isinstance(text, ast.BinOp) and isinstance(text.op, ast.Add):
            first = text.left  # "package." + name
        if (
            not isinstance(first, ast.Constant)
            or not isinstance(first.value, str)
            or not first.value.endswith(".")
        ):
            return False
        path = self.modules.find(first.value.strip("."), 0, module.path)
        if path is not None and not path.endswith("__init__.py"):
            return False
        named = first.value.replace(".", "/")  # a folder without `__init__.py` is one at the root
        folder = named if path is None else path.removesuffix("__init__.py")
        inside = [p for p in self.modules.files if p.startswith(folder) and "/" not in p[len(folder) :]]
        for other in sorted(inside)[:MOST_IN_PACKAGE]:
            self._reach_file(other, (module, call))
        return path is not None or bool(inside)

    def _reach_file(self, path: str, site: Site) -> None:
        """Everything that a file defines."""
        parsed = self.modules.parse(path) if path.endswith(".py") else None
        if parsed is not None:
            self._opens(parsed)
            self._read(parsed)
            for definition in parsed.definitions.values():
                self._reach(parsed, definition, site)

    def _import_whole(self, module: Module, name: str, site: ast.AST) -> bool:
        """A module that is named in a string; False where it is none of the repository."""
        path = self.modules.find(name, 0, module.path)
        if path is not None:
            self._reach_file(path, (module, site))
            self._reach_exported(path, (module, site))
        return path is not None

    def _reach_exported(self, path: str, site: Site) -> None:
        """What the `__init__.py` of a package imports from its own modules: it is found there by its name."""
        package = self.modules.parse(path) if path_is_package(path) else None
        if package is None:
            return
        folder = path.removesuffix("__init__.py")
        for name in package.imported:
            found = self.modules.resolve(package, name)
            if found is not None and found[1] is not None and found[0].path.startswith(folder):
                self._reach(found[0], found[1], site)
        for level, origin in package.stars:
            inner = self.modules.find(origin, level, path)
            if inner is not None and inner != path and inner.startswith(folder):
                self._reach_file(inner, site)

    def _settle(self) -> None:
        """`def find(name, modules): import_module(m) for m in modules`, and calls that pass the names of modules."""
        for module, call in list(self.dynamic):
            if self._made_by_target(module, call):
                self.dynamic.remove((module, call))
                continue
            if not isinstance(call, ast.Call) or (function := module.file.index.function_of(call)) is None:
                continue
            callers = [other.file.index.function_of(node) for other, node in self.sites.get(function)]
            if last_name(call.func) == "exec_module" and any(c and _SETTINGS.search(c.name) for c in callers):
                self.dynamic.remove((module, call))
            if last_name(call.func) != "import_module":
                continue
            found = [self._strings_of(*site) for site in self.sites.get(function)]
            names = [
                [n for n in names if self.modules.find(n, 0, module.path) is not None] for names in found
            ]
            if names and all(names):
                self.dynamic.remove((module, call))
                for name in dict.fromkeys(n for some in names for n in some):
                    self._import_whole(module, name, call)

    def _reach_registered(self) -> None:
        """`create_model(args.model)` of timm: the models that the repository registers with `@register_model`."""
        made = next(self.calls_of(frozenset({"create_model"})), None)
        for module in list(self.read.values()) if made is not None else ():
            for definition in module.definitions.values():
                decorated = [
                    last_name(d.func if isinstance(d, ast.Call) else d) for d in definition.decorator_list
                ]
                if made is not None and "register_model" in decorated:
                    self.registers = True
                    self._reach(module, definition, made)

    def _made_by_target(self, module: Module, call: ast.AST) -> bool:
        """`instantiate(cfg.model)`: what the configurations, in files and in code, name as its targets; the one that the call names."""
        if not isinstance(call, ast.Call) or last_name(call.func) not in _MAKES_TARGETS:
            return False
        given = call.args[0] if call.args else None
        if isinstance(given, ast.Constant) and isinstance(given.value, str):
            names, known = [given.value], "." in given.value
        else:
            known = bool(self.targets)
            names = [str(target.value) for target in self.targets]
            names += [name for other in list(self.read.values()) for name in other.file.once(_targets_of)]
        for full in names:
            name, _, last = full.rpartition(".")
            while name:
                path = self.modules.find(name, 0, module.path)
                parsed = self.modules.parse(path) if path is not None else None
                if parsed is not None:
                    found = self.modules.resolve(parsed, last)
                    if found is not None:
                        self._reach(found[0], found[1], (module, call))
                        known = True
                    break
                name, _, before = name.rpartition(".")
                last = f"{before}.{last}"
        return known

    def _strings_of(self, module: Module, node: ast.AST) -> list[str]:
        """The strings in the arguments of the call, also in a list that has a name."""
        call = module.file.index.parent(node)
        if not isinstance(call, ast.Call) or call.func is not node:
            return []
        held: list[ast.expr] = []
        for argument in (*call.args, *(k.value for k in call.keywords)):
            held.append(argument)
            if isinstance(argument, ast.Name):
                bindings = module.file.bindings.of(module.file.index.function_of(call), argument.id)
                held += [b.value for b in bindings if b.kind == "assign" and b.value is not None]
        return [
            part.value
            for argument in held
            for part in ast.walk(argument)
            if isinstance(part, ast.Constant) and isinstance(part.value, str) and part.value
        ]

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

    # -- asking ------------------------------------------------------------------------------------------

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


def _renamed(module: Module, _: ast.Module) -> frozenset[str]:
    """What is imported under another name: `from loaders import TABLE as table`."""
    return frozenset(name for local, (_, _, name) in module.imported.items() if name not in ("", local))


def _asks_known(module: Module, holder: ast.expr, site: ast.AST) -> bool:
    """Is what is called `module` one of a network, or asked for names that stand in the code?"""
    if not isinstance(holder, ast.Name):
        return False
    name = site.args[1] if isinstance(site, ast.Call) and len(site.args) > 1 else None
    asked = module.file.bindings.last_before(name) if isinstance(name, ast.Name) else None
    if asked is not None and asked.kind == "item" and _are_texts(asked.value):
        return True
    binding = module.file.bindings.last_before(holder)
    if binding is None:
        return False
    if isinstance(binding.node, ast.arg):
        annotation = binding.node.annotation
        return annotation is not None and _NETWORK_TYPE.search(text_of(annotation)) is not None
    if binding.kind not in ("item", "unpack") or binding.value is None:
        return False
    return _PARTS.search(text_of(binding.value)) is not None


def _are_texts(value: ast.expr | None) -> bool:
    return isinstance(value, (ast.Tuple, ast.List)) and all(
        isinstance(part, ast.Constant) and isinstance(part.value, str) for part in value.elts
    )


def _assigned(node: ast.AnnAssign | ast.Assign) -> set[str]:
    targets = node.targets if isinstance(node, ast.Assign) else [node.target]
    return {target.id for target in targets if isinstance(target, ast.Name)}


def _targets_of(file: SourceFile) -> list[str]:
    """The names of classes in configurations that stand in code: `{"_target_": "package.Net"}`, `_target_: str = "package.Net"`"""
    found: list[ast.expr | None] = []
    for node in file.index.of_type(ast.Dict, ast.keyword, ast.AnnAssign, ast.Assign):
        if isinstance(node, (ast.AnnAssign, ast.Assign)):
            found += [node.value] if _TARGET in _assigned(node) else []
        elif isinstance(node, ast.Dict):
            pairs = zip(node.keys, node.values, strict=True)
            found += [v for k, v in pairs if isinstance(k, ast.Constant) and k.value == _TARGET]
        elif isinstance(node, ast.keyword):
            found += [node.value] if node.arg == _TARGET else []
    texts = [node.value for node in found if isinstance(node, ast.Constant)]
    return [text for text in texts if isinstance(text, str) and "." in text]


def _makes_no_network(call: ast.Call) -> bool:
    """`instantiate(cfg.trainer)`"""
    given = [*call.args[:1], *(k.value for k in call.keywords if k.arg == "config")]
    return last_name(call.func) == "instantiate" and any(_AROUND.search(text_of(a)) for a in given)


def _reads_settings(module: Module, call: ast.Call) -> bool:
    """A Python file that holds settings is loaded by its path, in a function that says so."""
    if last_name(call.func) not in ("exec_module", "import_module"):
        return False
    function, cls = module.file.index.function_of(call), module.file.index.class_of(call)
    named = any(node is not None and _SETTINGS.search(node.name) for node in (function, cls))
    return named or (last_name(call.func) == "exec_module" and module.path.rpartition("/")[2] in _OF_SETTINGS)
