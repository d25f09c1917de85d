from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from ptopt.rules.base import TEXTBOOK, Invalid, Problem, Rule, Severity, SourceFile
from ptopt.rules.code import method_call, quote
from ptopt.rules.shared.flow import assigned
from ptopt.rules.shared.places import may_hold_a_step, often_place
from ptopt.rules.sync._accumulated import summed_on_device
from ptopt.rules.sync._reads import (
    beside,
    is_reported,
    picks_element,
    small_gain,
    tensor_of_item,
    wait_facts,
)
from ptopt.rules.sync.tensor_logged_every_step import shown_each_step
from ptopt.source.bindings import is_self
from ptopt.source.context import STEP_WORDS, Step
from ptopt.source.file import remembered
from ptopt.source.frequency import Often
from ptopt.source.index import FunctionNode, own_nodes, walk
from ptopt.source.uses import COMPARED, IGNORED, PASSED, REPORTED, RETURNED, STORED
from ptopt.source.values import is_loss_name

_CHECKED = re.compile(r"isfinite|isnan|isinf|nan_?check|check_?(for_)?nan", re.I)
_PARAMETERS = re.compile(r"parameters\(|param_groups|[\"']params[\"']|(^|\.)(params|grads|gradients)$")
_MOST_NAMES = 3  # that stand for the parameters, one for another
_NORM = re.compile(r"norm", re.I)
_WRITES_FILES = re.compile(r"(^|[\s.])(open|json\.dump)\(")
_ENVIRONMENT = re.compile(r"(^|[._])envs?$", re.I)


