"""The scripts of a repository that train, each with its table."""

from __future__ import annotations

import ast
import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from ptopt.audit.absent import imported_from_above
from ptopt.audit.classnames import names_in_texts
from ptopt.audit.composed import composed
from ptopt.audit.configured import Configured, Read, read_all
from ptopt.audit.documented import documented
from ptopt.audit.entries import (
    MOST_CANDIDATES,
    Start,
    candidates,
    left_to_options,
    lone_step,
    may_train,
    only_uses,
    starts_something,
    training_start,
)
from ptopt.audit.entrypoint import entry_of, evaluator_of
from ptopt.audit.evaluate import Evaluator
from ptopt.audit.launches import Launch, launches, of_script
from ptopt.audit.live import Live
from ptopt.audit.measures import TOO_MUCH_WORK
from ptopt.audit.modules import Module, Modules
from ptopt.audit.nearest import NearestFacts
from ptopt.audit.options import Options
from ptopt.audit.summaries import Summaries
from ptopt.audit.tensors import fits_tensors
from ptopt.audit.trials import without_trials
from ptopt.audit.values import EntryPoint
from ptopt.audit.vendored import libraries, without_examples
from ptopt.configs.values import Document
from ptopt.pathkind import PYTHON
from ptopt.project.facts import ProjectFacts
from ptopt.source.work import WorkLimitError, limited, no_cycle_collection

MOST_ENTRIES = 30
ENTRY_WORK = 6_000_000  # visited nodes, of one script
_MOST_COMMANDS = 8  # of one script, that are tried each by itself
AUDIT_WORK = 60_000_000  # of all scripts
_LISTED = 12
_ONLY_THE_FOLDER = (
    "only this folder was read: commands and configurations elsewhere in the repository may set what a row gives as a default. "
    "Audit the whole repository"
)
_NAMED = 3  # scripts and modules in a sentence


@dataclass(frozen=True, slots=True)
class Scripts:
    """The scripts of a repository that train."""

    files: int  # Python files of the repository
    entries: tuple[EntryPoint, ...]
    lost: tuple[str, ...]  # what could not be followed, in words
    outside: tuple[
        str, ...
    ] = ()  # of a folder: those that import modules from outside it, and train nothing that was seen

    def paths(self) -> frozenset[str]:
        """The scripts, and where their training stands."""
        loops = (entry.loop.path for entry in self.entries if entry.loop is not None)
        return frozenset({*(entry.path for entry in self.entries), *loops})


def training_scripts(
    files: Mapping[str, bytes], facts: ProjectFacts, scripts: frozenset[str] = frozenset(),
    above: frozenset[str] = frozenset(), part: bool = False,
) -> Scripts:  # fmt: skip
    """The scripts that train, with their measures.

    `files`: Python files, notebooks and shell scripts by path. `scripts`: files that are started by a console script. `above`: the modules in the folders above these files. `part`: the repository has more than
    these files.
    """
    python = {path: data for path, data in files.items() if path.endswith(PYTHON)}
    nearest = NearestFacts(facts, files)
    with no_cycle_collection():
        started = launches(files)
        texts = functools.partial(names_in_texts, files, started)
        outside: dict[str, str] = {}
        entries, lost = entry_points(
            python, started, read_all(files), nearest, scripts, texts, above, outside, part
        )
        entries = documented(entries, files, started, scripts)
    lost += [_from_outside(outside)] if outside else []
    if part and entries:
        lost.insert(0, _ONLY_THE_FOLDER)
    return Scripts(len(python), entries, tuple(lost), tuple(outside))


def _from_outside(scripts: Mapping[str, str]) -> str:
    """`scripts`: each with a module that it imports."""
    more = f" and {len(scripts) - _NAMED} more" if len(scripts) > _NAMED else ""
    modules = ", ".join(f"`{name}`" for name in list(dict.fromkeys(scripts.values()))[:_NAMED])
    one = len(scripts) == 1
    return (
        f"{', '.join([*scripts][:_NAMED])}{more}: {'it imports' if one else 'they import'} modules from outside the folder ({modules}), "
        f"which were not read; whether {'it trains' if one else 'they train'} was not seen"
    )


