"""Rows of kinds of runs that readers found wrong: where options, defaults and versions come from, and what runs; each in a small example of our own."""

from __future__ import annotations

import pytest

from ptopt.audit.values import Level, State
from ptopt.audit.weigh import weighed
from ptopt.findings import Finding, Severity, Span
from tests.audit.conftest import Auditor
from tests.audit.test_measures import LOADER, TRAINER, measure, row, script

ON, OFF, UNKNOWN, NONE = State.ON, State.OFF, State.UNKNOWN, State.NOT_APPLICABLE

CASES: list[tuple[str, str, State, str]] = [
    # options and their defaults
    ("workers", script(before=LOADER.format(", num_workers=cfg.get('n', 3)")), ON, "3"),
    ("workers", script(before="    options = dict(num_workers=2)\n" + LOADER.format(", **options")), ON, "2"),
    (
        "workers",
        script(
            before="    options = {}\n    options.update({'num_workers': 2})\n" + LOADER.format(", **options")
        ),
        ON,
        "2",
    ),
    (
        "workers",
        script(
            after="def more():\n    return {'num_workers': 5} if torch.cuda.is_available() else {}",
            before=LOADER.format(", **more()"),
        ),
        ON,
        "5",
    ),
    (
        "pin_memory",
        script(args="parser.set_defaults(pin=False)", before=LOADER.format(", pin_memory=args.pin")),
        OFF,
        "default of `--no-pin`",
    ),
    (
        "workers",
        script(
            before="    if args.distributed:\n        args.workers = int(args.workers / n_gpus)\n"
            + LOADER.format(", num_workers=args.workers")
        ),
        ON,
        "default of `--workers`",
    ),
    (
        "precision",
        script(
            args="parser.add_argument('--half', type=str2bool, default='False')",
            step="        with torch.autocast('cuda', enabled=args.half):\n            loss = model(x)",
        ),
        OFF,
        "default of `--half`",
    ),
    # code that runs one way or the other
    (
        "cudnn_benchmark",
        script(
            after="def work():\n    torch.backends.cudnn.benchmark = True\n    nn.Conv2d(3, 4, 5)",
            before="    if args.spawn:\n        start(work)\n    else:\n        work()",
        ),
        ON,
        "benchmark",
    ),
    (
        "cudnn_benchmark",
        script(
            before="    device = torch.device('cuda' if torch.cuda.is_available() else 'cpu')\n"
            "    if device.type == 'cuda':\n        torch.backends.cudnn.benchmark = True"
        ),
        ON,
        "with a GPU",
    ),
]


@pytest.mark.parametrize(("key", "code", "state", "said"), CASES)
def test_rows(audited: Auditor, key: str, code: str, state: State, said: str) -> None:
    found = measure(audited, key, code)
    assert (found.state, said in found.detail) == (state, True), found


CHECKPOINT = """
class CheckpointFunction(torch.autograd.Function):
    pass

def checkpoint(f, x, flag):
    if flag:
        return CheckpointFunction.apply(f, x)
    return f(x)
"""


@pytest.mark.parametrize(("flags", "state"), [(("args.amp",), OFF), (("args.amp", "True"), ON)])
def test_one_call_that_takes_the_way_is_enough(
    audited: Auditor, flags: tuple[str, ...], state: State
) -> None:
    calls = "".join(f"        loss = checkpoint(model, x, {flag})\n" for flag in flags)
    assert measure(audited, "gradient_checkpointing", script(after=CHECKPOINT, step=calls)).state is state


def test_values_that_differ_answer_where_they_mean_the_same(audited: Auditor) -> None:
    code = script(before=LOADER.format(", num_workers=cfg.n_loader"))
    found = measure(audited, "workers", code, a__yaml="lr: 1\nn_loader: 4\n", b__yaml="lr: 1\nn_loader: 6\n")
    assert (found.state, "4 or 6" in found.detail) == (ON, True)


