from __future__ import annotations

import ast
import re
import sys
from bisect import bisect_right
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace

from ptopt.rules.base import TEXTBOOK, Fix, Invalid, Problem, Rule, Safety, Severity, SourceFile
from ptopt.rules.ops._networks import RUNS, Work
from ptopt.rules.ops._opposite import only_read_under_the_opposite
from ptopt.rules.ops._unread import are_read, unclear
from ptopt.rules.ops._unread_message import ON_PURPOSE, Waste, said_of, shown_by
from ptopt.rules.ops._wasted import (
    is_named_for_effect,
    is_only_work,
    removable,
    runs_for_effect,
    what_matters,
    works_in,
)
from ptopt.rules.shared.removal import remove_statement
from ptopt.source.file import remembered
from ptopt.source.frequency import Often
from ptopt.source.index import FUNCTIONS, FunctionNode, own_nodes, walk
from ptopt.source.liveness import Assigned, Liveness, assigned_names

_OF_MODULES = re.compile(
    r"^(train|eval|parameters|zero_grad|requires_grad_|to|cuda|cpu|half|modules|state_dict)$"
)
_REPORTS = re.compile(r"print|log|tqdm|update|set_")
_MAY_WORK = (ast.Call, ast.Subscript, ast.Attribute, ast.BinOp, ast.Tuple)  # values that may run a network


