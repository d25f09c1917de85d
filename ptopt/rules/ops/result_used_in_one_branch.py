from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import replace

from ptopt.rules.base import Evidence, Invalid, Problem, Rule, SourceFile
from ptopt.rules.code import quote
from ptopt.rules.ops._early_exit import Early, is_taken_often, needed_only_behind
from ptopt.rules.ops._pure import changes, costly, is_module_call, is_pure, nested_functions, reads
from ptopt.rules.ops._wasted import is_only_work, runs_for_effect, works_in
from ptopt.source.frequency import Often
from ptopt.source.index import FunctionNode, walk

_NETWORK = 4  # what running a network, or decoding a sample, costs beside single operations


class ResultUsedInOneBranch(Rule):
    """A tensor is computed in every case and used in one branch only, or not at all.

    ## What it does
    Finds a local name that gets the result of tensor operations, of a network or of decoding a sample, and is read in one branch
    of a condition only, only behind an early `return` or `continue` that does not need it, or nowhere.

    ## Why it is slow
    Eager PyTorch runs what it meets: the kernels are launched in the other case, too, and the result is thrown away.

    ## When this is wrong
    When the call has an effect besides its result (a hook, a buffer, the random state).

    ## Fix safety
    No fix: the line moves, and a submodule may have effects of its own.

    ## Sources
    - [PyTorch performance tuning guide](https://docs.pytorch.org/tutorials/recipes/recipes/tuning_guide.html)
    """

    id = "PTO477"
    name = "result-used-in-one-branch"
    family = "ops"
    nodes = (ast.Module,)
    triggers = ("def ",)
    when_wrong = "the call is made for an effect besides its result"

    VALID = (
        """
        def forward(self, x):
            y = torch.softmax(x, -1)
            if self.training:
                return y, x
            return y
        """,
        """
        def forward(self, x):
            y = torch.softmax(x, -1)
            x += 1
            if self.training:
                return y
            return x
        """,
        """
        def forward(self, x):
            y = torch.softmax(x, -1)
            if y.max() > 0.5:
                return x
        """,
        """
        def forward(self, x, boxes):
            y = self.decoder(x)
            if len(boxes) == 0:
                return x
            return y + boxes
        """,
        """
        def forward(self, x, mode):
            y = self.decoder(x)
            if mode == "decode":
                return y
            else:
                raise NotImplementedError(mode)
        """,
    )
    INVALID = (
        Invalid("""
            def forward(self, logits, target):
                probs = logits.softmax(-1)  # !
                # ~
                if self.training:
                    return self.loss(logits, target)
                else:
                    return probs
                    # ~ return logits.softmax(-1)
        """),
        Invalid("""
            def forward(self, x, w):
                scores = torch.matmul(x, w)  # !
                return x + 1
        """),
        Invalid("""
            def validation_step(self, batch, batch_idx):
                loss = self.loss(batch)
                audio = self.vocoder(batch)  # !
                again = self.vocoder(loss)
                if batch_idx != 0:
                    return loss
                self.show(audio, again)
        """),
        Invalid("""
            class Head(nn.Module):
                def __init__(self):
                    super().__init__()
                    self.aux = nn.Linear(8, 8)

                def forward(self, x):
                    aux = self.aux(x)  # !
                    if self.training:
                        return x, aux
                    return x
        """),
    )

    def may_be_sure(self, file: SourceFile) -> bool:
        return any(map(is_taken_often, file.index.of_type(ast.If)))

    def check(self, node: ast.AST, file: SourceFile) -> Iterator[Problem]:
        weights: dict[ast.Assign, int] = {}
        for work, worth in costly(file).items():
            statement = file.index.statement_of(work)
            if isinstance(statement, ast.Assign):
                weights[statement] = max(worth, weights.get(statement, 0))
        for assign in file.index.of_type(ast.Assign):
            if (
                assign not in weights
                and _is_read_in_one_branch(assign, file)  # before what asks other files
                and works_in(assign.value, file)
                and is_only_work(assign.value, file)
            ):
                weights[assign] = _NETWORK
        for assign, weight in weights.items():
            target = assign.targets[0]
            if len(assign.targets) == 1 and isinstance(target, ast.Name):
                yield from self._check(assign, target.id, weight, file)
        for condition in file.index.of_type(ast.If):
            early = needed_only_behind(condition, file)
            if early is not None:
                yield _before_exit(early, condition, file)

    def _check(self, node: ast.Assign, name: str, weight: int, file: SourceFile) -> Iterator[Problem]:
        """Problems of one assignment of costly work to a name."""
        value, function = node.value, file.index.function_of(node)
        if function is None or len(file.bindings.of(function, name)) != 1:
            return
        loads = file.uses.loads(function, name)
        branch = _branch(node, loads, file) if loads else None
        if (loads and branch is None) or _escapes(name, function, file):
            return
        if weight < _NETWORK and not is_pure(value, file):
            return
        if branch is not None and _changed(value, node, branch[0], function, file):
            return
        if Often.UNKNOWN < file.frequencies.of(node).often <= Often.EPOCH:
            return
        if branch is None and works_in(value, file):
            return  # of networks, PTO489 says so
        works = works_in(value, file)
        host = bool(works) and all(work.kind == "host" for work in works)
        if works and (runs_for_effect(function, file) or host and not file.frequencies.of(node).in_worker):
            return
        module = any(isinstance(n, ast.Call) and is_module_call(n, file) for n in walk(value))
        if branch is None:
            text = f"`{name}` is computed here and never read. Remove {quote(file, value)}: its kernels run on each call."
        else:
            text = (
                f"`{name}` is read only in the {branch[1]} at line {branch[0].lineno}, but {quote(file, value)} runs in "
                "every case. Compute it in that branch."
            )
        yield Problem(
            node,
            text,
            0.6 if works and branch is not None and _asks_mode(branch[0], file) else 0.4,
            (Evidence(loads[0].lineno, "the only branch that reads it"),) if loads else (),
            subject=value,
            facts={"cost": weight, "module": module, "unused": branch is None, "uses": len(loads)},
        )


