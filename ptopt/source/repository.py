"""Other files of the repository, read when a question leads there: who calls a function, and under which conditions."""

from __future__ import annotations

import ast
import re
from collections import OrderedDict
from collections.abc import Callable, Mapping
from functools import cached_property
from itertools import islice
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from ptopt.pathkind import PYTHON, path_kind
from ptopt.project.facts import NO_FACTS, ProjectFacts
from ptopt.project.pins import Pin
from ptopt.source import work
from ptopt.source.bindings import is_self
from ptopt.source.calls import called_name
from ptopt.source.index import FunctionNode
from ptopt.source.programs import OLD, bounds_of_programs
from ptopt.source.receivers import COMMON_METHODS
from ptopt.source.searchable import Searchable
from ptopt.syntax import ParseError

if TYPE_CHECKING:
    from ptopt.source.file import SourceFile

_MOST_PARSED = 12  # files that the review of one file parses besides its own
_TREES = 16  # that are kept for the next file
_TEXTS = 160  # that are kept with the words in them
_BYTES_A_VISIT = 2_000  # that are searched in the time that visiting a node takes
_LONGEST_PROGRAM = 200_000  # bytes of a file whose imports are read
_MOST_DEFINITIONS = 3  # files that define a function of one name
_RUN_BY_TORCH = frozenset({"forward", "backward"})  # not by calls of their name
_MOST_CALLS = 6  # calls of one function that are looked at


class Parsed:
    """What the reviews of several files share: the last few trees, no more than so many of which are made; and words."""

    def __init__(self, most: int | None = None) -> None:
        self._left = most
        self._trees: OrderedDict[tuple[str, bytes], SourceFile | None] = OrderedDict()
        self._texts: OrderedDict[str, Searchable] = OrderedDict()

    def text(self, path: str, data: bytes) -> Searchable:
        """The content of a file for questions on words: it is searched once, not again for every question and asker."""
        known = self._texts.get(path)
        if known is None or (known.data is not data and known.data != data):
            known = self._texts[path] = Searchable(data)
            if len(self._texts) > _TEXTS:
                self._texts.popitem(last=False)
        else:
            self._texts.move_to_end(path)
        return known

    def reviewed(self, path: str, data: bytes, facts: ProjectFacts, repository: Repository) -> SourceFile:
        """A file under review. Where a question about another one led to it a moment ago, it is not parsed again.

        Raises as `SourceFile.parse` does.
        """
        from ptopt.source.file import SourceFile  # it holds a repository

        known = self._trees.get((path, data))
        if known is None:
            return SourceFile.parse(path, data, facts, repository)
        return known.under_review(facts, repository)

    def __call__(self, path: str, data: bytes) -> SourceFile | None:
        """The tree of the file; None where it does not parse, or where enough were made."""
        from ptopt.source.file import SourceFile  # it holds a repository

        key = (path, data)
        if key in self._trees:
            self._trees.move_to_end(key)
            return self._trees[key]
        if self._left == 0:
            return None
        if self._left is not None:
            self._left -= 1
        try:
            self._trees[key] = SourceFile.parse(path, data, NO_FACTS)
        except ParseError:
            self._trees[key] = None
        if len(self._trees) > _TREES:
            self._trees.popitem(last=False)
        return self._trees[key]


