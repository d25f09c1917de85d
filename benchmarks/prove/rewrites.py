"""Rewrites of tensor functions: 60 that are right, and 60 that are wrong in a way that a quick look does not see."""

from __future__ import annotations

import textwrap
from dataclasses import dataclass

HEAD = """\
import math
import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Float32, Int
from torch import Tensor

SCALE = 0.125


"""


@dataclass(frozen=True)
class Rewrite:
    """Bodies of a function before and after; `kind` says what is wrong with the second, if anything."""

    parameters: str
    before: str
    after: str
    kind: str = ""

    def source(self, body: str) -> str:
        return f"{HEAD}def function({self.parameters}):\n{textwrap.indent(body, '    ')}\n"


def _all(kind: str, *triples: tuple[str, str, str]) -> list[Rewrite]:
    return [Rewrite(parameters, before, after, kind) for parameters, before, after in triples]


_ND = 'x: Float[Tensor, "n d"]'
_N = 'x: Float[Tensor, "n"]'
_LOOP = "out = torch.zeros_like(x)\nfor i in range(x.shape[0]):\n    out[i] = "

GOOD = _all(
    "",
    # copies that nothing needs
    ("x: Tensor", "return x.clone().mean(dim=-1)", "return x.mean(dim=-1)"),
    ("x: Tensor", "return x.clone().exp() + 1", "return x.exp() + 1"),
    ("x: Tensor", "return x.clone().clone().sum()", "return x.sum()"),
    ("x: Tensor, y: Tensor", "return x.clone() * y.clone()", "return x * y"),
    ("x: Tensor", "return x.contiguous().clone().max()", "return x.max()"),
    ("a: Tensor, b: Tensor", "return torch.cat([a, b]).clone()", "return torch.cat([a, b])"),
    ("x: Tensor", "return x.float().cpu().double().float().exp()", "return x.float().exp()"),
    (_N, "return torch.tensor(x.tolist(), dtype=x.dtype)", "return x.detach().clone(memory_format=torch.contiguous_format)"),
    ("xs: list[Tensor]", "return torch.stack([x.clone() for x in xs])", "return torch.stack(xs)"),
    ("xs: list[Tensor]", "return [x.clone().relu() for x in xs]", "return [x.relu() for x in xs]"),
    # repeats where a view does
    (_ND, "return (x.unsqueeze(0).repeat(4, 1, 1) * 2.0).sum(0)", "return (x.unsqueeze(0).expand(4, -1, -1) * 2.0).sum(0)"),
    (_ND + ', b: Float[Tensor, "d"]', "return x + b.repeat(x.shape[0], 1)", "return x + b"),
    (_ND + ', w: Float[Tensor, "n"]', "return x * w.unsqueeze(1).repeat(1, x.shape[1])", "return x * w.unsqueeze(1)"),
    (_ND, "return x.repeat(3, 1).sum()", "return x.unsqueeze(0).expand(3, -1, -1).sum()"),
    # loops over elements, rows and pairs
    (_N, "return [v.item() for v in x]", "return x.tolist()"),
    (_N, "return [float(v) for v in x]", "return x.tolist()"),
    (_N, _LOOP + "x[i] * x[i]\nreturn out", "return x * x"),
    (_ND, _LOOP + "x[i].exp()\nreturn out", "return x.exp()"),
    (_ND, _LOOP + "x[i] / x[i].sum()\nreturn out", "return x / x.sum(1, keepdim=True)"),
    (_ND, _LOOP + "x[i] - x[i].mean()\nreturn out", "return x - x.mean(1, keepdim=True)"),
    (_N, "count = 0\nfor v in x:\n    if v.item() > 0:\n        count += 1\nreturn count", "return int((x > 0).sum())"),
    (_N, "return any(v.item() > 1 for v in x)", "return bool((x > 1).any())"),
    ("x: Tensor", "return all(bool(v == 0) for v in x.flatten())", "return bool((x == 0).all())"),
    (_N, "total = 0.0\nfor v in x:\n    total += v.item()\nreturn total", "return sum(x.tolist(), 0.0)"),
    (_ND, "out = []\nfor row in x:\n    out.append(row.sum().item())\nreturn out", "return x.sum(1).tolist()"),
    (_ND + ', i: Int[Tensor, "m"]', "return torch.cat([x[:0], *[x[k][None] for k in i.tolist()]])", "return x[i]"),
    ('x: Float32[Tensor, "n d"], y: Float32[Tensor, "m d"]',
     "out = torch.zeros(len(x), len(y), dtype=x.dtype)\nfor i in range(len(x)):\n    for j in range(len(y)):\n        out[i, j] = (x[i] * y[j]).sum()\nreturn out",
     "return (x[:, None] * y[None]).sum(-1)"),
    (_ND, "out = x.new_zeros(0, x.shape[1])\nfor row in x:\n    out = torch.cat([out, row[None]])\nreturn out", "return torch.cat([x])"),
    ("n: int", "return torch.tensor([i * 2.0 for i in range(1, n * n * 500 + 2)])", "return torch.arange(1, n * n * 500 + 2) * 2.0"),
    ("n: int", "k = n * n * 8\nm = torch.zeros(k, k)\nfor i in range(k):\n    m[i, i] = 1.0\nreturn m", "return torch.eye(n * n * 8)"),
    ("n: int", "k = n * n * 8\nm = torch.zeros(k, k, dtype=torch.bool)\nfor i in range(k):\n    m[i, :i + 1] = True\nreturn m",
     "return torch.ones(n * n * 8, n * n * 8, dtype=torch.bool).tril()"),
    ("n: int", "k = n * n * 5\nd = torch.zeros(k, k)\nfor i in range(k):\n    for j in range(k):\n        d[i, j] = abs(i - j)\nreturn d",
     "p = torch.arange(n * n * 5, dtype=torch.float32)\nreturn (p[:, None] - p).abs()"),
    # work that is done twice
    ("x: Tensor", "return torch.exp(x) / (1 + torch.exp(x))", "e = torch.exp(x)\nreturn e / (1 + e)"),
    ("x: Tensor", "return (x - x.mean()) * (x - x.mean())", "c = x - x.mean()\nreturn c * c"),
    ("x: Tensor", "return x.abs().max() + x.abs().min()", "a = x.abs()\nreturn a.max() + a.min()"),
    ("x: Tensor, y: Tensor", "return (x @ y) + (x @ y).relu()", "p = x @ y\nreturn p + p.relu()"),
    ("x: Tensor", "return x.sin() ** 2 + x.cos() + x.sin()", "s = x.sin()\nreturn s ** 2 + x.cos() + s"),
    ("x: Tensor", "out = x\nfor _ in range(6):\n    out = out + x.tanh()\nreturn out", "t = x.tanh()\nout = x\nfor _ in range(6):\n    out = out + t\nreturn out"),
    ("x: Tensor", "return [x.sort(-1).values * i for i in range(1, 4)]", "s = x.sort(-1).values\nreturn [s * i for i in range(1, 4)]"),
    ("x: Tensor, y: Tensor", "return [x.softmax(-1) @ y for _ in range(4)]", "p = x.softmax(-1)\nreturn [p @ y for _ in range(4)]"),
    ("x: Tensor", "return x.mean(-1), x.mean(-1) * 2", "m = x.mean(-1)\nreturn m, m * 2"),
    ("x: Tensor", "return x.argsort(-1).argsort(-1).sum() + 0 * x.argsort(-1).sum()", "i = x.argsort(-1)\nreturn i.argsort(-1).sum() + 0 * i.sum()"),
    # one function that does it
    ('x: Float[Tensor, "..."]', "return x * torch.sigmoid(x)", "return F.silu(x)"),
    ("x: Tensor", "return torch.clamp_min(x, 0).clone()", "return torch.clamp_min(x, 0)"),
    (_ND, "return x / torch.sqrt((x * x).sum(-1, keepdim=True) + 1e-6)", "return x * torch.rsqrt((x * x).sum(-1, keepdim=True) + 1e-6)"),
    (_ND, "m = x.mean(-1, keepdim=True)\nreturn ((x - m) ** 2).mean(-1) + 0 * m.squeeze(-1) + x.mean(-1)", "m = x.mean(-1)\nreturn ((x - m.unsqueeze(-1)) ** 2).mean(-1) + 0 * m + m"),
    (_ND, "return torch.clamp(torch.clamp(x, min=-1.0), max=6.0)", "return torch.clamp(x, min=-1.0, max=6.0)"),
    (_ND, "return torch.max(x, torch.zeros_like(x)).detach()", "return x.detach().relu()"),
    ('x: Float32[Tensor, "n d"], w: Float32[Tensor, "d m"], b: Float32[Tensor, "m"]', "return torch.mm(x, w).add(b)", "return torch.addmm(b, x, w)"),
    (_ND, "return torch.cat([x[:, :1], x[:, 1:2], x[:, 2:]], dim=1)", "return torch.cat([x], dim=1)"),
    (_ND, "return x.softmax(-1).argmax(-1)", "return x.softmax(-1).max(-1).indices"),
    (_ND + ', m: Bool[Tensor, "n d"]', "return torch.where(m, torch.full_like(x, -1.0), x)", "return x.masked_fill(m, -1.0)"),
    (_ND, "return torch.diag(torch.mm(x, x.t()))", "return torch.einsum('nd,nd->n', x, x)"),
    (_ND + ', w: Float[Tensor, "n"]', "return torch.mm(torch.diag(w), x)", "return w.unsqueeze(1) * x"),
    ('labels: Int[Tensor, "n"]', "return [int(v) for v in labels]", "return labels.tolist()"),
    ("x: Tensor", "return x.unsqueeze(0).expand(3, *x.shape).clone().sum(0)", "return x.expand(3, *x.shape).sum(0)"),
    # constants, changes in place, contexts
    (_ND, "return x * torch.full_like(x, SCALE)", "return x * SCALE"),
    (_ND, "x.copy_(x.clone() * 2)\nreturn x", "x.mul_(2)\nreturn x"),
    (_ND, "y = x.exp()\ny = y + 1\ny = y * 3\nreturn y", "return x.exp().add(1).mul_(3)"),
    ("x: Tensor", "with torch.no_grad():\n    y = x.clone()\n    return y + y.clone()", "with torch.no_grad():\n    return x + x"),
)  # fmt: skip