def _is_read_in_one_branch(assign: ast.Assign, file: SourceFile) -> bool:
    """Does it bind one name, once in the function, that only a branch of a later condition reads?"""
    target, function = assign.targets[0], file.index.function_of(assign)
    if len(assign.targets) != 1 or not isinstance(target, ast.Name) or function is None:
        return False
    if file.index.parent(assign) not in file.once(_with_conditions):
        return False
    loads = file.uses.loads(function, target.id)
    return (
        bool(loads)
        and len(file.bindings.of(function, target.id)) == 1
        and _branch(assign, loads, file) is not None
    )


def _with_conditions(file: SourceFile) -> frozenset[ast.AST | None]:
    """What an `if` stands in, at the first level."""
    return frozenset(map(file.index.parent, file.index.of_type(ast.If)))


def _before_exit(early: Early, node: ast.If, file: SourceFile) -> Problem:
    """The problem of work that stands before an exit which does not need it."""
    first, others = early.calls[0], len(early.calls) - 1
    more = f" and {others} other call{'s' if others > 1 else ''}" if others else ""
    problem = Problem(
        early.statements[0],
        f"{quote(file, first)}{more} run{'' if others else 's'} also where `if {early.test}` (line {node.lineno}) leaves by "
        f"`{early.leaves}`, and only the code below that reads the result. Move the call{'s' if others else ''} below it.",
        early.often,
        (
            *(Evidence(s.lineno, "needed only behind the exit") for s in early.statements[1:]),
            Evidence(node.lineno, "the exit that does not need it"),
        ),
        subject=first,
        facts={"calls": len(early.calls), "networks": early.networks, "exit": True},
    )
    others_at = [*early.statements[1:], node.test]
    return replace(problem, elsewhere=tuple(replace(problem, node=place) for place in others_at))


def _escapes(name: str, function: FunctionNode, file: SourceFile) -> bool:
    """Is it read in a function nested in this one, through `locals()`, or changed in place?"""
    found = changes(function, file)
    if name in found.in_place or len(found.at.get(name, ())) > 1:
        return True
    inner = file.once(nested_functions).get(function, [])
    return any(file.uses.loads(f, name) for f in inner) or any(
        file.uses.loads(function, word) for word in ("locals", "eval", "exec")
    )


def _branch(node: ast.Assign, loads: list[ast.Name], file: SourceFile) -> tuple[ast.If, str] | None:
    """The branch of a later condition of the same block that holds every read, and what to call it."""
    block = file.index.parent(node)
    found: tuple[ast.If, str] | None = None
    for load in loads:
        here = None
        for ancestor, child in file.index.ancestors(load):
            if isinstance(ancestor, ast.If) and file.index.parent(ancestor) is block:
                if child is ancestor.test:
                    return None
                here = (ancestor, "branch" if child in ancestor.body else "`else` branch")
                break
            if ancestor is block or isinstance(ancestor, ast.Lambda):
                return None
        if here is None or (found is not None and here != found):
            return None
        found = here
    if found is not None and found[0].lineno > node.lineno:
        other = found[0].orelse if found[1] == "branch" else found[0].body
        if other and isinstance(other[-1], ast.Raise):
            return None  # then nothing is gained
        return found if found[1] == "branch" or found[0].orelse else None
    return None


def _asks_mode(condition: ast.If, file: SourceFile) -> bool:
    """Does it ask whether the module trains, which changes within a run?"""
    return "training" in file.source(condition.test)


def _changed(
    value: ast.expr, node: ast.Assign, branch: ast.If, function: FunctionNode, file: SourceFile
) -> bool:
    """Does something between the line and the branch change what the expression reads?"""
    return changes(function, file).between(
        reads(value, file),
        (node.end_lineno or node.lineno, 10**6),
        (branch.lineno, 0),
    )
