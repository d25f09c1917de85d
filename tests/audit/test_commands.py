"""What the commands of a repository say of the options of a script."""

from __future__ import annotations

import pytest

from ptopt.audit.launches import launches
from ptopt.audit.values import State
from tests.audit.conftest import Auditor
from tests.audit.test_measures import LOADER, TRAINER, row, script

ON, OFF, UNKNOWN = State.ON, State.OFF, State.UNKNOWN

HALF = script(
    args="parser.add_argument('--half', type=str2bool, default=False)",
    before=LOADER.format(", num_workers=args.workers"),
    step="        with torch.autocast('cuda', enabled=args.half):\n            loss = model(x)",
)


@pytest.mark.parametrize(
    ("commands", "state", "said"),
    [
        ("python train.py --half True", ON, "`--half` of README.md:3"),
        ("python -m torch.distributed.launch --nproc_per_node 8 train.py \\ \n  --half true", ON, "--half"),
        ("python train.py --half True\npython train.py --eval", ON, "--half"),
        ("python train.py --half True\npython train.py --half 0", UNKNOWN, "differs between 2 commands"),
        ("python train.py --half True\npython train.py --lr 1", UNKNOWN, "(True, False)"),
        ("python train.py [--half True]", OFF, "default of `--half`"),
        ("python train.py --half <true-or-false>", UNKNOWN, "--half"),
        ("python other.py --half True", OFF, "default of `--half`"),
        ("```\nThen run ``python train.py --half True`` in the folder.", ON, "`--half` of README.md:4"),
        ("```\nThe script `train.py` has an option `--half True`.", OFF, "default of `--half`"),
    ],
)
def test_commands_of_a_page(audited: Auditor, commands: str, state: State, said: str) -> None:
    files = {"train.py": HALF, "README.md": f"# Start\n```\n{commands}\n```\n"}
    found = row(audited, files, "precision")
    assert (found.state, said in found.detail) == (state, True), found


def test_a_page_that_the_readme_links(audited: Auditor) -> None:
    pages = {"docs/TRAIN.md": "    python train.py --half True\n"}
    assert row(audited, {"train.py": HALF, **pages}, "precision").state is OFF
    linked = {**pages, "README.md": "See [how to train](docs/TRAIN.md#half)."}
    assert row(audited, {"train.py": HALF, **linked}, "precision").state is ON


def test_a_script_says_more_than_a_page(audited: Auditor) -> None:
    files = {
        "train.py": HALF,
        "README.md": "python train.py --half True",
        "run.sh": "python train.py --half False",
    }
    assert row(audited, files, "precision").state is OFF


def test_numbers_that_differ_mean_the_same(audited: Auditor) -> None:
    files = {"train.py": HALF, "README.md": "python train.py --workers 2\n\npython train.py --workers 8\n"}
    found = row(audited, files, "workers")
    assert (found.state, "2 or 8" in found.detail) == (ON, True)


def test_a_state_that_only_some_commands_save(audited: Auditor) -> None:
    code = script(
        args="parser.add_argument('--out', default='')",
        before="    if args.out:\n        torch.save(model.state_dict(), args.out)",
    )
    for commands, state in (
        ("--lr 1\n\npython train.py --out x", UNKNOWN),
        ("--out x\n\npython train.py --out y", ON),
    ):
        files = {"train.py": code, "README.md": f"python train.py {commands}"}
        assert row(audited, files, "saving").state is state


def test_a_flag_takes_no_value(audited: Auditor) -> None:
    code = script(step="        with torch.autocast('cuda', enabled=args.amp):\n            loss = model(x)")
    files = {"train.py": code, "README.md": "python train.py --amp <batch-size>"}
    assert row(audited, files, "precision").state is ON


