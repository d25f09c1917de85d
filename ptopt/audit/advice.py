"""What a measure that is off means: how much it weighs, what to do, when the advice is wrong, and how large the change is."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

from packaging.version import Version

from ptopt.audit.critical import is_measure_critical
from ptopt.audit.frameworks import TRAINERS, argument_added, has_own, with_frameworks
from ptopt.audit.halfprecision import obstacle_places, precision_action
from ptopt.audit.measures.attention import IN_PART, OF_WEIGHTS
from ptopt.audit.measures.copies import BY_ACCELERATE, NOT_PINNED
from ptopt.audit.measures.distributed import DATA_PARALLEL
from ptopt.audit.measures.optimizer import FILLED_BY_HAND, FUSED_ARGUMENT, may_ask_for_foreach
from ptopt.audit.measures.padding import TO_LONGEST, TOKENS
from ptopt.audit.measures.precision import CONVOLVES
from ptopt.audit.measures.saving import NOTHING_SAVED
from ptopt.audit.openconditions import (
    OF_ARRAYS,
    OF_CLASS,
    breaks_its_graph,
    has_arrays,
    has_unpinned_class,
    has_varying_shapes,
    is_half_in_parts,
    open_conditions,
    settled,
)
from ptopt.audit.published import PINNED_COPIES, is_of_other_code, worth
from ptopt.audit.values import EntryPoint, Gap, Kind, Level, Measure, State, measure_of
from ptopt.project.added import ADDED, Added
from ptopt.project.facts import NO_FACTS, ProjectFacts


@dataclass(frozen=True, slots=True)
class Advice:
    level: Level
    action: str
    wrong_if: str
    phase: int  # 1: a line or a flag; 2: an afternoon; 3: larger
    effort: str
    speeds_up: str
    newer: str = ""  # what of the action, by its name in `ptopt.project.added`, an older library lacks
    older: str = ""  # the action without it


_FIRST_STEPS = "The first steps compile: compare later ones."
ADVICE: dict[str, Advice] = {
    "precision": Advice(
        Level.MODERATE,
        'Run the forward pass and the loss under `torch.autocast("cuda", dtype=torch.bfloat16)`, or switch on the option of '
        "the framework (`bf16`, `precision`), and compare the losses of a short run.",
        "the GPU is older than Volta (for bfloat16: than Ampere), the network is small, or the numerics need float32",
        2, "an hour, and a short run to compare the losses", "forward and backward pass",
        "torch.autocast",
        "Run the forward pass and the loss under `torch.cuda.amp.autocast()` and step through a `torch.cuda.amp.GradScaler`, or switch on "
        "the option of the framework (`fp16`, `precision`), and compare the losses of a short run.",
    ),
    "tf32": Advice(
        Level.MODERATE,
        'Let float32 products use TF32: `torch.set_float32_matmul_precision("high")` once at the start.',
        "the GPU is older than Ampere, the results need full float32 precision, or nearly all is convolutions, which use TF32 by default",
        1, "one line", "forward and backward pass",
    ),
    "attention": Advice(
        Level.MODERATE,
        "Compute attention with `torch.nn.functional.scaled_dot_product_attention`, or ask the library for it "
        '(`attn_implementation="sdpa"`).',
        "the attention weights are needed, the bias is of a form that no fused kernel takes, or sequences are short",
        2, "an afternoon, with a test that the outputs agree", "forward and backward pass",
    ),
    "compile": Advice(
        Level.MODERATE,
        f"Wrap the model in `torch.compile`. {_FIRST_STEPS}",
        "shapes change from step to step, the code breaks the graph often, or runs are short",
        2, "an afternoon, with a look at recompilations", "forward and backward pass",
    ),
    "workers": Advice(
        Level.CRITICAL,
        "Give the loader workers: start with 4 a GPU and raise the number while the GPU waits for data.",
        "the data lie in memory and an item costs nothing, or the dataset cannot be used by several processes",
        1, "a flag", "loading of data",
    ),
    "pin_memory": Advice(
        Level.LOW,
        "Set `pin_memory=True` on the training loader, together with `non_blocking=True` on the copies.",
        "the training runs on a CPU, or host memory is short",
        1, "a flag", "copies to the device",
    ),
    "persistent_workers": Advice(
        Level.LOW,
        "Set `persistent_workers=True` on the training loader, so that workers are not started again for each epoch.",
        "there is one epoch, or the dataset changes between epochs",
        1, "a flag", "start of an epoch",
    ),
    "non_blocking": Advice(
        Level.LOW,
        "Copy batches with `non_blocking=True` from pinned memory.",
        "the loader does not pin its memory, or a wait follows at once",
        1, "one line a copy", "copies to the device",
    ),
    "fused_optimizer": Advice(
        Level.LOW,
        "Pass `fused=True` to the optimizer.",
        "parameters are sparse or of a type that the fused kernel does not take",
        1, "a flag", "update of the parameters",
    ),
    "set_to_none": Advice(
        Level.LOW,
        "Let `zero_grad()` set the gradients to None: the default from torch 2.0 on, before it `zero_grad(set_to_none=True)`.",
        "code reads `.grad` of parameters that got none",
        1, "a flag", "update of the parameters",
    ),
    "channels_last": Advice(
        Level.LOW,
        "Convert the model and the inputs of its convolutions, which need four dimensions for it, with "
        "`.to(memory_format=torch.channels_last)`, together with mixed precision.",
        "the network trains in float32, or uses operations without a channels_last kernel",
        2, "an hour", "forward and backward pass",
    ),
    "cudnn_benchmark": Advice(
        Level.LOW,
        "Set `torch.backends.cudnn.benchmark = True` where the shapes of the inputs stay the same.",
        "shapes change from step to step, or runs have to be reproducible to the bit",
        1, "one line", "forward and backward pass",
    ),
    "evaluation": Advice(
        Level.MODERATE,
        "Put `@torch.inference_mode()` or `@torch.no_grad()` on the evaluation.",
        "the evaluation needs gradients",
        1, "one line", "evaluation",
        "inference_mode", "Put `@torch.no_grad()` on the evaluation.",
    ),
    "distributed": Advice(
        Level.MODERATE,
        "Replace `DataParallel` by `DistributedDataParallel` started with `torchrun`: one process a GPU.",
        "there is one GPU only",
        3, "one to three days: launching, samplers, logging and checkpoints change", "all of the step, on several GPUs",
        "torchrun",
        "Replace `DataParallel` by `DistributedDataParallel` started with `python -m torch.distributed.launch`: one process a GPU.",
    ),
    "padding": Advice(
        Level.MODERATE,
        "Pad each batch to its longest sequence, group by length, or pack sequences.",
        "lengths hardly differ, the text is a small part of the step, or static shapes are needed (`torch.compile`, CUDA graphs)",
        2, "an afternoon", "forward and backward pass",
    ),
    "saving": Advice(
        Level.LOW,
        "Save a checkpoint at intervals: a job that is preempted starts from the beginning otherwise.",
        "runs are short",
        2, "an afternoon", "time lost by a failure",
    ),
    "monitoring": Advice(
        Level.LOW,
        "Log throughput and GPU utilisation, and profile some steps with `torch.profiler` before larger changes.",
        "somebody watches the runs by other means",
        2, "an hour", "no step by itself, but shows what to do next",
        "torch.profiler",
        "Log throughput and GPU utilisation, and profile some steps with `torch.autograd.profiler` before larger changes.",
    ),
}  # fmt: skip

HAS_OPTION = "The code has an option for it"  # as an action begins then
_MOST_PLACES = 6
_BEFORE_AMPERE = frozenset({Kind.NO_BFLOAT16, Kind.NO_TENSOR_CORES})  # GPUs without TF32
_FEW_TOKENS = 64  # such as of a caption: what is saved by shorter ones is little
_OPTION_OF_FRAMEWORK = re.compile(r", or switch on the option of the framework \(`\w+`, `\w+`\)")
_CLASS = re.compile(r"`([A-Z]\w+)`")
_SET_BY_HAND = "Where the code fills gradients with zeros, set them to None: `parameter.grad = None` for `parameter.grad.zero_()`."
_PACK = "Pack sequences: set `packing=True` in the training arguments, or group by length."
_COMPILE_PARTS = (
    "The network reads values of its tensors in Python, where a compiled graph ends: wrap its parts that read none "
    "in `torch.compile`, not all of it."
)
_OF_SHAPES = " Shapes vary with such a value: ask for dynamic ones (`dynamic=True`) behind it."
_GIVE_UP_WEIGHTS = (
    "Call `nn.MultiheadAttention` with `need_weights=False` where nothing reads the weights that it returns: it then takes "
    "`scaled_dot_product_attention`."
)
_ASK_LIBRARY = ', or ask the library for it (`attn_implementation="sdpa"`)'
_OF_TRANSFORMERS = re.compile(r"transformers|attn_implementation")
# Measures whose advice is code to write: where an option switches it on, that code is there already.
_HAVE_OPTIONS = frozenset({"precision", "attention", "compile", "channels_last", "monitoring"})
# `--amp`, or `amp` of a configuration: what a row names as the reason why a measure that the code has is off
_OPTION = re.compile(r"(?:: off, |\()(?:default of )?(`[-\w]+`(?: of [^\s,;()]+)?)\)?$")
# A model may also say that there is none.
_DATA_PARALLEL = re.compile(r"^(?!.*\b(no|not|nor|neither|without)\b).*(?<!\w)DataParallel", re.I)


_OF_ACCELERATE = (
    "Pass `dataloader_config=DataLoaderConfiguration(non_blocking=True)` (of `accelerate.utils`) to `Accelerator`, with "
    "`pin_memory=True` on the loader: it makes the copies."
)
# Measure -> what its advice cannot do without, by its name in `ptopt.project.added`.
NEEDS = {
    "precision": "torch.cuda.amp", "tf32": "set_float32_matmul_precision", "attention": "scaled_dot_product_attention",
    "compile": "torch.compile", "persistent_workers": "persistent_workers", "fused_optimizer": "fused=True",
    "set_to_none": "set_to_none", "channels_last": "torch.channels_last",
}  # fmt: skip


def _is_too_new(key: str, facts: ProjectFacts) -> bool:
    """Does no version that the project admits have what the advice needs?"""
    added = ADDED.get(NEEDS.get(key, ""))
    return added is not None and facts.excludes(added.package, added.version)


def too_new(entries: tuple[EntryPoint, ...], facts: ProjectFacts) -> tuple[str, ...]:
    """What is left out because the project pins a torch that does not have it, in words."""
    left_out = dict.fromkeys(
        measure.title
        for entry in entries
        for measure in entry.measures
        if _is_too_new(measure.key, facts) and is_gap(entry, measure)
    )
    if not left_out:
        return ()
    return (f"Left out, as the project needs {facts.span('torch')}: {', '.join(left_out)}.",)


def gaps(
    entries: tuple[EntryPoint, ...],
    facts: ProjectFacts = NO_FACTS,
    not_yet: Mapping[str, Collection[str]] = MappingProxyType({}),
) -> tuple[Gap, ...]:
    """The measures that are off somewhere, the heaviest first, then those of the most scripts: one for the scripts in which it
    weighs the same.

    What the torch that the project pins does not have is none, and neither is what `not_yet` names of a script.
    """
    found = []
    for key in ADVICE:
        if _is_too_new(key, facts):
            continue
        missing = [
            (entry, m)
            for entry in entries
            if key not in not_yet.get(entry.path, ())
            and (m := measure_of(entry, key)) is not None
            and is_gap(entry, m)
        ]
        if not missing:
            continue
        alike: defaultdict[tuple[Level, bool, bool], list[tuple[EntryPoint, Measure]]] = defaultdict(list)
        for entry, measure in missing:
            by_hand = (
                measure.detail == FILLED_BY_HAND
            )  # another line to change than where an optimizer is asked
            pads_little = key == "padding" and TO_LONGEST in measure.detail
            other = pads_little or (key == "compile" and breaks_its_graph(entry))
            alike[_level(key, entry, entries), by_hand, other].append((entry, measure))
        found += [_gap(key, level, some, facts, by_hand) for (level, by_hand, _), some in alike.items()]
    order = list(Level)
    return tuple(sorted(found, key=lambda gap: (order.index(gap.level), -len(gap.entries))))


def _gap(
    key: str, level: Level, missing: Sequence[tuple[EntryPoint, Measure]], facts: ProjectFacts, by_hand: bool
) -> Gap:
    """What weighs the same in some scripts, and is changed in the same way."""
    advice = ADVICE[key]
    if by_hand:
        advice = replace(advice, action=_SET_BY_HAND, effort="one line")
    places = tuple(dict.fromkeys(place for _, m in missing for place in m.evidence))
    paths = tuple(dict.fromkeys(entry.path for entry, _ in missing))
    options = [match and match[1] for _, m in missing for match in (_OPTION.search(m.detail),)]
    if key == "non_blocking":
        advice = replace(advice, action=_action_of_copies(advice.action, [m for _, m in missing]))
    if key == "fused_optimizer":
        advice = replace(advice, action=_action_of_optimizer(advice.action, [m for _, m in missing]))
    if key == "compile" and all(breaks_its_graph(entry) for entry, _ in missing):
        shapes = _OF_SHAPES if all(has_varying_shapes(entry) for entry, _ in missing) else ""
        advice = replace(advice, action=f"{_COMPILE_PARTS}{shapes} {_FIRST_STEPS}")
    if key == "attention" and all(OF_WEIGHTS in m.detail for _, m in missing):
        advice = replace(advice, action=_GIVE_UP_WEIGHTS, effort="a line a call")
    if key == "padding" and all(TO_LONGEST in m.detail for _, m in missing):
        advice = replace(advice, action=_PACK)
    entries = [entry for entry, _ in missing]
    if key == "pin_memory" and all(map(has_unpinned_class, entries)):
        advice = replace(advice, action=OF_CLASS, effort="a few lines")
    elif key == "pin_memory" and all(map(has_arrays, entries)):
        advice = replace(advice, action=OF_ARRAYS, effort="a few lines")
    elif key == "pin_memory":
        advice = replace(advice, action=_action_of_pinning(advice.action, entries))
    action = _action(advice, missing, facts)
    action = _without_others(key, action, missing)
    if not by_hand:
        action += _condition(key, missing, facts)
    if key == "precision":
        action = precision_action(action, entries, facts)
        places = tuple(dict.fromkeys((*places[: _MOST_PLACES // 2], *obstacle_places(entries), *places)))
    one_option = bool(options) and options[0] and set(options) == {options[0]}
    if key in _HAVE_OPTIONS and one_option and not has_own(key, entries):
        action = f"{HAS_OPTION}, {options[0]}, which is off: try that first. Otherwise: {action}"
    return Gap(
        key, missing[0][1].title, level, action + settled(key, entries), open_conditions(key, advice.wrong_if, entries), paths, places[:_MOST_PLACES],
        () if is_of_other_code(key, entries) else worth(_figure_of(key, missing)),
        other_figures=is_of_other_code(key, entries), effort=advice.effort,
    )  # fmt: skip


def _action_of_copies(action: str, measures: Sequence[Measure]) -> str:
    """Where Accelerate makes the copies, what it is asked by."""
    by_accelerate = [BY_ACCELERATE in measure.detail for measure in measures]
    if not any(by_accelerate):
        return action
    return _OF_ACCELERATE if all(by_accelerate) else f"{action} With Accelerate: {_OF_ACCELERATE}"


def _action_of_pinning(action: str, entries: Sequence[EntryPoint]) -> str:
    """Where the copies have `non_blocking=True` already, without it."""
    asked = [(row := measure_of(entry, "non_blocking")) and NOT_PINNED in row.detail for entry in entries]
    if not any(asked):
        return action
    if all(asked):
        return "Set `pin_memory=True` on the training loader: without it, `non_blocking=True` of the copies has no effect."
    return action.replace("on the copies.", "on the copies that lack it.")


def _action_of_optimizer(action: str, measures: Sequence[Measure]) -> str:
    """Where the call asks for the multi-tensor update, that this has to go: torch raises where both are asked for."""
    asked = [may_ask_for_foreach(measure.detail) for measure in measures]
    if not any(asked):
        return action
    where = "" if all(asked) else " where the call has it"
    return f"{action.rstrip('.')} in place of `foreach`{where}: torch raises where both are true."


def _figure_of(key: str, missing: Sequence[tuple[EntryPoint, Measure]]) -> str:
    """Which figure holds: copies gain less where all loaders of these scripts pin their batches."""
    pins = [measure_of(entry, "pin_memory") for entry, _ in missing]
    pinned = key == "non_blocking" and all(row is not None and row.state is State.ON for row in pins)
    return PINNED_COPIES if pinned else key


def _action(advice: Advice, missing: Sequence[tuple[EntryPoint, Measure]], facts: ProjectFacts) -> str:
    """What to do, for what the rows say: where a library is too old everywhere, to take a newer one first, or what it has."""
    newer = ADDED[advice.newer] if advice.newer else None
    is_old = newer is not None and facts.excludes(newer.package, newer.version)
    said = advice.older if is_old else advice.action
    action = with_frameworks(missing[0][1].key, said, [entry for entry, _ in missing], facts)
    lacking = [measure.lacking for _, measure in missing if measure.lacking is not None]
    if len(lacking) == len(missing):
        first = max(lacking, key=lambda added: Version(added.version))
        return f"Use {first.package} {first.version} or later. Then: {action}"
    return action


def _without_others(key: str, action: str, missing: Sequence[tuple[EntryPoint, Measure]]) -> str:
    """Without the option of a framework or of a library where the scripts have none that takes it."""
    if key == "precision" and all(
        entry.framework == "PyTorch" or has_own(key, [entry]) for entry, _ in missing
    ):
        return _OPTION_OF_FRAMEWORK.sub("", action)
    if key == "attention" and not any(
        entry.framework in TRAINERS or _OF_TRANSFORMERS.search(m.detail) for entry, m in missing
    ):
        return action.replace(_ASK_LIBRARY, "")
    return action


def _condition(key: str, missing: Sequence[tuple[EntryPoint, Measure]], facts: ProjectFacts) -> str:
    """Which version the advice needs, where the project may run with an older one: " It needs torch 2.0: ..."; else ""."""
    measures = [measure for _, measure in missing]
    of_trainer = argument_added(key, [entry for entry, _ in missing])
    added = ADDED.get(NEEDS.get(key, ""))
    newer = ADDED.get(
        ADVICE[key].newer
    )  # where no version of the project has it, the action is the older one
    if newer is not None and not facts.excludes(newer.package, newer.version):
        added = newer
    if key == "non_blocking" and any(BY_ACCELERATE in measure.detail for measure in measures):
        added = ADDED["DataLoaderConfiguration(non_blocking=True)"]
    if key == "fused_optimizer":
        classes = {match[1] for m in measures for match in _CLASS.finditer(m.detail)}
        named = [FUSED_ARGUMENT[name] for name in classes if name in FUSED_ARGUMENT]
        added = max(named, key=lambda each: Version(each.version), default=added)
    # Without an argument in any version the row says so, and the action begins with it.
    argument = "" if any(measure.lacking for measure in measures) else _needs(of_trainer, facts)
    return _needs(added, facts) + argument


def _needs(added: Added | None, facts: ProjectFacts) -> str:
    if added is None or facts.at_least(added.package, added.version) is not False:
        return ""
    said = facts.describe(added.package)
    open_ = f"the project names {said}" if facts.only_named(added.package) else f"{said} admits older ones"
    return f" It needs {added.package} {added.version} or later: {open_}."


def _level(key: str, entry: EntryPoint, entries: Sequence[EntryPoint]) -> Level:
    """The level of the advice, one less where it is not known to make most of the cost; low where the script trains nothing."""
    if entry.trial:
        return Level.LOW
    if key == "compile" and breaks_its_graph(entry):
        return Level.LOW
    if key == "tf32" and (_convolves_only(entry) or is_half_in_parts(entry)):
        return Level.LOW
    if key == "attention" and (row := measure_of(entry, key)) is not None and IN_PART in row.detail:
        return Level.LOW
    if key == "padding" and (row := measure_of(entry, key)) is not None and _are_few_tokens(row):
        return Level.LOW
    if is_measure_critical(key, entry, entries):
        return Level.CRITICAL
    return Level.MODERATE if ADVICE[key].level is Level.CRITICAL else ADVICE[key].level


def _convolves_only(entry: EntryPoint) -> bool:
    """Are there convolutions, which use TF32 by default, and no attention?"""
    convolves, attends = measure_of(entry, "channels_last"), measure_of(entry, "attention")
    return (
        convolves is not None
        and convolves.state in (State.ON, State.OFF)
        and attends is not None
        and attends.state is State.NOT_APPLICABLE
    )


def _are_few_tokens(row: Measure) -> bool:
    match = TOKENS.search(row.detail)
    return match is not None and int(match[1]) <= _FEW_TOKENS


def is_gap(entry: EntryPoint, measure: Measure) -> bool:
    """Is it off, and would it help beside what is on?"""
    if measure.state is not State.OFF:
        return False
    if measure.key == "tf32":  # mixed precision takes the products away from float32 already
        precision = measure_of(entry, "precision")
        lacks = any(obstacle.kind in _BEFORE_AMPERE for obstacle in entry.obstacles)
        needless = lacks or CONVOLVES in measure.detail
        full = precision is None or precision.state is State.OFF or is_half_in_parts(entry)
        return full and not needless
    if measure.key == "distributed":
        if measure.by_model:
            return _DATA_PARALLEL.search(measure.detail) is not None
        return measure.detail.startswith(DATA_PARALLEL)
    if measure.key == "saving":
        # not where an option of the command line names the folder
        return (measure.by_model or measure.detail == NOTHING_SAVED) and not entry.trial
    if measure.key == "non_blocking":
        pinned = measure_of(entry, "pin_memory")
        if NOT_PINNED in measure.detail:  # pinning is what is to be done
            return False
        return pinned is None or pinned.state is not State.NOT_APPLICABLE
    return measure.key in ADVICE
