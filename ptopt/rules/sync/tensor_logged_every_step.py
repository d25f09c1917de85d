from __future__ import annotations

import ast
from collections.abc import Iterator
from itertools import islice

from ptopt.rules.base import Invalid, Problem, Rule, Severity, SourceFile
from ptopt.rules.code import quote
from ptopt.rules.shared.places import Place, may_hold_a_step, often_place
from ptopt.rules.sync._reads import beside, small_gain, wait_facts
from ptopt.source.context import STEP_WORDS
from ptopt.source.file import remembered
from ptopt.source.frequency import Often
from ptopt.source.index import own_nodes, walk

_METHODS = frozenset(
    {"set_postfix", "set_postfix_str", "set_description", "set_description_str", "add_scalar", "add_scalars"}
    | {"info", "warning", "add_histogram", "write"}
)
_LOGGERS = ("log", "wandb", "writer", "tb", "bar", "tqdm", "progress", "board", "logger")


class TensorLoggedEveryStep(Rule):
    """A tensor is printed or logged on every training step.

    ## What it does
    Finds `print`, loggers, progress bars and experiment trackers that get a tensor in a loop that trains, unless a
    condition such as `if step % n == 0` makes it rare. `self.log` of Lightning defers the read and is left alone.

    ## Why it is slow
    To format the tensor, Python waits for every queued kernel, copies the value and does the output, all before the next
    step is queued.

    ## Fix safety
    No fix: how often to report is for the author to say.

    ## Sources
    - [PyTorch performance tuning guide: avoid unnecessary CPU-GPU synchronization](https://docs.pytorch.org/tutorials/recipes/recipes/tuning_guide.html)
    """

    id = "PTO104"
    name = "tensor-logged-every-step"
    family = "sync"
    severity = Severity.LOW
    triggers = ("print(", "set_postfix", "set_description", "add_scalar", "add_histogram", ".log(", ".info(")
    sure_triggers = STEP_WORDS
    nodes = (ast.Call,)
    calls = frozenset({"print", "log"}) | _METHODS
    when_wrong = "a step takes so long that one wait is lost in it, or training runs on the CPU"

    VALID = (
        """
        for step, (x, y) in enumerate(loader):
            loss = F.cross_entropy(model(x.to(device)), y.to(device))
            loss.backward()
            optimizer.step()
            if step % 50 == 0:
                print(f"loss {loss}")
        """,
        """
        for x, y in loader:
            loss = F.cross_entropy(model(x.to(device)), y.to(device))
            loss.backward()
            optimizer.step()
            print(f"{x.shape[0]} rows, lr {scheduler.get_last_lr()[0]}")
        """,
        """
        class Net(pl.LightningModule):
            def training_step(self, batch, batch_idx):
                loss = F.cross_entropy(self(batch.x), batch.y)
                self.log("loss", loss)
                return loss
        """,
        """
        for step, (x, y) in enumerate(loader):
            loss = F.cross_entropy(model(x.to(device)), y.to(device))
            loss.backward()
            optimizer.step()
            logs = {"lr": scheduler.get_last_lr()[0]}
            if step % 50 == 0:
                logs["loss"] = loss
            progress_bar.set_postfix(**logs)
        """,
        """
        for epoch in range(epochs):
            for x, y in loader:
                loss = F.mse_loss(model(x.to(device)), y.to(device))
                loss.backward()
                optimizer.step()
            print(epoch, loss)
        """,
    )
    INVALID = (
        Invalid("""
            for x, y in loader:
            # ~ for step, (x, y) in enumerate(loader):
                loss = F.cross_entropy(model(x.to(device)), y.to(device))
                loss.backward()
                optimizer.step()
                print(f"loss {loss:.3f}")  # !
                # ~ if step % 100 == 0:
                # ~     print(f"loss {loss.item():.3f}")
        """),
        Invalid("""
            for x, y in (pbar := tqdm(loader)):
                loss = F.cross_entropy(model(x.to(device)), y.to(device))
                loss.backward()
                optimizer.step()
                pbar.set_postfix(loss=loss)  # !
        """),
        Invalid("""
            for x, y in loader:
                loss = F.cross_entropy(model(x.to(device)), y.to(device))
                loss.backward()
                optimizer.step()
                logs = {"lr": scheduler.get_last_lr()[0]}
                logs["loss"] = loss
                progress_bar.set_postfix(**logs)  # !
        """),
        Invalid("""
            for step, (x, y) in enumerate(loader):
                loss = criterion(model(x.cuda()), y.cuda())
                loss.backward()
                optimizer.step()
                writer.add_scalar("train/loss", loss, step)  # !
        """),
    )

    def may_be_sure(self, file: SourceFile) -> bool:
        """Only in a training step."""
        return may_hold_a_step(file)

    def check(self, node: ast.AST, file: SourceFile) -> Iterator[Problem]:
        if not isinstance(node, ast.Call) or not reports(node, file):
            return
        tensor = next((t for t in _printed(node, file) if _on_device(t, file)), None)
        place = often_place(node, file) if tensor is not None else None
        if tensor is None or place is None:
            return
        yield Problem(
            node,
            f"Reporting the tensor {quote(file, tensor)} makes Python wait for the GPU {place.words}. "
            f"Report every N steps instead.{small_gain(node, place, file)}{beside(node, place.node, file)}",
            0.75 if place.step is not None and place.step.kind == "loop" else place.prior(0.65, 0.35),
            place.evidence,
            cause=place.node,
            subject=tensor,
            facts=wait_facts(node, place.node, file),
        )


