from __future__ import annotations

import ast
from collections.abc import Iterator

from ptopt.rules.base import Evidence, Invalid, Problem, Rule, Severity, SourceFile, quote
from ptopt.rules.ops._calls import torch_op
from ptopt.rules.shared.flow import outer_call, reads


class LogSoftmaxGathered(Rule):
    """A log-softmax over all classes is made to pick one of them.

    ## What it does
    Finds `log_softmax(x).gather(...)`, also through a name that is read only so, as `log_probs[range(n), labels]`, and as
    an input of `nll_loss`.

    ## Why it is slow
    The log-softmax of every class is written to memory and, in training, kept for backward: for a language model a tensor
    as large as the logits. The picked logit minus `logsumexp` needs one number per row.

    ## When this is wrong
    When there are few classes, or all log-probabilities are needed elsewhere. On an H100 (bf16, 32,000 classes) the
    advice took 2.6 times as long as the fused log-softmax in a forward pass and saved no memory: hence off by default.

    ## Example
    ```python
    picked = torch.log_softmax(logits, dim=-1).gather(-1, labels.unsqueeze(-1)).squeeze(-1)
    ```

    ## Use instead
    ```python
    picked = logits.gather(-1, labels.unsqueeze(-1)).squeeze(-1) - logits.logsumexp(dim=-1)
    ```

    ## Fix safety
    There is no fix: in half precision the two differ by a rounding, and the shapes must be seen.

    ## Sources
    - [torch.logsumexp](https://docs.pytorch.org/docs/stable/generated/torch.logsumexp.html)
    """

    id = "PTO811"
    name = "log-softmax-gathered"
    family = "memory"
    severity = Severity.MEDIUM
    default = False  # measured: benchmarks/impact/results
    nodes = (ast.Call,)
    calls = frozenset({"log_softmax"})
    when_wrong = "there are few classes, or the other log-probabilities are needed too"

    VALID = (
        """
        logp = F.log_softmax(logits, dim=-1)
        loss = F.kl_div(logp, target)
        """,
        """
        logp = F.log_softmax(logits, dim=-1)
        picked = logp.gather(-1, labels)
        entropy = -(logp.exp() * logp).sum(-1)
        """,
        """
        picked = logits.gather(-1, labels) - logits.logsumexp(dim=-1, keepdim=True)
        """,
    )
    INVALID = (
        Invalid(
            """
            def log_probs(logits, labels):
                logp = F.log_softmax(logits, dim=-1)  # !
                return logp.gather(dim=-1, index=labels.unsqueeze(-1)).squeeze(-1)
            """
        ),
        Invalid(
            """
            picked = torch.gather(logits.log_softmax(-1), 2, labels.unsqueeze(2)).squeeze(2)  # !
            """
        ),
        Invalid(
            """
            logp = torch.log_softmax(logits, dim=1)  # !
            nll = -logp[torch.arange(len(labels)), labels].mean()
            """
        ),
    )

    def check(self, node: ast.AST, file: SourceFile) -> Iterator[Problem]:
        op = torch_op(node, file, "log_softmax")
        if op is None:
            return
        whole: ast.expr = op.call
        while (cast := outer_call(whole, file)) is not None and file.source(cast.func).endswith(
            (".float", ".to", ".squeeze", ".contiguous")
        ):
            whole = cast
        uses = reads(whole, file)
        picks = [pick for use in uses if (pick := _pick(use, file)) is not None]
        if not picks or len(picks) != len(uses):
            return
        logits = quote(file, op.operand, 40)
        yield Problem(
            node,
            f"The log-softmax of every class is written to memory, but only one entry per row is read (line "
            f"{picks[0].lineno}). `x.gather(…) - x.logsumexp(dim=-1, keepdim=True)` with x = {logits} gives the same "
            "entries without a second tensor of the size of the logits.",
            0.4,  # without autograd, `logsumexp` makes a copy of its own for a moment
            (Evidence(picks[0].lineno, "one entry per row is picked"),),
            cause=node,
            subject=op.operand,
            facts={
                "no_grad": file.context.grad_off(node),
                "language": any(w in file.text for w in ("vocab", "token", "input_ids")),
                "reads": len(uses),
            },
        )


def _pick(use: ast.expr, file: SourceFile) -> ast.expr | None:
    """The expression that takes one entry per row out of `use`."""
    parent = file.index.parent(use)
    op = torch_op(parent, file, "gather", "take_along_dim") or torch_op(
        outer_call(use, file), file, "gather", "take_along_dim"
    )
    if op is not None and op.operand is use:
        return op.call
    if isinstance(parent, ast.Subscript) and parent.value is use and isinstance(parent.slice, ast.Tuple):
        first, last = parent.slice.elts[0], parent.slice.elts[-1]
        rows = isinstance(first, ast.Call) and file.source(first.func).endswith(("arange", "range"))
        return parent if rows and not isinstance(last, (ast.Slice, ast.Constant)) else None
    return None
