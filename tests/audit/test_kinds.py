"""Rows that readers found wrong: kinds of code, each in a small example of our own."""

from __future__ import annotations

import pytest

from ptopt.audit.values import Level, Measure, State
from ptopt.audit.weigh import weighed
from ptopt.findings import Finding, Severity, Span
from tests.audit.conftest import Auditor
from tests.audit.test_measures import LOADER, TRAINER, measure, script

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
        "set_defaults",
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
    # half precision that is chosen in one place and entered in another
    (
        "precision",
        script(before="    context = torch.cuda.amp.autocast if args.amp else None"),
        OFF,
        "default of `--amp`",
    ),
    (
        "precision",
        script(before="    if args.amp:\n        model.convert_to_fp16()"),
        OFF,
        "default of `--amp`",
    ),
    ("precision", script(before="    if kind == torch.float16:\n        pass"), OFF, "float32 throughout"),
    (
        "precision",
        script(
            before="    for part in net.modules():\n        if isinstance(part, Norm):\n            part.float()\n"
            "        else:\n            part.half()"
        ),
        ON,
        "`part.half()`",
    ),
    (
        "precision",
        script(before="    for sample in samples:\n        sample.half()"),
        OFF,
        "float32 throughout",
    ),
    # the optimizer
    ("fused_optimizer", script(before="    optimizer = make(torch.optim.Adam)"), OFF, "multi-tensor"),
    ("fused_optimizer", script(before="    optimizer = torch.optim.RAdam(p)"), NONE, "no fused update"),
    (
        "set_to_none",
        script(step="        for p in params:\n            p.grad.zero_()\n        loss = model(x)"),
        OFF,
        "by hand",
    ),
    (
        "set_to_none",
        script(step="        for p in params:\n            p.grad = None\n        loss = model(x)"),
        ON,
        "by hand",
    ),
    (
        "accumulation",
        script(
            step="        for _ in range(accum_steps):\n            loss.backward()",
            before="    accum_steps = 4",
        ),
        ON,
        "accum_steps",
    ),
    # what surrounds the steps
    (
        "monitoring",
        script(before="    if args.amp:\n        wandb.init()", after="import wandb"),
        OFF,
        "--amp",
    ),
    ("saving", script(before="    helpers.save_checkpoint_to_disk(model)"), ON, "synchronous"),
    (
        "saving",
        script(before="    pickle.dump(model.state_dict(), f)", after="import pickle"),
        ON,
        "synchronous",
    ),
    (
        "saving",
        script(
            after="from safetensors.torch import save_file",
            before="    if args.amp:\n        torch.save(model.state_dict(), 'm')\n    save_file(state_dict, 'n')",
        ),
        ON,
        "synchronous",
    ),
    (
        "saving",
        script(before="    torch.save({'accs': accs, 'code': text}, 'log.pt')"),
        OFF,
        "nothing is saved",
    ),
    (
        "saving",
        script(before="    log = dict(accs=accs)\n    torch.save(log, 'log.pt')"),
        OFF,
        "nothing is saved",
    ),
    (
        "saving",
        script(before="    torch.save({'accs': accs, 'net': net.state_dict()}, 'x')"),
        ON,
        "synchronous",
    ),
    ("saving", script(before="    torch.save({'accs': accs, **others}, 'x')"), ON, "synchronous"),
    (
        "saving",
        script(
            after="def save(model):\n    torch.save(model.state_dict(), 'm')",
            step="        if i % 10 == 0:\n            if score > best_score:\n                save(model)\n"
            "        if i % 70 == 0:\n            save(model)\n        loss = model(x)",
        ),
        ON,
        "every 70 of `i`,",
    ),
    (
        "saving",
        script(
            step="        if i % 10 == 0 and score > best:\n            torch.save(model.state_dict(), 'm')\n"
            "        loss = model(x)"
        ),
        ON,
        "every 10 of `i` where it is the best so far",
    ),
    (
        "monitoring",
        script(after="class Log:\n    def __init__(self):\n        import wandb\n        self.wandb = wandb"),
        OFF,
        "no experiment tracker",
    ),
    (
        "workers",
        script(
            after="def make(data, **kwargs):\n    return DataLoader(data, **kwargs)",
            before="    kwargs = {'num_workers': args.workers}\n    loader = make(data, **kwargs)",
        ),
        ON,
        "default of `--workers`",
    ),
    (
        "non_blocking",
        script(
            after="def prepare(batch):\n    return batch['x'].to(device)",
            step="        loss = model(prepare(x)).sum()",
        ),
        OFF,
        "wait",
    ),
    (
        "padding",
        script(
            after="def collate(batch):\n    n = max(a.shape[0] for a in batch)\n    annot = torch.zeros(n, 4)\n    return annot",
            before=LOADER.format(", collate_fn=collate"),
        ),
        NONE,
        "no tokenised",
    ),
    (
        "distributed",
        script(
            after="class Parallel(nn.DataParallel):\n    pass",
            before="    model = Parallel(model)",
        ),
        OFF,
        "DataParallel",
    ),
]