class ItemEveryStep(Rule):
    """A tensor is read back to Python in code that runs often.

    ## What it does
    Finds `.item()`, `float(tensor)`, `int(tensor)` and `scaler.get_scale()` in training steps and, less surely, in forward passes, losses,
    metrics, evaluation loops and functions that work on their caller's tensors, unless a condition such as
    `if step % n == 0` makes the read rare.

    ## Why it is slow
    CUDA work is queued and runs behind the Python code. Reading a value stops Python until every queued kernel has
    finished; the GPU then idles while the next step is prepared. The cost is one bubble per read: measured on an H100,
    0 to 2 % of a training step for one read, and more for reads per layer, micro-batch or element.

    ## When this is wrong
    When the value is needed at once (a check that stops on NaN, an environment that wants a Python number), when
    training runs on the CPU, or when a step is so long that the bubble is lost in it.

    ## Example
    ```python
    for batch in loader:
        loss = model(batch).loss
        loss.backward()
        optimizer.step()
        total += loss.item()
    ```

    ## Use instead
    ```python
    for step, batch in enumerate(loader):
        loss = model(batch).loss
        loss.backward()
        optimizer.step()
        total += loss.detach()
        if step % 100 == 0:
            print(total.item() / (step + 1))
    ```

    ## Fix safety
    Unsafe: `total += loss.detach()` leaves a tensor in `total`. Where the same function or class reads it, the fix writes
    `float(total)`; it is not offered where such a read runs as often as the sum.

    ## Sources
    - [PyTorch performance tuning guide: avoid unnecessary CPU-GPU synchronization](https://docs.pytorch.org/tutorials/recipes/recipes/tuning_guide.html)
    """

    id = "PTO101"
    name = "item-every-step"
    family = "sync"
    severity = Severity.LOW
    triggers = (".item()", "float(", "int(", ".get_scale()")
    sure_triggers = STEP_WORDS
    nodes = (ast.Call,)
    calls = frozenset({"item", "int", "float", "get_scale"})
    when_wrong = "the value is needed on every step (a NaN stop, an environment), or training runs on the CPU"

    VALID = (
        """
        loss_device = torch.device("cpu")
        for x, y in loader:
            loss = F.mse_loss(model(x.cuda()).to(loss_device), y.to(loss_device))
            loss.backward()
            optimizer.step()
            total += loss.item()
        """,
        """
        for i, batch in enumerate(loader):
            loss = model(batch.to(device)).loss / accumulation
            loss.backward()
            if (i + 1) % accumulation == 0:
                optimizer.step()
                progress.set_description(f"loss {loss.item()}")
        """,
        """
        for x, lengths in loader:
            longest = lengths.to(device).max().item()
            loss = model(x[:, :longest].to(device)).mean()
            loss.backward()
            optimizer.step()
        """,
        """
        for step, (x, y) in enumerate(loader):
            loss = F.cross_entropy(model(x.to(device)), y.to(device))
            loss.backward()
            optimizer.step()
            if step % log_interval == 0:
                print(loss.item())
        """,
        """
        def _compute_grad_norm(self, gradients):
            total_norm = torch.stack([g.norm() for g in gradients]).norm().cuda()
            total_norm = total_norm.item()
            return total_norm

        def step(self):
            self.clip(self._compute_grad_norm(self.gradients))
            self.optimizer.step()
        """,
        """
        class Net(pl.LightningModule):
            def training_step(self, batch, batch_idx):
                lengths = self.generate(batch).sum(dim=1)
                with open(self.path, "w") as out:
                    json.dump({"length": lengths[0].item()}, out)
                return self.loss(lengths)
        """,
        """
        def validate(model, loader, device):
            total = 0.0
            with torch.no_grad():
                for x, y in loader:
                    total += F.cross_entropy(model(x.to(device)), y.to(device)).item()
            return total
        """,
        """
        for x, y in loader:
            loss = F.cross_entropy(model(x.to(device)), y.to(device))
            loss.backward()
            optimizer.step()
            seen += int(x.shape[0])
        """,
        """
        for batch in loader:
            loss = model(batch.to(device)).loss
            loss.backward()
            optimizer.step()
            torch.cuda.synchronize()
            losses.append(loss.item())
        """,
        """
        for batch in loader:
            loss = model(batch.to(device)).loss
            loss_value = loss.item()
            if not math.isfinite(loss_value):
                sys.exit(1)
            loss.backward()
            optimizer.step()
        """,
        """
        for i in range(iterations):
            action = policy(torch.as_tensor(state, device=device))
            state, reward, done, _ = env.step(action.item())
            loss = update(reward)
            loss.backward()
            optimizer.step()
        """,
        """
        for epoch in range(epochs):
            for x, y in loader:
                loss = F.mse_loss(model(x.to(device)), y.to(device))
                loss.backward()
                optimizer.step()
            print(epoch, loss.item())
        """,
    )
    INVALID = (
        Invalid("""
            for x, y in loader:
                loss = F.cross_entropy(model(x.to(device)), y.to(device))
                loss.backward()
                optimizer.step()
                running += loss.item()  # !
                # + running += loss.detach()
        """),
        Invalid("""
            class Trainer:
                def train_batch(self, batch):
                    loss = self.criterion(self.model(batch.to(self.device)), batch.y)
                    loss.backward()
                    self.optimizer.step()
                    self.running += loss.item()  # !
                    # + self.running += loss.detach()
                    if self.step % 100 == 0:
                        self.log({"loss": self.running / 100, "rate": self.rate})
                        # + self.log({"loss": float(self.running) / 100, "rate": self.rate})
        """),
        Invalid("""
            for x, y in loader:
                loss = F.cross_entropy(model(x.to(device)), y.to(device))
                loss.backward()
                optimizer.step()
                total += loss.item()  # !
                best = min(best, total)
        """),
        Invalid("""
            class Trainer:
                def train_batch(self, batch):
                    loss = self.criterion(self.model(batch.to(self.device)), batch.y)
                    self.optimizer.zero_grad()
                    loss.backward()
                    self.optimizer.step()
                    return float(loss)  # !
        """),
        Invalid("""
            class Net(pl.LightningModule):
                def training_step(self, batch, batch_idx):
                    loss = F.cross_entropy(self(batch.x), batch.y)
                    self.history.append(loss.item())  # !
                    return loss
        """),
        Invalid("""
            def accuracy(output, target):
                return (output.argmax(1) == target).sum().item()  # !

            for x, y in loader:
                out = model(x.cuda())
                loss = criterion(out, y.cuda())
                loss.backward()
                optimizer.step()
                correct += accuracy(out, y)
        """),
        Invalid("""
            class Trainer:
                def __init__(self, model, optimizer):
                    self.weights = list(model.parameters())
                    self.masters = self.weights
                    self.optimizer = optimizer

                def optimize(self, loss):
                    loss.backward()
                    print(self.norm())
                    self.optimizer.step()

                def norm(self):
                    total = 0.0
                    for p in self.masters:
                        if p.grad is not None:
                            total += torch.norm(p.grad.cuda()).item() ** 2  # !
                    return total ** 0.5
        """),
    )

    def may_be_sure(self, file: SourceFile) -> bool:
        """Only in a training step."""
        return may_hold_a_step(file)

    def check(self, node: ast.AST, file: SourceFile) -> Iterator[Problem]:
        read = tensor_of_item(node, file)
        if read is None or picks_element(read, node, file):
            return
        place = often_place(node, file)
        if place is None:
            return
        sure = _confidence(node, read, place.step, file) if place.step is not None else 0.4
        each = _per_parameter(node, place.node, file)
        many = each and place.step is not None and not _guarded(node, place.node, file)
        if many:
            sure = TEXTBOOK  # hundreds of waits, not one
        once = place.step is not None and not each and file.frequencies.of(node).often <= Often.STEP
        shown, line = ("", 0) if each else shown_each_step(node, place, file)
        advice = _advice(node, each, place.step is not None, file)
        if shown:
            advice = (
                f"`{shown}` is shown each time (line {line}), and would wait there instead: show it every N steps, and keep "
                "it on the device (`.detach()`) until then."
            )
        yield Problem(
            node,
            f"{quote(file, node)} makes Python wait for the GPU {'for each parameter, ' if each else _inner_loop(node, place.node, file)}{place.words}. "
            f"{advice}{'' if each else small_gain(node, place, file)}{beside(node, place.node, file)}",
            sure,
            place.evidence,
            None if shown else summed_on_device(node, read, file),
            cause=place.node,
            subject=read,
            severity=Severity.MEDIUM if many else None,
            facts={
                **wait_facts(node, place.node, file),
                "shown_each_step": float(bool(shown)),
                "once": float(once),
            },
        )