class ResultNeverRead(Rule):
    """A network is run, or a sample is decoded, and nothing reads the result.

    ## What it does
    Finds names that get the result of a network, of `torch.autograd.grad`, or of decoding a sample, and that nothing reads
    afterwards on any path: the name never occurs again, it gets another value first, what is computed of it is not read
    either (a loss that is missing in the sum), or all reads stand under the opposite condition.

    ## Why it is slow
    The network runs, and keeps its activations for a backward pass that never comes, or a worker decodes for nothing. Often
    it is a mistake as well: another variable was meant, or a term of the loss was forgotten.

    ## When this is wrong
    When the call has an effect besides its result: a hook, a cache, running statistics. Functions that are named for
    that (`warmup`, `calibrate`) are left alone.

    ## Example
    ```python
    real = self.vgg(image)
    fake = self.vgg(output)
    perceptual_loss = F.mse_loss(fake, real)
    return recon_loss + gan_loss
    ```

    ## Use instead
    ```python
    real = self.vgg(image)
    fake = self.vgg(output)
    perceptual_loss = F.mse_loss(fake, real)
    return recon_loss + gan_loss + perceptual_loss
    ```

    ## Fix safety
    Unsafe: where a sample is decoded for nothing, the line is deleted; the call may have an effect. What is right for a
    network is the author's choice: no fix is offered.

    ## Sources
    - [PyTorch performance tuning guide](https://docs.pytorch.org/tutorials/recipes/recipes/tuning_guide.html)
    """

    id = "PTO489"
    name = "result-never-read"
    family = "ops"
    severity = Severity.HIGH
    triggers = ("def ",)
    nodes = FUNCTIONS
    when_wrong = "the call is made for an effect besides its result"

    VALID = (
        """
        def forward(self, image):
            features = self.encoder(image)
            if self.training:
                return features
            return self.head(features)
        """,
        """
        def warm_up(model, image):
            out = model(image)
            return image.shape
        """,
        """
        def decode_next(model, token, cache):
            hidden = model(token, cache=cache)
            return cache
        """,
        """
        def train_step(model, batch, optimizer):
            out = model(batch)
            loss = criterion(out, batch)
            loss.backward()
            optimizer.step()
            return loss
        """,
        """
        class Tracker(nn.Module):
            def __init__(self):
                super().__init__()
                self.accuracy = torchmetrics.Accuracy()

            def forward(self, logits, target):
                value = self.accuracy(logits, target)
                return logits
        """,
        """
        class Model(nn.Module):
            def __init__(self):
                super().__init__()
                self.encoder = nn.Linear(8, 8)
                self.encoder.register_forward_hook(self.keep)

            def forward(self, x):
                out = self.encoder(x)
                return self.kept
        """,
        """
        def recompute_statistics(model, loader):
            model.train()
            for batch in loader:
                out = model(batch.cuda())
        """,
        """
        def evaluate(model, loader):
            for batch in loader:
                _ = model(batch.cuda())
            return model.metrics()
        """,
    )
    INVALID = (
        Invalid("""
            class Trainer(nn.Module):
                def forward(self, image, output, recon_loss, gan_loss):
                    real = self.vgg(image)
                    fake = self.vgg(output)
                    perceptual_loss = F.mse_loss(fake, real)  # !
                    return recon_loss + gan_loss
        """),
        Invalid("""
            class Loss(nn.Module):
                def forward(self, video, output):
                    total = []
                    for discriminator in self.discriminators:
                        real = discriminator(video)  # !
                        fake = discriminator(output)
                        total.append(hinge(fake))
                    return sum(total)
        """),
        Invalid("""
            def grad_norm(loss, layer):
                return torch.autograd.grad(loss, layer, retain_graph=True)[0].norm()

            class Model(nn.Module):
                def forward(self, x, layer):
                    loss = self.loss(x)
                    if self.training:
                        norm = grad_norm(loss, layer)  # !
                    if not self.training:
                        loss = loss * norm
                    return loss
        """),
        Invalid("""
            class Data(Dataset):
                def __getitem__(self, index):
                    item = self.items[index]
                    text = self.tokenizer.decode(item)  # !
                    # +
                    return torch.tensor(item)
        """),
        Invalid("""
            class Data(Dataset):
                def load(self, path):
                    return cv2.imread(path)

                def __getitem__(self, index):
                    image = self.load(self.paths[index])  # !
                    # +
                    try:
                        image = self.load(self.paths[index])
                        return torch.from_numpy(image)
                    except OSError:
                        return None
        """),
    )

    def check(self, node: ast.AST, file: SourceFile) -> Iterator[Problem]:
        if not isinstance(node, FUNCTIONS):
            return
        # The cheap checks first: what a statement runs may take other files to find out.
        if is_named_for_effect(node, file):
            return
        doubtful = unclear(node, file)
        contrary = [
            (statement, opposite)
            for statement in (*doubtful.open, *doubtful.read_further_on)
            if isinstance(statement.value, _MAY_WORK)
            and file.index.parent(statement) is not node  # as most: it stands under no condition
            and (opposite := only_read_under_the_opposite(statement, node, file)) is not None
        ]
        if not contrary and are_read(doubtful.open, node, file):
            return
        found = what_matters(node, file)
        if found is None:
            return
        unread = [
            statement
            for statement in found.after
            if isinstance(statement, (ast.Assign, ast.AnnAssign))
            and isinstance(statement.value, _MAY_WORK)
            and found.is_unread(statement)
        ]
        if not (unread or contrary) or runs_for_effect(node, file):
            return
        working = frozenset(statement for statement in unread if _works(statement, file))
        for waste in _unread(working, found, node, file) if working else ():
            yield from self._problems(waste, node, found, file)
        for statement, opposite in contrary:
            if works := _works(statement, file):
                waste = Waste(statement, works, (statement,), opposite=opposite)
                yield from self._problems(waste, node, found, file)

    def _problems(
        self, waste: Waste, function: FunctionNode, found: Liveness, file: SourceFile
    ) -> Iterator[Problem]:
        frequency = file.frequencies.of(waste.end)
        names = sorted(assigned_names(waste.end))
        if all(ON_PURPOSE.search(name) for name in names) or _is_all_there_is(waste, function, found, file):
            return
        if Often.UNKNOWN < frequency.often <= Often.EPOCH:
            return
        host = all(work.kind == "host" for work in waste.works)
        prior = TEXTBOOK if frequency.often >= Often.EVALUATION else 0.5
        if host:
            per_item = frequency.in_worker or _in_dataset(waste.end, file)
            decodes = any(not work.light for work in waste.works)
            if not per_item and not decodes:
                return
            prior = min(prior, TEXTBOOK if per_item and decodes else 0.6)
        elif _is_asked_later(waste, function, file) or _finds_what_fits(waste.end, file):
            return
        elif _runs_in_loop_too(waste, function, file) or _keeps_for(waste, function, file):
            prior = 0.5
        message, evidence = said_of(waste, function, frequency, file)
        problem = Problem(
            waste.end,
            message,
            prior,
            evidence,
            _fix(waste, file) if host else None,
            subject=waste.end.value,
            facts={
                "host": host,
                "proven": all(work.proven for work in waste.works),
                "works": len(waste.works),
                "lines": len(waste.statements),
                "opposite": waste.opposite is not None,
            },
        )
        places = [*waste.statements, *waste.operands, *shown_by(waste, function, file)]
        others = tuple(replace(problem, node=place, fix=None) for place in places if place is not waste.end)
        yield replace(problem, elsewhere=others)


