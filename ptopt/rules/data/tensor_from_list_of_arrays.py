from __future__ import annotations

import ast
from collections.abc import Iterator

from ptopt.rules.base import Benchmark, Evidence, Fix, Invalid, Problem, Rule, Safety, SourceFile
from ptopt.rules.code import has_unpacking, method_call, quote, replace_node
from ptopt.rules.shared.flow import assigned

_TENSORS = frozenset(
    {"torch.tensor", "torch.as_tensor", "torch.Tensor", "torch.FloatTensor", "torch.LongTensor"}
)


class TensorFromListOfArrays(Rule):
    """A tensor is made of a Python list of NumPy arrays.

    ## What it does
    Finds `torch.tensor(list)` (and `as_tensor`, `FloatTensor`, …) where the elements of the list are NumPy arrays.

    ## Why it is slow
    The list is read element by element, each number becoming a Python object. One NumPy array is copied at once; torch
    itself warns that the list form is extremely slow.

    ## Fix safety
    Unsafe: arrays of different data types are joined by NumPy's rules instead of torch's.

    ## Sources
    - [PyTorch documentation: torch.tensor](https://docs.pytorch.org/docs/stable/generated/torch.tensor.html)
    """

    id = "PTO306"
    name = "tensor-from-list-of-arrays"
    family = "data"
    requires = ("numpy", "cv2", "librosa", "PIL")
    nodes = (ast.Call,)
    calls = frozenset({"tensor", "as_tensor", "Tensor", "FloatTensor", "LongTensor"})
    when_wrong = "the list holds a few numbers only"
    BENCHMARK = Benchmark(
        setup=(
            "import warnings\n"
            "import numpy as np\n"
            "import torch\n"
            "arrays = [np.full((32, 32), i, dtype=np.float32) for i in range(16)]\n"
            "warnings.filterwarnings('ignore', 'Creating a tensor')\n"
        ),
        before="result = torch.tensor(arrays)",
        after="result = torch.tensor(np.array(arrays))",
        scope="making the tensor",
        sizes="16 arrays of 32x32",
    )

    VALID = (
        """
        batch = torch.tensor([len(x) for x in texts])
        """,
        """
        batch = torch.tensor(np.stack([np.asarray(image) for image in images]))
        """,
        """
        batch = torch.stack([torch.from_numpy(np.asarray(image)) for image in images])
        """,
        """
        means = torch.tensor([np.mean(x) for x in columns])
        """,
    )
    INVALID = (
        Invalid("""
            batch = torch.tensor([np.asarray(image) for image in images])  # !
            # + batch = torch.tensor(np.array([np.asarray(image) for image in images]))
        """),
        Invalid("""
            def collate(items):
                masks = []
                for item in items:
                    masks.append(np.array(item.mask, dtype=np.float32))
                return torch.FloatTensor(masks)  # !
                # + return torch.FloatTensor(np.array(masks))
        """),
        Invalid("""
            rows = [np.zeros(128), np.ones(128)]
            table = torch.as_tensor(rows, dtype=torch.float32)  # !
            # + table = torch.as_tensor(np.array(rows), dtype=torch.float32)
        """),
    )

    def check(self, node: ast.AST, file: SourceFile) -> Iterator[Problem]:
        if (
            not isinstance(node, ast.Call)
            or not node.args
            or file.imports.qualified(node.func) not in _TENSORS
        ):
            return
        data = node.args[0]
        if not isinstance(data, (ast.List, ast.ListComp, ast.Name)) or has_unpacking(node):
            return
        proof = _array_element(data, file)
        if proof is None:
            return
        numpy = next((local for local, name in file.imports.local_names().items() if name == "numpy"), "")
        name = numpy or "np"
        fix = None
        if numpy:
            edits = (replace_node(file, data, f"{numpy}.array({file.source(data)})"),)
            fix = Fix(Safety.UNSAFE, edits, "the arrays have one data type")
        yield Problem(
            node,
            f"{quote(file, data)} is a list of NumPy arrays (line {proof.lineno}): torch reads it number by number. "
            f"Join the arrays first: `{name}.array(…)`.",
            0.8,
            (Evidence(proof.lineno, "an element of the list is an array"),),
            fix,
        )


def _array_element(data: ast.expr, file: SourceFile) -> ast.expr | None:
    """An element of the list that is proven to be an array of one dimension or more, or None."""
    if isinstance(data, ast.ListComp):
        return data.elt if _is_array(data.elt, file) else None
    if isinstance(data, ast.List):
        return data.elts[0] if data.elts and all(_is_array(e, file) for e in data.elts) else None
    binding = file.bindings.last_before(data) if isinstance(data, ast.Name) else None
    value = assigned(data, file)
    if binding is None or not isinstance(value, (ast.ListComp, ast.List)) or not isinstance(data, ast.Name):
        return None
    if isinstance(value, ast.ListComp) or value.elts:
        return _array_element(value, file)
    added: list[ast.expr] = []
    for call in file.calls.calls_in(file.index.function_of(data)):
        grown = method_call(call, "append", "extend")
        if (
            not (isinstance(grown, ast.Name) and grown.id == data.id and call.args)
            or call.lineno >= data.lineno
        ):
            continue
        if method_call(call, "extend") or call.lineno < binding.line:
            return None
        added.append(call.args[0])
    return added[0] if added and all(_is_array(a, file) for a in added) else None


# NumPy functions that give an array of at least one dimension whatever they are given.
_ARRAYS = frozenset(
    "array asarray zeros ones empty full arange linspace stack concatenate vstack hstack transpose load fromfile frombuffer "
    "expand_dims pad eye zeros_like ones_like random.rand random.randn imread resize cvtColor imdecode".split()
)


def _is_array(expr: ast.expr, file: SourceFile) -> bool:
    if isinstance(expr, ast.Name):
        value = assigned(expr, file)
        return value is not None and not isinstance(value, ast.Name) and _is_array(value, file)
    if not isinstance(expr, ast.Call):
        return False
    kept = method_call(expr, "astype", "transpose", "copy")
    if kept is not None and _is_array(kept, file):
        return True
    root, _, leaf = file.imports.qualified(expr.func).partition(".")
    return root in ("numpy", "cv2") and leaf in _ARRAYS
