from __future__ import annotations

import ast
import re
from bisect import bisect_right
from collections.abc import Iterator, Mapping
from typing import ClassVar

from ptopt.rules.attention._fused_call import fused_call
from ptopt.rules.attention._rank import rank_of
from ptopt.rules.attention._replacement import fix_for, statement_around
from ptopt.rules.attention._scores import Scores, called_softmaxes, softmax_argument, trace
from ptopt.rules.attention._weights import Mixed, follow
from ptopt.rules.base import (
    Benchmark,
    Evidence,
    Invalid,
    Problem,
    Rule,
    Severity,
    SourceFile,
    Span,
)
from ptopt.rules.shared.uses import names_in_returned_tuples
from ptopt.source.bindings import is_self
from ptopt.source.calls import last_name
from ptopt.source.file import remembered
from ptopt.source.index import own_nodes, walk

_FUSED = (
    "scaled_dot_product_attention", "flash", "xformers", "memory_efficient_attention", "flex_attention", "sdpa",
    "fused_attn", "attn_implementation", "all_attention_functions", "_attention_interface",
)  # fmt: skip
_SECOND_ORDER = ("create_graph", "jvp", ".onnx", "hessian")
GIVES_WEIGHTS = re.compile(
    r"output_att|return_att|need_weights|return_weights|get_att\w*map|save_att|attn_map|store_att", re.I
)
_MOST_LINES = 25  # what is spread over more does other things too
_BIAS = re.compile(r"rel|pos|bias|alibi", re.I)