@pytest.mark.parametrize(
    ("said", "state"),
    [
        ("conda install pytorch=1.9.0 torchvision -c pytorch", ON),
        ("The code was tested with PyTorch 1.6.", UNKNOWN),
        ("Install PyTorch 1.8 or later.", OFF),
        ("- [PyTorch](http://pytorch.org) install = 1.9.0", ON),
        ("PyTorch version: 1.9.0", ON),
        ("PyTorch version: 1.9 or later", OFF),
        (
            "Install [PyTorch](https://pytorch.org/)>=1.8.0:\n```\npip install torch==1.8.0+cu111\n```",
            UNKNOWN,
        ),
        ("Install [PyTorch](https://pytorch.org/)>=1.8.0", OFF),
        ("It was developed with PyTorch 1.7.1, but should work with other versions.", UNKNOWN),
    ],
)
def test_the_torch_of_a_readme(audited: Auditor, said: str, state: State) -> None:
    found = {m.key: m for m in audited({"train.py": script(), "README.md": said}).entries[0].measures}
    assert found["tf32"].state is state


def test_what_an_old_torch_does_by_default(audited: Auditor) -> None:
    code = script(before="    optimizer = torch.optim.AdamW(p)")
    for said, update, state in (
        ("torch==1.13.1", "since torch 2.0", OFF),
        ("torch==2.1", "multi-tensor", ON),
    ):
        files = {"train.py": code, "INSTALL.md": f"pip install {said}"}
        assert update in row(audited, files, "fused_optimizer").detail
        assert row(audited, files, "set_to_none").state is state


SET_LATER = """
from yacs.config import CfgNode as CN
_C = CN()
_C.LEVEL = ""

def update(config, args):
    def _given(name):
        return hasattr(args, name) and eval(f"args.{name}")
    if _given("level"):
        config.LEVEL = args.level
"""


def test_a_default_that_a_setter_overwrites(audited: Auditor) -> None:
    code = script(
        after=f"from apex import amp\n{SET_LATER}",
        args="parser.add_argument('--level', default='O1')",
        before="    update(config, args)\n    amp.initialize(model, optimizer, opt_level=config.LEVEL)",
    )
    found = measure(audited, "precision", code)
    assert (found.state, "default of `--level`" in found.detail) == (ON, True)


WRAPPER = """
class Wrapper(nn.Module):
    def __init__(self, inner, recompute=False):
        self.inner = inner
        self.recompute = recompute

    def forward(self, x):
        if self.recompute:
            return torch.utils.checkpoint.checkpoint(self.inner, x)
        return self.inner(x)

def switch(layers, recompute):
    for layer in layers:
        layer.recompute = recompute
"""


def test_an_attribute_that_is_set_later(audited: Auditor) -> None:
    code = script(after=WRAPPER, before="    model = Wrapper(net)\n    switch(model.layers, args.{})")
    args = "parser.add_argument('--save', action='store_true', default=True)"
    for name, state in (("amp", OFF), ("save", ON)):
        found = measure(
            audited,
            "gradient_checkpointing",
            code.replace("{}", name).replace("    args =", f"    {args}\n    args ="),
        )
        assert (found.state, f"`--{name}`" in found.detail) == (state, True), found


def test_a_requirement_says_more_than_a_readme(audited: Auditor) -> None:
    files = {
        "train.py": script(),
        "README.md": "pip install torch==1.6.0",
        "requirements.txt": "torch>=2.1\n",
    }
    found = {m.key: m for m in audited(files).entries[0].measures}
    assert found["tf32"].state is OFF


def test_a_command_of_a_readme_sets_an_option(audited: Auditor) -> None:
    text = "Start it:\n\n```\ntorchrun --nproc_per_node=4 train.py \\\n    --bf16 True \\\n    --output_dir out\n```\n"
    files = {"train.py": TRAINER, "README.md": text}
    found = {m.key: m for m in audited(files).entries[0].measures}
    assert (found["precision"].state, str(found["precision"].evidence[0])) == (ON, "README.md:5")


def test_the_rest_of_a_command_line_is_no_value(audited: Auditor) -> None:
    found = measure(audited, "precision", TRAINER, run__sh='python train.py --bf16 "$@"\n')
    assert found.state is ON