def _runs_in_loop_too(waste: Waste, function: FunctionNode, file: SourceFile) -> bool:
    """Does a loop that follows run the same, or give the same name its values, so that one run more hardly counts?"""
    if waste.opposite is not None or next(file.index.loops_of(waste.end), None) is not None:
        return False
    called, bound = _in_loops(function, file)
    return not assigned_names(waste.end).isdisjoint(bound) or any(
        file.source(work.call.func) in called for work in waste.works
    )


def _is_asked_later(waste: Waste, function: FunctionNode, file: SourceFile) -> bool:
    """Is the network asked afterwards for what it kept: `self.model.attention`?"""
    asked, _ = _last_questions(function, file)
    return any(asked.get(_network(work.call, file), 0) > waste.end.lineno for work in waste.works)


def _keeps_for(waste: Waste, function: FunctionNode, file: SourceFile) -> bool:
    """May a method without arguments use what the run has left: `return self.execute_heads()`?"""
    return _last_questions(function, file)[1] > waste.end.lineno


def _network(call: ast.Call, file: SourceFile) -> str:
    """The name of what is run: `self.model` of `self.model.encode(x)`."""
    func = call.func
    if isinstance(func, ast.Attribute) and RUNS.search(func.attr):
        func = func.value
    return file.source(func)


@remembered
def _last_questions(function: FunctionNode, file: SourceFile) -> tuple[dict[str, int], int]:
    """Where the function last asks each object for an attribute, and `self` for something without an argument."""
    asked: dict[str, int] = {}
    own = 0
    for node in own_nodes(function):
        if not isinstance(node, ast.Attribute) or not isinstance(node.value, (ast.Name, ast.Attribute)):
            continue
        parent = file.index.parent(node)
        call = parent if isinstance(parent, ast.Call) and parent.func is node else None
        if call is None or not (RUNS.search(node.attr) or _OF_MODULES.search(node.attr)):
            of = file.source(node.value)
            asked[of] = max(asked.get(of, 0), node.lineno)
        if call is not None and file.source(node.value) == "self" and not (call.args or call.keywords):
            own = max(own, node.lineno)
    return asked, own


def _finds_what_fits(node: ast.AST, file: SourceFile) -> bool:
    """Does it try out a batch size?"""
    for ancestor, child in file.index.ancestors(node):
        if isinstance(ancestor, ast.Try) and child in ancestor.body:
            caught = " ".join(file.source(h.type) for h in ancestor.handlers if h.type is not None)
            if "RuntimeError" in caught or "Memory" in caught:
                return True
        if isinstance(ancestor, FUNCTIONS):
            return False
    return False


@remembered
def _in_loops(function: FunctionNode, file: SourceFile) -> tuple[frozenset[str], frozenset[str]]:
    """What the loops of the function call, and the names that they bind."""
    called = {
        file.source(call.func)
        for call in file.calls.calls_in(function)
        if next(file.index.loops_of(call), None) is not None
    }
    bound = {
        node.id
        for node in own_nodes(function)
        if isinstance(node, ast.Name)
        and isinstance(node.ctx, ast.Store)
        and next(file.index.loops_of(node), None) is not None
    }
    return frozenset(called), frozenset(bound)


def _in_dataset(node: ast.AST, file: SourceFile) -> bool:
    cls = file.index.class_of(node)
    return cls is not None and any(
        "Dataset" in word for word in (cls.name, *(file.source(base) for base in cls.bases))
    )