def reports(call: ast.Call, file: SourceFile) -> bool:
    """Is it `print`, a logger, a progress bar or an experiment tracker?"""
    func = call.func
    if isinstance(func, ast.Name):
        return func.id == "print"
    if not isinstance(func, ast.Attribute):
        return False
    receiver = file.source(func.value).lower()
    if receiver in ("self", "super()"):
        return False
    if func.attr == "log":
        return "wandb" in receiver
    return func.attr in _METHODS and any(word in receiver for word in _LOGGERS)


def shown_each_step(node: ast.AST, place: Place, file: SourceFile) -> tuple[str, int]:
    """The variable that takes the number, and the line that reports it as often as the place runs; ("", 0) where none does."""
    statement = file.index.statement_of(node)
    target = (
        statement.targets[0]
        if isinstance(statement, ast.Assign)
        else getattr(statement, "target", None)
        if isinstance(statement, ast.AugAssign)
        else None
    )
    if not isinstance(target, (ast.Name, ast.Attribute)):
        return "", 0
    name = file.source(target)
    # A loop over micro-batches sums up what the loop around it reports.
    steps = islice(file.index.loops_of(node), 2)
    around: list[ast.AST] = [loop for loop in steps if file.frequencies.of(loop.body[0]).often > Often.EPOCH]
    for each in around or [place.node]:
        line = _reported_names(each, file).get(name, 0)
        if line:
            return name, line
    return "", 0


@remembered
def _reported_names(root: ast.AST, file: SourceFile) -> dict[str, int]:
    """Variables that are reported as often as `root` runs, each with the first line that does."""
    return {
        file.source(part): call.lineno
        for call in reversed([n for n in own_nodes(root) if isinstance(n, ast.Call)])
        if reports(call, file) and file.guards.rare(call, root) is None
        for part in walk(call)
        if isinstance(part, (ast.Name, ast.Attribute))
    }


def _printed(call: ast.Call, file: SourceFile) -> Iterator[ast.expr]:
    """What the call formats: arguments, parts of f-strings, values of a dictionary."""
    for argument in [*call.args, *(k.value for k in call.keywords)]:
        if isinstance(argument, ast.JoinedStr):
            yield from (part.value for part in argument.values if isinstance(part, ast.FormattedValue))
        elif isinstance(argument, ast.Dict):
            yield from argument.values
        elif (
            isinstance(argument, ast.Call)
            and isinstance(argument.func, ast.Attribute)
            and argument.func.attr == "format"
        ):
            yield from argument.args
        else:
            yield argument
            yield from _put_into(argument, call, file)


def _put_into(argument: ast.expr, call: ast.Call, file: SourceFile) -> Iterator[ast.expr]:
    """The values of a dictionary that the same iteration fills: `logs = {"loss": loss}`, `logs["norm"] = norm`."""
    if not isinstance(argument, ast.Name):
        return
    binding = file.bindings.last_before(argument)
    loop = next(file.index.loops_of(call), None)
    if binding is None or not isinstance(binding.value, ast.Dict) or binding.kind != "assign":
        return
    if next(file.index.loops_of(binding.node), None) is not loop:
        return
    if file.guards.rare(binding.node, loop) is None:
        yield from binding.value.values
    for held in file.uses.loads(file.index.function_of(argument), argument.id):
        entry = file.index.parent(held)
        statement = file.index.parent(entry) if isinstance(entry, ast.Subscript) else None
        if (
            isinstance(statement, ast.Assign)
            and entry in statement.targets
            and binding.line < statement.lineno < call.lineno
            and next(file.index.loops_of(statement), None) is loop
            and file.guards.rare(statement, loop) is None
        ):
            yield statement.value


def _on_device(expr: ast.expr, file: SourceFile) -> bool:
    return file.values.is_on_device(expr)
