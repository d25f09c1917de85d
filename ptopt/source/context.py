"""Where am I: in a training step, an evaluation loop, a forward pass, a dataset item, behind a rare guard?"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from ptopt.source.calls import CallGraph, last_name
from ptopt.source.imports import Imports
from ptopt.source.index import FUNCTIONS, FunctionNode, Index, Loop, walk

_BACKWARD = frozenset({"backward", "manual_backward"})
_OPTIMIZER = re.compile(r"optim|(^|_)opts?(_|$|\d)|scaler|(^|_)engine$", re.I)
_STEP_NAMES = frozenset(
    {"training_step", "train_step", "compute_loss", "training_step_and_backward", "optimize_parameters"}
)
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
_EVAL_NAME = re.compile(
    r"(^|_)(eval|evaluate|evaluation|valid|validate|validation|val|test|testing|predict|prediction|infer|inference)"
    r"(_|$|\d)",
    re.I,
)
_TRAINING_NAME = re.compile(r"(^|_)(train|training|fit|pretrain|finetune|fine_tune)(_|$)", re.I)
_EVAL_DATA = re.compile(
    r"(^|_)(val|valid|validation|eval|evaluation|test|dev|predict)(_|$)|(val|test|eval)_?(loader|dl|iter|set)",
    re.I,
)
_EPOCH = re.compile(r"epoch", re.I)
# Names that, in a condition, tell that its branch is for reporting, saving or debugging: it runs rarely.
_FINITE = re.compile(r"(?<!in)(?<!non)(?<!non_)(?<!not_)finite")
_RARE_NAME = re.compile(
    r"debug|verbose|(^|_)log(?!_?(it|prob|sigma|scale|var|std|softmax|alpha|domain|space|p$))|logging|print"
    r"|(?<!lora)(?<!low)(^|_)rank(_?(zero|0))?$|get_rank|main_process|is_main|(^|_)(is_)?master(_(process|rank|only|proc))?$"
    r"|is_local|zero_process|coordinator|(^|_)(done|finished)$"
    r"|profil|visuali[sz]|plot|save|ckpt|checkpoint|(^|_)eval|(^|_)valid|(^|_)val($|_)|dry_?run|wandb|tensorboard|tb_|writer"
    r"|display|(^|_)first(_(step|iter|iteration|batch|time|run|pass|epoch|call))?$|should_|report|dump|summary|nan|isinf|infinite|non_?finite|not_finite|invalid|overflow|diverg|early|patience|(^|_)best"
    r"|dist_avail|measure|timing|histogram|interval|every|frequency|freq$",
    re.I,
)
_ACCUMULATION = re.compile(r"accum|micro|update_freq|iters_to", re.I)
_NO_GRAD = re.compile(r"no_?grad|inference_mode|eval_mode", re.I)
_LAST = re.compile(r"(^|_)(last|final)(_|$)", re.I)

_LEAVING = (ast.Return, ast.Continue, ast.Break, ast.Raise)


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
        imports: Imports,
        calls: CallGraph,
        grad_off_elsewhere: Callable[[FunctionNode], Sequence[bool]] = lambda _: (),
        uses_volatile: bool = False,
    ) -> None:
        self._uses_volatile = uses_volatile
        self._grad_off_elsewhere = grad_off_elsewhere  # of each call of a function in other files
        self._index = index
        self._imports = imports
        self._calls = calls
        self._marks: dict[FunctionNode | None, list[ast.Call]] = {}
        self._trains: dict[FunctionNode, str] = {}
        self._grad_off: dict[FunctionNode, bool] = {}
        self._stepped: dict[FunctionNode, Step | None] = {}
        self._looped: dict[FunctionNode | None, dict[Loop, list[ast.Call]]] = {}
        self._step_marks: dict[Loop, ast.Call | None] = {}
        self._eval_data: dict[Loop, bool] = {}
        self._rare: dict[tuple[ast.expr, bool], bool] = {}
        self._continued: dict[ast.AST, frozenset[ast.stmt]] = {}
        self._switches: dict[FunctionNode | None, int | None] = {}

    # -- training --------------------------------------------------------------------------------------

    def is_training_mark(self, call: ast.Call) -> bool:
        """`loss.backward()`, `accelerator.backward(loss)`, `optimizer.step()`, `scaler.step(optimizer)`, ..."""
        func = call.func
        if not isinstance(func, ast.Attribute):
            return False
        if func.attr in _BACKWARD:
            return not (isinstance(func.value, ast.Call) and _name(func.value.func) == "super")
        return func.attr == "step" and bool(_OPTIMIZER.search(_name(func.value)))

    def marks_in(self, function: FunctionNode | None) -> list[ast.Call]:
        known = self._marks.get(function)
        if known is None:
            known = [c for c in self._calls.calls_in(function) if self.is_training_mark(c)]
            self._marks[function] = known
        return known

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
                looped = inner == "loop" or next(self._index.loops_of(call), None) is not None
                answer = "loop" if looped else answer or "step"
        self._trains[function] = answer
        return answer

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
    def _trains_somewhere(self) -> bool:
        """Is there anything in the file that makes a training step? Most files have none."""
        return any(function.name in _STEP_NAMES for function in self._calls.functions) or any(
            isinstance(call := self._index.parent(marked), ast.Call)
            and call.func is marked
            and self.is_training_mark(call)
            for marked in self._index.attributes_named("step", *_BACKWARD)
        )

    def training_step(self, node: ast.AST) -> Step | None:
        """Proof that `node` runs on each training step, or None. Guards are `rare_guard`'s business."""
        if not self._trains_somewhere:
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
                if outer is not None and self.rare_guard(call, outer.node) is None:
                    step = Step("function", function, call, outer.full_batch)
                    break
        self._stepped[function] = step
        return step

    # -- evaluation, forward, data ---------------------------------------------------------------------

    def is_eval_loop(self, loop: Loop) -> bool:
        """A loop over validation or test data that never trains."""
        if loop not in self._eval_data:
            over = isinstance(loop, (ast.For, ast.AsyncFor)) and _EVAL_DATA.search(_text(loop.iter))
            self._eval_data[loop] = bool(over)
        return self._eval_data[loop] and self.step_mark(loop) is None

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
            if re.search(r"(Module|Layer|Model|Block|Net|Head|Encoder|Decoder|Attention|Mixin|Base)$", name):
                return True
        init = self._calls.method(cls, "__init__")
        return init is not None and any(
            isinstance(c.func, ast.Attribute) and self._imports.qualified(c.func).startswith("torch.nn.")
            for c in self._calls.calls_in(init)
        )

    def is_item_code(self, node: ast.AST) -> FunctionNode | None:
        """The dataset method or collate function that runs `node` in a loader worker, if it is in one."""
        function = self._index.function_of(node)
        if function is None:
            return None
        if function.name in ("__getitem__", "__getitems__") or self._is_graph_item(function):
            return function
        if re.search(r"collate", function.name, re.I):
            return function
        return function if function.name in self._collate_names else None

    def _is_graph_item(self, function: FunctionNode) -> bool:
        """`get` of a PyTorch Geometric dataset, which its `__getitem__` calls."""
        cls = self._index.parent(function) if function.name == "get" else None
        return isinstance(cls, ast.ClassDef) and any(_name(base).endswith("Dataset") for base in cls.bases)

    @cached_property
    def _collate_names(self) -> frozenset[str]:
        return frozenset(
            _name(keyword.value)
            for keyword in self._index.of_type(ast.keyword)
            if keyword.arg == "collate_fn"
        )

    # -- guards ----------------------------------------------------------------------------------------

    def is_unreachable(self, node: ast.AST) -> bool:
        """Is it dead code: under `if False:`, or after a `return`, `continue`, `break` or `raise` of its block?"""
        dead = self._dead
        return bool(dead) and any(child in dead for _, child in self._index.ancestors(node))

    @cached_property
    def _dead(self) -> frozenset[ast.stmt]:
        """Statements that control never reaches, and with them all that they hold."""
        dead: set[ast.stmt] = set()
        for leaving in self._index.of_type(*_LEAVING):
            block = self._index.parent(leaving)
            for statements in (getattr(block, name, None) for name in ("body", "orelse", "finalbody")):
                if isinstance(statements, list) and leaving in statements:
                    dead.update(statements[statements.index(leaving) + 1 :])
        for test in self._index.of_type(ast.If):
            if isinstance(test.test, ast.Constant) and not test.test.value:
                dead.update(test.body)
        return frozenset(dead)

    def is_device_fallback(self, node: ast.AST) -> bool:
        """Does the branch around it, in its function, ask a tensor which kind of device it is on: `if x.is_cuda:`?"""
        if not self._device_tests:
            return False
        for ancestor, child in self._index.ancestors(node):
            if isinstance(ancestor, FUNCTIONS):
                break
            if isinstance(ancestor, (ast.If, ast.IfExp)) and ancestor.test in self._device_tests:
                return child is not ancestor.test
        return False

    @cached_property
    def _device_tests(self) -> frozenset[ast.AST]:
        """The conditions that ask for the kind of a device."""
        return frozenset(
            child
            for asked in self._index.of_type(ast.Attribute)
            if _asks_device_kind(asked)
            for ancestor, child in self._index.ancestors(asked)
            if isinstance(ancestor, (ast.If, ast.IfExp)) and child is ancestor.test
        )

    def rare_guard(self, node: ast.AST, stop: ast.AST | None = None) -> ast.AST | None:
        """What makes `node` run only now and then inside `stop` (default: its function), or None.

        A modulo test, a first or last iteration, a debug, logging or rank-0 switch, an exception handler, a
        branch that leaves the loop, an earlier `continue` on most iterations.
        """
        for ancestor, child in self._index.ancestors(node):
            if isinstance(ancestor, ast.If) and child is not ancestor.test:
                in_body = child in ancestor.body
                if self._is_rare(ancestor.test, in_body) or (in_body and _leaves(ancestor.body)):
                    return ancestor
            elif isinstance(ancestor, ast.IfExp) and child is not ancestor.test:
                if self._is_rare(ancestor.test, child is ancestor.body):
                    return ancestor
            elif isinstance(ancestor, ast.BoolOp) and isinstance(ancestor.op, ast.And):
                before = ancestor.values[: ancestor.values.index(child)] if child in ancestor.values else []
                if any(self._is_rare(value, True) for value in before):
                    return ancestor
            elif isinstance(ancestor, ast.ExceptHandler):
                return ancestor
            elif isinstance(ancestor, ast.Assert) and child is ancestor.msg:
                return ancestor
            elif isinstance(ancestor, ast.Raise):
                return ancestor
            if isinstance(child, ast.stmt) and self._after_continue(ancestor, child):
                return ancestor
            if ancestor is stop or (stop is None and isinstance(ancestor, FUNCTIONS)):
                return None
        return None

    def _after_continue(self, block: ast.AST, child: ast.stmt) -> bool:
        """Does an earlier `if step % n: continue` keep most iterations away from `child`?"""
        if block not in self._continued:
            self._continued[block] = frozenset(self._after_first_continue(block))
        return child in self._continued[block]

    def _after_first_continue(self, block: ast.AST) -> list[ast.stmt]:
        body = getattr(block, "body", None)
        for at, stmt in enumerate(body if isinstance(body, list) else ()):
            leaves = isinstance(stmt, ast.If) and isinstance(stmt.body[0], (ast.Continue, ast.Return))
            if isinstance(stmt, ast.If) and leaves and self._is_rare(stmt.test, False):
                return list(block.body[at + 1 :])  # type: ignore[attr-defined]
        return []

    def _is_rare(self, test: ast.expr, in_body: bool) -> bool:
        known = self._rare.get((test, in_body))
        if known is None:
            known = self._rare[test, in_body] = is_rare_test(test, in_body)
        return known

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
            at_module_level and self._uses_volatile and self.training_step(node) is None
        )

    def _function_grad_off(self, function: FunctionNode) -> bool:
        known = self._grad_off.get(function)
        if known is not None:
            return known
        self._grad_off[function] = False
        callers = self._calls.callers(function)
        answer = (
            any(self._turns_grad_off(d) for d in function.decorator_list)
            or (self._uses_volatile and not self.trains(function))
            or (function.name in _EVAL_HOOKS and isinstance(self._index.parent(function), ast.ClassDef))
            or self._switched_off(function, None)
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


def _asks_device_kind(node: ast.AST) -> bool:
    """`x.is_cuda`, `x.device.type`"""
    if not isinstance(node, ast.Attribute):
        return False
    of_device = isinstance(node.value, ast.Attribute) and node.value.attr == "device"
    return node.attr in ("is_cuda", "is_mps", "is_xpu") or (node.attr == "type" and of_device)


def is_rare_test(test: ast.expr, in_body: bool) -> bool:
    """Does the branch of `if test:` (its body, or its else) run only now and then?"""
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        return is_rare_test(test.operand, not in_body)
    if isinstance(test, ast.BoolOp):
        if isinstance(test.op, ast.And):
            return in_body and any(is_rare_test(value, True) for value in test.values)
        return all(is_rare_test(value, in_body) for value in test.values)
    modulo = next((n for n in walk(test) if isinstance(n, ast.BinOp) and isinstance(n.op, ast.Mod)), None)
    if modulo is not None:
        if _ACCUMULATION.search(_text(modulo.right)):
            return False
        negated = test is modulo or (isinstance(test, ast.Compare) and isinstance(test.ops[0], ast.NotEq))
        if isinstance(test, ast.Compare) and isinstance(test.ops[0], (ast.Gt, ast.GtE)):
            negated = True
        return in_body != negated
    if isinstance(test, ast.Compare) and len(test.ops) == 1:
        left, right = test.left, test.comparators[0]
        if isinstance(test.ops[0], (ast.Eq, ast.LtE, ast.Lt)) and _is_edge(left, right):
            return in_body
        if isinstance(test.ops[0], (ast.NotEq, ast.Gt, ast.GtE)) and _is_edge(left, right):
            return not in_body
        if isinstance(test.ops[0], (ast.Is, ast.IsNot)):
            return in_body == isinstance(test.ops[0], ast.IsNot) and _mentions_rare(left)
    if any(_FINITE.search(name) for name in _names_in(test)):
        return not in_body  # it nearly always is
    return in_body and _mentions_rare(test)


def _is_edge(left: ast.expr, right: ast.expr) -> bool:
    """`step == 0`, `i == len(loader) - 1`, `step < 10`: the first or last iterations, or rank 0."""
    if isinstance(right, ast.Constant) and isinstance(right.value, int) and not isinstance(right.value, bool):
        return bool(
            re.search(
                r"step|iter|batch_?i|(^|_)i(dx|ndex)?$|epoch|rank|count|^[ijkn]$|^it$", _text(left), re.I
            )
        )
    if isinstance(right, ast.BinOp) and isinstance(right.op, ast.Sub):
        return "len(" in _text(right.left) or bool(re.search(r"(num|max|total|n)_", _text(right.left)))
    return False


def _mentions_rare(test: ast.expr) -> bool:
    return any(
        (_RARE_NAME.search(name) or _LAST.search(name)) and not _ACCUMULATION.search(name)
        for name in _names_in(test)
    )


def _names_in(test: ast.expr) -> Iterator[str]:
    for node in walk(test):
        if isinstance(node, ast.Name):
            yield node.id
        elif isinstance(node, ast.Attribute):
            yield node.attr


def _leaves(body: list[ast.stmt]) -> bool:
    """The branch raises, breaks or exits: it runs once at most."""
    last = body[-1]
    if isinstance(last, (ast.Raise, ast.Break)):
        return True
    call = last.value if isinstance(last, ast.Expr) and isinstance(last.value, ast.Call) else None
    return call is not None and _text(call.func) in ("sys.exit", "exit", "quit", "os._exit")


def _name(node: ast.expr) -> str:
    """Last part of a dotted name; looks through calls and subscripts."""
    while isinstance(node, (ast.Call, ast.Subscript)):
        node = node.func if isinstance(node, ast.Call) else node.value
    return last_name(node)


def _text(node: ast.AST) -> str:
    return ast.unparse(node)
