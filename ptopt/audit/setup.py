"""One training setup, as the measures see it: the code that runs, its framework, and what an expression comes to."""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, TypeVar

from ptopt.audit.absent import absent
from ptopt.audit.configured import Configured
from ptopt.audit.evaluate import Evaluator
from ptopt.audit.foreign import FOREIGN, hands_over_network
from ptopt.audit.known import CALLS_DIFFER, UNFOUND, Value
from ptopt.audit.launchers import started_script
from ptopt.audit.launches import Launch
from ptopt.audit.live import Live
from ptopt.audit.modules import Module, dotted_name, qualified
from ptopt.audit.tables import entry_of
from ptopt.audit.trained import Trained
from ptopt.audit.values import Measure, Place, State
from ptopt.project.added import ADDED
from ptopt.project.facts import ProjectFacts

T = TypeVar("T")
Pair = TypeVar("Pair", bound="tuple[Any, ...]")  # a module, a node of it, and what else belongs to it
# Frameworks whose own loop does nothing that the measures ask, or of which they know what it does.
READ = frozenset(
    {"PyTorch", "Accelerate", "Fabric", "Lightning", "transformers", "TRL", "DeepSpeed", "Colossal-AI"}
)
_SMALL = re.compile(
    r"\bmnist\b|replay_?(memory|buffer)|(net|model|module)\w*\.double\(\)|set_default_dtype|LogisticRegression|\bSVC\b",
    re.I,
)
_SMALL_WORDS = (
    "mnist",
    "replay",
    ".double()",
    "set_default_dtype",
    "logisticregression",
    "svc",
)  # one is in all of these
_SMALL_PACKAGES = frozenset(
    {"gym", "gymnasium", "atari_py", "ale_py", "torch_geometric", "dgl", "e3nn", "stable_baselines3", "gsplat", "nerfacc", "tinycudann",
     "diff_gaussian_rasterization", "pytorch3d", "nvdiffrast", "kaolin", "torchdiffeq", "torchsde", "schnetpack", "gpytorch", "pyro", "rdkit",
     "numpyro", "deepxde", "torch_scatter", "ase", "pyscf",
     # Simulators: the time goes to stepping and rendering them.
     "mujoco", "mujoco_py", "dm_control", "dm_env", "pybullet", "pybullet_envs", "isaacgym", "isaacsim", "omni", "robosuite", "robomimic", "metaworld",
     "habitat", "carla", "mani_skill", "mani_skill2", "sapien", "procgen", "minigrid", "gym_minigrid", "d4rl", "pettingzoo", "ai2thor"}
)  # fmt: skip
# Packages whose base classes hold no network that a measure asks about, or are looked at by name.
_WELL_KNOWN = frozenset(
    {"torch", "torchvision", "torchaudio", "transformers", "pytorch_lightning", "lightning", "lightning_fabric", "timm", "diffusers",
     "torch_geometric", "dgl", "e3nn", "abc", "typing", "enum", "collections", "dataclasses", "huggingface_hub", "gpytorch", "mamba_ssm",
     "accelerate", "peft", "trl", "fairseq", "omegaconf", "pydantic", "smplx"}
)  # fmt: skip
# What makes a network, or computes with its parameters: not a loss, an activation or a wrapper around it.
_NETWORK = re.compile(
    r"(torch\.)?nn\.(modules\.\w+\.)?(?!(functional|parallel|utils|init|modules)\.|\w*(Loss|DataParallel)$)[A-Z]"
    r"|torch\.nn\.functional\.(linear|conv|embedding|bilinear|multi_head)"
    r"|torchvision\.models|timm\.|transformers\.|diffusers\.|segmentation_models"
)
_OF_NETWORKS = (
    "torch.nn.",
    "torchvision.models",
    "timm.",
    "transformers.",
    "diffusers.",
    "segmentation_models",
)
_LISTED = 4  # places of evidence
MOST_ASKED = 12  # candidates whether they run, where one does: libraries have hundreds


@dataclass(frozen=True, slots=True)
class Candidate:
    """A place that may switch a measure on; `value` says whether it does."""

    value: Value
    place: Place
    detail: str


