from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from ptopt.rules.base import Invalid, Problem, Rule, SourceFile
from ptopt.rules.code import has_unpacking, keyword_of, quote
from ptopt.source.bindings import is_self
from ptopt.source.calls import called_name
from ptopt.source.frequency import Often

_READ_ONLY = re.compile(r"memmap\(|mmap_mode=[\"']r[\"']")
_LEGACY = frozenset({"torch.Tensor", "torch.FloatTensor"})
_SMALL = frozenset("mean std float32 array_equal sum prod median max min int64 float64".split())


class ArrayCopiedIntoTensor(Rule):
    """A NumPy array is copied into a tensor, again and again.

    ## What it does
    Finds `torch.tensor(array)` for a proven array, and `torch.FloatTensor(...)`, `torch.Tensor(...)` of an array or of
    rows of a stored one, in code that runs for each sample, batch or step.

    ## Why it is slow
    `torch.tensor` always copies. The old constructors convert whatever is not their own type, and NumPy's default is
    float64: each row is converted anew each time. `torch.from_numpy` shares the memory; a stored array can be kept as float32.

    ## Fix safety
    There is no fix: whether the array is written to later must be seen.

    ## Sources
    - [torch.from_numpy](https://docs.pytorch.org/docs/stable/generated/torch.from_numpy.html)
    """

    id = "PTO810"
    name = "array-copied-into-tensor"
    family = "memory"
    most_stated = 0.4
    nodes = (ast.Call,)
    calls = frozenset({"tensor", "Tensor", "FloatTensor"})
    requires = ("numpy", "np", "scipy")
    when_wrong = "the array is written to later, or holds a few numbers"

    VALID = (
        """
        for batch in loader:
            for *box, score in predict(batch.cuda()):
                box = torch.FloatTensor(box).view(1, -1)
                overlaps.append(iou(box, targets))
        """,
        """
        class Poses(Dataset):
            def __getitem__(self, index):
                pose = np.linalg.inv(self.poses[index])
                return torch.tensor(pose, dtype=torch.float32)
        """,
        """
        class Eyes(Dataset):
            def __getitem__(self, index):
                eye = np.stack(self.read(index))
                eye = eye.astype(np.float32)
                return torch.FloatTensor(eye)
        """,
        """
        mean = torch.tensor(np.array([0.5, 0.5]))
        """,
        """
        def collate(batch):
            return torch.from_numpy(np.stack(batch))
        """,
        """
        for x in loader:
            length = torch.tensor(len(x))
        """,
    )
    INVALID = (
        Invalid("""
            class Rows(Dataset):
                def __getitem__(self, index):
                    return torch.FloatTensor(self.data[index])  # !
                    # ~ return torch.from_numpy(self.data[index])  # self.data = data.astype(np.float32), once
        """),
        Invalid("""
            def collate_fn(batch):
                images = np.stack([item["image"] for item in batch])
                return torch.tensor(images)  # !
        """),
        Invalid("""
            for episode in range(episodes):
                for step in range(steps):
                    states = torch.Tensor(np.concatenate(buffer))  # !
                    policy(states).mean().backward()
                    optimizer.step()
        """),
    )

    def check(self, node: ast.AST, file: SourceFile) -> Iterator[Problem]:
        if not isinstance(node, ast.Call) or len(node.args) != 1 or has_unpacking(node):
            return
        name = file.imports.qualified(node.func)
        legacy = name in _LEGACY
        data = node.args[0]
        if not legacy and name != "torch.tensor" or isinstance(data, (ast.List, ast.ListComp, ast.Constant)):
            return
        if file.search(_READ_ONLY):
            return  # a tensor that shares such memory must not be written
        array = file.values.is_array(data) and not _is_number(data, file)
        stored = legacy and _is_stored(data)
        frequency = file.frequencies.of(node)
        if not (array or stored) or frequency.often < Often.EVALUATION:
            return
        if keyword_of(node, "dtype") is not None or keyword_of(node, "device") is not None:
            return  # a conversion or a move copies as well
        if legacy and _is_single(data, file):
            return  # of the tensor's own type: its memory is shared
        if legacy:
            message = (
                f"{quote(file, node, 45)} converts what is not of its own type, and copies it: NumPy's default is float64. It "
                f"runs {frequency.reason}. Keep the array as float32 from the start and wrap it: `torch.from_numpy(…)` "
                "shares the memory."
            )
        else:
            message = (
                f"{quote(file, node, 45)} copies the whole array, {frequency.reason}. `torch.from_numpy(…)` shares its "
                "memory instead."
            )
        yield Problem(
            node,
            message,
            0.4 if array else 0.35,
            subject=data,
            cause=file.index.function_of(node),
            facts={
                "legacy": legacy,
                "proven": array,
                "in_worker": frequency.in_worker,
            },
        )


def _is_number(expr: ast.expr, file: SourceFile) -> bool:
    """Does NumPy give a single number here?"""
    call = expr
    if isinstance(expr, ast.Subscript) and not _takes_rows(expr.slice, file):
        return True
    if isinstance(expr, ast.Name):
        binding = file.bindings.last_before(expr)
        call = binding.value if binding is not None and binding.value is not None else expr
    if not isinstance(call, ast.Call):
        return False
    leaf = call.func.attr if isinstance(call.func, ast.Attribute) else ""
    literal = bool(call.args) and isinstance(call.args[0], (ast.Constant, ast.List, ast.Tuple))
    return leaf in _SMALL or leaf.startswith("rand") and not call.args or literal


def _takes_rows(index: ast.expr, file: SourceFile) -> bool:
    """Is it a slice, or a name that is bound to one? One index may pick a single number."""
    if isinstance(index, ast.Name):
        binding = file.bindings.last_before(index)
        index = binding.value if binding is not None and binding.value is not None else index
    sliced = isinstance(index, ast.Call) and called_name(index) == "slice"
    return sliced or isinstance(index, (ast.Slice, ast.Tuple, ast.Compare))


def _is_single(expr: ast.expr, file: SourceFile) -> bool:
    """Was the array made as float32: `x = x.astype(np.float32)`?"""
    function = file.index.function_of(expr)
    made = (
        [b.value for b in file.bindings.of(function, expr.id) if b.value is not None]
        if isinstance(expr, ast.Name)
        else [expr]
    )
    return any("float32" in file.source(value) for value in made)


def _is_stored(expr: ast.expr) -> bool:
    """Is it `self.data[index]`, rows of something that lives as long as the object?"""
    while isinstance(expr, ast.Call) and isinstance(expr.func, ast.Attribute) and not expr.args:
        expr = expr.func.value
    return (
        isinstance(expr, ast.Subscript) and is_self(expr.value) and not isinstance(expr.slice, ast.Constant)
    )
