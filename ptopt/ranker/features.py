"""What is known of a hit, as numbers: how often it runs, what it works on, what else waits, where it stands."""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Iterator, Mapping
from functools import lru_cache
from itertools import islice
from pathlib import PurePosixPath

from ptopt.pathkind import path_kind
from ptopt.ranker.made import made, place_in_network
from ptopt.ranker.model import FOREIGN, SHOWN
from ptopt.ranker.surroundings import surroundings
from ptopt.rules.engine import Hit
from ptopt.source.file import SourceFile
from ptopt.source.frequency import Often
from ptopt.source.index import children_of

# Words in the path, and in the names of the functions and classes around a hit, that tell what the code is for.
_PURPOSES: Mapping[str, re.Pattern[str]] = {
    name: re.compile(rf"(?:^|[_/.])(?:{words})", re.I)
    for name, words in {
        "train": "train|trainer|pretrain|finetune|fit|learn|main",
        "evaluate": "eval|valid|val_|val$|test|metric|score|bench",
        "infer": "infer|predict|generat|sampl|decode|demo|serve|pipeline|encode|embed",
        "model": "model|net|modul|layer|block|attention|backbone|forward|head",
        "data": "data|load|collate|transform|augment|preprocess|token|batch",
        "setup": "init|setup|build|create|convert|export|download|save|config|parse|prepare|load_state|from_pretrained",
        "show": "plot|vis|draw|show|print|log|debug|display|report",
        "tool": "tool|script|util|helper|misc|common",
        "aside": "legacy|old|deprecat|backup|convert|onnx|demo|tutorial|example|test|research|contrib|third_party|recipes",
        "loss": "loss|criterion|objective",
    }.items()
}
_FRAMEWORKS = (
    "lightning",
    "accelerate",
    "transformers",
    "deepspeed",
    "torch.distributed",
    "numpy",
    "jax",
    "tensorflow",
)
_OLD = re.compile(
    r"\bVariable\(|\.data\[0\]|volatile=|async=True|torch\._six|xrange\(|super\(\w+, self\)\.__init__"
)  # much advice of today did not hold then
_OLD_MARKS = ("Variable(", ".data[0]", "volatile=", "async=True", "torch._six", "xrange(", ", self).__init__")
_NEW_WORDS = (
    "torch.compile",
    "bfloat16",
    "inference_mode",
    "scaled_dot_product",
    "torch.amp",
    "set_to_none",
    "accelerate",
    "from __future__ import annotations",
    "torch.func",
)
_NEW = (re.compile(r" \| None(?<=\w \| None)"), re.compile(r": (?:torch\.)?Tensor\b"))
_ACCELERATOR = re.compile(r"\.to\(\s*(?:self\.)?device|device=(?![\"']?cpu)")
# A training loop that shows or tests its loss on every step waits there, whatever else is removed.
_READS_EACH_STEP = re.compile(
    r"set_postfix|set_description|is(nan|finite|inf)\((loss|\w+_loss)|update\(\w*loss\w*\.(item|data)|\+= *\w*loss\w*\.item\("
)
_READS_BYTES = re.compile(_READS_EACH_STEP.pattern.encode())
_PROGRESS = re.compile(r"print\((?<!\wprint\()f?[\"'].*(?:loss|acc|iter|step|epoch)")  # in lower case
# Layers whose arguments show how large a network is.
_LAYERS = ("Linear", "Conv1d", "Conv2d", "Conv3d", "LSTM", "GRU", "Embedding")
# `dim = 512`, `hidden_size: int = 64`, `add_argument("--width", default=256)`: how wide a network is by default.
_WIDTH = re.compile(
    r"(?<![\w-])(?:\w*_)?(?:dim|dims|hidden|hidden_size|hidden_dim|width|channels|d_model|n_embd|embed_dim|latent_dim|num_features)"
    r"(?:: *int)? *= *(\d+)\b|--[\w-]*(?:dim|hidden|width|channels|d_model|embd)[\w-]*[\"'][^)\n]*default *= *(\d+)"
)
_LEAST_WIDTH = 8  # below, `dim = 1` is an axis
_BATCH = re.compile(
    r"batch_?size(?:: *int)? *= *(\d+)\b|--[\w-]*batch[-_]?size[\"'][^)\n]*default *= *(\d+)", re.I
)
_GIVEN = re.compile(r"= *\d")
_MOST_LITERALS = 400  # nodes of a hit that are looked through for numbers