WRONG = (
    _all(
        "dtype",
        ("x: Tensor", "return x.float().mean(-1)", "return x.mean(-1)"),
        ("x: Tensor", "return x.sum() / x.numel()", "return x.mean()"),
        ("x: Tensor", "return x.clone().double().sum()", "return x.sum(dtype=torch.float32)"),
        ("x: Tensor", "return (x.clone() > 0).sum()", "return (x > 0).float().sum()"),
        (_N, "return torch.tensor([v.item() for v in x], dtype=torch.float64)", "return x.clone().detach()"),
        ("n: int", "return torch.tensor([float(i) for i in range(n * n * 300)])", "return torch.arange(n * n * 300)"),
        ("x: Tensor", "return x.clone() * torch.tensor(2.0).expand_as(x).clone()", "return x * 2"),
        (_ND, "return torch.zeros(x.shape[0], dtype=x.dtype).clone() + x.sum(1)", "return x.sum(1, dtype=torch.float32)"),
    )
    + _all(
        "aliasing",
        ("x: Tensor", "return x.clone()", "return x"),
        ("x: Tensor", "return x.clone().flatten()", "return x.flatten()"),
        (_ND, "return x[:, [0, 1]]", "return x[:, 0:2]"),
        ("x: Tensor", "return x.repeat(1, *[1] * (x.dim() - 1))", "return x.expand_as(x)"),
        ("x: Tensor", "y = x.clone()\ny += 1\nreturn y", "x += 1\nreturn x"),
        ("x: Tensor", "return x.clone().relu()", "return x.relu_()"),
        ("xs: list[Tensor]", "return [x.clone() for x in xs]", "return list(xs)"),
        ("x: Tensor, y: Tensor", "return (x.clone() * 2).add(y)", "return y.add_(x * 2)"),
        ("xs: list[Tensor]", "ys = list(xs)\nys.reverse()\nreturn torch.cat([y.clone() for y in ys])", "xs.reverse()\nreturn torch.cat(xs)"),
        ("x: Tensor", "return x.unsqueeze(0).repeat(3, *[1] * x.dim())", "return x.unsqueeze(0).expand(3, *x.shape)"),
        (_ND, "return x.t().contiguous().clone()", "return x.t().contiguous()"),
        ("x: Tensor, y: Tensor", "a = x.clone()\na.copy_(y)\nreturn a", "x.copy_(y)\nreturn x"),
    )
    + _all(
        "nan",
        ("x: Tensor", "return (x.clone() >= 0).all()", "return torch.logical_not((x < 0).any())"),
        (_ND, "return torch.where(x.clone() > 0, x, torch.zeros_like(x))", "return x.relu()"),
        (_N, "return max(v.item() for v in x)", "return x.max().item()"),
        (_ND, "return x.clone().clone().nan_to_num().sum(1)", "return x.sum(1)"),
        (_ND, "return x.sort(-1).values[:, -1].clone().nan_to_num(0.0)", "return x.nan_to_num(0.0).amax(-1)"),
        (_ND, "return (x * torch.zeros_like(x)).clone().sum(1)", "return x.new_zeros(x.shape[0])"),
        ('i: Int[Tensor, "n"], w: Float[Tensor, "7 d"]', "return F.one_hot(i, 7).to(w.dtype) @ w", "return F.embedding(i, w)"),
        (_ND, "return x.exp().sum(-1).log().clone().clone()", "return x.nan_to_num().logsumexp(-1)"),
    )
    + _all(
        "empty",
        (_ND, "return torch.stack([row * 2 for row in x])", "return x * 2"),
        (_ND, "return torch.cat([row[None] for row in x])", "return x.clone()"),
        (_N, "total = 0\nfor v in x:\n    total = total + v\nreturn total", "return x.sum()"),
        ("xs: list[Tensor]", "total = 0\nfor x in xs:\n    total = total + x.clone().sum()\nreturn total", "return torch.stack([x.sum() for x in xs]).sum()"),
        ("xs: list[Tensor]", "out = torch.zeros(0)\nfor x in xs:\n    out = torch.cat([out, x.clone().flatten()])\nreturn out",
         "return torch.cat([x.flatten() for x in xs])"),
        (_N, "return max([v.item() for v in x], default=0.0)", "return x.max().item()"),
        (_N, "return sum(v.item() for v in x) / max(len(x), 1)", "return x.mean().item()"),
    )
    + _all(
        "non-contiguous",
        (_ND, "return x.clone().reshape(-1).clone()", "return x.view(-1).clone()"),
        (_ND, "return x.contiguous().clone().view(-1)[::2].sum()", "return x.as_strided((x.numel(),), (1,))[::2].sum()"),
        (_ND, "return x.t().clone(memory_format=torch.contiguous_format)", "return x.t().clone()"),
        (_ND, "return x.clone(memory_format=torch.contiguous_format) * 1", "return x * 1"),
        (_ND, "return x.permute(1, 0).clone().contiguous().exp()", "return x.exp().permute(1, 0)"),
        (_ND, "return torch.stack([x[:, i] for i in range(x.shape[1])])", "return x.clone().t()"),
    )
    + _all(
        "broadcasting",
        (_ND + ', y: Float[Tensor, "n d"]', "return (x.clone() - y.clone()).sum(0)", "return x.sum(0) - y"),
        ("x: Tensor, y: Tensor", "return torch.stack([a * b for a, b in zip(x, y)])", "return x * y"),
        (_ND, _LOOP + "x[i] - x[i].mean()\nreturn out", "return x - x.mean(1)"),
        (_ND, _LOOP + "x[i] / x[i].norm()\nreturn out", "return x / x.norm()"),
        ('x: Float[Tensor, "n d"], w: Float[Tensor, "n"]', "return x * w[:, None].repeat(1, x.shape[1])", "return x * w"),
        ('x: Float[Tensor, "b n d"]', "return torch.stack([torch.diag(m @ m.t()) for m in x.clone()])", "return (x * x).sum(1)"),
        (_ND, "return torch.stack([x, x.clone()]).mean(0)", "return torch.stack([x, x.clone()]).mean()"),
    )
    + _all(
        "integer inputs",
        ("x: Tensor", "return (x.clone() / 2).floor()", "return x // 2"),
        ("x: Tensor", "return x.clone() ** -1.0", "return x ** -1"),
        ("x: Tensor", "return x.clone() * 0.5", "return x / 2 if x.is_floating_point() else (x / 2).to(x.dtype)"),
        ("x: Tensor", "return x.clone().float().var(-1)", "return x.var(-1)"),
        ('i: Int[Tensor, "n"], w: Float[Tensor, "7 d"]', "return torch.stack([w[k] for k in i.tolist()])", "return F.embedding(i.abs(), w)"),
        ("x: Tensor", "return -x.clone().float()", "return (-x).float()"),
    )
    + _all(
        "gradients",
        ("x: Tensor", "return x.clone().exp()", "return x.detach().exp()"),
        (_ND, "return (x.clone() * x.clone().mean()).sum(1)", "return (x * x.mean().item()).sum(1)"),
        (_ND, "return x.clone().clone().relu()", "with torch.no_grad():\n    return x.relu()"),
        (_ND, "return x.clone() / (x.clone().norm() + 1)", "return x / (x.detach().norm() + 1)"),
        (_ND, "return torch.sqrt(x.clone() * x.clone())", "return x.abs()"),
        (_ND, "return (x.abs().clone().clone() + 0.5).log().round()", "return (x.abs() + 0.5).log().detach().round()"),
    )
)  # fmt: skip
