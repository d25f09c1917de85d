from __future__ import annotations

import ast
import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterator

from ptopt.rules.base import (
    TEXTBOOK,
    Edit,
    Evidence,
    Fix,
    Invalid,
    Problem,
    Rule,
    Safety,
    Severity,
    SourceFile,
)
from ptopt.rules.code import is_literal, keyword_of, method_call, quote
from ptopt.source.calls import called_name, last_name
from ptopt.source.file import remembered
from ptopt.source.index import FunctionNode

_CLIPS = frozenset({"clip_grad_norm_", "clip_grad_value_", "clip_grad_norm", "clip_grad_value"})
_SCALER_CLASS = re.compile(r"(Grad|Gradient|Amp|AMP)_?Scaler$|grad_?scaler$")
_MEASURES = re.compile(r"inf\b|1e\d|\d{5}", re.I)  # a bound that nothing reaches: the norm is only measured


class ClippedWhileScaled(Rule):
    """Gradients are clipped while they are still multiplied by the scale of the GradScaler.

    ## What it does
    Finds `clip_grad_norm_` and `clip_grad_value_` between `scaler.scale(loss).backward()` and `scaler.step(optimizer)`
    without `scaler.unscale_(optimizer)` before them.

    ## Why it is slow
    The gradients are 65,536 times too large at first, so that nearly every step is clipped to the bound, and `scaler.step`
    then divides the bound by the scale, too. Plain gradient descent hardly moves; with optimizers that divide by the size
    of the gradients, the clipping limits nothing. No error tells.

    ## Fix safety
    Unsafe: training takes larger steps than before, as its bound says.

    ## Sources
    - [Automatic mixed precision examples: gradient clipping](https://docs.pytorch.org/docs/stable/notes/amp_examples.html#gradient-clipping)
    """

    id = "PTO756"
    name = "clipped-while-scaled"
    family = "precision"
    severity = Severity.HIGH
    triggers = ("clip_grad",)
    requires = (".scale(",)
    nodes = (ast.Call,)
    calls = frozenset({"step"})
    when_wrong = "the bound is multiplied by the scale, or the scaler is off wherever gradients are clipped"

    VALID = (
        """
        scaler = torch.amp.GradScaler("cuda")
        for x in loader:
            scaler.scale(model(x).mean()).backward()
            scaler.unscale_(optimizer)
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            scaler.step(optimizer)
            scaler.update()
        """,
        """
        def step(self, loss):
            if self.scaler is not None:
                self.scaler.scale(loss).backward()
                self.scaler.step(self.optimizer)
                self.scaler.update()
            else:
                loss.backward()
                torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
                self.optimizer.step()
        """,
        """
        class Trainer:
            def _clip(self):
                self.scaler.unscale_(self.optimizer)
                torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)

            def step(self, loss):
                self.scaler.scale(loss).backward()
                self._clip()
                self.scaler.step(self.optimizer)
                self.scaler.update()
        """,
        """
        def step(loss, scaler, optimizer):
            scaler.scale(loss).backward()
            norm = torch.nn.utils.clip_grad_norm_(model.parameters(), float("inf"))
            scaler.step(optimizer)
        """,
        """
        def step(loss, scaler, optimizer, model):
            scaler.scale(loss).backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0 * scaler.get_scale())
            scaler.step(optimizer)
        """,
        """
        scaler = torch.amp.GradScaler("cuda", enabled=False)
        for x in loader:
            scaler.scale(model(x).mean()).backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            scaler.step(optimizer)
        """,
        """
        def step(loss, scaler, optimizer, model, amp):
            if amp:
                scaler.scale(loss).backward()
            else:
                loss.backward()
            if not amp:
                torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            if amp:
                scaler.step(optimizer)
        """,
    )
    INVALID = (
        Invalid("""
            for x, y in loader:
                with torch.autocast("cuda"):
                    loss = F.mse_loss(model(x.cuda()), y.cuda())
                scaler.scale(loss).backward()
                torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)  # !
                scaler.unscale_(optimizer)
                scaler.step(optimizer)
                scaler.update()
        """),
        Invalid("""
            scaler = torch.amp.GradScaler("cuda")
            for x in loader:
                optimizer.zero_grad()
                scaler.scale(model(x).mean()).backward()
                # + scaler.scale(model(x).mean()).backward()
                # + scaler.unscale_(optimizer)
                torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)  # !
                scaler.step(optimizer)
                scaler.update()
        """),
        Invalid("""
            class Trainer:
                def step(self, loss):
                    self.scaler.scale(loss).backward()
                    if self.max_norm is not None:
                    # + if self.max_norm is not None:
                    # +     self.scaler.unscale_(self.optimizer)
                        nn.utils.clip_grad_norm_(self.model.parameters(), self.max_norm)  # !
                    self.scaler.step(self.optimizer)
                    self.scaler.update()
        """),
        Invalid("""
            def train(model, loader, optimizer, amp):
                scaler = torch.cuda.amp.GradScaler() if amp else None
                for i, x in enumerate(loader):
                    loss = model(x).mean()
                    if scaler is not None:
                        scaler.scale(loss).backward()
                    else:
                        loss.backward()
                        # + loss.backward()
                    # + if scaler is not None:
                    # +     scaler.unscale_(optimizer)
                    torch.nn.utils.clip_grad_norm_(model.parameters(), 5.0)  # !
                    if scaler is not None:
                        scaler.step(optimizer)
                        scaler.update()
                    else:
                        optimizer.step()
        """),
        Invalid("""
            class Task:
                def step(self, loss):
                    self.scaler.scale(loss).backward()
                    # + self.scaler.scale(loss).backward()
                    # + self.scaler.unscale_(self.optimizer)
                    self._clip_gradients(1.0)  # !
                    self.scaler.step(self.optimizer)
                    self.scaler.update()

                def _clip_gradients(self, bound):
                    nn.utils.clip_grad_value_(self.model.parameters(), bound)
        """),
        Invalid("""
            class Trainer:
                def backward_step(self, loss, scaler):
                    scaler.scale(loss).backward()

                def update_step(self, optimizer, scaler):
                # + def update_step(self, optimizer, scaler):
                # +     scaler.unscale_(optimizer)
                    nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)  # !
                    scaler.step(optimizer)
                    scaler.update()
        """),
    )

    def check(self, node: ast.AST, file: SourceFile) -> Iterator[Problem]:
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute) or not node.args:
            return
        scaler = file.source(node.func.value)
        function = file.index.function_of(node)
        scaled = _scaled_before(node, scaler, function, file)
        if scaled is None or not _is_grad_scaler(scaler, file):
            return
        # In another method: all that stands before the step.
        first = scaled.lineno if file.index.function_of(scaled) is function else 0
        unscaled = _between(_unscaling(function, scaler, file), first, node.lineno)
        for call in _between(_clipping(function, file), first + 1, node.lineno):
            late = [other for other in unscaled if other.lineno > call.lineno]
            if len(late) < len(unscaled) or not all(_is_of(o, "unscale_", scaler, file) for o in late):
                continue  # divided before, or nobody knows when
            if any(_exclude(call, other, file) for other in late):
                continue
            if _exclude(call, scaled, file) or _exclude(call, node, file) or _exclude(scaled, node, file):
                continue
            later = _between(_steps(function, scaler, file), call.lineno)
            optimizers = {file.source(step.args[0]) for step in later}
            optimizer = file.source(node.args[0])
            moved = tuple(
                Problem(
                    other,
                    f"{quote(file, other, 50)} comes after {quote(file, call, 50)}, which sees "
                    f"gradients that are still multiplied by the scale of `{scaler}` (65,536 at first). Put it before line {call.lineno}.",
                    TEXTBOOK,
                    cause=function,
                )
                for other in late
            )
            yield Problem(
                call,
                f"{quote(file, call, 50)} sees gradients that are still multiplied by the scale of `{scaler}` (65,536 at first), "
                "so that nearly every step is clipped, to a bound that is then divided by the scale. Call "
                f"`{scaler}.unscale_({optimizer})` before it.",
                TEXTBOOK,
                (
                    Evidence(
                        scaled.lineno, "the loss, and with it each gradient, is multiplied by the scale"
                    ),
                    Evidence(node.lineno, "only this divides the gradients by the scale"),
                ),
                _fix(call, node, scaler, optimizer, file) if len(optimizers) == 1 and not late else None,
                cause=function,
                elsewhere=moved,
            )
            return