def test_a_command_starts_the_script_of_its_folder(audited: Auditor) -> None:
    files = {"one/train.py": HALF, "two/train.py": HALF, "README.md": "python two/train.py --half True"}
    states = {
        e.path: next(m.state for m in e.measures if m.key == "precision") for e in audited(files).entries
    }
    assert states == {"one/train.py": OFF, "two/train.py": ON}


@pytest.mark.parametrize(
    ("command", "state"),
    [
        ("python train.py --config configs/large.yaml", ON),
        ("python train.py --config configs/small.yaml", OFF),
        ("python train.py --config <file>", OFF),
        ("python train.py --config <file>\npython train.py --config configs/large.yaml", ON),
        ("python train.py --config configs/large.yaml --half False", OFF),
    ],
)
def test_a_configuration_that_a_command_names(audited: Auditor, command: str, state: State) -> None:
    files = {
        "train.py": HALF,
        "README.md": command,
        "configs/large.yaml": "lr: 1\nhalf: true\n",
        "configs/small.yaml": "lr: 1\nother:\n  half: true\n",
    }
    assert row(audited, files, "precision").state is state


def test_a_value_of_all_configurations_that_may_be_named(audited: Auditor) -> None:
    files = {"train.py": HALF, "README.md": "python train.py --config <file>"}
    files |= {f"configs/{name}.yaml": "lr: 1\nhalf: true\n" for name in ("a", "b")}
    assert row(audited, files, "precision").state is ON


def test_accumulation_that_a_command_asks_for(audited: Auditor) -> None:
    code = script(args="parser.add_argument('--accum', type=int, default=1)").replace(
        "        optimizer.step()", "        if (i + 1) % args.accum == 0:\n            optimizer.step()"
    )
    assert row(audited, {"train.py": code}, "accumulation").state is OFF
    files = {"train.py": code, "README.md": "python train.py --accum 4"}
    assert row(audited, files, "accumulation").state is ON


def test_accumulation_by_an_argument_of_the_scaler(audited: Auditor) -> None:
    code = script(
        args="parser.add_argument('--accum', type=int, default=1)",
        step="        scaler(model(x), optimizer, update_grad=(i + 1) % args.accum == 0)",
    )
    assert row(audited, {"train.py": code}, "accumulation").state is OFF
    files = {"train.py": code, "README.md": "python train.py --accum 4"}
    assert row(audited, files, "accumulation").state is ON


@pytest.mark.parametrize(
    ("text", "state"),
    [
        ("OPTIONS='--lr 1\n  --half True'\npython train.py $OPTIONS\n", ON),
        ('OPTIONS=" \\\n  --lr 1 \\\n  --half True"\npython train.py ${OPTIONS}\n', ON),
        ('OPTIONS=(\n  --lr 1\n  # --workers 2\n  --half True\n)\npython train.py "${OPTIONS[@]}"\n', ON),
        ("MORE='--half True'\nMORE+=' --lr 1'\nALL=\"$MORE\"\npython train.py $ALL\n", ON),
        ("HALF=True\npython train.py --half $HALF\n", ON),
        ("python train.py --half $UNSET\n", UNKNOWN),
        ("SCRIPT=train.py\npython $SCRIPT --half True\n", ON),
        ("python train.py -half True\n", ON),
        ("python train.py --half True\npython train.py -mode validate --half False\n", ON),
        ("python train.py --config $HERE/configs/large.yaml\n", ON),
    ],
)
def test_what_a_shell_script_keeps_in_variables(audited: Auditor, text: str, state: State) -> None:
    files = {
        "train.py": HALF,
        "run.sh": text,
        "configs/large.yaml": "lr: 1\nhalf: true\n",
        "configs/small.yaml": "lr: 1\n",
    }
    assert row(audited, files, "precision").state is state


def test_an_option_for_micro_batches_that_the_loop_counts_by_itself(audited: Auditor) -> None:
    code = script(args="parser.add_argument('-accum_count', type=int, default=1)").replace(
        "        optimizer.step()",
        "        seen += 1\n        if seen == args.accum_count:\n            optimizer.step()",
    )
    assert row(audited, {"train.py": code}, "accumulation").state is OFF
    assert (
        row(audited, {"train.py": code, "run.sh": "python train.py -accum_count 5"}, "accumulation").state
        is ON
    )


