from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from typing import ClassVar

from ptopt.rules.attention._scores import called_softmaxes, softmax_argument, trace
from ptopt.rules.attention._steps import assignments, mixed_by, scores_of
from ptopt.rules.attention.attention_by_hand import (
    GIVES_WEIGHTS,
    AttentionByHand,
    beyond_fused,
    has_fused_path,
)
from ptopt.rules.base import Evidence, Invalid, Problem, Rule, SourceFile
from ptopt.rules.shared.flow import value_of

_CAPS = re.compile(r"tanh|topk|gumbel|entmax|sparsemax")


class AttentionInSteps(Rule):
    """Attention with biases, masks or head gates of its own is computed in steps.

    ## What it does
    Finds a product of queries and keys, a softmax over the last dimension of what becomes of it, and a product of that
    with the values, in one function that has no fused path, where `attention-by-hand` cannot follow each step.

    ## Why it is slow
    Each step writes a matrix of sequence length times sequence length and the next one reads it back; autograd keeps
    several of them. A fused kernel takes additive biases and masks as `attn_mask`, and flex attention any other change of the scores.

    ## Fix safety
    There is no fix: the steps between must be read.

    ## Sources
    - [torch.nn.functional.scaled_dot_product_attention](https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.scaled_dot_product_attention.html)
    """

    id = "PTO830"
    name = "attention-in-steps"
    family = "attention"
    most_stated = 0.45
    since: ClassVar[Mapping[str, str]] = {"torch": "2.0"}
    triggers = ("matmul", "bmm", "einsum", " @ ")
    nodes = (ast.Call,)
    calls = frozenset({"softmax", "Softmax"})
    when_wrong = "the weights are inspected, or sequences are short"

    VALID = (
        """
        class Channels(nn.Module):
            def forward(self, x):
                size, channels, height, width = x.size()
                query = x.view(size, channels, -1)
                key = x.view(size, channels, -1).permute(0, 2, 1)
                energy = torch.bmm(query, key)
                spread = torch.max(energy, -1, keepdim=True)[0].expand_as(energy) - energy
                weights = F.softmax(spread, dim=-1)
                value = x.view(size, channels, -1)
                out = torch.bmm(weights, value)
                return out
        """,
        """
        class Attention(nn.Module):
            def forward(self, q, k, v):
                weights = (q @ k.transpose(-2, -1)) * 0.125
                weights = weights.softmax(dim=-1)
                return self.proj(weights @ v), weights
        """,
        """
        def forward(self, q, k, v):
            near = torch.einsum("bid,bijd->bij", q, k)
            weights = near.softmax(dim=-1)
            return torch.einsum("bij,bijd->bid", weights, v)
        """,
        """
        def route(self, x, experts):
            gates = F.softmax(x @ self.router.T, dim=-1)
            return gates @ experts
        """,
        """
        def attend(self, query, key, value):
            scores = 30 * torch.tanh(torch.matmul(query, key.transpose(-1, -2)) / 30)
            return torch.matmul(scores.softmax(dim=-1), value)
        """,
    )
    INVALID = (
        Invalid(
            """
            def forward(self, query, key, value, position):
                scores = torch.matmul(query, key.permute(0, 1, 3, 2))
                scores = scores + self.bias(position).view_as(scores)
                weights = scores.softmax(dim=-1)  # !
                weights = self.drop(weights).type_as(value)
                return torch.matmul(weights, value)
            """,
            instead="""
            def forward(self, query, key, value, position):
                bias, p = self.bias(position).type_as(query), self.drop.p if self.training else 0.0
                return F.scaled_dot_product_attention(query, key, value, attn_mask=bias, dropout_p=p, scale=1.0)
            """,
        ),
        Invalid("""
            def forward(self, queries, keys, values, mask):
                scores = torch.einsum("blhe,bshe->bhls", queries, keys)
                if self.masked:
                    scores.masked_fill_(mask, -float("inf"))
                A = self.dropout(torch.softmax(self.scale * scores, dim=-1))  # !
                return torch.einsum("bhls,bshd->blhd", A, values)
        """),
        Invalid("""
            def forward(self, q, k, v):
                attn = (q.transpose(-2, -1) @ k) * self.scale
                attn = attn.softmax(dim=-1)  # !
                return v @ attn.transpose(-2, -1)
        """),
    )

    def check(self, node: ast.AST, file: SourceFile) -> Iterator[Problem]:
        if not isinstance(node, ast.Call):
            return
        strict = {problem.node for problem in AttentionByHand().check(node, file)}
        for softmax in called_softmaxes(node, file):
            function = file.index.function_of(softmax)
            argument = softmax_argument(softmax, file)
            if function is None or argument is None or softmax in strict:
                continue
            steps = file.once(assignments).get(function, [])
            scores = scores_of(argument, softmax, steps, file)
            mixed = mixed_by(softmax, steps, file) if scores is not None else None
            if scores is None or mixed is None or has_fused_path(softmax, function, file):
                continue
            if _CAPS.search(file.source(function)):
                continue  # no fused call computes that
            traced = trace(argument, file)
            if traced is not None and beyond_fused(traced, function, file):
                continue
            shifted = value_of(argument, file)
            subtracted = isinstance(shifted, ast.BinOp) and isinstance(shifted.op, ast.Sub)
            if isinstance(shifted, ast.BinOp) and subtracted and value_of(shifted.right, file) is scores:
                continue  # `highest - scores`: the least alike weigh most
            yield Problem(
                softmax,
                f"Scores (line {scores.lineno}), softmax and the product with the values (line {mixed.lineno}) each write or "
                "read a matrix of length times length. `F.scaled_dot_product_attention` computes the same in one kernel: "
                "biases and masks go in as `attn_mask`, the factor as `scale`.",
                0.45,
                (Evidence(scores.lineno, "scores"), Evidence(mixed.lineno, "weights times values")),
                cause=function,
                facts={
                    "gives_weights": bool(GIVES_WEIGHTS.search(file.source(function))),
                    "window": "window" in file.source(function),
                    "steps": mixed.lineno - scores.lineno,
                },
            )
