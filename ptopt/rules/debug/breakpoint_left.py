from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from ptopt.rules.base import TEXTBOOK, Evidence, Fix, Invalid, Problem, Rule, Safety, Severity, SourceFile
from ptopt.rules.code import quote
from ptopt.rules.shared.removal import remove_statement
from ptopt.source.calls import last_name
from ptopt.source.frequency import Often
from ptopt.source.index import FunctionNode

_STOPS = frozenset(
    "pdb.set_trace ipdb.set_trace pudb.set_trace pdbpp.set_trace remote_pdb.set_trace IPython.embed IPython.core.debugger.set_trace "
    "code.interact torch.distributed.breakpoint".split()
)
# Somebody asks for it: an option, a level, a main process that debugs, a function that is there to stop.
_ASKED = re.compile(r"debug|dbg|pdb|break|interactiv|inspect|verbose|shell|repl|embed|trace|hook", re.I)
_TRIES_OUT = re.compile(
    r"(^|_)(main|tests?|try|demo|check|sanity|plot|visuali[sz]e|analy[sz]e|scratch|bench(mark)?)(_|$)", re.I
)


class BreakpointLeft(Rule):
    """A breakpoint is left in code that runs in training or inference.

    ## What it does
    Finds `breakpoint()`, `pdb.set_trace()` and `IPython.embed()` in functions, where no option asks for it.

    ## Why it is slow
    The process stops and waits for somebody to type: the GPU stands idle for as long as the job lives, other ranks wait in the next
    collective until it times out, and a process without a terminal, such as a data loader's worker, dies.

    ## Example
    ```python
    def forward(self, x):
        breakpoint()
        return self.layer(x)
    ```

    ## Use instead
    ```python
    def forward(self, x):
        return self.layer(x)
    ```
    Where it waits for what must not happen, raise an error that says so.

    ## Fix safety
    Safe where it runs on each call: nothing but the stop goes away.

    ## Sources
    - [Python documentation: breakpoint](https://docs.python.org/3/library/functions.html#breakpoint)
    """

    id = "PTO908"
    name = "breakpoint-left"
    family = "debug"
    severity = Severity.HIGH
    nodes = (ast.Call,)
    calls = frozenset(name.rpartition(".")[2] for name in _STOPS) | {"breakpoint"}
    when_wrong = "the script is only run by hand"

    VALID = (
        """
        def forward(self, x, debug=False):
            if debug:
                breakpoint()
            return self.layer(x)
        """,
        """
        def debug_here(rank):
            if rank == 0:
                breakpoint()
            dist.barrier()
        """,
        """
        class Index(nn.Module):
            def forward(self, x, interact):
                self.embed(x)
                return interact(x)
        """,
        """
        if __name__ == "__main__":
            model = torch.load("model.pt")
            breakpoint()
        """,
    )
    INVALID = (
        Invalid("""
            class Net(nn.Module):
                def forward(self, x):
                    breakpoint()  # !
                    # +
                    return self.layer(x)
        """),
        Invalid("""
            import torch

            class Texts(torch.utils.data.Dataset):
                def __getitem__(self, index):
                    import pdb; pdb.set_trace()  # !
                    return self.texts[index]
        """),
        Invalid("""
            import torch
            from ipdb import set_trace as st

            def train(model, loader, optimizer):
                for x in loader:
                    loss = model(x.cuda()).mean()
                    if torch.isnan(loss):
                        st()  # !
                    loss.backward()
                    optimizer.step()
        """),
    )

    def check(self, node: ast.AST, file: SourceFile) -> Iterator[Problem]:
        if not isinstance(node, ast.Call) or not isinstance(file.index.parent(node), ast.Expr):
            return
        name = file.imports.qualified(node.func)
        builtin = isinstance(node.func, ast.Name) and node.func.id == "breakpoint" and not name
        function = file.index.function_of(node)
        if not (builtin or name in _STOPS) or function is None or file.guards.unreachable(node):
            return
        if _on_signal(function, file):
            return  # somebody asks for it
        condition = _condition(node, function, file)
        if condition == "asked":
            return
        script = _TRIES_OUT.search(function.name) is not None or _run_by_hand(function, file)
        often = file.frequencies.of_function(function).often
        hot = often >= Often.EVALUATION or file.context.forward_of(node) is not None
        prior = TEXTBOOK if hot or isinstance(file.index.parent(function), ast.ClassDef) else 0.75
        if condition:
            prior = 0.8 if hot else 0.7
        if script:
            prior = 0.4
        edit = remove_statement(file, node) if not condition else None
        when = (
            " after an error"
            if condition == "error"
            else " where it takes this branch"
            if condition
            else f" on each call of `{function.name}`"
        )
        yield Problem(
            node,
            f"{quote(file, node)} stops the process{when} and waits for somebody to type: the device stands idle, other ranks wait in "
            f"their next collective, and a job without a terminal dies. {'Raise an error instead' if condition else 'Remove it'}.",
            prior,
            (Evidence(function.lineno, "runs it"),),
            Fix(Safety.SAFE, (edit,)) if edit else None,
            facts={"condition": bool(condition), "hot": hot, "script": script},
        )


def _on_signal(function: FunctionNode, file: SourceFile) -> bool:
    return any(last_name(a) == function.name for c in file.calls_named("signal") for a in c.args)


def _run_by_hand(function: FunctionNode, file: SourceFile) -> bool:
    """Is it called by the module itself alone, as a script does?"""
    callers = file.calls.callers(function)
    return bool(callers) and all(file.index.function_of(c) is None for c in callers)


def _condition(node: ast.AST, function: FunctionNode, file: SourceFile) -> str:
    """What decides whether it stops: "asked" (somebody wants it), "branch", "error", or "" where nothing does."""
    if _ASKED.search(function.name):
        return "asked"
    found = ""
    for ancestor, child in file.index.ancestors(node):
        if isinstance(ancestor, (ast.If, ast.While, ast.IfExp)) and child is not ancestor.test:
            if _ASKED.search(ast.unparse(ancestor.test)):
                return "asked"
            found = found or "branch"
        elif isinstance(ancestor, ast.ExceptHandler):
            found = found or "error"
        elif isinstance(ancestor, ast.Match):
            found = found or "branch"
        if ancestor is function:
            break
    return found
