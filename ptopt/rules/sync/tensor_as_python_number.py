from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from types import NoneType

from ptopt.rules.base import TEXTBOOK, Invalid, Problem, Rule, SourceFile
from ptopt.rules.code import quote
from ptopt.rules.shared.flow import assigned
from ptopt.rules.shared.places import often_place
from ptopt.rules.sync._reads import beside, wait_facts
from ptopt.source.calls import called_name
from ptopt.source.file import remembered
from ptopt.source.frequency import Often
from ptopt.source.index import FUNCTIONS, FunctionNode, walk

_FACTORIES = frozenset({"arange", "zeros", "ones", "empty", "full", "linspace", "eye"})
_SIZED_METHODS = frozenset({"new_zeros", "new_ones", "new_empty", "new_full"})

# Methods that go through sequences one by one, with a wait for each token in any case.
_ONE_BY_ONE = re.compile(
    r"beam|search|decod|generat|infer|predict|sampl(e|ing)$|recogni|transcri|post_?process|^_?test", re.I
)

_ON_HOST = re.compile(
    r"^Wav|fbank|kaldi|feature_?extract", re.I
)  # modules that prepare what is read from disk
_GLOO = re.compile(r"\bgloo\b", re.I)
_EXPERTS = re.compile(r"expert|num_tokens|tokens_per", re.I)  # counts that are copied to the host in any case


class TensorAsPythonNumber(Rule):
    """Python takes a tensor for a number, and waits for its value.

    ## What it does
    Finds tensors passed to `range`, to Python's `max` and `min` beside a number, to the sizes of factories
    (`torch.arange(lengths.max())`) and as bounds of a slice, in code that runs often.

    ## Why it is slow
    No `.item()` is written, but Python asks the tensor for its value all the same: it waits until every queued kernel is
    done. The GPU idles until the next one is queued.

    ## Example
    ```python
    def make_mask(lengths, size=0):
        size = max(size, lengths.max())
        return torch.arange(size, device=lengths.device) >= lengths.unsqueeze(1)
    ```

    ## Use instead
    ```python
    def make_mask(lengths, size):  # the caller knows the padded size: x.shape[1]
        return torch.arange(size, device=lengths.device) >= lengths.unsqueeze(1)
    ```

    ## Fix safety
    No fix: where the number comes from without a read is for the author to say.

    ## Sources
    - [PyTorch performance tuning guide: avoid unnecessary CPU-GPU synchronization](https://docs.pytorch.org/tutorials/recipes/recipes/tuning_guide.html)
    """

    id = "PTO131"
    name = "tensor-as-python-number"
    family = "sync"
    nodes = (ast.Call, ast.Slice)
    calls = frozenset({"range", "max", "min", *_FACTORIES, *_SIZED_METHODS})
    when_wrong = "the tensor lies on the CPU, or Python needs the number in any case"

    VALID = (
        """
        class Net(nn.Module):
            def forward(self, x):
                return x[:, : x.shape[1] // 2] + torch.arange(max(3, x.size(0)), device=x.device)
        """,
        """
        def pad(batch):
            lengths = torch.tensor([len(x) for x in batch])
            return torch.zeros(len(batch), max(1, lengths.max()))

        loader = DataLoader(dataset, collate_fn=pad)
        """,
        """
        class Net(nn.Module):
            def forward(self, x: torch.Tensor, lengths: torch.Tensor):
                ends = lengths.tolist()
                return [self.net(x[i, : ends[i]]) for i in range(len(ends))]
        """,
        """
        def clip(x: torch.Tensor, low):
            return torch.max(x, low), x.clamp(min=x.mean())
        """,
        """
        def unpack(tensors: torch.Tensor, n):
            sizes = [torch.tensor([0], device="cuda") for _ in range(n)]
            sizes = [int(size.item()) for size in sizes]
            out = []
            for size, tensor in zip(sizes, tensors):
                out.append(tensor.cpu().numpy().tobytes()[:size])
            return out
        """,
    )
    INVALID = (
        Invalid("""
            def make_mask(lengths, size=0):
                size = max(size, lengths.detach().max())  # !
                return torch.arange(size, device=lengths.device) >= lengths.unsqueeze(1)
        """),
        Invalid("""
            class Net(nn.Module):
                def forward(self, x: torch.Tensor, lengths: torch.Tensor):
                    for i in range(lengths.max()):  # !
                        x = self.step(x, i)
                    return x
        """),
        Invalid("""
            class Net(nn.Module):
                def forward(self, x: torch.Tensor, lengths: torch.Tensor):
                    for i in range(x.shape[0]):
                        length = lengths[i]
                        x[i, length:] = self.net(x[i, :length])  # !
                    return x
        """),
        Invalid("""
            class Net(nn.Module):
                def forward(self, x: torch.Tensor, lengths: torch.Tensor):
                    longest = lengths.max()
                    mask = torch.arange(longest, device=x.device) < lengths[:, None]  # !
                    return self.net(x[:, :longest], mask)  # !
        """),
    )

    def may_be_sure(self, file: SourceFile) -> bool:
        """Only of an element that bounds a slice in a network."""
        holders = _functions_with_elements(file)
        return bool(holders) and any(
            not isinstance(bound, (ast.Constant, NoneType))
            and not holders.isdisjoint(_functions_around(bound, file))
            and _stands_in_module(part, file)
            and _element_of(bound, file, known=False) is not None
            for part in file.index.of_type(ast.Slice)
            for bound in (part.lower, part.upper)
        )

    def check(self, node: ast.AST, file: SourceFile) -> Iterator[Problem]:
        tensor, needs = _asked(node, file)
        place = often_place(tensor, file) if tensor is not None else None
        if tensor is None or place is None:
            return
        function = file.index.function_of(node)
        if function is not None and (function.name.startswith("test") or _gathers_on_host(function, file)):
            return
        whole = _element_of(tensor, file) if isinstance(node, ast.Slice) else None
        cure = (
            f"Read all of them at once, before the loop: `{file.source(whole)}.tolist()` is one wait, and gives Python numbers"
            if whole is not None
            else "Take the number from a shape or from the host data it was made of, or stay with tensor operations "
            "(`torch.max` of two, `clamp`, a mask)"
        )
        yield Problem(
            tensor,
            f"{quote(file, tensor)} is a tensor, and {needs} needs a Python number: Python waits for the GPU {place.words}. "
            f"{cure}.{beside(tensor, place.node, file)}",
            0.45
            if whole is None
            else TEXTBOOK
            if _in_network(node, file) and not _EXPERTS.search(file.source(whole))
            else 0.6,
            place.evidence,
            cause=place.node,
            subject=tensor,
            facts={**wait_facts(tensor, place.node, file), "element": float(whole is not None)},
        )


