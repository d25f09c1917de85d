from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from ptopt.rules.base import Evidence, Invalid, Problem, Rule, Severity, SourceFile
from ptopt.rules.code import has_unpacking, keyword_of, quote
from ptopt.source.file import remembered
from ptopt.source.index import FunctionNode, walk

_DATASET = re.compile(r"(^|_)(data|dataset|datasets|ds|train|corpus)(_|$|\d)|dataset", re.I)
_TOKENIZER = re.compile(
    r"(^|[._])(tokenizer|tokenize|processing_class|tok|enc|encoder|encode_ordinary|encode_plus|processor)$"
    r"|(tok\w*|enc\w*|bpe|sp|processor|vocab)\.encode$"
)


class DatasetMapUnbatched(Rule):
    """A dataset is tokenised row by row in one process.

    ## What it does
    Finds `dataset.map(function)` of the `datasets` library with neither `batched=True` nor `num_proc`, where the function
    (in the same file) calls a tokenizer.

    ## Why it is slow
    A fast tokenizer works on many texts at once, on several threads. Called with one row at a time it uses one, and
    Python is entered once per row.

    ## Fix safety
    No fix: with `batched=True` the function gets lists, with `num_proc` it runs in other processes; which of the two
    fits is the author's choice.

    ## Sources
    - [Hugging Face course: the Datasets library, batched map](https://huggingface.co/learn/llm-course/chapter5/3)
    """

    id = "PTO307"
    name = "dataset-map-unbatched"
    family = "data"
    severity = Severity.LOW
    triggers = (".map(",)
    libraries = ("datasets",)
    nodes = (ast.Call,)
    when_wrong = "the dataset is small, streamed, or mapped once and then read from the cache"

    VALID = (
        """
        from datasets import load_dataset
        dataset = load_dataset("imdb")
        dataset = dataset.map(lambda rows: tokenizer(rows["text"]), batched=True)
        """,
        """
        from datasets import load_dataset
        def tokenize(row):
            return tokenizer(row["text"])
        dataset = load_dataset("imdb").map(tokenize, num_proc=8)
        """,
        """
        from datasets import load_dataset
        dataset = load_dataset("imdb")
        dataset = dataset.map(lambda row: {"label": row["target"]})
        """,
        """
        from datasets import load_dataset
        dataset = load_dataset("imdb", streaming=True)
        dataset = dataset.map(lambda row: tokenizer(row["text"]))
        """,
    )
    INVALID = (
        Invalid("""
            from datasets import load_dataset
            dataset = load_dataset("imdb")
            dataset = dataset.map(lambda row: tokenizer(row["text"]))  # !
        """),
        Invalid("""
            from datasets import load_dataset
            def tokenize(row):
                return tokenizer(row["text"], truncation=True)
            dataset = load_dataset("imdb")["train"]
            train_data = dataset.map(tokenize, remove_columns=["text"])  # !
        """),
        Invalid("""
            from datasets import Dataset
            class Trainer:
                def __init__(self, train_dataset: Dataset):
                    self.train_dataset = train_dataset.map(self.tokenize_row)  # !

                def tokenize_row(self, row):
                    prompt = self.tokenizer(row["prompt"], add_special_tokens=False)
                    return {"input_ids": prompt["input_ids"]}
        """),
    )

    def check(self, node: ast.AST, file: SourceFile) -> Iterator[Problem]:
        if not (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr == "map"
            and node.args
        ):
            return
        if has_unpacking(node) or any(
            keyword_of(node, k) is not None for k in ("batched", "num_proc", "num_parallel_calls")
        ):
            return
        if len(node.args) > 1 or not file.imports.imports("datasets") or "streaming=True" in file.text:
            return
        base = node.func.value
        name = file.source(base.func) if isinstance(base, ast.Call) else file.source(base)
        if not _DATASET.search(name.partition("[")[0].rpartition(".")[2]):
            return
        call = _tokenizer_call(node.args[0], file)
        if call is None:
            return
        yield Problem(
            node,
            f"{quote(file, node)} calls {quote(file, call.func)} (line {call.lineno}) once per row, in one process. Write the "
            "function for lists of rows and pass `batched=True`; where it must stay per row, pass `num_proc=4`.",
            0.7,
            (Evidence(call.lineno, "the tokenizer is called for one row"),),
        )


def _tokenizer_call(mapped: ast.expr, file: SourceFile) -> ast.Call | None:
    """The tokenizer call in the mapped function: a lambda, a function or a method of this file, or a method that it calls."""
    if isinstance(mapped, ast.Lambda):
        calls = [n for n in walk(mapped.body) if isinstance(n, ast.Call)]
        return next((c for c in calls if _TOKENIZER.search(file.source(c.func))), None)
    function = _function(mapped, file)
    if function is None:
        return None
    found = _tokenizer_call_in(function, file)
    called = (file.calls.resolve(call) for call in file.calls.calls_in(function))
    within = (_tokenizer_call_in(inner, file) for inner in called if inner is not None)
    return found or next((call for call in within if call is not None), None)


@remembered
def _tokenizer_call_in(function: FunctionNode, file: SourceFile) -> ast.Call | None:
    return next((c for c in file.calls.calls_in(function) if _TOKENIZER.search(file.source(c.func))), None)


def _function(mapped: ast.expr, file: SourceFile) -> FunctionNode | None:
    if isinstance(mapped, ast.Name):
        return file.once(_functions).get(mapped.id)
    if isinstance(mapped, ast.Attribute) and isinstance(mapped.value, ast.Name) and mapped.value.id == "self":
        cls = file.index.class_of(mapped)
        return file.calls.method(cls, mapped.attr) if cls is not None else None
    return None


def _functions(file: SourceFile) -> dict[str, FunctionNode]:
    """The first function of each name."""
    return {function.name: function for function in reversed(file.calls.functions)}
