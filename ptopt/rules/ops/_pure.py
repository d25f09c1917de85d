"""Work without side effects, what it costs, and whether what it reads has changed between two places."""

from __future__ import annotations

import ast
import re
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field

from ptopt.rules.base import SourceFile
from ptopt.rules.shared.flow import assigned
from ptopt.source.bindings import is_self
from ptopt.source.calls import called_name
from ptopt.source.index import COMPREHENSIONS, FUNCTIONS, FunctionNode, Loop, children_of, walk
from ptopt.source.torch_names import TENSOR_ONLY_METHODS

# What one call costs next to the others: 3 a product or a network, 2 transcendental functions and sorts, 1 one pass.
_COSTS = {
    3: "matmul mm bmm baddbmm addmm einsum tensordot cdist conv1d conv2d conv3d linear interpolate grid_sample svd qr eigh inv "
    "pinv solve cholesky lstsq scaled_dot_product_attention multi_head_attention_forward unfold bilinear kron",
    2: "softmax log_softmax log_sigmoid logsigmoid sigmoid tanh softplus exp expm1 log log1p log2 log10 lgamma digamma erf gelu "
    "silu sin cos sqrt rsqrt pow norm vector_norm normalize cosine_similarity logsumexp sort argsort topk cumsum cumprod "
    "unique median quantile kthvalue layer_norm group_norm one_hot fft rfft ifft irfft stft cross_entropy mse_loss "
    "binary_cross_entropy binary_cross_entropy_with_logits nll_loss kl_div l1_loss smooth_l1_loss pairwise_distance histc",
    1: "sum mean max min amax amin argmax argmin std var prod abs clamp relu square gather index_select scatter where cat stack "
    "masked_fill repeat repeat_interleave tile flip roll outer ger diff triu tril bincount logical_and logical_or any all "
    "isnan isinf nonzero minimum maximum sign round floor cross pad",
}
COSTS = {name: cost for cost, names in _COSTS.items() for name in names.split()}
_HOST = frozenset(
    "argsort sort unique intersect1d setdiff1d union1d isin in1d dot matmul einsum histogram percentile quantile median cov "
    "corrcoef interp meshgrid convolve concatenate svd inv eig eigh qr solve fft ifft rfft bincount searchsorted tile repeat".split()
)  # of NumPy
TABLES = frozenset(
    "arange linspace logspace meshgrid eye tril_indices triu_indices hann_window hamming_window blackman_window kaiser_window "
    "bartlett_window combinations cartesian_prod fftfreq rfftfreq".split()
)
_RANDOM = re.compile(r"drop|rand|noise|sampl|augment|gumbel|shuffle|jitter|perturb|mixup|bernoulli", re.I)
_MODULES = ("torch", "torch.nn.functional", "torch.linalg", "torch.special", "torch.fft")
# Methods that arrays, lists, modules and user classes do not have: a call proves a tensor.
_TELLING = (TENSOR_ONLY_METHODS & COSTS.keys() | {"log_softmax", "logsumexp", "baddbmm", "addmm", "mm"}) - {
    "unfold",
    "tanh",
    "where",
    "gather",
}
_FILLED = frozenset(
    "zeros ones full empty tensor as_tensor zeros_like ones_like full_like from_numpy Tensor FloatTensor LongTensor device finfo "
    "iinfo array asarray".split()
)
_PLAIN = frozenset(
    "len int float min max range size dim numel view reshape permute transpose t unsqueeze squeeze expand expand_as view_as "
    "contiguous flatten to type type_as long half bool double detach clone item diagonal chunk split unbind ndimension cpu cuda "
    "new_tensor new_zeros new_ones new_full mul add sub div neg eq ne lt gt le ge bfloat16 byte short str abs tuple list "
    "isinstance hasattr getattr zip enumerate rearrange reduce type_as is_floating_point element_size masked_select".split()
)
_UNARY = frozenset(
    "cos sin exp expm1 log log1p log2 rsqrt sqrt lgamma digamma erf".split()
)  # no array has these methods
_MUTATORS = frozenset(
    "append extend insert pop remove clear update add discard setdefault reverse popleft appendleft step load_state_dict "
    "zero_grad reset backward put push shuffle sort set fill resize".split()
)


