from __future__ import annotations

import dataclasses

import pytest

from ptopt.profiles.frames import Frame, Place, callee_of, frame_of, is_library
from ptopt.profiles.lines import Line, named_lines, own_paths
from ptopt.profiles.profile import Cost, Profile
from ptopt.profiles.reading import profile_of
from tests.profiles.traces import CODE, DATA, event, profile

CASES = """\
import torch


def forward(self, x, optimizer, scheduler, prof, mask):
    y = self.inner(x)
    if (y > 0).any():
        y = y + 1
    for batch in self.loader:
        float(y.sum())
    with torch.no_grad():
        y.view(-1).tolist()
    optimizer.step()
    scheduler.step()
    prof.step()
    z = (
        x.softmax(-1)
        .cumsum(0)
    )
    return x.relu(), y.relu()
"""


def line_of(callee: str, others: tuple[str, ...] = ()) -> tuple[int, ...]:
    frame = Frame("pkg/model.py", 4, "forward")
    costs = tuple(Cost(Place(frame, name), 0.1, 0.1, 0, 0, "") for name in (callee, *others))
    base = profile(event("cpu_op", "aten::mm", 0, 1))
    found = named_lines(dataclasses.replace(base, costs=costs), {"src/pkg/model.py": CASES})
    return found[0].lines


@pytest.mark.parametrize(
    ("callee", "lines"),
    [
        ("any", (6,)), ("tolist", (11,)), ("__next__", (8,)), ("__enter__", (10,)), ("aten::add", (7,)), ("aten::gt", (6,)),
        ("step", (12,)), ("scheduler.step", (13,)), ("profiler.step", (14,)), ("softmax", (16,)), ("cumsum", (17,)),
        ("relu", (19,)), ("aten::item", (6, 9)), ("nothing", ()), ("", ()),
    ],
)  # fmt: skip
def test_the_call_of_a_function_that_it_must_have_been(callee: str, lines: tuple[int, ...]) -> None:
    assert line_of(callee) == lines


def test_the_lines_of_a_recorded_run() -> None:
    found = profile_of(DATA / "data.json.gz", ["tests/profiles/data/train.py"])
    assert isinstance(found, Profile)
    lines = {line.cost.place.callee: line.lines for line in named_lines(found, {"repo/train.py": CODE})}
    text = CODE.split("\n")
    for callee, code in {
        "sleep": "time.sleep(self.seconds)", "backward": "loss.backward()", "step": "optimizer.step()",
        "profiler.step": "profiler.step()", "item": "losses += loss.item()", "nn.Module: Chatty": "output = model(x)",
        "zero_grad": "optimizer.zero_grad()", "cross_entropy": "loss = nn.functional.cross_entropy(output, y)",
    }.items():  # fmt: skip
        (line,) = lines[callee]
        assert text[line - 1].strip() == code


def test_of_files_with_the_same_end_the_one_with_the_function_is_meant() -> None:
    found = profile_of(DATA / "data.json.gz")
    assert isinstance(found, Profile)
    other = "def other():\n    pass\n"
    lines: tuple[Line, ...] = named_lines(found, {"a/train.py": other, "b/train.py": CODE, "xtrain.py": CODE})
    assert {line.path for line in lines} == {"b/train.py"}
    assert not named_lines(found, {"a/train.py": CODE, "b/train.py": CODE})  # either


def test_code_that_cannot_be_parsed_names_no_line() -> None:
    found = profile_of(DATA / "data.json.gz")
    assert isinstance(found, Profile)
    assert not named_lines(found, {"train.py": "def train(:\n"})
    assert not named_lines(found, {"train.py": "(" * 5000})


def test_names_of_frames() -> None:
    assert frame_of("a/b (1).py(12): f") == Frame("a/b (1).py", 12, "f")
    assert frame_of("<built-in method item of Tensor object>") is None
    assert callee_of("nn.Module: Linear_12") == "nn.Module: Linear"
    assert callee_of("<built-in method _local_scalar_dense of Tensor>") == "_local_scalar_dense"
    assert callee_of("/x/site-packages/torch/optim/optimizer.py(500): wrapper") == "step"


@pytest.mark.parametrize(
    "path", ["torch/nn/modules/module.py", "/x/lib/python3.11/threading.py", "<frozen os>", "threading.py", "/v/site-packages/own/a.py"]
)  # fmt: skip
def test_paths_of_libraries(path: str) -> None:
    assert is_library(path)


@pytest.mark.parametrize(
    "path", ["train.py", "src/model.py", "profile.py", "/home/user/project/torch_utils/a.py"]
)
def test_paths_of_the_user(path: str) -> None:
    assert not is_library(path)


def test_a_file_of_the_user_may_look_like_a_library() -> None:
    assert own_paths(["types.py", "torch/a.py", "json.py"], ["src/types.py"]) == {"types.py"}
