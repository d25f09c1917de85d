from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from ptopt.rules.base import TEXTBOOK, Evidence, Fix, Invalid, Problem, Rule, Safety, SourceFile
from ptopt.rules.code import keyword_of, quote, replace_node
from ptopt.rules.ops._pure import is_deferred
from ptopt.source.calls import called_name, last_name
from ptopt.source.index import FunctionNode

_RUNS = frozenset({"generate"})
# Collators that pad a batch of lists, those with labels among them.
_PADS = re.compile(r"^DataCollator(WithPadding|ForSeq2Seq|ForTokenClassification)$")
# Shapes that have to stay the same: compilers, other devices, exported graphs; encoders that were trained on full rows.
_STATIC = re.compile(
    r"torch\.compile|torch_xla|\bxla\b|\btpu\b|neuron|onnx|torch\.export|jit\.trace|cuda_?graph|StaticCache|\bjax\b|\bflax\b|openvino|"
    r"habana|\bhpu\b|tensorrt|calib|TPU|diffusers|CLIP|[Ss]ig[Ll]ip|text_encoder|T5Encoder|context_parallel|sequence_parallel|pipeline_parallel",
)
_TOKENIZER = re.compile(
    r"token|^tok$|processor|^(self|cls)$|apply_chat_template|batch_encode_plus|encode_plus|__call__", re.I
)
_IN_COLLATE = 'Return the text unpadded, and pad each batch to its longest in `collate_fn`: `tokenizer.pad(items, padding="longest")`.'
# Encoders of prompts take a fixed number of tokens; sequences of bases are cut to one length.
_FIXED = re.compile(r"diffus|pixel|image|text_encoder|genom|\bdna|protein", re.I)
_SHORT = 100


class PaddedToMaximum(Rule):
    """Texts are padded to a fixed length, not to the longest of their batch.

    ## What it does
    Finds `padding="max_length"` in tokenizer calls whose result goes to `generate`, in collate functions, and in functions that
    are given to `Dataset.map` though a collator pads each batch.

    ## Why it is slow
    The model computes the padding, too: where texts are a quarter of the maximum, three quarters of each forward and backward pass,
    and more of the attention, are thrown away. In generation each new token also attends over it.

    ## When this is wrong
    Where all texts are about as long as the maximum, or shapes must not change (XLA, Neuron, an exported graph).

    ## Example
    ```python
    inputs = tokenizer(prompts, padding="max_length", max_length=2048, return_tensors="pt")
    replies = model.generate(**inputs)
    ```

    ## Use instead
    ```python
    inputs = tokenizer(prompts, padding="longest", truncation=True, max_length=2048, return_tensors="pt")
    replies = model.generate(**inputs)
    ```

    ## Fix safety
    Unsafe: code after it may count on rows of the full length.

    ## Sources
    - [transformers: padding and truncation](https://huggingface.co/docs/transformers/pad_truncation)
    """

    id = "PTO492"
    name = "padded-to-maximum"
    family = "data"
    libraries = ("torch", "transformers", "datasets")
    triggers = ("max_length",)
    nodes = (ast.keyword,)
    when_wrong = "all texts are about as long as the maximum, or shapes must not change"

    VALID = (
        """
        inputs = tokenizer(prompts, padding="longest", return_tensors="pt")
        replies = model.generate(**inputs)
        """,
        """
        import torch_xla.core.xla_model as xm

        def answer(prompts):
            inputs = tokenizer(prompts, padding="max_length", max_length=512, return_tensors="pt")
            return model.generate(**inputs)
        """,
        """
        from diffusers import StableDiffusionPipeline

        def collate_fn(examples):
            return tokenizer([e["text"] for e in examples], padding="max_length", return_tensors="pt")
        """,
        """
        def collate_fn(examples):
            if static_shapes:
                return tokenizer.pad(examples, padding="max_length", max_length=512)
            return tokenizer.pad(examples, padding="longest")
        """,
    )
    INVALID = (
        Invalid("""
            class Instructions(torch.utils.data.Dataset):
                def __getitem__(self, i):
                    text = self.rows[i]["text"]
                    found = self.tokenizer(text, padding="max_length", truncation=True, max_length=1024)  # !
                    return {key: torch.tensor(value) for key, value in found.items()}

            for batch in DataLoader(Instructions(rows), batch_size=8):
                model(**batch).loss.backward()
                optimizer.step()
        """),
        Invalid("""
            import torch

            def answer(prompts):
                inputs = tokenizer(prompts, padding="max_length", max_length=2048, return_tensors="pt")  # !
                # + inputs = tokenizer(prompts, padding="longest", max_length=2048, return_tensors="pt")
                return model.generate(**inputs.to("cuda"))
        """),
        Invalid("""
            import torch

            def collate_fn(examples):
                return tokenizer([e["text"] for e in examples], padding="max_length", return_tensors="pt")  # !
                # + return tokenizer([e["text"] for e in examples], padding="longest", return_tensors="pt")
        """),
        Invalid("""
            from transformers import DataCollatorForSeq2Seq, Trainer

            def preprocess(example):
                return tokenizer(example["source"], truncation=True, padding="max_length", max_length=512)  # !

            data = data.map(preprocess, batched=True)
            trainer = Trainer(model, args, train_dataset=data, data_collator=DataCollatorForSeq2Seq(tokenizer))
        """),
    )

    def candidates(self, file: SourceFile) -> list[ast.AST]:
        return [keyword for keyword in file.index.of_type(ast.keyword) if keyword.arg == "padding"]

    def check(self, node: ast.AST, file: SourceFile) -> Iterator[Problem]:
        call = file.index.parent(node)
        if not isinstance(node, ast.keyword) or node.arg != "padding" or not isinstance(call, ast.Call):
            return
        if not (isinstance(node.value, ast.Constant) and node.value.value == "max_length"):
            return
        function = file.index.function_of(call)
        name = last_name(call.func)
        owner = last_name(call.func.value) if isinstance(call.func, ast.Attribute) else ""
        if (
            function is None
            or not any(_TOKENIZER.search(n) for n in (name, owner) if n)
            or file.search(_STATIC)
        ):
            return
        if any(
            isinstance(a, (ast.If, ast.IfExp))
            for a, _ in file.index.ancestors(call)
            if file.index.within(a, function)
        ):
            return
        where, line, prior = _used(function, file)
        if not where:
            return
        longest = keyword_of(call, "max_length")
        if isinstance(longest, ast.Constant) and isinstance(longest.value, int) and longest.value < _SHORT:
            prior = min(prior, 0.4)
        loop = next(file.index.loops_of(call), None)
        alone = is_deferred(call, file) or (
            loop is not None and not loop.lineno <= line <= (loop.end_lineno or 0)
        )
        if alone or (not line and "token" not in (owner + name).lower()):
            prior = min(
                prior, 0.5
            )  # texts that are tokenized one by one fit together because of it; a processor pads more than text
        yield Problem(
            call,
            f"{quote(file, call, 50)} pads each text to the maximum, and {where}: the model computes the padding, too. "
            + (_IN_COLLATE if function.name == "__getitem__" else _remedy(alone, bool(line))),
            prior,
            (Evidence(line, "the padded batch is run"),) if line and line != call.lineno else (),
            Fix(
                Safety.UNSAFE,
                (replace_node(file, node.value, '"longest"'),),
                "nothing counts on rows of the full length",
            )
            if line and not alone
            else None,
            facts={
                "alone": alone,
                "limit": float(getattr(longest, "value", 0) or 0) if isinstance(longest, ast.Constant) else 0,
            },
        )


