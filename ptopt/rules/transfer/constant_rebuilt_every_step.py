from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import ClassVar

from ptopt.rules.base import Fix, Invalid, Problem, Rule, Safety, SourceFile
from ptopt.rules.code import keyword_of, method_call, quote, replace_node, writes_spaces
from ptopt.rules.shared.places import may_hold_a_step
from ptopt.rules.transfer._hot import Hot, batch_loop, hot_place
from ptopt.rules.transfer._python_data import LEGACY_DTYPES, Made, is_constant, made_of, number
from ptopt.source.calls import last_name
from ptopt.source.file import remembered
from ptopt.source.index import LOOPS, FunctionNode, walk

_COLLECTIVE = re.compile(r"^(all_|i?recv|broadcast|reduce|gather|scatter)")
_TELLS = re.compile(r"^(print|warn|warnings\.|log)")


class ConstantRebuiltEveryStep(Rule):
    """The same tensor is built from Python values and copied to the device again on every step.

    ## What it does
    Finds `torch.tensor(data, device=device)` in a training loop, a denoising loop or a `forward` where the data is
    proven not to change: numbers written out, names that the loop does not bind, attributes that only `__init__` sets.

    ## Why it is slow
    `torch.tensor` builds the values in host memory and copies them to the device from pageable memory. Python waits
    for that copy, and with it for the kernels queued before. A number can be filled in by a kernel without a copy,
    and a table can be copied once.

    ## When this is wrong
    When the code runs on the CPU only, or under `torch.compile` or a CUDA graph, where the constant becomes part of
    the graph.

    ## Fix safety
    Safe for a number written out: `torch.full` gives the same tensor without a copy. Unsafe for a variable, which
    may be a NumPy scalar with a data type of its own. Moving the line out of the loop is left to the author.

    ## Sources
    - [PyTorch performance tuning guide: create tensors directly on the target device](https://docs.pytorch.org/tutorials/recipes/recipes/tuning_guide.html)
    """

    id = "PTO203"
    name = "constant-rebuilt-every-step"
    family = "transfer"
    triggers = ("tensor", "Tensor")
    requires = ("device", "cuda")
    partly: ClassVar[frozenset[str]] = frozenset({"persistent=False"})
    nodes = (ast.Call,)
    calls = frozenset({"to", "cuda", "tensor", "as_tensor", *LEGACY_DTYPES})
    when_wrong = (
        "the code runs on the CPU only, or under `torch.compile`, which keeps the constant in the graph"
    )

    VALID = (
        """
        def sizes_of_all(local_size, world_size):
            sizes = [torch.LongTensor([0]).to("cuda") for _ in range(world_size)]
            torch.distributed.all_gather(sizes, local_size)
            return [int(size) for size in sizes]

        for x in loader:
            sizes = sizes_of_all(x.to("cuda").shape[0], 8)
            loss = model(x, sizes)
            loss.backward()
            optimizer.step()
        """,
        """
        for x in loader:
            counts = torch.tensor([0, 0, 0]).to(device)
            counts += model(x.to(device)).sum(0)
            loss = counts.std()
            loss.backward()
            optimizer.step()
        """,
        """
        class Net(nn.Module):
            def __init__(self, start):
                super().__init__()
                self.start = [start]

            def forward(self, x):
                if not self.training:
                    return self.generate(torch.tensor([self.start], device=x.device).repeat(len(x), 1))
                return self.loss(x)
        """,
        """
        for x in loader:
            valid = model(x.to(device)) > 0
            if valid.sum() > 0:
                accuracy = valid.float().mean()
            else:
                accuracy = torch.tensor(0.0, device=device)
            loss = criterion(accuracy)
            loss.backward()
            optimizer.step()
        """,
        """
        for x in loader:
            done = torch.tensor(0, device=device)
            torch.distributed.all_reduce(done)
            if done.item() > 0:
                break
            model(x.to(device)).sum().backward()
            optimizer.step()
        """,
        """
        class Net(nn.Module):
            def __init__(self, mean, device):
                super().__init__()
                self.mean = torch.tensor([0.485, 0.456, 0.406], device=device)
        """,
        """
        guidance = torch.tensor([guidance_scale], device=device)
        for t in timesteps:
            latents = scheduler.step(model(latents, t, guidance), t, latents)
        """,
        """
        for i, t in enumerate(timesteps):
            weights = [w * i for w in base]
            latents = model(latents, t, torch.tensor(weights, device=device))
        """,
        """
        for x, y in loader:
            weight = torch.tensor(schedule.weight).to(device)
            loss = criterion(model(x.to(device)), y.to(device)) * weight
            loss.backward()
            optimizer.step()
            schedule.step()
        """,
        """
        class Net(nn.Module):
            def set_scales(self, scales):
                self.scales = scales

            def forward(self, x):
                return x * torch.tensor(self.scales, device=x.device)
        """,
    )
    INVALID = (
        Invalid("""
            for i, t in enumerate(timesteps):
                guidance = torch.tensor([guidance_scale], device=device, dtype=torch.float32)  # !
                # + guidance = torch.full((1,), guidance_scale, device=device, dtype=torch.float32)
                latents = scheduler.step(model(latents, t, guidance), t, latents)
        """),
        Invalid("""
            for i, t in enumerate(timesteps):
                guidance = torch.tensor([guidance_scale], device = device)  # !
                # + guidance = torch.full((1,), guidance_scale, device = device)
                latents = scheduler.step(model(latents, t, guidance), t, latents)
        """),
        Invalid("""
            class Net(nn.Module):
                def __init__(self, indices):
                    super().__init__()
                    self.indices = list(indices)
                    self.linear = nn.Linear(8, 8)

                def forward(self, x):
                    return self.linear(x).index_select(1, torch.tensor(self.indices, device=x.device))  # !
        """),
        Invalid("""
            for images, labels in loader:
                images = images.cuda()
                mean = torch.tensor([0.485, 0.456, 0.406]).view(3, 1, 1).cuda()  # !
                scale = torch.tensor([0.229, 0.224, 0.225]).cuda()  # !
                loss = criterion(model((images - mean) * scale), labels.cuda())
                loss.backward()
                optimizer.step()
        """),
        Invalid("""
            for x, y in loader:
                class_weights = torch.tensor(dataset.class_weights).to(device)  # !
                loss = F.cross_entropy(model(x.to(device)), y.to(device), weight=class_weights)
                loss.backward()
                optimizer.step()
        """),
        Invalid("""
            for images, labels in loader:
                penalty = torch.tensor(0.0).to(device)  # !
                # + penalty = torch.zeros((), device=device)
                loss = criterion(model(images.to(device)), labels.to(device)) + penalty
                loss.backward()
                optimizer.step()
        """),
    )

    def may_be_sure(self, file: SourceFile) -> bool:
        """Only in a step, in a loop over batches, or in a forward pass, where nothing shows where else it runs often."""
        made = ((node, of) for node in self.candidates(file) if (of := made_of(node, file)) is not None)
        return any(
            may_hold_a_step(file)
            or batch_loop(node, file) is not None
            or (file.context.forward_of(node) is not None and not _fill(of, file))
            for node, of in made
        )

    def check(self, node: ast.AST, file: SourceFile) -> Iterator[Problem]:
        made = made_of(node, file)
        hot = hot_place(node, file) if made is not None else None
        if made is None or hot is None or not is_constant(made, hot, file):
            return
        fill = _fill(made, file)
        changed = _changes_later(node, file)
        if changed and not fill:
            return  # each use needs one of its own
        yield Problem(
            node,
            f"{quote(file, node)} has the same value {hot.words}, and is copied from Python to the device each time; "
            f"the copy makes Python wait. {_advice(made, hot, fill, file, changed=changed)}",
            _confidence(node, hot, fill, file),
            hot.evidence,
            _fix(made, fill, file),
            cause=hot.node,
            facts={"forward": float(hot.kind == "forward")},
        )


