"""Code that a script finds by a name in a string: registries, configurations, `import_module`, `getattr` of a module.

What is found so runs, too; calls of which that is not known are kept, for the measures to say what they did not see.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence

from ptopt.audit.configured import Setting
from ptopt.audit.modules import Module, Modules, dotted_name, path_is_package, text_of
from ptopt.audit.offered import offered
from ptopt.audit.reach import Reach
from ptopt.audit.registries import Registered, Table, asked
from ptopt.audit.summaries import DYNAMIC, Site, Summaries, Summary, automain
from ptopt.source.calls import last_name
from ptopt.source.file import SourceFile
from ptopt.source.index import FUNCTIONS

MOST_IN_PACKAGE = 60  # modules of a package that is imported by names in strings
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


class ByName(Reach):
    """What is reached from a script by its names, and by those that stand in strings."""

    def __init__(
        self, modules: Modules, start: Module, summaries: Summaries, targets: Sequence[Setting], classes: Sequence[str]
    ) -> None:  # fmt: skip
        super().__init__(modules, start, summaries)
        self._classes = classes  # what the configurations name that may be classes
        self.targets = targets  # what the configurations tell a registry to make
        self.dynamic: list[Site] = []  # calls that find code by a name in a string
        # definitions that decorators put into tables, and where they are taken from these
        self._from_tables: set[tuple[ast.AST, ast.AST]] = set()
        self.registers = False  # models of the repository are made by their names

    def _follow_start(self) -> None:
        """All that the script reaches."""
        self._read(self.start)
        if (main := automain(self.start.file.tree)) is not None:
            self._run(self.start, main)
        self._follow_all()
        for function, site in offered(self.start):
            if isinstance(owner := self.start.file.index.parent(function), ast.ClassDef):
                self._reach(self.start, owner, (self.start, site))
            self._reach(self.start, function, (self.start, site))
        self._follow_all()
        self._reach_registered()
        self._reach_tables()
        for _ in range(_MOST_ROUNDS):  # what is found by name may find more
            left = len(self.dynamic)
            self._settle()
            left = min(left, len(self.dynamic))
            self._follow_all()
            self._reach_tables()
            if len(self.dynamic) == left:
                break

    def _look_up(self, module: Module, summary: Summary) -> None:
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
        first = _first_part(text)
        if not first.endswith("."):
            return False
        path = self.modules.find(first.strip("."), 0, module.path)
        if path is not None and not path.endswith("__init__.py"):
            return False
        named = first.replace(".", "/")  # a folder without `__init__.py` is one at the root
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

    def _reach_tables(self) -> None:
        """`models[name](...)`, `MODELS.build(cfg)`: what decorators put into the table; of that what a text names, where one is named.

        What is taken from a table may take from others, and its module may fill some.
        """
        at, filled = 0, -1
        while True:
            tables = self._tables()
            number = sum(map(len, tables.values()))
            at, filled = (at if number == filled else 0), number
            variables = {table.name for table in tables}
            found = [
                (module, *each)
                for module, summary in self._units[at:]
                if not variables.isdisjoint(summary.variables)
                for each in asked(self.modules, module, summary.names, tables.keys())
            ]
            at = len(self._units)
            for module, table, method, node in found:
                held = [each for each in tables[table] if each.is_asked_by(method)]
                named = [each for each in held if each.is_named_by(self.modules.words or frozenset())]
                for each in named or held:
                    if (each.definition, node) not in self._from_tables:
                        self._from_tables.add((each.definition, node))
                        self._reach(each.module, each.definition, (module, node))
            self._follow_all()
            if at == len(self._units):
                return

    def _tables(self) -> dict[Table, list[Registered]]:
        """What the decorators of the modules that are read put into each table."""
        tables: dict[Table, list[Registered]] = {}
        for module in self.read.values():
            for each in self._summaries.registered(module):
                tables.setdefault(each.table, []).append(each)
        return tables

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
            names += self._classes if last_name(call.func) == "import_module" else ()
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


def _first_part(text: ast.expr | None) -> str:
    """The text before what is put in: "models." of `f"models.{name}"`, `"models." + name`, `"models.{}".format(name)` and
    `"models.%s" % name`; "" of anything else.
    """
    first, mark = text, ""
    if isinstance(text, ast.JoinedStr) and text.values:
        first = text.values[0]
    elif isinstance(text, ast.BinOp) and isinstance(text.op, ast.Add):
        first = text.left
    elif isinstance(text, ast.BinOp) and isinstance(text.op, ast.Mod):
        first, mark = text.left, "%"
    elif isinstance(text, ast.Call) and isinstance(text.func, ast.Attribute) and text.func.attr == "format":
        first, mark = text.func.value, "{"
    if first is text or not isinstance(first, ast.Constant) or not isinstance(first.value, str):
        return ""
    return first.value.partition(mark)[0] if mark else first.value


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
