"""What of a repository tells whether the table of a script is right: lines of its code, its configurations, the commands that
start it and what its environment pins, each with how much it tells.

A line tells as much as its place (the script, code that runs, code that may run, other files) and the rareness of the words on
it; lines beside it tell a part of that. Nothing is judged here.
"""

from __future__ import annotations

import ast
import math
import posixpath
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from ptopt.audit.composed import composed
from ptopt.audit.configured import Configured, read_all
from ptopt.audit.launches import SHELL, Launch, launches, of_script, pages
from ptopt.audit.live import Live
from ptopt.audit.modules import Module, Modules
from ptopt.audit.nearest import NearestFacts
from ptopt.audit.summaries import Summaries
from ptopt.audit.values import EntryPoint
from ptopt.audit.words import LOOP, TELLING, rows_of
from ptopt.model.audit_rows import Line
from ptopt.pathkind import PYTHON, is_notebook
from ptopt.project.facts import ProjectFacts
from ptopt.source.work import WorkLimitError, limited

_WORK = 6_000_000  # visited nodes, of one script
_LONGEST_LINE = 400  # characters: what is longer was not written by hand
_NEAR = 3  # lines on each side of one that tells something
_AROUND_EVIDENCE = 6
_MOST_PINS = 40
_MOST_LAUNCHES = 8
_MOST_OTHERS = 400  # files that the script does not import, the nearest first
_MOST_MENTIONS = 12  # pages and shell scripts that name it
_MOST_OPTIONS, _MOST_VALUES, _LONGEST_VALUE = 60, 4, 60  # of many commands
_MOST_WHOLE = 150  # lines of a configuration or script that is shown as a whole
_PLACE_WEIGHT = {"evidence": 12.0, "command": 10.0, "mention": 9.0, "pin": 8.0, "install": 2.0, "script": 5.0, "runs": 1.5, "named": 4.0,
                 "imported": 0.4, "near": 0.5, "page": 0.3, "other": 0.12}  # fmt: skip
_FIRST = 10  # lines of each row that come before all others
_FOREMOST = 2.0  # what is added to their weight
_PLAIN = 0.03  # of a line that has no word of any row
_PACKAGES = re.compile(
    r"torch|lightning|transformers|accelerate|deepspeed|timm|diffusers|apex|xformers|flash|trl|peft|fairseq|mmcv|mmengine|basicsr|"
    r"detectron|cuda|datasets|tensorboard|wandb|bitsandbytes|python$"
)
_INSTALLS = re.compile(
    r"(pip3?|conda|mamba|uv)\s+(install|create|add)|python\s*[=<>]=?\s*\d|pytorch\W*\d|cuda(toolkit)?\W*\d",
    re.I,
)
_TESTS = re.compile(r"(^|/)(tests?|testing)/|(^|/)(test_[^/]*|[^/]*_test)\.py$")


@dataclass(frozen=True, slots=True)
class Context:
    """Lines by path and number; `absent`: words that stand in no file that was read, by the key of their row; `runs`: the Python files
    that the script imports, itself included; `options`: what the commands that train with it give its options, where they are too many
    to be shown.
    """

    lines: tuple[Line, ...]
    absent: Mapping[str, tuple[str, ...]]
    runs: frozenset[str]
    options: str = ""