class AttentionByHand(Rule):
    """Attention is spelled out instead of called.

    ## What it does
    Finds `softmax(q @ k.transpose(-2, -1)) @ v` in one function, with a scale, masks and dropout in between, when
    the weights are used for nothing else and the file has no fused path beside it.

    ## Why it is slow
    Each step writes a matrix of sequence length times sequence length to memory and the next reads it back; autograd
    keeps several of them. `F.scaled_dot_product_attention` computes the same in one kernel that never holds the
    matrix: memory grows with the length, not with its square. The fused kernels take four dimensions; three become
    four with `unsqueeze(0)`.

    ## When this is wrong
    When gradients of gradients are needed, when sequences are always short (a window of 49), or when the weights are
    inspected through hooks.

    ## Example
    ```python
    att = (q @ k.transpose(-2, -1)) / math.sqrt(k.size(-1))
    att = att.masked_fill(self.mask[:, :, :T, :T] == 0, float("-inf"))
    att = F.softmax(att, dim=-1)
    y = att @ v
    ```

    ## Use instead
    ```python
    y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
    ```

    ## Fix safety
    Unsafe: equal up to rounding, where no row is masked out completely.

    ## Sources
    - [torch.nn.functional.scaled_dot_product_attention](https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.scaled_dot_product_attention.html)
    - [FlashAttention: fast and memory-efficient exact attention with IO-awareness](https://arxiv.org/abs/2205.14135)
    """

    id = "PTO601"
    name = "attention-by-hand"
    family = "attention"
    severity = Severity.HIGH
    triggers = ("softmax", "Softmax")
    requires = ("matmul", "bmm", " @ ", "einsum")
    nodes = (ast.Call,)
    calls = frozenset({"softmax", "Softmax"})
    since: ClassVar[Mapping[str, str]] = {"torch": "2.1"}
    when_wrong = "gradients of gradients or the weights themselves are needed, or sequences are always short"

    VALID = (
        """
        class Attention(nn.Module):
            def forward(self, q, k, v):
                weights = (q @ k.transpose(-2, -1)) * 0.125
                weights = weights.softmax(dim=-1)
                return self.proj(weights @ v), weights
        """,
        """
        class Channels(nn.Module):
            def __init__(self, heads):
                super().__init__()
                self.temperature = nn.Parameter(torch.ones(heads, 1, 1))

            def forward(self, q, k, v):
                weights = ((q @ k.transpose(-2, -1)) * self.temperature).softmax(dim=-1)
                return weights @ v
        """,
        """
        def forward(self, q, k, v, near, far):
            scores = q @ k.transpose(-2, -1)
            mask = near[:, :, None] * near[:, None, :]
            scores = scores.masked_fill(~mask, float("-inf"))
            mask = far[:, :, None] >= far[:, None, :]
            scores = scores.masked_fill(~mask, float("-inf"))
            return scores.softmax(dim=-1) @ v
        """,
        """
        def forward(self, q, k, v, mask):
            scores = (q @ k.transpose(-2, -1)).masked_fill(mask, 0)
            return scores.softmax(dim=-1) @ v
        """,
        """
        def forward(self, q, k, v):
            if self.flash:
                return F.scaled_dot_product_attention(q, k, v, is_causal=True)
            att = F.softmax(q @ k.transpose(-2, -1) * self.scale, dim=-1)
            return att @ v
        """,
        """
        class Flash(nn.Module):
            def forward(self, q, k, v):
                return flash_attn_func(q, k, v)

        class Plain(nn.Module):
            def forward(self, q, k, v):
                return F.softmax(q @ k.transpose(-2, -1), dim=-1) @ v

        def layer(config):
            return Flash() if config.fast else Plain()
        """,
        """
        def eager_attention(q, k, v):
            weights = torch.matmul(q, k.transpose(2, 3)).softmax(dim=-1)
            return torch.matmul(weights, v), weights
        """,
        """
        def forward(self, x, experts):
            gates = F.softmax(x @ self.router.T, dim=1)
            return gates.unsqueeze(-1) * experts
        """,
        """
        def forward(self, q, k, v):
            scores = q @ k.transpose(-2, -1)
            scores = self.cap * torch.tanh(scores / self.cap)
            return F.softmax(scores, dim=-1) @ v
        """,
        """
        def loss(self, a, b):
            return F.cross_entropy(a @ b.T, labels) + F.softmax(a @ b.T, dim=-1).mean()
        """,
    )
    INVALID = (
        Invalid(
            """
            class CausalSelfAttention(nn.Module):
                def __init__(self, config):
                    super().__init__()
                    self.attn_dropout = nn.Dropout(config.dropout)
                    self.register_buffer("bias", torch.tril(torch.ones(1, 1, config.block_size, config.block_size)))

                def forward(self, q, k, v):
                    T = q.size(2)
                    att = (q @ k.transpose(-2, -1)) * (1.0 / math.sqrt(k.size(-1)))  # !
                    att = att.masked_fill(self.bias[:, :, :T, :T] == 0, float("-inf"))
                    att = F.softmax(att, dim=-1)
                    att = self.attn_dropout(att)
                    y = att @ v
                    return y.transpose(1, 2)
            """,
            """
            class CausalSelfAttention(nn.Module):
                def __init__(self, config):
                    super().__init__()
                    self.attn_dropout = nn.Dropout(config.dropout)
                    self.register_buffer("bias", torch.tril(torch.ones(1, 1, config.block_size, config.block_size)))

                def forward(self, q, k, v):
                    y = F.scaled_dot_product_attention(q, k, v, is_causal=True, dropout_p=self.attn_dropout.p if self.training else 0.0)
                    return y.transpose(1, 2)
            """,
        ),
        Invalid("""
            class Attention(nn.Module):
                def __init__(self):
                    super().__init__()
                    self.attend = nn.Softmax(dim=-1)

                def forward(self, q, k, v, mask=None):
                    dots = torch.matmul(q, k.transpose(-1, -2)) * self.scale  # !
                    if mask is not None:
                        dots = dots.masked_fill(~mask, -torch.finfo(dots.dtype).max)
                    attn = self.attend(dots)
                    return torch.matmul(attn, v)
        """),
        Invalid("""
            def attention(q, k, v, bias):
                sim = torch.einsum("b h i d, b h j d -> b h i j", q, k)  # !
                sim = sim * q.shape[-1] ** -0.5
                attn = sim.softmax(dim=-1)
                return torch.einsum("b h i j, b h j d -> b h i d", attn, v)
        """),
        Invalid(
            """
            class SingleHead(nn.Module):
                def __init__(self, width):
                    super().__init__()
                    self.query = nn.Linear(width, width)

                def forward(self, x, k, v):
                    q = self.query(x)
                    attn = q @ k.transpose(-2, -1)  # !
                    attn = attn.softmax(dim=-1)
                    return attn @ v
            """,
            """
            class SingleHead(nn.Module):
                def __init__(self, width):
                    super().__init__()
                    self.query = nn.Linear(width, width)

                def forward(self, x, k, v):
                    q = self.query(x)
                    return F.scaled_dot_product_attention(q.unsqueeze(0), k.unsqueeze(0), v.unsqueeze(0), scale=1.0).squeeze(0)
            """,
        ),
        Invalid("""
            class FlexAttention(nn.Module):
                def forward(self, q, k, v):
                    return flex_attention(q, k, v, block_mask=self.mask)

            class Pooling(nn.Module):
                def forward(self, q, k, v):
                    scores = q @ k.transpose(-2, -1)  # !
                    # +
                    return scores.softmax(dim=-1) @ v
                    # + return F.scaled_dot_product_attention(q, k, v, scale=1.0)
        """),
        Invalid(
            """
            def attention(q, k, v):
                scores = torch.bmm(q, k.transpose(1, 2)) * self.scale  # !
                scores = F.softmax(scores, dim=2)
                return torch.bmm(scores, v)
            """,
            """
            def attention(q, k, v):
                return F.scaled_dot_product_attention(q.unsqueeze(0), k.unsqueeze(0), v.unsqueeze(0), scale=self.scale).squeeze(0)
            """,
        ),
    )
    BENCHMARK = Benchmark(
        setup="q, k, v = (torch.randn(1, 4, 512, 64) for _ in range(3))",
        before="result = F.softmax((q @ k.transpose(-2, -1)) * 0.125, dim=-1) @ v",
        after="result = F.scaled_dot_product_attention(q, k, v)",
        sizes="4 heads of 64, 512 positions, fp32",
    )

    def check(self, node: ast.AST, file: SourceFile) -> Iterator[Problem]:
        if not isinstance(node, ast.Call):
            return
        for softmax in called_softmaxes(node, file):
            yield from self._attention(softmax, file)

    def _attention(self, node: ast.Call, file: SourceFile) -> Iterator[Problem]:
        argument = softmax_argument(node, file)
        function = file.index.function_of(node) if argument is not None else None
        if argument is None or function is None:
            return
        scores = trace(argument, file)
        mixed = follow(node, file) if scores is not None else None
        if (
            scores is None
            or mixed is None
            or _written_between(scores, mixed, file)
            or file.once(_is_second_order)
            or beyond_fused(scores, function, file)
            or has_fused_path(node, function, file)
        ):
            return
        first, last = scores.product.lineno, mixed.product.end_lineno or mixed.product.lineno
        if abs(last - first) > _MOST_LINES or _rebound(scores, mixed, file):
            return
        rank = rank_of(scores, file)
        call = fused_call(scores, mixed, rank, file)
        lines = f"lines {first} to {last}" if first != last else f"line {first}"
        after = f", times `{file.source(mixed.gate)}`," if mixed.gate is not None else ""
        kinds = {kind in ("drop", "keep") for kind, _ in scores.masks}
        if len(scores.masks) > 1 and kinds != {True}:
            after += f", with one additive `mask` that combines all {len(scores.masks)},"
        elif any(_is_conditional(mask, scores.product, file) for _, mask in scores.masks):
            after += " (`attn_mask=None` where there is no mask)"
        yield Problem(
            node,
            f"The attention of {lines} writes its whole matrix of weights to memory and reads it back; training keeps "
            f"it for backward. `{call}`{after} computes the same in one fused kernel that never holds it.",
            _confidence(scores, mixed, function, file) if rank in (None, 3, 4) else 0.5,
            (
                Evidence(scores.product.lineno, "scores"),
                Evidence(node.lineno, "softmax"),
                Evidence(mixed.product.lineno, "weights times values"),
            ),
            fix_for(scores, mixed, node, call, file),
            span=Span(min(first, last), max(first, last)),
        )


