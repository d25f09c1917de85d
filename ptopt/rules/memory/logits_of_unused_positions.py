from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from typing import ClassVar

from ptopt.rules.base import Invalid, Problem, Rule, SourceFile
from ptopt.rules.code import quote
from ptopt.rules.ops._calls import int_literal
from ptopt.rules.shared.flow import runs_network
from ptopt.source.calls import last_name
from ptopt.source.index import walk

_HEAD = re.compile(
    r"lm_?head|(^|_)(head|classifier|to_logits|output_?proj\w*|out_?proj|vocab\w*|fc|output_layer|score|unembed)\d?$",
    re.I,
)
_FIRST_TOKEN = re.compile(r"^(start|bos|sos)_?(ids?|tokens?|inputs?)$")
# Heads over a vocabulary; one over a few classes costs next to nothing beside the network.
_TRANSFORMERS = re.compile(rb"\btransformers\b")
_LANGUAGE = re.compile(r"lm_head|vocab|CausalLM|next_token|language_model|\bgenerate\(|tokenizer\.decode")
_CACHED = re.compile(r"past_key_values|cache|use_cache|past|start_pos|incremental|input_pos", re.I)


class LogitsOfUnusedPositions(Rule):
    """A head computes the logits of all positions, and one position is used.

    ## What it does
    Finds logits of a language model or a head of which only `[:, -1]` (or another fixed position) is read.

    ## Why it is slow
    The product with the vocabulary is computed, and stored, for every position: length x vocabulary numbers, often the largest
    tensor of a decoding step by far. One row of it is used.

    ## When this is wrong
    When the input has one position (a cached decoding step), or the model takes care of it inside.

    ## Example
    ```python
    logits = self.lm_head(hidden)[:, -1]
    ```

    ## Use instead
    ```python
    logits = self.lm_head(hidden[:, -1])
    ```

    ## Fix safety
    There is no fix: the head may mix positions, and models differ in how they are asked for the last one.

    ## Sources
    - [Transformers: logits_to_keep](https://huggingface.co/docs/transformers/model_doc/llama#transformers.LlamaForCausalLM.forward.logits_to_keep)
    """

    id = "PTO883"
    name = "logits-of-unused-positions"
    family = "memory"
    most_stated = 0.45
    triggers = ("[:", "[0")
    since: ClassVar[Mapping[str, str]] = {"transformers": "4.45"}
    nodes = (ast.Subscript,)
    when_wrong = "the input has one position, or the model keeps only the last one inside"

    VALID = (
        """
        logits = self.lm_head(hidden[:, -1])
        """,
        """
        def loss(self, ids):
            logits = self.model(ids).logits
            return F.cross_entropy(logits[:, :-1].flatten(0, 1), ids[:, 1:].flatten())
        """,
        """
        def rank(self, start_ids, states):
            return self.decoder(start_ids, encoder_hidden_states=states).logits[:, 0, :]
        """,
        """
        def forward(self, x):
            out, _ = self.lstm(x)
            return self.head(out[:, -1])
        """,
    )
    INVALID = (
        Invalid("""
            @torch.no_grad()
            def generate(model, ids, steps):
                for _ in range(steps):
                    outputs = model(ids)
                    token = outputs.logits[:, -1, :].argmax(-1)  # !
                    ids = torch.cat([ids, token[:, None]], 1)
        """),
        Invalid("""
            class LM(nn.Module):
                def step(self, x):
                    logits = self.lm_head(self.body(x))
                    logits = logits[:, -1, :] / self.temperature  # !
                    return logits
        """),
        Invalid("""
            class Classifier(nn.Module):
                def forward(self, x):
                    return self.classifier(self.encoder(x))[:, 0]  # !
        """),
    )

    def check(self, node: ast.AST, file: SourceFile) -> Iterator[Problem]:
        if (
            not isinstance(node, ast.Subscript)
            or not isinstance(node.ctx, ast.Load)
            or not _one_position(node.slice)
        ):
            return
        base = node.value
        attribute = base.attr if isinstance(base, ast.Attribute) else ""
        held = base.value if attribute == "logits" and isinstance(base, ast.Attribute) else base
        made: ast.expr | None = held
        if isinstance(held, ast.Name):
            binding = file.bindings.last_before(held)
            made = binding.value if binding is not None and binding.kind in ("assign", "unpack") else None
            if made is None or not _only_so(held, node, attribute, file):
                return
        while isinstance(made, (ast.Attribute, ast.Subscript)) or (
            isinstance(made, ast.Call)
            and isinstance(made.func, ast.Attribute)
            and made.func.attr in ("float", "to", "detach")
        ):
            attribute = attribute or (made.attr if isinstance(made, ast.Attribute) else "")
            made = made.value if isinstance(made, (ast.Attribute, ast.Subscript)) else made.func.value  # type: ignore[attr-defined]
        if not isinstance(made, ast.Call):
            return
        head = bool(_HEAD.search(last_name(made.func))) and len(made.args) == 1
        named = attribute == "logits" or (isinstance(held, ast.Name) and "logit" in held.id.lower())
        if not head and not (named and (runs_network(made, file) or last_name(made.func) == "self")):
            return
        given = [*made.args, *(k.value for k in made.keywords)]
        if any(_FIRST_TOKEN.search(last_name(value)) for value in given):
            return  # one token goes in: there are no other positions
        cached = any(_CACHED.search(k.arg or "") for k in made.keywords) or any(
            isinstance(n, ast.Name) and _CACHED.search(n.id) for n in walk(made)
        )
        if head:
            advice = f"Select the position before the head: `{file.source(made.func)}(x{file.source(node)[len(file.source(base)) :]})`."
        elif (
            attribute == "logits" or _TRANSFORMERS.search(file.data) or file.repository.matches(_TRANSFORMERS)
        ):
            advice = "Ask for that one: `logits_to_keep=1` in Transformers (`num_logits_to_keep` before 4.50), or select the position before the head."
        else:
            advice = "Select the position before the head."
        language = bool(_LANGUAGE.search(file.text))
        cost = "a product with the whole vocabulary" if language else "a product with every class"
        yield Problem(
            node,
            f"{quote(file, made, 40)} computes logits for every position, but only {quote(file, node, 30)} is used: the others cost {cost} "
            f"and its memory. {advice}",
            0.3 if cached or (head and not language) else 0.45,
            cause=file.index.statement_of(node),
            subject=base,
            facts={"head": head, "cached": cached, "no_grad": file.context.grad_off(node)},
        )