def _remedy(alone: bool, batch: bool) -> str:
    if alone:
        return 'Tokenize the texts of a batch in one call, with `padding="longest"`.'
    return (
        'Pad to the longest of the batch: `padding="longest"`.'
        if batch
        else "Leave the padding to a collator."
    )


def _used(function: FunctionNode, file: SourceFile) -> tuple[str, int, float]:
    """What becomes of the padded texts, the line that shows it (0: a fix stands elsewhere), and how sure that is."""
    for call in file.calls.calls_in(function):
        if called_name(call) in _RUNS and isinstance(call.func, ast.Attribute):
            return "the batch goes to `generate`", call.lineno, TEXTBOOK
    if file.context.is_item_code(function.body[0]) is not None:
        if "collat" in function.name.lower() or not function.name.startswith("__"):
            return "the whole batch is here", function.lineno, TEXTBOOK
        if file.search(_FIXED):
            return "", 0, 0
        return "every item has that length, whatever its batch needs", 0, 0.55 if file.once(_trains) else 0.4
    mapped = any(
        any(last_name(a) == function.name for a in [*c.args, *(k.value for k in c.keywords)])
        for c in file.calls_named("map")
    )
    if not mapped:
        return "", 0, 0
    collator = next((c for n in _collators(file) for c in file.calls_named(n)), None)
    if collator is not None:
        return f"`{called_name(collator)}` (line {collator.lineno}) would pad each batch", 0, TEXTBOOK
    return "every batch of the data set has that length", 0, 0.7 if file.once(_trains) else 0.6


def _trains(file: SourceFile) -> bool:
    """Is a model trained on it here: a `Trainer`, or a backward pass?"""
    return any(called_name(c).endswith("Trainer") for c in file.index.of_type(ast.Call)) or bool(
        file.calls_named("backward")
    )


def _collators(file: SourceFile) -> list[str]:
    names = {called_name(c) for c in file.index.of_type(ast.Call)}
    return sorted(n for n in names if _PADS.search(n))
