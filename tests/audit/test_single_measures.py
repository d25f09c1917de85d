"""Rows of single measures that readers found wrong: loaders, precision, the optimizer, what is saved; each in a small example of our own."""

from __future__ import annotations

import pytest

from ptopt.audit.values import Level, State
from tests.audit.conftest import Auditor
from tests.audit.test_measures import LOADER, measure, row, script

ON, OFF, NONE = State.ON, State.OFF, State.NOT_APPLICABLE

CASES: list[tuple[str, str, State, str]] = [
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
        "each time that `i` is a multiple of 70",
    ),
    (
        "saving",
        script(
            step="        if i % 10 == 0 and score > best:\n            torch.save(model.state_dict(), 'm')\n"
            "        loss = model(x)"
        ),
        ON,
        "each time that `i` is a multiple of 10 where it is the best so far",
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


def test_an_evaluation_that_is_called_under_no_grad(audited: Auditor) -> None:
    code = script(
        after="def validate(model, val_loader):\n    for x in val_loader:\n        print(model(x))",
        before="    with torch.no_grad():\n        validate(model, val_loader)",
    )
    assert measure(audited, "evaluation", code).state is ON


LOOPED = """
def save(model, step):
    torch.save(model.state_dict(), f"{step}.pt")
"""


@pytest.mark.parametrize(
    ("in_loop", "said"),
    [
        ("        save(model, step)\n", "each pass of the loop, synchronous"),
        ("        if step % args.every == 0:\n            save(model, step)\n", "every 7 steps (default of `--every`)"),
        ("        if loss < best_loss:\n            save(model, step)\n", "where it is the best so far"),
        ("        if step in wanted:\n            save(model, step)\n", "each pass of the loop, if `step in wanted`"),
        ("        pass\n    save(model, step)\n", "once, synchronous"),
        ("        if args.every > 0 and step % args.every == 0:\n            save(model, step)\n        else:\n            save(model, 0)\n", "each pass of the loop, synchronous"),
        ("        if args.every > 0 and step % args.every == 0:\n            pass\n        else:\n            save(model, 0)\n", "if not `args.every > 0 and step % args.every == 0`"),
        ("        if step == 0:\n            save(model, 0)\n        elif step % 25 == 0:\n            save(model, step)\n", "every 25 steps, synchronous"),
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


def test_a_method_whose_parameters_a_call_does_not_give_is_not_called_by_it(audited: Auditor) -> None:
    code = """
import torch

class Learner:
    def __init__(self, model):
        self.model = model

    def train(self, loader, held_out):
        optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)
        for epoch in range(9):
            for x in loader:
                loss = self.model(x).sum()
                loss.backward()
                optimizer.step()
            self.validate(held_out)
        torch.save(self.model.state_dict(), "last.pt")

    @torch.no_grad()
    def validate(self, loader):
        self.model.eval()
        for x in loader:
            print(self.model(x))
        self.model.train()

if __name__ == "__main__":
    Learner(torch.nn.Linear(3, 3)).train([], [])
"""
    assert measure(audited, "saving", code).detail == "once, synchronous"


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
        "each pass of the loop where it is the best so far"
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
    assert row.detail == "every 3 epochs, synchronous"
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
    assert row.detail == "each time that `i` is a multiple of 7 where it is the best so far, synchronous"


APEX = script(
    after="from apex.fp16_utils import FP16_Optimizer\nfrom apex.parallel import DistributedDataParallel as DDP",
    before="    layer = nn.Linear(8, 8).cuda().half()\n    optimizer = FP16_Optimizer(torch.optim.SGD(p))\n    model = DDP(layer)",
)


def test_the_optimizer_and_the_wrapper_of_apex(audited: Auditor) -> None:
    found = measure(audited, "precision", APEX)
    assert (found.state, "float32 master weights" in found.detail) == (ON, True)
    assert measure(audited, "precision", APEX.replace(".half()", "")).state is not ON
    assert measure(audited, "precision", APEX.replace("from apex.fp16_utils", "from own")).state is not ON
    assert measure(audited, "distributed", APEX).detail.startswith("`DistributedDataParallel` of apex")


@pytest.mark.parametrize(
    ("share", "state"),
    [
        ("int((args.workers + n - 1) / n)", ON),
        ("(args.workers + torch.cuda.device_count() - 1) // torch.cuda.device_count()", ON),
        ("math.ceil(args.workers / n)", ON),
        ("(args.workers + n - 1) // m", State.UNKNOWN),
        ("int(args.workers / n)", State.UNKNOWN),
        ("math.ceil(args.others / n)", State.UNKNOWN),
    ],
)
def test_a_share_of_the_workers_that_is_rounded_up(audited: Auditor, share: str, state: State) -> None:
    loader = LOADER.format(", num_workers=args.workers")
    found = measure(audited, "workers", script(before=f"    args.workers = {share}\n{loader}"))
    assert (found.state, "and rounded up" in found.detail) == (state, state is ON)


@pytest.mark.parametrize(
    ("written", "state"),
    [
        ("    if args.amp:\n        args.pinned = False\n    else:\n        args.pinned = True\n", ON),
        ("    if not args.amp:\n        args.pinned = False\n    else:\n        args.pinned = True\n", OFF),
        (
            "    if other:\n        args.pinned = False\n    else:\n        args.pinned = True\n",
            State.UNKNOWN,
        ),
        ("    args.pinned = True\n    args.pinned = False\n", State.UNKNOWN),
    ],
)
def test_what_is_written_before_the_use(audited: Auditor, written: str, state: State) -> None:
    loader = LOADER.format(", pin_memory=args.pinned")
    assert measure(audited, "pin_memory", script(before=written + loader)).state is state
    behind = script(before=loader + "\n" + written)
    assert measure(audited, "pin_memory", behind).state is State.UNKNOWN


@pytest.mark.parametrize(
    ("code", "state"),
    [
        ("import tensorflow as tf\nwriter = tf.summary.FileWriter('logs')", ON),
        ("import tensorflow as tf\nwriter = tf.compat.v1.summary.FileWriter('logs')", ON),
        ("import tensorflow as tf\nwriter = tf.io.FileWriter('logs')", OFF),
    ],
)
def test_the_summary_writer_of_tensorflow(audited: Auditor, code: str, state: State) -> None:
    assert measure(audited, "monitoring", script(after=code)).state is state


@pytest.mark.parametrize(
    ("owner", "test", "state"),
    [("Contrast", "", NONE), ("Contrast", "if not self.training:", ON), ("Contrast_Eval", "", ON)],
)
def test_what_a_forward_computes_without_a_graph(
    audited: Auditor, owner: str, test: str, state: State
) -> None:
    """The key encoder of MoCo is a part of the step, and no evaluation."""
    net = (
        f"class {owner}(nn.Module):\n    def forward(self, x):\n        {test or 'if True:'}\n"
        "            with torch.no_grad():\n                k = self.encoder(x)\n        return self.net(x) - k"
    )
    found = measure(audited, "evaluation", script(after=net, before=f"    model = {owner}()"))
    assert found.state is state


def test_how_often_a_product_is_a_multiple(audited: Auditor) -> None:
    step = (
        "        batch_id_sp = epoch * batches\n        if batch_id_sp % 10 == 0:\n"
        "            torch.save(model.state_dict(), 'm')\n        loss = model(x).sum()"
    )
    found = measure(audited, "saving", script(step=step))
    assert found.detail == "each time that `epoch * batches` is a multiple of 10, synchronous"


COPIES = """
import torch

class Trainer:
    def __init__(self, policy, device):
        self.policy = policy
        self.optimizer = torch.optim.Adam(policy.parameters())
        self.to = {table}

    def update(self, sample):
        states, values = sample
        states = torch.from_numpy(states).to(**self.to)
        loss = self.policy(states).sum()
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()

    def train(self, buffer):
        for sample in buffer.batches():
            self.update(sample)

if __name__ == "__main__":
    Trainer(torch.nn.Linear(4, 4), torch.device("cuda")).train(Buffer())
"""


@pytest.mark.parametrize(
    ("table", "state"),
    [
        ("dict(dtype=torch.float32, device=device)", State.OFF),
        ('{"dtype": torch.float32, "device": device}', State.OFF),
        ("dict(dtype=torch.float32)", State.NOT_APPLICABLE),
    ],
)
def test_a_copy_with_its_arguments_in_a_table(audited: Auditor, table: str, state: State) -> None:
    measures = audited({"train.py": COPIES.replace("{table}", table)}).entries[0].measures
    assert next(measure for measure in measures if measure.key == "non_blocking").state is state