def has_fused_path(node: ast.AST, function: ast.AST, file: SourceFile) -> bool:
    """Is this the branch for when a fused kernel cannot be used?"""
    fused = file.once(_statements_that_mention)
    if not fused:
        return False
    own = _statement_of_module(function, file)
    if _mentions_in(function, file) != _mentions_in(own, file):
        return True
    if any(other is not own and _are_alternatives(own, other, file) for other in fused):
        return True
    # In this very function: beside it, unconditionally, it is no alternative.
    chosen, last = _fused_in(function, file)
    return chosen or last > getattr(node, "lineno", 0)


def _statements_that_mention(file: SourceFile) -> list[ast.stmt]:
    """The statements of the module that name fused attention, but for imports: what they bring is used elsewhere."""
    if not _mentions(file.text):
        return []
    return [
        statement
        for statement in file.tree.body
        if not isinstance(statement, (ast.Import, ast.ImportFrom)) and _mentions_in(statement, file)
    ]


def _statement_of_module(node: ast.AST, file: SourceFile) -> ast.AST:
    """The class, function or other statement of the module that holds the node."""
    outermost = node
    for ancestor, child in file.index.ancestors(node):
        outermost = child if isinstance(ancestor, ast.Module) else ancestor
        if isinstance(ancestor, ast.Module):
            break
    return outermost


