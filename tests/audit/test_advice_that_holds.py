"""What is advised holds of the code: conditions under which advice is wrong, and which the code decides, are decided."""

from __future__ import annotations

import dataclasses

import pytest

from ptopt.audit.plan import plan
from ptopt.audit.values import Audit, Gap, Measure, State
from ptopt.findings import Fix, Safety
from tests.audit.conftest import Auditor


def row(audit: Audit, key: str) -> Measure:
    (entry,) = audit.entries
    return next(measure for measure in entry.measures if measure.key == key)


def advised(audit: Audit) -> set[str]:
    return {gap.key for gap in audit.gaps}


LIGHTNING = """\
import torch
import lightning as L
from torch import nn


class Model(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = nn.TransformerEncoderLayer(512, 8)

    def training_step(self, batch, index):
        return self.layer(batch).mean()

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=1e-3)


trainer = L.Trainer({arguments})
trainer.fit(Model(), torch.utils.data.DataLoader(torch.randn(100, 10, 512), num_workers=4))
"""


ITEMS = """\
import torch


def main(model, loader, optimizer):
    model = model.cuda()
    for images, labels in loader:
        weight = torch.tensor([1.0, 2.0]).cuda()
        loss = (model(images.cuda()) * weight).sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


main(torch.nn.Linear(2, 2), torch.utils.data.DataLoader(range(9)), None)
"""


@pytest.mark.parametrize(
    ("arguments", "requirement", "state"),
    [
        ('precision="bf16", gradient_clip_val=1.0', "lightning==2.2.1", State.NOT_APPLICABLE),
        ('precision="16-mixed", gradient_clip_val=1.0', "lightning>=2.0", State.NOT_APPLICABLE),
        ('precision="bf16-true", gradient_clip_val=1.0', "lightning==2.2.1", State.OFF),
        ('precision="bf16-mixed"', "lightning==2.2.1", State.OFF),
        ('precision="bf16-mixed", gradient_clip_val=0.0', "lightning==2.2.1", State.OFF),
        ("gradient_clip_val=1.0", "lightning==2.2.1", State.OFF),
        ('precision="bf16", gradient_clip_val=1.0', "pytorch-lightning==1.7.0", State.OFF),
    ],
)
def test_lightning_refuses_a_fused_optimizer_where_it_clips(
    audited: Auditor, arguments: str, requirement: str, state: State
) -> None:
    """Its AMP plugin raises since 1.8.1, with bfloat16, too."""
    audit = audited(
        {"train.py": LIGHTNING.replace("{arguments}", arguments), "requirements.txt": requirement}
    )
    found = row(audit, "fused_optimizer")
    assert found.state is state
    assert ("fused_optimizer" in advised(audit)) is (state is State.OFF)
    said = " ".join(step.title + step.command for phase in audit.plan for step in phase.steps)
    if state is State.NOT_APPLICABLE:
        assert "raises" in found.detail and [place.line for place in found.evidence] == [15, 18]
        assert "fused" not in said and "PTO701" not in said
        assert not any(each.finding.rule == "PTO701" for each in audit.findings)


def test_the_command_of_the_plan_selects_the_rule_of_the_fix(audited: Auditor) -> None:
    """A comment may carry the fix of another rule on its lines: `ptopt fix` applies it where that one is selected."""
    audit = audited({"train.py": ITEMS})
    each = audit.findings[0]
    finding = dataclasses.replace(each.finding, fix=Fix(Safety.UNSAFE, ()), fix_rule="PTO999")
    of_another = dataclasses.replace(each, finding=finding)
    (command,) = (step.command for phase in plan((), (of_another,)) for step in phase.steps)
    assert "--select PTO999" in command and each.finding.rule not in command


TRAINER = """\
from transformers import DataCollatorWithPadding, HfArgumentParser, Trainer, TrainingArguments


def main():
    (args,) = HfArgumentParser(TrainingArguments).parse_args_into_dataclasses()
    Trainer(make_model(), args, data_collator=DataCollatorWithPadding(tokenizer)).train()


main()
"""
LOOP = """\
import torch
from torch.utils.data import DataLoader


def collate(batch):
    return torch.nn.utils.rnn.pad_sequence([item["input_ids"] for item in batch], batch_first=True)


def main():
    model = torch.nn.TransformerEncoderLayer(512, 8).cuda()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    loader = DataLoader(Texts(), collate_fn=collate, num_workers=4)
    for epoch in range(10):
        for input_ids in loader:
            loss = model(input_ids.cuda()).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()


main()
"""


