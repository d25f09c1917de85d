"""Idioms of training code that decide a row, each in a small example."""

from __future__ import annotations

from ptopt.audit.values import Level, State
from tests.audit.conftest import Auditor
from tests.audit.test_measures import measure, script

ON, OFF, UNKNOWN, NONE = State.ON, State.OFF, State.UNKNOWN, State.NOT_APPLICABLE


def test_a_loop_over_sizes_to_test_that_trains_is_no_evaluation(audited: Auditor) -> None:
    code = """
import torch

def trial(model, loader, sizes_to_test):
    for size in sizes_to_test:
        model.train()
        optimizer = torch.optim.AdamW(model.parameters())
        for x in loader:
            loss = model(x)
            loss.backward()
            optimizer.step()

if __name__ == "__main__":
    trial(torch.nn.Linear(1, 1), data, [1, 2])
"""
    assert measure(audited, "evaluation", code).state is NONE
    after = code.replace(
        "        optimizer =", "        for x in test_data:\n            model(x)\n        optimizer ="
    )
    assert measure(audited, "evaluation", after).state is OFF


ACCUMULATES = """
import contextlib
import torch
from torch import nn
import torch.distributed as dist
{top}

def train(cfg):
    for i, x in enumerate(loader):
        update = (i + 1) % cfg.gradient_accumulation_steps == 0{last}
        if dist.is_initialized() and cfg.gradient_accumulation_steps > 1 and not update:
            context = model.no_sync()
        else:
            context = contextlib.nullcontext()
        with context:
            loss = model(x)
        loss.backward()
        if update:
            optimizer.step()

if __name__ == "__main__":
    model = nn.Linear(1, 1)
    train(TrainConfig())
"""
FIELDS = "from dataclasses import dataclass\n\n@dataclass\nclass TrainConfig:\n    gradient_accumulation_steps: int = {}\n"


def test_a_step_under_a_name_for_each_so_many_batches(audited: Auditor) -> None:
    for last in ("", " or i + 1 == len(loader)"):
        code = ACCUMULATES.format(top=FIELDS.format(4), last=last)
        found = measure(audited, "accumulation", code)
        assert found.state is ON and "TrainConfig" in found.detail, found
    other = ACCUMULATES.format(top="from options import TrainConfig", last="")
    assert measure(audited, "accumulation", other, options__py=FIELDS.format(8)).state is ON
    assert measure(audited, "accumulation", other, options__py=FIELDS.format(1)).state is OFF


def test_launch_scripts_of_slurm_are_read(audited: Auditor) -> None:
    code = script(before="    if args.amp:\n        model = torch.compile(net)")
    with_it, bare = "#!/bin/bash\npython train.py --lr 1 --amp\n", "torchrun --nproc_per_node=8 train.py\n"
    found = {e.path: e for e in audited({"train.py": code, "slurm/a.slurm": with_it}).entries}
    assert next(m for m in found["train.py"].measures if m.key == "compile").state is ON
    (entry,) = audited({"train.py": code, "slurm/a.slurm": with_it, "run.sh": bare}).entries
    row = next(m for m in entry.measures if m.key == "compile")
    assert row.state is UNKNOWN and "differs between 2 commands" in row.detail


def test_a_tracker_of_a_module_from_which_something_else_is_taken(audited: Auditor) -> None:
    code = "from whole import make\n" + script(before="    model = make()")
    whole = "import wandb\n\ndef make():\n    return 1\n\ndef train():\n    wandb.init()\n"
    assert measure(audited, "monitoring", code, whole__py=whole).state is OFF
    used = whole.replace("    return 1", "    wandb.init()\n    return 1")
    assert measure(audited, "monitoring", code, whole__py=used).state is ON


SETTINGS = """
from dataclasses import dataclass

@dataclass
class TrainConfig:
    log: bool = True
    compile: bool = False
    {}
"""
READS_SETTINGS = """
import argparse
import torch
import wandb
from torch import nn
import options

def train(settings):
    if settings.log and settings.compile is not None:
        wandb.init()
    model = nn.Linear(1, 1)
    if settings.compile:
        model = torch.compile(model)
    for x in loader:
        model(x).backward()
        optimizer.step()

def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--log", type=bool)
    parser.add_argument("--compile", type=bool)
    parser.add_argument("--no_log", action="store_true")
    args = parser.parse_args()
    settings = options.TrainConfig()
    if args.compile is not None:
        settings.compile = args.compile
    if args.no_log is True:
        settings.log = False
    train(settings)

if __name__ == "__main__":
    main()
"""


def test_an_option_of_the_same_name_as_a_field_that_is_read(audited: Auditor) -> None:
    options = SETTINGS.format("")
    found = measure(audited, "monitoring", READS_SETTINGS, options__py=options)
    assert found.state is ON and "wandb" not in found.detail, found
    off = measure(audited, "monitoring", READS_SETTINGS.replace("is True", "is False"), options__py=options)
    assert off.state is OFF, off
    # a class whose fields are set by name holds what the command line says
    by_name = READS_SETTINGS.replace("if args.no_log is True:", "for key, value in vars(args).items():")
    by_name = by_name.replace("settings.log = False", "setattr(settings, key, value)")
    assert measure(audited, "monitoring", by_name, options__py=options).state is OFF


