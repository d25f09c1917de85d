"""Arguments of trainers: whose classes they are, their defaults, and the flags that set them."""

from __future__ import annotations

import pytest

from ptopt.audit.values import Measure, State
from ptopt.report.audit.terminal import render
from tests.audit.conftest import Auditor

ON, OFF, UNKNOWN = State.ON, State.OFF, State.UNKNOWN
PARSED = """
    from transformers import HfArgumentParser{more}
    from {package} import {name}Config, {name}Trainer


    def main():
        arguments, more = HfArgumentParser(({name}Config, ScriptArguments)).parse_args_into_dataclasses()
        trainer = {name}Trainer(model=model, args=arguments, train_dataset=data)
        trainer.train()


    if __name__ == "__main__":
        main()
"""
TRAINER = PARSED.format(more=", Trainer, TrainingArguments", package="trl", name="X").replace(
    "    from trl import XConfig, XTrainer\n", ""
)
TRAINER = TRAINER.replace("XConfig", "TrainingArguments").replace("XTrainer", "Trainer")


def rows(audited: Auditor, files: dict[str, str]) -> dict[str, Measure]:
    (entry,) = audited(files).entries
    return {measure.key: measure for measure in entry.measures}


@pytest.mark.parametrize(
    ("package", "name"),
    [("trl", "GKD"), ("trl.experimental.gkd", "GKD"), ("trl", "RLOO"), ("trl", "OnlineDPO"), ("trl", "DPO")],
)
def test_the_classes_of_trl_are_arguments_of_a_trainer(audited: Auditor, package: str, name: str) -> None:
    command = "python train.py --bf16 --gradient_accumulation_steps 8 --report_to tensorboard\n"
    found = rows(audited, {"train.py": PARSED.format(more="", package=package, name=name), "run.sh": command})
    assert (found["precision"].state, found["accumulation"].state) == (ON, ON)
    assert "tensorboard" in found["monitoring"].detail
    assert found["workers"].state is OFF


def test_a_class_of_the_same_name_of_another_package_is_none(audited: Auditor) -> None:
    code = PARSED.format(more=", Trainer", package="mine", name="GKD").replace("GKDTrainer(", "Trainer(")
    found = rows(audited, {"train.py": code})
    assert found["workers"].state is UNKNOWN


def test_what_the_commands_are_not_known_to_report_to_is_not_what_is_installed(audited: Auditor) -> None:
    code = PARSED.format(more=", Trainer", package="mine", name="GKD").replace("GKDTrainer(", "Trainer(")
    found = rows(audited, {"train.py": code, "run.sh": "python train.py --report_to tensorboard\n"})
    assert "installed" not in found["monitoring"].detail
    assert "installed" in rows(audited, {"train.py": TRAINER})["monitoring"].detail


@pytest.mark.parametrize(
    ("pins", "state", "said"),
    [
        ("transformers>=5.6.0", UNKNOWN, "adamw_torch_fused with torch 2.8 or later"),
        ("transformers>=5.6.0\ntorch>=2.4", UNKNOWN, "the project admits both (torch>=2.4"),
        ("transformers>=5.6.0\ntorch>=2.8", ON, "adamw_torch_fused (default of transformers>=5.6.0"),
        ("transformers==4.57.1\ntorch==2.6.0", OFF, "adamw_torch (default of transformers==4.57.1"),
        ("transformers>=4.40\ntorch>=2.8", UNKNOWN, "depends on its version"),
        ("", UNKNOWN, "depends on its version"),
    ],
)
@pytest.mark.parametrize("code", [TRAINER, PARSED.format(more="", package="trl", name="DPO")])
def test_the_default_optimizer_is_that_of_the_pinned_versions(
    audited: Auditor, code: str, pins: str, state: State, said: str
) -> None:
    found = rows(audited, {"train.py": code, "requirements.txt": pins})["fused_optimizer"]
    assert found.state is state
    assert said in found.detail
    assert "TRL" not in found.detail


MADE = """
    from transformers import HfArgumentParser
    from trl import DPOConfig, DPOTrainer


    def main():
        parser = HfArgumentParser(ScriptArguments)
        args = parser.parse_args_into_dataclasses(return_remaining_strings=True)[0]
        arguments = DPOConfig(output_dir=args.output_dir, bf16=args.bf16, tf32=False)
        DPOTrainer(model, args=arguments, train_dataset=data).train()


    if __name__ == "__main__":
        main()
"""