class Contexts:
    """What is asked of the files of one repository, for one script after the other."""

    def __init__(self, files: Mapping[str, bytes], facts: ProjectFacts) -> None:
        self._files = files
        self._python = {path: data for path, data in files.items() if path.endswith(PYTHON)}
        self._facts = NearestFacts(facts, files)
        self._modules = Modules(self._python, facts)
        self._started = launches(files)
        self._documents = read_all(files)
        self._summaries = Summaries(self._modules)
        self._texts: dict[str, list[tuple[int, str]]] = {}
        self._hits: dict[str, list[tuple[int, tuple[str, ...]]]] = {}
        self._absent = _absent(files)

    def of(self, entry: EntryPoint) -> Context:
        """What tells of this script."""
        places = _Places()
        runs = {entry.path}
        with limited(_WORK):
            try:
                runs |= self._code(entry, places)
            except (WorkLimitError, RecursionError):
                places.all_of(entry.path, "script")
        commands = of_script(self._started, entry.path, self._modules.files)
        self._commands(entry.path, commands, places)
        self._configurations(entry, commands, places)
        for measure in entry.measures:
            for place in measure.evidence:
                for number in range(place.line - _AROUND_EVIDENCE, place.line + _AROUND_EVIDENCE + 1):
                    near = abs(number - place.line) <= 1
                    places.add(place.path, number, "evidence" if near else "script")
        lines = [*self._weighed(places), *self._pins(entry, commands)]
        return Context(tuple(lines), self._absent, frozenset(runs), _options(commands))

    # -- which lines may tell something -------------------------------------------------------------------

    def _code(self, entry: EntryPoint, places: _Places) -> set[str]:
        """The files that the script imports."""
        start = self._modules.parse(entry.path)
        if start is None:
            places.all_of(entry.path, "script")
            return set()
        configured = Configured(self._documents, entry.path, composed(self._documents, start), {})
        live = Live(self._modules, start, self._summaries, configured.targets, configured.classes)
        places.all_of(entry.path, "script")
        loop = entry.loop
        for module in live.read.values():
            places.all_of(module.path, "imported")
            for statement in module.file.tree.body:
                if not isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
                    places.node(module, statement, "runs")
        for definition, module in [*live.classes.items(), *live.functions.items()]:
            first, last = module.file.head_line(definition.lineno), _last_line(module, definition)
            trains = loop is not None and loop.path == module.path and first <= loop.line <= last
            if isinstance(definition, ast.ClassDef):
                for part in definition.body:
                    if not isinstance(part, (ast.FunctionDef, ast.AsyncFunctionDef)):
                        places.node(module, part, "runs")
            else:
                places.node(module, definition, "script" if trains else "runs")
            places.head(module, definition)
        others = [path for path in self._python if path not in live.read and not _TESTS.search(path)]
        for path in _nearest(others, entry.path)[:_MOST_OTHERS]:
            places.hits_of(path, "other")
        return set(live.read)

    def _commands(self, script: str, commands: Iterable[Launch], places: _Places) -> None:
        """The commands that start it, and what pages and shell scripts say where they name it."""
        for launch in sorted(commands, key=lambda one: one.evaluates)[:_MOST_LAUNCHES]:
            path, first = launch.place.path, launch.place.line
            text = self._text(path)
            if path.endswith(SHELL) and len(text) <= _MOST_WHOLE:
                places.all_of(path, "named")
            number = first
            while number <= len(text):
                places.add(path, number, "command")
                if not text[number - 1][1].rstrip().endswith("\\"):
                    break
                number += 1
            for around in range(first - 4, number + 3):
                places.add(path, around, "named")
        for path in pages(self._files):
            places.hits_of(path, "page")
            for number, line in self._text(path):
                if _INSTALLS.search(line):
                    places.add(path, number, "install")
        name = script.rpartition("/")[2]
        dotted = script.removesuffix(".py").replace("/", ".")
        found = [*pages(self._files), *(path for path in self._files if path.endswith(SHELL))]
        mentions = [
            path
            for path in found
            if name.encode() in self._files[path] or dotted.encode() in self._files[path]
        ]
        for path in _nearest(mentions, script)[:_MOST_MENTIONS]:
            for number, line in self._text(path):
                if name in line or dotted in line:
                    for around in range(number - 3, number + 4):
                        places.add(path, around, "named" if around != number else "mention")

    def _configurations(self, entry: EntryPoint, commands: Iterable[Launch], places: _Places) -> None:
        configured = Configured(self._documents, entry.path)
        named = {
            path
            for launch in commands
            for text in launch.options.values()
            if isinstance(text, str) and (path := configured.path_of(text)) is not None
        }
        for path in sorted(named)[:_MOST_LAUNCHES]:
            places.all_of(path, "named")
        start = self._modules.parse(entry.path)
        for _, path, _ in (composed(self._documents, start) if start is not None else None) or ():
            places.all_of(path, "named")
        for path in configured.near():
            places.hits_of(path, "near")

    def _pins(self, entry: EntryPoint, commands: Iterable[Launch]) -> Iterator[Line]:
        facts = self._facts.of(entry.path, commands)
        found = [pin for name, pins in sorted(facts.pins.items()) if _PACKAGES.search(name) for pin in pins]
        seen: defaultdict[tuple[str, int], list[str]] = defaultdict(list)
        for pin in found[:_MOST_PINS]:
            text = f"{pin.package}{pin.specifier}"
            if text not in seen[pin.path, pin.line]:
                seen[pin.path, pin.line].append(text)
        for package, cap in sorted(facts.caps.items()):
            seen[cap.path, cap.line].append(
                f"{cap.python or cap.removed or cap.refused}, which has {package}{cap.specifier}"
            )
        for (path, number), texts in seen.items():
            yield Line(path, number, ", ".join(texts), _PLACE_WEIGHT["pin"])

    # -- how much they tell --------------------------------------------------------------------------------

    def _weighed(self, places: _Places) -> Iterator[Line]:
        common = Counter(
            key
            for path in places.paths()
            for number, keys in self._hits_of(path)
            if places.weight(path, number) >= _PLACE_WEIGHT["runs"]
            for key in keys
        )
        rare = {key: 1 / math.sqrt(max(number, 1)) for key, number in common.items()}
        lines = [line for path in places.paths() for line in self._of_file(path, places, rare)]
        foremost = self._foremost(lines)
        for line in lines:
            first = (line.path, line.number) in foremost
            yield replace(line, weight=line.weight + _FOREMOST) if first else line

    def _foremost(self, lines: list[Line]) -> set[tuple[str, int]]:
        """Of each row the lines that tell most of it: in a large repository the words of one row would leave no room for another."""
        weights = {(line.path, line.number): line.weight for line in lines}
        of_row: defaultdict[str, list[tuple[float, str, int]]] = defaultdict(list)
        for path in {line.path for line in lines}:
            for number, keys in self._hits_of(path):
                weight = weights.get((path, number), 0.0)
                for key in keys if weight else ():
                    of_row[key].append((-weight, path, number))
        return {(path, number) for some in of_row.values() for _, path, number in sorted(some)[:_FIRST]}

    def _of_file(self, path: str, places: _Places, rare: Mapping[str, float]) -> Iterator[Line]:
        text = dict(self._text(path))
        own: dict[int, float] = {}  # without what the lines beside it add
        for number, keys in self._hits_of(path):
            place = places.weight(path, number)
            worth = sum(rare.get(key, 0.5) * (0.5 if key == LOOP else 1.0) for key in keys)
            if place:
                own[number] = max(own.get(number, 0.0), place * worth)
        spread: dict[int, float] = dict(own)
        if not places.only_hits(path):
            for number, weight in own.items():
                for near in range(number - _NEAR, number + _NEAR + 1):
                    share = weight * 0.6 ** abs(near - number)
                    if near in text and share > spread.get(near, 0.0):
                        spread[near] = share
        for number, line in text.items():
            place = places.weight(path, number)
            weight = max(spread.get(number, 0.0), place * _PLAIN if not places.only_hits(path) else 0.0)
            if place >= _PLACE_WEIGHT["mention"]:
                weight = max(weight, place)
            elif path in places.whole and place >= _PLACE_WEIGHT["named"]:
                weight = max(weight, 0.3 * place)
            elif place == _PLACE_WEIGHT["install"]:
                weight = max(weight, 0.6 * place)
            if weight > 0 and line.strip():
                yield Line(path, number, line[:_LONGEST_LINE], weight, places.head_of(path, number))

    # -- reading -------------------------------------------------------------------------------------------

    def _text(self, path: str) -> list[tuple[int, str]]:
        """The lines of a file with their numbers on disk."""
        if path not in self._texts:
            module = self._modules.parse(path) if is_notebook(path) else None
            if module is not None:
                lines = module.file.text.split("\n")
                self._texts[path] = [(module.file.head_line(at), line) for at, line in enumerate(lines, 1)]
            else:
                raw = self._files.get(path, b"").decode("utf-8", "replace")
                self._texts[path] = list(enumerate(raw.splitlines() if "\r" in raw else raw.split("\n"), 1))
        return self._texts[path]

    def _hits_of(self, path: str) -> list[tuple[int, tuple[str, ...]]]:
        if path not in self._hits:
            self._hits[path] = [
                (number, keys) for number, line in self._text(path) if (keys := rows_of(line[:_LONGEST_LINE]))
            ]
        return self._hits[path]