def features(hit: Hit, file: SourceFile, of_rule: int) -> dict[str, float]:
    """The features of a hit by name. `of_rule` is the number of hits of the same rule in the file.

    The change under review is none of them, so that a finding is weighed the same wherever it is shown.

    Names with a colon are yes-or-no ("often:step"); the others are numbers of about 0 to 10.
    """
    rule, problem = hit.rule, hit.problem
    at = problem.at or problem.node
    subject = problem.subject or (problem.node if isinstance(problem.node, ast.expr) else None)
    found: dict[str, float] = {
        "stated confidence": problem.confidence,
        "stated log-odds": _log_odds(problem.confidence),
        f"rule:{rule.name}": 1.0,
        f"family:{rule.family}": 1.0,
        f"severity:{rule.severity}": 1.0,
        SHOWN: float(problem.shown),
        FOREIGN: float(rule.foreign),
        "fix": float(problem.fix is not None),
        "evidence": min(len(problem.evidence), 5) / 5,
        "hits of the rule": math.log1p(of_rule),
        "lines": math.log1p(hit.span.end - hit.span.start),
    }
    found |= {f"{rule.name}:{name}": _damped(value) for name, value in problem.facts.items()}
    found |= _place(at, file)
    found |= surroundings(at, file)
    if subject is not None:
        found |= _value(subject, file)
    found |= _purpose(hit, file)
    found |= file.once(_of_file)
    found |= file.once(_of_network)
    found |= _sizes(problem.node, file)
    found |= made(problem.node, file)
    return {name: value for name, value in found.items() if value}


def _line_count(file: SourceFile) -> int:
    return max(file.text.count("\n"), 1)


def _place(at: ast.AST, file: SourceFile) -> dict[str, float]:
    """How often it runs, and what else waits there."""
    frequency = file.frequencies.of(at)
    found = {
        f"often:{frequency.often.name.lower()}": 1.0,
        "often:in a worker": float(frequency.in_worker),
        "often:in training": float(frequency.trains),
    }
    scope = file.frequencies.iteration_of(at)
    if scope is not None and frequency.often >= Often.EVALUATION:
        others = file.waits.others(at, scope)
        found["other waits"] = math.log1p(len(others))
        found["waits:none other"] = float(not others)
        found["waits:unavoidable"] = float(any(map(file.waits.is_unavoidable, others)))
        found["blocking copies"] = math.log1p(file.waits.blocking_copies(scope))
    own = file.index.statement_of(at)
    found["waits:in the statement"] = float(any(_is_inner_wait(node, at, file) for node in _parts(own)))
    found["in a loop"] = float(next(file.index.loops_of(at), None) is not None)
    found["autograd:off"] = float(file.context.grad_off(at))
    return found


def _value(subject: ast.expr, file: SourceFile) -> dict[str, float]:
    """What the value is, where it lives, where it goes."""
    value = file.values.of(subject)
    found = {f"value:{value.kind or 'unknown'}": 1.0, f"device:{value.device or 'unknown'}": 1.0}
    if value.graph is not None:
        found[f"graph:{'yes' if value.graph else 'no'}"] = 1.0
    return found | {f"use:{use}": 1.0 for use in file.uses.of(subject)}


def _purpose(hit: Hit, file: SourceFile) -> dict[str, float]:
    found = {f"path:{name}": 1.0 for name in _purposes_in(file.path)}
    found |= {f"symbol:{name}": 1.0 for name in _purposes_in(hit.symbol)}
    kind = path_kind(file.path)
    if kind is not None:
        found[f"kind:{kind}"] = 1.0
    cls = file.index.class_of(hit.problem.node)
    found["class:module"] = float(cls is not None and file.context.is_module(cls))
    found["class:none"] = float(cls is None)
    return found if cls is None else found | place_in_network(cls, file)


@lru_cache(maxsize=256)  # the hits of a file have the path in common, and many the symbol
def _purposes_in(name: str) -> tuple[str, ...]:
    return tuple(purpose for purpose, pattern in _PURPOSES.items() if pattern.search(name))


def _of_file(file: SourceFile) -> dict[str, float]:
    roots = {full.partition(".")[0] for full in file.imports.local_names().values()}
    found = {f"file:{name}": float(name in roots or f"{name}." in file.text) for name in _FRAMEWORKS}
    found["file:accelerator"] = float(file.uses_accelerator)
    found["file:trains"] = float(_trains(file))
    found["file:notebook"] = float(file.is_notebook)
    text, lowered = file.text, file.lowered
    # Plain words first: a pattern without a common start takes as long as ten of them.
    found["file:old torch"] = float(any(w in text for w in _OLD_MARKS) and file.search(_OLD))
    found["file:new torch"] = float(any(w in text for w in _NEW_WORDS) or any(map(file.search, _NEW)))
    found["file:moves to an accelerator"] = float(".cuda(" in text or file.search(_ACCELERATOR))
    found["file:prints each step"] = float(
        any(w in lowered for w in ("set_postfix", "set_description", "tqdm("))
        or ("print(" in lowered and _PROGRESS.search(lowered) is not None)
    )
    found["file:iterable dataset"] = float("IterableDataset" in file.text)
    found["file:main block"] = float("__main__" in file.text)
    stem = PurePosixPath(file.path).stem
    found["file:named nowhere else"] = float(not file.repository.mentions(stem.encode(), besides=file.path))
    reads = file.search(_READS_EACH_STEP) or file.repository.matches(_READS_BYTES, b".backward(", file.path)
    found["file:steps are read"] = float(reads)
    found["file:command line"] = float("__main__" in file.text or "argparse" in file.text)
    found["file:undefined names"] = float(_has_undefined_names(file))
    found["lines of the file"] = math.log1p(file.once(_line_count)) / 2
    return found


