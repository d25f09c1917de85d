"""Expressions that wait for the GPU, or do not: what they are, not what they do (`waits.py` measures that)."""

from __future__ import annotations

import ast
from dataclasses import dataclass

from ptopt.source.file import SourceFile

# In scope of every case, on the GPU unless said otherwise. The annotations are what a reader of the code would know.
SCOPE = """\
x, y = torch.rand(512, 512, device=device), torch.rand(512, 512, device=device)
v, w = torch.rand(4096, device=device), torch.rand(4096, device=device)
s, t = torch.tensor(2.0, device=device), torch.tensor(3.0, device=device)
n = torch.tensor(5, device=device)
b, c = torch.tensor(True, device=device), torch.tensor(False, device=device)
i = torch.randint(0, 500, (512,), device=device)
mask = torch.rand(512, 512, device=device) > 0.5
spd = x @ x.T + 512 * torch.eye(512, device=device)
linear = nn.Linear(512, 512).to(device)
"""
_HEADER = """\
import copy, logging, math
import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

def f(x: Tensor, y: Tensor, v: Tensor, w: Tensor, s: Tensor, t: Tensor, n: Tensor, b: Tensor, c: Tensor, i: Tensor,
      mask: Tensor, spd: Tensor, linear: nn.Linear, device):
"""


@dataclass(frozen=True, slots=True)
class Case:
    """`code` is measured after `given` has run."""

    code: str
    given: str = ""


def stated(case: Case) -> bool:
    """Does the static analysis see a wait on the lines of `code`? Raises SyntaxError for a case that does not parse."""
    body = [*case.given.splitlines(), *case.code.splitlines()]
    text = _HEADER + "".join(f"    {line}\n" for line in body)
    file = SourceFile.parse("case.py", text.encode())
    function = file.calls.functions[0]
    first = (function.end_lineno or 0) - len(case.code.splitlines()) + 1
    return any(_line(node) >= first for node in file.waits.in_iteration(function))


def _line(node: ast.AST) -> int:
    return int(getattr(node, "lineno", 0))