def test_a_command_gives_a_field_its_option(audited: Auditor) -> None:
    options = SETTINGS.format("")
    code = READS_SETTINGS
    assert measure(audited, "compile", code, options__py=options).state is OFF
    given, bare = "python train.py --compile True\n", "python train.py --lr 1\n"
    assert measure(audited, "compile", code, options__py=options, a__sh=given).state is ON
    found = measure(audited, "compile", code, options__py=options, a__slurm=given, b__sh=bare)
    assert found.state is UNKNOWN and "differs between 2 commands" in found.detail, found
    always = code.replace("    if args.compile is not None:\n        settings", "    settings")
    always = always.replace('"--compile", type=bool', '"--compile", type=bool, default=True')
    assert measure(audited, "compile", always, options__py=options).state is ON


COLLATES = """
import torch

class Collator:
    def pad(self, batch, width):
        longest = max(len(tokens) for tokens in batch)
        return torch.stack([torch.nn.functional.pad(ids, (longest - len(ids), 0)) for ids in batch])

    def prepare(self, batch, max_length=None):
        if max_length is not None:
            length = max_length
        else:
            length = max(len(tokens) for tokens in batch)
        return self.pad(batch, length)

class Questions(Collator):
    def __init__(self, tokenizer, max_length):
        self.max_length = max_length

    def pad(self, batch, width):
        return torch.stack([torch.nn.functional.pad(ids, (width - len(ids), 0)) for ids in batch])

    def __call__(self, batch):
        return self.prepare(batch, max_length=self.max_length)
"""
MAKES = "    loader = DataLoader(data, collate_fn=Questions(tokenizer, {}))"


def test_a_collator_that_pads_to_what_it_is_given(audited: Auditor) -> None:
    top = "from collators import Questions"
    fixed = measure(audited, "padding", script(before=MAKES.format(512), after=top), collators__py=COLLATES)
    assert (fixed.state, fixed.detail) == (OFF, "sequences are padded to the maximum length")
    longest = script(before=MAKES.format(None), after=top)
    assert measure(audited, "padding", longest, collators__py=COLLATES).state is ON
    open_ = script(before=MAKES.format("cfg.width"), after=top)
    assert measure(audited, "padding", open_, collators__py=COLLATES).state is UNKNOWN
    inherits = (
        COLLATES
        + "\nclass Plain(Questions):\n    pass\n\nclass Words(Collator):\n    def __call__(self, batch):\n"
    )
    inherits += "        return self.pad(batch, 8)\n"
    words = script(
        before=MAKES.format(512).replace("Questions", "Words"), after="from collators import Words"
    )
    assert measure(audited, "padding", words, collators__py=inherits).state is ON


def test_a_dataset_that_packs(audited: Auditor) -> None:
    packs = "from collators import Questions\nfrom mine import ConstantLengthDataset"
    code = script(before="    data = ConstantLengthDataset(data)\n" + MAKES.format(512), after=packs)
    found = measure(audited, "padding", code, collators__py=COLLATES)
    assert (found.state, found.detail) == (ON, "sequences are packed or grouped by length")


def test_the_first_layer_of_a_vision_transformer_makes_no_convolutional_network(audited: Auditor) -> None:
    code = script(before="    net = nn.Conv2d(3, 768, kernel_size={}, stride={})")
    for sizes in (("p.size", "p.size"), ("16", "(16, 16)")):
        for key in ("channels_last", "cudnn_benchmark"):
            found = measure(audited, key, code.format(*sizes))
            assert found.state is NONE and "patches" in found.detail
    for sizes in (("3", "2"), ("1", "1")):
        assert measure(audited, "channels_last", code.format(*sizes)).state is OFF
    both = code.format("16", "16") + "\n\nblock = nn.Conv2d(3, 3, 3)\n"
    assert measure(audited, "channels_last", both).state is OFF


def test_an_option_of_accumulation_that_nothing_reads(audited: Auditor) -> None:
    code = "from options import TrainConfig\n" + script(before="    cfg = TrainConfig()\n    print(cfg.lr)")
    fields = FIELDS.format(8) + "    lr: float = 1e-3\n"
    assert measure(audited, "accumulation", code, options__py=fields).state is OFF


MEASURES = """
import torch
from torch import nn
from torch.utils.data import DataLoader

def measure(steps=2):
    model = nn.Conv2d(3, 3, 3)
    torch.cuda.reset_peak_memory_stats()
    for i, x in enumerate(DataLoader(images, batch_size=8)):
        if i >= steps:
            break
        loss = model(x).sum()
        loss.backward()
        optimizer.step()
    print(torch.cuda.max_memory_allocated())

if __name__ == "__main__":
    measure()
"""


