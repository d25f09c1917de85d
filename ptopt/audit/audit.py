"""The audit, on one page: entry points, their measures, the findings of the review, gaps, what is good, a plan."""

from __future__ import annotations

import ast
import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from ptopt.audit.absent import imported_from_above
from ptopt.audit.advice import gaps, too_new
from ptopt.audit.classnames import names_in_texts
from ptopt.audit.commands import Commands
from ptopt.audit.composed import composed
from ptopt.audit.configured import Configured, Read, read_all
from ptopt.audit.documented import documented
from ptopt.audit.engines import handed_to_deepspeed
from ptopt.audit.entries import (
    MOST_CANDIDATES,
    Start,
    candidates,
    left_to_options,
    lone_step,
    main_line,
    may_train,
    only_uses,
    starts_something,
    training_start,
)
from ptopt.audit.evaluate import Evaluator
from ptopt.audit.launches import Launch, launches, of_script
from ptopt.audit.live import Live
from ptopt.audit.measures import TOO_MUCH_WORK, measures_of
from ptopt.audit.modules import Module, Modules
from ptopt.audit.nearest import NearestFacts
from ptopt.audit.obstacles import obstacles
from ptopt.audit.oldtorch import old_torch
from ptopt.audit.options import Options
from ptopt.audit.plan import good, how_to_read, plan
from ptopt.audit.reach import MOST_MODULES
from ptopt.audit.setup import READ, Setup
from ptopt.audit.signs import reached, signs_of
from ptopt.audit.summaries import Summaries
from ptopt.audit.tensors import fits_tensors
from ptopt.audit.trials import is_trial, without_trials
from ptopt.audit.values import Audit, EntryPoint, Level, State
from ptopt.audit.weigh import each_once, folded, is_in_table, is_switched_off, weighed, with_findings
from ptopt.configs.values import Document
from ptopt.findings import Review
from ptopt.pathkind import PYTHON
from ptopt.project.facts import ProjectFacts
from ptopt.project.pins import Pin
from ptopt.project.removed import lowest, newest
from ptopt.source.work import WorkLimitError, limited, no_cycle_collection

_ON_DEVICE = ("device-move-in-dataset",)
# Of tensors on a GPU they fail.
_NEEDS_HOST_DATA = frozenset({"workers", "pin_memory", "persistent_workers", "prefetch"})
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


def audit(name: str, scripts: Scripts, facts: ProjectFacts, review: Review, sure: float) -> Audit:
    """The audit of a repository.

    `review`: of its files, whole. `sure`: the confidence from which a review would comment.
    """
    entries = scripts.entries
    facts = facts.capped(_bounds_of_all(entries))
    found = folded(
        sorted(
            (
                weighed(f, sure, entries)
                for f in review.findings
                if not is_in_table(f, entries) and not is_switched_off(f, entries)
            ),
            key=lambda w: (list(Level).index(w.level), -w.finding.confidence, w.finding.sort_key()),
        )
    )
    missing, found = each_once(gaps(entries, facts, _not_yet(entries, review)), found)
    corrected = tuple(with_findings(entry, review.findings, sure) for entry in entries)
    return Audit(
        name=name,
        files=scripts.files,
        entries=corrected,
        findings=found,
        gaps=missing,
        good=good(corrected),
        plan=plan(missing, found, (f for f in review.findings if is_in_table(f, entries))),
        notes=(*how_to_read(missing), *too_new(entries, facts)),
        not_judged=(*scripts.lost, *_unknown(entries)),
        outside=scripts.outside,
        not_reviewed=review.not_reviewed,
    )


def _bounds_of_all(entries: tuple[EntryPoint, ...]) -> list[Pin]:
    """The newest versions that imports admit in every script: of each package the newest of them."""
    each = [lowest(entry.bounds) for entry in entries]
    shared = set.intersection(*map(set, each)) if each else set()
    return [max((bounds[package] for bounds in each), key=newest) for package in sorted(shared)]