_READS = """\
x.sum().item()
float(s)
int(n)
bool(b)
v.tolist()
x.cpu()
x.to("cpu")
x.to("cpu", non_blocking=True)
x.type("torch.FloatTensor")
x.detach().cpu().numpy()
str(s)
repr(x)
f"{s}"
f"{s:.3f}"
"%.3f" % s
"{}".format(s)
math.sqrt(s)
round(s.item(), 3)
np.asarray(s.cpu())
logging.getLogger("quiet").debug("%s", s)
if b: pass
if s > 3: pass
if not b: pass
if b and c: pass
if torch.isnan(x).any(): pass
if (x > 2).any(): pass
assert torch.isfinite(x).all()
x if b else y
max(s, t)
min(3.0, s)
any([b, c])
all([b, b])
sorted([s, t])
s == 3
s != t
s is None
s in [3.0]
sum([s, t])
sum(v[:8])
range(n)
[0, 1, 2, 3, 4, 5][n]
torch.equal(x, y)
torch.allclose(x, y)
torch.isclose(x, y)
x.is_nonzero() if x.numel() == 1 else s.is_nonzero()
len(x)
x.shape[0]
x.numel()
x.data_ptr()
list(v[:8])
for e in v[:8]: pass
for row in x[:4]: row.sum()
"""
_SELECTS = """\
x[mask]
x[~mask]
x[x > 0.5]
x[mask] = 0
x[mask] = 0.5
x[mask] += 1
x[mask] = y[mask]
x[:, i]
x[i]
x[i] = 0
x[n]
x[:n]
x[n:]
x[0]
x[0, 1]
x[0] = 3.0
x[[0, 1, 2]]
x[:, [0, 1, 2]]
x[[0, 1, 2]] = 0
x[np.array([0, 1, 2])]
x[torch.arange(8)]
x[torch.arange(8, device=device)]
x[range(3)]
x[None, ..., :4]
x.index_select(0, i)
x.gather(1, i.unsqueeze(0))
x.masked_fill(mask, 0.0)
x.masked_fill(mask, s)
x.masked_select(mask)
x.masked_scatter(mask, y)
x.narrow(0, 0, 5)
x.narrow(0, n, 5)
x.take_along_dim(i.unsqueeze(0), 1)
x.index_add_(0, i, y)
x.scatter_add_(1, i.unsqueeze(0), y)
x.index_put_((i,), y)
x.index_fill_(0, i, 0.0)
torch.where(mask, x, y)
torch.where(mask)
torch.where(mask, x, 0.0)
mask.nonzero()
torch.nonzero(mask)
torch.argwhere(mask)
torch.nonzero_static(mask, size=64)
torch.count_nonzero(mask)
mask.sum()
mask.any()
x.unique()
torch.unique(i, return_counts=True)
torch.unique_consecutive(i)
torch.isin(i, i[:4])
torch.combinations(v[:16])
torch.bincount(i)
torch.bincount(i, minlength=512)
torch.histc(v, bins=16)
torch.histc(v, bins=16, min=0, max=1)
torch.bucketize(v, w[:16].sort().values)
torch.searchsorted(w[:16].sort().values, v)
torch.repeat_interleave(v[:512], i)
torch.repeat_interleave(v, 3)
v.repeat_interleave(3)
F.one_hot(i)
F.one_hot(i, 500)
F.one_hot(i, num_classes=500)
torch.zeros(512, 500, device=device).scatter_(1, i.unsqueeze(1), 1.0)
"""
_MAKES = """\
torch.tensor(3.0, device=device)
torch.tensor([1.0, 2.0], device=device)
torch.tensor([1.0, 2.0]).to(device)
torch.tensor([1.0, 2.0]).cuda()
torch.as_tensor([1.0, 2.0], device=device)
torch.from_numpy(np.ones(4)).to(device)
torch.zeros(4).to(device)
torch.zeros(4, device=device)
torch.zeros(4).to(device, non_blocking=True)
torch.full((4,), 3.0, device=device)
torch.arange(16, device=device)
torch.arange(n)
torch.arange(n, device=device)
torch.linspace(0, 1, 16, device=device)
torch.eye(16, device=device)
torch.rand(16, device=device)
torch.randn(16).to(device)
torch.randperm(1000, device=device)
torch.randperm(100_000, device=device)
torch.triu_indices(8, 8, device=device)
torch.ones(8, 8, device=device).triu()
torch.block_diag(x, y)
torch.cartesian_prod(v[:8], v[:8])
x.new_zeros(4)
x.new_tensor([1.0, 2.0])
torch.zeros_like(x)
x.fill_(3.0)
x.fill_(s)
x.clone()
x.half()
x.double()
x.to(torch.bfloat16)
x.to(device)
x.contiguous()
x.pin_memory() if not x.is_cuda else None
torch.cat([x, y])
torch.stack([x, y])
x.split([256, 256])
x.chunk(2)
x.unbind(0)
x.expand(512, 512)
v[0].expand(n)
x.repeat(2, 2)
x.roll(1)
x.roll(n.item())
"""
_COMPUTES = """\
x @ y
x + 1.0
x * s
x.add(y, alpha=2.0)
x ** s
x.clamp(max=s)
x.clamp(0, 1)
torch.lerp(x, y, s)
torch.einsum("ij,jk->ik", x, y)
torch.cdist(x, y)
x.sum()
x.mean(dim=0)
x.norm()
torch.linalg.norm(x)
x.max()
x.max(dim=1)
x.argmax(dim=1)
x.median()
x.quantile(0.5)
v.sort()
v.argsort()
v.topk(8)
v.kthvalue(8)
v.cumsum(0)
x.softmax(-1)
torch.nan_to_num(x)
torch.bernoulli(x)
torch.multinomial(x, 1)
torch.multinomial(x, 8, replacement=True)
torch.normal(x, y)
torch.poisson(x)
torch.linalg.inv(spd)
torch.linalg.inv_ex(spd)
torch.inverse(spd)
torch.linalg.solve(spd, x)
torch.linalg.cholesky(spd)
torch.linalg.cholesky_ex(spd)
torch.linalg.eigh(spd[:64, :64])
torch.linalg.eigvalsh(spd[:64, :64])
torch.linalg.svd(x[:64, :64])
torch.linalg.qr(x[:64, :64])
torch.linalg.det(spd)
torch.linalg.slogdet(spd)
torch.linalg.pinv(x[:64, :64])
torch.linalg.lstsq(x[:64, :64], y[:64, :64])
torch.linalg.matrix_rank(x[:64, :64])
torch.fft.fft(x)
torch.stft(v, 256, window=torch.hann_window(256, device=device), return_complex=True)
torch.distributions.Normal(x, y + 1)
torch.distributions.Normal(x, y + 1, validate_args=False)
torch.distributions.Categorical(logits=x)
torch.distributions.Categorical(logits=x, validate_args=False).sample()
torch.distributions.Bernoulli(probs=x).sample()
"""
_NETWORK = """\
linear(x)
F.cross_entropy(x, i)
F.cross_entropy(x, i, ignore_index=3)
F.nll_loss(x.log_softmax(-1), i)
F.mse_loss(x, y)
F.embedding(i, x)
F.embedding(i, x, max_norm=1.0)
F.embedding_bag(i, x, torch.arange(0, 512, 8, device=device))
F.dropout(x)
F.interpolate(x.view(1, 1, 512, 512), scale_factor=2.0)
F.grid_sample(x.view(1, 1, 512, 512), torch.rand(1, 64, 64, 2, device=device))
F.pad(x, (1, 1))
F.scaled_dot_product_attention(x.view(1, 8, 64, 512), x.view(1, 8, 64, 512), x.view(1, 8, 64, 512))
linear.state_dict()
linear.train()
linear.eval()
linear.to(device)
linear.zero_grad()
copy.deepcopy(linear)
sum(p.numel() for p in linear.parameters())
sum(p.norm() for p in linear.parameters())
torch.stack([p.norm() for p in linear.parameters()]).norm()
nn.utils.parameters_to_vector(linear.parameters())
nn.utils.rnn.pad_sequence([v[:8], v[:4]])
torch.cuda.synchronize()
torch.cuda.current_stream().synchronize()
torch.cuda.empty_cache()
torch.cuda.memory_allocated()
torch.cuda.max_memory_allocated()
torch.cuda.mem_get_info()
torch.cuda.current_stream().query()
torch.cuda.Event().record()
"""
_MADE = "linear(x).sum().backward()"
CASES = tuple(
    Case(line) for block in (_READS, _SELECTS, _MAKES, _COMPUTES, _NETWORK) for line in block.splitlines()
) + (
    # Copies between host and device, by where the host's side lies.
    Case("h.to(device)", "h = torch.zeros(512, 512)"),
    Case("h.cuda()", "h = torch.zeros(512, 512)"),
    Case("h.to(device, non_blocking=True)", "h = torch.zeros(512, 512)"),
    Case("h.to(device)", "h = torch.zeros(512, 512).pin_memory()"),
    Case("h.to(device, non_blocking=True)", "h = torch.zeros(512, 512).pin_memory()"),
    Case("h.copy_(x)", "h = torch.zeros(512, 512)"),
    Case("h.copy_(x, non_blocking=True)", "h = torch.zeros(512, 512).pin_memory()"),
    Case("x.copy_(h)", "h = torch.zeros(512, 512)"),
    Case("x.copy_(h, non_blocking=True)", "h = torch.zeros(512, 512).pin_memory()"),
    Case("x * h", "h = torch.tensor(2.0)"),
    Case("x[h]", "h = torch.arange(8)"),
    Case("x[0] = h", "h = torch.tensor(2.0)"),
    Case("x[k]", "k = 3"),
    Case("x[h]", "h = torch.tensor(3)"),
    Case(
        "torch.repeat_interleave(v[:512], repeats, output_size=1536)",
        "repeats = torch.full((512,), 3, device=device)",
    ),
    # Optimizers and what stands around them.
    *(
        Case("optimizer.step()", f"optimizer = torch.optim.{made}\n{_MADE}")
        for made in (
            "SGD(linear.parameters(), lr=0.1)",
            "SGD(linear.parameters(), lr=0.1, momentum=0.9)",
            "Adam(linear.parameters())",
            "AdamW(linear.parameters(), fused=True)",
            "AdamW(linear.parameters(), foreach=False)",
            "AdamW(linear.parameters(), amsgrad=True)",
            "RMSprop(linear.parameters())",
            "Adagrad(linear.parameters())",
        )
    ),
    Case("optimizer.zero_grad()", f"optimizer = torch.optim.Adam(linear.parameters())\n{_MADE}"),
    Case("nn.utils.clip_grad_norm_(linear.parameters(), 1.0)", _MADE),
    Case("nn.utils.clip_grad_norm_(linear.parameters(), 1.0, error_if_nonfinite=True)", _MADE),
    Case("nn.utils.clip_grad_value_(linear.parameters(), 1.0)", _MADE),
    Case("loss.backward()", "loss = linear(x).sum()"),
    Case("torch.autograd.grad(loss, list(linear.parameters()))", "loss = linear(x).sum()"),
    Case(
        "with torch.autograd.detect_anomaly(check_nan=True):\n    loss.backward()",
        "loss = linear(x).sum()",
    ),
    Case(
        "scaler.step(optimizer)",
        "optimizer = torch.optim.SGD(linear.parameters(), lr=0.1)\nscaler = torch.amp.GradScaler()\n"
        "scaler.scale(linear(x).sum()).backward()",
    ),
    Case(
        "scaler.unscale_(optimizer)",
        "optimizer = torch.optim.SGD(linear.parameters(), lr=0.1)\nscaler = torch.amp.GradScaler()\n"
        "scaler.scale(linear(x).sum()).backward()",
    ),
    Case(
        "scaler.update()",
        "optimizer = torch.optim.SGD(linear.parameters(), lr=0.1)\nscaler = torch.amp.GradScaler()\n"
        "scaler.scale(linear(x).sum()).backward()\nscaler.step(optimizer)",
    ),
    Case("scaler.get_scale()", "scaler = torch.amp.GradScaler()\nscaler.scale(s)"),
    Case("scaler.scale(s)", "scaler = torch.amp.GradScaler()\nscaler.scale(s)"),
    Case("scheduler.step()", "optimizer = torch.optim.SGD(linear.parameters(), lr=0.1)\n"
         "scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 5)\noptimizer.step()"),
    # Layers that read sizes or masks.
    Case(
        "layer(v3, v3, v3, key_padding_mask=hidden, need_weights=False)",
        "layer = nn.MultiheadAttention(64, 4, batch_first=True).to(device)\nv3 = x[:, :64].reshape(8, 64, 64)\n"
        "hidden = mask[:8, :64].clone()\nhidden[:, 0] = False",
    ),
    Case(
        "encoder(v3, src_key_padding_mask=hidden)",
        "encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(64, 4, batch_first=True), 2).to(device).eval()\n"
        "v3 = x[:, :64].reshape(8, 64, 64)\nhidden = torch.zeros(8, 64, dtype=torch.bool, device=device)\n"
        "hidden[:, 32:] = True\ntorch.set_grad_enabled(False)",
    ),
    Case("rnn(v3)", "rnn = nn.LSTM(64, 64, batch_first=True).to(device)\nv3 = x[:, :64].reshape(8, 64, 64)"),
    Case(
        "nn.utils.rnn.pack_padded_sequence(v3, lengths.cpu(), batch_first=True, enforce_sorted=False)",
        "v3 = x[:, :64].reshape(8, 64, 64)\nlengths = torch.full((8,), 32, device=device)",
    ),
    Case("norm(x.view(8, 64, 512))", "norm = nn.BatchNorm1d(64).to(device)"),
    Case(
        "F.ctc_loss(scores, targets, lengths, sizes)",
        "scores = torch.rand(50, 8, 20, device=device).log_softmax(-1)\ntargets = torch.randint(1, 20, (8, 10), device=device)\n"
        "lengths = torch.full((8,), 50, device=device)\nsizes = torch.full((8,), 10, device=device)",
    ),
    Case("torch.save(x, '/dev/null')"),
    Case("v.add_(w).mul_(s)"),
    Case("torch.cuda.current_stream().wait_stream(side)", "side = torch.cuda.Stream()"),
)  # fmt: skip