@remembered
def _gathers_on_host(function: FunctionNode, file: SourceFile) -> bool:
    """Does it gather through a process group of its caller, in a file whose groups are of gloo: tensors on the CPU?"""
    return (
        any("group" in argument.arg for argument in function.args.args)
        and _GLOO.search(file.text) is not None
        and any(
            called_name(call).startswith(("all_gather", "gather")) for call in file.calls.calls_in(function)
        )
    )


def _asked(node: ast.AST, file: SourceFile) -> tuple[ast.expr | None, str]:
    """The device tensor that Python asks for a number, and what asks."""
    if isinstance(node, ast.Slice):
        found = next(
            (b for b in (node.lower, node.upper) if b is not None and _number_on_device(b, file)), None
        )
        return found, "a slice"
    if not isinstance(node, ast.Call):
        return None, ""
    qualified = file.imports.qualified(node.func)
    name = node.func.id if isinstance(node.func, ast.Name) else ""
    if name == "range" or (name in ("max", "min") and len(node.args) > 1 and not qualified):
        found = next((a for a in node.args if _number_on_device(a, file)), None)
        return found, f"`{name}`"
    leaf = qualified.rpartition(".")[2]
    method = node.func.attr if isinstance(node.func, ast.Attribute) and not qualified else ""
    if (leaf in _FACTORIES and qualified == f"torch.{leaf}") or method in _SIZED_METHODS:
        sizes = [s for a in node.args[:3] for s in (a.elts if isinstance(a, (ast.Tuple, ast.List)) else [a])]
        if leaf == "full" or method == "new_full":
            sizes = (
                list(node.args[0].elts)
                if node.args and isinstance(node.args[0], (ast.Tuple, ast.List))
                else []
            )
        return next((s for s in sizes if _number_on_device(s, file)), None), f"`{leaf or method}`"
    return None, ""


