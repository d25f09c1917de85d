from __future__ import annotations

import ast
from collections.abc import Iterator

from ptopt.rules.base import Evidence, Invalid, Problem, Rule, SourceFile
from ptopt.rules.code import keyword_of, quote
from ptopt.rules.shared.export import for_export
from ptopt.rules.shared.host_only import needs_host
from ptopt.rules.shared.moves import is_accelerator, move_of
from ptopt.rules.shared.places import often_place
from ptopt.rules.shared.unmoved import stays_on_host
from ptopt.rules.sync._reads import tensor_of_copy
from ptopt.rules.transfer._origins import sources

_MAKERS = frozenset({"tensor", "as_tensor"})


class HostRoundTrip(Rule):
    """A tensor goes to the host to be worked on, and back to the device.

    ## What it does
    Finds moves to the device of values that were computed from a tensor's own copy on the host:
    `torch.from_numpy(f(x.cpu().numpy())).to(device)`.

    ## Why it is slow
    The copy to the host waits for every queued kernel, the CPU does the work while the device idles, and the copy back
    makes Python wait once more.

    ## Fix safety
    No fix: each step has to be replaced by its counterpart in torch.

    ## Sources
    - [PyTorch performance tuning guide: avoid unnecessary CPU-GPU synchronization](https://docs.pytorch.org/tutorials/recipes/recipes/tuning_guide.html)
    """

    id = "PTO232"
    name = "host-round-trip"
    family = "transfer"
    most_stated = 0.5
    triggers = (".cpu(", ".numpy(", ".tolist(")
    requires = (".to(", ".cuda(", "device")
    nodes = (ast.Call,)
    calls = frozenset({"to", "cuda", *_MAKERS})
    when_wrong = "the work has no version for the device, or is small and serial"

    VALID = (
        """
        @torch.no_grad()
        def evaluate(model, loader, gpu):
            for batch in loader:
                depth = model(batch["image"].cuda(gpu))
                truth = batch["depth"]
                truth = truth.cpu().numpy().squeeze()
                totals.add(torch.tensor(truth.mean()).cuda(device=gpu))
        """,
        """
        def save(x: torch.Tensor, path):
            np.save(path, x.cpu().numpy())
        """,
        """
        def scale(x: torch.Tensor, rows):
            weights = torch.from_numpy(np.stack(rows)).to(x.device)
            return x * weights
        """,
        """
        class Net(nn.Module):
            def forward(self, x: torch.Tensor):
                return x.float().to(self.device) + x.mean()
        """,
        """
        from scipy.optimize import linear_sum_assignment

        def assign(cost: torch.Tensor):
            rows, columns = linear_sum_assignment(cost.detach().cpu())
            return torch.from_numpy(rows).to(cost.device), torch.from_numpy(columns).to(cost.device)
        """,
        """
        class Slide(nn.Module):
            def forward(self, x: torch.Tensor):
                counts = self.counts(x)
                if torch.onnx.is_in_onnx_export():
                    counts = torch.from_numpy(counts.cpu().detach().numpy()).to(x.device)
                return x / counts
        """,
        """
        def kept(boxes: torch.Tensor, scores: torch.Tensor):
            picked = greedy_nms(boxes.cpu().numpy(), scores.cpu().numpy())
            return torch.as_tensor(picked, device=boxes.device)
        """,
    )
    INVALID = (
        Invalid("""
            def resample(x: torch.Tensor):
                out = librosa.resample(x.detach().cpu().numpy(), orig_sr=44100, target_sr=16000)
                # ~
                return torch.from_numpy(out).to(x.device)  # !
                # ~ return torchaudio.functional.resample(x, 44100, 16000)
        """),
        Invalid("""
            class Whiten(nn.Module):
                def forward(self, x: torch.Tensor):
                    values, vectors = torch.linalg.eigh((x.T @ x).cpu())
                    return x @ vectors.to(x.device)  # !
        """),
        Invalid("""
            def keep(boxes: torch.Tensor, scores: torch.Tensor):
                order = np.argsort(scores.cpu().numpy())
                return boxes[torch.tensor(order.copy(), device=boxes.device)]  # !
        """),
    )

    def check(self, node: ast.AST, file: SourceFile) -> Iterator[Problem]:
        if not isinstance(node, ast.Call):
            return
        move = move_of(node, file)
        data = move.tensor if move is not None else _sent(node, file)
        if data is None:
            return
        copy = next((n for n in sources(data, file) if _copied(n, file)), None)
        if copy is not None and (for_export(node, file) or needs_host(node, file)):
            return
        copied = tensor_of_copy(copy, file) if copy is not None else None
        if copied is not None and stays_on_host(copied, file):
            return
        place = often_place(node, file) if copy is not None else None
        if copy is None or place is None:
            return
        line = getattr(copy, "lineno", node.lineno)
        tensor = tensor_of_copy(copy, file)
        yield Problem(
            node,
            f"{quote(file, copy, 40)} (line {line}) copies the tensor to the host, and {quote(file, node, 40)} copies what is "
            f"computed from it back to the device, {place.words}: Python waits for both copies. Do the work in between with "
            "torch operations, on the device.",
            0.5 if place.step is not None else 0.4,
            (Evidence(line, "copied to the host"), *place.evidence)
            if line != node.lineno
            else place.evidence,
            cause=place.node,
            subject=tensor,
        )


def _copied(node: ast.AST, file: SourceFile) -> bool:
    return isinstance(node, ast.Call) and tensor_of_copy(node, file) is not None


def _sent(call: ast.Call, file: SourceFile) -> ast.expr | None:
    """`data` of `torch.tensor(data, device=device)`."""
    qualified = file.imports.qualified(call.func)
    device = keyword_of(call, "device")
    made = qualified.startswith("torch.") and qualified.removeprefix("torch.") in _MAKERS
    return (
        call.args[0] if made and call.args and device is not None and is_accelerator(device, file) else None
    )
