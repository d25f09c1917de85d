"""The modules of a repository by name: which file an import means, and what it defines."""

from __future__ import annotations

import ast
import posixpath
import re
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from pathlib import PurePosixPath
from typing import Any, TypeVar

from ptopt.audit.eitherway import MOST_BYTES, DeclaredOptions, Options, by_default
from ptopt.audit.oldpython import parse_old
from ptopt.project.facts import NO_FACTS, ProjectFacts
from ptopt.project.pins import Pin
from ptopt.project.removed import bounds, imported
from ptopt.source.bindings import is_self
from ptopt.source.file import SourceFile
from ptopt.source.index import FUNCTIONS, FunctionNode
from ptopt.syntax import ParseError

N = TypeVar("N", bound=ast.AST)
T = TypeVar("T")
Definition = FunctionNode | ast.ClassDef
_MOST_HOPS = 8  # re-exports through `__init__.py`


class Module:
    """A parsed file: its definitions by name, and what each import binds."""

    def __init__(
        self, file: SourceFile, bound: Pin | None = None, options: Options = lambda name: None
    ) -> None:
        """`bound`: of a file that no current Python reads, the newest torch that it may run with. `options`: of other files."""
        self.file = file
        self.bound = bound
        self._options = options
        self._answers: dict[tuple[object, ast.AST], Any] = {}
        self.definitions: dict[str, Definition] = {}
        for statement in _statements(file.tree.body):
            if isinstance(statement, (*FUNCTIONS, ast.ClassDef)):
                self.definitions.setdefault(statement.name, statement)

    @property
    def path(self) -> str:
        return self.file.path

    def once(self, compute: Callable[[Module, N], T], node: N) -> T:
        """`compute(self, node)`, remembered for all scripts: it must not depend on one."""
        key = (compute, node)
        if key not in self._answers:
            self._answers[key] = compute(self, node)
        known: T = self._answers[key]
        return known

    def says(self, pattern: re.Pattern[str], function: FunctionNode, words: tuple[str, ...] = ()) -> bool:
        """Does the pattern occur in the code of the function? `words`: as `SourceFile.search` has them."""
        key = (pattern, function)
        if key not in self._answers:
            here = self.file.search(pattern, words) and pattern.search(self.file.source(function)) is not None
            self._answers[key] = here
        known: bool = self._answers[key]
        return known

    @cached_property
    def imported(self) -> dict[str, tuple[int, str, str]]:
        """Local name -> (level of the relative import, module, name in it; "" where it is the module)."""
        found: dict[str, list[tuple[ast.stmt, tuple[int, str, str]]]] = {}
        for plain in self.file.index.of_type(ast.Import):
            for alias in plain.names:
                root = alias.name if alias.asname else alias.name.partition(".")[0]
                found.setdefault(alias.asname or root, []).append((plain, (0, root, "")))
        for origin in self.file.index.of_type(ast.ImportFrom):
            for alias in origin.names:
                if alias.name != "*":
                    means = (origin.level, origin.module or "", alias.name)
                    found.setdefault(alias.asname or alias.name, []).append((origin, means))
        return {name: self._one_of(ways) for name, ways in found.items()}

    def _one_of(self, ways: list[tuple[ast.stmt, tuple[int, str, str]]]) -> tuple[int, str, str]:
        """The first import of a name, unless the options of the script take another one by default."""
        differ = len({means for _, means in ways}) > 1
        if not differ:
            return ways[0][1]
        return ways[by_default(self.file, [statement for statement, _ in ways], self._options)][1]

    @cached_property
    def stars(self) -> list[tuple[int, str]]:
        """The modules that `from x import *` reads."""
        return [
            (origin.level, origin.module or "")
            for origin in self.file.index.of_type(ast.ImportFrom)
            if any(alias.name == "*" for alias in origin.names)
        ]

    @cached_property
    def imports(self) -> list[tuple[int, str, tuple[str, ...]]]:
        """Every import of the file: (level, module, names that may be modules)."""
        found: list[tuple[int, str, tuple[str, ...]]] = [
            (0, alias.name, ()) for plain in self.file.index.of_type(ast.Import) for alias in plain.names
        ]
        found += [
            (origin.level, origin.module or "", tuple(alias.name for alias in origin.names))
            for origin in self.file.index.of_type(ast.ImportFrom)
        ]
        return found


