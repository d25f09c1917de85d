from __future__ import annotations

import ast
from collections.abc import Iterator

from ptopt.rules.base import Edit, Evidence, Fix, Invalid, Problem, Rule, Safety, SourceFile
from ptopt.rules.shared.evaluation import computes_forces
from ptopt.rules.shared.flow import block_of
from ptopt.rules.shared.networks import path_of, requires_grad_set
from ptopt.rules.shared.no_grad import indented, no_grad_text
from ptopt.source.index import own_nodes, walk


class RequiresGradToggled(Rule):
    """Gradients are switched off parameter by parameter around an inference pass.

    ## What it does
    Finds a loop that sets `requires_grad = False` on every parameter of a network, a forward pass without
    `backward()`, and a loop that sets it back to `True`.

    ## Why it is slow
    Two Python loops over all parameters run for each pass, and intermediate results that do not come from those
    parameters are still recorded. `torch.no_grad()` is one flag. The second loop also unfreezes parameters that were
    frozen before.

    ## Example
    ```python
    for p in net.parameters():
        p.requires_grad = False
    output = net(x)
    for p in net.parameters():
        p.requires_grad = True
    ```

    ## Use instead
    ```python
    with torch.no_grad():
        output = net(x)
    ```

    ## Fix safety
    Unsafe: the second loop leaves every parameter trainable; the fix leaves each as it was.

    ## Sources
    - [Autograd mechanics: locally disabling gradient computation](https://docs.pytorch.org/docs/stable/notes/autograd.html)
    """

    id = "PTO505"
    name = "requires-grad-toggled"
    family = "autograd"
    triggers = ("requires_grad",)
    requires = ("parameters",)
    nodes = (ast.For,)
    when_wrong = "the pass in between must record a graph for something other than the parameters"

    VALID = (
        """
        for p in discriminator.parameters():
            p.requires_grad = False
        loss = -discriminator(generator(z)).mean()
        loss.backward()
        for p in discriminator.parameters():
            p.requires_grad = True
        """,
        """
        for p in backbone.parameters():
            p.requires_grad = False
        features = backbone(x)
        """,
        """
        def set_requires_grad(net, flag):
            for p in net.parameters():
                p.requires_grad = flag
        """,
    )
    INVALID = (
        Invalid(
            """
            def test(self):
                self.netG.eval()
                for k, v in self.netG.named_parameters():  # !
                    v.requires_grad = False
                self.fake_H = self.netG(self.var_L)
                for k, v in self.netG.named_parameters():
                    v.requires_grad = True
                self.netG.train()
            """,
            """
            def test(self):
                self.netG.eval()
                with torch.no_grad():
                    self.fake_H = self.netG(self.var_L)
                self.netG.train()
            """,
        ),
        Invalid(
            """
            for p in net.parameters():  # !
                p.requires_grad_(False)
            output = net(x)
            save(output)
            for p in net.parameters():
                p.requires_grad_(True)
            """,
            """
            with torch.no_grad():
                output = net(x)
                save(output)
            """,
        ),
        Invalid(
            """
            def sample(self, x):
                for p in self.net.parameters():  # !
                    p.requires_grad = False
                y = self.net(x)

                for p in self.net.parameters():
                    p.requires_grad = True
                return y
            """,
            """
            def sample(self, x):
                with torch.no_grad():
                    y = self.net(x)
                return y
            """,
        ),
    )

    def check(self, node: ast.AST, file: SourceFile) -> Iterator[Problem]:
        if not isinstance(node, ast.For) or computes_forces(file):
            return
        network = _sets(node, False)
        block = block_of(node, file)
        if not network or not block:
            return
        rest = block[block.index(node) + 1 :]
        back = next((s for s in rest if isinstance(s, ast.For) and _sets(s, True) == network), None)
        if back is None:
            return
        between = rest[: rest.index(back)]
        calls = [n for s in between for n in (s, *own_nodes(s)) if isinstance(n, ast.Call)]
        runs = [c for c in calls if path_of(c.func) in (network, f"{network}.forward")]
        if not runs or any(
            isinstance(c.func, ast.Attribute) and c.func.attr in ("backward", "grad", "step") for c in calls
        ):
            return
        yield Problem(
            node,
            f"Two loops over all parameters of `{network}` (lines {node.lineno} and {back.lineno}) switch gradients off "
            f"and on around one pass. `with torch.no_grad():` around line {runs[0].lineno} does it with one flag, and "
            "leaves frozen parameters frozen.",
            0.85,
            (Evidence(runs[0].lineno, "the pass"), Evidence(back.lineno, "switched on again")),
            _fix(node, between, back, file),
        )


def _sets(loop: ast.For, value: bool) -> str:
    """The network all of whose parameters the loop gives `requires_grad = value`, or ""."""
    call = loop.iter
    if not (isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and len(loop.body) == 1):
        return ""
    if call.func.attr not in ("parameters", "named_parameters") or loop.orelse:
        return ""
    return path_of(call.func.value) if requires_grad_set(loop.body[0]) is value else ""


def _fix(first: ast.For, between: list[ast.stmt], back: ast.For, file: SourceFile) -> Fix | None:
    spelled = no_grad_text(file)
    texts = (n for s in between for n in walk(s) if isinstance(n, (ast.Constant, ast.JoinedStr)))
    if not spelled or any(n.lineno != n.end_lineno for n in texts) or "\r" in file.text:
        return None
    start, end = file.bounds(first)[0], file.bounds(back)[1]
    line = file.line(first.lineno)
    indent = line[: len(line) - len(line.lstrip())]
    body = file.data[file.offset(between[0].lineno, 0) : file.bounds(between[-1])[1]].decode(
        "utf-8", "surrogatepass"
    )
    unit = "\t" if "\t" in indent else "    "
    inner = indented(body, unit)
    return Fix(
        Safety.UNSAFE,
        (Edit(start, end, f"with {spelled}:\n{inner}"),),
        f"every parameter of `{path_of(first.iter.func.value)}` needed gradients before",  # type: ignore[attr-defined]
    )
