from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from ptopt.rules.base import TEXTBOOK, Invalid, Problem, Rule, SourceFile
from ptopt.rules.code import keyword_of, quote
from ptopt.rules.shared.places import often_place
from ptopt.rules.shared.tensor_lists import device_tensors_in
from ptopt.source.file import remembered
from ptopt.source.index import FunctionNode, own_nodes

_MAKERS = frozenset(
    {"torch.tensor", "torch.as_tensor", "torch.Tensor", "torch.FloatTensor", "torch.LongTensor"}
)
_ASKS_KIND = re.compile(r"is_tensor|isinstance")


class TensorOfTensors(Rule):
    """A tensor is built from a Python list whose elements are tensors.

    ## What it does
    Finds `torch.tensor([a, b, c])`, `torch.tensor([x.max() for x in xs])` and nested lists, where the elements are tensors of the
    device, in code that runs for each batch.

    ## Why it is slow
    `torch.tensor` reads numbers on the host: it asks each element for its value, which waits for the device each time, and the
    result is sent back. `torch.stack` joins them where they are.

    ## Fix safety
    Unsafe: the elements must have one type; gradients, which `torch.tensor` cuts off, go through `torch.stack`.

    ## Sources
    - [torch.stack](https://docs.pytorch.org/docs/stable/generated/torch.stack.html)
    """

    id = "PTO139"
    name = "tensor-of-tensors"
    family = "sync"
    nodes = (ast.Call,)
    calls = frozenset(name.rpartition(".")[2] for name in _MAKERS)
    when_wrong = "the elements live on the CPU, and are few"

    VALID = (
        """
        def forward(self, x):
            size = torch.tensor([x.shape[0], x.shape[1]])
            return self.layer(x, size)
        """,
        """
        def forward(self, x):
            return torch.stack([x.min(), x.max()])
        """,
        """
        def forward(self, x):
            return torch.tensor([x.min().item(), 1.0])
        """,
        """
        def forward(self, sizes: torch.Tensor):
            if torch.is_tensor(sizes):
                return sizes.prod(-1)
            return torch.tensor([h * w for h, w in sizes], device="cuda")
        """,
        """
        def lengths(texts):
            return torch.tensor([len(t) for t in texts])
        """,
    )
    INVALID = (
        Invalid("""
            class Net(nn.Module):
                def forward(self, x: torch.Tensor):
                    limits = torch.tensor([x.min(), x.max()])  # !
                    # ~ limits = torch.stack([x.min(), x.max()])
                    return self.layer(x, limits.to(x.device))
        """),
        Invalid("""
            class Net(nn.Module):
                def forward(self, x: torch.Tensor):
                    peaks = torch.tensor([row.max() for row in x], device=x.device)  # !
                    return self.layer(x, peaks)
        """),
        Invalid("""
            for batch in loader:
                x = torch.relu(batch.cuda())
                box = torch.tensor([[x.min(), x.max()], [x.mean(), x.std()]], device="cuda")  # !
                loss = criterion(model(x), box)
                loss.backward()
                optimizer.step()
        """),
    )

    def check(self, node: ast.AST, file: SourceFile) -> Iterator[Problem]:
        if (
            not isinstance(node, ast.Call)
            or not node.args
            or file.imports.qualified(node.func) not in _MAKERS
        ):
            return
        tensors = device_tensors_in(node.args[0], file)
        many = len(tensors) > 1 or (bool(tensors) and _is_comprehension(node.args[0], file))
        place = often_place(node, file) if many else None
        if place is None or _asks_for_kind(node, file):
            return
        sent = keyword_of(node, "device") is not None or _is_sent(node, file)
        yield Problem(
            node,
            f"{quote(file, node, 50)} asks each element for its number: {quote(file, tensors[0], 30)} is a tensor, and Python waits for "
            f"the device for each, {place.words}. Join them where they are: `torch.stack`.",
            place.prior(TEXTBOOK, 0.75) if sent else 0.6,
            (*place.evidence,),
            cause=place.node,
            subject=tensors[0],
            facts={"tensors": float(len(tensors)), "sent": sent},
        )


def _asks_for_kind(call: ast.Call, file: SourceFile) -> bool:
    """Does the function treat tensors and numbers apart, so that this may be where there are numbers?"""
    function = file.index.function_of(call)
    return function is not None and any(
        isinstance(n, ast.Name) and n.id in _asked_for_kind(function) for n in ast.walk(call.args[0])
    )


@remembered
def _asked_for_kind(function: FunctionNode) -> frozenset[str]:
    """Names that the function asks for their type."""
    tests = [n.test for n in own_nodes(function) if isinstance(n, (ast.If, ast.IfExp))]
    asking = [t for t in tests if _ASKS_KIND.search(ast.unparse(t))]
    return frozenset(n.id for t in asking for n in ast.walk(t) if isinstance(n, ast.Name))


def _is_comprehension(data: ast.expr, file: SourceFile) -> bool:
    return isinstance(data, ast.ListComp) and not isinstance(data.elt, ast.Name)


def _is_sent(call: ast.Call, file: SourceFile) -> bool:
    """Does `.to(...)` or `.cuda()` stand behind it?"""
    parent = file.index.parent(call)
    return isinstance(parent, ast.Attribute) and parent.attr in ("to", "cuda", "type_as")