def _are_alternatives(own: ast.AST, other: ast.stmt, file: SourceFile) -> bool:
    """Is one the fallback of the other: it names it, or some code of the file names both? Else they only lie side by side."""
    name, its = getattr(own, "name", None), getattr(other, "name", None)
    if name is None:
        return True
    if its is None:  # a flag, a table, an import that may fail
        return _names(name, other, file)
    if _names(its, own, file) or _names(name, other, file):
        return True
    return any(
        _names(name, third, file) and _names(its, third, file)
        for third in file.tree.body
        if third is not own and third is not other
    )


def _names(name: str, node: ast.AST, file: SourceFile) -> bool:
    return re.search(rf"\b{re.escape(name)}\b", file.source(node)) is not None


@remembered
def _mentions_in(function: ast.AST, file: SourceFile) -> int:
    return _mentions(file.source(function))


@remembered
def _fused_in(function: ast.AST, file: SourceFile) -> tuple[bool, int]:
    """Is fused attention one of two branches in the function? And the last line that calls it."""
    chosen, last = False, 0
    for other in own_nodes(function):
        if isinstance(other, ast.Call) and _mentions(file.source(other.func)):
            around = (
                a for a, _ in file.index.ancestors(other) if isinstance(a, (ast.If, ast.IfExp, ast.Try))
            )
            chosen = chosen or any(around)
            last = max(last, other.lineno)
        elif isinstance(other, (ast.If, ast.IfExp)) and _mentions(file.source(other.test)):
            chosen = True
    return chosen, last


@remembered
def _gives_weights(function: ast.AST, file: SourceFile) -> bool:
    return bool(GIVES_WEIGHTS.search(file.source(function)))


def _mentions(text: str) -> int:
    """How often fused attention is named."""
    lowered = text.lower()
    return sum(lowered.count(word) for word in _FUSED)


