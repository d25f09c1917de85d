from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from typing import ClassVar

from ptopt.rules.base import Benchmark, Evidence, Fix, Invalid, Problem, Rule, Safety, Severity, SourceFile
from ptopt.rules.code import add_keyword, has_unpacking, keyword_of

_ADAM = {"torch.optim.AdamW": "AdamW", "torch.optim.Adam": "Adam"}
_CHOSEN = ("fused", "foreach", "capturable", "differentiable", "maximize")
# Sparse gradients and complex parameters have no fused kernel; the wrappers bring, or forbid, one of their own;
# a network that plays in an environment or fits one image is too small for its optimizer to matter.
_ELSEWHERE = re.compile(
    r"sparse=True|sparse_coo|complex64|SparseAdam|deepspeed|FusedAdam|bitsandbytes|\bapex\b|ZeroRedundancyOptimizer"
    r"|fused\s*=|fused_available|xla|ShardedGradScaler"
)
_SMALL = re.compile(r"\bgym(nasium)?\b|torch_geometric|mnist", re.I)
_LIGHTNING = re.compile(r"LightningModule|\bFabric\(")
_CLIPS = (b"gradient_clip_val", b".clip_gradients(")  # of Lightning and Fabric
_FRAMEWORK = re.compile(r"LightningModule|Fabric\b|[Ff]sdp|FSDP")
_CUDA = re.compile(r"cuda|accelerat|\bdevice\b|local_rank")
_TRANSFORMER = re.compile(r"transformer|attention|attn|gpt|llama|bert|n_head|num_heads|unet|\bvit\b", re.I)
_FEW_PARAMETERS = re.compile(r"embed|latent|prompt|lora|adapter|linear|head|probe|classifier|^\[\w+\]$", re.I)