def _scaled_before(
    step: ast.Call, scaler: str, function: FunctionNode | None, file: SourceFile
) -> ast.Call | None:
    """The last `scaler.scale(loss)` before the step of the same scaler: in its function, else in another method."""
    before = _between(_scaled(function, scaler, file), 0, step.lineno - 1)
    if before or "unscale" in file.text:
        return before[-1] if before else None
    cls = file.index.class_of(step)
    return _scaled_in_class(cls, scaler, file) if cls is not None else None


@remembered
def _scaled(function: FunctionNode | None, scaler: str, file: SourceFile) -> list[ast.Call]:
    return [c for c in file.calls.calls_in(function) if _is_of(c, "scale", scaler, file)]


@remembered
def _scaled_in_class(cls: ast.ClassDef, scaler: str, file: SourceFile) -> ast.Call | None:
    found = (c for c in file.calls_named("scale") if _is_of(c, "scale", scaler, file))
    return next((c for c in found if file.index.class_of(c) is cls), None)


@remembered
def _steps(function: FunctionNode | None, scaler: str, file: SourceFile) -> list[ast.Call]:
    return [c for c in file.calls.calls_in(function) if c.args and _is_of(c, "step", scaler, file)]


@remembered
def _unscaling(function: FunctionNode | None, scaler: str, file: SourceFile) -> list[ast.Call]:
    return [c for c in file.calls.calls_in(function) if _may_unscale(c, scaler, file)]


