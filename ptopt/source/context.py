"""Where am I: in a training step, an evaluation loop, a forward pass, a dataset item, behind a rare guard?"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from ptopt.source.bindings import Bindings
from ptopt.source.calls import CallGraph, last_name
from ptopt.source.guards import Guards
from ptopt.source.imports import Imports
from ptopt.source.index import FUNCTIONS, FunctionNode, Index, Loop, walk

_BACKWARD = frozenset({"backward", "manual_backward"})
_SCALER = re.compile(r"(^|_)(loss|amp|grad)_?scaler$", re.I)
_OPTIMIZER = re.compile(r"optim|(^|_)opts?(_|$|\d)|scaler|(^|_)engine$", re.I)
_STEP_NAMES = frozenset(
    {"training_step", "train_step", "compute_loss", "training_step_and_backward", "optimize_parameters"}
)
# Words of which a file with a training step holds one: see `Context.trains_somewhere`.
STEP_WORDS = (
    *(f"{name}(" for name in sorted(_BACKWARD)), ".step(", "scaler", "Scaler", "SCALER", *sorted(_STEP_NAMES),
)  # fmt: skip
_MODULES = (
    "Module", "Layer", "Model", "Block", "Net", "Head", "Encoder", "Decoder", "Attention", "Mixin", "Base",
)  # fmt: skip
_EVAL_HOOKS = frozenset(
    {
        "validation_step",
        "test_step",
        "predict_step",
        "prediction_step",
        "on_validation_epoch_end",
        "eval_forward",  # of Composer
        "predict_batch",  # of Catalyst
    }
)
# `prediction_step`, of transformers, turns autograd off itself, or nobody does.
_OFF_BY_FRAMEWORK = _EVAL_HOOKS - {"prediction_step"}
_EVAL_NAME = re.compile(
    r"(^|_)(eval|evaluate|evaluation|valid|validate|validation|val|test|testing|predict|prediction|infer|inference)"
    r"(_|$|\d)",
    re.I,
)
_TRAINING_NAME = re.compile(r"(^|_)(train|training|fit|pretrain|finetune|fine_tune)(_|$)", re.I)
_EVAL_DATA = re.compile(
    r"(^|_)(val|valid|validation|eval|evaluation|test|dev|predict)(_|$)|\((val|valid|validation|eval|evaluation|test|dev)_"
    r"|(val|test|eval)_?(loader|dl|iter|set)",
    re.I,
)
# A loader or a data set as what one iteration gets, and several of them as what a loop goes through.
_ONE_SET = re.compile(r"(^|_)(data_?loader|loader|data_?set|dset|dl)(_?name)?\d*$", re.I)
_SETS = re.compile(r"(^|_)((data_?)?loaders|data_?sets|dsets|dls)(_(?!iter)[a-z]+)?$", re.I)
_ONE_STREAM = re.compile(r"(loader|_dl|iter|iterator|batches)$", re.I)
_OF_BATCH = re.compile(r"batch|^(data|samples?|inputs?|images?|x)$", re.I)
_KEYED = frozenset({"items", "keys", "values"})
_PASS_ON = frozenset(
    {"iter", "enumerate", "tqdm", "trange", "progress", "zip", "islice"}
)  # of what they are given
_HANDS_ON = _PASS_ON | {"list", "sorted", "reversed", "tuple"}
_EPOCH = re.compile(r"epoch", re.I)
_COMPILES = re.compile(
    r"(^|\.)compile\b|jit\.script(?!_)|jit_script|jit_fuser|(^|\.)njit\b|numba|triton\.jit|dynamo\.optimize"
)
_WITH_STRIDE = 3  # arguments of `range`
_WHOLE_DATA = re.compile(r"data|train|load|corpus", re.I)  # names of more than one batch
_NO_GRAD = re.compile(r"no_?grad|inference_mode|eval_mode", re.I)


@dataclass(frozen=True, slots=True)
class Step:
    """Proof that a node runs on every training step."""

    kind: str  # "loop": a loop around it; "function": the function it stands in is the step
    node: Loop | FunctionNode
    mark: ast.AST  # the call that makes it a training step
    full_batch: bool = False  # the loop runs over epochs and holds the step itself

    @property
    def line(self) -> int:
        return int(getattr(self.mark, "lineno", self.node.lineno))


class Context:
    """Answers about places in one file. Everything is computed on demand and remembered."""

    def __init__(
        self,
        index: Index,
        bindings: Bindings,
        imports: Imports,
        calls: CallGraph,
        guards: Guards,
        grad_off_elsewhere: Callable[[FunctionNode], Sequence[bool]] = lambda _: (),
        uses_volatile: Callable[[], bool] = lambda: False,
    ) -> None:
        self._uses_volatile = uses_volatile  # other files may be read for it: the last question
        self._grad_off_elsewhere = grad_off_elsewhere  # of each call of a function in other files
        self._index = index
        self._bindings = bindings
        self._imports = imports
        self._calls = calls
        self._guards = guards
        self._marks: dict[FunctionNode | None, list[ast.Call]] = {}
        self._trains: dict[FunctionNode, str] = {}
        self._grad_off: dict[FunctionNode, bool] = {}
        self._stepped: dict[FunctionNode, Step | None] = {}
        self._looped: dict[FunctionNode | None, dict[Loop, list[ast.Call]]] = {}
        self._step_marks: dict[Loop, ast.Call | None] = {}
        self._eval_data: dict[Loop, bool] = {}
        self._over_sets: dict[Loop, bool] = {}
        self._switches: dict[FunctionNode | None, int | None] = {}

    # -- training --------------------------------------------------------------------------------------

    def is_training_mark(self, call: ast.Call) -> bool:
        """`loss.backward()`, `accelerator.backward(loss)`, `optimizer.step()`, `scaler.step(optimizer)`, ...

        `loss_scaler(loss, optimizer, ...)`, too: so timm and its heirs write the backward pass and the step.
        """
        func = call.func
        if self.goes_through_scaler(call):
            return True
        if not isinstance(func, ast.Attribute):
            return False
        if func.attr in _BACKWARD:
            return not (isinstance(func.value, ast.Call) and _name(func.value.func) == "super")
        return func.attr == "step" and bool(_OPTIMIZER.search(_name(func.value)))

    @staticmethod
    def goes_through_scaler(call: ast.Call) -> bool:
        """`loss_scaler(loss, optimizer, ...)`: it runs the backward pass of its first argument."""
        named = len(call.args) > 1 and _SCALER.search(last_name(call.func))
        return bool(named and _OPTIMIZER.search(_name(call.args[1])))

    def marks_in(self, function: FunctionNode | None) -> list[ast.Call]:
        known = self._marks.get(function)
        if known is None:
            known = [c for c in self._calls.calls_in(function) if self.is_training_mark(c)]
            self._marks[function] = known
        return known

    def holds_the_step(self, guard: ast.AST, node: ast.AST) -> bool:
        """Is the guard around `node` a condition that the step's own backward or optimizer call stands under as well?

        Then it is not a rare one. The call can stand under another `if` with the same condition.
        """
        if not isinstance(guard, ast.If):
            return False
        marks = self.marks_in(self._index.function_of(node))
        return any(self._index.within(mark, guard) for mark in marks) or (
            any(self._index.within(node, statement) for statement in guard.body)
            and any(_text(guard.test) == test for mark in marks for test in self._conditions_of(mark))
        )

    def _conditions_of(self, mark: ast.AST) -> Iterator[str]:
        """The conditions around a call of the step, in its function, that hold where it runs."""
        for ancestor, child in self._index.ancestors(mark):
            if isinstance(ancestor, FUNCTIONS):
                return
            if isinstance(ancestor, ast.If) and child in ancestor.body:
                yield _text(ancestor.test)

    def trains(self, function: FunctionNode) -> str:
        """ "loop": holds a whole training loop; "step": does one step; "": does not train."""
        known = self._trains.get(function)
        if known is not None:
            return known
        self._trains[function] = ""  # recursion ends here
        answer = ""
        for call in self._calls.calls_in(function):
            target = None if self.is_training_mark(call) else self._calls.resolve(call)
            inner = self.trains(target) if target is not None else ""
            if inner or self.is_training_mark(call):
                looped = inner == "loop" or any(
                    not self._adds_up_gradients(loop, function) for loop in self._index.loops_of(call)
                )
                answer = "loop" if looped else answer or "step"
        self._trains[function] = answer
        return answer

    def _adds_up_gradients(self, loop: Loop, function: FunctionNode) -> bool:
        """Does the loop go backward through slices of one batch that the function is given, and step no optimizer?

        `for i in range(0, batch.shape[0], size)` and `for part in batch.split(size)`: one step of the caller's training.
        """
        if not isinstance(loop, ast.For) or not isinstance(loop.iter, ast.Call):
            return False
        call = loop.iter
        parts = last_name(call.func) in ("chunk", "split") or (
            last_name(call.func) == "range" and len(call.args) == _WITH_STRIDE
        )
        batches = {
            arg.arg for arg in [*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs]
        }
        sliced = {node.id for node in walk(call) if isinstance(node, ast.Name)} & batches - {"self", "cls"}
        if not parts or not any(not _WHOLE_DATA.search(name) for name in sliced):
            return False
        marks = [mark for mark in self.marks_in(function) if self._index.within(mark, loop)]
        return bool(marks) and all(
            isinstance(mark.func, ast.Attribute) and mark.func.attr in _BACKWARD for mark in marks
        )

    def says_training(self, function: FunctionNode) -> bool:
        """Is it named like a training, of which another object may do the backward pass?"""
        return bool(_TRAINING_NAME.search(function.name)) and not _EVAL_NAME.search(function.name)

    def step_mark(self, loop: Loop) -> ast.Call | None:
        """The call that makes `loop` a training step loop: it backpropagates or steps once an iteration."""
        if loop not in self._step_marks:
            self._step_marks[loop] = self._find_step_mark(loop)
        return self._step_marks[loop]

    def _find_step_mark(self, loop: Loop) -> ast.Call | None:
        for call in self._calls_by_loop(self._index.function_of(loop)).get(loop, ()):
            if self.is_training_mark(call):
                return call
            target = self._calls.resolve(call)
            if target is not None and self.trains(target) == "step":
                return call
        return None

    def _calls_by_loop(self, function: FunctionNode | None) -> dict[Loop, list[ast.Call]]:
        """The calls of a function, by the innermost loop that repeats them."""
        known = self._looped.get(function)
        if known is None:
            known = self._looped[function] = {}
            for call in self._calls.calls_in(function):
                loop = next(self._index.loops_of(call), None)
                if loop is not None:
                    known.setdefault(loop, []).append(call)
        return known

    @cached_property
    def trains_somewhere(self) -> bool:
        """Is there anything in the file that makes a training step? Most files have none."""
        return (
            any(function.name in _STEP_NAMES for function in self._calls.functions)
            or any(
                isinstance(call := self._index.parent(marked), ast.Call)
                and call.func is marked
                and self.is_training_mark(call)
                for marked in self._index.attributes_named("step", *_BACKWARD)
            )
            or any(map(self.goes_through_scaler, self._index.of_type(ast.Call)))
        )

    def training_step(self, node: ast.AST) -> Step | None:
        """Proof that `node` runs on each training step, or None. Guards are `Guards.rare`'s business."""
        if not self.trains_somewhere:
            return None
        function = self._index.function_of(node)
        for loop in self._index.loops_of(node):
            mark = self.step_mark(loop)
            if mark is not None:
                whole = isinstance(loop, ast.For) and bool(_EPOCH.search(_text(loop.target)))
                return Step("loop", loop, mark, full_batch=whole)
            if self.is_eval_loop(loop):
                return None
        return self._step_function(function) if function is not None else None

    def _step_function(self, function: FunctionNode) -> Step | None:
        if function in self._stepped:
            return self._stepped[function]
        self._stepped[function] = None
        step: Step | None = None
        marks = [m for m in self.marks_in(function) if next(self._index.loops_of(m), None) is None]
        in_class = isinstance(self._index.parent(function), ast.ClassDef)
        if marks and self.trains(function) == "step":
            step = Step("function", function, marks[0])
        elif in_class and function.name in _STEP_NAMES:
            step = Step("function", function, function)
        elif not self.is_eval_function(function):
            for call in self._calls.callers(function):
                outer = self.training_step(call)
                if outer is not None and self._guards.rare(call, outer.node) is None:
                    step = Step("function", function, call, outer.full_batch)
                    break
        self._stepped[function] = step
        return step

    # -- evaluation, forward, data ---------------------------------------------------------------------

    def is_eval_loop(self, loop: Loop) -> bool:
        """A loop over validation or test data that never trains."""
        if loop not in self._eval_data:
            over = isinstance(loop, (ast.For, ast.AsyncFor)) and self._is_eval_data(loop.iter)
            self._eval_data[loop] = bool(over)
        return self._eval_data[loop] and self.step_mark(loop) is None

    def goes_through_sets(self, loop: Loop) -> bool:
        """Does it go through data sets or their loaders, not batches: `for name, loader in zip(names, loaders)`?"""
        if loop not in self._over_sets:
            self._over_sets[loop] = isinstance(loop, (ast.For, ast.AsyncFor)) and _over_sets(loop)
        return self._over_sets[loop]

    def _is_eval_data(self, iterable: ast.expr) -> bool:
        """By name, or as `it` of `it = iter(val_loader)`."""
        if _EVAL_DATA.search(_text(iterable)):
            return True
        handed = iterable.args[:1] if isinstance(iterable, ast.Call) else [iterable]  # `tqdm(it)`
        given = (self._bindings.last_before(name) for name in handed if isinstance(name, ast.Name))
        return any(
            binding is not None
            and binding.kind == "assign"
            and isinstance(binding.value, ast.Call)
            and _name(binding.value.func) in _PASS_ON
            and bool(_EVAL_DATA.search(_text(binding.value)))
            for binding in given
        )

    def is_eval_function(self, function: FunctionNode) -> bool:
        """Named like an evaluation, or a framework's evaluation hook; does not train."""
        named = function.name in _EVAL_HOOKS or bool(_EVAL_NAME.search(function.name))
        return named and not self.trains(function)

    def forward_of(self, node: ast.AST) -> FunctionNode | None:
        """The `forward` of a module that runs `node`: the function around it, or one that calls that."""
        function = self._index.function_of(node)
        if function is None:
            return None
        cls = self._index.parent(function)
        if not isinstance(cls, ast.ClassDef):
            return None
        if function.name == "forward":
            return function if self.is_module(cls) else None
        if function.name.startswith("__") or not self.is_module(cls):
            return None
        forward = self._calls.method(cls, "forward")
        if forward is not None and any(
            self._index.function_of(c) is forward for c in self._calls.callers(function)
        ):
            return forward
        return None

    def is_module(self, cls: ast.ClassDef) -> bool:
        """Does the class derive from `nn.Module`, as far as the file tells?"""
        for base in cls.bases:
            name = _name(base)
            if name.endswith(_MODULES):
                return True
        init = self._calls.method(cls, "__init__")
        return init is not None and any(
            isinstance(c.func, ast.Attribute) and self._imports.qualified(c.func).startswith("torch.nn.")
            for c in self._calls.calls_in(init)
        )

    def is_compiled(self, node: ast.AST) -> bool:
        """Is `node` in a function that a decorator hands to a compiler, which fuses its kernels?"""
        function = self._index.function_of(node)
        while function is not None:
            if any(_COMPILES.search(_text(d)) for d in function.decorator_list):
                return True
            function = self._index.function_of(function)
        return False

    def is_item_code(self, node: ast.AST) -> FunctionNode | None:
        """The dataset method or collate function that runs `node` in a loader worker, if it is in one."""
        function = self._index.function_of(node)
        if function is None:
            return None
        if function.name in ("__getitem__", "__getitems__") or (
            function.name == "get" and self._is_graph_item(function)
        ):
            return function
        name = function.name
        return function if "collate" in name.lower() or name in self._collate_names else None

    def _is_graph_item(self, function: FunctionNode) -> bool:
        """`get` of a PyTorch Geometric dataset, which its `__getitem__` calls."""
        cls = self._index.parent(function)
        return isinstance(cls, ast.ClassDef) and any(_name(base).endswith("Dataset") for base in cls.bases)

    @cached_property
    def _collate_names(self) -> frozenset[str]:
        return frozenset(
            _name(keyword.value)
            for keyword in self._index.of_type(ast.keyword)
            if keyword.arg == "collate_fn"
        )

    # -- autograd --------------------------------------------------------------------------------------

    def grad_off(self, node: ast.AST) -> bool:
        """Is autograd off where `node` runs: by a `with`, a decorator, a switch, every caller, or volatile inputs?"""
        for ancestor, child in self._index.ancestors(node):
            if isinstance(ancestor, (ast.With, ast.AsyncWith)) and child in ancestor.body:
                if any(self._turns_grad_off(item.context_expr) for item in ancestor.items):
                    return True
            elif isinstance(ancestor, FUNCTIONS) and child in ancestor.body:
                if self._function_grad_off(ancestor):
                    return True
            elif isinstance(ancestor, ast.ClassDef) and any(
                self._turns_grad_off(d) for d in ancestor.decorator_list
            ):
                return True
        at_module_level = self._index.function_of(node) is None
        return self._switched_off(None, node) or (
            at_module_level and self.training_step(node) is None and self._uses_volatile()
        )

    def turns_grad_off(self, function: FunctionNode) -> bool:
        """Does the function itself turn autograd off, by a decorator or a `with`, for some of what it runs?"""
        if any(self._turns_grad_off(d) for d in function.decorator_list):
            return True
        return any(
            self._turns_grad_off(item.context_expr)
            for block in self._index.of_type(ast.With)
            if self._index.function_of(block) is function
            for item in block.items
        )

    def _function_grad_off(self, function: FunctionNode) -> bool:
        known = self._grad_off.get(function)
        if known is not None:
            return known
        self._grad_off[function] = False
        callers = self._calls.callers(function)
        answer = (
            any(self._turns_grad_off(d) for d in function.decorator_list)
            or (function.name in _OFF_BY_FRAMEWORK and isinstance(self._index.parent(function), ast.ClassDef))
            or self._switched_off(function, None)
            or (not self.trains(function) and self._uses_volatile())
            or self._all_callers_off(function, callers)
        )
        self._grad_off[function] = answer
        return answer

    def _all_callers_off(self, function: FunctionNode, callers: Sequence[ast.Call]) -> bool:
        """Is autograd off at each call that is known, here and in other files of the repository?"""
        if not all(self.grad_off(call) for call in callers):
            return False
        elsewhere = self._grad_off_elsewhere(function)
        return all(elsewhere) and bool(callers or elsewhere)

    def _turns_grad_off(self, expr: ast.expr) -> bool:
        if isinstance(expr, ast.Call):
            name = self._imports.qualified(expr.func) or _text(expr.func)
            if name.endswith("set_grad_enabled"):
                return not (
                    expr.args and isinstance(expr.args[0], ast.Constant) and expr.args[0].value is True
                )
            return bool(_NO_GRAD.search(name)) or any(self._turns_grad_off(arg) for arg in expr.args)
        if isinstance(expr, ast.IfExp):
            return self._turns_grad_off(expr.body) or self._turns_grad_off(expr.orelse)
        return bool(_NO_GRAD.search(_text(expr)))

    def _switched_off(self, function: FunctionNode | None, before: ast.AST | None) -> bool:
        """A bare `torch.set_grad_enabled(False)` statement in the function, or at module level."""
        if function not in self._switches:
            self._switches[function] = min(self._switch_lines(function), default=None)
        first = self._switches[function]
        return first is not None and (before is None or first < getattr(before, "lineno", 0))

    def _switch_lines(self, function: FunctionNode | None) -> Iterator[int]:
        for call in self._calls.calls_in(function):
            if _name(call.func) in ("set_grad_enabled", "_set_grad_enabled") and isinstance(
                self._index.parent(call), ast.Expr
            ):
                literal = call.args[0] if call.args else None
                if literal is not None and not (isinstance(literal, ast.Constant) and literal.value is True):
                    yield call.lineno
            elif (
                isinstance(call.func, ast.Attribute)
                and call.func.attr in ("__enter__", "enter_context")
                and any(self._turns_grad_off(part) for part in (call.func.value, *call.args))
            ):
                yield call.lineno  # entered by hand, and on from there