class _Places:
    """What each line is to the script: the most that any place says of it."""

    def __init__(self) -> None:
        self._lines: defaultdict[str, dict[int, float]] = defaultdict(dict)
        self._files: dict[str, float] = {}
        self._hits: dict[str, float] = {}
        self._heads: defaultdict[str, list[tuple[int, int]]] = defaultdict(list)
        self.whole: set[str] = set()

    def add(self, path: str, number: int, place: str) -> None:
        weight = _PLACE_WEIGHT[place]
        if number > 0 and weight > self._lines[path].get(number, 0.0):
            self._lines[path][number] = weight

    def node(self, module: Module, node: ast.stmt, place: str) -> None:
        first = min([node.lineno, *(d.lineno for d in getattr(node, "decorator_list", ()))])
        for number in range(first, (node.end_lineno or node.lineno) + 1):
            self.add(module.path, module.file.head_line(number), place)

    def head(self, module: Module, node: ast.stmt) -> None:
        self._heads[module.path].append((module.file.head_line(node.lineno), _last_line(module, node)))

    def all_of(self, path: str, place: str) -> None:
        self._files[path] = max(self._files.get(path, 0.0), _PLACE_WEIGHT[place])
        if place == "named":
            self.whole.add(path)

    def hits_of(self, path: str, place: str) -> None:
        """Only the lines of the file that have words of a row."""
        self._hits[path] = max(self._hits.get(path, 0.0), _PLACE_WEIGHT[place])

    def paths(self) -> list[str]:
        return sorted({*self._lines, *self._files, *self._hits})

    def only_hits(self, path: str) -> bool:
        return path not in self._lines and path not in self._files

    def weight(self, path: str, number: int) -> float:
        return max(
            self._lines[path].get(number, 0.0) if path in self._lines else 0.0,
            self._files.get(path, 0.0),
            self._hits.get(path, 0.0) if self.only_hits(path) else 0.0,
        )

    def head_of(self, path: str, number: int) -> int:
        """The line of the innermost definition around a line."""
        around = [(first, last) for first, last in self._heads.get(path, ()) if first < number <= last]
        return max(around)[0] if around else 0