def _rebound(scores: Scores, mixed: Mixed, file: SourceFile) -> bool:
    """Does a name in the masks or factors mean something else by the time the call would stand there?"""
    parts = [mask for _, mask in scores.masks] + [factor for factor, _ in scores.scales]
    end = mixed.product.lineno
    return any(
        _bound_between(name, part.lineno, end, file)
        for part in parts
        for name in walk(part)
        if isinstance(name, ast.Name)
    )


def _bound_between(name: ast.Name, after: int, end: int, file: SourceFile) -> bool:
    bindings = file.bindings.of(file.index.function_of(name), name.id)
    first = bisect_right(bindings, after, key=lambda b: b.line)
    return first < len(bindings) and bindings[first].line <= end


def _written_between(scores: Scores, mixed: Mixed, file: SourceFile) -> bool:
    """Are scores set by index on the way (`scores[:, i, i] = …`)? The fused call would leave that out."""
    target = statement_around(scores.product, file)
    names = {
        t.id for t in (target.targets if isinstance(target, ast.Assign) else ()) if isinstance(t, ast.Name)
    }
    written = file.once(_written)
    first, last = scores.product.lineno, mixed.product.lineno
    return any(
        bisect_right(written[n], last) > bisect_right(written[n], first) for n in names & written.keys()
    )


def _written(file: SourceFile) -> dict[str, list[int]]:
    """Name -> the lines that set parts of it by index, in order."""
    table: dict[str, list[int]] = {}
    for n in file.index.of_type(ast.Subscript):
        if isinstance(n.ctx, ast.Store) and isinstance(n.value, ast.Name):
            table.setdefault(n.value.id, []).append(n.lineno)
    for lines in table.values():
        lines.sort()
    return table


def _is_conditional(mask: ast.expr, product: ast.expr, file: SourceFile) -> bool:
    """Is the mask applied under an `if` that the product does not stand in?"""
    branches = (a for a, _ in file.index.ancestors(mask) if isinstance(a, ast.If))
    return any(not file.index.within(product, branch) for branch in branches)


def _confidence(scores: Scores, mixed: Mixed, function: ast.AST, file: SourceFile) -> float:
    sure = 0.85
    if mixed.shared or _returned(scores, function, file) or _gives_weights(function, file):
        return 0.4
    if "normalize(" in file.source(scores.product):
        return 0.5  # likely attention over channels, whose head size no fused kernel takes
    if mixed.gate is not None:
        sure -= 0.2
    if scores.reshaped or scores.einsum:
        sure -= 0.1
    added = [mask for kind, mask in scores.masks if kind in ("add", "subtract")]
    if any(_BIAS.search(file.source(mask)) for mask in added):
        sure -= 0.3
    elif added:
        sure -= 0.1
    return sure - 0.1 * max(0, len(scores.masks) - 2)


def _returned(scores: Scores, function: ast.AST, file: SourceFile) -> bool:
    """Does the function give the scores to its caller beside the output?"""
    statement = statement_around(scores.product, file)
    target = statement.targets[0] if isinstance(statement, ast.Assign) else None
    return isinstance(target, ast.Name) and target.id in names_in_returned_tuples(function)


def beyond_fused(scores: Scores, function: ast.AST, file: SourceFile) -> bool:
    """Are the weights themselves returned, or is the factor learned? No fused kernel gives the one or takes the other."""
    return _returned(scores, function, file) or any(_is_learned(factor, file) for factor, _ in scores.scales)


def _is_learned(factor: ast.expr, file: SourceFile) -> bool:
    """Is it a parameter, `self.temperature`? The fused kernel takes a number, and has no gradient for it."""
    cls = file.index.class_of(factor)
    if cls is None or not isinstance(factor, ast.Attribute) or not is_self(factor):
        return False
    made = file.bindings.attribute(cls, factor.attr)
    return isinstance(made, ast.Call) and last_name(made.func) == "Parameter"


def _is_second_order(file: SourceFile) -> bool:
    return any(word in file.text for word in _SECOND_ORDER)
