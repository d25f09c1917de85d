"""One script that trains: the rows of its table, and what else the audit asks of it."""

from __future__ import annotations

from ptopt.audit.commands import Commands
from ptopt.audit.configured import Configured
from ptopt.audit.engines import handed_to_deepspeed
from ptopt.audit.entries import Start, main_line
from ptopt.audit.evaluate import Evaluator
from ptopt.audit.launches import Launch
from ptopt.audit.live import Live
from ptopt.audit.measures import TOO_MUCH_WORK, measures_of
from ptopt.audit.obstacles import obstacles
from ptopt.audit.oldtorch import old_torch
from ptopt.audit.options import Options
from ptopt.audit.reach import MOST_MODULES
from ptopt.audit.setup import Setup
from ptopt.audit.signs import reached, signs_of
from ptopt.audit.trials import is_trial
from ptopt.audit.values import EntryPoint
from ptopt.project.facts import ProjectFacts


def entry_of(
    live: Live,
    start: Start,
    facts: ProjectFacts,
    commands: tuple[Launch, ...],
    configured: Configured,
) -> EntryPoint:
    """The table of a script whose training begins at `start`, as `commands` start it."""
    framework, module, call = start
    modules = live.modules
    evaluator = evaluator_of(live, commands, configured)
    runs = evaluator.runs(call, module)
    if runs.differs or runs.truth is False:
        trains = tuple(c for c in commands if not _starts_other_work(live, start, c, configured))
        if trains and len(trains) < len(commands):
            commands = trains
            evaluator = evaluator_of(live, commands, configured)
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


def evaluator_of(live: Live, commands: tuple[Launch, ...], configured: Configured) -> Evaluator:
    """What expressions of a script come to where these commands start it."""
    options = live.once(Options)
    return Evaluator(live, options, configured, Commands(commands, configured, options, live.start.path))


def _starts_other_work(live: Live, start: Start, command: Launch, configured: Configured) -> bool:
    """Does the command keep the script from training: `--mode animate`?"""
    _, module, call = start
    return evaluator_of(live, (command,), configured).runs(call, module).truth is False