def _of_network(file: SourceFile) -> dict[str, float]:
    """The widest layer that the file builds with a number in sight, which tells a toy from a network."""
    widths = [
        argument.value
        for name in _LAYERS
        for call in file.calls_named(name)
        for argument in call.args[:2]
        if isinstance(argument, ast.Constant) and isinstance(argument.value, int)
    ]
    found = (
        {"layers:widest": _damped(max(widths)), "layers:narrow": float(max(widths) <= 512)} if widths else {}
    )
    # Both patterns end in a number behind "=" and stay on its line; with no common start, they are slow on a whole file.
    given = "\n".join(line for line in file.text.split("\n") if "=" in line and _GIVEN.search(line))
    named = [width for a, b in _WIDTH.findall(given) if (width := int(a or b)) >= _LEAST_WIDTH]
    if named:
        found |= {
            "layers:widest by name": _damped(max(named)),
            "layers:narrow by name": float(max(named) <= 128),
        }
    batches = [int(a or b) for a, b in _BATCH.findall(given)]
    return found | ({"layers:batch": _damped(max(batches))} if batches else {})


def _has_undefined_names(file: SourceFile) -> bool:
    """Does the file use a name that nothing in it binds? Code that cannot run yet is not slow yet."""
    aliases = (alias for node in file.index.of_type(ast.Import, ast.ImportFrom) for alias in node.names)
    star = any(alias.name == "*" for alias in aliases)
    matched = (
        any(True for _ in file.index.of_type(ast.Match)) or file.is_notebook
    )  # they bind names in other ways
    return not (star or matched) and not file.uses.names <= file.uses.bound


def _parts(statement: ast.stmt) -> Iterator[ast.AST]:
    """The expressions of a simple statement."""
    if not hasattr(statement, "body"):
        yield from islice(ast.walk(statement), _MOST_LITERALS)


def _is_inner_wait(node: ast.AST, at: ast.AST, file: SourceFile) -> bool:
    """Does something that the finding is made of wait by itself: a size that is read from the device?"""
    return node is not at and file.index.within(node, at) and file.waits.is_wait(node)


def _trains(file: SourceFile) -> bool:
    return any(
        file.context.is_training_mark(call)
        for name in ("backward", "step")
        for call in file.calls_named(name)
    )


def _sizes(node: ast.AST, file: SourceFile) -> dict[str, float]:
    """Numbers that stand in the code of the hit, and how many times a loop with a visible count goes round."""
    largest = 0.0
    pending, seen = [node], 0
    while pending and seen < _MOST_LITERALS:
        current = pending.pop()
        seen += 1
        if isinstance(current, ast.Constant) and isinstance(current.value, (int, float)):
            largest = max(largest, abs(float(min(current.value, 10**9))))
        pending += children_of(current)
    found = {"largest number": _damped(largest)}
    loop = next(file.index.loops_of(node), None)
    if isinstance(loop, ast.For):
        count = _trip_count(loop.iter)
        if count is not None:
            found["trips:few"] = float(count <= 8)
            found["trips:known"] = _damped(count)
    return found


def _trip_count(iterable: ast.expr) -> int | None:
    """Of `range(3)` and of a literal list."""
    if isinstance(iterable, (ast.List, ast.Tuple)):
        return len(iterable.elts)
    if isinstance(iterable, ast.Call) and isinstance(iterable.func, ast.Name) and iterable.func.id == "range":
        last = iterable.args[min(1, len(iterable.args) - 1)] if iterable.args else None
        if isinstance(last, ast.Constant) and isinstance(last.value, int):
            return last.value
    return None


def _log_odds(probability: float) -> float:
    kept = min(max(probability, 0.01), 0.99)
    return math.log(kept / (1 - kept))


def _damped(value: float) -> float:
    """Large numbers say little more than moderate ones."""
    return math.copysign(math.log1p(min(abs(value), 1e9)), value)