def test_a_flag_is_named_only_where_the_command_line_takes_it(audited: Auditor) -> None:
    """A parser of other classes drops it without a word."""

    def action(**scripts: str) -> str:
        files = {f"{name}.py": code for name, code in scripts.items()}
        (found,) = [gap.action for gap in audited(files).gaps if gap.key == "workers"]
        return found

    plain = "Set `dataloader_num_workers=4` in the training arguments{}, for each GPU"
    flag = "`--dataloader_num_workers 4`"
    assert action(train=MADE).startswith(plain.format(""))
    assert action(train=TRAINER).startswith(plain.format(f" ({flag})"))
    both = action(train=TRAINER, train_dpo=MADE)
    assert both.startswith(plain.format(f" ({flag} where the script takes it)"))
    file = TRAINER.replace("parse_args_into_dataclasses()", 'parse_yaml_file("train.yaml")')
    assert action(train=file).startswith(plain.format(""))


@pytest.mark.parametrize(
    ("commands", "state"),
    [
        ("CUDA_VISIBLE_DEVICES=0,1 python3 train.py --bf16", OFF),
        ("nohup python -u train.py --bf16 &\npython train.py --do_train", OFF),
        ("python -m train --bf16", OFF),
        ("torchrun --nproc_per_node 2 train.py --bf16", ON),
        ("python -m torch.distributed.launch --nproc_per_node 2 train.py", ON),
        ("python train.py --bf16\ntorchrun train.py --bf16", ON),
        ("accelerate launch train.py", ON),
        ("$LAUNCHER train.py", ON),
        ("srun python train.py", ON),
        ("WORLD_SIZE=2 RANK=1 python train.py", ON),
        ("python train.py --deepspeed zero2.json", ON),
        ("python launch.py train.py", ON),
        ("echo nothing", ON),
    ],
)
def test_what_commands_start_as_one_process_is_not_distributed(
    audited: Auditor, commands: str, state: State
) -> None:
    files = {"train.py": TRAINER, "run.sh": commands + "\n"}
    found = rows(audited, files)["distributed"]
    assert found.state is state, found
    assert (found.evidence[0].path == "run.sh" and "one process" in found.detail) is (state is OFF)
    good = {each.title for each in audited(files).good}
    assert ("Distributed training" in good) is (state is ON)
    spawns = TRAINER.replace("        main()", "        torch.multiprocessing.spawn(main, nprocs=2)")
    assert rows(audited, {**files, "train.py": spawns})["distributed"].state is ON


@pytest.mark.parametrize(("command", "state"), [("python", OFF), ("accelerate launch", ON)])
def test_a_script_of_accelerate_that_python_starts(audited: Auditor, command: str, state: State) -> None:
    code = """
        from accelerate import Accelerator

        def main():
            accelerator = Accelerator()
            model, optimizer, loader = accelerator.prepare(make(), Adam(), load())
            for x, y in loader:
                accelerator.backward(loss(model(x), y))
                optimizer.step()

        if __name__ == "__main__":
            main()
    """
    found = rows(audited, {"train.py": code, "README.md": f"```\n{command} train.py --lr 1\n```\n"})
    assert found["distributed"].state is state


def test_what_is_good_is_said_once_whatever_the_commands_are(audited: Auditor) -> None:
    files = {"a.py": TRAINER, "b.py": TRAINER, "c.py": TRAINER, "run.sh": "python b.py --lr 1\n"}
    (pinned,) = [good for good in audited({**files, "c.py": MADE}).good if good.title == "Pinned memory"]
    assert pinned.details == ("`pin_memory` is True (default of transformers for `dataloader_pin_memory`)",)


def test_a_value_that_was_not_found_is_no_condition(audited: Auditor) -> None:
    code = TRAINER.replace("trainer = ", "model = AutoModel.from_pretrained('x', attn_implementation=more.attention)\n        trainer = ")  # fmt: skip
    code = code.replace("import HfArg", "import AutoModel, HfArg")
    found = rows(audited, {"train.py": code})["attention"]
    assert found.detail == "`attn_implementation`: the value of `more.attention` was not found"


def test_the_terminal_shows_the_scripts_that_most_commands_start(audited: Auditor) -> None:
    """Of tables that differ it has six."""
    names = "abcdefgh"
    files = {f"{name}.py": TRAINER.replace("trainer.train()", f"trainer.train()  # {name}") for name in names}
    files["run.sh"] = "".join(f"python {name}.py --gradient_accumulation_steps {at + 2}\n" for at, name in enumerate(names))  # fmt: skip
    files["more.sh"] = "python h.py --gradient_accumulation_steps 9\n"
    text = render(audited(files), 100, False)
    shown = [line.split()[0] for line in text.splitlines() if "training at line" in line]
    assert shown == ["a.py", "b.py", "c.py", "d.py", "e.py", "h.py"]
    said = " ".join(text.split())
    assert "and 2 more scripts (f.py, g.py): --format html, markdown or json has them all" in said
