from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from ptopt.rules.base import Evidence, Invalid, Problem, Rule, SourceFile
from ptopt.rules.code import is_call_of, method_call, quote
from ptopt.source.calls import called_name
from ptopt.source.frequency import Often

_MAKERS = frozenset(
    "tensor as_tensor Tensor FloatTensor LongTensor IntTensor DoubleTensor BoolTensor array asarray".split()
)
# What is an array of its own for each sample, as far as names tell.
_ROWS = re.compile(
    r"^(next_?)?(state|obs|observation|image|img|frame|feature|embedding|vector|box|bboxe?|mask|point|spectrogram|mel|"
    r"waveform|audio|pixel|feat|emb|patch|s_|ob)s?(_?(next|prime|list|batch|t|2|_))?$|^(s|s_|s2|ns|s_prime)$|_vectors?$|_embeddings?$|_features?$|_images?$",
    re.I,
)


class TensorThroughList(Rule):
    """Numbers that lie in an array or a tensor go through a Python list on their way to a tensor.

    ## What it does
    Finds `torch.tensor(a.tolist())`, `np.array(list(a))` and `torch.tensor([row for row in a])` of an array or tensor `a`,
    `torch.stack([torch.tensor(x) for x in xs])`, and `torch.tensor(states)` of a tuple of arrays that `zip(*batch)` gave.

    ## Why it is slow
    Each number, or each row, becomes a Python object and is read back one by one: a hundred times slower than a copy of
    the memory, and torch warns of it for lists of arrays.

    ## Fix safety
    No fix is offered: the type of the elements is not known for sure.

    ## Sources
    - [torch.tensor](https://docs.pytorch.org/docs/stable/generated/torch.tensor.html)
    """

    id = "PTO870"
    name = "tensor-through-list"
    family = "memory"
    most_stated = 0.45
    nodes = (ast.Call,)
    calls = _MAKERS | {"stack", "cat"}
    when_wrong = "there are a few numbers only"

    VALID = (
        """
        states = torch.from_numpy(np.stack(states))
        """,
        """
        lengths = torch.tensor([len(x) for x in texts])
        """,
        """
        actions, rewards = zip(*batch)
        rewards = torch.tensor(rewards)
        """,
    )
    INVALID = (
        Invalid("""
            def learn(memory):
                states, actions = zip(*memory.sample(64))
                states = torch.FloatTensor(states)  # !
                # ~ states = torch.from_numpy(np.stack(states)).float()
                return states
        """),
        Invalid("""
            def collate_fn(batch):
                return torch.stack([torch.tensor(item) for item in batch])  # !
        """),
        Invalid("""
            def targets(x: torch.Tensor):
                return torch.tensor(x.cpu().numpy().tolist())  # !
        """),
    )

    def check(self, node: ast.AST, file: SourceFile) -> Iterator[Problem]:
        if not isinstance(node, ast.Call) or not node.args:
            return
        qualified = file.imports.qualified(node.func)
        if not qualified.startswith(("torch.", "numpy.")):
            return
        form = _form(node, node.args[0], file)
        if not form:
            return
        frequency = file.frequencies.of(node)
        if frequency.often in (Often.ONCE, Often.RARELY):
            return
        given = quote(file, node.args[0], 50)
        name = given.strip("`")
        text = {
            "tolist": f"{given} makes a Python object of each number, only to read them back into a tensor or an array. Pass the array "
            "itself (`torch.from_numpy(a)`, `x.cpu()`, `.to(dtype)`).",
            "rows": f"{given} takes an array apart row by row, and puts it together again from the rows. Pass the array itself.",
            "parts": f"{given} makes one tensor for each element and copies them all once more. Make one tensor of all: "
            "`torch.tensor(list)` for numbers, `torch.from_numpy(np.stack(list))` for arrays.",
            "columns": f"`{name}` is a tuple with one array for each sample, which torch reads number by number. Join the arrays first: "
            f"`torch.from_numpy(np.stack({name}))`.",
        }[form]
        yield Problem(
            node,
            text,
            0.45 if form in ("tolist", "columns") else 0.35,
            (Evidence(frequency.line, f"runs {frequency.reason}"),) if frequency.line else (),
            subject=node.args[0],
            facts={"form_" + form: 1},
        )


def _form(call: ast.Call, data: ast.expr, file: SourceFile) -> str:
    name = called_name(call)
    if name in ("stack", "cat"):
        element = data.elt if isinstance(data, (ast.ListComp, ast.GeneratorExp)) else None
        while (
            isinstance(element, ast.Call)
            and isinstance(element.func, ast.Attribute)
            and not _maker(element, file)
        ):
            element = element.func.value
        return "parts" if isinstance(element, ast.Call) and _maker(element, file) else ""
    if name not in _MAKERS:
        return ""
    listed = method_call(data, "tolist")
    if listed is not None:
        return "tolist" if not isinstance(listed, ast.Subscript) else ""
    inner: ast.expr | None = None
    if is_call_of(data, "list") and len(data.args) == 1:
        inner = data.args[0]
    elif isinstance(data, ast.ListComp) and len(data.generators) == 1 and not data.generators[0].ifs:
        target = data.generators[0].target
        same = isinstance(data.elt, ast.Name) and isinstance(target, ast.Name) and data.elt.id == target.id
        inner = data.generators[0].iter if same else None
    if inner is not None:
        return "rows" if file.values.of(inner).kind in ("tensor", "array") else ""
    if (
        isinstance(data, ast.Name)
        and _ROWS.search(data.id)
        and file.imports.qualified(call.func).startswith("torch.")
    ):
        binding = file.bindings.last_before(data)
        if binding is not None and binding.kind == "unpack" and _is_transposed(binding.value):
            return "columns"
    return ""


def _is_transposed(value: ast.expr | None) -> bool:
    """`zip(*batch)`, also inside `map(list, …)` or a named tuple."""
    while isinstance(value, ast.Call) and called_name(value) != "zip" and value.args:
        last = value.args[-1]
        value = last.value if isinstance(last, ast.Starred) else last
    return isinstance(value, ast.Call) and bool(value.args) and isinstance(value.args[0], ast.Starred)


def _maker(call: ast.Call, file: SourceFile) -> bool:
    made = file.imports.qualified(call.func)
    scalar = call.args and isinstance(call.args[0], (ast.Constant,))
    return made.startswith("torch.") and made.rpartition(".")[2] in _MAKERS and not scalar