class Setup:
    """What the measures of one entry point ask."""

    def __init__(
        self, live: Live, evaluator: Evaluator, facts: ProjectFacts, framework: str, launches: tuple[Launch, ...],
        configured: Configured, start: tuple[Module, ast.Call] | None,
    ) -> None:  # fmt: skip
        self.live = live
        self.evaluator = evaluator
        self.facts = facts
        self.framework = framework
        self.launches = launches
        self.configured = configured
        self.start = start  # the call that starts a trainer; the backward call of a loop
        self.packages = live.packages()
        self._computed: dict[Callable[[Setup], Any], Any] = {}

    def once(self, compute: Callable[[Setup], T]) -> T:
        """`compute(self)`, remembered: for what several measures ask."""
        if compute not in self._computed:
            self._computed[compute] = compute(self)
        known: T = self._computed[compute]
        return known

    # -- calls -------------------------------------------------------------------------------------------

    def calls(self, *names: str) -> list[tuple[Module, ast.Call]]:
        """What runs and calls something whose dotted name ends in one of the names."""
        return [site for name in names for site in self.live.calls_spelled(name)]

    def named(self, pattern: re.Pattern[str]) -> list[tuple[Module, ast.Call]]:
        return [
            site
            for name in self.live.spelled()
            if pattern.search(name)
            for site in self.live.calls_spelled(name)
        ]

    def qualified(self, module: Module, node: ast.expr) -> str:
        """The dotted name as its package spells it; as written where it is no import."""
        return qualified(module, node)

    def is_external(self, module: Module, node: ast.expr) -> bool:
        """Is the called thing neither defined nor re-exported in the repository?"""
        name = dotted_name(node)
        return not name or self.live.modules.resolve(module, name) is None

    def made_of(self, *prefixes: str) -> Iterator[tuple[Module, ast.expr, str]]:
        """What of other packages is called, or is the base of a class that runs, where its dotted name begins so."""
        named = [(module, call.func, name) for module, call, name in self.live.found(_called(prefixes))]
        for cls, module in self.live.classes.items():
            bases = ((base, self.qualified(module, base)) for base in cls.bases)
            named += [(module, base, name) for base, name in bases if name.startswith(prefixes)]
        for module, node, name in named:
            if self.is_external(module, node):
                yield module, node, name
        for module, call, names in self.live.found(_taken_from_table):
            yield from ((module, call.func, name) for name in names if name.startswith(prefixes))

    def keyword(self, call: ast.Call, name: str, position: int | None = None) -> ast.expr | None:
        for keyword in call.keywords:
            if keyword.arg == name:
                return keyword.value
        if (
            position is not None
            and position < len(call.args)
            and not isinstance(call.args[position], ast.Starred)
        ):
            return call.args[position]
        return None

    @staticmethod
    def unpacks(call: ast.Call) -> bool:
        return any(k.arg is None for k in call.keywords)

    def unpacked(self, module: Module, call: ast.Call, name: str, absent: Value) -> Value | None:
        """What `**options` says of an argument, `absent` where it has no such key; None where that is not known."""
        found = absent
        for keyword in call.keywords:
            if keyword.arg is None:
                entry = entry_of(self.evaluator, module, keyword.value, name, absent)
                if entry is None:
                    return None
                found = entry if entry is not absent else found
        return found

    # -- statements --------------------------------------------------------------------------------------

    def assignments(self, attribute: str) -> Iterator[tuple[Module, ast.Assign]]:
        """What runs and assigns to an attribute of this name: `torch.backends.cudnn.benchmark = True`."""
        for module in self.live.read.values():
            for node in module.file.index.attributes_named(attribute):
                parent = module.file.index.parent(node)
                if isinstance(parent, ast.Assign) and node in parent.targets and self.live.runs(module, node):
                    yield module, parent

    def text_of_live(self) -> Iterator[tuple[Module, ast.AST]]:
        """The functions and classes that run."""
        for function, module in self.live.functions.items():
            yield module, function

    def says(self, pattern: re.Pattern[str], words: tuple[str, ...] = ()) -> bool:
        """Does the pattern, which must not ask for several lines, occur in a function that runs, or in the script itself?

        `words`: as `SourceFile.search` has them.
        """
        return self.live.start.file.search(pattern, words) or any(
            module.says(pattern, function, words) for function, module in self.live.functions.items()
        )

    @cached_property
    def is_small(self) -> bool:
        """Do words in what runs tell of a small network, or of numerics that need full precision?"""
        return self.says(_SMALL, _SMALL_WORDS) or not _SMALL_PACKAGES.isdisjoint(self.packages)

    @cached_property
    def trained(self) -> Trained:
        """The networks that the script trains."""
        return Trained(self.live, lambda node, module: self.evaluator.runs(node, module).truth)

    def of_trained(self, pairs: Iterable[Pair]) -> list[Pair]:
        """Without what is surely of a network that is not trained."""
        return [pair for pair in pairs if not self.trained.leaves_out(pair[0], pair[1])]

    @property
    def where_trained(self) -> str:
        """Where nothing was found, in words, after `of_trained` was asked."""
        return "in what is trained" if self.trained.left_out else "in the code that runs"

    @property
    def seen_where(self) -> str:
        """The same behind "seen"; "" where all code was looked at."""
        return " in what is trained" if self.trained.left_out else ""

    # -- deciding ----------------------------------------------------------------------------------------

    def place(self, module: Module, node: ast.AST) -> Place:
        return self.evaluator.place(module, node)

    def place_of_line(self, module: Module, line: int) -> Place:
        """Of a line of the text of a module."""
        return Place(module.path, module.file.head_line(line))

    def runs(self, module: Module, node: ast.AST) -> Value:
        return self.evaluator.runs(node, module)

    def value(self, module: Module, node: ast.AST | None) -> Value:
        return self.evaluator.of(node, module)

    def site(self, module: Module, node: ast.AST, detail: str, enabling: Value | None = None) -> Candidate:
        """A candidate that counts where the node runs and, if given, `enabling` is true."""
        runs = self.runs(module, node)
        value = runs
        if enabling is not None and runs.truth is not False:
            value = runs if not runs.known and enabling.truth is not False else enabling
            if value.known and not value.note:
                value = replace(value, note=runs.note)
        return Candidate(value, self.place(module, node), detail)

    def decide(
        self, key: str, title: str, candidates: Iterable[Candidate], absent: str, *,
        launcher: bool = False, blind: str = "", lacking: str = "",
    ) -> Measure:  # fmt: skip
        """On where a candidate is; unknown where one may be; off where none is, unless `blind` says what was not read.

        `launcher`: what depends on the machine or the launcher counts as on. `lacking`: why the project cannot have it,
        which is not off.
        """
        every = list(candidates if launcher else enough(candidates))
        on = [c for c in every if c.value.truth is True or (launcher and c.value.environment)]
        if on:
            first = on[0]
            with_note = (
                f"{first.detail} ({first.value.note})"
                if first.value.note and first.value.truth
                else first.detail
            )
            if first.value.environment and first.value.truth is None:
                with_note = f"{first.detail} when several processes are started"
            return Measure(key, title, State.ON, with_note, _places(on))
        open_ = [c for c in every if c.value.truth is None]
        if open_:
            first = open_[0]
            detail = f"{first.detail}{open_condition(first.value)}"
            return Measure(key, title, State.UNKNOWN, detail, _places(open_))
        if every:
            first = next((c for c in every if c.value.note), every[0])
            reason = f": {first.value.note}" if first.value.note else ""
            return Measure(
                key,
                title,
                State.OFF,
                f"{first.detail}: off{reason.replace(': ', ', ')}",
                _places([first, *every]),
            )
        if blind:
            return Measure(key, title, State.UNKNOWN, f"not seen; {blind}")
        if lacking:
            return self.not_applicable(key, title, lacking)
        return Measure(key, title, State.OFF, absent, self.where())

    def where(self) -> tuple[Place, ...]:
        """Where the training starts: the evidence of what is absent."""
        return () if self.start is None else (self.place(*self.start),)

    def lacking(self, name: str, what: str = "it") -> str:
        """Why nothing can be said of `name` of `ptopt.project.added`: no version that the project admits has it; else ""."""
        added = ADDED[name]
        if not self.facts.excludes(added.package, added.version):
            return ""
        return f"{added.package} has {what} since {added.version}; the project needs {self.facts.span(added.package)}"

    def admits_older(self, version: str, what: str) -> str:
        """What a torch before `version` does, where the project states a minimum below it, or names one; else ""."""
        may_be_older = self.facts.at_least("torch", version) is False and not self.facts.excludes(
            "torch", version
        )
        if not may_be_older:
            return ""
        if self.facts.only_named("torch"):
            return f"; the project names {self.facts.describe('torch')}, and versions before {version} {what}"
        return f"; {self.facts.describe('torch')} admits older ones, which {what}"

    def named_before(self, version: str) -> bool:
        """Is all that the project says of its torch that one before `version` works?"""
        return self.facts.only_named("torch") and self.facts.at_least("torch", version) is False

    def not_applicable(self, key: str, title: str, why: str) -> Measure:
        return Measure(key, title, State.NOT_APPLICABLE, why)

    # -- what is not seen --------------------------------------------------------------------------------

    @cached_property
    def blind(self) -> str:
        """Why something about the run may be set where nobody looked; "" where all of it was read."""
        return self.blind_loop or self.missing

    @cached_property
    def missing(self) -> str:
        """The modules of the project that are imported and not there, in words; "" where none is missing."""
        names = absent(self.live, lambda module, node: self.runs(module, node).truth is not False)
        if not names:
            return ""
        shown = " and ".join(f"`{name}`" for name in names[:2])
        rest = f" and {len(names) - 2} more" if len(names) > 2 else ""
        return f"{shown}{rest}, which it imports, {'is' if len(names) == 1 else 'are'} not among the files"

    @cached_property
    def blind_loop(self) -> str:
        """The same of the loop, which was found: what is missing beside it is not asked."""
        if self.started_script:
            return f"the script given as `{self.started_script}` decides"
        if self.framework not in READ:
            return f"{self.framework} runs the training, and is not read"
        return self._unread

    @cached_property
    def _unread(self) -> str:
        if self.live.truncated:
            return "the script imports more modules than are read"
        lost = [path for path in self.live.modules.unread if path in self.wanted]
        return f"{lost[0]} could not be read" if lost else ""

    @cached_property
    def started_script(self) -> str:
        """The argument that names another script, which this one starts; "" where it starts none."""
        return started_script(self.live)

    @cached_property
    def wanted(self) -> frozenset[str]:
        """The files of the repository that what runs imports."""
        modules = self.live.modules
        return frozenset(
            path
            for module in self.live.read.values()
            for level, name, _ in module.imports
            if (path := modules.find(name, level, module.path)) is not None
        )

    @cached_property
    def blind_model(self) -> str:
        """Why something about the network may be set where nobody looked."""
        return self.blind or self._blind_code

    @cached_property
    def blind_network(self) -> str:
        """The same of what no framework changes of a network that it is handed: its attention, what it keeps for the backward pass."""
        if self.framework in FOREIGN and hands_over_network(self.live, self.framework):
            return self.started_script or self._unread or self.missing or self._blind_code
        return self.blind_model

    @cached_property
    def _blind_code(self) -> str:
        if self.live.dynamic:
            module, node = self.live.dynamic[0]
            return f"classes are found by name at {self.place(module, node)}"
        if self._foreign_base:
            return f"`{self._foreign_base}` is not in the repository"
        return "" if self._sees_network else "the network is made where it was not found"

    @cached_property
    def _foreign_base(self) -> str:
        """The network of a package that was not read, of which a network of the repository is a variant."""
        for cls, module in self.live.classes.items():
            if not any(getattr(statement, "name", "") == "forward" for statement in cls.body):
                continue
            for base in cls.bases:
                name = dotted_name(base)
                root = self.qualified(module, base).partition(".")[0]
                origin = module.imported.get(name.partition(".")[0])
                if origin is not None and self.is_external(module, base) and root not in _WELL_KNOWN:
                    return name
        return ""

    @cached_property
    def _sees_network(self) -> bool:
        """Does anything that runs define or make a network?"""
        if any(statement.name == "forward" for statement in self.live.functions):
            return True
        return any(_NETWORK.match(name) for _, _, name in self.made_of(*_OF_NETWORKS))