def cost(node: ast.AST, file: SourceFile) -> int:
    """What a pure operation on tensors costs (1 to 3); 0 when it is none, or not known to be one."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.MatMult):
        return 3
    if not isinstance(node, ast.Call):
        return 0
    name = called_name(node)
    target = file.calls.resolve(node)
    if target is not None:
        return _function_cost(target, file)
    if name in _HOST and (qualified := file.imports.qualified(node.func)).startswith("numpy."):
        return 2
    if name not in COSTS or any(k.arg in ("out", "generator") for k in node.keywords):
        return 0
    qualified = file.imports.qualified(node.func)
    if qualified:
        return COSTS[name] if qualified.rpartition(".")[0] in _MODULES else 0
    if not isinstance(node.func, ast.Attribute):
        return 0
    if name in _TELLING or name in _UNARY and not node.args and not node.keywords:
        return COSTS[name]
    return COSTS[name] if file.values.of(node.func.value).kind == "tensor" else 0


def _function_cost(function: FunctionNode, file: SourceFile) -> int:
    """What a function of the file costs at least, when all that it does is pure; else 0."""
    known = file.once(_function_costs)
    if function not in known:
        known[function] = 0  # recursion ends here
        known[function] = _measured(function, file)
    return known[function]


def _function_costs(file: SourceFile) -> dict[FunctionNode, int]:
    return {}


def _measured(function: FunctionNode, file: SourceFile) -> int:
    if any(not isinstance(d, ast.Name) or d.id != "staticmethod" for d in function.decorator_list):
        return 0
    found = changes(function, file)
    parameters = {a.arg for a in [*function.args.args, *function.args.kwonlyargs]}
    if any(key.startswith("self.") for key in found.at) or not parameters.isdisjoint(found.in_place):
        return 0
    calls = file.calls.calls_in(function)
    if function in file.once(_generators) or any(
        not _is_pure_call(c, file) and not called_name(c).endswith("Error") for c in calls
    ):
        return 0
    return max((3 if is_module_call(c, file) else cost(c, file) for c in calls), default=0)


def _generators(file: SourceFile) -> frozenset[FunctionNode | None]:
    """Functions that yield, or change names of other scopes."""
    return frozenset(
        file.index.function_of(n)
        for n in file.index.of_type(ast.Yield, ast.YieldFrom, ast.Global, ast.Nonlocal, ast.Await)
    )


def costly(file: SourceFile) -> dict[ast.expr, int]:
    """Every pure operation and run of a submodule in the file, in source order by type, and what it costs."""
    return file.once(_costly)


def _costly(file: SourceFile) -> dict[ast.expr, int]:
    table: dict[ast.expr, int] = {}
    known = file.once(_built).union(function.name for function in file.calls.functions)
    for call in file.index.of_type(ast.Call):
        name = called_name(call)
        if name and name not in COSTS and name not in _HOST and name not in known:
            continue
        worth = cost(call, file) or (3 if is_module_call(call, file) else 0)
        if worth:
            table[call] = worth
    for operation in file.index.of_type(ast.BinOp):
        if isinstance(operation.op, ast.MatMult):
            table[operation] = 3
    return table


def is_pure(expr: ast.AST, file: SourceFile) -> bool:
    """Do all calls in the expression compute the same from the same operands, as far as their names tell?"""
    return all(_is_pure_call(node, file) for node in walk(expr) if isinstance(node, ast.Call)) and not any(
        isinstance(node, (ast.Await, ast.Yield, ast.NamedExpr)) for node in walk(expr)
    )


def _is_pure_call(call: ast.Call, file: SourceFile) -> bool:
    name = called_name(call)
    if cost(call, file) or name in _PLAIN or is_module_call(call, file):
        return True
    return name in TABLES or name in _FILLED if file.imports.qualified(call.func) else False


def is_module_call(call: ast.Call, file: SourceFile) -> bool:
    """Does it run a submodule, as what is assigned to the name shows, that draws no random numbers as far as names tell?"""
    func = call.func
    while isinstance(func, ast.Subscript):
        func = func.value
    if not isinstance(func, (ast.Attribute, ast.Name)):
        return False
    name = func.attr if isinstance(func, ast.Attribute) else func.id
    if name not in file.once(_built):
        return False
    made = _assigned(func, file)
    made_by = called_name(made) if isinstance(made, ast.Call) else ""
    if _RANDOM.search(name) or _RANDOM.search(made_by):
        return False
    if file.values.is_a(func, "module"):
        return True
    cls = file.index.class_of(call)
    return made_by[:1].isupper() and is_self(func) and cls is not None and file.context.is_module(cls)


def _built(file: SourceFile) -> frozenset[str]:
    """Names and attributes that the file gives the result of a call of something that is named like a class."""
    names = set()
    for assign in file.index.of_type(ast.Assign):
        made = assign.value
        while (
            isinstance(made, ast.Call)
            and isinstance(made.func, ast.Attribute)
            and isinstance(made.func.value, ast.Call)
        ):
            made = made.func.value  # `nn.Linear(8, 8).to(device)`
        if isinstance(made, ast.Call) and called_name(made)[:1].isupper():
            names |= {
                t.attr if isinstance(t, ast.Attribute) else t.id
                for t in assign.targets
                if isinstance(t, (ast.Attribute, ast.Name))
            }
    return frozenset(names)


def _assigned(func: ast.expr, file: SourceFile) -> ast.expr | None:
    """What the name or attribute of `self` was given."""
    if isinstance(func, ast.Name):
        return assigned(func, file)
    cls = file.index.class_of(func)
    return (
        file.bindings.attribute(cls, func.attr)
        if cls is not None and isinstance(func, ast.Attribute)
        else None
    )


def reads(expr: ast.AST, file: SourceFile) -> frozenset[str]:
    """What the expression reads: plain names, and attributes of `self` as `self.name`. Imported names are left out."""
    keys: set[str] = set()
    stack = [expr]
    while stack:
        node = stack.pop()
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "self":
            keys.add(f"self.{node.attr}")
            continue
        if isinstance(node, ast.Name) and not file.imports.qualified(node):
            keys.add(node.id)
        stack += children_of(node)
    return frozenset(keys)


def key_of(node: ast.AST) -> str:
    """The name behind a target or a receiver: `x` of `x.grad[0]`, `self.x` of `self.x.data`; "" for anything else."""
    attribute = ""
    while isinstance(node, (ast.Attribute, ast.Subscript, ast.Starred)):
        attribute = node.attr if isinstance(node, ast.Attribute) else attribute
        node = node.value
    if not isinstance(node, ast.Name):
        return ""
    return f"self.{attribute}" if node.id == "self" and attribute else node.id


@dataclass(slots=True)
class Changes:
    """Where one function binds or changes each name, in source order."""

    at: dict[str, list[tuple[int, int]]] = field(default_factory=dict)
    in_place: dict[str, list[tuple[int, int]]] = field(default_factory=dict)

    def between(self, keys: frozenset[str], start: tuple[int, int], end: tuple[int, int]) -> bool:
        """Is one of the names bound or changed after `start` and before `end`?"""
        return any(
            bisect_right(places, end) > bisect_right(places, start)
            for key in keys
            if (places := self.at.get(key))
        )

    def in_node(self, keys: frozenset[str], node: ast.AST) -> bool:
        """Is one of them bound or changed anywhere in the node?"""
        start = (node.lineno, node.col_offset - 1)  # type: ignore[attr-defined]
        return self.between(keys, start, (node.end_lineno, node.end_col_offset))  # type: ignore[attr-defined]


def changes(function: FunctionNode | None, file: SourceFile) -> Changes:
    """The changes of one function (None: module level)."""
    return file.once(_all_changes).get(function) or Changes()


def _all_changes(file: SourceFile) -> dict[FunctionNode | None, Changes]:
    table: dict[FunctionNode | None, Changes] = {}
    function_of = file.index.function_of
    for node, key, in_place in _changing(file):
        function = function_of(node)
        found = table.get(function)
        if found is None:
            found = table[function] = Changes()
        place = _takes_effect(node, file)
        found.at.setdefault(key, []).append(place)
        if in_place:
            found.in_place.setdefault(key, []).append(place)
    for found in table.values():
        for places in [*found.at.values(), *found.in_place.values()]:
            places.sort()
    return table


def _takes_effect(node: ast.AST, file: SourceFile) -> tuple[int, int]:
    """Where a name has its new value: behind the assignment, whose right side still reads the old one."""
    statement = file.index.statement_of(node)
    if isinstance(statement, (ast.Assign, ast.AnnAssign)) and not _of_comprehension(node, file):
        return (statement.end_lineno or 0, statement.end_col_offset or 0)
    return (node.lineno, node.col_offset)  # type: ignore[attr-defined]


def _of_comprehension(target: ast.AST, file: SourceFile) -> bool:
    """Is it a variable of a comprehension, which changes within the statement?"""
    parent = file.index.parent(target)
    while isinstance(parent, (ast.Tuple, ast.List, ast.Starred)):
        target, parent = parent, file.index.parent(parent)
    return isinstance(parent, ast.comprehension) and target is parent.target


def _changing(file: SourceFile) -> Iterator[tuple[ast.AST, str, bool]]:
    """(where, what, whether the object itself changes)"""
    for target in file.index.stored_names:
        yield target, target.id, isinstance(file.index.parent(target), ast.AugAssign)
    for part in file.index.of_type(ast.Attribute, ast.Subscript):
        if part.ctx.__class__ is not ast.Load and (key := key_of(part)):
            yield part, key, not (isinstance(part, ast.Attribute) and key == f"self.{part.attr}")
    for call in file.index.of_type(ast.Call):
        if isinstance(call.func, ast.Attribute):
            name = call.func.attr
            if name in _MUTATORS or (name[-1] == "_" and not name.endswith("__")):
                key = key_of(call.func.value)
                if key:
                    yield call, key, True
    for keyword in file.index.of_type(ast.keyword):
        if keyword.arg == "out" and (key := key_of(keyword.value)):
            call_with = file.index.parent(keyword)
            if isinstance(call_with, ast.Call):
                yield call_with, key, True


def nested_functions(file: SourceFile) -> dict[FunctionNode, list[FunctionNode]]:
    """Function -> the functions in it."""
    table: dict[FunctionNode, list[FunctionNode]] = {}
    for function in file.calls.functions:
        for ancestor, _ in file.index.ancestors(function):
            if isinstance(ancestor, FUNCTIONS):
                table.setdefault(ancestor, []).append(function)
    return table


def fixed_attributes(cls: ast.ClassDef | None, file: SourceFile) -> frozenset[str]:
    """Names of attributes of `self` that the class sets in `__init__` and nowhere else."""
    return file.once(_attributes).get(cls, frozenset()) if cls is not None else frozenset()


def _attributes(file: SourceFile) -> dict[ast.ClassDef, frozenset[str]]:
    inside: dict[ast.ClassDef, set[str]] = {}
    outside: dict[ast.ClassDef, set[str]] = {}
    for function, found in file.once(_all_changes).items():
        cls = file.index.class_of(function) if function is not None else None
        if function is None or cls is None:
            continue
        names = {key[5:] for key in found.at if key.startswith("self.")}
        (inside if _sets_up(function, file) else outside).setdefault(cls, set()).update(names)
    return {cls: frozenset(names - outside.get(cls, set())) for cls, names in inside.items()}


def _sets_up(function: FunctionNode, file: SourceFile, depth: int = 2) -> bool:
    """Is it `__init__`, or a method that only `__init__` calls?"""
    if function.name in ("__init__", "__post_init__", "reset_parameters"):
        return True
    callers = [file.index.function_of(call) for call in file.calls.callers(function)]
    return (
        bool(callers) and depth > 0 and all(c is not None and _sets_up(c, file, depth - 1) for c in callers)
    )


def steady(keys: frozenset[str], node: ast.AST, file: SourceFile) -> bool:
    """Are the attributes of `self` among the names set by `__init__` alone? Others may change in any call."""
    own = {key[5:] for key in keys if key.startswith("self.")}
    return not own or own <= fixed_attributes(file.index.class_of(node), file)


def result_changes(expr: ast.AST, file: SourceFile) -> bool:
    """Is the result changed in place, by a method ending in `_`, a subscript or an augmented assignment?"""
    for parent, child in file.index.ancestors(expr):
        if isinstance(parent, ast.Attribute):
            if parent.attr.endswith("_"):
                return True
            continue
        if isinstance(parent, ast.Call) and child is parent.func:
            continue
        if isinstance(parent, (ast.Assign, ast.AnnAssign)):
            targets = parent.targets if isinstance(parent, ast.Assign) else [parent.target]
            found = changes(file.index.function_of(parent), file)
            return any(
                key_of(n) in found.in_place for t in targets for n in walk(t) if isinstance(n, ast.Name)
            )
        return False
    return False


def is_conditional(node: ast.AST, stop: ast.AST, file: SourceFile) -> bool:
    """Does a condition between `node` and `stop` decide whether it runs?"""
    for ancestor, child in file.index.ancestors(node):
        if ancestor is stop:
            return False
        if isinstance(ancestor, (ast.If, ast.IfExp, ast.While)) and child is not ancestor.test:
            return True
        if isinstance(ancestor, ast.BoolOp) and child is not ancestor.values[0]:
            return True
        if isinstance(ancestor, (ast.Try, ast.ExceptHandler, ast.Match)):
            return True
    return False


def is_deferred(node: ast.AST, file: SourceFile) -> bool:
    """Does it run when a lambda or a comprehension does, rather than with its statement?"""
    for ancestor, _ in file.index.ancestors(node):
        if isinstance(ancestor, (ast.Lambda, *COMPREHENSIONS)):
            return True
        if isinstance(ancestor, (ast.stmt, *FUNCTIONS)):
            return False
    return False


def leaves_loop(node: ast.AST, loop: Loop, file: SourceFile) -> bool:
    """Is the loop left in the block that holds `node`, so that it runs once?"""
    for ancestor, child in file.index.ancestors(node):
        for block in (getattr(ancestor, "body", None), getattr(ancestor, "orelse", None)):
            if isinstance(block, list) and child in block and isinstance(block[-1], (ast.Return, ast.Break)):
                return True
        if ancestor is loop:
            return False
    return False
