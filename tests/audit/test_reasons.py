"""Rows name the option that decides them, not one that stands on the way to them."""

from __future__ import annotations

from ptopt.audit.advice import ADVICE, gaps
from ptopt.audit.published import worth
from ptopt.audit.values import Measure, State
from ptopt.impact import of_rule
from ptopt.report.audit import render
from tests.audit.conftest import Auditor
from tests.audit.test_measures import LOADER, script

OPTIONS = """
    import argparse

    def parse_args():
        parser = argparse.ArgumentParser()
        parser.add_argument("--train-data", type=str, default=None)
        parser.add_argument("--source", default="auto")
        parser.add_argument("--logs", type=str, default="./logs/")
        parser.add_argument("--workers", type=int, default=4)
        parser.add_argument("--dtype", default="amp_bf16")
        parser.add_argument("--accum-freq", type=int, default=1)
        parser.add_argument("--compiled", action="store_true")
        parser.add_argument("--fused-adam", action="store_true")
        return parser.parse_args()
"""
PRECISION = """
    from contextlib import suppress
    from functools import partial

    import torch

    def context_for(dtype, device):
        if dtype == "amp":
            return partial(torch.amp.autocast, device_type=device)
        if dtype == "amp_bf16":
            return partial(torch.amp.autocast, device_type=device, dtype=torch.bfloat16)
        return suppress
"""
TASK = """
    import torch

    class Task(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.model = torch.nn.Linear(1024, 1024)

        def compile(self):
            self.model = torch.compile(self.model)

        def forward(self, x):
            return self.model(x)
"""
TRAIN = """
    import re
    import torch
    from torch.utils.data import DataLoader
    from options import parse_args
    from precision import context_for
    from task import Task

    NUMBERS = re.compile("[0-9]+")

    def backward(loss, scaler):
        if scaler is not None:
            scaler.scale(loss).backward()
        else:
            loss.backward()

    def train(task, loader, optimizer, args):
        autocast = context_for(args.dtype, device="cuda")
        for x in loader:
            optimizer.zero_grad()
            if args.accum_freq == 1:
                with autocast():
                    loss = task(x)
                backward(loss, None)
            else:
                for _ in range(args.accum_freq):
                    with autocast():
                        loss = task(x)
                    backward(loss, None)
            optimizer.step()

    def main():
        args = parse_args()
        task = Task()
        if args.train_data or args.source == "synthetic":
            optimizer = torch.optim.AdamW(task.parameters(), lr=1e-3, fused=args.fused_adam)
        if args.compiled:
            task.compile()
        loader = DataLoader(data(), num_workers=args.workers)
        args.keeps = args.logs and args.logs.lower() != "none"
        for epoch in range(10):
            train(task, loader, optimizer, args)
            if args.keeps:
                torch.save(task.state_dict(), args.logs)

    if __name__ == "__main__":
        main()
"""
FILES = {"options.py": OPTIONS, "precision.py": PRECISION, "task.py": TASK, "train.py": TRAIN}


def row(audited: Auditor, key: str, more: dict[str, str] | None = None) -> Measure:
    entry = next(entry for entry in audited(FILES | (more or {})).entries if entry.path == "train.py")
    return next(measure for measure in entry.measures if measure.key == key)


def test_autocast_made_by_a_function_is_decided_by_what_the_function_is_given(audited: Auditor) -> None:
    found = row(audited, "precision")
    assert (found.state, found.detail) == (State.ON, "autocast bfloat16 (default of `--dtype`)")
    off = row(audited, "precision", {"options.py": OPTIONS.replace("amp_bf16", "fp32")})
    assert off.state is State.OFF


def test_compile_in_a_method_is_decided_by_the_condition_of_its_call(audited: Auditor) -> None:
    found = row(audited, "compile")  # `re.compile` is no call of `Task.compile`
    assert (found.state, found.detail) == (State.OFF, "`torch.compile`: off, default of `--compiled`")
    asked = TRAIN.replace("if args.compiled:", "if not args.compiled:")
    assert row(audited, "compile", {"train.py": asked}).state is State.ON


def test_an_optimizer_that_needs_data_to_be_named_is_off_by_its_own_option(audited: Auditor) -> None:
    found = row(audited, "fused_optimizer")
    assert (found.state, found.detail) == (State.OFF, "`AdamW` with `fused`: off, default of `--fused-adam`")
    asked = TRAIN.replace("fused=args.fused_adam", "fused=True")
    assert row(audited, "fused_optimizer", {"train.py": asked}).state is State.ON


def test_commands_that_differ_in_a_path_agree_that_something_is_saved(audited: Auditor) -> None:
    lines = "".join(f"python train.py --logs {path}\n" for path in ("./logs/", "/scratch/logs/"))
    assert row(audited, "saving", {"run.sh": lines}).state is State.ON
    lines += "python train.py --logs none\n"
    found = row(audited, "saving", {"run.sh": lines})
    assert (found.state, "`--logs` differs between 3 commands" in found.detail) == (State.UNKNOWN, True)


def test_micro_batches_whose_backward_pass_is_in_a_function_are_decided_by_their_option(
    audited: Auditor,
) -> None:
    found = row(audited, "accumulation")
    assert found.detail == "`args.accum_freq` micro-batches a step: off, default of `--accum-freq`"
    several = row(audited, "accumulation", {"run.sh": "python train.py --accum-freq 4\n"})
    assert several.state is State.ON


