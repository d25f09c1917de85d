from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from typing import ClassVar

from ptopt.rules.base import Invalid, Problem, Rule, Severity, SourceFile
from ptopt.rules.code import is_call_of
from ptopt.rules.shared.places import step_evidence
from ptopt.rules.shared.precision import chooses_precision, is_chosen_elsewhere
from ptopt.source.calls import last_name

# Of other files: what refuses to run in fewer bits.
_BREAKS_ELSEWHERE = re.compile(rb"\bi?r?fftn?2?\(|torch\.fft|view_as_complex|faiss")
# What computes convolutions, and what else multiplies matrices: which TF32 is by default on, and off, for.
_CONVOLVES = r"\b(Lazy)?Conv(Transpose)?[23]d\("
_MULTIPLIES = (
    r"\b(Lazy)?Linear\(|\bBilinear\(|\b(LSTM|GRU|RNN)(Cell)?\(|MultiheadAttention|\bTransformer(En|De)coder|\b(b?mm|matmul|baddbmm|"
    r"addmm|einsum|tensordot|\w*dot_product_attention)\(|\bF\.linear\(|[\w)\]] @ \w|"
    r"^\s*(import|from)\s+(transformers|diffusers|timm|clip|open_clip|monai|xformers|flash_attn)\b"
)
_IN_THREADS = r"(?<![A-Za-z])DataParallel\("  # not `DistributedDataParallel(`
# Objects that run the backward pass, and choose the precision, for the script.
_ENGINE = re.compile(r"strategy|engine|fabric|accelerator|plugin|booster|trainer", re.I)
# What is trained on these is too small for its arithmetic to matter, mostly.
_TOY = re.compile(r"mnist|cifar|\btoy\b|\btoy_|_toy\b", re.I)
_TRANSFORMER = re.compile(r"transformer|attention|gpt|llama|bert|\bvit\b|unet", re.I)
_OPTIMIZERS = re.compile(r"^(Adam\w*|SGD|RMSprop|Adagrad|LBFGS|Lion|Muon)$")
_SMALL = re.compile(
    r"\bgym(nasium)?\b|\bppo\b|\bdqn\b|mnist|linear_?regression|torch_geometric|\bdgl\b|LBFGS", re.I
)


class FullPrecisionTraining(Rule):
    """A network is trained on a GPU in float32 throughout.

    ## What it does
    Finds a training loop on CUDA in a file that mentions no mixed precision in any form.

    ## Why it is slow
    Tensor cores run bfloat16 matrix products and convolutions several times faster than float32 ones, and
    activations take half the memory and bandwidth.

    ## When this is wrong
    When another file sets the precision, when the network is too small to be bound by its arithmetic, when the GPU
    is older than Ampere (float16 with a `GradScaler` is the choice there), or when the numerics need float32.

    ## Fix safety
    There is no fix: mixed precision changes the numbers, and wants a look at the losses.

    ## Sources
    - [PyTorch performance tuning guide: mixed precision](https://docs.pytorch.org/tutorials/recipes/recipes/tuning_guide.html)
    """

    id = "PTO753"
    name = "full-precision-training"
    family = "precision"
    severity = Severity.HIGH
    most_stated = 0.45
    triggers = ("cuda", "device", "gpu")
    since: ClassVar[Mapping[str, str]] = {"torch": "1.10"}
    partly: ClassVar[frozenset[str]] = frozenset({"set_float32_matmul_precision"})
    nodes = (ast.Call,)
    calls = frozenset({"backward"})
    when_wrong = "another file sets the precision, the network is small, or the GPU has no bfloat16"

    VALID = (
        """
        dtype = get_torch_dtype(self.train_config.dtype)
        for x, y in loader:
            loss = criterion(model(x.to("cuda", dtype)), y.cuda())
            loss.backward()
            optimizer.step()
        """,
        """
        adversarial_loss = nn.BCELoss()
        for x, y in loader:
            loss = adversarial_loss(model(x.cuda()), y.cuda())
            loss.backward()
            optimizer.step()
        """,
        """
        def refine(latent, decoder, target):
            optimizer = torch.optim.Adam([latent], lr=0.1)
            for _ in range(100):
                optimizer.zero_grad()
                loss = (decoder(latent.cuda()) - target).abs().mean()
                loss.backward()
                optimizer.step()
        """,
        """
        for x, y in loader:
            with torch.autocast("cuda", dtype=torch.bfloat16):
                loss = criterion(model(x.cuda()), y.cuda())
            loss.backward()
            optimizer.step()
        """,
        """
        model = build(args.precision).cuda()
        for x, y in loader:
            criterion(model(x.cuda()), y.cuda()).backward()
            optimizer.step()
        """,
        """
        torch.set_float32_matmul_precision("high")
        for x, y in loader:
            criterion(model(x.cuda()), y.cuda()).backward()
            optimizer.step()
        """,
    )
    INVALID = (
        Invalid("""
            for x, y in loader:
                loss = criterion(model(x.cuda()), y.cuda())
                # ~ with torch.autocast("cuda", dtype=torch.bfloat16):
                # ~     loss = criterion(model(x.cuda()), y.cuda())
                loss.backward()  # !
                optimizer.step()
        """),
        Invalid("""
            def train_epoch(train_loader, model, optimizer, cfg):
                model.train()
                for cur_iter, (inputs, labels) in enumerate(train_loader):
                    preds = model(inputs.cuda(non_blocking=True))
                    loss = loss_fun(preds, labels.cuda())
                    optimizer.zero_grad()
                    loss.backward()  # !
                    optimizer.step()
        """),
        Invalid("""
            device = torch.device("cuda")
            for epoch in range(epochs):
                for batch in train_data:
                    loss = net(batch.to(device)).mean()
                    loss.backward()  # !
                    opt.step()
        """),
    )

    def check(self, node: ast.AST, file: SourceFile) -> Iterator[Problem]:
        if not isinstance(node, ast.Call) or not file.context.is_training_mark(node):
            return
        step = file.context.training_step(node)
        if step is None or node is not file.once(_first_backward):
            return
        if chooses_precision(file) or _fits_tensors(file) or _is_part_of_a_loss(node, file):
            return
        if file.repository.matches(_BREAKS_ELSEWHERE):
            return  # the network may hand its activations to that
        loop = next(file.index.loops_of(node), None)
        yield Problem(
            node,
            _said(file),
            _sure(file),
            step_evidence(step, file),
            facts={
                "small_hint": float(file.search(_SMALL)),
                "range_loop": float(isinstance(loop, ast.For) and _is_range(loop.iter)),
                "in_loop": float(loop is not None),
                "cuda": float("cuda" in file.text),
                "convolutions": float("Conv" in file.text or "conv" in file.text),
                "transformer": float(file.search(_TRANSFORMER)),
                "decided_elsewhere": float(is_chosen_elsewhere(file)),
            },
        )