def test_modules_that_are_named_in_strings(audited: Auditor) -> None:
    find = "import importlib\ndef find(name, modules):\n    for m in modules:\n        return getattr(importlib.import_module(m), name)\n"
    files = {
        "train.py": script(after=find, before="    model = find('Deep', ['nets.deep'])").replace(
            "    net = Net()\n", ""
        ),
        "nets/__init__.py": "",
        "nets/deep.py": "from torch import nn\nclass Deep(nn.Module):\n    def forward(self, x):\n        return nn.Conv2d(1, 2, 3)(x)\n",
    }
    found = {m.key: m for m in audited(files).entries[0].measures}
    assert (found["channels_last"].state, found["precision"].state) == (OFF, OFF)


HYDRA = {
    "train.py": """
import hydra
from lightning import LightningDataModule, LightningModule, Trainer

@hydra.main(version_base=None, config_path="conf", config_name="main")
def main(cfg):
    data = hydra.utils.instantiate(cfg.data)
    model = hydra.utils.instantiate(cfg.model)
    trainer: Trainer = hydra.utils.instantiate(cfg.trainer)
    trainer.fit(model, data)

if __name__ == "__main__":
    main()
""",
    "parts.py": """
from lightning import LightningDataModule, LightningModule
from torch import nn
from torch.utils.data import DataLoader

class Data(LightningDataModule):
    def __init__(self, workers):
        self.save_hyperparameters()

    def train_dataloader(self):
        return DataLoader(self.train, num_workers=self.hparams.workers)

class Model(LightningModule):
    def forward(self, x):
        return nn.Conv2d(1, 2, 3)(x)
""",
    "conf/main.yaml": "defaults:\n  - data: small\n  - model: one\n  - trainer: gpu\n  - _self_\n",
    "conf/data/small.yaml": "_target_: parts.Data\nworkers: 2\n",
    "conf/data/large.yaml": "_target_: parts.Data\nworkers: 0\n",
    "conf/model/one.yaml": "_target_: parts.Model\n",
    "conf/trainer/base.yaml": "_target_: lightning.Trainer\nprecision: 32\n",
    "conf/trainer/gpu.yaml": "defaults:\n  - base\n  - _self_\nprecision: bf16-mixed\n",
}


def test_what_hydra_composes_by_default(audited: Auditor) -> None:
    found = row(audited, HYDRA, "precision")
    assert (found.state, str(found.evidence[0])) == (ON, "conf/trainer/gpu.yaml:4")
    workers = row(audited, HYDRA, "workers")
    assert (workers.state, str(workers.evidence[0])) == (ON, "conf/data/small.yaml:2")
    assert row(audited, HYDRA, "channels_last").state is OFF
    assert row(audited, HYDRA, "monitoring").state is OFF


def test_a_configuration_that_is_one_object(audited: Auditor) -> None:
    """A file with `_target_` at its root, in a folder that nothing names as a part."""
    train = HYDRA["train.py"].replace('config_path="conf", config_name="main"', 'config_path="conf/trainer"')
    files = {
        **HYDRA,
        "train.py": train,
        "conf/main.yaml": "seed: 1\n",
        "conf/trainer/other.yaml": "precision: 16\n",
    }
    for name in ("base", "gpu"):
        files[f"conf/trainer/{name}.yaml"] = HYDRA["conf/trainer/base.yaml"]
    found = row(audited, files, "precision")
    assert (found.state, found.evidence[0].path) == (OFF, "conf/trainer/base.yaml")


def test_a_training_that_only_other_scripts_start(audited: Auditor) -> None:
    files = {"core.py": TRAINER, "fast.py": "from core import main\nif __name__ == '__main__':\n    main()\n"}
    assert {e.path for e in audited(files).entries} == {"core.py", "fast.py"}
    started = audited({**files, "run.sh": "python fast.py --bf16 True\n"}).entries
    assert {e.path for e in started} == {"fast.py"}


def test_a_scaler_that_takes_the_optimizer_trains(audited: Auditor) -> None:
    code = script().replace(
        "        loss.backward()\n        optimizer.step()\n", "        loss_scaler(loss, optimizer)\n"
    )
    assert measure(audited, "workers", code).state is not None