def entry_points(
    files: Mapping[str, bytes],
    started: Mapping[str, list[Launch]],
    configurations: Mapping[str, Document],
    facts: NearestFacts,
    scripts: frozenset[str],
    texts: Callable[[], frozenset[str]] | None = None,
    above: frozenset[str] = frozenset(),
    outside: dict[str, str] | None = None,
    part: bool = False,
) -> tuple[tuple[EntryPoint, ...], list[str]]:
    """The scripts that train, with their measures; and what could not be followed, in words. `texts`: see `Modules`.

    `outside` is given the other scripts that import a module of the folders above, each with its name. `part`: see `training_scripts`.
    """
    modules = Modules(files, facts.root, texts)
    search = _Search(modules, started, configurations, facts, above, {} if outside is None else outside)
    looked_at = candidates(modules, scripts)
    of_libraries = tuple(f"{folder}/" for folder in libraries(files))
    looked_at.sort(key=lambda path: path.startswith(of_libraries))  # the repository's own come first
    more = late = 0
    for path in looked_at:
        module = modules.parse(path)
        if module is None:
            search.lost.append(f"{path}: {_why_unread(files[path], modules.unread[path])}")
        elif not starts_something(module) and path not in scripts:
            continue
        elif len(search.entries) >= MOST_ENTRIES:
            more += 1
        elif search.work_left <= 0:
            late += 1
        else:
            search.look_at(module)
    entries, trials = without_trials(_without_bare(search.entries, started))
    entries, examples = without_examples(entries, files, started)
    lost = [*search.lost, *trials, *examples]
    if not entries:
        lost += [*search.optional, *search.missed][:_LISTED]
    elif part:  # the command that asks for the training may lie elsewhere
        lost += search.optional[:_LISTED]
    if more:
        lost.append(f"{more} more scripts: the first {MOST_ENTRIES} that train were judged")
    if late:
        lost.append(f"{late} more scripts: the analysis limit of one audit was reached")
    if len(looked_at) == MOST_CANDIDATES:
        lost.append(f"only the {MOST_CANDIDATES} scripts that look most like a training were looked at")
    return tuple(entries), lost


class _Search:
    """Looks at one script after the other; what it finds adds up."""

    def __init__(
        self, modules: Modules, started: Mapping[str, list[Launch]], configurations: Mapping[str, Document],
        facts: NearestFacts, above: frozenset[str], outside: dict[str, str],
    ) -> None:  # fmt: skip
        self._modules = modules
        self._summaries = Summaries(modules)
        self._started = started
        self._configurations = configurations
        self._facts = facts
        self._above = above
        self._outside = outside
        self._read: Read = {}
        self.work_left = AUDIT_WORK
        self.entries: list[EntryPoint] = []
        self.lost: list[str] = []
        self.missed: list[str] = []  # scripts that may train, for where none is found that does
        self.optional: list[str] = []  # those that train where an option says so

    def look_at(self, script: Module) -> None:
        with limited(min(ENTRY_WORK, self.work_left)) as account:
            try:
                self._look_at(script)
            except (WorkLimitError, RecursionError):
                self.lost.append(f"{script.path}: {TOO_MUCH_WORK}")
        self.work_left -= account.spent

    def _look_at(self, script: Module) -> None:
        path = script.path
        configured = Configured(
            self._configurations, path, composed(self._configurations, script), self._read
        )
        live = Live(self._modules, script, self._summaries, configured.targets, configured.classes)
        commands = of_script(self._started, path, self._modules.files)
        by_default = Evaluator(live, live.once(Options))
        start = training_start(live, by_default)
        if start is None and (option := left_to_options(live, by_default)):
            start, commands = _by_commands(live, commands, configured)
            if start is None:
                self.optional.append(f"{path}: it trains where an option says so, and not by the {option}")
        elif start is None:
            self._say_why(live, by_default)
        if start is None or only_uses(live, start):
            return
        if start[0] == "PyTorch" and fits_tensors(live):
            self.lost.append(f"{path}: it fits tensors by their gradients, and trains no network")
        else:
            self.entries.append(entry_of(live, start, self._facts.of(path, commands), commands, configured))

    def _say_why(self, live: Live, by_default: Evaluator) -> None:
        """What a script that does not train is noted for, if anything."""
        path = live.start.path
        if name := imported_from_above(live, self._above):
            self._outside[path] = name
        elif reason := may_train(live):
            self.missed.append(f"{path}: {reason}")
        elif (step := lone_step(live, by_default)) is not None:
            self.lost.append(_without_backward(path, *step))


def _why_unread(data: bytes, reason: str) -> str:
    """Why a script was not read; of one with a training loop that this is lost."""
    if b".backward(" not in data:
        return reason
    advice = "; convert it, as with `2to3`, and audit again" if reason.startswith("not Python 3") else ""
    return f"it looks like a training, and was not read: {reason}{advice}"


def _by_commands(
    live: Live, commands: tuple[Launch, ...], configured: Configured
) -> tuple[Start | None, tuple[Launch, ...]]:
    """Of a script that trains only where an option says so: what trains by a command of the repository, and those that train."""
    found: list[tuple[Launch, Start]] = []
    for command in [each for each in commands if not each.evaluates][:_MOST_COMMANDS]:
        start = training_start(live, evaluator_of(live, (command,), configured))
        if start is not None:
            found.append((command, start))
    return (found[0][1] if found else None), tuple(command for command, _ in found)


def _without_backward(path: str, module: Module, step: ast.Call) -> str:
    line = module.file.head_line(step.lineno)
    at = f"in line {line}" if module.path == path else f"at {module.path}:{line}"
    return f"{path}: it takes a step of an optimizer {at}; its backward pass was not found"


def _without_bare(entries: list[EntryPoint], started: Mapping[str, list[Launch]]) -> list[EntryPoint]:
    """Without scripts that no launch script starts, where one starts another script with the same training."""

    def is_started(entry: EntryPoint) -> bool:
        return entry.path.rpartition("/")[2] in started

    by_scripts = {entry.loop for entry in entries if is_started(entry)}
    return [
        e
        for e in entries
        if is_started(e) or e.loop not in by_scripts or e.loop is None or e.loop.path != e.path
    ]
