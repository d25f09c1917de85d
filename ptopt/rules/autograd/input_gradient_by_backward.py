from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from ptopt.rules.base import Evidence, Invalid, Problem, Rule, Severity, SourceFile, is_literal, quote
from ptopt.rules.shared.networks import network_of, networks, path_of
from ptopt.source.file import remembered
from ptopt.source.index import FunctionNode, walk

# Names of what wants the gradients of the weights, or gets gradients in another way: an optimizer, hooks.
_WANTS_WEIGHTS = re.compile(
    r"optim|scaler|hook|^(step|(named_)?parameters|weight|retain_grad|train_step)$", re.I
)


class InputGradientByBackward(Rule):
    """backward() computes a gradient for each weight, and only that of an input is read.

    ## What it does
    Finds a function that makes a tensor need its gradient, gives it to a network, calls `backward()` and reads the gradient of that
    tensor alone, as saliency maps, attributions and attacks do.

    ## Why it is slow
    `backward()` computes a gradient for every parameter of the network, and adds it to `.grad`: about as much work again as the
    gradient of the input takes, and as much memory as the weights. Nothing reads it, and it is still there when training goes on.

    ## When this is wrong
    When the weights were frozen elsewhere, or their gradients are read elsewhere.

    ## Example
    ```python
    image.requires_grad_()
    score = model(image)[0, label]
    score.backward()
    saliency = image.grad.abs()
    ```

    ## Use instead
    ```python
    image.requires_grad_()
    score = model(image)[0, label]
    (gradient,) = torch.autograd.grad(score, image)
    saliency = gradient.abs()
    ```

    ## Fix safety
    There is no fix: other code may read `.grad` of the input.

    ## Sources
    - [torch.autograd.grad](https://docs.pytorch.org/docs/stable/generated/torch.autograd.grad.html)
    """

    id = "PTO507"
    name = "input-gradient-by-backward"
    family = "autograd"
    severity = Severity.MEDIUM
    triggers = (".backward()",)
    requires = ("requires_grad", ".grad")
    nodes = (ast.Call,)
    when_wrong = "the weights were frozen elsewhere, or their gradients are read elsewhere"

    VALID = (
        """
        def saliency(model, image, label):
            model.requires_grad_(False)
            image.requires_grad_()
            score = model(image)[0, label]
            score.backward()
            return image.grad.abs()
        """,
        """
        def saliency(model, image, label):
            image.requires_grad_()
            score = model(image)[0, label]
            (gradient,) = torch.autograd.grad(score, image)
            return gradient.abs()
        """,
        """
        def saliency(model, image, label):
            image.requires_grad_()
            score = model(image)[0, label]
            score.backward(inputs=[image])
            return image.grad.abs()
        """,
        """
        def adversarial_step(model, image, label, optimizer):
            image.requires_grad_()
            loss = F.cross_entropy(model(image), label)
            loss.backward()
            optimizer.step()
            return image.grad
        """,
        """
        def influence(model, image, label):
            image.requires_grad_()
            loss = F.cross_entropy(model(image), label)
            loss.backward()
            return image.grad, [p.grad for p in model.parameters()]
        """,
        """
        def attributions(model, image, label):
            cache = {}
            model.layer.register_full_backward_hook(lambda module, given, out: cache.update(seen=out))
            image.requires_grad_()
            model(image)[0, label].backward()
            return cache, image.grad
        """,
        """
        def optimise(render, pose, image):
            pose.requires_grad_()
            loss = (render(pose) - image).square().mean()
            loss.backward()
            return pose.grad
        """,
        """
        def both(model, image, label):
            image.requires_grad_()
            loss = F.cross_entropy(model(image), label)
            loss.backward()
            return image.grad, model.embed.grad
        """,
    )
    INVALID = (
        Invalid(
            """
            def saliency(model, image, label):
                image.requires_grad_()
                score = model(image)[0, label]
                score.backward()  # !
                return image.grad.abs()
            """
        ),
        Invalid(
            """
            def gradients(model: HookedTransformer, tokens, target):
                embeds = model.embed(tokens).detach()
                embeds.requires_grad_(True)
                logits = model(embeds, start_at_layer=0)
                logit = logits[0, target]
                logit.backward()  # !
                return torch.norm(embeds.grad[0], dim=-1)
            """
        ),
        Invalid(
            """
            def attack(model, image, label, epsilon):
                image = image.clone()
                image.requires_grad = True
                model.zero_grad()
                loss = F.cross_entropy(model(image), label)
                loss.backward()  # !
                return (image + epsilon * image.grad.sign()).detach()
            """
        ),
    )

    def check(self, node: ast.AST, file: SourceFile) -> Iterator[Problem]:
        if not isinstance(node, ast.Call) or node.args or node.keywords:
            return
        if not isinstance(node.func, ast.Attribute) or node.func.attr != "backward":
            return
        function = file.index.function_of(node)
        if function is None or any(map(_WANTS_WEIGHTS.search, _names(function))):
            return
        read = {path_of(held.value) for held in _gradients(function, file)}
        leaves = _leaves(function, file)
        if len(read) != 1 or read != leaves.keys():
            return
        (name, line), *_ = leaves.items()
        passes = [
            call
            for call in file.calls.calls_in(function)
            if line < call.lineno <= node.lineno
            and any(isinstance(part, ast.Name) and part.id == name for part in call.args)
            and (path := network_of(call, file))
            and path not in networks(file).frozen
        ]
        if not passes:
            return
        model = path_of(passes[0].func)
        yield Problem(
            node,
            f"`backward()` computes a gradient for each weight of `{model}`, too, and only that of `{name}` is read here. "
            f"`torch.autograd.grad` of {quote(file, node.func.value, 40)} by `{name}` computes it alone.",
            0.5,
            (
                Evidence(line, f"`{name}` is made to need its gradient"),
                Evidence(passes[0].lineno, "the forward pass"),
            ),
        )


@remembered
def _names(function: FunctionNode) -> frozenset[str]:
    """What the function uses, by name: variables, attributes and methods."""
    return frozenset(
        part.id if isinstance(part, ast.Name) else part.attr
        for statement in function.body
        for part in walk(statement)
        if isinstance(part, (ast.Name, ast.Attribute))
    )


def _gradients(function: FunctionNode, file: SourceFile) -> Iterator[ast.Attribute]:
    """Each `x.grad` of the function."""
    for held in file.index.attributes_named("grad"):
        if file.index.function_of(held) is function and not file.imports.qualified(held):
            yield held


def _leaves(function: FunctionNode, file: SourceFile) -> dict[str, int]:
    """The names that are made to need a gradient, each with the line that does it."""
    found: dict[str, int] = {}
    for held in file.index.attributes_named("requires_grad_", "requires_grad"):
        if file.index.function_of(held) is not function:
            continue
        parent = file.index.parent(held)
        given: ast.expr | None = None
        if held.attr == "requires_grad_" and isinstance(parent, ast.Call):
            given = parent.args[0] if parent.args else ast.Constant(True)
        elif isinstance(parent, ast.Assign) and held in parent.targets:
            given = parent.value
        if given is not None and is_literal(given, True):
            found.setdefault(path_of(held.value), held.lineno)
    return found