def _works(statement: Assigned, file: SourceFile) -> list[Work]:
    """The expensive calls of an assignment that does nothing else."""
    value = statement.value
    if value is None or not assigned_names(statement):
        return []
    works = works_in(value, file)
    return works if works and is_only_work(value, file) else []


def _unread(
    working: Collection[Assigned], found: Liveness, function: FunctionNode, file: SourceFile
) -> Iterator[Waste]:
    """The expensive statements that nobody reads, with what is computed of them for nobody."""
    dead = [
        s
        for s in sorted(found.after, key=lambda s: (s.lineno, s.col_offset))
        if isinstance(s, (ast.Assign, ast.AnnAssign)) and s.value is not None and found.is_unread(s)
    ]
    readers: dict[str, list[Assigned]] = {}
    for statement in dead:
        for name in found.reads(statement):
            readers.setdefault(name, []).append(statement)
    ends: dict[Assigned, list[Assigned]] = {}
    for statement in dead:
        if statement in working:
            path = [statement]
            while (after := _computed_of(path[-1], readers, function, file)) is not None:
                path.append(after)
            known = ends.setdefault(path[-1], [])
            known += [s for s in path if s not in known]
    operands: dict[Assigned, list[Assigned]] = {}
    belongs = {s: end for end, statements in ends.items() for s in statements}
    for statement in reversed(dead):
        after = _computed_of(statement, readers, function, file)
        if statement not in belongs and after in belongs:
            belongs[statement] = belongs[after]
            operands.setdefault(belongs[after], []).append(statement)
    for end, statements in ends.items():
        works = [w for s in statements if s in working for w in _works(s, file)]
        yield Waste(end, works, tuple(statements), tuple(operands.get(end, ())))


def _computed_of(
    statement: Assigned, readers: Mapping[str, Sequence[Assigned]], function: FunctionNode, file: SourceFile
) -> Assigned | None:
    """The next unread statement that is computed of the value."""
    end = statement.end_lineno or statement.lineno
    for name in assigned_names(statement):
        found = readers.get(name, ())
        place = bisect_right(found, end, key=lambda s: s.lineno)
        if place < len(found) and found[place].lineno <= _next_binding(name, end, function, file):
            value = found[place].value
            if value is not None and removable(value, file):
                return found[place]
    return None


def _next_binding(name: str, line: int, function: FunctionNode, file: SourceFile) -> int:
    """The first line after that one that gives the name another value."""
    bindings = file.bindings.of(function, name)
    place = bisect_right(bindings, line, key=lambda b: b.line)
    return bindings[place].line if place < len(bindings) else sys.maxsize


def _is_all_there_is(waste: Waste, function: FunctionNode, found: Liveness, file: SourceFile) -> bool:
    """Does a loop, or the function, do nothing else that can be seen outside, so that the call must be made for an effect?"""
    loop = next(file.index.loops_of(waste.end), None)
    if loop is not None and not _is_seen(loop, file) and found.after[loop].isdisjoint(_bound_in(loop)):
        return True
    return not _is_seen(function, file)


@remembered
def _bound_in(scope: ast.AST) -> frozenset[str]:
    nodes = (n for n in walk(scope) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store))
    return frozenset(n.id for n in nodes)


@remembered
def _is_seen(scope: ast.AST, file: SourceFile) -> bool:
    """Does the code do something that can be seen outside: return, store, call?"""
    for node in walk(scope):
        if isinstance(node, (ast.Return, ast.Yield, ast.YieldFrom)) and node.value is not None:
            return True
        if isinstance(node, (ast.Attribute, ast.Subscript)) and isinstance(node.ctx, ast.Store):
            return True
        called = node.value.func if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call) else None
        if called is not None and not _REPORTS.search(file.source(called)):
            return True
    return False


def _fix(waste: Waste, file: SourceFile) -> Fix | None:
    edit = remove_statement(file, waste.end) if len(waste.statements) == 1 else None
    return Fix(Safety.UNSAFE, (edit,), "the call has no effect but its result") if edit is not None else None
