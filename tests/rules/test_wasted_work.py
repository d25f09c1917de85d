"""What the rules about wasted work say, and how sure they are."""

from __future__ import annotations

import textwrap

import pytest

from ptopt.rules import rules
from ptopt.rules.base import TEXTBOOK, Problem
from ptopt.rules.engine import run
from ptopt.source.file import SourceFile

_RULES = {rule.name: rule for rule in rules()}
_IMPORTS = "import cv2\nimport torch\nfrom torch import nn\nimport torch.nn.functional as F\n\n"


def _problems(name: str, code: str) -> list[Problem]:
    file = SourceFile.parse("model.py", (_IMPORTS + textwrap.dedent(code)).encode())
    return [hit.problem for hit in run(file, [_RULES[name]])]


def _forward(body: str) -> str:
    head = "class Net(nn.Module):\n    def forward(self, x, y, flag=False):\n"
    return head + textwrap.indent(textwrap.dedent(body).strip("\n"), "        ") + "\n"


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (
            "out = self.encoder(x)\nreturn y",
            "Nothing reads `out`: `self.encoder(x)` runs for nothing on each forward",
        ),
        ("a, b = self.encoder(x)\nreturn y", "Nothing reads `a` and `b`"),
        (
            "out = self.encoder(x)\nout = self.encoder(y)\nreturn out",
            "gives `out` another value before anything reads",
        ),
        (
            "out = self.encoder(x)\nsize = out.mean()\nreturn y",
            "Nothing reads `size`: `self.encoder(x)` (line 8) runs",
        ),
        (
            "a_loss = F.mse_loss(x, y)\nb_loss = self.lpips(x, y)\nc_loss = x.mean()\nreturn a_loss + c_loss",
            "`b_loss` is in no sum: line 11 adds up the other terms without it",
        ),
        (
            "if flag:\n    out = self.encoder(x)\nif not flag:\n    return out\nreturn y",
            "computed where `flag` decides one way and read (line 11) only where it decides the other",
        ),
    ],
)
def test_what_is_said_of_a_result_that_nobody_reads(body: str, said: str) -> None:
    (problem,) = _problems("result-never-read", _forward(body))
    assert said in problem.message
    assert problem.confidence == TEXTBOOK


@pytest.mark.parametrize(
    "body",
    [
        "_ = self.encoder(x)\nreturn y",  # on purpose
        "out = self.encoder(x, cache=y)\nreturn y",
        "kept = []\nout = self.encoder(x, kept)\nreturn kept",
        "out = self.quantizer(x)\nreturn y",
        "out = self.encoder(x)\nprint(locals())\nreturn y",
        "out = self.encoder(x)\ndef later():\n    return out\nreturn later",
        "out = self.model.load(x)\nreturn y",
        "out = self.model(x)\nreturn self.model.attention",  # kept by the run
        "try:\n    out = self.model(x)\nexcept RuntimeError:\n    y = y // 2\nreturn y",
        "out = self.encoder(x)\nself.out = out",
        "if flag:\n    out = self.encoder(x)\nif flag:\n    return out\nreturn y",
        "if flag:\n    out = self.encoder(x)\nelse:\n    out = y\nif not flag:\n    return out\nreturn out",
    ],
)
def test_effects_and_reads_are_left_alone(body: str) -> None:
    assert _problems("result-never-read", _forward(body)) == []


def test_what_a_method_without_arguments_may_use_is_stated_with_less() -> None:
    (problem,) = _problems("result-never-read", _forward("out = self.encoder(x)\nreturn self.heads()"))
    assert problem.confidence == 0.5


def test_one_run_more_beside_a_loop_of_them_is_stated_with_less() -> None:
    body = "out = self.decoder(x)\nfor t in y:\n    out = self.decoder(t)\n    x = x + out\nreturn x"
    (problem,) = _problems("result-never-read", _forward(body))
    assert problem.confidence == 0.5


@pytest.mark.parametrize(
    ("test", "stated"),
    [
        ("batch_idx != 0", TEXTBOOK),
        ("batch_idx % 10", TEXTBOOK),
        ("self.training", 0.6),
        ("y > self.bound", 0.4),
    ],
)
def test_how_often_an_exit_is_taken_decides(test: str, stated: float) -> None:
    code = f"""
        class Net(nn.Module):
            def validation_step(self, x, y, batch_idx):
                audio = self.vocoder(x)
                if {test}:
                    return y
                return audio
        """
    (problem,) = _problems("result-used-in-one-branch", code)
    assert problem.confidence == stated


@pytest.mark.parametrize("test", ["y is None", "len(y) == 0", "audio.mean() > 1", "not y"])
def test_rare_exits_and_those_that_read_the_result_are_left_alone(test: str) -> None:
    code = f"def step(self, x: torch.Tensor, y):\n    audio = self.vocoder(x)\n    if {test}:\n        return y\n    return audio\n"
    assert _problems("result-used-in-one-branch", code) == []


def test_what_a_class_in_a_function_assigns_is_left_aside() -> None:
    code = """
        def classes_of(model, x):
            class Inner:
                size = model.encode(x)

            y = model.encode(x)
            return Inner
    """
    assert len(_problems("result-never-read", code)) == 1