class Repository:
    """The files around a file under review, as values: path -> content. Few of them are parsed.

    They are asked for when there is a question. `parsed` are trees that it shares with the repositories of other files.
    `in_full`: no question is spared, since those that are asked first decide which files are parsed, and so what a model is shown.
    """

    def __init__(
        self,
        files: Mapping[str, bytes] | Callable[[], Mapping[str, bytes]],
        parsed: Parsed | None = None,
        *,
        in_full: bool = False,
    ) -> None:
        self.in_full = in_full
        self._given = files
        self._parsed = Parsed() if parsed is None else parsed
        self._asked: set[str] = set()
        self._calls: dict[tuple[str, str, bool, bool], tuple[tuple[SourceFile, ast.Call], ...]] = {}
        self._mentioned: dict[tuple[bytes, str], bool] = {}
        self._definitions: dict[str, tuple[SourceFile, FunctionNode] | None] = {}
        self._matters: dict[tuple[str, Callable[[Searchable, bytes], bool]], bool] = {}
        self._candidates: dict[str, tuple[tuple[SourceFile, FunctionNode], ...]] = {}
        self._classes: dict[str, tuple[SourceFile, ast.ClassDef] | None] = {}
        self._assigned: dict[str, tuple[tuple[SourceFile, ast.expr], ...]] = {}
        self._methods: dict[str, tuple[tuple[SourceFile, FunctionNode], ...] | None] = {}

    @cached_property
    def _files(self) -> Mapping[str, bytes]:
        return self._given() if callable(self._given) else self._given

    @cached_property
    def _texts(self) -> list[tuple[str, Searchable]]:
        return [(path, self._parsed.text(path, data)) for path, data in self._files.items()]

    @cached_property
    def _bytes(self) -> int:
        return sum(map(len, self._files.values()))

    def callers(self, file: SourceFile, function: FunctionNode) -> tuple[tuple[SourceFile, ast.Call], ...]:
        """Calls of a function of `file` in other files that import it, a few of them; () when none is sure.

        Of a method with a common name, such as `update`, those on an object that is made of its class there.
        """
        cls = file.index.parent(function)
        if function.name in COMMON_METHODS and isinstance(cls, ast.ClassDef):
            return self._on_instances(file.path, cls.name, function.name)
        return self._called(file, function, imported=True)

    def _on_instances(self, path: str, cls: str, method: str) -> tuple[tuple[SourceFile, ast.Call], ...]:
        """Calls of the method in other files on objects of the class, which these files make."""
        if method in _RUN_BY_TORCH or len(cls) < 4 or not self._files:
            return ()
        key = (path, f"{cls}.{method}", True, True)
        if key not in self._calls:
            self._charge_search()
            word = method.encode()
            named = [
                (other, text)
                for other, text in self._texts
                if other != path
                and cls.encode() in text.identifiers
                and word in text.identifiers
                and text.calls(cls.encode())
                and path_kind(other) in (None, path_kind(path))
            ]
            parsed = [self._parse(other, text.data) for other, text in named[:_MOST_CALLS]]
            found = (
                (one, call)
                for one in parsed
                if one is not None
                for call in one.calls_named(method)
                if isinstance(call.func, ast.Attribute)
                and any(
                    made.qualified.rpartition(".")[2] == cls
                    for made in one.receivers.classes_of(call.func.value)
                )
            )
            self._calls[key] = tuple(islice(found, _MOST_CALLS))
        return self._calls[key]

    def dispatches(self, file: SourceFile, function: FunctionNode) -> tuple[tuple[SourceFile, ast.Call], ...]:
        """Calls `x.name(...)` in other files that may run a method of `file`, whether or not they import it.

        So a base class calls what its subclasses define, and a runner a task that it was given. May be of another class.
        """
        if not isinstance(file.index.parent(function), ast.ClassDef):
            return ()
        return self._called(file, function, imported=False)

    def _called(
        self, file: SourceFile, function: FunctionNode, *, imported: bool
    ) -> tuple[tuple[SourceFile, ast.Call], ...]:
        name = function.name
        if name in COMMON_METHODS or name.startswith("__") or len(name) < 4 or not self._files:
            return ()
        key = (file.path, name, isinstance(file.index.parent(function), ast.ClassDef), imported)
        if key not in self._calls:
            self._calls[key] = self._find(*key)
        return self._calls[key]

    def definition(
        self, file: SourceFile, call: ast.Call, matters: Callable[[Searchable, bytes], bool] | None = None
    ) -> tuple[SourceFile, FunctionNode] | None:
        """The function of another file that a call runs, where one file alone defines a function of that name.

        `matters`: whether a function of that name may be of interest, by the text of its file, which is not parsed where it says no.
        """
        name = called_name(call)
        if name in COMMON_METHODS or name.startswith("__") or len(name) < 4 or not self._files:
            return None
        if name not in self._definitions:
            if matters is not None and not self._may_matter(name, matters):
                return None
            self._definitions[name] = self._define(name)
        found = self._definitions[name]
        return found if found is not None and found[0].path != file.path else None

    def definitions(self, file: SourceFile, call: ast.Call) -> tuple[tuple[SourceFile, FunctionNode], ...]:
        """The functions of other files that a call may run: a method and what overrides it. () where too many have the name."""
        name = called_name(call)
        if name in COMMON_METHODS or name.startswith("__") or len(name) < 4 or not self._files:
            return ()
        if name not in self._candidates:
            self._charge_search()
            found = self._defining(name)
            parsed = (
                [self._parse(path, text.data) for path, text in found]
                if len(found) <= _MOST_DEFINITIONS
                else []
            )
            self._candidates[name] = tuple(
                (one, function)
                for one in parsed
                if one is not None
                for function in one.calls.functions
                if function.name == name
            )
        return tuple(found for found in self._candidates[name] if found[0].path != file.path)

    def _may_matter(self, name: str, matters: Callable[[Searchable, bytes], bool]) -> bool:
        if (name, matters) not in self._matters:
            found = self._defining(name)
            self._matters[name, matters] = len(found) == 1 and matters(found[0][1], name.encode())
        return self._matters[name, matters]

    def _define(self, name: str) -> tuple[SourceFile, FunctionNode] | None:
        self._charge_search()
        found = self._defining(name)
        parsed = self._parse(found[0][0], found[0][1].data) if len(found) == 1 else None
        functions = [f for f in parsed.calls.functions if f.name == name] if parsed is not None else []
        return (parsed, functions[0]) if parsed is not None and len(functions) == 1 else None

    def _defining(self, name: str) -> list[tuple[str, Searchable]]:
        """The files that define a function of that name."""
        word = name.encode()
        return [(path, text) for path, text, defined in self._defined if word in defined]

    @cached_property
    def _defined(self) -> list[tuple[str, Searchable, frozenset[bytes]]]:
        return [(path, text, text.defined) for path, text in self._texts]

    def class_named(self, file: SourceFile, name: str) -> tuple[SourceFile, ast.ClassDef] | None:
        """The class of another file, where one file alone defines a class of that name."""
        if len(name) < 4 or not self._files:
            return None
        if name not in self._classes:
            self._charge_search()
            head = b"class " + name.encode()
            paths = [
                path
                for path, data in self._files.items()
                if head in data and re.search(rb"^%b\b" % re.escape(head), data, re.M)
            ]
            parsed = self._parse(paths[0], self._files[paths[0]]) if len(paths) == 1 else None
            classes = parsed.index.of_type(ast.ClassDef) if parsed is not None else ()
            found = next((cls for cls in classes if cls.name == name), None)
            self._classes[name] = (parsed, found) if parsed is not None and found is not None else None
        known = self._classes[name]
        return known if known is not None and known[0].path != file.path else None

    def mentions(self, words: bytes, besides: str = "") -> bool:
        """Do the words occur in one of the Python files, that at `besides` left out?

        In no other file, or a baseline that names the script would change what is said of it.
        """
        if (words, besides) not in self._mentioned:
            self._charge_search()
            self._mentioned[words, besides] = any(
                text.holds(words) for path, text in self._texts if path != besides and path.endswith(PYTHON)
            )
        return self._mentioned[words, besides]

    def matches(self, pattern: re.Pattern[bytes], having: bytes = b"", besides: str = "") -> bool:
        """Does the pattern occur in one of the Python files that hold `having`, that at `besides` left out?"""
        key = (pattern.pattern + b"\0" + having, besides)
        if key not in self._mentioned:
            self._charge_search()
            self._mentioned[key] = any(
                text.matches(pattern, having)
                for path, text in self._texts
                if path != besides and path.endswith(PYTHON)
            )
        return self._mentioned[key]

    def holding(
        self, file: SourceFile, pattern: re.Pattern[bytes], word: bytes, name: bytes, most: int
    ) -> tuple[SourceFile, ...]:
        """The other Python files in which the pattern, which needs the word, and the name, if any, occur: the first, parsed."""
        self._charge_search()
        found = (
            (path, text)
            for path, text in self._texts
            if path != file.path
            and path.endswith(PYTHON)
            and (not name or name in text.identifiers)
            and text.matches(pattern, word)
        )
        parsed = (self._parse(path, text.data) for path, text in islice(found, most))
        return tuple(one for one in parsed if one is not None)

    def methods(self, name: str) -> tuple[tuple[SourceFile, FunctionNode], ...] | None:
        """The methods of that name, however common it is, in the other files; None where more define it than are read."""
        if name not in self._methods:
            self._charge_search()
            found = self._defining(name)
            if len(found) > _MOST_DEFINITIONS:
                self._methods[name] = None
            else:
                parsed = [self._parse(path, text.data) for path, text in found]
                self._methods[name] = tuple(
                    (one, function)
                    for one in parsed
                    if one is not None
                    for function in one.calls.functions
                    if function.name == name and isinstance(one.index.parent(function), ast.ClassDef)
                )
        return self._methods[name]

    def assigned_to_self(self, file: SourceFile, name: str) -> tuple[tuple[SourceFile, ast.expr], ...]:
        """What the classes of other files give to `self.name`; () where too many do, or the name is a common one."""
        if name in COMMON_METHODS or len(name) < 4 or not self._files:
            return ()
        if name not in self._assigned:
            self._charge_search()
            pattern = re.compile(rb"self\.%b\s*=[^=]" % re.escape(name.encode()))
            found = [(path, text) for path, text in self._texts if text.matches(pattern, name.encode())]
            parsed = (
                [self._parse(path, text.data) for path, text in found] if len(found) <= _MOST_CALLS else []
            )
            self._assigned[name] = tuple(
                (one, assign.value)
                for one in parsed
                if one is not None
                for assign in one.index.of_type(ast.Assign)
                for target in assign.targets
                if isinstance(target, ast.Attribute) and is_self(target) and target.attr == name
            )
        return tuple(found for found in self._assigned[name] if found[0].path != file.path)

    def bounds(self, file: SourceFile) -> tuple[Pin, ...]:
        """What other modules of the programs that need the file say of the newest versions of libraries, by what they import."""
        self._charge_search()
        old = [path for path, text in self._texts if path.endswith(".py") and text.matches(OLD, b"import")]
        if not old:
            return ()
        work.current().charge(self._bytes // 100)  # their imports are parsed
        files = {path: text for path, text in self._texts if len(text.data) <= _LONGEST_PROGRAM}
        files[file.path] = Searchable(file.data)
        return tuple(bounds_of_programs(file.path, files, [path for path in old if path in files]))

    def _charge_search(self) -> None:
        """Looking through all files for a word is work like any other."""
        work.current().charge(self._bytes // _BYTES_A_VISIT)

    def _find(
        self, path: str, name: str, is_method: bool, imported: bool
    ) -> tuple[tuple[SourceFile, ast.Call], ...]:
        self._charge_search()
        module, word = _module_word(path).encode() if imported else b"", name.encode()
        found: list[tuple[SourceFile, ast.Call]] = []
        for other, text in self._texts:
            if (  # the cheapest questions first
                word not in text.identifiers
                or not text.holds(module)
                or other == path
                or not text.calls(word)
                or not (imported or re.search(rb"[.]%b\s*\(" % word, text.data))
                or path_kind(other) not in (None, path_kind(path))  # a test of a step is no step
                or (imported and self._has_its_own(other, path))
            ):
                continue
            if imported and text.defines(word):
                self._may_parse(other)  # counts towards the limit: other questions get the same answers
                continue
            parsed = self._parse(other, text.data)
            if parsed is None or (imported and any(f.name == name for f in parsed.calls.functions)):
                continue  # it has a function of that name itself
            found += [
                (parsed, call)
                for call in parsed.calls_named(name)
                if (not is_method or isinstance(call.func, ast.Attribute))
                and not parsed.receivers.is_of_library(call)
            ]
            if len(found) >= _MOST_CALLS:
                break
        return tuple(found[:_MOST_CALLS])

    def _has_its_own(self, other: str, path: str) -> bool:
        """Does a module of the same name lie beside `other`, in another folder, so that it imports that one?"""
        here, _, name = path.rpartition("/")
        there = other.rpartition("/")[0]
        return here != there and f"{there}/{name}".lstrip("/") in self._files

    def _parse(self, path: str, data: bytes) -> SourceFile | None:
        return self._parsed(path, data) if self._may_parse(path) else None

    def _may_parse(self, path: str) -> bool:
        """Is it one of the first files that the review of this one asks for?"""
        if path not in self._asked and len(self._asked) >= _MOST_PARSED:
            return False
        self._asked.add(path)
        return True


def _module_word(path: str) -> str:
    """What an import of the file mentions: its stem, or the folder of an `__init__.py`."""
    pure = PurePosixPath(path)
    return pure.parent.name if pure.stem == "__init__" else pure.stem


NOTHING_AROUND = Repository({})