def _one_position(index: ast.expr) -> bool:
    """`[:, -1]`, `[:, 0, :]`, `[0, -1]`"""
    if not isinstance(index, ast.Tuple) or len(index.elts) < 2:
        return False
    first, second, *rest = index.elts
    whole = isinstance(first, ast.Slice) or int_literal(first) == 0
    return whole and int_literal(second) in (0, -1) and all(_all(r) for r in rest)


def _all(entry: ast.expr) -> bool:
    return isinstance(entry, ast.Slice) and entry.lower is None and entry.upper is None


def _only_so(held: ast.Name, node: ast.Subscript, attribute: str, file: SourceFile) -> bool:
    """Is the name read for this position only, up to where it is bound again?"""
    function = file.index.function_of(node)
    later = [b.line for b in file.bindings.of(function, held.id) if b.line >= node.lineno]
    start = file.bindings.last_before(held)
    first, end = (start.line if start is not None else 0), min(later, default=1 << 30)
    for load in file.uses.loads(function, held.id):
        if load is held or not first < load.lineno <= end:
            continue
        parent = file.index.parent(load)
        if attribute:
            if isinstance(parent, ast.Attribute) and parent.attr != "logits":
                continue
            parent = file.index.parent(parent) if isinstance(parent, ast.Attribute) else None
        if not isinstance(parent, ast.Subscript) or ast.dump(parent.slice) != ast.dump(node.slice):
            return False
    return True
