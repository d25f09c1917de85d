from __future__ import annotations

import re

from ptopt.rules.base import Invalid
from ptopt.rules.regressions._base import Regression


class BatchedMapRemoved(Regression):
    """A change prepares a dataset row by row, or in one process, again."""

    id = "PTO967"
    name = "batched-map-removed"
    most_stated = 0.5
    triggers = (".map(", ".filter(")
    measure = re.compile(
        r"\bbatched\s*=\s*True|\bnum_proc\s*=\s*(?!None|1\b)\w+|\bn_jobs\s*=\s*(?!1\b|None)[\w-]+"
    )
    work = re.compile(r"\.map\(|\.filter\(|load_dataset\(|Parallel\(")
    prior = 0.5
    message = "The dataset is then prepared by one process, one row at a time. Keep the argument, or make it an option."
    why = "A fast tokenizer works on many texts at once, and rows are independent: processes share them."
    source = "[Hugging Face datasets: process](https://huggingface.co/docs/datasets/process)"
    when_wrong = "the dataset is small, or the function cannot be sent to other processes"

    VALID = (
        """
        data = data.map(tokenize, batched=True, num_proc=8)
        """,
        """
        def prepare(data, processes):
            # - return data.map(tokenize, num_proc=8)
            return data.map(tokenize, num_proc=processes)
        """,
        """
        def prepare(data):
            # - return data.map(tokenize, num_proc=8)
            return data
        """,
    )
    INVALID = (
        Invalid("""
            def prepare(data):
                # - return data.map(tokenize, num_proc=8)
                return data.map(tokenize)  # !
        """),
        Invalid("""
            def prepare(data):
                # - return data.map(tokenize, batched=True)
                return data.map(tokenize)  # !
        """),
        Invalid("""
            def prepare(data, processes):
                return data.map(
                    tokenize,
                    # - num_proc=processes,
                    remove_columns=["text"],  # !
                )
        """),
    )
