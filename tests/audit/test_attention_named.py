"""The attention of a model of transformers, where the repository names it: through `**options` and on the command line."""

from __future__ import annotations

import pytest

from ptopt.audit.values import Measure, State
from tests.audit.conftest import Auditor

SCRIPT = """
from dataclasses import dataclass, field
from transformers import AutoModel, HfArgumentParser, Trainer, TrainingArguments
{imported}

@dataclass
class ModelArguments:
    path: str = "bert"
{field}

class Encoder:
    @classmethod
    def build(cls, model_args, **options):
        return cls(AutoModel.from_pretrained(model_args.path, **options))

def main():
    model_args, args = HfArgumentParser(({classes}TrainingArguments)).parse_args_into_dataclasses()
    {call}
    Trainer(model, args, train_dataset=data).train()

if __name__ == "__main__":
    main()
"""
FIELD = '    attn_implementation: str = field(default="flash_attention_2")'
KEYWORD = "model = Encoder.build(model_args, attn_implementation=model_args.attn_implementation)"
TABLE = """options = {"attn_implementation": model_args.attn_implementation}
    options["revision"] = "main"
    model = Encoder.build(model_args, **options)"""


def attention(audited: Auditor, call: str, field: str = FIELD, imported: str = "", **files: str) -> Measure:
    classes = "ModelConfig, " if imported else "ModelArguments, "
    code = SCRIPT.format(call=call, field=field, imported=imported, classes=classes)
    audit = audited({"train.py": code, **{name.replace("__", "."): text for name, text in files.items()}})
    return next(m for m in audit.entries[0].measures if m.key == "attention")


@pytest.mark.parametrize("call", [KEYWORD, TABLE])
def test_it_is_followed_through_options(audited: Auditor, call: str) -> None:
    found = attention(audited, call)
    assert (found.state, "flash_attention_2" in found.detail) == (State.ON, True)


def test_options_that_name_none_leave_it_to_transformers(audited: Auditor) -> None:
    found = attention(audited, "model = Encoder.build(model_args, revision='main')")
    assert (found.state, found.detail[:20]) == (State.UNKNOWN, "transformers chooses")


def test_a_command_names_another_one(audited: Auditor) -> None:
    found = attention(audited, KEYWORD, run__sh="python train.py --attn_implementation eager\n")
    assert (found.state, [str(p) for p in found.evidence][1]) == (State.OFF, "run.sh:1")


@pytest.mark.parametrize(("given", "state"), [("sdpa", State.ON), ("eager", State.OFF), ("", State.UNKNOWN)])
def test_a_command_fills_a_field_of_a_class_of_a_package(audited: Auditor, given: str, state: State) -> None:
    command = f"python train.py --attn_implementation {given}\n" if given else "python train.py\n"
    found = attention(audited, KEYWORD, "", "from trl import ModelConfig", run__sh=command)
    assert found.state is state