def _changes_later(node: ast.AST, file: SourceFile) -> bool:
    """Is the tensor, or one of a list of them, written to: by a collective, `x += y`, `x[i] = y`, `x.add_(y)`?"""
    statement = file.index.statement_of(node)
    target = statement.targets[0] if isinstance(statement, ast.Assign) else None
    function = file.index.function_of(node)
    if not isinstance(target, ast.Name):
        return False
    return (
        target.id in _received(function, file)
        or file.bindings.is_filled_in(target.id, function or file.tree)
        or any(b.kind == "augment" for b in file.bindings.of(function, target.id))
    )


@remembered
def _received(function: FunctionNode | None, file: SourceFile) -> frozenset[str]:
    """Names that the function gives to calls that write into their arguments, as processes exchange tensors."""
    return frozenset(
        given.id
        for call in file.calls.calls_in(function)
        if _COLLECTIVE.search(last_name(call.func))
        for given in (*call.args, *(keyword.value for keyword in call.keywords))
        if isinstance(given, ast.Name)
    )


def _advice(made: Made, hot: Hot, fill: str, file: SourceFile, *, changed: bool) -> str:
    if hot.kind == "forward":
        unsaved = ", persistent=False" if file.facts.has("persistent=False") else ""
        once = f"build it once in `__init__` with `register_buffer(...{unsaved})`"
    elif hot.kind == "often" and not isinstance(hot.node, LOOPS):
        once = "build it once and keep it for each device"
    else:
        once = (
            "build it once before the loop"
            if isinstance(hot.node, LOOPS)
            else "build it once, before training starts"
        )
    if not fill:
        return f"{once[0].upper()}{once[1:]}."
    if number(made.data) or changed:
        return f"`{fill}` fills it on the device without a copy."
    return f"`{fill}` fills it on the device without a copy; or {once}."


