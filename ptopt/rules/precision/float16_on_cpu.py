from __future__ import annotations

import ast
from collections.abc import Iterator

from ptopt.rules.base import Evidence, Fix, Invalid, Problem, Rule, Safety, Severity, SourceFile
from ptopt.rules.code import keyword_of, method_call, replace_node

_AUTOCASTS = frozenset(("torch.autocast", "torch.amp.autocast"))
_STORES = frozenset(
    ("save_pretrained", "push_to_hub", "merge_and_unload", "state_dict", "save_file", "save_model")
)


class Float16OnCpu(Rule):
    """A model computes in float16 on the CPU.

    ## What it does
    Finds `dtype=torch.float16` beside the literal device "cpu" where the model then runs: autocast, `pipeline(...)`,
    or a model that is loaded on the CPU and generates in the same file.

    ## Why it is slow
    Few CPUs multiply float16 numbers: most convert every operand to float32 and back, often without a tuned kernel.
    bfloat16 has kernels on recent CPUs, and float32 on all.

    ## When this is wrong
    On CPUs with native float16 arithmetic (recent ARM, or x86 with AVX512-FP16), or when the model is converted on
    the CPU and runs elsewhere.

    ## Fix safety
    Unsafe: bfloat16 keeps fewer digits than float16, so outputs differ slightly.

    ## Sources
    - [transformers#34692: float16 inference on a CPU](https://github.com/huggingface/transformers/issues/34692)
    """

    id = "PTO754"
    name = "float16-on-cpu"
    family = "precision"
    severity = Severity.HIGH
    triggers = ("float16",)
    requires = ('"cpu"', "'cpu'")
    nodes = (ast.Call,)
    when_wrong = "the CPU has native float16 arithmetic, or the model is converted here and runs elsewhere"

    VALID = (
        """
        from transformers import AutoModelForCausalLM
        import torch

        model = AutoModelForCausalLM.from_pretrained(base, torch_dtype=torch.float16, device_map="cpu")
        model = PeftModel.from_pretrained(model, adapter).merge_and_unload()
        model.save_pretrained(out)
        """,
        """
        with torch.autocast("cuda", dtype=torch.float16):
            loss = model(x.to("cpu"))
        """,
        """
        device = "cuda" if torch.cuda.is_available() else "cpu"
        dtype = torch.float16 if device == "cuda" else torch.float32
        pipe = pipeline("text-generation", model=name, torch_dtype=dtype, device=device)
        """,
        """
        with torch.autocast("cpu", dtype=torch.bfloat16):
            out = model(x)
        """,
    )
    INVALID = (
        Invalid("""
            with torch.autocast("cpu", dtype=torch.float16):  # !
            # + with torch.autocast("cpu", dtype=torch.bfloat16):
                out = model(x)
        """),
        Invalid("""
            from transformers import pipeline
            import torch

            pipe = pipeline("text-generation", model=name, torch_dtype=torch.float16, device="cpu")  # !
            # + pipe = pipeline("text-generation", model=name, torch_dtype=torch.bfloat16, device="cpu")
        """),
        Invalid("""
            from transformers import AutoModelForCausalLM
            import torch

            model = AutoModelForCausalLM.from_pretrained(name, dtype=torch.float16, device_map="cpu")  # !
            # + model = AutoModelForCausalLM.from_pretrained(name, dtype=torch.bfloat16, device_map="cpu")
            print(model.generate(ids))
        """),
    )

    def check(self, node: ast.AST, file: SourceFile) -> Iterator[Problem]:
        if not isinstance(node, ast.Call) or not (node.keywords or len(node.args) > 1):
            return
        device = _device(node, file)
        if not (isinstance(device, ast.Constant) and device.value == "cpu"):
            return
        dtype = keyword_of(node, "dtype") or keyword_of(node, "torch_dtype")
        if dtype is None and len(node.args) > 1:
            dtype = node.args[1]
        if dtype is None or file.imports.qualified(dtype) not in ("torch.float16", "torch.half"):
            return
        evidence: tuple[Evidence, ...] = ()
        if method_call(node, "from_pretrained") is not None:
            run = file.once(_generates)
            if run is None:
                return
            evidence = (Evidence(run.lineno, "the model runs here"),)
        yield Problem(
            node,
            "float16 arithmetic is emulated on most CPUs and can be hundreds of times slower than float32. Use "
            "`torch.bfloat16` (or float32 on CPUs without bfloat16 kernels).",
            0.8,
            evidence,
            Fix(
                Safety.UNSAFE,
                (replace_node(file, dtype, file.source(dtype).replace("float16", "bfloat16")),),
                "bfloat16's fewer digits are enough, and the CPU has kernels for it",
            )
            if file.source(dtype).endswith("float16")
            else None,
        )


def _device(call: ast.Call, file: SourceFile) -> ast.expr | None:
    """The device that the call is given, when it is one that computes."""
    name = file.imports.qualified(call.func)
    if name in _AUTOCASTS:
        return call.args[0] if call.args else keyword_of(call, "device_type")
    if name in ("transformers.pipeline", "transformers.pipelines.pipeline"):
        return keyword_of(call, "device") or keyword_of(call, "device_map")
    if method_call(call, "from_pretrained") is not None:
        return keyword_of(call, "device_map")
    return None


def _generates(file: SourceFile) -> ast.Call | None:
    """The first call of `generate` in a file that stores no model."""
    if any(method_call(c, name) is not None for name in _STORES for c in file.calls_named(name)):
        return None
    return next((c for c in file.calls_named("generate") if method_call(c, "generate") is not None), None)