def gap(audit: Audit, key: str) -> Gap:
    (found,) = (gap for gap in audit.gaps if gap.key == key)
    return found


def test_advice_is_in_the_words_of_the_framework_of_the_script(audited: Auditor) -> None:
    own, trainer = audited({"train.py": LOOP}), audited({"train.py": TRAINER})
    for key, argument in (
        ("compile", "--torch_compile True"),
        ("tf32", "--tf32 True"),
        ("workers", "--dataloader_num_workers 4"),
        ("precision", "--bf16 True"),
    ):
        action = gap(trainer, key).action
        assert argument in action and "torch.compile(" not in action and "set_float32" not in action
    assert "torch.compile" in gap(own, "compile").action and "--" not in gap(own, "compile").action
    both = audited({"a/train.py": LOOP, "b/train.py": TRAINER})
    action = gap(both, "compile").action
    assert action.startswith("Wrap the model") and "With transformers: Set `torch_compile=True`" in action


@pytest.mark.parametrize(
    ("requirement", "precision"),
    [
        ("lightning>=2.0", 'precision="bf16-mixed"'),
        ("pytorch-lightning==1.9.0\ntorch==2.0", 'precision="bf16"'),
        ("pytorch-lightning==1.4.9\ntorch==1.9.0", "precision=16"),
    ],
)
def test_lightning_is_asked_for_its_precision(audited: Auditor, requirement: str, precision: str) -> None:
    audit = audited({"train.py": LIGHTNING.replace("{arguments}", ""), "requirements.txt": requirement})
    action = gap(audit, "precision").action
    assert f"Pass `{precision}` to the `Trainer`" in action and "torch.autocast" not in action


def test_a_version_that_lacks_the_argument_is_named(audited: Auditor) -> None:
    audit = audited({"train.py": TRAINER, "requirements.txt": "transformers>=4.20\ntorch>=2.1\n"})
    assert "It needs transformers 4.26 or later" in gap(audit, "compile").action


def test_shapes_that_vary_are_said_where_compilation_is_advised(audited: Auditor) -> None:
    """The row of padding decides this condition, so that it is no open one."""
    varies = gap(audited({"train.py": LOOP}), "compile")
    assert "The shapes vary" in varies.action and "dynamic=True" in varies.action
    assert "shapes change" not in varies.wrong_if
    of_trainer = gap(audited({"train.py": TRAINER}), "compile")
    assert "The shapes vary" in of_trainer.action and "dynamic=True" not in of_trainer.action
    unknown = gap(audited({"train.py": ITEMS}), "compile")
    assert "The shapes vary" not in unknown.action and "shapes change" in unknown.wrong_if


def test_what_rows_decide_is_not_left_open(audited: Auditor) -> None:
    audit = audited({"train.py": LOOP})
    assert "pinned" in gap(audit, "non_blocking").action
    assert "set `pin_memory=True` on it as well" in gap(audit, "non_blocking").action
    assert "does not pin" not in gap(audit, "non_blocking").wrong_if
    assert "convolutions" not in gap(audit, "tf32").wrong_if


OWN = """\
import argparse
import torch
from torch.utils.data import DataLoader, Dataset


class Rows(Dataset):
    def __init__(self, trainer=None):
        self.epoch, self.trainer, self.kept = 0, trainer, None

    def set_epoch(self, epoch):
        self.epoch = epoch

    def fill(self):
        self.kept = torch.ones(3)

    def __getitem__(self, index):
        return self.pick({item})

    def pick(self, index):
        return torch.ones(3) * index


def make_loader():
    return DataLoader(Rows(), num_workers=4)


def train(model, loader, optimizer, args):
    for step, x in enumerate(tqdm(loader), 1):
        loss = model(x.cuda()).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=10)
    args = parser.parse_args()
    model = torch.nn.Linear(3, 3).cuda()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    loader = make_loader()
    {loop}


if __name__ == "__main__":
    main()
"""
EPOCHS = "for epoch in range(args.epochs):\n        "