def test_a_method_that_hands_a_call_to_its_parts_runs_where_it_is_called_from_outside(
    audited: Auditor,
) -> None:
    own = """
class Deep(nn.Module):
    def gradient_checkpointing_enable(self):
        for block in self.blocks:
            block.gradient_checkpointing_enable()
"""
    off = "    model = Deep()\n    if args.amp:\n        model.gradient_checkpointing_enable()"
    assert measure(audited, "gradient_checkpointing", script(after=own, before=off)).state is OFF
    on = off.replace("    if args.amp:\n    ", "")
    assert measure(audited, "gradient_checkpointing", script(after=own, before=on)).state is ON


def full_precision(path: str) -> Finding:
    return Finding(
        rule="PTO753", name="full-precision-training", family="precision", severity=Severity.HIGH, path=path, span=Span(1, 1),
        symbol="", message="", when_wrong="", confidence=0.9, fingerprint="", features=(("often:step", 1.0),),
    )  # fmt: skip


def test_a_training_that_no_script_starts_weighs_less(audited: Auditor) -> None:
    entries = audited({"train.py": script()}).entries
    levels = [
        weighed(full_precision(path), 0.5, entries).level for path in ("train.py", "probe/classifier.py")
    ]
    assert levels == [Level.MODERATE, Level.LOW]


def test_what_is_made_when_it_is_missing(audited: Auditor) -> None:
    logger = """
from torch.utils.tensorboard import SummaryWriter

class Log:
    def __init__(self):
        self.writer = None
        self.steps = 0

    def push(self):
        if self.steps % 100 == 99:
            self.show()
        self.steps += 1

    def show(self):
        if self.writer is None:
            self.writer = SummaryWriter("runs")
"""
    code = script(after=logger, before="    log = Log()", step="        log.push()\n        loss = model(x)")
    assert measure(audited, "monitoring", code).state is ON


SETTINGS = """
import os
os.environ["FLOAT"] = "bf16"

class TrainConfig:
    jobs = 0

    def __init__(self, **kwargs):
        for name, value in kwargs.items():
            setattr(self, name, value)

def fit(config, **options):
    with torch.autocast("cuda", enabled=options.get("half", False)):
        model(1)
    return DataLoader(data, num_workers=config.jobs, pin_memory=os.environ["FLOAT"] == "bf16")
"""


def test_what_is_handed_on_by_name_class_and_environment(audited: Auditor) -> None:
    code = script(after=SETTINGS, before="    loader = fit(TrainConfig(jobs=3), half=args.amp)")
    assert measure(audited, "workers", code).detail.startswith("`num_workers` is 3")
    assert measure(audited, "pin_memory", code).state is ON
    assert measure(audited, "precision", code).detail.endswith("default of `--amp`")


def test_the_project_in_a_folder_states_its_own_torch(audited: Auditor) -> None:
    files = {
        "new/train.py": script(),
        "old/train.py": script(),
        "old/README.md": "pip install torch==1.13.1",
    }
    states = {e.path: next(m.state for m in e.measures if m.key == "compile") for e in audited(files).entries}
    assert states == {"new/train.py": OFF, "old/train.py": NONE}


def test_a_counter_is_not_its_first_value(audited: Auditor) -> None:
    own = """
class Run:
    def __init__(self):
        self.step = 0

    def work(self):
        self.step += 1
        if self.step > 10:
            torch.backends.cudnn.benchmark = True
        nn.Conv2d(1, 2, 3)
"""
    assert (
        measure(audited, "cudnn_benchmark", script(after=own, before="    Run().work()")).state
        is not State.OFF
    )


def test_calls_in_a_circle_end(audited: Auditor) -> None:
    """Parameters that many calls hand on took minutes, as each way to each of them was followed."""
    ways = "\n".join(f"    forward(x{i}, flag)" for i in range(12))
    own = "\n".join(f"class C{i}:\n  def forward(self, x, flag=None):\n    if flag:\n      torch.optim.SGD(p)\n    self.next.forward(x, flag)\n    self.more.forward(x, flag)" for i in range(30))  # fmt: skip
    code = script(after=f"{own}\ndef forward(x, flag):\n{ways}", before="    C1().forward(1, 2)")
    assert measure(audited, "fused_optimizer", code).state is not UNKNOWN
