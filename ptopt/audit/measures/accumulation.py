"""How many micro-batches make one step of the optimizer."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import replace

from ptopt.audit.arguments import TrainerArguments, keyword_value, lightning_argument
from ptopt.audit.calling import callers
from ptopt.audit.known import Value
from ptopt.audit.modules import Module, text_of
from ptopt.audit.setup import Candidate, Setup
from ptopt.audit.values import Measure, State

_ACCUMULATES = re.compile(
    r"accum|grad_acc|gradient_acc|update_freq|iters_to_acc|subdivision|iter_size|virtual_batch|sub_?batch|micro_?(step|batch)",
    re.I,
)
_ASKS = re.compile(
    r"grad\w*_?accum|^accum\w*_(grad\w*|steps?|iters?|counts?|batch\w*|freq)$|^iters_to_acc", re.I
)


def accumulation(setup: Setup) -> Measure:
    key, title = "accumulation", "Gradient accumulation"
    if setup.framework in ("transformers", "TRL"):
        return _steps(key, title, TrainerArguments(setup).of("gradient_accumulation_steps"))
    if setup.framework == "Lightning":
        return _steps(key, title, lightning_argument(setup, "accumulate_grad_batches", 1))
    by_option: Value | None = None  # that asks for one micro-batch
    if setup.framework == "Accelerate":
        default = Value(True, 1, "default of Accelerate")
        value = keyword_value(setup, setup.calls("Accelerator"), "gradient_accumulation_steps", default)
        if not setup.calls("Accelerator"):
            value = setup.evaluator.option("gradient_accumulation_steps") or value
        if value.known and value.value != 1 or not value.known:
            return _steps(key, title, value)
        by_option = value if value.option or value.note.startswith("default of `") else None
    found = list(_guards(setup))
    open_ = [c for c in found if c.value.truth is None]
    if open_ and not any(c.value.truth for c in found):
        stated = _stated_ones(setup) or (_asked_for(setup) if len(open_) == len(found) else None)
        if stated is not None:
            return _steps(key, title, stated)
    if not found and (asked := _asked_for(setup)) is not None:
        return _steps(key, title, asked)
    if not found and by_option is not None:
        return _steps(key, title, by_option)
    if not found and setup.framework in ("DeepSpeed", "Colossal-AI"):
        return Measure(
            key, title, State.UNKNOWN, f"the configuration of {setup.framework} sets it", setup.where()
        )
    return setup.decide(
        key, title, found, "each backward pass is followed by a step of the optimizer", blind=setup.blind_loop
    )


def _asked_for(setup: Setup) -> Value | None:
    """The one option that asks for micro-batches, where it asks for several: how the loop counts them was not recognised."""
    names = [
        n for n in setup.evaluator.option_names() if _ASKS.search(n) and setup.says(re.compile(re.escape(n)))
    ]
    value = setup.evaluator.option(names[0]) if len(names) == 1 else None
    several = value is not None and value.known and isinstance(value.value, int) and value.value > 1
    return value if several else None


def _stated_ones(setup: Setup) -> Value | None:
    """The option that asks for micro-batches, where all such options ask for none by default."""
    values = [
        value
        for name in setup.evaluator.option_names()
        if _ACCUMULATES.search(name) and (value := setup.evaluator.option(name)) is not None
    ]
    none = [v for v in values if v.known and (v.value in (None, 0, 1, -1, False))]
    return replace(none[0], value=1) if none and len(none) == len(values) else None


def _steps(key: str, title: str, value: Value) -> Measure:
    places = () if value.place is None else (value.place,)
    several = [c for c in value.choices if isinstance(c, int) and c > 1]
    if several and len(several) == len(value.choices):
        shown = " or ".join(map(str, dict.fromkeys(several)))
        return Measure(key, title, State.ON, f"{shown} micro-batches a step ({value.note})", places)
    if not value.known:
        return Measure(key, title, State.UNKNOWN, f"{value.note}", places)
    note = f" ({value.note})" if value.note else ""
    try:
        on = int(value.value or 1) > 1
    except (TypeError, ValueError):
        return Measure(key, title, State.UNKNOWN, f"{value.value}", places)
    detail = f"{value.value} micro-batches a step{note}" if on else f"1 micro-batch a step{note}"
    return Measure(key, title, State.ON if on else State.OFF, detail, places)


def _conditional_steps(module: Module, call: ast.Call) -> list[ast.Compare] | None:
    """`scaler(loss, optimizer, update_grad=(i + 1) % accumulate == 0)`: its conditions."""
    compared = [k.value for k in call.keywords if isinstance(k.value, ast.Compare)]
    return compared if compared and any("optim" in text_of(a) for a in call.args) else None


def _guards(setup: Setup) -> Iterator[Candidate]:
    """`if (i + 1) % accumulate == 0: optimizer.step()`: on where the number is above 1."""
    for module, call in setup.calls("step", "optimizer_step"):
        if not module.file.context.is_training_mark(call):
            continue
        for ancestor, child in module.file.index.ancestors(call):
            if not (isinstance(ancestor, ast.If) and child in ancestor.body):
                continue
            number = _modulus(_test_of(module, ancestor), any_number=not _holds_backward(ancestor))
            if number is None and not _holds_backward(ancestor):
                number = _counted_to(module, ancestor)
            if number is None:
                continue
            value = _above_one(setup.value(module, number))
            # Its own condition is the accumulation: what counts is whether that is reached.
            found = setup.site(module, ancestor, f"a step every `{text_of(number)}` micro-batches", value)
            yield replace(found, place=setup.place(module, call))
            break
    for module, call, compared in setup.live.found(_conditional_steps):
        for condition in compared:
            every = _modulus(condition)
            if every is not None:
                value = _above_one(setup.value(module, every))
                yield setup.site(module, call, f"a step every `{text_of(every)}` micro-batches", value)
    yield from _inner_loops(setup)
    for module, call in setup.calls("accumulate", "no_sync", "no_backward_sync"):
        text = text_of(call.func).lower()
        if text.endswith("accumulate") and ("accelerator" not in text or setup.framework == "Accelerate"):
            continue  # of Accelerate it is only the wrapper: its number decides
        yield setup.site(module, call, f"`{text_of(call.func)[:60]}`")


def _above_one(value: Value) -> Value:
    """Does the number ask for more than one micro-batch a step?"""
    if value.known and value.value == 1 and not value.note:
        value = replace(value, note="it is 1")
    return value.mapped(lambda number: number > 1 if isinstance(number, (int, float)) else number)


def _inner_loops(setup: Setup) -> Iterator[Candidate]:
    """`for _ in range(accumulate): ...backward()`, with the step of the optimizer behind the loop"""
    for module, call in _backward_calls(setup):
        loop = next(module.file.index.loops_of(call), None)
        if not isinstance(loop, ast.For) or not isinstance(loop.iter, ast.Call):
            continue
        if len(loop.iter.args) not in (1, 2):  # with a width of steps it cuts one batch
            continue
        number = loop.iter.args[-1]
        if not text_of(loop.iter.func).endswith("range") or not _ACCUMULATES.search(text_of(number)):
            continue
        if any(
            other is module and module.file.index.within(step, loop) for other, step in setup.calls("step")
        ):
            continue
        value = setup.value(module, number)
        if value.known and isinstance(value.value, (int, float)):
            value = replace(value, value=value.value > 1)
        elif value.environment or isinstance(number, ast.Name):
            value = Value(True, True, "by the sizes of the batch", value.place)
        yield setup.site(module, call, f"`{text_of(number)}` micro-batches a step", value)


def _backward_calls(setup: Setup) -> Iterator[tuple[Module, ast.Call]]:
    """The backward calls of the training; of one in a function without a loop, `def backward(loss, scaler)`, its calls."""
    for module, call in setup.calls("backward"):
        if not module.file.context.is_training_mark(call):
            continue
        yield module, call
        function = module.file.index.function_of(call)
        if function is not None and next(module.file.index.loops_of(call), None) is None:
            for other, outer, _ in callers(setup.live, function, module):
                if outer is not call:
                    yield other, outer


def _test_of(module: Module, guard: ast.If) -> ast.expr:
    """The condition; of `if is_update_step:` what the name was given: `(i + 1) % accumulate == 0`."""
    binding = module.file.bindings.last_before(guard.test) if isinstance(guard.test, ast.Name) else None
    if binding is None or binding.kind != "assign" or binding.value is None:
        return guard.test
    return binding.value


def _modulus(test: ast.expr, any_number: bool = False) -> ast.expr | None:
    """The number that a condition counts to; one whose name says nothing of micro-batches where `any_number` is asked for."""
    for node in ast.walk(test):
        if not (isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mod)):
            continue
        named = _ACCUMULATES.search(text_of(node.right)) or isinstance(node.right, ast.Name)
        if named or any_number:
            return node.right
    return None


def _counted_to(module: Module, guard: ast.If) -> ast.expr | None:
    """`if count == accumulate:`, where `count += 1` stands before it and `count = 0` in it: the number."""
    test = guard.test
    if not (
        isinstance(test, ast.Compare)
        and len(test.ops) == 1
        and isinstance(test.ops[0], (ast.Eq, ast.GtE))
        and isinstance(test.left, (ast.Name, ast.Attribute))
    ):
        return None
    counter, index = text_of(test.left), module.file.index
    counts = any(
        isinstance(node.op, ast.Add)
        and isinstance(node.value, ast.Constant)
        and node.value.value == 1
        and text_of(node.target) == counter
        and index.function_of(node) is index.function_of(guard)
        and not index.within(node, guard)
        for node in index.of_type(ast.AugAssign)
    )
    begins_anew = any(
        isinstance(node, ast.Assign)
        and isinstance(node.value, ast.Constant)
        and node.value.value == 0
        and any(text_of(target) == counter for target in node.targets)
        for statement in guard.body
        for node in ast.walk(statement)
    )
    return test.comparators[0] if counts and begins_anew else None


def _holds_backward(guard: ast.If) -> bool:
    """Does the backward pass stand under the condition, too: the whole step is made now and then?"""
    return any(
        isinstance(node, ast.Attribute) and node.attr in ("backward", "manual_backward")
        for statement in guard.body
        for node in ast.walk(statement)
    )
