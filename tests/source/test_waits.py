"""Where code waits for the device: each case has one line that ends in `# waits`, or none."""

from __future__ import annotations

import ast
import textwrap

import pytest

from ptopt.source.file import SourceFile

HEADER = "import torch\nimport numpy as np\nfrom torch import nn, Tensor\n\n"


def _file(code: str) -> SourceFile:
    return SourceFile.parse("f.py", (HEADER + textwrap.dedent(code)).encode())


def _lines(file: SourceFile, scope: ast.AST) -> list[int]:
    assert isinstance(scope, (ast.FunctionDef, ast.For))
    return [getattr(wait, "lineno", 0) for wait in file.waits.in_iteration(scope)]


@pytest.mark.parametrize(
    "line",
    [
        "x.sum().item()",
        "float(x.sum())",
        "x.cpu()",
        "x.to('cpu')",
        "x.to(device='cpu', dtype=torch.float32)",
        "x.detach().cpu().numpy()",
        "unknown.detach().cpu().numpy()",
        "x.tolist()",
        "print(x)",
        "torch.nonzero(x > 0)",
        "x.unique()",
        "y = x[x > 0]",
        "x[x > 0] += 1",
        "x[x > 0, y] = 0",
        "mask = unknown != flag.index; x[mask, unknown[mask]] = 0",
        "torch.equal(x, y)",
        "z = x.equal(y)",
        "range(x.max())",
        "max(3, x.max())",
        "torch.cuda.synchronize()",
        "scaler.get_scale()",
        "if (x > 0).any(): pass",
        "if flag and not x.any(): pass",
        "assert torch.allclose(x, y)",
        "while x.sum() > 1: pass",
        "scaler.step(optimizer)",
        "metric_logger.update(loss=x)",
        "metric_logger.update(lr=0.1, **unknown)",
        "model.generate(x)",
        "y = x[keep_mask]",
        "y = x[~valid]",
        "n = y.sum(); z = x[:n]",
        "torch.linalg.inv(x)",
        "torch.where(x > 0)",
        "x.repeat_interleave(y)",
        "torch.distributions.Normal(x, y)",
    ],
)
def test_waits(line: str) -> None:
    file = _file(f"def f(x: Tensor, y: Tensor, unknown, flag, scaler):\n    {line}\n")
    assert set(_lines(file, file.calls.functions[0])) == {6}


@pytest.mark.parametrize(
    "line",
    [
        "x.sum()",
        "x.to(y.device)",
        "x.to(torch.float32)",
        "np.unique(unknown)",
        "x[x > 0] = 0",
        "x[unknown > 0] = 0",
        "x[unknown, 0] = y",
        "mask = unknown is None; x[mask, 0] = 0",
        "unknown[unknown > 0] += 1",
        "y = x[:, 3]",
        "max(3, x.shape[0])",
        "torch.max(x, y)",
        "print(x.shape)",
        "if x is not None: pass",
        "optimizer.step()",
        "known.update(loss=x)",
        "metric_logger.update(loss=3.0, lr=unknown['lr'])",
        "n = y.shape[0]; z = x[:n]",
        "x.to('cpu', non_blocking=True)",
        "torch.where(x > 0, x, y)",
        "x.repeat_interleave(2)",
        "x.repeat_interleave(y, output_size=9)",
        "scaler.unscale_(optimizer)",
        "x[keep_mask] = 0",
        "torch.distributions.Normal(x, y, validate_args=False)",
        "if x.shape[0] > 1: pass",
        "if flag_debug: x.item()",
        "torch.zeros(3).item()",
        "raise ValueError(f'{x.sum().item()}')",
    ],
)
def test_does_not_wait(line: str) -> None:
    file = _file(f"def f(x: Tensor, y: Tensor, unknown, flag_debug):\n    {line}\n")
    assert _lines(file, file.calls.functions[0]) == []


def test_a_meter_that_is_given_the_number_that_was_read_does_not_wait_again() -> None:
    file = _file(
        """
        def train(model, loader, optimizer):
            for x in loader:
                loss = model(x).loss.mean()
                loss_value = loss.item()
                metric_logger.update(loss=loss_value)
                metric_logger.update(lr=optimizer.param_groups[0]["lr"])
        """
    )
    assert _lines(file, next(file.index.of_type(ast.For))) == [9]


def test_a_called_function_waits_as_its_call() -> None:
    file = _file(
        """
        def accuracy(out: Tensor):
            return out.mean().item()

        def train(model, loader):
            for x in loader:
                out = model(x)
                accuracy(out)
        """
    )
    loop = next(file.index.of_type(ast.For))
    assert _lines(file, loop) == [12]


def test_others_are_those_of_other_statements() -> None:
    file = _file(
        """
        def train(model, loader, x: Tensor):
            for _ in loader:
                a = x.sum().item() + x.max().item()
                if x.mean() > a:
                    b = x.cpu()
        """
    )
    loop = next(file.index.of_type(ast.For))
    first, second, third = (file.waits.in_iteration(loop)[i] for i in (0, 2, 3))
    assert [getattr(w, "lineno", 0) for w in file.waits.others(first, loop)] == [9, 10]
    assert isinstance(second, ast.If)
    assert [getattr(w, "lineno", 0) for w in file.waits.others(second.test, loop)] == [8, 8, 10]
    assert [getattr(w, "lineno", 0) for w in file.waits.others(third, loop)] == [8, 8, 9]


def test_a_cleared_cache_is_one_of_the_others() -> None:
    file = _file(
        """
        def train(loader, x: Tensor):
            for _ in loader:
                a = x.sum().item()
                torch.cuda.empty_cache()
        """
    )
    loop = next(file.index.of_type(ast.For))
    read = file.waits.in_iteration(loop)[0]
    (cleared,) = file.waits.others(read, loop)
    assert getattr(cleared, "lineno", 0) == 9
    assert not file.waits.is_wait(cleared), "with nothing to free it does not wait"


@pytest.mark.parametrize(
    ("line", "waits"),
    [
        ("n = psnr(x, y).item()", True),
        ("n = psnr(x.cpu(), y).item()", False),
        ("n = psnr(x.detach().cpu().float(), y).mean().item()", False),
        ("n = psnr(preds=x.cpu(), target=y).item()", False),
        ("p = psnr(x.cpu(), y); n = p.item()", False),
        ("n = psnr(x.cpu().cuda(), y).item()", True),
    ],
)
def test_what_is_computed_from_a_copy_on_the_host(line: str, waits: bool) -> None:
    file = _file(f"""
def f(x: Tensor, y):
    {line}
""")
    read = next(c for c in file.calls_named("item"))
    assert file.waits.is_wait(read) == waits


def test_no_more_than_eight_others_are_named() -> None:
    reads = "".join(f"        a{i} = x.sum().item()\n" for i in range(40))
    file = _file(f"def train(loader, x: Tensor):\n    for _ in loader:\n{reads}")
    loop = next(file.index.of_type(ast.For))
    assert len(file.waits.in_iteration(loop)) == 40
    assert len(file.waits.others(file.waits.in_iteration(loop)[0], loop)) == 8


def test_copies_to_the_device_that_block() -> None:
    file = _file("""
        def step(x: Tensor, y: Tensor, z: Tensor, device):
            x = x.to(device)
            y, z = y.cuda(), z.cuda()
            x = x.to(device, non_blocking=True)
            return x.to("cpu")
        """)
    assert file.waits.blocking_copies(file.calls.functions[0]) == 2