def _over_sets(loop: ast.For | ast.AsyncFor) -> bool:
    iterated: list[ast.expr] = [loop.iter]
    while len(iterated) == 1 and isinstance(call := iterated[0], ast.Call):
        if isinstance(call.func, ast.Attribute) and call.func.attr in _KEYED and not call.args:
            iterated = [call.func.value]
        elif call.args and last_name(call.func) in _HANDS_ON:
            iterated = call.args if last_name(call.func) == "zip" else call.args[:1]
        else:
            break
    names = [node.id for node in walk(loop.target) if isinstance(node, ast.Name)]
    if any(_OF_BATCH.search(name) for name in names):
        return False
    if any(_ONE_STREAM.search(last_name(each)) for each in iterated):
        return False  # the batches of one loader, which name the data set that they are of
    if any(_ONE_SET.search(name) for name in names):
        return True
    whole = isinstance(loop.target, ast.Name) or iterated[0] is not loop.iter
    return whole and any(_SETS.search(last_name(each)) for each in iterated)


def _name(node: ast.expr) -> str:
    """Last part of a dotted name; looks through calls and subscripts."""
    while isinstance(node, (ast.Call, ast.Subscript)):
        node = node.func if isinstance(node, ast.Call) else node.value
    return last_name(node)


def _text(node: ast.AST) -> str:
    return ast.unparse(node)