@pytest.mark.parametrize(
    ("loop", "change", "advised_on"),
    [
        ("train(model, loader, optimizer, args)", ("", ""), False),
        (f"{EPOCHS}train(model, loader, optimizer, args)", ("", ""), True),
        (f"{EPOCHS}train(model, loader, optimizer, args)", ("default=10", "default=1"), False),
        ("while True:\n        train(model, loader, optimizer, args)", ("", ""), True),
        ("train(model, itertools.cycle(loader), optimizer, args)", ("", ""), True),
        ("train(model, loader, optimizer, args)\n    train(model, loader, optimizer, args)", ("", ""), True),
        ("train(model, loader, optimizer, args)", ("in enumerate(tqdm(loader), 1)", "in range(9)"), True),
        ("train(model, loader, optimizer, args)", ("for step, x in", "for lr in (1, 2):\n      for step, x in"), True),
        ("train(model, make(loader), optimizer, args)", ("", ""), True),
    ],
)  # fmt: skip
def test_workers_are_kept_between_passes_only(
    audited: Auditor, loop: str, change: tuple[str, str], advised_on: bool
) -> None:
    """Where the loader is iterated once, by a loop or by one epoch, its workers start once anyhow."""
    code = OWN.replace("{loop}", loop).replace("{item}", "index")
    if "for lr" in change[1]:
        body = code[code.index("        loss = model(x") : code.index("\n\ndef main")]
        code = code.replace(body, "\n".join(f"  {line}" for line in body.splitlines()))
    if change[0]:
        assert change[0] in code
        code = code.replace(*change)
    audit = audited({"train.py": code})
    assert ("persistent_workers" in advised(audit)) is advised_on
    assert row(audit, "persistent_workers").state is (State.OFF if advised_on else State.NOT_APPLICABLE)


@pytest.mark.parametrize(
    ("item", "before", "advised_on"),
    [
        ("index", "loader.dataset.set_epoch(epoch)", True),
        ("index + self.epoch", "loader.dataset.set_epoch(epoch)", False),
        ("index + self.epoch", "loader.dataset.epoch = epoch", False),
        ("index + self.epoch", "print(epoch)", True),
        ("index + int(self.trainer.state.epoch)", "print(epoch)", False),
        ("index + self.trainer.args.num_epochs", "print(epoch)", True),
        ("index + self.trainer.args.seed", "print(epoch)", True),
        ("index if self.kept is None else self.kept", "loader.dataset.fill()", False),
    ],
)
def test_workers_are_not_kept_where_items_depend_on_the_epoch(
    audited: Auditor, item: str, before: str, advised_on: bool
) -> None:
    """A worker has the copy of the dataset that it was started with."""
    loop = f"{EPOCHS}{before}\n        train(model, loader, optimizer, args)"
    audit = audited({"train.py": OWN.replace("{loop}", loop).replace("{item}", item)})
    assert ("persistent_workers" in advised(audit)) is advised_on
    if not advised_on:
        assert "`Rows.__getitem__` reads `self." in row(audit, "persistent_workers").detail
        assert not any("ersistent" in step.title for phase in audit.plan for step in phase.steps)


@pytest.mark.parametrize(("epochs", "state"), [("1", State.NOT_APPLICABLE), ("3", State.OFF)])
def test_a_trainer_of_one_epoch_keeps_no_workers(audited: Auditor, epochs: str, state: State) -> None:
    command = f"python train.py --dataloader_num_workers 4 --num_train_epochs {epochs}\n"
    audit = audited({"train.py": TRAINER, "run.sh": command})
    assert row(audit, "persistent_workers").state is state
    audit = audited({"train.py": LIGHTNING.replace("{arguments}", f"max_epochs={epochs}")})
    assert row(audit, "persistent_workers").state is state


CONVOLVES = """\
import torch
from torch import nn
from torch.utils.data import DataLoader


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(nn.Conv2d(3, 64, 3), nn.ReLU(), nn.Conv2d(64, 64, 3))
        self.head = nn.Linear(64, 10)

    def forward(self, x):
        return self.head(self.features(x).mean((2, 3)))


class {batch}:
    def __init__(self, items):
        self.x = torch.stack(items)

    def to(self, device):
        self.x = self.x.to(device)
        return self


class Collate:
    def __call__(self, items):
        targets = None
        if items:
            targets = Batch(items)
        return {returned}


def main():
    model = Net().cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    loader = DataLoader(images, collate_fn=Collate(), num_workers=4, pin_memory=True)
    for epoch in range(10):
        for images, targets in loader:
            loss = model(images.to("cuda")).mean() + targets.to("cuda").x.mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()


main()
"""


