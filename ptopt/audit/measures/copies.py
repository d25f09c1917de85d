"""The copies of the batch to the device."""

from __future__ import annotations

import ast
import re
from dataclasses import replace

from ptopt.audit.arguments import keyword_value
from ptopt.audit.known import Value
from ptopt.audit.measures.loader import not_pinned, pin_memory, prefetchers
from ptopt.audit.measures.loaders import loaders_of_others
from ptopt.audit.measures.moves import (
    ASKED,
    is_eval,
    made_there,
    move_elsewhere,
    move_of,
    moves_by,
    moves_of_holders,
)
from ptopt.audit.modules import Module, text_of
from ptopt.audit.setup import Candidate, Setup
from ptopt.audit.values import Measure, State

_LOADER = re.compile(r"load|\bdl\b|_dl\b|^dl_", re.I)
BY_ACCELERATE = "Accelerate copies each batch in the loader that it prepares"
_COPIES = ("transformers", "TRL", "Lightning")
NOT_PINNED = "without effect, as the loader does not pin its batches"
CAST_FIRST = "on the host first: what a cast makes is new, and not pinned"
# Not the ones that make a tensor smaller: fewer bytes to copy may be worth more.
_CASTS = frozenset({"float", "double", "long", "int"})


def non_blocking(setup: Setup) -> Measure:
    return _with_casts(setup, _row(setup))


def _with_casts(setup: Setup, row: Measure) -> Measure:
    """The row with a copy of a tensor that a cast makes on the host: `labels.long().cuda()` waits, however the loader pins.

    Where the tensor has that type already the cast makes none, which the code does not show.
    """
    if row.state not in (State.ON, State.OFF) or BY_ACCELERATE in row.detail:
        return row
    moves = [
        (call, found.place) for m, call in setup.calls("to", "cuda") if (found := move_of(setup, m, call))
    ]
    cast = {place: text_of(call) for call, place in moves if _is_cast(call)}
    if not cast:
        return row
    text, *more = dict.fromkeys(cast.values())
    named = f"`{text}` and {len(more)} more cast" if more else f"`{text}` casts"
    state = State.UNKNOWN if row.state is State.ON and len(cast) == len(moves) else row.state
    evidence = tuple(dict.fromkeys((*cast, *row.evidence)))[:4] if row.state is State.ON else row.evidence
    return replace(row, state=state, detail=f"{row.detail}; {named} {CAST_FIRST}", evidence=evidence)


def _is_cast(call: ast.Call) -> bool:
    """`labels.long().cuda()`, in which the call to the device has no type of its own."""
    held = call.func.value if isinstance(call.func, ast.Attribute) else None
    return (
        isinstance(held, ast.Call)
        and isinstance(held.func, ast.Attribute)
        and held.func.attr in _CASTS
        and not held.args
    )


def _row(setup: Setup) -> Measure:
    row = _copies(setup)
    if row.state is State.ON and row.detail.startswith(ASKED) and not _is_pinned(setup):
        return replace(row, state=State.OFF, detail=f"{row.detail}, {NOT_PINNED}")
    missed = setup.once(not_pinned) if row.state in (State.ON, State.OFF) else None
    if missed is None:
        return row
    return replace(
        row,
        detail=f"{row.detail}; {missed.said}"
        if missed.of_arrays
        else f"{row.detail}; `{missed.name}` is not in pinned memory",
        evidence=(*row.evidence[:3], missed.place),
    )


def _is_pinned(setup: Setup) -> bool:
    """May the batches be in pinned memory, by the loader or by hand?"""
    by_loader = setup.once(pin_memory)
    by_hand = any(isinstance(call.func, ast.Attribute) for _, call in setup.calls("pin_memory"))
    missed = setup.once(not_pinned)
    return by_hand or by_loader.state is not State.OFF or (missed is not None and not missed.of_arrays)