@pytest.mark.parametrize(("key", "code", "state", "said"), CASES)
def test_rows(audited: Auditor, key: str, code: str, state: State, said: str) -> None:
    found = measure(audited, key, code)
    assert (found.state, said in found.detail) == (state, True), found


def test_a_class_that_hands_its_arguments_on(audited: Auditor) -> None:
    derived = "class Loader(DataLoader):\n    def __init__(self, *args, **kwargs):\n        super().__init__(*args, **kwargs)\n"
    code = script(after=derived, before="    loader = Loader(data, num_workers=args.workers)")
    assert (measure(audited, "workers", code).state, measure(audited, "pin_memory", code).state) == (ON, OFF)


def test_a_loader_that_is_a_parameter(audited: Auditor) -> None:
    make = "def make(data, kind=DataLoader, **options):\n    return kind(data, **options)\n"
    code = script(after=make, before="    tr_loader = make(data, num_workers=3)\n    other = make(data)")
    assert measure(audited, "workers", code).state is ON


TIMM = "    loader_train = create_loader(data, is_training=True{})\n    loader_eval = create_loader(data, num_workers=0)"


@pytest.mark.parametrize(
    ("arguments", "key", "state", "said"),
    [
        ("", "workers", ON, "1 (the default of `create_loader` of timm)"),
        (", num_workers=args.workers", "workers", ON, "default of `--workers`"),
        ("", "pin_memory", OFF, "`create_loader` of timm"),
        ("", "persistent_workers", ON, "`create_loader` of timm"),
        (", persistent_workers=False", "persistent_workers", OFF, "False"),
        ("", "prefetch", ON, "2 for each worker"),
        ("", "non_blocking", ON, "`PrefetchLoader`"),
        (", use_prefetcher=args.amp", "non_blocking", OFF, "wait"),
    ],
)
def test_loaders_that_timm_makes(audited: Auditor, arguments: str, key: str, state: State, said: str) -> None:
    copy = "        if not args.amp:\n            x = x.cuda()\n        loss = model(x)"
    code = script(after="from timm.data import create_loader", before=TIMM.format(arguments), step=copy)
    found = measure(audited, key, code.replace("in loader:", "in loader_train:"))
    assert (found.state, said in found.detail) == (state, True), found


def test_a_function_of_the_repository_is_not_that_of_timm(audited: Auditor) -> None:
    own = "def create_loader(data, **options):\n    return DataLoader(data, num_workers=0)"
    assert measure(audited, "workers", script(after=own, before=TIMM.format(""))).state is OFF


def test_a_class_torch_does_not_know_is_no_loader(audited: Auditor) -> None:
    own = "class DataLoaderLite:\n    def __init__(self, data):\n        self.data = data\n"
    code = script(after=own, before="    loader = DataLoaderLite(data)")
    assert measure(audited, "workers", code).state is NONE


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
        ("The code was tested with PyTorch 1.6.", NONE),
        ("Install PyTorch 1.8 or later.", OFF),
        ("- [PyTorch](http://pytorch.org) install = 1.9.0", ON),
        ("PyTorch version: 1.9.0", ON),
        ("PyTorch version: 1.9 or later", OFF),
        ("Install [PyTorch](https://pytorch.org/)>=1.8.0:\n```\npip install torch==1.8.0+cu111\n```", ON),
        ("Install [PyTorch](https://pytorch.org/)>=1.8.0", OFF),
        ("It was developed with PyTorch 1.7.1, but should work with other versions.", OFF),
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