@remembered
def _clipping(function: FunctionNode | None, file: SourceFile) -> list[ast.Call]:
    calls = file.calls.calls_in(function)
    return [c for c in calls if _clips(c, file) and not _only_measures(c, file)]


def _between(calls: list[ast.Call], first: int, last: int | None = None) -> list[ast.Call]:
    """Those of the calls, which are in source order, that begin on the lines `first` to `last`."""
    start = bisect_left(calls, first, key=lambda c: c.lineno)
    return calls[start : None if last is None else bisect_right(calls, last, key=lambda c: c.lineno)]


def _is_of(call: ast.Call, method: str, scaler: str, file: SourceFile) -> bool:
    receiver = method_call(call, method)
    return receiver is not None and file.source(receiver) == scaler


def _is_grad_scaler(scaler: str, file: SourceFile) -> bool:
    """By what the file assigns to it: nothing that is seen, or a GradScaler that is not switched off."""
    for value in file.once(_made).get(scaler, ()):
        if not _SCALER_CLASS.search(last_name(value.func)) or is_literal(keyword_of(value, "enabled"), False):
            return False
    return True


def _made(file: SourceFile) -> dict[str, list[ast.Call]]:
    """Dotted name -> the calls whose result it is given, if only in one case."""
    table: dict[str, list[ast.Call]] = {}
    for assign in file.index.of_type(ast.Assign):
        value = assign.value
        for given in (value.body, value.orelse) if isinstance(value, ast.IfExp) else (value,):
            if isinstance(given, ast.Call):
                for target in assign.targets:
                    table.setdefault(_text(target), []).append(given)
    return table


def _may_unscale(call: ast.Call, scaler: str, file: SourceFile) -> bool:
    """Does the call divide the gradients by the scale, or give the scaler to somebody who may?"""
    if "unscale" in called_name(call):
        return True
    own = file.calls.resolve(call)
    if own is not None:
        return _unscales(own, file)
    return any(_text(given) == scaler for given in (*call.args, *(k.value for k in call.keywords)))