def _in_network(node: ast.AST, file: SourceFile) -> bool:
    """Does it stand in a method of a module that runs with each forward pass, rather than in a search or a decoder?"""
    function = file.index.function_of(node)
    if function is None or not _stands_in_module(node, file):
        return False
    few = any(
        "self." in file.source(loop.iter) for loop in file.index.loops_of(node) if isinstance(loop, ast.For)
    )
    return not few and file.frequencies.of_function(function).often >= Often.STEP


def _stands_in_module(node: ast.AST, file: SourceFile) -> bool:
    """The cheap half of `_in_network`."""
    function, cls = file.index.function_of(node), file.index.class_of(node)
    return (
        function is not None
        and cls is not None
        and not _ONE_BY_ONE.search(function.name)
        and not _ON_HOST.search(cls.name)
        and file.context.is_module(cls)
    )


def _element_of(bound: ast.expr, file: SourceFile, depth: int = 3, *, known: bool = True) -> ast.expr | None:
    """`ends` where the bound comes from `ends[i]` or `ends[i].sum()`, and a loop or comprehension around it counts `i`.

    `known`: it has to be a tensor.
    """
    counted = _counted_around(bound, file)
    for part in walk(bound):
        if (
            isinstance(part, ast.Subscript)
            and _counts(part.slice, counted)
            and (not known or file.values.is_tensor(part.value))
        ):
            return part.value
        if isinstance(part, ast.Name) and depth and isinstance(part.ctx, ast.Load):
            value = assigned(part, file)
            if value is not None:
                found = _element_of(value, file, depth - 1, known=known)
                if found is not None:
                    return found
    return None


def _functions_with_elements(file: SourceFile) -> frozenset[FunctionNode | None]:
    """The functions (None: the module) with an `x[i]` of which a loop or comprehension around it counts `i`."""
    targets = [each.target for each in file.index.of_type(ast.For, ast.AsyncFor, ast.comprehension)]
    counted = frozenset(n.id for target in targets for n in walk(target) if isinstance(n, ast.Name))
    if not counted:
        return frozenset()
    return frozenset(
        file.index.function_of(name)
        for part in file.index.of_type(ast.Subscript)
        if part.slice.__class__ is not ast.Constant  # as most
        for name in walk(part.slice)
        if isinstance(name, ast.Name) and name.id in counted and name.id in _counted_around(name, file)
    )


def _functions_around(node: ast.expr, file: SourceFile) -> Iterator[FunctionNode | None]:
    """The functions whose names the node can read, from its own to the module."""
    function = file.index.function_of(node)
    while function is not None:
        yield function
        function = file.index.function_of(function)
    yield None


def _counts(index: ast.expr, counted: frozenset[str]) -> bool:
    return any(isinstance(n, ast.Name) and n.id in counted for n in walk(index))


@remembered
def _counted_around(node: ast.expr, file: SourceFile) -> frozenset[str]:
    """Names that the loops and comprehensions around the node count up."""
    targets: list[ast.expr] = []
    for ancestor, _ in file.index.ancestors(node):
        if isinstance(ancestor, FUNCTIONS):
            break
        if isinstance(ancestor, (ast.For, ast.AsyncFor)):
            targets.append(ancestor.target)
        targets += [generator.target for generator in getattr(ancestor, "generators", ())]
    return frozenset(n.id for target in targets for n in walk(target) if isinstance(n, ast.Name))


def _number_on_device(expr: ast.expr, file: SourceFile) -> bool:
    if isinstance(expr, (ast.Constant, ast.Starred, ast.List, ast.Tuple)):
        return False
    return file.values.is_on_device(expr)
