from __future__ import annotations

import ast
from collections.abc import Iterator

from ptopt.rules.base import Fix, Invalid, Problem, Rule, Safety, SourceFile
from ptopt.rules.code import add_keyword, has_unpacking, keyword_of, quote, replace_node
from ptopt.rules.shared.flow import assigned, reads
from ptopt.source.frequency import Often

_FACTORIES = frozenset({"zeros", "ones", "eye", "empty", "ones_like", "zeros_like"})
_SHAPES = frozenset({"tril", "triu"})
_METHODS = {
    "half": "torch.float16",
    "bfloat16": "torch.bfloat16",
    "bool": "torch.bool",
    "long": "torch.long",
    "int": "torch.int",
    "double": "torch.double",
}


class FactoryThenCast(Rule):
    """A tensor is made in one type only to be cast to another.

    ## What it does
    Finds `torch.eye(n).to(dtype)`, `torch.ones(n, m).bool()`, `torch.zeros(n).long()` and `torch.triu(torch.ones(n, n)).bool()`,
    also through a name that is read only there.

    ## Why it is slow
    The float32 tensor is written in full and read once by the cast: a second allocation and a second kernel. Factories take
    the type as `dtype`.

    ## Fix safety
    Safe: zeros and ones are the same numbers in every type.

    ## Sources
    - [torch.ones: dtype](https://docs.pytorch.org/docs/stable/generated/torch.ones.html)
    """

    id = "PTO819"
    name = "factory-then-cast"
    family = "memory"
    most_stated = 0.4
    nodes = (ast.Call,)
    calls = frozenset({*_METHODS, "to", "type"})
    requires = ("zeros", "ones", "eye", "full", "empty")
    when_wrong = "the tensor is small and made once"

    VALID = (
        """
        mask = torch.ones(n, n, dtype=torch.bool, device=x.device)
        """,
        """
        x = torch.zeros(n, m).to(device)
        """,
        """
        x = model(images).half()
        """,
    )
    INVALID = (
        Invalid("""
            def forward(self, x):
                mask = torch.triu(torch.ones(x.size(0), x.size(0), device=x.device), diagonal=1).bool()  # !
                # + mask = torch.triu(torch.ones(x.size(0), x.size(0), device=x.device, dtype=torch.bool), diagonal=1)
                return x.masked_fill(mask, 0)
        """),
        Invalid("""
            for x in loader:
                index = torch.zeros(len(x), width).long()  # !
                # + index = torch.zeros(len(x), width, dtype=torch.long)
        """),
        Invalid("""
            def dequantize(self):
                plain = torch.eye(self.columns, device=self.device)
                identity = plain.to(dtype=self.dtype)  # !
                return self.mm(identity)
        """),
    )

    def check(self, node: ast.AST, file: SourceFile) -> Iterator[Problem]:
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
            return
        dtype = _dtype(node, file)
        made = node.func.value
        named = isinstance(made, ast.Name)
        if isinstance(made, ast.Name):
            value = assigned(made, file)
            if value is None or len(reads(value, file)) != 1 or file.index.function_of(value) is None:
                return
            made = value
        factory = made
        if (
            isinstance(made, ast.Call)
            and file.imports.qualified(made.func).rpartition(".")[2] in _SHAPES
            and made.args
        ):
            factory = made.args[0]
        if not dtype or not isinstance(factory, ast.Call) or has_unpacking(factory):
            return
        module, _, name = file.imports.qualified(factory.func).rpartition(".")
        if module != "torch" or name not in _FACTORIES or keyword_of(factory, "dtype") is not None:
            return
        if name.endswith("_like") and node.func.attr not in _METHODS:
            return  # the type of the other tensor may be the wanted one
        frequency = file.frequencies.of(node)
        if frequency.often <= Often.ONCE and frequency.often is not Often.UNKNOWN:
            return
        fix = None
        if not named and "#" not in file.source(node):
            inner, outer = add_keyword(file, factory, f"dtype={dtype}"), file.source(made)
            at = inner.start - file.bounds(made)[0]
            text = outer.encode()[:at].decode() + inner.replacement + outer.encode()[at:].decode()
            fix = Fix(Safety.SAFE, (replace_node(file, node, text),)) if inner.start == inner.end else None
        yield Problem(
            node,
            f"{quote(file, factory, 40)} writes a tensor in the default type only for the cast to read it once. Make it in the "
            f"right type: `torch.{name}(…, dtype={dtype})`.",
            0.35 if name != "eye" else 0.4,
            fix=fix,
            subject=factory,
            facts={"matrix": len(factory.args) > 1 or name == "eye", "triangle": factory is not made},
        )


def _dtype(call: ast.Call, file: SourceFile) -> str:
    """The type that the call casts to, as written; "" when it does not only cast."""
    func = call.func
    if not isinstance(func, ast.Attribute):
        return ""
    if func.attr in _METHODS:
        return "" if call.args or call.keywords else _METHODS[func.attr]
    given = [*call.args, *(k.value for k in call.keywords if k.arg == "dtype")]
    if len(given) != 1 or len(call.args) + len(call.keywords) != 1:
        return ""
    text = file.source(given[0])
    named = (
        text.endswith("dtype") or file.imports.qualified(given[0]).startswith("torch.") and text[-1:] != ")"
    )
    return text if named and "device" not in text and "Tensor" not in text else ""
