from __future__ import annotations

import ast
from collections.abc import Iterator

from ptopt.rules.base import Invalid, Problem, Rule, SourceFile
from ptopt.rules.code import keyword_of, quote

_WRAPPERS = frozenset({"torch.as_tensor", "torch.tensor", "torch.from_numpy"})
_IMAGE = ("image", "img", "frame", "pixel", "rgb", "255", "uint8", "mask", "obs")


class CastAfterUpload(Rule):
    """An array is sent to the device in its own type and narrowed there.

    ## What it does
    Finds `torch.as_tensor(x, device=d).float()`, `torch.from_numpy(x).to(d).float()` and `.cuda().float()`, where x is not an image.

    ## Why it is slow
    NumPy computes in float64, so twice the bytes cross the bus and lie on the device until a second kernel narrows
    them. Narrowed on the host, half as much is sent.

    ## When this is wrong
    When the array holds fewer bytes per number than float32, such as an image in bytes.

    ## Fix safety
    There is no fix: the array's type must be seen.

    ## Sources
    - [torch.as_tensor](https://docs.pytorch.org/docs/stable/generated/torch.as_tensor.html)
    """

    id = "PTO820"
    name = "cast-after-upload"
    family = "memory"
    most_stated = 0.4
    nodes = (ast.Call,)
    calls = frozenset({"float"})
    requires = ("as_tensor", "from_numpy", "tensor")
    when_wrong = "the array is stored in fewer bytes than float32, as images are"

    VALID = (
        """
        def boxes(batch):
            found = batch["boxes"]
            return torch.from_numpy(found).cuda(non_blocking=True).float()
        """,
        """
        x = torch.from_numpy(returns).float().to(device)
        """,
        """
        x = torch.from_numpy(image).to(device).float() / 255
        """,
        """
        x = batch.to(device).float()
        """,
    )
    INVALID = (
        Invalid("""
            def tensors(returns, device):
                return torch.as_tensor(returns, device=device).float()  # !
                # ~ return torch.as_tensor(returns, dtype=torch.float32, device=device)
        """),
        Invalid("""
            rewards = torch.from_numpy(np.stack(rewards)).to(device).float()  # !
        """),
        Invalid("""
            advantages = torch.tensor(advantages).cuda().float()  # !
        """),
    )

    def check(self, node: ast.AST, file: SourceFile) -> Iterator[Problem]:
        if not isinstance(node, ast.Call) or node.args or not isinstance(node.func, ast.Attribute):
            return
        moved = node.func.value
        sent = False
        while isinstance(moved, ast.Call) and isinstance(moved.func, ast.Attribute):
            if file.imports.qualified(moved.func) in _WRAPPERS:
                break
            if moved.func.attr not in ("to", "cuda", "unsqueeze", "view", "reshape"):
                return
            if moved.func.attr in ("to", "cuda"):
                sent = not any("dtype" in file.source(a) or "cpu" in file.source(a) for a in moved.args)
            moved = moved.func.value
        if (
            not isinstance(moved, ast.Call)
            or not moved.args
            or file.imports.qualified(moved.func) not in _WRAPPERS
        ):
            return
        device = keyword_of(moved, "device")
        sent = sent or (device is not None and "cpu" not in file.source(device))
        if not sent or keyword_of(moved, "dtype") is not None:
            return
        text = file.source(moved.args[0]).lower()
        if any(word in text for word in _IMAGE) or isinstance(moved.args[0], (ast.List, ast.Constant)):
            return
        if _is_entry(moved.args[0], file):
            return  # of a batch: its type was chosen where the batch was made
        yield Problem(
            node,
            f"{quote(file, node, 50)} sends the array in its own type, float64 unless it was made otherwise, and narrows it on "
            f"the device. Convert first: `torch.as_tensor({file.source(moved.args[0])[:30]}, dtype=torch.float32, "
            "device=…)` sends half the bytes and needs no second kernel.",
            0.4,
            subject=moved.args[0],
            cause=file.index.function_of(node),
            facts={"array": file.values.of(moved.args[0]).kind == "array"},
        )


def _is_entry(expr: ast.expr, file: SourceFile) -> bool:
    """Is it an entry of a dictionary, or a part of what something returned: `boxes, scores = data["boxes"], ...`?"""
    if isinstance(expr, ast.Subscript):
        return isinstance(expr.slice, ast.Constant) and isinstance(expr.slice.value, str)
    binding = file.bindings.last_before(expr) if isinstance(expr, ast.Name) else None
    if binding is None or binding.value is None:
        return False
    return binding.kind == "unpack" or (binding.kind == "assign" and _is_text_entry(binding.value))


def _is_text_entry(value: ast.expr) -> bool:
    return (
        isinstance(value, ast.Subscript)
        and isinstance(value.slice, ast.Constant)
        and isinstance(value.slice.value, str)
    )