def _confidence(node: ast.AST, hot: Hot, fill: str, file: SourceFile) -> float:
    if isinstance(file.index.parent(node), ast.Return) or _fallback(node, file) or _is_read_back(node, file):
        return 0.5  # the value for an empty batch, or a flag that processes exchange
    if hot.kind == "loop":
        return 0.8
    if hot.kind == "step":
        return 0.7
    if hot.kind == "often":
        return 0.45
    return 0.55 if fill else 0.65  # one number in a forward pass: true, but small


def _fallback(node: ast.AST, file: SourceFile) -> bool:
    """Is it the `else` of a conditional expression, or in a branch that prints or warns?"""
    for ancestor, child in file.index.ancestors(node):
        if isinstance(ancestor, ast.IfExp) and child is ancestor.orelse:
            return True
        if isinstance(ancestor, ast.If):
            if child is not ancestor.test and _looks_at_data(ancestor.test):
                return True
            if child in ancestor.body and file.source(ancestor.test) == "not self.training":
                return True  # the start of a generation
            return _tells(ancestor, child in ancestor.body, file)
    return False


@remembered
def _tells(test: ast.If, in_body: bool, file: SourceFile) -> bool:
    branch = test.body if in_body else test.orelse
    return any(_TELLS.search(file.source(s.value)) for s in branch if isinstance(s, ast.Expr))


def _looks_at_data(test: ast.expr) -> bool:
    """`if valid.sum() > 0`, `if len(norms) > 0`, `if not isinstance(loss, Tensor)`: how often it holds is unknown."""
    for call in walk(test):
        func = call.func if isinstance(call, ast.Call) else None
        name = last_name(func)
        if name in ("isinstance", "len", "any", "all", "sum", "numel", "max", "min", "nonzero"):
            return True
    return False


def _is_read_back(node: ast.AST, file: SourceFile) -> bool:
    """Is the tensor read with `.item()` in the same function, so that Python waits in any case?"""
    statement = file.index.statement_of(node)
    target = statement.targets[0] if isinstance(statement, ast.Assign) else None
    if not isinstance(target, ast.Name):
        return False
    return target.id in _read_back(file.index.function_of(node), file)


@remembered
def _read_back(function: FunctionNode | None, file: SourceFile) -> frozenset[str]:
    reads = (method_call(c, "item") for c in file.calls.calls_in(function))
    return frozenset(read.id for read in reads if isinstance(read, ast.Name))


def _fill(made: Made, file: SourceFile) -> str:
    """The `torch.full` call that makes the same tensor without a copy, or "" when the data is no single number."""
    if made.legacy or made.reshaped or (made.move is not None and not made.move.plain):
        return ""
    if not isinstance(made.factory.func, ast.Attribute):
        return ""
    data, shape = made.data, "()"
    if isinstance(data, (ast.List, ast.Tuple)) and len(data.elts) == 1:
        data, shape = data.elts[0], "(1,)"
    if not number(data) and not isinstance(data, (ast.Name, ast.Attribute)):
        return ""
    if not number(data) and file.values.of(data).kind not in ("", "scalar"):
        return ""
    if not number(data) and shape == "()":
        return ""  # a variable may hold a list
    dtype = keyword_of(made.factory, "dtype")
    if dtype is None and len(made.factory.args) > 1:
        return ""
    names = [file.source(dtype)] if dtype is not None else []
    if made.move is not None and made.move.dtype:
        names.append(made.move.dtype)
    value = data.value if isinstance(data, ast.Constant) else None
    if len(names) > 1 or (made.move is not None and made.move.dtype and not _whole(value)):
        return ""  # a value cast twice may be rounded twice
    leaf = ""
    if isinstance(value, float) or (
        names and isinstance(value, int)
    ):  # without a dtype, `zeros` gives floats
        leaf = "zeros" if value == 0 else "ones" if value == 1 else ""
    start = f"{leaf}({shape}" if leaf else f"full({shape}, {file.source(data)}"
    equals = " = " if writes_spaces(file, made.factory) else "="
    ending = "".join(f", dtype{equals}{name}" for name in names)
    return f"{file.source(made.factory.func.value)}.{start}, device{equals}{made.device}{ending})"


def _whole(value: object) -> bool:
    return isinstance(value, (int, float)) and float(value).is_integer()


def _fix(made: Made, fill: str, file: SourceFile) -> Fix | None:
    if not fill:
        return None
    data = made.data.elts[0] if isinstance(made.data, (ast.List, ast.Tuple)) else made.data
    edits = (replace_node(file, made.node, fill),)
    if number(data):
        return Fix(Safety.SAFE, edits)
    return Fix(Safety.UNSAFE, edits, f"`{file.source(data)}` is a Python number")
