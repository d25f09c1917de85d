"""Rows are about the networks of which an optimizer gets the parameters: no teacher, no encoder that is only asked, no decoder of samples."""

from __future__ import annotations

import pytest

from ptopt.audit.values import Measure, State
from tests.audit.conftest import Auditor

NET = """
    import torch
    from torch import nn


    class Net(nn.Module):
        def __init__(self, width):
            super().__init__()
            self.layers = nn.Sequential(nn.Linear(width, width), nn.ReLU())

        def forward(self, x):
            return self.layers(x)


    def small():
        return Net(64)


    NETS = {"small": small}
"""
TEACHER = """
    import torch
    from torch import nn


    class Attention(nn.Module):
        def __init__(self, width):
            super().__init__()
            self.qkv = nn.Linear(width, 3 * width)
            self.conv = nn.Conv2d(3, width, 3, padding=1)

        def forward(self, x):
            q, k, v = self.qkv(self.conv(x).flatten(2).transpose(1, 2)).chunk(3, -1)
            attn = (q @ k.transpose(-2, -1)).softmax(dim=-1)
            return attn @ v


    class Teacher(nn.Module):
        def __init__(self, width=64):
            super().__init__()
            self.attention = Attention(width)

        def forward(self, x):
            return self.attention(x)
"""
TRAIN = """
    import torch
    from torch.utils.data import DataLoader
    from diffusers import AutoencoderKL
    from net import NETS, Net
    from teacher import Teacher


    def main(args):
        teacher = Teacher().cuda().eval()
        vae = AutoencoderKL.from_pretrained("vae").cuda()
        net = NETS[args.net]().cuda()
        BEFORE
        optimizer = torch.optim.AdamW(OPTIMIZED, lr=1e-4)
        for step, (images, x) in enumerate(DataLoader(data(), num_workers=4, pin_memory=True)):
            with torch.no_grad():
                wanted = teacher(images)
            loss = (net(x) - wanted).pow(2).mean()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            if step % 1000 == 0:
                with torch.no_grad():
                    samples = vae.decode(net(x)).sample


    if __name__ == "__main__":
        import argparse
        parser = argparse.ArgumentParser()
        parser.add_argument("--net", default="small")
        main(parser.parse_args())
"""


def rows(audited: Auditor, optimized: str = "net.parameters()", before: str = "pass", **files: str) -> dict[str, Measure]:  # fmt: skip
    train = TRAIN.replace("OPTIMIZED", optimized).replace("BEFORE", before)
    every = {"train.py": train, "net.py": NET, "teacher.py": TEACHER, **files}
    (entry,) = audited(every).entries
    return {measure.key: measure for measure in entry.measures}


@pytest.mark.parametrize("key", ["attention", "channels_last", "cudnn_benchmark"])
def test_a_teacher_and_a_decoder_of_samples_decide_no_row(audited: Auditor, key: str) -> None:
    found = rows(audited)[key]
    assert found.state is State.NOT_APPLICABLE
    assert "in what is trained" in found.detail


@pytest.mark.parametrize(
    "optimized",
    [
        "list(net.parameters()) + list(teacher.parameters())",
        "[p for each in (net, teacher) for p in each.parameters()]",
        "torch.nn.ModuleList([net, teacher]).parameters()",
    ],
)
def test_what_the_optimizer_gets_decides_them(audited: Auditor, optimized: str) -> None:
    found = rows(audited, optimized)
    assert found["attention"].state is State.OFF
    assert [place.path for place in found["attention"].evidence] == ["teacher.py"]
    assert [place.path for place in found["channels_last"].evidence] == ["teacher.py"]


def test_where_the_parameters_are_lost_all_that_runs_counts(audited: Auditor) -> None:
    found = rows(audited, "parameters_of(globals()[args.net])")
    assert found["attention"].state is State.OFF
    assert found["channels_last"].state is State.OFF


def test_a_network_through_which_gradients_go_decides_them_unless_it_is_frozen(audited: Auditor) -> None:
    through = TRAIN.replace("(net(x) - wanted)", "(teacher(net(x)) - wanted)").replace(
        "OPTIMIZED", "net.parameters()"
    )
    recorded = rows(audited, **{"train.py": through.replace("BEFORE", "pass")})
    assert recorded["attention"].state is State.OFF
    frozen = rows(audited, **{"train.py": through.replace("BEFORE", "teacher.requires_grad_(False)")})
    assert frozen["attention"].state is State.NOT_APPLICABLE


def test_a_network_that_is_handed_to_the_trained_one_is_a_part_of_it(audited: Auditor) -> None:
    both = NET.replace("def __init__(self, width)", "def __init__(self, width, encoder=None)").replace(
        "            self.layers", "            self.encoder = encoder\n            self.layers"
    )
    found = rows(audited, before="net = Net(64, teacher)", **{"net.py": both})
    assert found["attention"].state is State.OFF


def test_compiling_a_network_that_is_not_trained_does_not_tell_that_training_is_compiled(
    audited: Auditor,
) -> None:
    found = rows(audited, before="vae = torch.compile(vae)")["compile"]
    assert (found.state, found.detail) == (
        State.UNKNOWN,
        "`torch.compile`: of a network of which no optimizer gets the parameters",
    )
    assert rows(audited, before="net = torch.compile(net)")["compile"].state is State.ON


def test_the_forward_pass_of_a_teacher_in_each_step_is_no_evaluation(audited: Auditor) -> None:
    code = TRAIN.replace("teacher =", "encoder =").replace("teacher(images)", "encoder(images)")
    code = code.replace("OPTIMIZED", "net.parameters()").replace("BEFORE", "pass")
    found = rows(audited, **{"train.py": code})["evaluation"]
    line = next(n for n, text in enumerate(code.splitlines(), 1) if "samples = vae" in text) - 1
    assert [place.line for place in found.evidence] == [line]
    without = rows(audited, **{"train.py": code.replace("if step % 1000 == 0:", "if False:")})["evaluation"]
    assert (without.state, without.detail) == (
        State.NOT_APPLICABLE,
        "no evaluation seen beside the steps, parts of which run without a graph",
    )