def test_a_few_steps_that_are_measured_are_no_training(audited: Auditor) -> None:
    found = audited({"train.py": script(), "tools/steps.py": MEASURES})
    assert [entry.path for entry in found.entries] == ["train.py"]
    assert any(line.startswith("tools/steps.py: ") for line in found.not_judged)
    alone = audited({"tools/steps.py": MEASURES})
    assert [entry.path for entry in alone.entries] == ["tools/steps.py"]
    assert {gap.level for gap in alone.gaps} == {Level.LOW}
    assert "saving" not in {gap.key for gap in alone.gaps}


def test_a_training_that_logs_its_memory_is_one(audited: Auditor) -> None:
    for change in (
        ("        if i >= steps:\n            break\n", ""),
        ("steps=2", "steps=20_000"),
        ("    measure()", "    while not done:\n        measure()"),
        ("    print(torch", "    torch.save(model.state_dict(), 'model.pt')\n    print(torch"),
    ):
        code = MEASURES.replace(*change)
        assert code != MEASURES
        found = audited({"train.py": script(), "tools/steps.py": code})
        assert {entry.path for entry in found.entries} == {"train.py", "tools/steps.py"}


def test_the_table_does_not_deny_the_evaluation_of_a_finding(audited: Auditor) -> None:
    code = """
import torch
from torch import nn

def fit(model):
    for x, y in loader:
        model.train()
        loss = nn.functional.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()

def score(model, held_out):
    model.eval()
    total = 0.0
    for x, y in held_out:
        total += nn.functional.mse_loss(model(x), y).item()
    return total

if __name__ == "__main__":
    projector = nn.Linear(4, 4)
    fit(projector)
    print(score(projector, data))
"""
    found = audited({"tune.py": code})
    assert "evaluation-records-graph" in {each.finding.name for each in found.findings}
    (entry,) = found.entries
    row = next(m for m in entry.measures if m.key == "evaluation")
    assert row.state is OFF and row.evidence[0].path == "tune.py"


COUNTS = """
import torch

def main():
    net = torch.nn.Linear(1, 1).cuda()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    iter_size = 2
    count = 0
    for x in loader:
        loss = net(x).sum() / iter_size
        loss.backward()
        count += 1
        if count == iter_size:
            optimizer.step()
            optimizer.zero_grad()
            count = 0

if __name__ == "__main__":
    main()
"""


def test_a_counter_of_micro_batches(audited: Auditor) -> None:
    found = measure(audited, "accumulation", COUNTS)
    assert (found.state, found.detail) == (ON, "a step every `iter_size` micro-batches")
    assert measure(audited, "accumulation", COUNTS.replace("iter_size = 2", "iter_size = 1")).state is OFF
    # Without the reset it is one step of all: a warm-up, or an end.
    assert measure(audited, "accumulation", COUNTS.replace("            count = 0\n", "")).state is OFF


PARSES = """
import torch

class Trainer:
    def __init__(self, net, optimizer):
        self.net, self.optimizer = net, optimizer

    def train(self, loader):
        for batch in loader:
            inputs, targets = self.parse(batch)
            loss = (self.net(inputs) - targets).sum()
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()

    def parse(self, batch):
        raise NotImplementedError

class OfImages(Trainer):
    def parse(self, batch):
        images, _, ids = batch
        return images, ids.cuda()

if __name__ == "__main__":
    net = torch.nn.DataParallel(torch.nn.Linear(1, 1)).cuda()
    OfImages(net, torch.optim.SGD(net.parameters(), lr=0.1)).train(loader)
"""


def test_a_helper_copies_a_part_of_the_batch(audited: Auditor) -> None:
    found = measure(audited, "non_blocking", PARSES)
    assert (found.state, [place.line for place in found.evidence]) == (OFF, [22])
    net = PARSES.replace("images, _, ids = batch", "images, _, ids = self.models")
    assert measure(audited, "non_blocking", net).state is NONE


HELPED = """
import torch
from torch.autograd import Variable
from features import extract

def collect(model, loader):
    model.eval()
    found = []
    for images in loader:
        found.append(extract(model, images))
    return found

class Evaluator:
    def __init__(self, model):
        self.model = model

    def evaluate(self, loader):
        return collect(self.model, loader)

def main():
    model = torch.nn.Linear(1, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    evaluator = Evaluator(model)
    centres = collect(model, loader)  # whoever else calls it
    for x in loader:
        loss = model(x).sum()
        loss.backward()
        optimizer.step()
    evaluator.evaluate(val_loader)

if __name__ == "__main__":
    main()
"""
EXTRACT = "from torch.autograd import Variable\n\ndef extract(model, images):\n    return model(Variable(images{})).data\n"


def test_a_helper_makes_the_passes_of_an_evaluation(audited: Auditor) -> None:
    off = measure(audited, "evaluation", HELPED, features__py=EXTRACT.format(", volatile=True"))
    assert (off.state, off.detail) == (ON, "by `volatile`, as before torch 0.4")
    assert [str(place) for place in off.evidence] == ["features.py:4"]
    assert measure(audited, "evaluation", HELPED, features__py=EXTRACT.format("")).state is OFF
    unswitched = HELPED.replace("    model.eval()\n", "")
    assert measure(audited, "evaluation", unswitched, features__py=EXTRACT.format("")).state is NONE