def _inner_loop(node: ast.AST, within: ast.AST, file: SourceFile) -> str:
    """The loop inside of the step that repeats the read: one wait becomes many."""
    loop = next(file.index.loops_of(node), None)
    if loop is None or loop is within or not file.index.within(loop, within):
        return ""
    return f"in each iteration of the loop at line {loop.lineno}, "


def _per_parameter(node: ast.AST, within: ast.AST, file: SourceFile) -> bool:
    """Does a loop over the parameters of a network, or a comprehension, read it?"""
    for ancestor, _ in file.index.ancestors(node):
        if ancestor is within:
            break
        iterables = [ancestor.iter] if isinstance(ancestor, ast.For) else []
        iterables += [generator.iter for generator in getattr(ancestor, "generators", [])]
        if any(
            _PARAMETERS.search(file.source(each)) or _are_parameters(each, file, _MOST_NAMES)
            for each in iterables
        ):
            return True
    return False


def _are_parameters(expr: ast.expr, file: SourceFile, hops: int) -> bool:
    """Are they the parameters of a network, through names: `self.masters` after `self.masters = list(model.parameters())`?"""
    while isinstance(expr, ast.Call) and isinstance(expr.func, ast.Name) and expr.args:
        expr = expr.args[-1]  # `list(...)`, `filter(test, ...)`
    if isinstance(expr, (ast.ListComp, ast.GeneratorExp)):
        expr = expr.generators[0].iter
    if method_call(expr, "parameters", "named_parameters") is not None:
        return True
    value: ast.expr | None = None
    if isinstance(expr, ast.Name):
        value = assigned(expr, file)
    elif isinstance(expr, ast.Attribute) and is_self(expr):
        cls = file.index.class_of(expr)
        value = file.bindings.attribute(cls, expr.attr) if cls is not None else None
    return value is not None and hops > 0 and _are_parameters(value, file, hops - 1)


def _guarded(node: ast.AST, within: ast.AST, file: SourceFile) -> bool:
    """Does a condition inside of the step decide whether it is read?"""
    for ancestor, child in file.index.ancestors(node):
        if ancestor is within:
            break
        if (
            isinstance(ancestor, ast.If)
            and child is not ancestor.test
            and "grad" not in file.source(ancestor.test)
        ):
            return True
    return False


