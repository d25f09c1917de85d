"""Which calls copy the batch to the device."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from ptopt.audit.calling import callers
from ptopt.audit.known import Value, position_of
from ptopt.audit.modules import Module, held_by, text_of
from ptopt.audit.optimizers import is_of_torch
from ptopt.audit.setup import Candidate, Setup
from ptopt.audit.values import Place
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
ASKED = "`non_blocking=True`"


def is_eval(module: Module, call: ast.Call) -> bool:
    function = module.file.index.function_of(call)
    return function is not None and module.file.context.is_eval_function(function)


def made_there(setup: Setup) -> Iterator[Place]:
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


def move_elsewhere(setup: Setup, module: Module, call: ast.Call) -> Candidate | None:
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
    return Candidate(value, setup.place(module, call), ASKED)


def moves_by(setup: Setup, module: Module, call: ast.Call) -> list[Candidate]:
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
            and not is_eval(other, site)
            and not _NO_DATA.search(text_of(passed))
            and _is_data(other, passed)
            and not other.file.context.grad_off(site)
            and setup.runs(other, site).truth is not False
        ):
            found.append(Candidate(value, setup.place(other, site), ASKED))
    return found


def moves_of_holders(setup: Setup) -> Iterator[Candidate]:
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
                    yield Candidate(value, setup.place(other, call), ASKED)


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


def move_of(setup: Setup, module: Module, call: ast.Call) -> Candidate | None:
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
    return Candidate(value, setup.place(module, call), ASKED)


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