def test_attention_that_another_script_puts_in(audited: Auditor) -> None:
    nets = """
import types
from torch import nn
from torch.nn import functional as F
from transformers import T5ForConditionalGeneration

def attend(self, q, k, v):
    attention = F.softmax(q @ k, -1)
    return attention @ v

class Reader(T5ForConditionalGeneration):
    def replace_attention(self):
        self.layer.forward = types.MethodType(attend, self.layer)
"""
    train = script(after="from nets import Reader", before="    model = Reader.from_pretrained('x')")
    files = {"train.py": train, "nets.py": nets, "requirements.txt": "transformers==3.0.2\n"}
    other = {**files, "other.py": "from nets import Reader\nReader().replace_attention()\n"}
    assert "in `attend`" in row(audited, files, "attention").detail
    assert "transformers" in row(audited, other, "attention").detail


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


def test_an_evaluation_that_is_called_under_no_grad(audited: Auditor) -> None:
    code = script(
        after="def validate(model, val_loader):\n    for x in val_loader:\n        print(model(x))",
        before="    with torch.no_grad():\n        validate(model, val_loader)",
    )
    assert measure(audited, "evaluation", code).state is ON


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


def row(audited: Auditor, files: dict[str, str], key: str) -> Measure:
    (entry,) = audited(files).entries
    return next(m for m in entry.measures if m.key == key)


def test_what_hydra_composes_by_default(audited: Auditor) -> None:
    found = row(audited, HYDRA, "precision")
    assert (found.state, str(found.evidence[0])) == (ON, "conf/trainer/gpu.yaml:4")
    workers = row(audited, HYDRA, "workers")
    assert (workers.state, str(workers.evidence[0])) == (ON, "conf/data/small.yaml:2")
    assert row(audited, HYDRA, "channels_last").state is OFF
    assert row(audited, HYDRA, "monitoring").state is OFF


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


LOOPED = """
def save(model, step):
    torch.save(model.state_dict(), f"{step}.pt")
"""


@pytest.mark.parametrize(
    ("in_loop", "said"),
    [
        ("        save(model, step)\n", "in the loop, synchronous"),
        ("        if step % args.every == 0:\n            save(model, step)\n", "every 7 (default of `--every`) of `step`"),
        ("        if loss < best_loss:\n            save(model, step)\n", "where it is the best so far"),
        ("        if step in wanted:\n            save(model, step)\n", "in the loop, if `step in wanted`"),
        ("        pass\n    save(model, step)\n", "once, synchronous"),
        ("        if step % args.never == 0:\n            save(model, step)\n", "if `args.never` is set"),
    ],
)  # fmt: skip
def test_how_often_a_state_is_saved(audited: Auditor, in_loop: str, said: str) -> None:
    code = script(
        after=LOOPED,
        args="parser.add_argument('--every', default=7); parser.add_argument('--never', default=0)",
    ).replace("        optimizer.step()\n", f"        optimizer.step()\n{in_loop}")
    assert said in measure(audited, "saving", code).detail


def test_a_save_of_another_class_says_nothing(audited: Auditor) -> None:
    classes = """
class Agent:
    def save(self, path):
        torch.save(self.model.state_dict(), path)

class VideoRecorder:
    def save(self, path):
        write(path)
"""
    after = "        optimizer.step()\n        video.save(1)\n    agent.save(2)\n"
    code = script(after=classes, before="    agent, video = Agent(), VideoRecorder()")
    found = measure(audited, "saving", code.replace("        optimizer.step()\n", after))
    assert found.detail == "once, synchronous"


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


def test_an_evaluation_by_the_function_that_trains(audited: Auditor) -> None:
    own = "def run(model, loader):\n    for x in loader:\n        print(model(x))"
    called = script(after=own, before="    with torch.no_grad():\n        run(model, loader)")
    chosen = script(step="        with (nullcontext if x else torch.no_grad)():\n            loss = model(x)")
    assert measure(audited, "evaluation", called).state is ON
    assert measure(audited, "evaluation", chosen).state is ON


def test_a_data_set_that_is_called_a_loader(audited: Auditor) -> None:
    own = "from torch.utils.data import Dataset\nclass DataLoaderTrain(Dataset):\n    pass"
    code = script(
        after=own, before="    data = DataLoaderTrain(1)\n" + LOADER.format(", num_workers=args.workers")
    )
    assert measure(audited, "workers", code).state is ON


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


def test_what_is_called_fused_and_is_none(audited: Auditor) -> None:
    code = script(
        after="from apex.normalization import FusedLayerNorm as Norm\n"
        "def scaled_dot_product_attention(q, k, v):\n    return torch.softmax(q @ k, -1) @ v",
        before="    optimizer = torch.optim.Adam([Norm(3)])\n    scaled_dot_product_attention(q, k, v)",
    )
    assert measure(audited, "fused_optimizer", code).state is OFF
    assert measure(audited, "attention", code).state is OFF