def test_an_option_that_no_script_passes_is_not_set(audited: Auditor) -> None:
    files = {
        "train.py": TRAINER,
        "run.sh": "python train.py --do_train True\n",
        "other.sh": "python other.py --torch_compile True\n",
    }
    said = "the one command found that starts it does not pass `--torch_compile`"
    assert said in row(audited, files, "compile").detail
    files["run.sh"] += "python train.py --do_train True --tf32 True\n"
    said = "none of the 2 commands found that start it passes `--torch_compile`"
    assert said in row(audited, files, "compile").detail
    assert "the command line sets" not in str(audited(files).entries)


@pytest.mark.parametrize(
    "command",
    [
        "python -m",
        "python3.11 -m",
        "torchrun --nproc_per_node 4 -m",
        "torchrun --nproc_per_node 4 --module",
        "torchrun -m --nproc_per_node 4",
        "accelerate launch -m",
        "accelerate launch --module --config_file fsdp.yaml",
        "deepspeed --include localhost:0,1 --module",
        "deepspeed --module --master_addr 10.0.0.1",
        "python -m torch.distributed.run --nproc_per_node 4 -m",
        "python -m torch.distributed.launch --use_env --module",
        "python -m accelerate.commands.launch --module",
        "python -m deepspeed.launcher.runner --module",
        "NCCL_P2P_DISABLE=1 python -m debugpy --listen 5678 -m",
        "srun -N 1 uv run python -m",
    ],
)
@pytest.mark.parametrize("page", [True, False])
def test_a_command_that_starts_a_module(command: str, page: bool) -> None:
    text = f"{command} package.train --bf16 \\\n  --data a.json\n"
    files = {"README.md": f"```\n{text}```\n".encode()} if page else {"run.sh": text.encode()}
    (launch,) = launches(files)["train.py"]
    assert (launch.script, dict(launch.options)) == ("package/train.py", {"bf16": True, "data": "a.json"})


def test_a_debugger_starts_the_script_behind_it() -> None:
    (launch,) = launches({"run.sh": b"python -m debugpy --listen 5678 train.py --amp\n"})["train.py"]
    assert dict(launch.options) == {"amp": True}


def test_a_script_that_only_generates_is_no_training_run(audited: Auditor) -> None:
    files = {
        "train.py": TRAINER,
        "run.sh": "python train.py --do_train True --bf16 True\n",
        "generate.sh": "python train.py --do_train False --do_predict True\n",
    }
    found = row(audited, files, "precision")
    assert (found.state, "launch scripts" in found.detail) == (ON, False)


@pytest.mark.parametrize("end", ["", " ", " \\ # replace this", "  # replace this"])
def test_a_command_of_a_page_goes_on_where_options_follow(end: str) -> None:
    page = f"```sh\n# ours\npython train.py --data /path{end}\n  --workers 3 \\\n  --amp\n```\n- a list\n"
    (launch,) = launches({"README.md": page.encode()})["train.py"]
    assert (launch.options["workers"], launch.options["amp"], launch.options["data"]) == ("3", True, "/path")


CONFIGURED = script(
    args="parser.add_argument('--config', default='./configs/small.yaml')",
    before="    config = yaml.load(open(args.config))\n" + LOADER.format(", num_workers=config['loaders']"),
)
SIZES = {"configs/small.yaml": "lr: 1\nloaders: 0\n", "configs/large.yaml": "lr: 1\nloaders: 6\n"}


