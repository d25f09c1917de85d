from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from typing import ClassVar

from ptopt.rules.base import Fix, Invalid, Problem, Rule, Safety, SourceFile
from ptopt.rules.code import add_keyword, has_unpacking, is_literal, keyword_of, replace_node
from ptopt.rules.shared.loaders import has_device_items


class TrainerWithoutWorkers(Rule):
    """A Hugging Face trainer loads and collates its batches in the training process.

    ## What it does
    Finds `TrainingArguments(...)` whose `dataloader_num_workers` is 0 or left at its default of 0.

    ## Why it is slow
    Items are read, decoded, tokenised and collated in the process that launches GPU work, between two steps. Workers
    prepare the next batches while the GPU computes.

    ## Fix safety
    Unsafe: the data set and the collate function must be usable from other processes.

    ## Sources
    - [transformers: data preloading](https://huggingface.co/docs/transformers/perf_train_gpu_one)
    """

    id = "PTO359"
    name = "trainer-without-workers"
    family = "data"
    most_stated = 0.4
    libraries: ClassVar[tuple[str, ...]] = ("transformers",)
    triggers = ("TrainingArguments(",)
    since: ClassVar[Mapping[str, str]] = {"transformers": "3.3"}
    nodes = (ast.Call,)
    calls = frozenset({"TrainingArguments", "Seq2SeqTrainingArguments"})
    when_wrong = "items are prepared beforehand and collating is cheap"

    VALID = (
        """
        from transformers import Trainer, TrainingArguments

        class Images(Dataset):
            def __init__(self, paths):
                self.paths = paths

            def __getitem__(self, i):
                return torch.load(self.paths[i]).cuda()

        args = TrainingArguments("out")
        trainer = Trainer(model, args, train_dataset=Images(paths))
        """,
        """
        from transformers import TrainingArguments

        args = TrainingArguments("out", dataloader_num_workers=8)
        """,
        """
        from transformers import TrainingArguments

        args = TrainingArguments("out", **options)
        """,
        "args = TrainingArguments()",
    )
    INVALID = (
        Invalid("""
            from transformers import TrainingArguments

            args = TrainingArguments("out", num_train_epochs=3)  # !
            # + args = TrainingArguments("out", num_train_epochs=3, dataloader_num_workers=4)
        """),
        Invalid("""
            from transformers import TrainingArguments

            args = TrainingArguments("out", dataloader_num_workers=0)  # !
            # + args = TrainingArguments("out", dataloader_num_workers=4)
        """),
        Invalid("""
            from transformers import Seq2SeqTrainingArguments

            args = Seq2SeqTrainingArguments(  # !
                output_dir="out",
                bf16=True,
                # + bf16=True,
                # + dataloader_num_workers=4,
            )
        """),
    )

    def check(self, node: ast.AST, file: SourceFile) -> Iterator[Problem]:
        if not isinstance(node, ast.Call) or has_unpacking(node):
            return
        name = file.imports.qualified(node.func)
        workers = keyword_of(node, "dataloader_num_workers")
        if not name.startswith("transformers.") or not (workers is None or is_literal(workers, 0)):
            return
        if file.once(_trains_on_device_items):
            return  # a worker process must not touch the device of its parent
        edit = (
            add_keyword(file, node, "dataloader_num_workers=4")
            if workers is None
            else replace_node(file, workers, "4")
        )
        yield Problem(
            node,
            "`dataloader_num_workers` is 0 here, so batches are read and collated between two steps while the GPU waits. "
            "Give it a few processes: `dataloader_num_workers=4`.",
            0.4,
            fix=Fix(Safety.UNSAFE, (edit,), "data set and collate function work in other processes"),
            facts={"stated": float(workers is not None), "images": float("image" in file.text.lower())},
        )


def _trains_on_device_items(file: SourceFile) -> bool:
    """Is a data set that moves its items to a device given to a trainer of the file?"""
    given = (keyword_of(call, "train_dataset") for call in file.index.of_type(ast.Call))
    return any(dataset is not None and has_device_items(dataset, file) for dataset in given)
