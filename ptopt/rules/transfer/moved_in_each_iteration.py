from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from ptopt.rules.base import Evidence, Invalid, Problem, Rule, SourceFile, quote
from ptopt.rules.shared.moves import move_of
from ptopt.rules.transfer._hot import attributes_set_in, bound_in
from ptopt.source.frequency import Often
from ptopt.source.index import walk

_MODULE = re.compile(
    r"(^|[._])(model|net|network|module|encoder|decoder|unet|vae|generator|discriminator)\w*$", re.I
)


class MovedInEachIteration(Rule):
    """The same tensor is moved to the device again in each iteration of a loop.

    ## What it does
    Finds `.to(device)` and `.cuda()` in a loop, on a value that the loop does not change and whose moved form is not kept.

    ## Why it is slow
    From the CPU, each iteration copies the same bytes from pageable memory, and Python waits for the copy.

    ## When this is wrong
    When the tensor already lies on that device: then the call does nothing.

    ## Example
    ```python
    for x, y in loader:
        loss = F.cross_entropy(model(x.to(device)), y.to(device), class_weights.to(device))
    ```

    ## Use instead
    ```python
    class_weights = class_weights.to(device)
    for x, y in loader:
        loss = F.cross_entropy(model(x.to(device)), y.to(device), class_weights)
    ```

    ## Fix safety
    No fix: it has to be known that nothing else needs the tensor on the CPU.

    ## Sources
    - [PyTorch performance tuning guide: avoid unnecessary CPU-GPU synchronization](https://docs.pytorch.org/tutorials/recipes/recipes/tuning_guide.html)
    """

    id = "PTO235"
    name = "moved-in-each-iteration"
    family = "transfer"
    triggers = (".to(", ".cuda(")
    nodes = (ast.Call,)
    calls = frozenset({"to", "cuda"})
    when_wrong = "the tensor already lies on that device"

    VALID = (
        """
        for x, y in loader:
            x = x.to(device)
            loss = criterion(model(x), y.to(device))
        """,
        """
        weights = weights.to(device)
        for x, y in loader:
            loss = F.cross_entropy(model(x.to(device)), y.to(device), weights)
        """,
        """
        for x, y in loader:
            model.to(device)
            loss = criterion(model(x.to(device)), y.to(device))
        """,
    )
    INVALID = (
        Invalid(
            """
            for x, y in loader:
                loss = F.cross_entropy(model(x.to(device)), y.to(device), weights.to(device))  # !
                loss.backward()
                optimizer.step()
            """
        ),
        Invalid(
            """
            def sample(model, x, betas, device):
                for t in range(1000):
                    x = model(x, betas.to(device), t)  # !
                return x
            """
        ),
        Invalid(
            """
            class Trainer:
                def fit(self):
                    for x in self.loader:
                        mean = self.mean.cuda()  # !
                        self.model(x.cuda() - mean).backward()
                        self.optimizer.step()
            """
        ),
    )

    def check(self, node: ast.AST, file: SourceFile) -> Iterator[Problem]:
        move = move_of(node, file)
        loop = next(file.index.loops_of(node), None) if move is not None else None
        if move is None or loop is None or not isinstance(move.tensor, (ast.Name, ast.Attribute)):
            return
        value = file.values.of(move.tensor)
        text = file.source(move.tensor)
        if value.kind not in ("tensor", "") or value.device == "moved" or _MODULE.search(text):
            return
        if (
            isinstance(file.index.parent(node), ast.Expr)
            or file.frequencies.of(node).often < Often.EVALUATION
        ):
            return
        bound = file.once(_bound_table).setdefault(loop, bound_in(loop))
        names = {
            n.id for part in (move.tensor, *_arguments(node)) for n in walk(part) if isinstance(n, ast.Name)
        }
        attributes = {n.attr for n in walk(move.tensor) if isinstance(n, ast.Attribute)}
        if (
            names & bound
            or attributes & attributes_set_in(loop)
            or file.index.enclosing(node, (ast.Lambda,)) is not None
            or _in_comprehension(node, names, file)
        ):
            return
        yield Problem(
            node,
            f"`{text}` does not change in the loop at line {loop.lineno}, and {quote(file, node)} moves it again in each "
            f"iteration. Move it once before the loop: `{text} = {file.source(node)}`.",
            0.5 if value.device == "cpu" else 0.4,
            (Evidence(loop.lineno, "the loop"),),
            cause=loop,
            subject=move.tensor,
        )


def _bound_table(file: SourceFile) -> dict[ast.AST, frozenset[str]]:
    return {}


def _arguments(node: ast.AST) -> list[ast.expr]:
    return [*node.args, *(k.value for k in node.keywords)] if isinstance(node, ast.Call) else []


def _in_comprehension(node: ast.AST, names: set[str], file: SourceFile) -> bool:
    """Does a comprehension around the move bind one of its names?"""
    for ancestor, _ in file.index.ancestors(node):
        if isinstance(ancestor, (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)):
            targets = {n.id for g in ancestor.generators for n in walk(g.target) if isinstance(n, ast.Name)}
            if targets & names:
                return True
        if isinstance(ancestor, ast.stmt):
            return False
    return False
