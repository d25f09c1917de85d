from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from ptopt.rules.base import Invalid, Problem, Rule, SourceFile
from ptopt.rules.code import quote
from ptopt.source.uses import RETURNED

_LOSS = re.compile(r"loss|label|cross_entropy|CrossEntropy|nll|criterion", re.I)
_IGNORED = re.compile(r"ignore_index\s*=\s*(-?\d+)")
_OTHER_USE = re.compile(r"\bMSELoss|mse_loss|L1Loss|l1_loss|\.gather\(|torch\.gather")
_LOGITS = re.compile(r"logit|scores|lm_out|prediction_scores|output", re.I)


class ShiftedLogitsCopied(Rule):
    """Logits are cut by one position and copied, only to line up with the labels.

    ## What it does
    Finds `logits[..., :-1, :].contiguous()` and `logits[:, :-1].contiguous()` or `.reshape(...)`.

    ## Why it is slow
    The slice is not contiguous, so all logits of the batch but the last position are copied: as many numbers as tokens times
    the vocabulary, and backward keeps and copies them once more. Shifting the labels instead moves one integer per token.

    ## When this is wrong
    When the vocabulary is small, or the logits are wanted without the last position elsewhere.

    ## Example
    ```python
    shift_logits = logits[..., :-1, :].contiguous()
    shift_labels = labels[..., 1:].contiguous()
    loss = F.cross_entropy(shift_logits.view(-1, vocab), shift_labels.view(-1))
    ```

    ## Use instead
    ```python
    shift_labels = F.pad(labels, (0, 1), value=-100)[..., 1:].contiguous()
    loss = F.cross_entropy(logits.view(-1, vocab), shift_labels.view(-1))
    ```

    ## Fix safety
    There is no fix: the loss must ignore the padded label (`ignore_index`, -100 by default).

    ## Sources
    - [transformers: ForCausalLMLoss pads the labels](https://github.com/huggingface/transformers/blob/main/src/transformers/loss/loss_utils.py)
    """

    id = "PTO813"
    name = "shifted-logits-copied"
    family = "memory"
    most_stated = 0.5
    nodes = (ast.Call,)
    calls = frozenset({"contiguous", "reshape"})
    when_wrong = "the vocabulary is small"

    VALID = (
        """
        shift_labels = labels[..., 1:].contiguous()
        """,
        """
        image = frames[:, :-1, :].contiguous()
        """,
        """
        loss = F.cross_entropy(logits.view(-1, vocab), labels.view(-1))
        """,
        """
        def video_loss(video_logits, features):
            return MSELoss()(video_logits[..., :-1, :].contiguous(), features[:, 1:])
        """,
        """
        def forward(self, x):
            logits = self.head(x)
            return logits[:, :-1, :].contiguous()
        """,
    )
    INVALID = (
        Invalid("""
            shift_logits = logits[..., :-1, :].contiguous()  # !
            shift_labels = labels[..., 1:].contiguous()
        """),
        Invalid("""
            loss = F.cross_entropy(logits[:, :-1].reshape(-1, vocab), tokens[:, 1:].reshape(-1))  # !
        """),
        Invalid("""
            def lm_loss(lm_logits, labels):
                shifted = lm_logits[..., :-1, :].contiguous()  # !
                return CrossEntropyLoss(ignore_index=-1)(shifted.flatten(0, 1), labels[..., 1:].flatten())
        """),
        Invalid("""
            def lm_loss(self, lm_logits, labels):
                shifted = lm_logits[:, :-1, :].contiguous()  # !
                return self.loss(shifted.view(-1, shifted.size(-1)), labels[:, 1:].reshape(-1))
        """),
    )

    def check(self, node: ast.AST, file: SourceFile) -> Iterator[Problem]:
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
            return
        cut = node.func.value
        if not isinstance(cut, ast.Subscript) or not isinstance(cut.slice, ast.Tuple):
            return
        source = cut.value
        name = file.source(source)
        if not isinstance(source, (ast.Name, ast.Attribute)) or not _LOGITS.search(name.rpartition(".")[2]):
            return
        if not any(_drops_last(part) for part in cut.slice.elts) or RETURNED in file.uses.of(node):
            return  # returned, they are no loss's business
        function = file.index.function_of(node)
        around = file.source(function) if function is not None else file.text
        if _OTHER_USE.search(around) or not _LOSS.search(around):
            return  # no class label is compared there, and no label would be left out
        ignored = _IGNORED.search(around)
        label = ignored[1] if ignored else "-100"
        yield Problem(
            node,
            f"{quote(file, node, 45)} copies all logits but those of the last position, tokens times vocabulary numbers. "
            f"Keep `{name}` whole and shift the labels: `F.pad(labels, (0, 1), value={label})[..., 1:].contiguous()`; the loss ignores "
            "the padded label.",
            0.5,
            subject=source,
            cause=function,
            facts={"no_grad": file.context.grad_off(node), "logits": "logit" in name.lower()},
        )


def _drops_last(part: ast.expr) -> bool:
    """Is it `:-1`?"""
    return (
        isinstance(part, ast.Slice)
        and part.lower is None
        and isinstance(part.upper, ast.UnaryOp)
        and isinstance(part.upper.operand, ast.Constant)
        and part.upper.operand.value == 1
    )