@remembered
def _unscales(function: FunctionNode, file: SourceFile) -> bool:
    return "unscale" in file.source(function)


def _clips(call: ast.Call, file: SourceFile) -> bool:
    """A call of torch that clips, or of a function of this file that does."""
    if called_name(call) in _CLIPS:
        return "accelerator" not in file.source(call.func).lower()
    own = file.calls.resolve(call)
    return own is not None and _helps_clipping(own, file)


@remembered
def _helps_clipping(function: FunctionNode, file: SourceFile) -> bool:
    calls = file.calls.calls_in(function)
    clips = any(called_name(c) in _CLIPS and not _only_measures(c, file) for c in calls)
    return clips and not any(called_name(c) in ("step", "backward") for c in calls)


def _only_measures(call: ast.Call, file: SourceFile) -> bool:
    """Is the bound out of reach, or multiplied by the scale?"""
    bounds = [*call.args[1:2], *(k.value for k in call.keywords if k.arg in ("max_norm", "clip_value"))]
    return any(_MEASURES.search(file.source(b)) or "scale" in file.source(b) for b in bounds)


def _exclude(a: ast.AST, b: ast.AST, file: SourceFile) -> bool:
    """Do the two never run in one pass: in two branches of a condition, or under a condition and its opposite?"""
    tests_of_a, tests_of_b = _tests(a, file), _tests(b, file)
    return any((test, not holds) in tests_of_b for test, holds in tests_of_a)


@remembered
def _tests(node: ast.AST, file: SourceFile) -> frozenset[tuple[str, bool]]:
    """The conditions that hold where the node runs, as text, and whether they must be true."""
    found: set[tuple[str, bool]] = set()
    for ancestor, child in file.index.ancestors(node):
        if isinstance(ancestor, ast.If) and child is not ancestor.test:
            found |= _facts(ancestor.test, child in ancestor.body)
    return frozenset(found)


def _facts(test: ast.expr, holds: bool) -> set[tuple[str, bool]]:
    """What is known where the test holds, or does not: `not x` and `x is None` are `x` turned round."""
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        return _facts(test.operand, not holds)
    if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And) == holds:
        return {fact for value in test.values for fact in _facts(value, holds)}
    if isinstance(test, ast.Compare) and len(test.ops) == 1 and is_literal(test.comparators[0], None):
        return {(_text(test.left), holds == isinstance(test.ops[0], ast.IsNot))}
    return {(_text(test), holds)}


def _fix(clip: ast.Call, step: ast.Call, scaler: str, optimizer: str, file: SourceFile) -> Fix | None:
    """`scaler.unscale_(optimizer)` above the clipping, under the condition that the scaler is used on."""
    statement = file.index.statement_of(clip)
    first, (start, _) = file.offset(statement.lineno, 0), file.bounds(statement)
    indent = file.data[first:start].decode("utf-8", "surrogatepass")
    if indent.strip() or isinstance(statement, (ast.If, ast.For, ast.While, ast.With, ast.Try)):
        return None
    newline = "\r\n" if "\r\n" in file.text else "\n"
    text = f"{scaler}.unscale_({optimizer}){newline}"
    wanting = _tests(step, file) - _tests(clip, file)
    if wanting:
        condition = file.index.enclosing(step, (ast.If,))
        if condition is None or len(_facts(condition.test, True)) < len(wanting):
            return None
        if file.index.statement_of(step) not in condition.body or "\n" in file.source(condition.test):
            return None
        unit = "\t" if "\t" in indent else "    "
        text = f"if {file.source(condition.test)}:{newline}{indent}{unit}{text}"
    return Fix(
        Safety.UNSAFE, (Edit(first, first, f"{indent}{text}"),), "the bound is meant for the true gradients"
    )


def _text(node: ast.expr) -> str:
    return ast.unparse(node)