def _not_yet(entries: tuple[EntryPoint, ...], review: Review) -> dict[str, frozenset[str]]:
    """Script -> measures that fail there until something else is changed: its datasets give tensors on the device."""
    there = {finding.path for finding in review.findings if finding.name in _ON_DEVICE}
    return {entry.path: _NEEDS_HOST_DATA for entry in entries if there & {entry.path, *entry.modules}}


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

    `outside` is given the other scripts that import a module of the folders above, each with its name. `part`: as `training_scripts` has it.
    """
    modules = Modules(files, facts.root, texts)
    summaries = Summaries(modules)
    entries: list[EntryPoint] = []
    lost: list[str] = []
    missed: list[str] = []  # scripts that may train, for where none is found that does
    optional: list[str] = []  # those that train where an option says so
    looked_at = candidates(modules, scripts)
    read: Read = {}
    more = late = 0
    left = AUDIT_WORK
    for path in looked_at:
        module = modules.parse(path)
        if module is None:
            lost.append(f"{path}: {_why_unread(files[path], modules.unread[path])}")
            continue
        if not starts_something(module) and path not in scripts:
            continue
        if len(entries) >= MOST_ENTRIES:
            more += 1
            continue
        if left <= 0:
            late += 1
            continue
        with limited(min(ENTRY_WORK, left)) as account:
            try:
                configured = Configured(configurations, path, composed(configurations, module), read)
                live = Live(modules, module, summaries, configured.targets, configured.classes)
                commands = of_script(started, path, modules.files)
                by_default = Evaluator(live, live.once(Options))
                start = training_start(live, by_default)
                if start is None and (option := left_to_options(live, by_default)):
                    start, commands = _by_commands(live, commands, configured)
                    if start is None:
                        optional.append(f"{path}: it trains where an option says so, and not by the {option}")
                elif start is None and outside is not None and (name := imported_from_above(live, above)):
                    outside[path] = name
                elif start is None and (reason := may_train(live)):
                    missed.append(f"{path}: {reason}")
                elif start is None and (step := lone_step(live, by_default)) is not None:
                    lost.append(_without_backward(path, *step))
                if start is None or only_uses(live, start):
                    pass
                elif start[0] == "PyTorch" and fits_tensors(live):
                    lost.append(f"{path}: it fits tensors by their gradients, and trains no network")
                else:
                    entries.append(_entry(live, start, facts.of(path, commands), commands, configured))
            except (WorkLimitError, RecursionError):
                lost.append(f"{path}: {TOO_MUCH_WORK}")
        left -= account.spent
    entries, trials = without_trials(_without_bare(entries, started))
    lost += trials
    if not entries:
        missed = [*optional, *missed]
    elif part:  # the command that says so may lie elsewhere
        missed = optional
    else:
        missed = []
    lost += missed[:_LISTED]
    if more:
        lost.append(f"{more} more scripts: the first {MOST_ENTRIES} that train were judged")
    if late:
        lost.append(f"{late} more scripts: the analysis limit of one audit was reached")
    if len(looked_at) == MOST_CANDIDATES:
        lost.append(f"only the {MOST_CANDIDATES} scripts that look most like a training were looked at")
    return tuple(entries), lost


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
        start = training_start(live, _evaluator(live, (command,), configured))
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


def _entry(
    live: Live,
    start: Start,
    facts: ProjectFacts,
    commands: tuple[Launch, ...],
    configured: Configured,
) -> EntryPoint:
    framework, module, call = start
    modules = live.modules
    evaluator = _evaluator(live, commands, configured)
    runs = evaluator.runs(call, module)
    if runs.differs or runs.truth is False:
        trains = tuple(c for c in commands if not _starts_other_work(live, start, c, configured))
        if trains and len(trains) < len(commands):
            commands = trains
            evaluator = _evaluator(live, commands, configured)
    bounds = (*modules.bounds(live.start, live.read), *old_torch(live, evaluator))
    facts = facts.capped(bounds)
    if framework == "PyTorch" and handed_to_deepspeed(live, evaluator):
        framework = "DeepSpeed"
    setup = Setup(live, evaluator, facts, framework, commands, configured, (module, call))
    limits = []
    if live.truncated:
        limits.append(f"it imports more than {MOST_MODULES} modules of the repository; the rest was not read")
    for other, node in live.dynamic[:2]:
        limits.append(f"classes are found by name at {setup.place(other, node)}")
    unread = sorted(set(modules.unread) & setup.wanted)[:2]
    limits += [f"{path} could not be read: {modules.unread[path]}" for path in unread]
    measures = measures_of(setup)
    if any(measure.detail == TOO_MUCH_WORK for measure in measures):
        limits.append(f"{TOO_MUCH_WORK}: rows that say so were not judged")
    functions = reached(setup)
    return EntryPoint(
        live.start.path, main_line(live.start), framework, setup.place(module, call), len(live.read),
        measures, tuple(limits), is_trial(setup, measures), modules=frozenset(m.path for m in live.read.values()),
        signs=signs_of(setup), reached=frozenset(functions),
        certain=frozenset(lines for lines, runs in functions.items() if runs is True),
        idle=frozenset(lines for lines, runs in functions.items() if runs is False),
        obstacles=obstacles(setup), bounds=bounds,
        commands=len({command.place for command in commands if not command.evaluates}),
    )  # fmt: skip


def _evaluator(live: Live, commands: tuple[Launch, ...], configured: Configured) -> Evaluator:
    options = live.once(Options)
    return Evaluator(live, options, configured, Commands(commands, configured, options, live.start.path))


def _starts_other_work(live: Live, start: Start, command: Launch, configured: Configured) -> bool:
    """Does the command keep the script from training: `--mode animate`?"""
    _, module, call = start
    return _evaluator(live, (command,), configured).runs(call, module).truth is False


def _unknown(entries: tuple[EntryPoint, ...]) -> list[str]:
    """The rows that are unknown, by measure: where the answer lies."""
    found: dict[tuple[str, str], list[str]] = {}
    foreign = [entry for entry in entries if entry.framework not in READ]
    for entry in entries:
        for measure in () if entry in foreign else entry.measures:
            if measure.state is State.UNKNOWN:
                found.setdefault((measure.title, measure.detail), []).append(entry.path)
    lines = [f"{entry.path}: {entry.framework} runs the training, and is not read" for entry in foreign]
    for (title, detail), paths in found.items():
        names = ", ".join(list(dict.fromkeys(paths))[:4]) + (
            f" and {len(set(paths)) - 4} more" if len(set(paths)) > 4 else ""
        )
        lines.append(f"{title} of {names}: {detail}")
    rest = len(lines) - _LISTED
    return [*lines[:_LISTED], *([f"and {rest} more rows of the tables that are unknown"] if rest > 0 else [])]
