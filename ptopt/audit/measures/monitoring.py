"""Experiment trackers and profilers."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import replace

from ptopt.audit.arguments import TrainerArguments
from ptopt.audit.calling import lineage
from ptopt.audit.foreign import calls_of
from ptopt.audit.modules import Module, qualified
from ptopt.audit.setup import Candidate, Setup
from ptopt.audit.values import Measure, Place, State

_REPORT_THEMSELVES = ("transformers", "TRL", "Lightning")  # to what is installed
_LOGGER = re.compile(r"^(?!Dummy)\w+Logger$")
_OF_LIGHTNING = re.compile(r"^(pytorch_)?lightning\.(\w+\.)*loggers\.")
_TF_WRITER = re.compile(r"tensorflow\.(\w+\.)*summary\.\w+$")
_TORCH_WRITER = re.compile(r"(torch|tensorboardX)\b.*\bSummaryWriter$")
_OF_TENSORBOARD = frozenset({"tensorboard_logger", "tensorboardX", "tensorboard"})
_MONITORS = {
    "wandb": "Weights & Biases", "tensorboard": "TensorBoard", "tensorboardX": "TensorBoard", "tensorboard_logger": "TensorBoard",
    "mlflow": "MLflow", "neptune": "Neptune", "comet_ml": "Comet", "aim": "Aim", "swanlab": "SwanLab", "clearml": "ClearML",
    "visdom": "Visdom", "sacred": "Sacred",
}  # fmt: skip
# Classes of frameworks that are not read: `reporters.TensorboardReporter`, `WandBLogger`, `TensorBoard`.
_OF_FRAMEWORKS = re.compile(
    r"\.(?P<tracker>tensorboard|wandb|mlflow|neptune|comet|clearml|visdom)(Reporter|Logger|Callback)?$", re.I
)


def _place(place: Place | None) -> tuple[Place, ...]:
    return () if place is None else (place,)


def monitoring(setup: Setup) -> Measure:
    key, title = "monitoring", "Monitoring and profiling"
    if setup.framework == "Lightning" and setup.configured.is_composed:
        chosen = [t for t in setup.configured.targets if str(t.value).endswith("Logger")]
        if chosen:
            shown = ", ".join(str(t.value).rpartition(".")[2] for t in chosen)
            return Measure(key, title, State.ON, shown, tuple(t.place for t in chosen)[:4])
        made = [
            setup.site(module, call, f"`{qualified(module, call.func).rpartition('.')[2]}`")
            for module, call in setup.named(_LOGGER)
            if _OF_LIGHTNING.search(setup.qualified(module, call.func))
        ]
        if made:
            return setup.decide(key, title, made, "")
        return Measure(key, title, State.OFF, "no logger is chosen by default", setup.where())
    if (tracker := _tracker_of_accelerate(setup)) is not None:
        return tracker
    uses = _uses_of_monitors(setup)
    names = sorted(
        {name for name, used in uses.items() if any(c.value.truth is not False for c in used) or not used}
    )
    profilers = [
        (module, call)
        for module, call in setup.calls("profile", "profiler")
        if setup.qualified(module, call.func).startswith("torch.profiler")
        and setup.runs(module, call).truth is not False
    ]
    if profilers:
        names.append("torch.profiler")
    places = [c.place for used in uses.values() for c in used if c.value.truth is not False]
    places += [setup.place(m, c) for m, c in profilers]
    places = places or _places_of_imported(setup, names)
    if names:
        sure = [c for used in uses.values() for c in used if c.value.truth is not None]
        undecided = [
            c
            for used in uses.values()
            for c in used
            if c.value.truth is None and c.value.choices == () and not c.value.environment
        ]
        if undecided and not sure and not profilers:
            return setup.decide(key, title, undecided[:4], "")
        return Measure(key, title, State.ON, ", ".join(names), tuple(places)[:4] or setup.where())
    if uses:
        # The first of each: which of them an option would start.
        every = [replace(c, detail=", ".join(sorted(uses))) for used in uses.values() for c in used[:1]]
        return setup.decide(key, title, every, "")
    if setup.framework == "Lightning":
        return Measure(key, title, State.ON, "the logger of Lightning", setup.where())
    if setup.blind:
        return Measure(key, title, State.UNKNOWN, f"not seen; {setup.blind}", setup.where())
    if setup.framework in ("transformers", "TRL"):
        value = TrainerArguments(setup).of("report_to")
        if value.known:
            off = value.value in ("none", None, ())
            shown = f"`report_to` is {value.value}"
            return Measure(key, title, State.OFF if off else State.ON, shown, _place(value.place))
        if "default of" not in value.note:  # what is installed decides it only where nothing is given
            return Measure(key, title, State.UNKNOWN, f"`report_to`: {value.note}", _place(value.place))
    if setup.framework in _REPORT_THEMSELVES:
        return Measure(
            key, title, State.UNKNOWN, f"{setup.framework} reports to what is installed", setup.where()
        )
    if setup.framework in ("Accelerate",) and setup.calls("init_trackers"):
        return Measure(
            key, title, State.ON, "trackers of Accelerate", (setup.place(*setup.calls("init_trackers")[0]),)
        )
    return Measure(key, title, State.OFF, "no experiment tracker and no profiler", setup.where())


def _tracker_of_accelerate(setup: Setup) -> Measure | None:
    """`Accelerator(log_with=args.report_to)`, where the option has one value; None of others."""
    if setup.framework != "Accelerate" or not setup.calls("init_trackers"):
        return None
    for module, call in setup.calls("Accelerator"):
        given = setup.keyword(call, "log_with")
        value = setup.value(module, given) if given is not None else None
        name = _MONITORS.get(str(value.value)) if value is not None and value.known else None
        if name is not None and value is not None and value.note:
            places = (setup.place(module, call), *_place(value.place))
            return Measure(
                "monitoring", "Monitoring and profiling", State.ON, f"{name} ({value.note})", places
            )
    return None


def _places_of_imported(setup: Setup, names: list[str]) -> list[Place]:
    """Where trackers are started or called of which only an import was seen: by Accelerate, or for a picture."""
    calls = [(m, c) for m, c in setup.calls("init_trackers") if setup.framework == "Accelerate"]
    calls += [(m, c) for m, c, package in setup.live.found(_monitor) if _MONITORS.get(package) in names]
    return [setup.place(*pair) for pair in calls if setup.runs(*pair).truth is not False]


def _uses_of_monitors(setup: Setup) -> dict[str, list[Candidate]]:
    """Tracker -> the places where it is started; none where it is only imported."""
    uses: dict[str, list[Candidate]] = {_MONITORS[p]: [] for p in sorted(setup.packages) if p in _MONITORS}
    for module, call in [*setup.calls("SummaryWriter"), *_writers_of_repository(setup)]:
        uses.setdefault("TensorBoard", []).append(setup.site(module, call, "TensorBoard"))
    for module, call in setup.calls("FileWriter", "create_file_writer"):  # of TensorFlow 1 and 2
        if _TF_WRITER.match(setup.qualified(module, call.func)):
            uses.setdefault("TensorBoard", []).append(setup.site(module, call, "TensorBoard"))
    for module, call in setup.calls(
        "init", "start_run", "Experiment", "set_experiment", "Run", "log", "Logger"
    ):
        root = _package(setup, module, call)
        if root in _MONITORS:
            uses.setdefault(_MONITORS[root], []).append(setup.site(module, call, _MONITORS[root]))
    for module, call, name in calls_of(setup.live, setup.framework):
        if named := _OF_FRAMEWORKS.search(name):
            package = named["tracker"].lower()
            tracker = _MONITORS["comet_ml" if package == "comet" else package]
            uses.setdefault(tracker, []).append(setup.site(module, call, tracker))
    for module in setup.live.read.values():
        for plain in module.file.index.of_type(ast.Import):
            name = _MONITORS.get(plain.names[0].name.partition(".")[0], "")
            within = module.file.index.function_of(plain) is not None
            if name in uses and not uses[name] and within and setup.live.runs(module, plain):
                uses[name].append(setup.site(module, plain, name))
    for name in [n for n, used in uses.items() if not used]:
        if (name == "TensorBoard" and not _is_used(setup)) or not _is_imported(setup, name):
            del uses[name]
    return uses


def _writers_of_repository(setup: Setup) -> Iterator[tuple[Module, ast.Call]]:
    """`Writer(folder)` of `class Writer(SummaryWriter)`, in the repository"""
    for cls, module in setup.live.classes.items():
        bases = [(m, base) for m, each in lineage(setup.live, module, cls) for base in each.bases]
        if any(_TORCH_WRITER.match(setup.qualified(m, base)) for m, base in bases):
            for other, node in setup.live.sites.get(cls):
                made = other.file.index.parent(node)
                if isinstance(made, ast.Call) and made.func is node:
                    yield other, made


def _package(setup: Setup, module: Module, call: ast.Call) -> str:
    """`wandb` of `wandb.init()`, and of `self.wandb.init()` in a class that imports it among its attributes."""
    root, _, rest = setup.qualified(module, call.func).partition(".")
    cls = module.file.index.class_of(call) if root == "self" else None
    name = rest.partition(".")[0]
    if cls is None or name not in _MONITORS:
        return root
    held = [
        alias.asname or alias.name
        for node in cls.body
        if isinstance(node, ast.Import)
        for alias in node.names
    ]
    return name if name in held else root


def _is_imported(setup: Setup, name: str) -> bool:
    """Does an import of the tracker run, of the script itself or of a module of which what runs calls it?

    A module from which a script takes something else may import a tracker for its own training.
    """
    importing: set[str] = set()
    for module in setup.live.read.values():
        for node in module.file.index.of_type(ast.Import, ast.ImportFrom):
            roots = [a.name for a in node.names] if isinstance(node, ast.Import) else [node.module or ""]
            named = any(_MONITORS.get(root.partition(".")[0]) == name for root in roots)
            if named and setup.live.runs(module, node):
                if module is setup.live.start:
                    return True
                importing.add(module.path)
    return any(
        _MONITORS.get(package) == name
        for module, _, package in (setup.live.found(_monitor) if importing else ())
        if module.path in importing
    )


def _monitor(module: Module, call: ast.Call) -> str | None:
    """The package of what is called, where it shows the course of a training."""
    package = qualified(module, call.func).partition(".")[0]
    return package if package in _MONITORS or package in _OF_TENSORBOARD else None


def _is_used(setup: Setup) -> bool:
    """Is something of TensorBoard called that is not a writer of torch: `tensorboard_logger.log_value`?"""
    return any(package in _OF_TENSORBOARD for _, _, package in setup.live.found(_monitor))