def _taken_from_table(module: Module, call: ast.Call) -> list[str] | None:
    """Of `NETWORKS[name](pretrained=True)`, the names of other packages that this table of the module holds; None of others."""
    if not isinstance(call.func, ast.Subscript) or not isinstance(call.func.value, ast.Name):
        return None
    tables = [binding.value for binding in module.file.bindings.of(None, call.func.value.id)]
    held = [value for table in tables if isinstance(table, ast.Dict) for value in table.values]
    return [qualified(module, value) for value in held if isinstance(value, ast.Attribute)] or None


@functools.cache
def _called(prefixes: tuple[str, ...]) -> Callable[[Module, ast.Call], str | None]:
    """What gives the name of what is called, where it begins so: one function of each tuple, as its answers are remembered."""

    def name_of(module: Module, call: ast.Call) -> str | None:
        name = qualified(module, call.func)
        return name if name.startswith(prefixes) else None

    return name_of


def aside(found: Candidate) -> Candidate:
    """What is done to a network of which no optimizer gets the parameters: gradients may go through it, or not."""
    if found.value.truth is False:
        return found
    why = "of a network of which no optimizer gets the parameters"
    return replace(found, value=Value(False, note=why, differs=True))


def enough(candidates: Iterable[Candidate]) -> Iterator[Candidate]:
    """Up to the one with which as many are on as a row lists: the others change nothing."""
    on: list[Candidate] = []
    for asked, candidate in enumerate(candidates, 1):
        yield candidate
        if candidate.value.truth is True:
            on.append(candidate)
        if on and (asked >= MOST_ASKED or len(_places(on)) == _LISTED):
            return


def open_condition(value: Value) -> str:
    """How a row goes on that holds only where the value is true."""
    says = value.differs or value.note.startswith((CALLS_DIFFER, UNFOUND))
    return f"{': ' if says else ', if '}{value.note}"


def _places(candidates: list[Candidate]) -> tuple[Place, ...]:
    places: list[Place] = []
    for candidate in candidates:
        places.append(candidate.place)
        if candidate.value.place is not None:
            places.append(candidate.value.place)
    return tuple(dict.fromkeys(places))[:_LISTED]
