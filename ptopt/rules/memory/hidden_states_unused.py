from __future__ import annotations

import ast
from collections.abc import Iterator

from ptopt.rules.base import Evidence, Invalid, Problem, Rule, SourceFile
from ptopt.rules.code import is_literal, keyword_of, quote
from ptopt.rules.ops._calls import int_literal
from ptopt.rules.shared.flow import reads
from ptopt.source.calls import last_name

_WANTED = {"output_hidden_states": "hidden_states", "output_attentions": "attentions"}
_SETS_UP = ("from_pretrained", "from_config", "update")


class HiddenStatesUnused(Rule):
    """A model returns the hidden states or attentions of all layers, and at most the last is read.

    ## What it does
    Finds `model(..., output_hidden_states=True)` or `output_attentions=True` whose result is read only for other fields, or only
    for `hidden_states[-1]`.

    ## Why it is slow
    The states of every layer stay allocated until the result is dropped, layers x batch x length x width numbers, instead of one
    layer's. Attentions besides keep the fused attention kernels from being used.

    ## When this is wrong
    When the model itself reads them, or the last hidden state without the final norm is wanted.

    ## Fix safety
    There is no fix: models with a head have no `last_hidden_state`; their base model has.

    ## Sources
    - [Transformers: model outputs](https://huggingface.co/docs/transformers/main_classes/output)
    """

    id = "PTO884"
    name = "hidden-states-unused"
    family = "memory"
    most_stated = 0.45
    nodes = (ast.Call,)
    triggers = tuple(_WANTED)
    when_wrong = "the hidden states of all layers are read where this file does not show it"

    VALID = (
        """
        outputs = model(ids, output_hidden_states=True)
        layers = torch.stack(outputs.hidden_states)
        """,
        """
        features = encoder(ids).last_hidden_state
        """,
        """
        def run(self, ids):
            return self.model(ids, output_hidden_states=True)
        """,
    )
    INVALID = (
        Invalid("""
            @torch.no_grad()
            def embed(encoder, ids):
                return encoder(ids, output_hidden_states=True).hidden_states[-1]  # !
                # ~ return encoder(ids).last_hidden_state
        """),
        Invalid("""
            def score(model, ids):
                outputs = model(ids, output_hidden_states=True)  # !
                return outputs.logits.log_softmax(-1)
        """),
        Invalid("""
            def forward(self, ids):
                out = self.bert(ids, output_attentions=True)  # !
                return self.head(out.last_hidden_state)
        """),
    )

    def check(self, node: ast.AST, file: SourceFile) -> Iterator[Problem]:
        if (
            not isinstance(node, ast.Call)
            or last_name(node.func) in _SETS_UP
            or last_name(node.func).endswith("Config")
        ):
            return
        option = next((o for o in _WANTED if is_literal(keyword_of(node, o), True)), None)
        if option is None:
            return
        field = _WANTED[option]
        uses = [_field(use, file) for use in reads(node, file)]
        if not uses or any(use is None for use in uses):
            return
        found = [use for use in uses if use is not None and use.attr == field]
        last = [use for use in found if _is_last(use, file)]
        if len(last) != len(found):
            return
        no_grad = file.context.grad_off(node)
        if found:
            if field == "attentions":
                return
            text = f"only the last is read (line {found[0].lineno}). `last_hidden_state` of the base model is that one, after its final norm."
        else:
            text = f"nothing reads `{field}`. Drop `{option}=True`."
        yield Problem(
            node,
            f"{quote(file, node.func, 40)} keeps the {field.replace('_', ' ')} of every layer until its result is dropped, but {text}",
            0.45 if not found else 0.4,
            (Evidence(found[0].lineno, "the one that is read"),) if found else (),
            cause=file.index.statement_of(node),
            subject=node,
            facts={"unused": not found, "no_grad": no_grad, "attentions": field == "attentions"},
        )


def _field(use: ast.expr, file: SourceFile) -> ast.Attribute | None:
    """The field that is read of the result: `.logits`, `["logits"]` is none."""
    parent = file.index.parent(use)
    return (
        parent
        if isinstance(parent, ast.Attribute)
        and parent.attr.islower()
        and parent.attr not in ("items", "keys", "get", "to_tuple", "pop")
        else None
    )


def _is_last(use: ast.Attribute, file: SourceFile) -> bool:
    parent = file.index.parent(use)
    return isinstance(parent, ast.Subscript) and int_literal(parent.slice) == -1