def _nearest(paths: Iterable[str], script: str) -> list[str]:
    """Those that share most folders with the script come first."""
    folders = script.split("/")[:-1]
    return sorted(
        paths, key=lambda path: (-len(posixpath.commonprefix([folders, path.split("/")[:-1]])), path)
    )


def _options(commands: Iterable[Launch]) -> str:
    """What commands give the options, where they are more than are shown: `--bf16: True (12), --steps: 8 (10), 4 (2)`."""
    training = [launch for launch in commands if not launch.evaluates]
    if len(training) <= _MOST_LAUNCHES:
        return ""
    given: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for launch in training:
        for name, value in launch.options.items():
            given[name]["a variable" if value is None else str(value)[:_LONGEST_VALUE]] += 1
    ranked = sorted(given.items(), key=lambda item: (not rows_of(f"--{item[0]}"), -item[1].total(), item[0]))
    shown = [
        f"--{name}: " + ", ".join(f"{value} ({number})" for value, number in values.most_common(_MOST_VALUES))
        for name, values in ranked[:_MOST_OPTIONS]
    ]
    return f"{len(training)} commands train with it. They give its options: " + "; ".join(shown)


def _last_line(module: Module, node: ast.stmt) -> int:
    return module.file.head_line(node.end_lineno or node.lineno)


def _absent(files: Mapping[str, bytes]) -> Mapping[str, tuple[str, ...]]:
    """The telling words that no file holds."""
    missing = {word for words in TELLING.values() for word in words}
    for data in files.values():
        missing -= {word for word in missing if word.encode() in data}
    return {
        key: left
        for key, words in TELLING.items()
        if (left := tuple(word for word in words if word in missing))
    }