def test_accumulation_of_any_number(audited: Auditor) -> None:
    step = "        if i % args.workers == 0:\n            optimizer.step()"
    assert (
        measure(audited, "accumulation", script().replace("        optimizer.step()", step)).state is ON
    )  # 4 by default
    whole = "        if i % 4 == 0:\n            loss.backward()\n            optimizer.step()"
    every = script().replace("        loss.backward()\n        optimizer.step()", whole)
    assert measure(audited, "accumulation", every).state is OFF


def test_a_batch_that_is_made_on_the_device(audited: Auditor) -> None:
    own = "def sample(memory):\n    return torch.tensor(memory.states, device='cuda'), torch.tensor(memory, device='cuda')"
    code = script(after=own, before="    sample(memory)")
    assert measure(audited, "non_blocking", code).state is OFF


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


def test_a_loader_of_training_and_validation_has_what_the_training_has(audited: Auditor) -> None:
    after = "def get(is_train):\n    return DataLoader(data, num_workers=4 if is_train else 1, pin_memory=not is_train)"
    code = script(before="    loader, other = get(is_train=True), get(is_train=False)", after=after)
    assert measure(audited, "workers", code).detail == "`num_workers` is 4"
    negated = code.replace("4 if is_train else 1", "1 if not is_train else 4")
    assert measure(audited, "workers", negated).detail == "`num_workers` is 4"


def test_a_flag_that_a_comparison_with_the_best_made(audited: Auditor) -> None:
    step = (
        "        best, stop, update = early_stopping(evaluate(), best)\n        loss = model(x).sum()\n"
        "        if update:\n            torch.save(net.state_dict(), 'm')\n"
    )
    assert measure(audited, "saving", script(step=step)).detail.startswith(
        "in the loop where it is the best so far"
    )


CLIPPED = """\
    scaler = torch.amp.GradScaler("cuda", enabled=args.amp)
    for x, y in loader:
        optimizer.zero_grad()
        with torch.autocast("cuda", enabled=args.amp):
            loss = net(x).sum()
        scaler.scale(loss).backward()
        torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
"""


@pytest.mark.parametrize(("default", "level"), [("store_true", Level.LOW), ("store_false", Level.MODERATE)])
def test_gradients_clipped_while_scaled_by_a_scaler_that_is_off(
    audited: Auditor, default: str, level: Level
) -> None:
    code = script(before=CLIPPED).replace("store_true", default)
    (found,) = (w for w in audited({"train.py": code}).findings if w.finding.name == "clipped-while-scaled")
    assert found.level is level, found.reason


TRAINERS = """
import torch
import lightgbm

class Trainer:
    def fit(self, loader):
        for epoch in range(9):
            self.train_epoch(loader)

class Network(Trainer):
    def train_epoch(self, loader):
        for x in loader:
            self.optimizer.zero_grad()
            self.net(x).sum().backward()
            self.optimizer.step()

    def fit(self, loader):
        for epoch in range(9):
            self.train_epoch(loader)
            if epoch % 3 == 0:
                torch.save(self.net.state_dict(), "n.pt")

class Trees({}):
    def train_epoch(self, loader):
        torch.save(self.model, "t.pt")

if __name__ == "__main__":
    for kind in (Network, Trees):
        kind().fit(data)
"""


def test_what_another_trainer_saves_is_not_of_this_one(audited: Auditor) -> None:
    row = measure(audited, "saving", TRAINERS.format("Trainer"))
    assert row.detail == "every 3 of `epoch`, synchronous"
    derived = measure(audited, "saving", TRAINERS.format("Network"))
    assert derived.detail.startswith("each epoch")


def test_a_save_under_an_option_that_commands_give_differently_does_not_hide_another(
    audited: Auditor,
) -> None:
    step = (
        "        for i, x in enumerate(loader):\n            if args.amp and i % 5 == 0:\n"
        "                torch.save(net.state_dict(), 'm')\n            if i % 7 == 0:\n"
        "                if evaluate() > best:\n                    torch.save(net.state_dict(), 'm')\n"
        "        loss = model(x).sum()\n"
    )
    commands = {"run__sh": "python train.py --amp\n", "other__sh": "python train.py\n"}
    row = measure(audited, "saving", script(step=step), **commands)
    assert row.detail == "every 7 of `i` where it is the best so far, synchronous"
