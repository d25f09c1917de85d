from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from ptopt.rules.base import Invalid, Problem, Rule, SourceFile
from ptopt.rules.code import is_literal, keyword_of, quote
from ptopt.rules.optim.collective_per_tensor import CollectivePerTensor
from ptopt.rules.shared.dicts import is_dict
from ptopt.rules.shared.places import frequency_evidence
from ptopt.source.frequency import Often
from ptopt.source.index import LOOPS
from ptopt.source.uses import IGNORED, REPORTED
from ptopt.source.values import is_loss_name

_CALLS = frozenset(
    "all_reduce all_gather reduce gather reduce_tensor reduce_dict reduce_mean reduce_loss all_reduce_mean "
    "all_reduce_dict reduce_loss_dict all_gather_object reduce_value average_across_processes avg_tensor sync_tensor".split()
)
_METRIC = re.compile(
    r"(^|_)(loss|losses|acc\d?|accuracy|metrics?|log_?dict|correct|stats|log_vars|err)(_|$|\d)|loss"
)


_PER_TENSOR = CollectivePerTensor()


class MetricReducedEveryStep(Rule):
    """A number that is only reported is averaged over the processes on every training step.

    ## What it does
    Finds a collective (`all_reduce`, `gather`, or a helper named like one) on a loss or a metric in a training step, when its
    result is not used in the backward pass.

    ## Why it is slow
    The call makes each process wait for the slowest, and the host for the device, in every step. Sums kept on the device can be
    reduced once, when they are reported.

    ## Fix safety
    None: the place where the sum is reported changes, too.

    ## Sources
    - [torch.distributed](https://docs.pytorch.org/docs/stable/distributed.html)
    """

    id = "PTO446"
    name = "metric-reduced-every-step"
    family = "optim"
    most_stated = 0.4
    triggers = tuple(f"{name}(" for name in sorted(_CALLS))
    nodes = (ast.Call,)
    calls = _CALLS
    when_wrong = "the value of every step decides something on all processes, such as a stop on NaN"

    VALID = (
        """
        import torch.distributed as dist

        for step, batch in enumerate(loader):
            loss = model(batch)
            loss.backward()
            optimizer.step()
            if step % 100 == 0:
                dist.all_reduce(loss)
        """,
        """
        for batch in loader:
            loss = all_reduce_mean(model(batch))
            loss.backward()
            optimizer.step()
        """,
        """
        for x in batches:
            total = functools.reduce(add, losses)
        """,
    )
    INVALID = (
        Invalid("""
            import torch.distributed as dist

            for batch in loader:
            # ~ for step, batch in enumerate(loader):
                loss = model(batch)
                loss.backward()
                optimizer.step()
                dist.all_reduce(loss)  # !
                # ~ running += loss.detach()
                # ~ if step % log_every == 0:
                # ~     dist.all_reduce(running)
                meter.update(loss.item())
                # ~
        """),
        Invalid("""
            for batch in loader:
                loss = model(batch)
                avg_loss = accelerator.gather(loss.repeat(batch_size)).mean()  # !
                train_loss += avg_loss.item()
                accelerator.backward(loss)
                optimizer.step()
        """),
        Invalid("""
            def train_step(self, batch):
                loss_dict = self.model(batch)
                loss = sum(loss_dict.values())
                loss.backward()
                self.optimizer.step()
                reduced = utils.reduce_dict(loss_dict)  # !
                self.log(reduced)
        """),
    )

    def check(self, node: ast.AST, file: SourceFile) -> Iterator[Problem]:
        if not isinstance(node, ast.Call) or not node.args:
            return
        what = next((n for n in _subjects(node.args[0]) if _METRIC.search(n) or is_loss_name(n)), "")
        if not what or "no_sync" in ast.unparse(node.func):
            return
        waits = keyword_of(node, "async_op")
        frequency = file.frequencies.of(node)
        if (
            (waits is not None and not is_literal(waits, False))
            or frequency.often < Often.STEP
            or not frequency.trains
        ):
            return
        if _feeds_backward(node, file) or not _distributed(node, file) or any(_PER_TENSOR.check(node, file)):
            return
        name = quote(file, node.func, 40)
        ways = file.uses.of(node)
        yield Problem(
            node,
            f"{name} makes all processes wait for each other {frequency.reason}, only to report `{what}`. {_added_up(what, node, file)}, and reduce the sum when it is reported.",
            0.4,
            (frequency_evidence(frequency),) if frequency.line not in (0, node.lineno) else (),
            cause=file.index.enclosing(node, LOOPS),
            subject=node.args[0],
            facts={
                "only_reported": ways <= {REPORTED, IGNORED},
                "helper": not file.imports.qualified(node.func),
            },
        )


def _added_up(what: str, call: ast.Call, file: SourceFile) -> str:
    """How the values are summed until then: a number that was read before has no graph, and is on the host."""
    given = next((n for n in ast.walk(call.args[0]) if isinstance(n, ast.Name) and n.id == what), None)
    total = f"running_{what.strip('_')}"
    if given is not None and file.values.of(given).kind == "scalar":
        return f"Add the numbers up (`{total} += {what}`)"
    if given is not None and is_dict(given, file):
        return f"Add the values of `{what}` up on the device, key by key and each with `.detach()`"
    return f"Add the value up on the device (`{total} += {what}.detach()`)"


def _subjects(expr: ast.expr) -> list[str]:
    """The names that the reduced value is made of."""
    names = []
    for n in ast.walk(expr):
        if isinstance(n, ast.Name):
            names.append(n.id)
        elif isinstance(n, ast.Attribute):
            names.append(n.attr)
    return names


def _distributed(call: ast.Call, file: SourceFile) -> bool:
    """torch.distributed, an Accelerator or Fabric, or a helper whose name says so."""
    qualified = file.imports.qualified(call.func)
    if qualified.startswith("torch.distributed."):
        return True
    if not isinstance(call.func, ast.Attribute):
        return call.func.id not in ("reduce", "gather") if isinstance(call.func, ast.Name) else False
    callee = file.calls.resolve(call)
    if callee is not None and not any("dist" in ast.unparse(c.func) for c in file.calls.calls_in(callee)):
        return False
    owner = ast.unparse(call.func.value)
    if (
        qualified.startswith("torch.")
        or call.func.attr == "gather"
        and "accel" not in owner
        and "fabric" not in owner
    ):
        return False
    return call.func.attr != "reduce" or any(word in owner for word in ("dist", "accel", "fabric", "comm"))


def _feeds_backward(call: ast.Call, file: SourceFile) -> bool:
    """Is the result, or the tensor reduced in place, what the backward pass starts from?"""
    function = file.index.function_of(call)
    statement = file.index.statement_of(call)
    names = {n.id for t in getattr(statement, "targets", ()) for n in ast.walk(t) if isinstance(n, ast.Name)}
    if isinstance(statement, ast.Expr):
        names |= {n.id for n in ast.walk(call.args[0]) if isinstance(n, ast.Name)}
    for other in file.calls.calls_in(function):
        func = other.func
        if (
            isinstance(func, ast.Attribute)
            and func.attr in ("backward", "manual_backward")
            and other.lineno > call.lineno
        ):
            roots = [func.value, *other.args]
            if any(isinstance(n, ast.Name) and n.id in names for root in roots for n in ast.walk(root)):
                return True
    return isinstance(statement, ast.Return)
