"""The copies of the batch to the device."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import replace

from ptopt.audit.arguments import keyword_value
from ptopt.audit.calling import callers
from ptopt.audit.known import Value, position_of
from ptopt.audit.measures.loader import not_pinned, pin_memory, prefetchers
from ptopt.audit.measures.loaders import loaders_of_others
from ptopt.audit.modules import Module, held_by, text_of
from ptopt.audit.optimizers import is_of_torch
from ptopt.audit.setup import Candidate, Setup
from ptopt.audit.values import Measure, Place, State
from ptopt.source.bindings import Binding, is_self
from ptopt.source.calls import last_name
from ptopt.source.index import FUNCTIONS, FunctionNode

_NETWORK = re.compile(
    r"(^|\.|_)(model|net|network|encoder|decoder|generator|discriminator)\w*(\.forward)?$", re.I
)
_DRAWS = re.compile(r"sample|batch|learn|update|train|optimi[sz]e")
_COUNTS = re.compile(r"\bt?range\(|\bcount\(")
_KIND = re.compile(r"^(isinstance\(|(torch\.)?is_tensor\(|hasattr\()")
_OPTIMIZER = re.compile(r"^(SGD|LBFGS|RMSprop|Rprop|Ada\w+|ASGD|[NR]?Adam\w*|SparseAdam)$")
_NO_DATA = re.compile(r"model|net\b|net_|criterion|loss|self\.\w+$", re.I)
_DEEPEST = 6  # calls of calls
_VIEWS = ("items", "values")
_LOADER = re.compile(r"load|\bdl\b|_dl\b|^dl_", re.I)
BY_ACCELERATE = "Accelerate copies each batch in the loader that it prepares"
_COPIES = ("transformers", "TRL", "Lightning")


_ASKED = "`non_blocking=True`"
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
    moves = [(call, found.place) for m, call in setup.calls("to", "cuda") if (found := _move(setup, m, call))]
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
    if row.state is State.ON and row.detail.startswith(_ASKED) and not _is_pinned(setup):
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
    moved = [(pair, c) for pair in setup.calls("to", "cuda") if (c := _move(setup, *pair)) is not None]
    prepared = _prepared(setup)
    moves = [c for (module, call), c in moved if not _comes_prepared(module, call, prepared)]
    if prepared and not moves:
        return _by_accelerate(setup, key, title, [(m, c) for m, c, _ in prepared], bool(moved))
    if not moves:
        elsewhere = [
            Candidate(setup.value(module, given), setup.place(module, call), "`non_blocking=True`")
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
            elsewhere_moved = _move_elsewhere(setup, *pair)
            moves += _moves_by(setup, *pair) if elsewhere_moved is None else [elsewhere_moved]
        moves = moves or list(_moves_of_holders(setup))
    if not moves and (made := list(_made_there(setup))):
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
        if setup.place(module, call) in {c.place for c in free} and not _is_eval(module, call)
    }
    beside = [
        found
        for module, call in setup.calls("to", "cuda")
        if module.file.index.function_of(call) in functions
        and setup.keyword(call, "non_blocking") is None
        and (found := _move_elsewhere(setup, module, call)) is not None
    ]
    if not beside or not functions - {None}:
        return None
    every = len(beside) + len(free)
    detail = f"{len(beside)} of {every} copies of the batch wait"
    return Measure("non_blocking", "Copies that do not wait", State.OFF, detail, tuple(c.place for c in beside)[:4])  # fmt: skip


def _is_eval(module: Module, call: ast.Call) -> bool:
    function = module.file.index.function_of(call)
    return function is not None and module.file.context.is_eval_function(function)


def _made_there(setup: Setup) -> Iterator[Place]:
    """`torch.tensor(states, device=self.device)` in the function that draws a batch or makes a step"""
    for module, call in setup.calls("tensor", "as_tensor"):
        function = module.file.index.function_of(call)
        given = setup.keyword(call, "device")
        if function is None or given is None or not call.args or not _DRAWS.search(function.name):
            continue
        if (
            isinstance(call.args[0], (ast.Name, ast.Call, ast.Subscript))
            and setup.runs(module, call).truth is not False
        ):
            yield setup.place(module, call)


def _move_elsewhere(setup: Setup, module: Module, call: ast.Call) -> Candidate | None:
    """A copy of data in a helper: `def set_input(self, batch): self.image = batch["image"].to(self.device)`"""
    function = module.file.index.function_of(call)
    if not isinstance(call.func, ast.Attribute) or not _sends(module, call) or function is None:
        return None
    held = text_of(call.func.value)
    if (
        function.name == "__init__"
        or module.file.context.is_eval_function(function)
        or module.file.context.grad_off(call)
        or (function in setup.once(_before_trainings) and _is_given(module, call.func.value))
        or _NO_DATA.search(held)
        or not _is_data(module, call.func.value)
        or setup.runs(module, call).truth is False
    ):
        return None
    given = setup.keyword(call, "non_blocking")
    value = Value(True, False) if given is None else setup.value(module, given)
    return Candidate(value, setup.place(module, call), "`non_blocking=True`")


def _moves_by(setup: Setup, module: Module, call: ast.Call) -> list[Candidate]:
    """`def to_gpu(net): return net.to(device)`: the calls that give such a function data, whatever it calls them."""
    function, func = module.file.index.function_of(call), call.func
    if (
        function is None
        or not isinstance(func, ast.Attribute)
        or not isinstance(func.value, ast.Name)
        or not _sends(module, call)
        or not isinstance(module.file.index.parent(call), ast.Return)
        or (position := position_of(function, func.value.id)) is None
    ):
        return []
    given = setup.keyword(call, "non_blocking")
    value = Value(True, False) if given is None else setup.value(module, given)
    found = []
    for other, site, shift in callers(setup.live, function, module):
        at, around = position - shift, other.file.index.function_of(site)
        passed = site.args[at] if 0 <= at < len(site.args) else None
        if (
            isinstance(passed, (ast.Name, ast.Subscript))
            and around is not None
            and around not in setup.once(_before_trainings)
            and not _is_eval(other, site)
            and not _NO_DATA.search(text_of(passed))
            and _is_data(other, passed)
            and not other.file.context.grad_off(site)
            and setup.runs(other, site).truth is not False
        ):
            found.append(Candidate(value, setup.place(other, site), "`non_blocking=True`"))
    return found


def _moves_of_holders(setup: Setup) -> Iterator[Candidate]:
    """`rays = Sampler(batch)` and `rays.draw()` in each step: the copies of what that object has of the batch."""
    for loop in setup.once(_loops_over_batches):
        for cls, holder, module, given in _holders(setup, loop):
            names = _of_parameter(holder, cls, given)
            for function, other in setup.live.functions.items():
                if other.file.index.parent(function) is not cls or not _is_asked(
                    setup, module, function, loop
                ):
                    continue
                for call in other.file.calls.calls_in(function):
                    held = call.func.value if isinstance(call.func, ast.Attribute) else None
                    if (
                        not isinstance(held, ast.Attribute)
                        or not is_self(held)
                        or held.attr not in names
                        or last_name(call.func) not in ("to", "cuda")
                        or not _sends(module, call)
                        or setup.runs(other, call).truth is False
                    ):
                        continue
                    asked = setup.keyword(call, "non_blocking")
                    value = Value(True, False) if asked is None else setup.value(other, asked)
                    yield Candidate(value, setup.place(other, call), _ASKED)


def _holders(setup: Setup, loop: ast.AST) -> Iterator[tuple[ast.ClassDef, Module, Module, str]]:
    """The classes that a loop makes of its batch in each step: each with its module, that of the loop, and its parameter for the batch."""
    for cls, holder in setup.live.classes.items():
        made = next((s for s in cls.body if isinstance(s, FUNCTIONS) and s.name == "__init__"), None)
        for module, node in setup.live.sites.get(cls) if made is not None else ():
            call = module.file.index.parent(node)
            if not isinstance(call, ast.Call) or call.func is not node or not _in_step(module, call, loop):
                continue
            parameters = [each.arg for each in made.args.args[1:]] if made is not None else []
            for parameter, passed in zip(parameters, call.args, strict=False):
                binding = module.file.bindings.last_before(passed) if isinstance(passed, ast.Name) else None
                if binding is not None and binding.node is loop:
                    yield cls, holder, module, parameter


def _in_step(module: Module, node: ast.AST, loop: ast.AST) -> bool:
    """Is it in the loop, and in each of its passes?"""
    around = any(each is loop for each in module.file.index.loops_of(node))
    return around and module.file.guards.rare(node, loop) is None


def _is_asked(setup: Setup, module: Module, function: FunctionNode, loop: ast.AST) -> bool:
    return any(other is module and _in_step(other, call, loop) for other, call in setup.calls(function.name))


def _of_parameter(module: Module, cls: ast.ClassDef, parameter: str) -> frozenset[str]:
    """The attributes that `__init__` gives the parameter or a part of it: `self.images = data["images"]`."""
    found = set()
    for node in ast.walk(cls):
        if isinstance(node, ast.Assign) and isinstance(node.value, (ast.Name, ast.Subscript, ast.Attribute)):
            root: ast.expr = node.value
            while isinstance(root, (ast.Subscript, ast.Attribute)):
                root = root.value
            if isinstance(root, ast.Name) and root.id == parameter:
                function = module.file.index.function_of(node)
                own = function is not None and function.name == "__init__"
                found |= {t.attr for t in node.targets if own and isinstance(t, ast.Attribute) and is_self(t)}
    return frozenset(found)


def _before_trainings(setup: Setup) -> frozenset[FunctionNode]:
    """The functions that make an optimizer, and those from which calls lead there: what they are given is copied once a training."""
    found: set[FunctionNode] = set()
    waiting: list[tuple[Module, ast.AST]] = [
        (module, call)
        for module, call in setup.named(_OPTIMIZER)
        if is_of_torch(setup.qualified(module, call.func))
    ]
    while waiting:
        module, call = waiting.pop()
        function = module.file.index.function_of(call)
        if function is not None and function not in found:
            found.add(function)
            waiting += [(other, site) for other, site, _ in callers(setup.live, function, module)]
            waiting += _calls_of_object(setup, function, module)
    return frozenset(found)


def _calls_of_object(
    setup: Setup, function: FunctionNode, module: Module
) -> Iterator[tuple[Module, ast.AST]]:
    """Where `self.fit` is named, of `self.fit = Fitting()`, for the method `__call__` of `Fitting`."""
    cls = module.file.index.parent(function)
    if function.name != "__call__" or not isinstance(cls, ast.ClassDef):
        return
    for other, node in setup.live.sites.get(cls):
        made = other.file.index.parent(node)
        assign = other.file.index.parent(made) if isinstance(made, ast.Call) else None
        for target in assign.targets if isinstance(assign, ast.Assign) else ():
            if isinstance(target, ast.Attribute):
                yield from setup.live.mentions.get(target.attr)


def _is_given(module: Module, value: ast.expr, depth: int = 0) -> bool:
    """Is all of it made of the parameters of the function, or of parts of them?"""
    names = [n for n in ast.walk(value) if isinstance(n, ast.Name) and n.id not in module.imported]
    bound = [module.file.bindings.last_before(name) for name in names]
    return all(
        binding is not None
        and (
            binding.kind == "parameter"
            or ((part := _whole(binding, depth)) is not None and _is_given(module, part, depth + 1))
        )
        for binding in bound
    )


def _whole(binding: Binding, depth: int) -> ast.expr | None:
    """What the name is one of: `inputs` of `images, _, labels = inputs`."""
    unpacks = binding.kind == "unpack" and depth < _DEEPEST
    return binding.value if unpacks and isinstance(binding.value, (ast.Name, ast.Subscript)) else None


def _is_data(module: Module, value: ast.expr, depth: int = 0) -> bool:
    """Does it come from a parameter of its function, or a part of one, or from a loop over data?"""
    current: ast.expr = value
    while isinstance(current, (ast.Attribute, ast.Subscript)):
        current = current.value
    if isinstance(current, ast.Call):
        if isinstance(current.func, ast.Attribute) and current.func.attr == "detach":
            return False  # a batch has no graph: what a network made
        inner = [*current.args, *([current.func.value] if isinstance(current.func, ast.Attribute) else [])]
        return any(_is_data(module, a, depth) for a in inner)
    if not isinstance(current, ast.Name) or current.id == "self":
        return False
    binding = module.file.bindings.last_before(current)
    if binding is None:
        return False
    whole = _whole(binding, depth)
    return (
        binding.kind == "parameter"
        or (binding.kind == "item" and _loops_over_data(binding.node))
        or (whole is not None and not _NO_DATA.search(text_of(whole)) and _is_data(module, whole, depth + 1))
    )


def _move(setup: Setup, module: Module, call: ast.Call) -> Candidate | None:
    """A copy of part of the batch to the device, on every training step."""
    func = call.func
    if not isinstance(func, ast.Attribute) or not _sends(module, call):
        return None
    step = module.file.context.training_step(call)
    repeated = _loop_around(setup, module, call) if step is None else step.node
    if (
        repeated is None
        or _is_rare(module, call, repeated)
        or not _of_batch(module, func.value, repeated)
        or setup.runs(module, call).truth is False
    ):
        return None
    given = setup.keyword(call, "non_blocking")
    value = Value(True, False) if given is None else setup.value(module, given)
    return Candidate(value, setup.place(module, call), "`non_blocking=True`")


def _is_rare(module: Module, call: ast.Call, repeated: ast.AST) -> bool:
    """Does a condition make it rare: not `value.to(device) if torch.is_tensor(value) else value`?"""
    guard = module.file.guards.rare(call, repeated)
    return guard is not None and not (isinstance(guard, ast.IfExp) and _KIND.search(text_of(guard.test)))


def _loop_around(setup: Setup, module: Module, call: ast.Call) -> ast.AST | None:
    """The loop over batches that repeats the call, and from which calls lead to the backward pass."""
    function = module.file.index.function_of(call)
    for loop in module.file.index.loops_of(call):
        if loop in setup.once(_loops_over_batches) and module.file.index.function_of(loop) is function:
            return loop
    return None


def _loops_over_batches(setup: Setup) -> frozenset[ast.AST]:
    """The innermost loops over data around the calls that lead to the backward pass, where no framework makes the copies.

    A loop that only counts is none: around a function that fits something in a loop of its own, it counts the fits.
    """
    if setup.start is None or setup.framework not in ("PyTorch", "DeepSpeed"):
        return frozenset()
    found: set[ast.AST] = set()
    waiting = [setup.start]
    for _ in range(_DEEPEST):
        ways, waiting = waiting, []
        for module, call in ways:
            loop = next((each for each in module.file.index.loops_of(call) if _gives_batches(each)), None)
            function = module.file.index.function_of(call)
            if loop is not None:
                found.add(loop)
            elif function is not None:
                waiting += [(other, site) for other, site, _ in callers(setup.live, function, module)]
    return frozenset(found)


def _gives_batches(loop: ast.AST) -> bool:
    counts = isinstance(loop, (ast.For, ast.AsyncFor)) and _COUNTS.search(text_of(loop.iter))
    return _loops_over_data(loop) and not counts


def _sends(module: Module, call: ast.Call) -> bool:
    """Is the call one to the device, also as `x.to(**self.kwargs)` of a table with a `device`?"""
    if isinstance(call.func, ast.Attribute) and call.func.attr == "cuda":
        return True
    texts = [text_of(a) for a in call.args] + [text_of(k.value) for k in call.keywords if k.arg == "device"]
    texts += [text for k in call.keywords if k.arg is None for text in _devices_of(module, k.value)]
    if any(re.search(r"['\"]cpu['\"]", text) for text in texts):
        return False
    return any(re.search(r"device|cuda|gpu|rank|\bdev\b", text) for text in texts)


def _devices_of(module: Module, table: ast.expr) -> list[str]:
    """What a table, `dict(dtype=torch.float32, device=device)`, has as `device`."""
    held = held_by(module, table) or table
    if isinstance(held, ast.Call):
        return [text_of(k.value) for k in held.keywords if k.arg == "device"]
    if isinstance(held, ast.Dict):
        pairs = zip(held.keys, held.values, strict=True)
        return [
            text_of(value) for key, value in pairs if isinstance(key, ast.Constant) and key.value == "device"
        ]
    return []


def _of_batch(module: Module, value: ast.expr, container: ast.AST) -> bool:
    """Does the value come from the target of a loop, or from a parameter of the step?"""
    current: ast.expr = value
    while isinstance(current, (ast.Attribute, ast.Subscript)):
        current = current.value
    if isinstance(current, ast.Call):
        if text_of(current.func) == "next":  # `next(batches).to(device)`
            return True
        return isinstance(current.func, ast.Attribute) and _of_batch(module, current.func.value, container)
    if not isinstance(current, ast.Name):
        return False
    binding = module.file.bindings.last_before(current)
    if binding is None:
        return False
    if isinstance(binding.node, ast.comprehension):  # [x.cuda() for x in batch]
        held = binding.node.iter
        if isinstance(held, ast.Call) and isinstance(held.func, ast.Attribute) and held.func.attr in _VIEWS:
            held = held.func.value  # {name: x.cuda() for name, x in batch.items()}
        return not isinstance(held, ast.Call) and _of_batch(module, held, container)
    if binding.kind == "item" and not _loops_over_data(binding.node):
        return False
    if binding.kind in ("item", "unpack", "parameter"):
        if binding.kind == "parameter":
            return bool(re.search(r"batch|data|input|image|img|target|label|sample|^[xy]$", current.id, re.I))
        return binding.kind == "item" or _reads_batch(module, binding.value)
    if binding.kind == "assign" and (parts := _joined(binding.value)):
        return any(_of_batch(module, part, container) for part in parts)
    return binding.kind == "assign" and binding.value is not None and _reads_batch(module, binding.value)


def _joined(value: ast.expr | None) -> list[ast.expr]:
    """The parts of `torch.cat([first, second])`, all of them names; [] of other values."""
    given = value.args[0] if isinstance(value, ast.Call) and value.args else None
    if not isinstance(value, ast.Call) or text_of(value.func) not in ("torch.cat", "torch.stack"):
        return []
    parts = given.elts if isinstance(given, (ast.List, ast.Tuple)) else []
    return parts if all(isinstance(part, ast.Name) for part in parts) else []


def _loops_over_data(loop: ast.AST) -> bool:
    """Not a comprehension, nor a loop over parameters, weights or layers."""
    return isinstance(loop, (ast.For, ast.AsyncFor)) and not re.search(
        r"param|grad|layer|modules|optim|state_?dict", text_of(loop.iter)
    )


def _reads_batch(module: Module, value: ast.expr | None) -> bool:
    if isinstance(value, ast.Call) and _NETWORK.search(text_of(value.func)):
        return False  # what the network makes of the batch
    return value is not None and bool(
        re.search(
            r"batch|next\(|data\b|\bdata|inputs?\b|targets?\b|samples?\b|labels?\b|images?\b",
            text_of(value)[:200],
        )
    )