class OptimizerNotFused(Rule):
    """An Adam optimizer updates the weights without the fused kernel.

    ## What it does
    Finds `torch.optim.AdamW(...)` without `fused=` in a file that trains a transformer on a GPU: one that holds the
    training step itself, or a model that configures its own optimizer.

    ## Why it is slow
    By default the update on CUDA runs as a dozen multi-tensor kernels that read and write all weights and moments
    again and again. `fused=True` does the whole update in one pass per tensor list.

    ## When this is wrong
    When the parameters are sparse or complex, when Lightning or Fabric clips the gradients in mixed precision (from
    pytorch-lightning 1.8.1 on it raises a `RuntimeError` for a fused optimizer, with bfloat16, too), or when the optimizer
    is a negligible part of the step. Where code of the repository clips in this way nothing is reported; as a
    configuration can, too, there is no fix for a `LightningModule`.

    ## Fix safety
    Unsafe: the fused kernel rounds differently in the last bits, and wants dense floating-point parameters.

    ## Sources
    - [torchtitan: fused AdamW, 2.6 % of a Llama 8B step](https://github.com/pytorch/torchtitan/issues/881)
    - [Lightning: a fused AdamW raises with clipping and bf16-mixed](https://github.com/Lightning-AI/pytorch-lightning/issues/21435)
    - [torch.optim.AdamW](https://docs.pytorch.org/docs/stable/generated/torch.optim.AdamW.html)
    """

    id = "PTO701"
    name = "optimizer-not-fused"
    family = "optim"
    severity = Severity.LOW
    most_stated = 0.6
    triggers = ("AdamW(", "Adam(")
    nodes = (ast.Call,)
    since: ClassVar[Mapping[str, str]] = {"torch": "2.4"}
    when_wrong = (
        "parameters are sparse or complex, Lightning clips gradients in mixed precision (it raises for a fused optimizer), "
        "or the optimizer is a negligible part of the step"
    )
    BENCHMARK = Benchmark(
        setup="""
import torch
torch.manual_seed(0)
model = torch.nn.Sequential(*(torch.nn.Linear(128, 128) for _ in range(20)))
grads = [torch.randn_like(p) for p in model.parameters()]
plain = torch.optim.AdamW(model.parameters(), lr=0.0, weight_decay=0.0)
fused = torch.optim.AdamW(model.parameters(), lr=0.0, weight_decay=0.0, fused=True)
for p, g in zip(model.parameters(), grads):
    p.grad = g
""",
        before="plain.step(); result = model[0].weight.detach()",
        after="fused.step(); result = model[0].weight.detach()",
        scope="the optimizer step",
        sizes="20 linear layers of 128 x 128, on the CPU",
    )

    VALID = (
        "optimizer = torch.optim.AdamW(model.cuda().parameters(), lr=1e-3, foreach=True)",
        """
        def configure_optimizers(self, groups, lr, device_type):
            use_fused = device_type == "cuda" and fused_available
            extra = dict(fused=True) if use_fused else {}
            return torch.optim.AdamW(groups, lr=lr, **extra)
        """,
        """
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
        for x, y in loader:
            loss = F.mse_loss(model(x), y)
            loss.backward()
            optimizer.step()
        """,
        # Lightning raises for a fused optimizer where it clips in mixed precision.
        """
        class Model(pl.LightningModule):
            def configure_optimizers(self):
                return torch.optim.AdamW(self.transformer.parameters(), lr=1e-3)

        trainer = pl.Trainer(accelerator="cuda", precision="bf16-mixed", gradient_clip_val=1.0)
        """,
    )
    INVALID = (
        # Whether the trainer clips may stand in a configuration: no fix.
        Invalid("""
            class Model(pl.LightningModule):
                def configure_optimizers(self):
                    return torch.optim.AdamW(self.transformer.parameters(), lr=1e-3)  # !

            trainer = pl.Trainer(accelerator="cuda", precision="bf16-mixed")
        """),
        Invalid("""
            model = TransformerLM().to("cuda")
            optimizer = torch.optim.AdamW(model.parameters(), lr=lr)  # !
            # + optimizer = torch.optim.AdamW(model.parameters(), lr=lr, fused=True)
            for x, y in loader:
                loss = F.cross_entropy(model(x.to("cuda")), y.to("cuda"))
                loss.backward()
                optimizer.step()
        """),
        Invalid("""
            class GPT(nn.Module):
                def configure_optimizers(self, decay, lr, betas, device):
                    groups = [{"params": decay, "weight_decay": 0.1}]
                    optimizer = torch.optim.AdamW(groups, lr=lr, betas=betas)  # !
                    # + optimizer = torch.optim.AdamW(groups, lr=lr, betas=betas, fused=True)
                    return optimizer
        """),
        Invalid("""
            def main(args):
                model = BertForMaskedLM(config).cuda()
                optimizer = torch.optim.AdamW(  # !
                    model.parameters(),
                    lr=args.lr,
                    # + lr=args.lr,
                    # + fused=True,
                )
                for x, y in loader:
                    loss = F.cross_entropy(model(x.cuda()), y.cuda())
                    loss.backward()
                    optimizer.step()
        """),
    )

    def check(self, node: ast.AST, file: SourceFile) -> Iterator[Problem]:
        if not isinstance(node, ast.Call):
            return
        kind = _ADAM.get(file.imports.qualified(node.func))
        if kind is None or has_unpacking(node) or any(keyword_of(node, name) for name in _CHOSEN):
            return
        if not file.search(_CUDA) or file.search(_ELSEWHERE):
            return
        mark = _drives_a_step(node, file)
        if not node.args:
            return
        # The gain was published for AdamW on transformers; most other networks have too little to update.
        sure = kind == "AdamW" and file.search(_TRANSFORMER)
        if _FEW_PARAMETERS.search(_parameters(node.args[0], file)) or file.search(_SMALL):
            return
        if mark is None and not sure:
            return
        lightning = file.search(_LIGHTNING)
        if lightning and _clips(file):
            return
        framework = file.search(_FRAMEWORK)
        yield Problem(
            node,
            f"`{kind}` runs its default multi-tensor update here, which goes over all weights and moments many times "
            "per step. `fused=True` does the update in one pass.",
            0.35 if mark is None or framework else 0.6 if sure else 0.45,
            () if mark is None else (mark,),
            None
            if lightning
            else Fix(
                Safety.UNSAFE,
                (add_keyword(file, node, "fused=True"),),
                "the parameters are dense floating-point tensors on the training device",
            ),
            facts={
                "steps_here": float(mark is not None),
                "framework": float(framework),
                "transformer": float(file.search(_TRANSFORMER)),
                "adamw": float(kind == "AdamW"),
            },
        )


def _clips(file: SourceFile) -> bool:
    """Does the code, here or in another file, let Lightning or Fabric clip gradients?"""
    here = file.text.encode()
    return any(words in here or file.repository.mentions(words) for words in _CLIPS)


def _parameters(expr: ast.expr, file: SourceFile) -> str:
    """Source of what the optimizer updates, and of the assignment that made it."""
    binding = file.bindings.last_before(expr) if isinstance(expr, ast.Name) else None
    made = f" {file.source(binding.value)}" if binding is not None and binding.value is not None else ""
    return file.source(expr) + made


def _drives_a_step(node: ast.Call, file: SourceFile) -> Evidence | None:
    """The line that shows that this optimizer trains: a step of the same file, or a model that configures itself."""
    function = file.index.function_of(node)
    # A model that configures its own optimizer; Lightning's hook of that name takes nothing but `self`.
    own = function is not None and function.name == "configure_optimizers" and len(function.args.args) > 1
    if own and function is not None and file.index.class_of(node) is not None:
        return Evidence(function.lineno, "the model builds its own optimizer")
    for owner in (None, *file.calls.functions):
        for mark in file.context.marks_in(owner):
            if (
                isinstance(mark.func, ast.Attribute)
                and mark.func.attr == "step"
                and any(file.index.loops_of(mark))
            ):
                return Evidence(mark.lineno, "the optimizer steps here")
    return None
