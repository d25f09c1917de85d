"""Values in host memory: each case asks about the value of the argument of `ask()`."""

from __future__ import annotations

import ast
import textwrap

import pytest

from ptopt.source.file import SourceFile
from ptopt.source.repository import Repository
from ptopt.source.value import Value

HEADER = "import torch\nimport numpy as np\nimport cv2\nfrom torch import nn, Tensor\n"


def _value(code: str, path: str = "f.py", around: dict[str, bytes] | None = None) -> Value:
    text = (HEADER + textwrap.dedent(code)).encode()
    file = SourceFile.parse(path, text, repository=Repository(around or {}))
    call = next(
        c for c in file.index.of_type(ast.Call) if isinstance(c.func, ast.Name) and c.func.id == "ask"
    )
    return file.values.of(call.args[0])


@pytest.mark.parametrize(
    "code",
    [
        pytest.param("def f(x: Tensor):\n    ask(x)\n    y = x.numpy()", id="numpy() raises elsewhere"),
        pytest.param("def f(x: Tensor):\n    ask(x)\n    y = np.mean(x)", id="NumPy"),
        pytest.param("def f(x: Tensor):\n    ask(x)\n    cv2.imwrite('f', x)", id="OpenCV"),
        pytest.param("def f(x: Tensor, axis):\n    ask(x)\n    axis.imshow(x)", id="plotting"),
        pytest.param(
            "class D(VisionDataset):\n    def plot(self, x: Tensor):\n        ask(x)", id="data set"
        ),
        pytest.param("x = outputs[0, -3:].cpu()\nask(x)", id="copied, of unknown kind"),
        pytest.param("x = outputs[0].cpu()\nask((x == y[0]).all())", id="compared with it"),
        pytest.param("x = outputs[0].cpu()\nask(x[2])", id="a part of it"),
        pytest.param("for x in outputs.cpu():\n    ask(x)", id="an item of it"),
        pytest.param("ask(torch.from_file('f', size=3))", id="a file mapped into memory"),
        pytest.param(
            """
            def mask(x: Tensor):
                ask(x)
                return x.clone()

            for x in loader:
                y = mask(x)
                y = y.to(device)
            """,
            id="its caller sends the result",
        ),
    ],
)
def test_on_the_host(code: str) -> None:
    assert _value(code).device == "cpu"


@pytest.mark.parametrize(
    "code",
    [
        pytest.param("def f(x: Tensor):\n    ask(x)\n    y = x.cpu().numpy()", id="copied first"),
        pytest.param(
            "def f(x: Tensor):\n    ask(x)\n    x = x.cpu()\n    y = x.numpy()", id="bound anew first"
        ),
        pytest.param("def f(x: Tensor):\n    ask(x)\n    y = np.mean(y)", id="another name"),
        pytest.param("class D(nn.Module):\n    def f(self, x: Tensor):\n        ask(x)", id="no data set"),
        pytest.param(
            """
            def mask(x: Tensor):
                ask(x)
                return x.to(device)

            y = mask(x)
            y = y.to(device)
            """,
            id="it sends something itself",
        ),
        pytest.param(
            """
            def mask(x: Tensor):
                ask(x)

            y = mask(x)
            y = y.to(device)
            z = mask(x)
            """,
            id="one caller does not send it",
        ),
    ],
)
def test_elsewhere_or_unknown(code: str) -> None:
    assert _value(code).device == ""


@pytest.mark.parametrize(
    "code",
    [
        "def f(x):\n    ask(x)\n    x = torch.FloatTensor(x).to(device)\n    return x.unsqueeze(0)",
        "def f(x):\n    ask(x)\n    y = torch.from_numpy(x)\n    return x.view(3), y",
        "def f(x):\n    ask(x)\n    x = np.flip(x)\n    x = torch.from_numpy(x).float()\n    return x.unsqueeze(0)",
    ],
)
def test_what_a_tensor_is_made_of_is_none_yet(code: str) -> None:
    assert _value(code).kind == "array"


def test_callers_in_other_files_count() -> None:
    mixup = "def mixup(data: Tensor):\n    ask(data)\n    return data\n"
    train = b"from lib import mixup\nfor data in loader:\n    data = mixup.mixup(data)\n    data = data.to(device)\n"
    assert _value(mixup, "lib/mixup.py", {"train.py": train}).device == "cpu"
    assert _value(mixup, "lib/mixup.py").device == ""