def test_the_configuration_that_an_option_has_by_default_decides(audited: Auditor) -> None:
    found = row(audited, {"train.py": CONFIGURED, **SIZES}, "workers")
    assert found.state is OFF
    assert found.detail == (
        "`num_workers` is 0 (`loaders` of configs/small.yaml, the default of `--config`; others say 6)"
    )
    other = CONFIGURED.replace("./configs/small.yaml", "")
    assert row(audited, {"train.py": other, **SIZES}, "workers").state is UNKNOWN


@pytest.mark.parametrize(
    ("commands", "state"),
    [
        ("python train.py --config configs/large.yaml", ON),
        ("<pre>python train.py --config configs/large.yaml </pre>", ON),
        ("python train.py --config configs/Small.yaml", OFF),  # no such file: the default
        ("python train.py --config configs/large.yaml\n\npython train.py", UNKNOWN),
    ],
)
def test_a_command_says_more_than_the_default_of_the_option(
    audited: Auditor, commands: str, state: State
) -> None:
    files = {"train.py": CONFIGURED, "README.md": commands, **SIZES}
    assert row(audited, files, "workers").state is state


def test_a_command_still_gives_an_argument_whose_default_is_stated_apart(audited: Auditor) -> None:
    code = HALF.replace(
        "    args = parser.parse_args()",
        "    parser.set_defaults(half=False)\n    args = parser.parse_args()",
    )
    found = row(audited, {"train.py": code}, "precision")
    assert (found.state, "default of `--half`" in found.detail) == (OFF, True)
    files = {"train.py": code, "README.md": "python train.py --half True"}
    assert row(audited, files, "precision").state is ON


def test_what_a_shell_script_is_given_goes_on_to_the_training(audited: Auditor) -> None:
    files = {"train.py": HALF, "run.sh": 'N=$1\nshift\npython -m torch.distributed.launch train.py "$@"\n'}
    assert row(audited, files, "precision").state is OFF
    given = {"README.md": "```\nA=0,1 ./run.sh 8 data \\\n  --half True\n```\n"}
    found = row(audited, {**files, **given}, "precision")
    assert (found.state, "`--half` of README.md:3" in found.detail) == (ON, True)
    script_of = {"all.sh": "bash run.sh 8 --half False\n"}
    assert row(audited, {**files, **given, **script_of}, "precision").state is OFF
    beside = {"README.md": "python train.py --half True\n"}  # nobody says what the script is given
    assert row(audited, {**files, **beside}, "precision").state is ON
    alone = {"run.sh": "python train.py\n"}  # it hands nothing on
    assert row(audited, {**files, **given, **alone}, "precision").state is OFF


def test_a_page_decides_where_scripts_start_another_of_the_name(audited: Auditor) -> None:
    files = {
        "train.py": HALF,
        "other/train.py": HALF.replace("criterion", "loss_of"),
        "other/run.sh": "python other/train.py --half False\n",
        "README.md": "python train.py --half True\n",
    }
    rows = {entry.path: entry for entry in audited(files).entries}
    assert [m.state for m in rows["train.py"].measures if m.key == "precision"] == [ON]


def test_options_of_one_letter(audited: Auditor) -> None:
    code = HALF.replace(
        "parser.add_argument('--half'",
        "parser.add_argument('-c', '--config', default=''); parser.add_argument('-p', '--half'",
    )
    sizes = {"configs/large.yaml": "lr: 1\nhalf: true\n", "configs/small.yaml": "lr: 1\nhalf: false\n"}
    for command, state in (
        ("python train.py -p True", ON),
        ("python train.py -c configs/large.yaml --lr 1", ON),
        ("python train.py -c configs/small.yaml", OFF),
        ("python train.py -q True", OFF),
    ):
        files = {"train.py": code, "README.md": command, **sizes}
        assert row(audited, files, "precision").state is state, command


ANY_KEY = script(
    args="for name, value in {source}.items():\n        parser.add_argument(f'--{{name}}', default=value)",
    before=LOADER.format(", num_workers=args.threads"),
)


