from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from ptopt.rules.base import Evidence, Invalid, Problem, Rule, SourceFile
from ptopt.rules.code import quote
from ptopt.rules.ops._calls import names_in
from ptopt.rules.ops.cat_in_loop import joined_parts
from ptopt.rules.shared.flow import entries_of, runs_network
from ptopt.source.calls import called_name
from ptopt.source.file import remembered
from ptopt.source.index import Loop, own_nodes, walk

_CACHES = (
    "past_key_values",
    "past_kv",
    "cache",
    "use_cache",
    "inference_params",
    "incremental_state",
    "mems",
    "state",
    "hidden",
    "past",
    "kv",
)


_PICKS = frozenset(
    "multinomial argmax topk max sample gumbel_sample Categorical top_k sort sample_token sampler".split()
)


_LIGHT = re.compile(r"emb|lstm|rnn|gru|mask|pos", re.I)  # cheap, or with a state of its own


class PrefixRecomputed(Rule):
    """Each new token runs the network over all tokens before it once more.

    ## What it does
    Finds a loop that calls a network on a sequence and then makes the sequence longer with `torch.cat([sequence, token])`, without
    a cache of keys and values among the arguments.

    ## Why it is slow
    Step n computes n positions, of which n - 1 were computed before: the work of one sequence grows with the square of its
    length (and attention with the cube).

    ## When this is wrong
    When the network is not causal, so that a new token changes what the earlier ones give.

    ## Fix safety
    No fix is offered: the network must take and return the cache.

    ## Sources
    - [Transformers: caching](https://huggingface.co/docs/transformers/main/en/cache_explanation)
    """

    id = "PTO457"
    name = "prefix-recomputed"
    family = "ops"
    most_stated = 0.4
    nodes = (ast.Assign,)
    requires = ("cat(", "concat(", "append(", "hstack(")
    when_wrong = "the network is not causal, or keeps a cache of its own"

    VALID = (
        """
        for _ in range(n):
            out = model(token, past_key_values=cache)
            ids = torch.cat([ids, token], dim=1)
        """,
        """
        for batch in loader:
            outputs = torch.cat([outputs, model(batch)], dim=0)
        """,
        """
        for _ in range(n):
            ids = torch.cat([ids, sample(logits)], dim=1)
        """,
    )
    INVALID = (
        Invalid("""
            def generate(model, ids, n):
                for _ in range(n):
                    logits = model(ids)[:, -1]
                    # ~ logits, cache = model(token, cache)
                    ids = torch.cat([ids, logits.argmax(-1, keepdim=True)], dim=1)  # !
                    # ~ token = logits[:, -1].argmax(-1, keepdim=True)
                    # ~ ids = torch.cat([ids, token], dim=1)
                return ids
        """),
        Invalid("""
            class GPT(nn.Module):
                def generate(self, idx, n):
                    for _ in range(n):
                        cond = idx[:, -self.block_size :]
                        logits, _ = self(cond)
                        token = torch.multinomial(logits[:, -1].softmax(-1), 1)
                        idx = torch.cat((idx, token), dim=1)  # !
                    return idx
        """),
        Invalid("""
            def greedy(decoder, memory, ys, n):
                for _ in range(n):
                    out = decoder(ys, memory)
                    word = out[:, -1].argmax(-1, keepdim=True)
                    ys = torch.cat([ys, word], dim=1)  # !
                return ys
        """),
    )

    def check(self, node: ast.AST, file: SourceFile) -> Iterator[Problem]:
        if (
            not isinstance(node, ast.Assign)
            or len(node.targets) != 1
            or not isinstance(node.targets[0], ast.Name)
        ):
            return
        call, parts = joined_parts(node.value, file)
        grown = node.targets[0].id
        if call is None or len(parts) < 2 or not isinstance(parts[0], ast.Name) or parts[0].id != grown:
            return
        if not file.imports.qualified(call.func).startswith("torch.") or "mask" in grown:
            return
        loop = next(file.index.loops_of(node), None)
        if loop is None or not _picks(loop) or not _last(loop):
            return
        runs = _runs_over(grown, loop, file)
        if not runs:
            return
        yield Problem(
            node,
            f"`{grown}` grows here, and {quote(file, runs[0], 50)} on line {runs[0].lineno} runs over all of it again in the next "
            "iteration. Keep the keys and values of the earlier positions (`past_key_values`, a cache that the layers fill), and "
            "run the network on the new token alone.",
            0.4,
            (Evidence(runs[0].lineno, "runs over the whole sequence"),),
            cause=loop,
            facts={"while": isinstance(loop, ast.While), "networks": len(runs)},
        )


@remembered
def _runs_over(grown: str, loop: Loop, file: SourceFile) -> list[ast.Call]:
    """Runs of a network in the loop that take the sequence, or a part of it by name; none when one takes a cache."""
    runs, derived = _flow(loop, file)
    fed = {grown, *derived.get(grown, ())}
    found = sorted({place: run for name in fed for place, run in runs.get(name, ())}.items())
    return [] if any(_cached(run) for _, run in found) else [run for _, run in found]


@remembered
def _flow(loop: Loop, file: SourceFile) -> tuple[dict[str, list[tuple[int, ast.Call]]], dict[str, set[str]]]:
    """In the loop: name -> the runs of a network that take it; name -> the names that are computed from it otherwise."""
    runs: dict[str, list[tuple[int, ast.Call]]] = {}
    derived: dict[str, set[str]] = {}
    for place, n in enumerate(own_nodes(loop)):
        if isinstance(n, ast.Call) and _is_run(n, file):
            for a in [*n.args, *(k.value for k in n.keywords)]:
                if isinstance(a, ast.Name):
                    runs.setdefault(a.id, []).append((place, n))
        elif isinstance(n, ast.Assign) and not any(_is_run(c, file) for c in walk(n.value)):
            given = {t.id for t in n.targets if isinstance(t, ast.Name)}
            for name in names_in(n.value):
                derived.setdefault(name, set()).update(given)
    return runs, derived


@remembered
def _picks(loop: Loop) -> bool:
    """Is a token picked in the loop?"""
    return any(isinstance(c, ast.Call) and called_name(c) in _PICKS for c in own_nodes(loop))


def _is_run(node: ast.AST, file: SourceFile) -> bool:
    return isinstance(node, ast.Call) and (runs_network(node, file) or _self_call(node))


def _self_call(call: ast.Call) -> bool:
    return (
        isinstance(call.func, ast.Name)
        and call.func.id == "self"
        or called_name(call) in ("forward", "forward_with_cond_scale", "decode")
    )


def _cached(call: ast.Call) -> bool:
    given = [k.arg or "" for k in call.keywords] + [a.id for a in call.args if isinstance(a, ast.Name)]
    return any(word in name for name in given for word in _CACHES)


@remembered
def _last(loop: ast.AST) -> bool:
    """Is only the last position of something read in the loop: `x[:, -1]`, `x[-1]`?"""
    for n in own_nodes(loop):
        if isinstance(n, ast.Subscript) and isinstance(n.ctx, ast.Load):
            entries = entries_of(n)
            if any(isinstance(e, ast.UnaryOp) and ast.unparse(e) == "-1" for e in entries):
                return True
            if any(
                isinstance(e, ast.Slice) and e.lower is not None and ast.unparse(e.lower) == "-1"
                for e in entries
            ):
                return True
    return False