def held_by(module: Module, expr: ast.expr) -> ast.expr | None:
    """What a name, or an attribute of `self`, was given by an assignment; None of others."""
    if isinstance(expr, ast.Attribute) and is_self(expr):
        cls = module.file.index.class_of(expr)
        return None if cls is None else module.file.bindings.attribute(cls, expr.attr)
    return module.file.bindings.assigned(expr)


def _statements(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """The statements of a module, those under `if` and `try` too."""
    for statement in body:
        yield statement
        if isinstance(statement, ast.If):
            yield from _statements(statement.body)
            yield from _statements(statement.orelse)
        elif isinstance(statement, ast.Try):
            yield from _statements(statement.body)
            imports = {name for each in statement.body for name in _imported_names(each)}
            for handler in statement.handlers:  # what takes the place of an import that fails
                yield from (s for s in _statements(handler.body) if getattr(s, "name", None) not in imports)
            yield from _statements(statement.orelse)


def _imported_names(statement: ast.stmt) -> Iterator[str]:
    if isinstance(statement, (ast.Import, ast.ImportFrom)):
        yield from (alias.asname or alias.name.partition(".")[0] for alias in statement.names)


def _bounds(module: Module, tree: ast.Module) -> list[Pin]:
    return [*bounds(module.path, tree), *([] if module.bound is None else [module.bound])]


def _needed(_: Module, tree: ast.Module) -> list[tuple[int, str]]:
    """The modules, as (level, name), without which the module cannot be imported; packages above them included."""
    found: dict[tuple[int, str], None] = {}
    for statement in imported(tree):
        if isinstance(statement, ast.Import):
            names = [(0, alias.name) for alias in statement.names]
        else:
            origin = statement.module or ""
            inner = f"{origin}." if origin else ""
            names = [(statement.level, origin), *((statement.level, inner + a.name) for a in statement.names)]
        for level, name in names:
            parts = name.split(".")
            found |= dict.fromkeys((level, ".".join(parts[:taken])) for taken in range(1, len(parts) + 1))
    return list(found)


class Modules:
    """The Python files of a repository; each is parsed at most once, when first needed."""

    def __init__(
        self, files: Mapping[str, bytes], facts: ProjectFacts = NO_FACTS, texts: Callable[[], frozenset[str]] | None = None
    ) -> None:  # fmt: skip
        """`texts`: the words of configurations, commands and code that may name a class; None where nobody looked."""
        self.files = files
        self.facts = facts
        self._texts = texts
        self.unread: dict[str, str] = {}  # path -> why
        self._parsed: dict[str, Module | None] = {}
        self._computed: dict[Callable[[Modules], Any], Any] = {}
        self._options = DeclaredOptions(files)
        self._by_tail: dict[str, list[str]] = {}
        self._found: dict[tuple[str, int, str], str | None] = {}
        self._resolved: dict[tuple[str, str], tuple[Module, Definition | None] | None] = {}
        for path in files:
            if path.endswith(".py"):
                pure = PurePosixPath(path)
                stem = pure.parent.name if pure.name == "__init__.py" else pure.stem
                self._by_tail.setdefault(stem, []).append(path)

    def once(self, compute: Callable[[Modules], T]) -> T:
        """`compute(self)`, remembered for all scripts."""
        if compute not in self._computed:
            self._computed[compute] = compute(self)
        known: T = self._computed[compute]
        return known

    @cached_property
    def words(self) -> frozenset[str] | None:
        return None if self._texts is None else self._texts()

    def parse(self, path: str) -> Module | None:
        if path not in self._parsed:
            self._parsed[path] = self._parse(path)
        return self._parsed[path]

    def _parse(self, path: str) -> Module | None:
        data = self.files[path]
        if len(data) > MOST_BYTES:
            self.unread[path] = f"larger than {MOST_BYTES // 1_000_000} MB"
            return None
        try:
            parsed, bound = parse_old(path, data)
            return Module(SourceFile(path, parsed, self.facts), bound, self._options)
        except ParseError as error:
            self.unread[path] = str(error)
            return None

    def find(self, name: str, level: int, importer: str) -> str | None:
        """The file of the module `name` that `importer` imports; None when it is of another package."""
        key = (name, level, importer.rpartition("/")[0])
        if key not in self._found:
            self._found[key] = self._find(*key)
        return self._found[key]

    def _find(self, name: str, level: int, here: str) -> str | None:
        parts = tuple(part for part in name.split(".") if part)
        if level:
            base = here
            for _ in range(level - 1):
                base = base.rpartition("/")[0]
            return self._at(base, parts)
        if not parts:
            return None
        base = here
        while True:  # the folder of a script is on the path, and so is the root
            found = self._at(base, parts)
            if found is not None:
                return found
            if not base:
                break
            base = base.rpartition("/")[0]
        candidates = [
            path for path in self._by_tail.get(parts[-1], ()) if _dotted(path)[-len(parts) :] == parts
        ]
        one = len(candidates) == 1 and (len(parts) > 1 or self._extends_path)
        return candidates[0] if one else None

    @cached_property
    def depth(self) -> int:
        """How many folders all files lie in."""
        folders = [path.split("/")[:-1] for path in self.files]
        return len(posixpath.commonprefix(folders)) if folders else 0

    @cached_property
    def _extends_path(self) -> bool:
        """Does a script of the repository add folders to the path, so that one name is enough to find a module?"""
        return any(b"sys.path.append" in data or b"sys.path.insert" in data for data in self.files.values())

    @cached_property
    def _parts(self) -> frozenset[str]:
        """The names of the Python files and of the folders that hold them, packages or not."""
        paths = [PurePosixPath(path) for path in self.files if path.endswith(".py")]
        return frozenset(part for path in paths for part in (path.stem, *path.parent.parts))

    def has_part(self, name: str) -> bool:
        """Does a Python file, or a folder with one, have this name, wherever it lies?"""
        return name in self._parts

    def _at(self, base: str, parts: tuple[str, ...]) -> str | None:
        folder = "/".join([*([base] if base else []), *parts])
        for path in (f"{folder}.py", f"{folder}/__init__.py" if folder else "__init__.py"):
            if path in self.files:
                return path
        return None

    def bounds(self, start: Module, read: Mapping[str, Module]) -> list[Pin]:
        """What the imports of a script, and of the modules among `read` that it cannot run without, say of the newest versions."""
        found: list[Pin] = []
        seen, waiting = {start.path}, [start]
        while waiting:
            module = waiting.pop()
            found += module.once(_bounds, module.file.tree)
            for level, name in module.once(_needed, module.file.tree):
                path = self.find(name, level, module.path)
                if path is not None and path in read and path not in seen:
                    seen.add(path)
                    waiting.append(read[path])
        return found

    def is_ours(self, name: str, importer: str) -> bool:
        """Is the first part of a module name a folder or file of the repository, also a folder without `__init__.py`?"""
        root = name.partition(".")[0]
        return bool(root) and (self.find(root, 0, importer) is not None or root in self._folders)

    @cached_property
    def _folders(self) -> frozenset[str]:
        """The folders at the root that hold Python files: packages, whether they have an `__init__.py` or not."""
        return frozenset(
            path.partition("/")[0] for path in self.files if path.count("/") == 1 and path.endswith(".py")
        )

    def is_of_others(self, module: Module, name: str) -> bool:
        """Does an import of another package bind the name: `re`, `np`?"""
        if name not in module.imported:
            return False
        level, origin, _ = module.imported[name]
        return not level and origin.partition(".")[0] not in self._parts

    def resolve(self, module: Module, name: str, hops: int = 0) -> tuple[Module, Definition | None] | None:
        """What a dotted name means in a module: a definition of the repository, or a module of it (None as the second).

        `trainer.Trainer` -> (the module trainer, the class). None for names of other packages.
        """
        if hops > _MOST_HOPS:
            return None
        key = (module.path, name)
        if key not in self._resolved:
            self._resolved[key] = None  # a circle of imports ends here
            self._resolved[key] = self._resolve(module, name, hops)
        return self._resolved[key]

    def _resolve(self, module: Module, name: str, hops: int) -> tuple[Module, Definition | None] | None:
        first, _, rest = name.partition(".")
        if first in module.definitions:
            return (module, module.definitions[first])
        if first in module.imported:
            level, origin, attribute = module.imported[first]
            if not attribute:
                return self._in_module(origin, 0, module.path, rest, hops)
            joined = f"{attribute}.{rest}" if rest else attribute
            return self._in_module(origin, level, module.path, joined, hops)
        for level, origin in module.stars:
            path = self.find(origin, level, module.path)
            other = self.parse(path) if path is not None and path != module.path else None
            found = self.resolve(other, name, hops + 1) if other is not None else None
            if found is not None:
                return found
        return None

    def _in_module(
        self, origin: str, level: int, importer: str, rest: str, hops: int
    ) -> tuple[Module, Definition | None] | None:
        """`rest` in the module `origin`, of which it may name a submodule."""
        names = [part for part in rest.split(".") if part]
        for taken in range(len(names) + 1):
            dotted = ".".join([*([origin] if origin else []), *names[:taken]])
            path = self.find(dotted, level, importer)
            module = self.parse(path) if path is not None else None
            if module is None:
                continue  # a folder without `__init__.py`
            left = names[taken:]
            if not left:
                return (module, None)
            if self._is_own_part(module, left[0]):
                continue  # `from . import parts` in the package of that name
            # What a package binds itself hides its module of the same name.
            if (
                left[0] in module.definitions
                or left[0] in module.imported
                or not path_is_package(module.path)
            ):
                return self.resolve(module, ".".join(left), hops + 1)
            found = self.resolve(module, ".".join(left), hops + 1) if module.stars else None
            if found is not None:
                return found
        return None

    def _is_own_part(self, package: Module, name: str) -> bool:
        """Does the package import its own module of this name?"""
        level, origin, attribute = package.imported.get(name, (0, "", ""))
        return bool(attribute) and self.find(origin, level, package.path) == package.path


def path_is_package(path: str) -> bool:
    return path.endswith("__init__.py")


def _dotted(path: str) -> tuple[str, ...]:
    pure = PurePosixPath(path)
    return pure.parent.parts if pure.name == "__init__.py" else (*pure.parent.parts, pure.stem)


def dotted_name(node: ast.AST) -> str:
    """`a.b.c` of names and attributes; "" of anything else."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    if not isinstance(node, ast.Name):
        return ""
    return ".".join(reversed([*parts, node.id]))


def qualified(module: Module, node: ast.AST) -> str:
    """The dotted name as its package spells it; as written where it is no import."""
    name = dotted_name(node)
    root, _, rest = name.partition(".")
    origin = module.imported.get(root)
    if origin is None or origin[0]:
        return name
    return ".".join(part for part in (origin[1], origin[2], rest) if part)


def text_of(node: ast.AST) -> str:
    """The code of a node, as `ast` writes it: written once."""
    held = vars(node)
    text: str | None = held.get("_text")
    if text is None:
        text = held["_text"] = ast.unparse(node)
    return text
