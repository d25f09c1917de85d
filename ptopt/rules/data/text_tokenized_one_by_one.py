from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from ptopt.rules.base import Invalid, Problem, Rule, SourceFile, Span
from ptopt.rules.code import beside, quote
from ptopt.rules.ops._calls import names_in
from ptopt.rules.shared.repeats import repeat_of, words_for
from ptopt.source.calls import called_name, last_name
from ptopt.source.frequency import Often
from ptopt.source.index import COMPREHENSIONS

_TOKENIZER = re.compile(r"(^|_)(tokenizer|processor|feature_extractor)_?\w{0,3}$", re.I)
_METHODS = frozenset({"encode", "encode_plus"})
_PROMPTS = re.compile(
    r"stop|special|prefix|suffix|label_words|added|eos|bos|pad|choice|option|verbali|turn|message|role", re.I
)


class TextTokenizedOneByOne(Rule):
    """Texts go through a tokenizer or a processor one at a time.

    ## What it does
    Finds `tokenizer(text)`, `tokenizer.encode(text, truncation=True)` and `processor(image)` of the element of a loop or a
    comprehension over a batch.

    ## Why it is slow
    A fast tokenizer works on a list in parallel threads, and each call has a fixed cost in Python that is larger than the
    work on one text. An image processor likewise resizes and normalises a batch in one go.

    ## When this is wrong
    When the tokenizer is a Python one, and the texts are few.

    ## Fix safety
    No fix is offered: the results come in another container.

    ## Sources
    - [Transformers: tokenizers](https://huggingface.co/docs/transformers/main/en/fast_tokenizers)
    """

    id = "PTO371"
    name = "text-tokenized-one-by-one"
    family = "data"
    most_stated = 0.4
    triggers = ("tokenizer", "processor", "feature_extractor")
    nodes = (ast.Call,)
    when_wrong = "the texts are few"

    VALID = (
        """
        texts = [tokenizer.decode(ids) for ids in outputs]
        """,
        """
        ids = [tokenizer.encode(word) for word in stop_words]
        """,
        """
        for text in texts:
            model.generate(tokenizer(text, return_tensors="pt"))
        """,
    )
    INVALID = (
        Invalid("""
            def encode(tokenizer, texts):
                return [tokenizer(text, truncation=True)["input_ids"] for text in texts]  # !
                # ~ return tokenizer(texts, truncation=True)["input_ids"]
        """),
        Invalid("""
            def collate_fn(batch):
                ids = [tokenizer(example["text"])["input_ids"] for example in batch]  # !
                return pad(ids)
        """),
        Invalid("""
            def encode(tokenizer, captions):
                rows = []
                for caption in captions:
                    rows.append(tokenizer.encode(caption, truncation=True))  # !
                return torch.tensor(rows)
        """),
    )

    def check(self, node: ast.AST, file: SourceFile) -> Iterator[Problem]:
        if not isinstance(node, ast.Call) or not node.args:
            return
        func = node.func
        method = func.attr if isinstance(func, ast.Attribute) and func.attr in _METHODS else ""
        owner = func.value if method and isinstance(func, ast.Attribute) else func
        if not _TOKENIZER.search(last_name(owner)) or called_name(node)[:1].isupper():
            return
        if method == "encode" and not node.keywords:
            return  # may be any tokenizer, not one of Transformers
        place = repeat_of(node, file)
        if place is None or isinstance(place, ast.While):
            return
        target, iterable = (
            (place.generators[0].target, place.generators[0].iter)
            if isinstance(place, COMPREHENSIONS)
            else (place.target, place.iter)
        )
        given = node.args[0]
        if not names_in(given) & names_in(target) or _PROMPTS.search(
            ast.unparse(iterable) + ast.unparse(given)
        ):
            return
        if isinstance(iterable, (ast.List, ast.Tuple, ast.Constant)) or not _kept(node, place, file):
            return
        if file.frequencies.of(node).often in (Often.ONCE, Often.RARELY):
            return
        name = last_name(owner)
        yield Problem(
            node,
            f"{quote(file, node, 50)} runs for one element at a time in the {words_for(place)} at line {place.lineno}. One call on the "
            f"whole list (`{name}([…])`) works in parallel threads and pays the cost of a call once.",
            0.4,
            beside(node, place, f"the {words_for(place)}"),
            cause=place,
            span=Span(node.lineno, node.lineno),
            facts={
                "encode": method == "encode",
                "comprehension": isinstance(place, COMPREHENSIONS),
                "processor": "processor" in name or "extractor" in name,
            },
        )


def _kept(call: ast.Call, place: ast.AST, file: SourceFile) -> bool:
    """Is the result collected, rather than given to a network in the same iteration?"""
    if isinstance(place, COMPREHENSIONS):
        return True
    for parent, _ in file.index.ancestors(call):
        if isinstance(parent, ast.Call) and called_name(parent) in ("append", "extend"):
            return True
        if isinstance(parent, ast.Assign):
            target = parent.targets[0]
            if isinstance(target, ast.Subscript):
                return True
            names = names_in(target)
            return any(
                called_name(c) in ("append", "extend") and c.args and names & names_in(c.args[0])
                for c in file.calls.calls_in(file.index.function_of(call))
                if file.index.within(c, place)
            )
        if isinstance(parent, ast.stmt):
            return False
    return False
