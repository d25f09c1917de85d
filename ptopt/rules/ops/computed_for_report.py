from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from ptopt.rules.base import Evidence, Invalid, Problem, Rule, SourceFile
from ptopt.rules.code import quote
from ptopt.rules.shared.flow import runs_network
from ptopt.source.calls import called_name
from ptopt.source.frequency import Often
from ptopt.source.index import walk

_NO_WORK = re.compile(
    r"^(len|int|float|str|range|getattr|get|zip|enumerate|iter|list|dict|tuple|join|format|copy|Path|size|min|max|isinstance|device|"
    r"keys|items|values|numel|split|strip|replace|lower|upper|sort|tensor|from_numpy|dirname|basename|exists)$"
)

_EFFECTS = re.compile(
    r"^(clip|add|update|reduce|all_|gather|barrier|observe|put|write|send|recv|train|fit|run|next|backward|step|pop|read|get_batch|"
    r"sample|append|log|open|time|perf_counter|monotonic|generate|calc_metric|model|forward)|_step$|step_|_time$|time_"
)
_RANKS = re.compile(r"rank|main_process|master|is_main|primary", re.I)


_TOGETHER = re.compile(r"reduce|gather|average_all|sync", re.I)  # all ranks take part


class ComputedForReport(Rule):
    """Something is computed on each step, and read only on the few steps that report it.

    ## What it does
    Finds a call in a loop whose result has one name, where every read of the name stands under a condition that holds now and then
    (`if step % 100 == 0`, logging switches).

    ## Why it is slow
    The metric, the norm or the image is computed on every step for nothing, and often waits for the device.

    ## When this is wrong
    When the call has an effect of its own, such as an update of a running metric.

    ## Fix safety
    No fix is offered: the call may have an effect of its own.

    ## Sources
    - [PyTorch performance tuning guide](https://docs.pytorch.org/tutorials/recipes/recipes/tuning_guide.html)
    """

    id = "PTO448"
    name = "computed-for-report"
    family = "ops"
    most_stated = 0.45
    triggers = ("if ",)
    nodes = (ast.Assign,)
    when_wrong = "the call has an effect of its own"

    VALID = (
        """
        for step, batch in enumerate(loader):
            loss = model(batch)
            loss.backward()
            optimizer.step()
            mean_loss = backend.average_all(loss.detach().exp())
            if step % 10 == 0:
                logger.info(mean_loss)
        """,
        """
        def measure(predictions):
            total = np.mean([p.mean() for p in predictions])
            print("mean", total)
            return total

        for step, batch in enumerate(test_loader):
            measures = measure(batch)
            if args.write_summary:
                writer.add_scalar("mean", measures, step)
        """,
        """
        for step, batch in enumerate(loader):
            loss = model(batch)
            loss.backward()
            if step % 100 == 0:
                print(loss)
        """,
        """
        for step, batch in enumerate(loader):
            if step % 100 == 0:
                accuracy = compute_accuracy(model(batch), batch)
                print(accuracy)
        """,
        """
        for step, batch in enumerate(loader):
            started = time.time()
            if step % 100 == 0:
                print(started)
        """,
    )
    INVALID = (
        Invalid("""
            def train(model, loader, optimizer):
                for step, (x, y) in enumerate(loader):
                    logits = model(x.cuda())
                    loss = F.cross_entropy(logits, y.cuda())
                    accuracy = compute_accuracy(logits, y)  # !
                    # ~
                    loss.backward()
                    optimizer.step()
                    if step % 100 == 0:
                        print(accuracy)
                        # ~ print(compute_accuracy(logits, y))
        """),
        Invalid("""
            def train(model, loader, optimizer):
                for step, (x, y) in enumerate(loader):
                    loss = model(x.cuda(), y.cuda())
                    loss.backward()
                    norm = gradient_norm(model)  # !
                    optimizer.step()
                    if step % 50 == 0:
                        writer.add_scalar("norm", norm, step)
        """),
        Invalid("""
            def train(model, loader, optimizer):
                for step, (x, y) in enumerate(loader):
                    out = model(x.cuda())
                    loss = criterion(out, y.cuda())
                    loss.backward()
                    optimizer.step()
                    grid = make_grid(out.detach())  # !
                    if step % 1000 == 0:
                        save_image(grid, "out.png")
        """),
    )

    def candidates(self, file: SourceFile) -> list[ast.AST]:
        return [node for node in file.index.of_type(ast.Assign) if file.index.may_be_in_loop(node)]

    def check(self, node: ast.AST, file: SourceFile) -> Iterator[Problem]:
        if not isinstance(node, ast.Assign) or len(node.targets) != 1:
            return
        target = node.targets[0]
        names = [target.id] if isinstance(target, ast.Name) else []
        if isinstance(target, ast.Tuple) and all(isinstance(e, ast.Name) for e in target.elts):
            names = [e.id for e in target.elts if isinstance(e, ast.Name)]
        loop = next(file.index.loops_of(node), None)
        call = _call(node.value, file) if names and loop is not None else None
        if call is None or loop is None or file.frequencies.of(node).often < Often.EVALUATION:
            return
        function = file.index.function_of(node)
        if file.guards.rare(node, loop) is not None:
            return
        if any(file.index.within(c, loop) for c in file.calls_named("synchronize")):
            return  # a benchmark
        guards: set[ast.AST] = set()
        for name in names:
            if len(file.bindings.of(function, name)) != 1:
                return
            for load in file.uses.loads(function, name):
                guard = file.guards.rare(load, loop) if file.index.within(load, loop) else None
                if guard is None or file.index.within(node, guard):
                    return
                guards.add(guard)
        if len(guards) != 1:
            return
        guard = guards.pop()
        if (
            not isinstance(guard, ast.If)
            or runs_network(call, file)
            or _RANKS.search(ast.unparse(guard.test))
            or _TOGETHER.search(called_name(call))
            or _prints(call, file)
        ):
            return  # the other ranks may have to take part
        yield Problem(
            node,
            f"{quote(file, node.value, 50)} runs in each iteration of the loop at line {loop.lineno}, but its result is read only under "
            f"`if {ast.unparse(guard.test)[:40]}` (line {guard.lineno}). Move the call into that branch.",
            0.45,
            (Evidence(guard.lineno, "the only place that reads it"),),
            cause=loop,
            subject=node.value,
            facts={"lines_apart": guard.lineno - node.lineno, "names": len(names)},
        )


def _prints(call: ast.Call, file: SourceFile) -> bool:
    """Does what is called show its results itself?"""
    found = file.definition_of(call)
    return found is not None and any(
        called_name(inner) == "print" for inner in found[0].calls.calls_in(found[1])
    )


def _call(value: ast.expr, file: SourceFile) -> ast.Call | None:
    """A call in the expression that does some work."""
    calls = [n for n in walk(value) if isinstance(n, ast.Call)]
    names = [called_name(c) for c in calls]
    if any(_EFFECTS.search(name) or name.endswith("_") or name[:1].isupper() for name in names):
        return None
    return next((c for c in calls if not _NO_WORK.search(called_name(c))), None)