def test_the_evidence_of_an_option_is_its_line_in_a_command_over_several(audited: Auditor) -> None:
    found = row(audited, "workers", {"run.sh": "python train.py \\\n  --logs ./logs/ \\\n  --workers 6\n"})
    assert [str(place) for place in found.evidence][-1] == "run.sh:3"


OVERWRITTEN = """
    import argparse
    import json
    import torch
    from torch import nn
    from torch.nn.parallel import DistributedDataParallel
    from torch.utils.data import DataLoader


    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = nn.Linear(512, 512)

        def forward(self, x):
            return self.layers(x)


    def train(h, a):
        net = Net().cuda()
        if h.num_gpus > 1:
            net = DistributedDataParallel(net)
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        for x, y in DataLoader(pairs(), num_workers=h.num_workers, pin_memory=a.pin):
            loss = nn.functional.mse_loss(net(x.cuda()), y.cuda())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()


    def main():
        parser = argparse.ArgumentParser()
        parser.add_argument("--pin", default=True, type=bool)
        a = parser.parse_args()
        with open("config.json") as f:
            h = AttrDict(json.load(f))
        if torch.cuda.is_available():
            h.num_gpus = torch.cuda.device_count()
        {written}
        train(h, a)


    if __name__ == "__main__":
        main()
"""
CONFIG = '{"num_gpus": 0, "num_workers": 4, "batch_size": 16}'


def _overwritten(audited: Auditor, written: str = "pass") -> dict[str, Measure]:
    code = OVERWRITTEN.replace("{written}", written)
    (entry,) = audited({"train.py": code, "config.json": CONFIG}).entries
    return {measure.key: measure for measure in entry.measures}


def test_a_setting_that_the_script_overwrites_is_not_the_one_of_the_file(audited: Auditor) -> None:
    found = _overwritten(audited)["distributed"]
    assert found.state is State.ON
    (line,) = [n for n, text in enumerate(OVERWRITTEN.splitlines(), 1) if "h.num_gpus =" in text]
    assert [str(place) for place in found.evidence][1:] == [f"train.py:{line}"]


def test_what_overwrites_a_setting_or_an_option_decides(audited: Auditor) -> None:
    found = _overwritten(audited)
    assert (found["workers"].detail, found["pin_memory"].state) == ("`num_workers` is 4 (`num_workers` of config.json)", State.ON)  # fmt: skip
    found = _overwritten(audited, 'h["num_workers"] = 0; a.pin = False')
    assert (found["workers"].state, found["pin_memory"].state) == (State.OFF, State.OFF)
    other = _overwritten(audited, "other.num_workers = 0; other.pin = False")
    assert (other["workers"].state, other["pin_memory"].state) == (State.ON, State.ON)


def test_advice_names_the_option_of_the_framework_that_there_is(audited: Auditor) -> None:
    plain = {gap.key: gap.action for gap in audited({"train.py": script()}).gaps}
    assert "framework" not in plain["precision"] and "`precision" not in plain["precision"]
    fabric = script(before="    fabric = Fabric()").replace("loss.backward()", "fabric.backward(loss)")
    fabric = fabric.replace("import torch\n", "import torch\nfrom lightning.fabric import Fabric\n", 1)
    other = {gap.key: gap.action for gap in audited({"train.py": fabric}).gaps}
    assert 'Pass `precision="bf16-mixed"` to `Fabric`' in other["precision"]


def test_a_library_is_asked_for_its_attention_where_it_has_some(audited: Auditor) -> None:
    attend = """
class Attention(nn.Module):
    def forward(self, q, k, v):
        scores = q @ k.transpose(-2, -1)
        weights = scores.softmax(-1)
        return weights @ v
"""
    files = {"train.py": script(after=attend, before="    model = Attention()")}
    (gap,) = (gap for gap in gaps(audited(files).entries) if gap.key == "attention")
    assert "the library" not in gap.action


def test_a_figure_of_other_code_is_not_shown(audited: Auditor) -> None:
    """What starting workers costs was measured where it is nearly all that an epoch does."""
    code = script(before=LOADER.format(", num_workers=4")).replace("in loader:", "in epochs(loader):")
    audit = audited({"train.py": code})
    (gap,) = (gap for gap in audit.gaps if gap.key == "persistent_workers")
    assert gap.impact == ()
    for style in ("terminal", "markdown", "html"):
        assert "the known figures are of other code; measure it" in " ".join(render(style, audit).split())


def test_the_row_of_the_gradients_cites_the_call_that_clears_them(audited: Auditor) -> None:
    code = script(step="        optimizer.zero_grad()\n        loss = model(x).sum()")
    for pin in ("torch==1.7.0", "torch>=2.0"):
        (entry,) = audited({"train.py": code, "requirements.txt": pin}).entries
        found = next(row for row in entry.measures if row.key == "set_to_none")
        line = next(n for n, text in enumerate(code.split("\n"), 1) if "zero_grad" in text)
        assert [str(place) for place in found.evidence] == [f"train.py:{line}"]


def test_no_figure_of_inference_stands_beside_a_measure_of_a_training() -> None:
    assert "inference" in " ".join(impact.scope for impact in of_rule("cudnn-autotune-off"))
    figures = [impact.scope for key in ADVICE for impact in worth(key)]
    assert figures and not any("inference" in scope for scope in figures)