def _advice(node: ast.AST, each: bool, trains: bool, file: SourceFile) -> str:
    """What to do instead, by where the number goes."""
    ways = file.uses.of(node)
    if each:
        return "Collect the values of all parameters and read them once: `torch.stack(values).tolist()` after the loop."
    statement = file.index.statement_of(node)
    listed = isinstance(statement, ast.AugAssign) and isinstance(statement.value, (ast.List, ast.ListComp))
    if not trains and isinstance(statement, ast.AugAssign) and not listed:
        return "Add the tensors up on the device (`.detach()`), and read the sum once, after the loop."
    if not trains and (listed or STORED in ways or _is_collected(node, file)):
        return "Collect the tensors (`.detach()`), and read all of them once, after the loop: `torch.stack(values).tolist()`."
    if ways <= {REPORTED, STORED, IGNORED}:
        return "Keep the value on the device (`.detach()`) and read it only on the steps that report it."
    if ways == {RETURNED}:
        return "Return the tensor, so that callers read it only when they need the number."
    if COMPARED in ways:
        return "Decide on the device (`torch.where`), or read all numbers of the iteration in one copy."
    if PASSED in ways:
        return "Take the number from what the host knows already, or read all numbers of the iteration in one copy."
    return "Compute with the tensor itself; a tensor without dimensions works like a number."


def _is_collected(node: ast.AST, file: SourceFile) -> bool:
    """Is the number appended to a list?"""
    parent = file.index.parent(node)
    return (
        isinstance(parent, ast.Call)
        and isinstance(parent.func, ast.Attribute)
        and parent.func.attr == "append"
    )


def _confidence(node: ast.AST, tensor: ast.expr, step: Step, file: SourceFile) -> float:
    if _waits_anyway(step, file):
        return 0.5
    if _feeds_environment(step, file):
        return 0.4
    named = isinstance(tensor, (ast.Name, ast.Attribute)) and is_loss_name(
        file.source(tensor).rpartition(".")[2]
    )
    if not named and not is_reported(node, file):
        return 0.4  # a size, an index, a choice: Python needs it now
    if _once_per_update(node, file) or _clips(node, step, file):
        return 0.5
    function = file.index.function_of(node)
    if not named and function is not None and _writes_files(function, file):
        return 0.5  # numbers for a file that each step writes
    sure = 0.85 if named or file.values.is_tensor(tensor) else 0.7
    return sure if step.kind == "loop" else sure - 0.05


@remembered
def _waits_anyway(step: Step, file: SourceFile) -> bool:
    """Somebody stops on bad values, or waits already: `synchronize-every-step` speaks, or the step is timed."""
    text = file.source(step.node)
    return bool(_CHECKED.search(text)) or "synchronize()" in text


@remembered
def _writes_files(function: FunctionNode, file: SourceFile) -> bool:
    return bool(_WRITES_FILES.search(file.source(function)))


@remembered
def _returns_value(function: FunctionNode, file: SourceFile) -> bool:
    return any(
        isinstance(n, ast.Return) and n.value is not None and not isinstance(n.value, ast.Dict)
        for n in own_nodes(function)
    )


def _once_per_update(node: ast.AST, file: SourceFile) -> bool:
    """With gradient accumulation, a read beside the optimizer step is one in many batches."""
    return any(
        isinstance(ancestor, ast.If)
        and child in ancestor.body
        and any(isinstance(n, ast.BinOp) and isinstance(n.op, ast.Mod) for n in walk(ancestor.test))
        for ancestor, child in file.index.ancestors(node)
    )


def _clips(node: ast.AST, step: Step, file: SourceFile) -> bool:
    """A helper of the optimizer that gives a norm to its caller, who compares and clips with it in Python."""
    function = file.index.function_of(node)
    if function is None or function is not step.node or not _NORM.search(function.name):
        return False
    return (
        step.mark is not function
        and file.index.function_of(step.mark) is not function
        and _returns_value(function, file)
    )


@remembered
def _feeds_environment(step: Step, file: SourceFile) -> bool:
    """Reinforcement learning: the environment runs on the CPU and wants numbers."""
    return any(
        isinstance(n, ast.Call)
        and isinstance(n.func, ast.Attribute)
        and n.func.attr in ("step", "reset")
        and bool(_ENVIRONMENT.search(file.source(n.func.value)))
        for n in own_nodes(step.node)
    )
