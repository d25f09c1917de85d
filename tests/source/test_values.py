"""Light facts about expressions: each case asks about the value of the name `q` where it is printed."""

from __future__ import annotations

import ast
import textwrap

import pytest

from ptopt.source.file import SourceFile
from ptopt.source.value import Value

HEADER = "import torch\nimport numpy as np\nimport torch.nn.functional as F\nfrom torch import nn, Tensor\n"


# A tensor of a class that is made longer.
CACHE = """
class Cache:
    mask: {}[torch.Tensor, "batch before"]

    def append(self, new: {}[torch.Tensor, "batch new"]):
        longer = torch.cat([self.mask, new.to(self.mask.device)], dim=-1)
        ask(longer)
        self.mask = longer
"""


def _value(code: str) -> Value:
    file = SourceFile.parse("f.py", (HEADER + textwrap.dedent(code)).encode())
    call = next(
        c for c in file.index.of_type(ast.Call) if isinstance(c.func, ast.Name) and c.func.id == "ask"
    )
    return file.values.of(call.args[0])


@pytest.mark.parametrize(
    "code",
    [
        "q = torch.zeros(3)\nask(q)",
        "q = torch.zeros(3)\nq = q + 1\nask(q)",
        "def f(q: Tensor):\n    ask(q)",
        "def f(q):\n    if torch.is_tensor(q):\n        ask(q)",
        "def f(q):\n    if isinstance(q, torch.Tensor) and q.ndim:\n        ask(q)",
        "def f(q):\n    n, d = q.shape[0], q.device\n    ask(q)",
        "for q in model.parameters():\n    ask(q)",
        "for n, q in model.named_parameters():\n    ask(q)",
        "for q in group['params']:\n    ask(q)",
        "def f(xs: list[Tensor]):\n    for q in xs:\n        ask(q)",
        "def f(q: 'torch.Tensor | None'):\n    ask(q)",
        "def f(q: Float[Tensor, 'batch d_model']):\n    ask(q)",
        "def f(q: 'Float[torch.Tensor, \"batch d_model\"]'):\n    ask(q)",
        "def f(q: torch.tensor):\n    ask(q)",
        "d = {'a': torch.zeros(3), 'b': 1}\nq = d['a']\nask(q)",
        "def f(d):\n    if d is None:\n        d = {'a': torch.zeros(3)}\n    q = d['a']\n    ask(q)",
        "q = F.relu(x)\nask(q)",
        "q = x.unsqueeze(0)\nask(q)",
        "q, i = torch.zeros(3, 4).max(dim=1)\nask(q)",
        "a, q = torch.chunk(x, 2)\nask(q)",
        "q = torch.zeros(3)[0]\nask(q)",
        "q = torch.zeros(3) > 1\nask(q)",
        "loss = run()\nloss.backward()\nask(loss)",
        "loss = run()\nscaler.scale(loss).backward()\nask(loss)",
        "loss = run()\naccelerator.backward(loss)\nask(loss)",
        "q = criterion(a, b)\nask(q)",
        "for q in torch.arange(3):\n    ask(q)",
        "for i, q in enumerate(torch.arange(3)):\n    ask(q)",
        "for a, q in zip(names, torch.arange(3)):\n    ask(q)",
        "out = model(x)\nask(out.loss)",
        "def make():\n    return torch.ones(2)\nask(make())",
        "q = 0.0\nq += torch.ones(1)\nask(q)",
        "ask([torch.ones(1) for _ in range(3)][0])",
        "class M(nn.Module):\n    def __init__(self):\n        self.w = nn.Parameter(x)\n    def f(self):\n        ask(self.w)",
        "ask(max([torch.ones(1), torch.ones(1)]))",
    ],
)
def test_tensors(code: str) -> None:
    assert _value(code).kind == "tensor"


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        ("q = np.zeros(3)\nask(q)", "array"),
        ("q = x.detach().cpu().numpy()\nask(q)", "array"),
        ("q = loss.item()\nask(q)", "scalar"),
        ("q = torch.zeros(3).tolist()\nask(q)", "list"),
        ("q = torch.zeros(3).shape[0]\nask(q)", "scalar"),
        ("q = x.size(0)\nask(q)", "scalar"),
        ("q = torch.zeros(3) is None\nask(q)", "scalar"),
        ("q = len(torch.zeros(3))\nask(q)", "scalar"),
        ("for i, q in enumerate(names):\n    ask(i)", "scalar"),
        ("for q in range(3):\n    ask(q)", "scalar"),
        ("def f(q: int):\n    ask(q)", "scalar"),
        ("def f(q):\n    ask(q)", ""),
        ("def f(q):\n    if torch.is_tensor(q):\n        pass\n    else:\n        ask(q)", ""),
        ("def f(q):\n    d = q.device\n    ask(q)", ""),
        ("for q, p in model.named_parameters():\n    ask(q)", "text"),
        ("for q in loader:\n    ask(q)", ""),
        ("d = {'a': torch.zeros(3)}\nd['a'] = 1\nq = d['a']\nask(q)", ""),
        ("d = {'a': torch.zeros(3)}\nd = {'a': 1}\nq = d['a']\nask(q)", ""),
        ("ends = torch.zeros(3)\nq = [0] + ends + [3]\nask(q)", "list"),
        ("q = nn.Linear(3, 4)\nask(q)", "module"),
        ("q = torch.optim.Adam(p)\nask(q)", "optimizer"),
        ("q = torch.load('f')\nask(q)", ""),
        ("q = torch.device('cuda')\nask(q)", ""),
        ("def torch_like(torch):\n    q = torch.zeros(3)\n    ask(q)", ""),
        ("def f(q, loss):\n    q.backward(loss)\n    ask(q)", ""),
        ("def f(name):\n    name.view()\n    q = name.split('/')\n    ask(q)", "list"),
        ("loader = accelerator.prepare(loader)\naccelerator.backward(loss)\nask(accelerator)", ""),
        ("q = f'{torch.zeros(3)}'\nask(q)", "text"),
        ("q = q + 1\nask(q)", ""),
        ("q = torch.is_autocast_enabled()\nask(q)", "scalar"),
        ("q = torch.get_autocast_gpu_dtype()\nask(q)", ""),
        ("def f(src: Tensor):\n    ask(src.has_value())", "scalar"),
        ("def f(q: torch.Size):\n    q.numel()\n    ask(q)", ""),
        ("def f(q: 'Batch'):\n    q.view(3)\n    ask(q)", ""),
        ("def f(q):\n    q.view(3)\n    if isinstance(q, (list, tuple)):\n        ask(q)", "list"),
        ("ask(torch.zeros(3).shape[1:])", "list"),
        ("ask(criterion(a, b).data[0])", "scalar"),
        ("def f(q):\n    q.view(3)\n    if isinstance(q, int):\n        ask(q)", "scalar"),
        ("ask(torch.zeros(3).shape == torch.zeros(3))", "scalar"),
        ("ask(torch.zeros(3).size() != sizes)", "scalar"),
        ("def f(q):\n    kernel.backward(q, n, grad)\n    ask(q)", ""),
        ("ask(torch.autocast_decrement_nesting())", ""),
    ],
)
def test_other_kinds(code: str, kind: str) -> None:
    assert _value(code).kind == kind