def convolves(batch: str = "Batch", returned: str = "torch.stack(items), targets") -> str:
    return CONVOLVES.replace("{batch}", batch).replace("{returned}", returned)


def test_tf32_is_not_advised_where_nearly_all_convolves(audited: Auditor) -> None:
    """Convolutions use it by default."""
    audit = audited({"train.py": convolves()})
    found = row(audit, "tf32")
    assert found.state is State.OFF and "convolutions, nearly all of the work here" in found.detail
    assert "tf32" not in advised(audit)
    for old, new in (
        ("self.features(x).mean((2, 3))", "self.features(x).mean((2, 3)) @ self.features(x).mean((2, 3)).T"),
        ("self.head = nn.Linear(64, 10)", "self.head = nn.LSTM(64, 10)"),
        ("def main():", "def main():\n    torch.backends.cudnn.allow_tf32 = False"),
    ):
        assert old in convolves()
        assert "tf32" in advised(audited({"train.py": convolves().replace(old, new)}))


def test_figures_of_the_fused_update_are_those_of_such_networks(audited: Auditor) -> None:
    """They were measured with AdamW and linear layers."""
    of_images = gap(audited({"train.py": convolves()}), "fused_optimizer")
    assert of_images.other_figures and not of_images.impact
    with_adam = convolves().replace("optim.SGD", "optim.AdamW")
    assert gap(audited({"train.py": with_adam}), "fused_optimizer").other_figures
    with_adam = LOOP.replace("optim.SGD", "optim.AdamW")
    of_texts = gap(audited({"train.py": with_adam}), "fused_optimizer")
    assert of_texts.impact and not of_texts.other_figures
    assert gap(audited({"train.py": LOOP}), "fused_optimizer").other_figures


@pytest.mark.parametrize(
    ("batch", "reached"),
    [
        ("Batch", False),
        ("Batch(dict)", True),
        ("Batch(Elsewhere)", True),
        ("Batch:\n    def pin_memory(self):\n        return self\n\nclass Other", True),
    ],
)
def test_pinning_does_not_reach_a_class_without_a_method_for_it(
    audited: Auditor, batch: str, reached: bool
) -> None:
    audit = audited({"train.py": convolves(batch)})
    pinned, copied = row(audit, "pin_memory"), row(audit, "non_blocking")
    assert pinned.state is State.ON
    assert ("does not reach `Batch`" in pinned.detail) is not reached
    assert ("`Batch` is not in pinned memory" in copied.detail) is not reached
    assert ("method `pin_memory`" in gap(audit, "non_blocking").action) is not reached


def test_a_batch_of_which_nothing_is_pinned(audited: Auditor) -> None:
    audit = audited({"train.py": convolves(returned="targets")})
    assert row(audit, "pin_memory").state is State.OFF
    action = gap(audit, "pin_memory").action
    assert "method `pin_memory`" in action and "pin_memory=True" not in action


@pytest.mark.parametrize(
    ("given", "said", "left_out", "in_place"),
    [
        ("foreach=True", "`foreach=True` asks for the multi-tensor update", "loop over", True),
        ("foreach=False", "`foreach=False` updates the parameters one by one", "multi-tensor", False),
        ("foreach=make()", "`foreach` decides", "on CUDA", True),
        ("foreach=None", "multi-tensor update on CUDA", "one by one", False),
        ("fused=False, foreach=True", "`foreach=True` asks for the multi-tensor update", "CUDA", True),
        ("lr=0.1", "multi-tensor update on CUDA; torch>=1.12", "`foreach", False),
    ],
)
def test_a_fused_update_takes_the_place_of_foreach(
    audited: Auditor, given: str, said: str, left_out: str, in_place: bool
) -> None:
    """torch raises where both are true."""
    made = LOOP.replace("SGD(model.parameters(), 0.1)", f"AdamW(model.parameters(), {given})")
    audit = audited({"train.py": made, "requirements.txt": "torch>=1.12"})
    found = row(audit, "fused_optimizer")
    assert found.state is State.OFF and said in found.detail and left_out not in found.detail
    assert ("in place of `foreach`: torch raises" in gap(audit, "fused_optimizer").action) is in_place
    steps = [step.title for phase in audit.plan for step in phase.steps if "Fused" in step.title]
    assert ["in place of `foreach`" in title for title in steps] == [in_place]


