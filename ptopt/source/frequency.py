"""How often a line runs, as one scale for all rules.

Computed on demand, from loops, calls within the file, what the enclosing function is (a hook of a framework, the forward
of a module, an item of a dataset) and what it does. "Unknown" is an answer.
"""

from __future__ import annotations

import ast
import enum
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property

from ptopt.source.calls import CallGraph, last_name
from ptopt.source.context import Context
from ptopt.source.guards import Guards
from ptopt.source.index import FunctionNode, Index, Loop, is_main_test, own_nodes
from ptopt.source.values import Values


class Often(enum.IntEnum):
    """The scale. A larger value runs more often; `UNKNOWN` stands below all others."""

    UNKNOWN = 0
    RARELY = 1  # behind a guard: every n steps, on errors, while debugging
    ONCE = 2  # set-up, the end of a run, one file or checkpoint
    EPOCH = 3
    EVALUATION = 4  # per batch of an evaluation or of inference
    STEP = 5  # per training step, or per call of a forward, a loss, a metric
    LAYER = 6  # per layer, parameter, micro-step or time step within a step
    ELEMENT = 7  # per sample or element


@dataclass(frozen=True, slots=True)
class Frequency:
    """How often, the line that shows it (0: none) and why, in words that can stand after "runs"."""

    often: Often
    line: int = 0
    reason: str = ""
    in_worker: bool = False  # runs in a data loader's worker: the host computes, no device waits
    trains: bool = False  # is part of a training step, rather than of an evaluation
    # What shows it of a function: "name", "class", "body", "callers", ..., or "" where nothing does.
    basis: str = ""

    @property
    def weight(self) -> tuple[bool, Often]:
        """Which of several calls tells most of a function: one of a training step before those of workers and evaluations."""
        return self.trains and not self.in_worker and self.often > Often.RARELY, self.often


UNKNOWN = Frequency(Often.UNKNOWN)
_WEAK = (Often.ONCE, Often.EVALUATION)  # a name alone says so: what the callers show counts more

_ONCE_NAME = re.compile(
    r"^(__init__|__post_init__|__setstate__|__init_subclass__|main|setup|build|create|make|load|save|download|export|"
    r"convert|reset_parameters|from_pretrained|state_dict|configure_optimizers|parse|get_args|register|extra_repr|__repr__|"
    r"on_train_start|on_fit_start|on_fit_end|on_train_end|prepare_data|init)"
    r"$|^_?(init|build|create|setup|load|save|convert|export|parse|register|configure|download|plot|visuali[sz]e|"
    r"initiali[sz]e)_",
)
# Even with a tensor as parameter; `build_targets(x)` and `create_mask(x)` work on a batch.
_AT_SETUP = re.compile(
    r"^_{0,2}(init|load|save|export|convert|download|plot|visuali[sz]e|parse|register|setup|post_init|repr|str|extra_repr|getstate|reduce|format|show|draw|display|dump|write)(_|$)"
)
_NO_TENSOR = re.compile(
    r"^(self|cls|ctx|env)$|args$|cfg|conf(ig)?$|opts?$|options|hparams|settings|model|network|^net$|module|trainer|accelerator|"
    r"pipe(line)?$|engine|agent|policy$|state$",
    re.I,
)
_ONCE_LOOPS = re.compile(
    r"`_?(load|save|export|convert|download|plot|visuali[sz]e|parse|register|init|__init__)"
)
_PER_EPOCH = frozenset(
    "on_train_epoch_start on_train_epoch_end on_epoch_start on_epoch_end training_epoch_end on_validation_epoch_end "
    "validation_epoch_end test_epoch_end on_test_epoch_end on_validation_epoch_start before_train_epoch after_train_epoch "
    "epoch_start epoch_end eval_start eval_end after_val_epoch before_val_epoch set_epoch".split()
)
_PER_STEP = frozenset(
    "training_step train_step compute_loss training_step_and_backward optimize_parameters on_train_batch_start "
    "on_train_batch_end on_before_optimizer_step on_after_backward on_before_backward optimizer_step optimizer_zero_grad "
    "on_step_begin on_step_end on_substep_end before_train_iter after_train_iter batch_start batch_end after_backward "
    "before_loss train_batch on_before_zero_grad backward_step manual_backward".split()
)
_PER_EVALUATION = frozenset(
    "validation_step test_step predict_step prediction_step on_validation_batch_end on_test_batch_end eval_forward "
    "generate sample decode encode predict greedy_decode beam_search evaluation_step eval_step val_step inference_step".split()
)
_PER_LAYER_CLASS = re.compile(r"(Attention|Block|Layer|Cell|MLP|FeedForward|Norm|Embedding|Conv|Attn)\w*$")
_CACHED = re.compile(r"^(lru_cache|cache|cached|cached_property|memoize)$")
_MODULE_METHODS = frozenset("forward __call__ call".split())
_LOSS_OR_METRIC = re.compile(r"(Loss|Criterion|Metric|Objective|Meter|Evaluator)\w*$")
_METRIC_METHODS = frozenset("update __call__ add accumulate process forward".split())
_TRANSFORM = re.compile(
    r"(Transform(?!er)|Augment\w*|Collat\w*|Preprocess\w*|Resize|Crop|Flip|ToTensor|Compose|Normali[sz]e)\w*$"
)
_EPOCHS = re.compile(r"epoch", re.I)
_LOADER = re.compile(
    r"load(er)?s?$|(^|_)(dl|dataloader|batches|iterator|data_iter|train_iter|train_data|pbar)$|batch_iter",
    re.I,
)
_LAYERS = re.compile(
    r"parameters\(|param_groups|modules\(|layers|blocks|children\(|named_|state_dict|\.items\(\)|grads|params|heads|levels|"
    r"num_layers|depth|stages|scales|resnets|convs",
    re.I,
)
_STEPS = re.compile(
    r"steps|iters|iterations|updates|episodes|max_len|length|seq|time|tokens|horizon|rollout", re.I
)


