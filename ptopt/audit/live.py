"""What a script runs: the functions and classes of the repository that are reached from it, by name.

An over-approximation like "rapid type analysis": a method counts as called when its class is used somewhere and its name
is mentioned somewhere in what runs. Code that is only reached through strings (registries, configuration) is missing; the
measures know that from `Live.dynamic`.
"""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from typing import Any, TypeVar

from ptopt.audit.configured import Setting
from ptopt.audit.modules import Module, Modules, dotted_name, path_is_package, text_of
from ptopt.audit.summaries import DYNAMIC, Held, Site, Summaries, Summary, main_block, summarise
from ptopt.source import work
from ptopt.source.calls import last_name
from ptopt.source.index import FUNCTIONS, FunctionNode

MOST_IN_PACKAGE = 60  # modules of a package that is imported by names in strings
MOST_MODULES = 400  # of one entry point
_MODULE_BASES = re.compile(
    r"(^|\.)(Module|ModuleDict|ModuleList|Sequential|Dataset|IterableDataset|Sampler|BatchSampler|Function|Optimizer|object|"
    r"ABC|Protocol)$"
)
_MODULE_HOOKS = frozenset({"forward", "backward", "step", "get", "len", "process"})
_AROUND = re.compile(r"(trainer|callbacks?|loggers?|scheduler|optim\w*|metrics?)$", re.I)
_NETWORK_TYPE = re.compile(r"\bModule\b")  # not `ModuleType`
_PARTS = re.compile(r"\.(named_)?(modules|children)\(")
_SETTINGS = re.compile(r"config|hparam|hyper_?param|settings|(\b|_)cfg|yacs", re.I)
_OF_SETTINGS = ("config.py", "configs.py", "cfg.py", "yacs.py")  # files
_MAKES_TARGETS = frozenset(
    {"instantiate", "instantiate_from_config", "get_obj_from_str", "get_class", "import_module", "locate"}
)
T = TypeVar("T")


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
        self.sites: defaultdict[ast.AST, list[Site]] = defaultdict(list)  # definition -> where it is named
        self.mentions: defaultdict[str, list[Site]] = defaultdict(list)  # attribute -> where it is named
        self.hooks: set[FunctionNode] = set()  # methods that Python or a framework calls
        self._units: list[tuple[Module, Summary]] = []  # what was followed
        self._callers: defaultdict[str, list[int]] = defaultdict(list)  # name -> the units that call it
        self._listed = 0  # units that are in that table
        self.dynamic: list[Site] = []  # calls that find code by a name in a string
        self.truncated = False
        self.registers = False  # models of the repository are made by their names
        self._summaries = summaries
        self._computed: dict[Callable[[Live], Any], Any] = {}
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
        self._follow_all()
        self._reach_registered()
        self._settle()
        self._follow_all()

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
        table, units = self._callers, self._units
        for place in range(self._listed, len(units)):
            for name in units[place][1].called:
                table[name].append(place)
        self._listed = len(units)
        for place in sorted({place for name in names for place in table.get(name, ())}):
            module, summary = units[place]
            yield from ((module, call) for call in summary.calls if last_name(call.func) in names)

    @cached_property
    def calls_by_name(self) -> dict[str, list[tuple[Module, ast.Call]]]:
        """Last part of the dotted name that is called -> the calls."""
        table: defaultdict[str, list[tuple[Module, ast.Call]]] = defaultdict(list)
        for module, call in self.calls:
            table[dotted_name(call.func).rpartition(".")[2]].append((module, call))
        return table

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
            for level, name, names in one.imports:
                for path in self._paths(one, level, name, names):
                    other = self.modules.parse(path) if path not in self.read else None
                    if other is not None:
                        waiting.append(other)

    def _paths(self, module: Module, level: int, name: str, names: tuple[str, ...]) -> list[str]:
        found = [self.modules.find(name, level, module.path)]
        if found[0] is None or found[0].endswith("__init__.py"):
            found += [
                self.modules.find(f"{name}.{each}" if name else each, level, module.path) for each in names
            ]
        return [path for path in found if path is not None and path != module.path]

    def _follow(self, module: Module, unit: ast.AST | Held) -> None:
        if isinstance(unit, Held):
            self._take(module, unit.summary)
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
        if isinstance(unit, ast.Module):  # `from loaders import TABLE as table`
            self._reads(
                frozenset(name for local, (_, _, name) in module.imported.items() if name not in ("", local))
            )

    def _reads(self, variables: frozenset[str]) -> None:
        new = variables - self._variables
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
            self.modules.resolve(module, held.of) is None or any(map(_is_hook, held.variables))
        )

    def _opens(self, module: Module) -> None:
        """Any variable of the module may be read."""
        if module.path not in self._open:
            self._open.add(module.path)
            if module.path in self.read:
                for held in self._summary(module, module.file.tree).held:
                    self._start(module, held)

    def _take(self, module: Module, summary: Summary) -> None:
        """What the summary mentions runs."""
        work.current().charge(len(summary.names) + len(summary.calls))
        named, classes, functions, read = self.sites, self.classes, self.functions, self.read
        for holder, definition, site in summary.reached(module, self.modules):
            if definition is None:
                if holder.path not in read:
                    self._read(holder)
                continue
            named[definition].append(site)
            if definition not in functions and definition not in classes:  # most are known
                self._arrive(holder, definition)
        for name, sites in summary.mentioned(module, self.modules).items():
            if name not in self.mentions:
                for holder, method in self._methods.get(name, ()):
                    self._run(holder, method)
            self.mentions[name] += sites
            for _, node in sites if name == "__dict__" else ():
                if isinstance(node, ast.Attribute):
                    self._reach_all(module, node.value, node)
        self._units.append((module, summary))
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
        """`eval(args.model)(...)`: any class that the module defines or imports."""
        self._opens(module)
        for name in (*module.definitions, *module.imported):
            found = self.modules.resolve(module, name)
            if found is not None and isinstance(found[1], ast.ClassDef):
                self._reach(found[0], found[1], (module, call))

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
            callers = [other.file.index.function_of(node) for other, node in self.sites.get(function, [])]
            if last_name(call.func) == "exec_module" and any(c and _SETTINGS.search(c.name) for c in callers):
                self.dynamic.remove((module, call))
            if last_name(call.func) != "import_module":
                continue
            found = [self._strings_of(*site) for site in self.sites.get(function, [])]
            names = [
                [n for n in names if self.modules.find(n, 0, module.path) is not None] for names in found
            ]
            if names and all(names):
                self.dynamic.remove((module, call))
                for name in {n for some in names for n in some}:
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
        """`instantiate(cfg.model)`: what the configurations name as its targets."""
        if not isinstance(call, ast.Call) or not self.targets or last_name(call.func) not in _MAKES_TARGETS:
            return False
        for target in self.targets:
            name, _, last = str(target.value).rpartition(".")
            while name:
                path = self.modules.find(name, 0, module.path)
                parsed = self.modules.parse(path) if path is not None else None
                if parsed is not None:
                    found = self.modules.resolve(parsed, last)
                    if found is not None:
                        self._reach(found[0], found[1], (module, call))
                    break
                name, _, before = name.rpartition(".")
                last = f"{before}.{last}"
        return True

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
        self.sites[definition].append(site)
        self._arrive(module, definition)

    def _arrive(self, module: Module, definition: ast.AST) -> None:
        if isinstance(definition, ast.ClassDef):
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
        called_by_others = any(
            not _MODULE_BASES.search(name)
            for base in cls.bases
            if (name := dotted_name(base)) and self.modules.resolve(module, name) is None
        )
        for statement in cls.body:
            if isinstance(statement, FUNCTIONS):
                name = statement.name
                self._methods[name].append((module, statement))
                hook = _is_hook(name)
                if hook or called_by_others:
                    self.hooks.add(statement)
                if hook or called_by_others or name in self.mentions:
                    self._run(module, statement)

    def _summary(self, module: Module, unit: ast.AST) -> Summary:
        known = self._summaries.get(unit)
        if known is None:
            known = self._summaries[unit] = summarise(unit)
        if isinstance(unit, ast.Module) and module is not self.start:
            if known.imported is not None:
                return known.imported
            main = main_block(unit)
            if main is not None:  # it does not run on import
                inside = {id(node) for node in ast.walk(main)}
                known.imported = Summary(
                    [n for n in known.names if id(n[1]) not in inside],
                    [a for a in known.attributes if id(a[1]) not in inside],
                    [c for c in known.calls if id(c) not in inside],
                    held=[h for h in known.held if id(h.parts[0]) not in inside],
                )
                return known.imported
        return known

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


def _is_hook(name: str) -> bool:
    return (name.startswith("__") and name.endswith("__")) or name in _MODULE_HOOKS


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