@pytest.mark.parametrize(
    ("code", "device"),
    [
        ("ask(torch.zeros(3))", "cpu"),
        ("ask(torch.zeros(3, device=device))", "moved"),
        ("ask(torch.zeros(3, device='cpu'))", "cpu"),
        ("ask(torch.zeros(3).cuda())", "moved"),
        ("ask(torch.zeros(3).to(device))", "moved"),
        ("ask(torch.zeros(3).to(torch.float16))", "cpu"),
        ("ask(torch.zeros(3).to('cuda:0'))", "moved"),
        ("ask(x.detach().cpu())", "cpu"),
        ("x = torch.zeros(3, device=device)\nask(torch.zeros_like(x))", "moved"),
        ("ask(x.unsqueeze(0))", ""),
        ("where = torch.device('cpu')\nask(torch.zeros(3).cuda().to(where))", "cpu"),
        ("where = 'cpu'\nask(torch.zeros(3, device=where))", "cpu"),
        ("device = 'cpu'\nif gpu:\n    device = 'cuda'\nask(torch.zeros(3).to(device))", "moved"),
        ("where = torch.device('cpu')\nask(F.relu(net(x).to(where)))", "cpu"),
    ],
)
def test_devices(code: str, device: str) -> None:
    assert _value(code).device == device


@pytest.mark.parametrize(
    ("code", "graph"),
    [
        ("ask(torch.zeros(3))", False),
        ("ask(torch.zeros(3, requires_grad=True))", True),
        ("ask(criterion(a, b))", True),
        ("ask(criterion(a, b).detach())", False),
        ("ask(criterion(a, b) + 1)", True),
        ("ask(criterion(a, b).argmax(1))", False),
        ("ask(F.relu(x))", None),
        ("def f(mask: Int[torch.Tensor, 'batch tokens']):\n    ask(mask)", False),
        (CACHE.format("Int", "Int"), False),
        (CACHE.format("Int", "Float"), None),
        (CACHE.format("Float", "Int"), None),
        (
            "class C:\n    def __init__(self, n):\n        self.ids: Int[Tensor, 'n'] = n\n        ask(self.ids)",
            False,
        ),
        ("def f(model, a):\n    q = torch.cat([torch.zeros(3), nn.Parameter(a)])\n    ask(q)", True),
        ("def f(x: Float[torch.Tensor, 'batch tokens']):\n    ask(x)", None),
    ],
)
def test_graphs(code: str, graph: bool | None) -> None:
    assert _value(code).graph is graph


def test_the_variable_of_a_loop_is_seen_in_its_body_before_older_ones() -> None:
    code = """
    sizes = [torch.zeros(1) for _ in range(4)]
    numbers = [int(size.item()) for size in sizes]
    for size, row in zip(numbers, rows):
        ask(size)
    """
    assert _value(code).kind != "tensor"


def test_what_is_no_tensor_wherever_it_lies_asks_no_other_file(monkeypatch: pytest.MonkeyPatch) -> None:
    file = SourceFile.parse(
        "f.py", b"import torch\ndef f(x, mask: torch.Tensor):\n    return x > 1, mask > 1\n"
    )
    asked: list[str] = []
    monkeypatch.setattr(file.host, "works_on_host", lambda function: asked.append(function.name))
    unknown, known = file.index.of_type(ast.Compare)
    assert not file.values.is_tensor(unknown)
    assert not file.values.is_on_device(unknown)
    assert not asked
    assert file.values.is_on_device(known)
    assert asked == ["f"]