def _said(file: SourceFile) -> str:
    tf32 = file.facts.has("set_float32_matmul_precision") and (
        _is_anywhere(_MULTIPLIES, file) or not _is_anywhere(_CONVOLVES, file)
    )
    parts = [
        "Nothing in this file takes the training step out of float32"
        + (", and no TF32 is enabled for matrix products." if tf32 else "."),
        'Run the forward pass and the loss under `torch.autocast("cuda", dtype=torch.bfloat16)` (on GPUs before Ampere, '
        "float16 and a `GradScaler`)"
        + (
            ", or at least let matrix products use TF32, as convolutions do by default: "
            '`torch.set_float32_matmul_precision("high")`.'
            if tf32
            else "."
        ),
    ]
    if _is_anywhere(_IN_THREADS, file):
        parts.append(
            "Under `DataParallel` put the autocast inside the network's `forward`: the threads that run it do not take the "
            "dtype over."
        )
    return " ".join(parts)


def _is_anywhere(pattern: str, file: SourceFile) -> bool:
    """Does the pattern occur in this file, or in others of the repository?"""
    return file.search(re.compile(pattern, re.M)) or file.repository.matches(
        re.compile(pattern.encode(), re.M)
    )


def _sure(file: SourceFile) -> float:
    """Less for toys, and for convolutions: cuDNN computes them with TF32 already, where the GPU has it."""
    if _TOY.search(file.path) or file.search(_TOY):
        return 0.35
    return 0.4 if "conv" in file.text.lower() and not file.search(_TRANSFORMER) else 0.45


def _is_part_of_a_loss(backward: ast.Call, file: SourceFile) -> bool:
    """Does a loss fit something of its own in its forward pass? The precision is its caller's choice."""
    cls = file.index.class_of(backward)
    return cls is not None and cls.name.lower().endswith("loss")


def _first_backward(file: SourceFile) -> ast.Call | None:
    """The first backward call that trains: one comment speaks for the file."""
    return next(
        (
            call
            for call in file.calls_named("backward")
            if file.context.is_training_mark(call)
            and not _ENGINE.search(file.source(call.func))
            and not file.imports.qualified(call.func)
            and file.context.training_step(call) is not None
            and _updates(call, file)
        ),
        None,
    )


def _updates(backward: ast.Call, file: SourceFile) -> bool:
    """Does an optimizer step follow, or is the function a framework's training step?"""
    function = file.index.function_of(backward)
    if function is not None and file.context.training_step(function) is not None:
        return True
    return any(
        isinstance(c.func, ast.Attribute) and "step" in c.func.attr and c.lineno > backward.lineno
        for c in file.calls.calls_in(function)
    )


def _fits_tensors(file: SourceFile) -> bool:
    """Are the optimizers of the file over lists of tensors, and none over a network's parameters?"""
    given = [
        call.args[0]
        for call in file.index.of_type(ast.Call)
        if call.args and _OPTIMIZERS.match(last_name(call.func))
    ]
    return bool(given) and all(
        isinstance(first, ast.List) and all(isinstance(e, ast.Name) for e in first.elts) for first in given
    )


def _is_range(iterable: ast.expr) -> bool:
    """Loops over a range fit a few tensors more often than they train a network on a data set."""
    return is_call_of(iterable, "range")