@pytest.mark.parametrize(
    ("commands", "state", "said"),
    [
        ("python train.py --lr 1", OFF, "is 0"),
        ("python train.py --threads 8", ON, "`--threads` of README.md:1"),
        ("python train.py --threads 8\npython train.py --lr 1", UNKNOWN, "differs between 2 commands (8, 0)"),
    ],
)
@pytest.mark.parametrize("source", ["yaml.safe_load(open('config.yaml'))", "defaults()"])
def test_options_of_every_key_of_a_table(
    audited: Auditor, source: str, commands: str, state: State, said: str
) -> None:
    """`for key, value in config.items(): parser.add_argument(f"--{key}", default=value)`"""
    code = ANY_KEY.replace("{source}", source).replace("{{name}}", "{name}")
    code = code.replace(
        "import torch\n",
        "import torch\nimport yaml\n\ndef defaults():\n    return dict(lr=1, threads=0)\n",
        1,
    )
    files = {"train.py": code, "config.yaml": "threads: 0\nbatch_size: 8\n", "README.md": commands}
    if "yaml" not in source:
        del files["config.yaml"]
    else:
        files["train.py"] = code.replace("return dict(lr=1, threads=0)", "return None")
    found = row(audited, files, "workers")
    assert (found.state, said in found.detail) == (state, True), found


KINDS = """\
import argparse

import torch
from torch import nn
from torch.utils.data import DataLoader


def kind_of(args):
    if args.plain:
        kind = "none"
    elif args.data in ("books", "news"):
        kind = "text"
    else:
        kind = "image"
    return kind


parser = argparse.ArgumentParser()
parser.add_argument("--data", default="books")
parser.add_argument("--plain", action="store_true")
args = parser.parse_args()
net = nn.Linear(8, 8).cuda()
optimizer = torch.optim.SGD(net.parameters(), 0.1)
for x in DataLoader(range(8)):
    with torch.autocast("cuda", enabled=kind_of(args) == "text"):
        loss = net(x.cuda()).sum()
    loss.backward()
    optimizer.step()
"""


def test_a_call_whose_answer_differs_between_commands_names_the_option(audited: Auditor) -> None:
    """Not the call, which says nothing to a reader."""
    commands = "python train.py --data news\npython train.py --data birds"
    files = {"train.py": KINDS, "README.md": f"# Start\n```\n{commands}\n```\n"}
    found = row(audited, files, "precision")
    assert found.state is UNKNOWN and ": `--data` differs between 2 commands" in found.detail, found


def test_comments_in_backticks_between_the_lines_of_a_command() -> None:
    text = "python train.py \\\n  --lr 1 `# the rate` \\\n  \\\n  `# memory: --tf32` \\\n  --half True \\\n  --steps 8\n"
    for path in ("run.sh", "README.md"):
        (launch,) = launches({path: text.encode()})["train.py"]
        assert launch.options == {"lr": "1", "half": "True", "steps": "8"}
        assert launch.place_of("half").line == 5


def test_the_one_file_of_several_that_holds_settings(audited: Auditor) -> None:
    """`--config_env` and `--config_exp`: a command that names one that is known means it, and two that are known none."""
    script_ = (
        "import sys, yaml, torch\nfrom torch.utils.data import DataLoader\np = yaml.safe_load(open(sys.argv[2]))\n"
        "loader = DataLoader(data, num_workers=p['num_workers'])\nfor x in loader:\n"
        "    optimizer.zero_grad()\n    net(x).sum().backward()\n    optimizer.step()\n"
    )
    files = {
        "train.py": script_,
        "configs/a.yml": "num_workers: 4\n",
        "configs/b.yml": "num_workers: 8\n",
        "README.md": "    python train.py --config_env my_env.yml --config_exp configs/b.yml\n",
    }
    assert "is 8" in row(audited, files, "workers").detail
    files["README.md"] = "    python train.py --config_env configs/a.yml --config_exp configs/b.yml\n"
    assert "differs between 2 configurations" in row(audited, files, "workers").detail
