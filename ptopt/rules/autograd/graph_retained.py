from __future__ import annotations

import ast
from collections.abc import Iterator

from ptopt.rules.base import Edit, Fix, Invalid, Problem, Rule, Safety, SourceFile
from ptopt.rules.code import is_literal, keyword_of, quote
from ptopt.rules.shared.places import step_evidence
from ptopt.source.file import remembered
from ptopt.source.index import own_nodes


class GraphRetained(Rule):
    """`backward(retain_graph=True)` keeps a graph that nobody uses again.

    ## What it does
    Finds `retain_graph=True` on the only backward call of a file that trains with fresh data each step and carries
    no tensor from one step to the next.

    ## Why it is slow
    Without it, each saved activation is freed as soon as its gradient is computed. With it all of them live until
    the loss is overwritten in the next step, that is, through the forward pass that makes their successors: peak
    memory can nearly double.

    ## When this is wrong
    When a part of the graph is used again: a second backward call, a state carried over steps, a tensor computed
    once before the loop.

    ## Fix safety
    Unsafe: backward must run through each part of the graph once; PyTorch raises a clear error when it does not.

    ## Sources
    - [torch.Tensor.backward](https://docs.pytorch.org/docs/stable/generated/torch.Tensor.backward.html)
    """

    id = "PTO504"
    name = "graph-retained"
    family = "autograd"
    triggers = ("retain_graph",)
    nodes = (ast.Call,)
    when_wrong = "a part of the graph is used by another backward call, or carried over to the next step"

    VALID = (
        """
        for real in loader:
            d_loss = critic(real, generator(z))
            d_loss.backward(retain_graph=True)
            g_loss = critic(generator(z))
            g_loss.backward()
            optimizer.step()
        """,
        """
        hidden = model.init_hidden(batch_size)
        for x, y in loader:
            output, hidden = model(x, hidden)
            loss = F.cross_entropy(output, y)
            loss.backward(retain_graph=True)
            optimizer.step()
        """,
        """
        style = vgg(style_image)
        for step in range(steps):
            loss = F.mse_loss(vgg(image), style)
            loss.backward(retain_graph=True)
            optimizer.step()
        """,
    )
    INVALID = (
        Invalid("""
            for x, y in loader:
                optimizer.zero_grad()
                loss = F.cross_entropy(model(x.cuda()), y.cuda())
                loss.backward(retain_graph=True)  # !
                # + loss.backward()
                optimizer.step()
        """),
        Invalid("""
            def train(model, loader, optimizer):
                for batch in loader:
                    output = model(batch["input"])
                    loss = F.mse_loss(output, batch["target"])
                    scaler.scale(loss).backward(retain_graph=True)  # !
                    # + scaler.scale(loss).backward()
                    scaler.step(optimizer)
        """),
        Invalid("""
            for step, data in enumerate(loader):
                out = net(data)
                loss = criterion(out, data.y)
                accelerator.backward(loss, retain_graph=True)  # !
                # + accelerator.backward(loss)
                optimizer.step()
        """),
    )

    def check(self, node: ast.AST, file: SourceFile) -> Iterator[Problem]:
        if not isinstance(node, ast.Call) or not is_literal(keyword_of(node, "retain_graph"), True):
            return
        if not file.context.is_training_mark(node) or keyword_of(node, "create_graph") is not None:
            return
        others = any(call is not node for call in file.once(_users_of_graphs))
        step = file.context.training_step(node)
        if others or step is None or not isinstance(step.node, (ast.For, ast.AsyncFor)):
            return
        if next(file.index.loops_of(node), None) is not step.node or _carries_over(step.node, file):
            return
        if not _is_made_in(step.node, node, file):
            return
        yield Problem(
            node,
            f"{quote(file, node)} is the only backward call, and each iteration of the loop at line {step.node.lineno} "
            "builds its own graph: nothing uses this one again, yet its activations stay in memory through the next "
            "forward pass. Drop `retain_graph=True`.",
            0.75,
            step_evidence(step, file)[:1],
            _fix(node, file),
        )


def _is_made_in(loop: ast.For | ast.AsyncFor, backward: ast.Call, file: SourceFile) -> bool:
    """Is what is backpropagated bound in the loop? `output[0][i].backward(retain_graph=True)` goes through one graph again and again."""
    root: ast.AST = backward.func
    while isinstance(root, (ast.Attribute, ast.Subscript, ast.Call)):
        root = root.func if isinstance(root, ast.Call) else root.value
    if not isinstance(root, ast.Name):
        return True
    bindings = file.bindings.of(file.index.function_of(backward), root.id)
    return any(file.index.within(b.node, loop) and b.node is not loop for b in bindings) or not bindings


def _users_of_graphs(file: SourceFile) -> list[ast.Call]:
    return [call for call in file.index.of_type(ast.Call) if _uses_graph(call)]


def _uses_graph(call: ast.Call) -> bool:
    return isinstance(call.func, ast.Attribute) and call.func.attr in (
        "backward",
        "manual_backward",
        "grad",
        "register_hook",
    )


@remembered
def _carries_over(loop: ast.For | ast.AsyncFor, file: SourceFile) -> bool:
    """Is a value of one iteration, or one computed before the loop, read where it could hold a part of the graph?"""
    function = file.index.function_of(loop)
    for node in own_nodes(loop):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
            bindings = file.bindings.of(function, node.id)
            inside = [b for b in bindings if file.index.within(b.node, loop) and b.node is not loop]
            earlier = [b for b in inside if b.line <= node.lineno and not file.index.within(node, b.node)]
            if inside and not earlier:
                return True  # read before it is written: the value of the iteration before
            before = [b for b in bindings if not file.index.within(b.node, loop) and b.line < loop.lineno]
            computed = bool(before) and not inside and isinstance(before[-1].value, ast.Call)
            if computed and file.values.of(node).graph is not False and _is_operand(node, file):
                return True
    return any(
        isinstance(n, ast.Assign) and any(isinstance(t, ast.Attribute) for t in n.targets)
        for n in own_nodes(loop)
    )


def _is_operand(name: ast.Name, file: SourceFile) -> bool:
    """Is the name an argument or an operand, rather than what is called, or whose method is?"""
    parent = file.index.parent(name)
    if isinstance(parent, ast.Attribute):
        return False
    if isinstance(parent, ast.Call):
        leaf = parent.func.attr if isinstance(parent.func, ast.Attribute) else ""
        return (
            parent.func is not name
            and leaf not in ("step", "unscale_")
            and getattr(parent.func, "id", "") not in ("enumerate", "tqdm", "zip")
        )
    return isinstance(parent, ast.BinOp)


def _fix(call: ast.Call, file: SourceFile) -> Fix | None:
    """Drop the keyword and the comma before it."""
    keyword = next(k for k in call.keywords if k.arg == "retain_graph")
    if call.keywords[-1] is not keyword:
        return None
    start, end = file.bounds(keyword)
    before = [*call.args, *(k.value for k in call.keywords[:-1])]
    begin = file.bounds(before[-1])[1] if before else file.bounds(call.func)[1] + 1
    if b"#" in file.data[begin:start]:
        return None
    return Fix(Safety.UNSAFE, (Edit(begin, end, ""),), "backward runs through each part of the graph once")