@pytest.mark.parametrize(
    ("pinned", "copied", "state", "works"),
    [
        ("", "input_ids.cuda(non_blocking=True)", State.OFF, False),
        ("", "input_ids.pin_memory().cuda(non_blocking=True)", State.ON, True),
        (", pin_memory=True", "input_ids.cuda(non_blocking=True)", State.ON, True),
        (", pin_memory=pin()", "input_ids.cuda(non_blocking=True)", State.ON, True),
    ],
)
def test_copies_of_pageable_memory_are_not_praised(
    audited: Auditor, pinned: str, copied: str, state: State, works: bool
) -> None:
    code = LOOP.replace("num_workers=4", f"num_workers=4{pinned}").replace("input_ids.cuda()", copied)
    audit = audited({"train.py": code})
    found = row(audit, "non_blocking")
    assert found.state is state and ("without effect" in found.detail) is not works
    assert any(each.title == found.title for each in audit.good) is works
    assert "non_blocking" not in advised(audit)  # pinning is what is to be done
    if not works:
        assert "together with" not in gap(audit, "pin_memory").action
        assert "`non_blocking=True` of the copies has no effect" in gap(audit, "pin_memory").action


def test_pinning_goes_with_copies_that_do_not_wait(audited: Auditor) -> None:
    assert "together with `non_blocking=True`" in gap(audited({"train.py": LOOP}), "pin_memory").action
    free = LOOP.replace("input_ids.cuda()", "input_ids.cuda(non_blocking=True)")
    both = gap(audited({"train.py": LOOP, "free.py": free}), "pin_memory")
    assert len(both.entries) == 2 and "on the copies that lack it" in both.action


@pytest.mark.parametrize(
    ("images", "labels", "state", "casts"),
    [
        ("x.cuda()", "y.long().cuda()", State.OFF, True),
        ("x.cuda()", "y.cuda().long()", State.OFF, False),
        ("x.cuda()", "y.half().cuda()", State.OFF, False),  # fewer bytes to copy
        ("x.cuda(non_blocking=True)", "y.long().cuda(non_blocking=True)", State.ON, True),
        ("x.float().cuda(non_blocking=True)", "y.long().cuda(non_blocking=True)", State.UNKNOWN, True),
        ("x.cuda(non_blocking=True)", "y.cuda(non_blocking=True).long()", State.ON, False),
    ],
)
def test_a_tensor_that_a_cast_makes_on_the_host_is_not_pinned(
    audited: Auditor, images: str, labels: str, state: State, casts: bool
) -> None:
    """`labels.long().cuda(non_blocking=True)` waits, although the loader pins."""
    code = f"""
        import torch
        from torch import nn

        def main(model, data, optimizer):
            loader = torch.utils.data.DataLoader(data, num_workers=4, pin_memory=True)
            for x, y in loader:
                images = {images}
                labels = {labels}
                loss = nn.functional.cross_entropy(model(images), labels)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()

        if __name__ == "__main__":
            main(nn.Linear(8, 8), [], None)
    """
    audit = audited({"train.py": code})
    found = row(audit, "non_blocking")
    assert found.state is state
    assert ("what a cast makes is new, and not pinned" in found.detail) is casts
    if state is State.OFF:
        assert ("Move casts behind the copy" in gap(audit, "non_blocking").action) is casts
    good = [each.title for each in audit.good]
    assert ("Copies that do not wait" in good) is (state is State.ON and not casts)


def test_a_step_names_a_line_where_one_works(audited: Auditor) -> None:
    """That nothing is compiled is seen at the backward pass, and the model is wrapped elsewhere."""
    steps = [step for phase in audited({"train.py": ITEMS}).plan for step in phase.steps]
    (compiled,) = (step for step in steps if "torch.compile`" in step.title)
    assert compiled.title.startswith("train.py: torch.compile: ") and not compiled.places
    (copied,) = (step for step in steps if step.title.startswith("Copies that do not wait"))
    assert copied.places