class Frequencies:
    """How often the nodes of one file run."""

    def __init__(
        self,
        index: Index,
        calls: CallGraph,
        values: Values,
        context: Context,
        guards: Guards,
        elsewhere: Callable[[FunctionNode], Frequency | None] = lambda _: None,
    ) -> None:
        self._index = index
        self._calls = calls
        self._values = values
        self._context = context
        self._guards = guards
        self._elsewhere = elsewhere
        self._functions: dict[FunctionNode, Frequency] = {}
        self._loops: dict[Loop, Frequency] = {}

    def of(self, node: ast.AST) -> Frequency:
        """How often `node` runs; `RARELY` when a guard between it and what repeats it makes it rare."""
        loop = next(self._index.loops_of(node), None)
        base = self._of_loop(loop) if loop is not None else self._of_owner(node)
        if base.often > Often.ONCE:
            guard = self._guards.rare(node, loop)
            if guard is not None and not self._context.holds_the_step(guard, node):
                return Frequency(Often.RARELY, getattr(guard, "lineno", 0), "behind a condition")
        return base

    def starts_rarely(self, node: ast.AST) -> bool:
        """Does a guard make a loop around `node` rare, such as one over the parameters every n steps?

        The batches of an evaluation count by themselves, however seldom it runs.
        """
        for loop in self._index.loops_of(node):
            if self.goes_through_batches(loop):
                return False
            if self.of(loop).often is Often.RARELY:
                return True
        return False

    def goes_through_batches(self, loop: Loop) -> bool:
        """Does one pass of the loop work on one batch, of a training or an evaluation?"""
        return isinstance(loop, (ast.For, ast.AsyncFor)) and (
            self._context.is_eval_loop(loop) or self._reads_batches(loop, ast.unparse(loop.iter))
        )

    def iteration_of(self, node: ast.AST) -> Loop | FunctionNode | None:
        """The innermost loop around `node` in its function, else the function: what one iteration is."""
        return next(self._index.loops_of(node), None) or self._index.function_of(node)

    # -- functions -------------------------------------------------------------------------------------

    def _of_owner(self, node: ast.AST) -> Frequency:
        function = self._index.function_of(node)
        if function is None:
            loaded = not any(
                isinstance(outer, ast.If) and is_main_test(outer.test)
                for outer, _ in self._index.ancestors(node)
            )
            return Frequency(Often.ONCE, 0, "when the module is loaded" if loaded else "once in a run")
        return self.of_function(function)

    def of_function(self, function: FunctionNode) -> Frequency:
        """How often the body of a function runs."""
        known = self._functions.get(function)
        if known is not None:
            return known
        self._functions[function] = UNKNOWN  # recursion ends here
        by_kind = self._by_kind(function)
        if by_kind is None or (by_kind.often in _WEAK and by_kind.basis != "cached"):
            called = self._by_callers(function, by_kind)
            if by_kind is None or called.often > Often.ONCE:
                by_kind = called if called.often or by_kind is None else by_kind
        elif by_kind.basis == "class" and function.name in _METRIC_METHODS and not by_kind.trains:
            called = self._by_callers(function, by_kind)  # a step that makes the call says more than the name
            by_kind = called if called.trains and not called.in_worker else by_kind
        self._functions[function] = by_kind
        return by_kind

    def _by_kind(self, function: FunctionNode) -> Frequency | None:
        """What the function is, by its name and its class."""
        name, line = function.name, function.lineno
        cls = self._index.parent(function)
        if any(_CACHED.search(last_name(_called(d))) for d in function.decorator_list):
            return Frequency(Often.ONCE, line, f"once (the result of `{name}` is cached)", basis="cached")
        if self._context.is_item_code(function.body[0]) is not None:
            return Frequency(
                Often.ELEMENT, line, f"for each sample (`{name}`)", in_worker=True, basis="class"
            )
        if isinstance(cls, ast.ClassDef):
            found = self._by_class(function, cls)
            if found is not None:
                return found
        if name in _PER_EPOCH:
            return Frequency(Often.EPOCH, line, f"once an epoch (`{name}`)", basis="name")
        if name in _PER_STEP:
            return Frequency(Often.STEP, line, f"on each training step (`{name}`)", trains=True, basis="name")
        if self._context.trains(function) == "step":
            return Frequency(
                Often.STEP, line, f"on each call of `{name}`, which is a training step", trains=True
            )
        if name in _PER_EVALUATION and not self._goes_through_data(function):
            return Frequency(Often.EVALUATION, line, f"for each batch (`{name}`)", basis="name")
        if _ONCE_NAME.search(name):
            return Frequency(Often.ONCE, line, f"once (`{name}`)", basis="name")
        return None

    def _goes_through_data(self, function: FunctionNode) -> bool:
        """Does the function, or one that it calls, hold the loop over the data? Then it runs once for all batches."""
        called = (self._calls.resolve(call) for call in self._calls.calls_in(function))
        return any(
            isinstance(n, (ast.For, ast.AsyncFor)) and _LOADER.search(ast.unparse(n.iter))
            for part in (function, *(c for c in called if c is not None))
            for n in own_nodes(part)
        )

    def _by_class(self, function: FunctionNode, cls: ast.ClassDef) -> Frequency | None:
        name, line = function.name, function.lineno
        bases = [ast.unparse(base) for base in cls.bases]
        if (
            any(base.endswith(("Optimizer", "_LRScheduler", "LRScheduler")) for base in bases)
            and name == "step"
        ):
            return Frequency(Often.STEP, line, "on each optimizer step", trains=True, basis="class")
        if any(base.endswith("Function") for base in bases) and name in ("forward", "backward"):
            return Frequency(Often.STEP, line, f"on each call of `{cls.name}`", trains=True, basis="class")
        if _TRANSFORM.search(cls.name) and name in ("__call__", "forward", "transform"):
            return Frequency(
                Often.ELEMENT, line, f"for each sample (`{cls.name}`)", in_worker=True, basis="class"
            )
        if _LOSS_OR_METRIC.search(cls.name) and name in _METRIC_METHODS:
            return Frequency(Often.STEP, line, f"on each call of `{cls.name}`", basis="class")
        if name in _MODULE_METHODS and self._context.is_module(cls):
            layer = bool(_PER_LAYER_CLASS.search(cls.name)) or any(
                b.endswith(("Layer", "Block", "MessagePassing")) for b in bases
            )
            often = Often.LAYER if layer else Often.STEP
            return Frequency(often, line, f"on each forward of `{cls.name}`", trains=True, basis="class")
        return None

    def _by_callers(self, function: FunctionNode, by_kind: Frequency | None) -> Frequency:
        """The weightiest of the calls in this file, and in others where it has none or only workers make them; what it works
        on, where none is found.
        """
        best = UNKNOWN
        for call in self._calls.callers(function):
            outer = self.of(call)
            if outer.weight > best.weight:
                best = outer
        elsewhere = self._elsewhere(function) if best.in_worker or best.often is Often.UNKNOWN else None
        if elsewhere is not None and best.in_worker and not elsewhere.weight > best.weight:
            elsewhere = None
        if best.often > Often.UNKNOWN and elsewhere is None:
            complete = best.often <= Often.ONCE or ", through `" in best.reason
            reason = best.reason if complete else f"{best.reason}, through `{function.name}`"
            return Frequency(best.often, best.line, reason, best.in_worker, best.trains, "callers")
        if elsewhere is not None and elsewhere.often > Often.UNKNOWN:
            return replace(elsewhere, basis="callers in other files")
        line, name = function.lineno, function.name
        at_setup = bool(_AT_SETUP.search(name))
        if at_setup and "init" in name and self._values.takes_tensors(function):
            cls = self._index.class_of(function)  # of a batch's own class, not of a network
            at_setup = cls is None or self._context.is_module(cls)
        if self._takes_device_tensors(function) and not at_setup:
            return Frequency(
                Often.EVALUATION, line, f"on each call of `{name}`, which works on its caller's device"
            )
        if self._values.takes_tensors(function) and not at_setup:
            return Frequency(
                Often.EVALUATION, line, f"on each call of `{name}`, which works on its caller's tensors"
            )
        return UNKNOWN

    def _takes_device_tensors(self, function: FunctionNode) -> bool:
        """Does it ask a parameter that may be a tensor for its device?"""
        arguments = [*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs]
        names = {arg.arg for arg in arguments if not _NO_TENSOR.search(arg.arg)}
        return any(
            isinstance(node.value, ast.Name) and node.value.id in names
            for node in self._device_reads.get(function, ())
        )

    @cached_property
    def _device_reads(self) -> dict[FunctionNode | None, list[ast.Attribute]]:
        """Function -> its `x.device` expressions."""
        table: dict[FunctionNode | None, list[ast.Attribute]] = {}
        for node in self._index.attributes_named("device"):
            table.setdefault(self._index.function_of(node), []).append(node)
        return table

    # -- loops -----------------------------------------------------------------------------------------

    def _of_loop(self, loop: Loop) -> Frequency:
        known = self._loops.get(loop)
        if known is None:
            self._loops[loop] = UNKNOWN
            known = self._loops[loop] = self._classified(loop)
        return known

    def _classified(self, loop: Loop) -> Frequency:
        outer_loop = next(self._index.loops_of(loop), None)
        outer = self._of_loop(outer_loop) if outer_loop is not None else self._of_owner(loop)
        line = loop.lineno
        mark = self._context.step_mark(loop)
        if mark is not None:
            return Frequency(Often.STEP, line, f"on every step of the loop at line {line}", trains=True)
        text = ast.unparse(loop.iter if not isinstance(loop, ast.While) else loop.test)
        target = "" if isinstance(loop, ast.While) else ast.unparse(loop.target)
        if _EPOCHS.search(target) or (_EPOCHS.search(text) and outer.often <= Often.ONCE):
            return Frequency(Often.EPOCH, line, f"in each epoch of the loop at line {line}")
        if outer.in_worker:
            return Frequency(Often.ELEMENT, line, outer.reason, in_worker=True)
        if self._context.goes_through_sets(loop) and not outer.trains:
            often = outer.often if Often.UNKNOWN < outer.often < Often.EPOCH else Often.EPOCH
            return Frequency(often, line, f"for each data set of the loop at line {line}")
        is_evaluation = self._context.is_eval_loop(loop)
        if is_evaluation and outer.trains:  # every n steps
            return Frequency(Often.EVALUATION, line, f"for each batch of the loop at line {line}")
        if outer.often >= Often.EVALUATION:
            layered = _LAYERS.search(text) or _STEPS.search(text)
            often = Often.LAYER if layered and outer.often < Often.ELEMENT else Often.ELEMENT
            reason = f"in each iteration of the loop at line {line}"
            if outer_loop is None and outer.basis.startswith("callers"):
                # What matters is who calls the function; of several loops, the outermost.
                reason += f", which runs {outer.reason.rpartition(', which runs ')[2]}"
            return Frequency(often, line, reason, trains=outer.trains)
        if isinstance(loop, (ast.For, ast.AsyncFor)):
            if is_evaluation or self._reads_batches(loop, text):
                return Frequency(Often.EVALUATION, line, f"for each batch of the loop at line {line}")
            if self._values.of(loop.iter).kind in ("tensor", "tensors", "array"):
                return Frequency(Often.ELEMENT, line, f"for each element of the loop at line {line}")
        if outer.often is Often.RARELY:
            return outer
        if _LAYERS.search(text) and outer.often <= Often.ONCE:
            return Frequency(outer.often, outer.line, outer.reason)
        if outer.often is Often.ONCE and _ONCE_LOOPS.search(outer.reason) and not _STEPS.search(text):
            return outer
        return Frequency(Often.EVALUATION, line, f"in each iteration of the loop at line {line}")

    def _reads_batches(self, loop: ast.For | ast.AsyncFor, text: str) -> bool:
        iterable = loop.iter
        while isinstance(iterable, ast.Call) and iterable.args:
            iterable = iterable.args[0]
        name = ast.unparse(iterable).rpartition(".")[2]
        return (
            self._values.of(iterable).kind == "loader"
            or bool(_LOADER.search(name.rstrip("()")))
            or "batch" in ast.unparse(loop.target)
        )


def _called(decorator: ast.expr) -> ast.expr:
    """`lru_cache` of `lru_cache(maxsize=None)`"""
    return decorator.func if isinstance(decorator, ast.Call) else decorator