def _copies(setup: Setup) -> Measure:
    key, title = "non_blocking", "Copies that do not wait"
    if setup.framework in _COPIES:
        return setup.not_applicable(key, title, f"{setup.framework} copies the batches")
    copied = prefetchers(setup)
    if any(c.value.truth for c in copied):
        return setup.decide(key, title, copied, "")
    moved = [(pair, c) for pair in setup.calls("to", "cuda") if (c := move_of(setup, *pair)) is not None]
    prepared = _prepared(setup)
    moves = [c for (module, call), c in moved if not _comes_prepared(module, call, prepared)]
    if prepared and not moves:
        return _by_accelerate(setup, key, title, [(m, c) for m, c, _ in prepared], bool(moved))
    if not moves:
        elsewhere = [
            Candidate(setup.value(module, given), setup.place(module, call), ASKED)
            for module, call in setup.calls("to", "cuda")
            if (given := setup.keyword(call, "non_blocking")) is not None
        ]
        if elsewhere:
            return _with_waiting(setup, elsewhere) or setup.decide(key, title, elsewhere, "")
        if setup.framework in ("Accelerate", "Fabric"):
            return setup.not_applicable(key, title, f"{setup.framework} copies the batches")
        if setup.framework not in ("PyTorch", "DeepSpeed") or setup.blind:
            return Measure(
                key, title, State.UNKNOWN, "no copy of a batch seen in the training loop", setup.where()
            )
        for pair in setup.calls("to", "cuda"):
            elsewhere_moved = move_elsewhere(setup, *pair)
            moves += moves_by(setup, *pair) if elsewhere_moved is None else [elsewhere_moved]
        moves = moves or list(moves_of_holders(setup))
    if not moves and (made := list(made_there(setup))):
        return Measure(
            key,
            title,
            State.OFF,
            "batches are made on the device from arrays, and the copy waits",
            tuple(made)[:4],
        )
    if not moves and (others := setup.once(loaders_of_others)):
        why = f"no copy of a batch seen in the training loop; {others[0].unread} makes the loader, and may copy them"
        return Measure(key, title, State.UNKNOWN, why, (setup.place(others[0].module, others[0].call),))
    if not moves:
        return setup.not_applicable(key, title, "no copy of a batch in the training loop")
    waiting = [c for c in moves if c.value.truth is False]
    if not waiting:
        return setup.decide(key, title, moves, "")
    free = len(moves) - len(waiting)
    note = f" ({waiting[0].value.note})" if waiting[0].value.note else ""
    detail = (
        f"{len(waiting)} of {len(moves)} copies of the batch wait"
        if free
        else f"copies of the batch wait{note}"
    )
    return Measure(key, title, State.OFF, detail, tuple(c.place for c in waiting)[:4])


def _prepared(setup: Setup) -> list[tuple[Module, ast.Call, str]]:
    """`accelerator.prepare(loader)`, with the name of the loader: from then on its batches come on the device."""
    if (
        setup.framework != "Accelerate"
        or keyword_value(setup, setup.calls("Accelerator"), "device_placement", Value(True, True)).truth
        is not True
    ):
        return []
    return [
        (module, call, text_of(given))
        for module, call in setup.calls("prepare", "prepare_data_loader")
        for given in call.args
        if isinstance(given, (ast.Name, ast.Attribute))
        and _is_loader(module, given)
        and setup.runs(module, call).truth
    ]


def _is_loader(module: Module, given: ast.expr) -> bool:
    """By its name, or by what it is made of."""
    made = module.file.bindings.assigned(given)
    return bool(_LOADER.search(text_of(given)) or (made is not None and _LOADER.search(text_of(made))))


def _comes_prepared(module: Module, call: ast.Call, prepared: list[tuple[Module, ast.Call, str]]) -> bool:
    """Does the loop around the copy run over a loader that was prepared? Of a step in a function of its own, nobody says another."""
    step = module.file.context.training_step(call)
    if step is None or not prepared:
        return False
    if not isinstance(step.node, (ast.For, ast.AsyncFor)):
        return True
    over = text_of(step.node.iter)
    return any(re.search(rf"(?<![\w.]){re.escape(name)}\b", over) for _, _, name in prepared)


def _by_accelerate(
    setup: Setup, key: str, title: str, prepared: list[tuple[Module, ast.Call]], moved: bool
) -> Measure:
    """The row where Accelerate copies each batch in the loader that it prepares."""
    asked = [c for c in setup.calls("DataLoaderConfiguration") if setup.runs(*c).truth is not False]
    given = [(m, k) for m, c in asked if (k := setup.keyword(c, "non_blocking")) is not None]
    if given:
        return setup.decide(
            key,
            title,
            [
                setup.site(m, k, "`non_blocking` of `DataLoaderConfiguration`", setup.value(m, k))
                for m, k in given
            ],
            "",
        )
    if any(map(setup.unpacks, (c for _, c in asked))):
        return Measure(
            key,
            title,
            State.UNKNOWN,
            "`**` in the call of `DataLoaderConfiguration`",
            (setup.place(*asked[0]),),
        )
    if lacking := setup.lacking("DataLoaderConfiguration(non_blocking=True)", "`non_blocking`"):
        return setup.not_applicable(key, title, f"{BY_ACCELERATE}: {lacking}")
    detail = f"{BY_ACCELERATE}, and waits" + ("; the `.to` of the loop finds them there" if moved else "")
    return Measure(
        key, title, State.OFF, detail, tuple(dict.fromkeys(setup.place(*pair) for pair in prepared))[:4]
    )


def _with_waiting(setup: Setup, free: list[Candidate]) -> Measure | None:
    """The row where the functions that copy a part of the batch without a wait copy another part of it with one."""
    functions = {
        module.file.index.function_of(call)
        for module, call in setup.calls("to", "cuda")
        if setup.place(module, call) in {c.place for c in free} and not is_eval(module, call)
    }
    beside = [
        found
        for module, call in setup.calls("to", "cuda")
        if module.file.index.function_of(call) in functions
        and setup.keyword(call, "non_blocking") is None
        and (found := move_elsewhere(setup, module, call)) is not None
    ]
    if not beside or not functions - {None}:
        return None
    every = len(beside) + len(free)
    detail = f"{len(beside)} of {every} copies of the batch wait"
    return Measure("non_blocking", "Copies that do not wait", State.OFF, detail, tuple(c.place for c in beside)[:4])  # fmt: skip
