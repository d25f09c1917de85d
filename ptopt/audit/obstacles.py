"""What in a training does not run, or runs otherwise than meant, under `torch.autocast` as it stands."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator

from ptopt.audit.modules import Module, Modules, qualified
from ptopt.audit.setup import Setup
from ptopt.audit.values import Kind, Obstacle, Place
from ptopt.pathkind import path_kind
from ptopt.source.file import SourceFile
from ptopt.source.index import FUNCTIONS, FunctionNode
from ptopt.source.work import WorkLimitError

# Both take probabilities; autocast raises on them, as those of a network that ran in half precision saturate.
_PROBABILITIES = re.compile(r"^torch\.nn\.(\w+\.)*(BCELoss|binary_cross_entropy)$")
_SPECTRA = re.compile(
    r"^torch\.(fft\.(?!fftfreq|rfftfreq|fftshift|ifftshift)\w+|i?(r?fft|fft2)|svd|symeig|inverse|cholesky|qr|pinverse|"
    r"linalg\.(svd|svdvals|inv|eigh?|eigvalsh?|cholesky|qr|pinv|solve|lstsq|det|slogdet))$"
)
# Packages whose kernels are compiled for float32, or not known to take what autocast gives them.
_KERNELS = frozenset(
    {"correlation_cuda", "MultiScaleDeformableAttention", "spconv", "MinkowskiEngine", "torchsparse", "pointnet2_ops", "pointnet2_utils",
     "pointops", "pointops_cuda", "pointnet2_cuda", "inplace_abn", "cupy", "torch_cluster", "torch_points_kernels", "alt_cuda_corr",
     "spatial_correlation_sampler", "resample2d_cuda", "channelnorm_cuda", "knn_cuda", "chamfer_3D", "encoding", "dcn_v2", "deform_conv_cuda"}
)  # fmt: skip
# Packages that run the steps, and cast in a way of their own.
_ENGINES = ("bmtrain", "megatron", "patrickstar")
_IMPORT = re.compile(rb"^[ \t]*(?:from|import)[ \t]+([\w.]+)", re.M)
_APEX = ("apex.normalization", "apex.contrib", "apex.mlp")
_LOADS = re.compile(r"^torch\.utils\.(cpp_extension\.load(_inline)?|ffi\.\w+)$")
_DECLARED = re.compile(
    rb"(?:CUDAExtension|CppExtension|SYCLExtension|make_cuda_ext)\(\s*(?:name\s*=\s*)?[\"']([\w.]+)[\"']"
)
_COMPILED = frozenset({"_C", "_ext"})  # how a module of compiled code is called in a package
_THREADS = frozenset({"DataParallel", "data_parallel", "parallel_apply"})
_OLD_CODE = re.compile(
    r"\bvolatile\s*=\s*(?:True|\(*not\b)|\basync\s*=\s*True|\b\w{0,40}(?:loss|err)\w{0,40}\.data\[0\]", re.I
)
_OLD_WORDS = ("volatile", "async", ".data[0]")  # one is in all of these
_LIKE = re.compile(r"^torch\.(zeros|ones|empty|full)_like$")
_OF_LOGITS = re.compile(r"^torch\.nn\.functional\.(binary_cross_entropy_with_logits|cross_entropy)$")
_DEEPEST = 6  # names of names
_MOST = 4  # obstacles of a kind


def obstacles(setup: Setup) -> tuple[Obstacle, ...]:
    """Those of one script, each thing once, at the first place."""
    found: dict[tuple[Kind, str], Obstacle] = {}
    for obstacle in (*_of_calls(setup), *_of_masks(setup), *_of_registry(setup), *_of_old_code(setup)):
        if sum(kind is obstacle.kind for kind, _ in found) < _MOST:
            found.setdefault((obstacle.kind, obstacle.what), obstacle)
    return tuple(found.values())


def _of_calls(setup: Setup) -> Iterator[Obstacle]:
    own = setup.live.modules.once(_own_extensions)
    several = any(True for _ in setup.calls("DistributedDataParallel", "DDP", "FullyShardedDataParallel"))
    for module, call, name in setup.live.found(setup.live.modules.once(_suspects)):
        last = name.rpartition(".")[2]
        kind, what = None, name
        if _PROBABILITIES.match(name) and _is_used(setup, module, call):
            kind, what = Kind.PROBABILITIES, f"nn.{last}" if last == "BCELoss" else f"F.{last}"
        elif last in _THREADS and name.startswith("torch.nn.") and not several:
            kind, what = Kind.THREADS, last
        elif _SPECTRA.match(name):
            kind = Kind.FLOAT32
        elif name == "torch.autograd.grad" and _is_true(setup.keyword(call, "create_graph", 4)):
            kind = Kind.GRADIENT_PENALTY
        elif name.startswith(_ENGINES):
            kind, what = Kind.ENGINE, name.partition(".")[0]
        elif _LOADS.match(name):
            kind, what = Kind.FLOAT32, _name_of(setup, call) or last
        elif (package := _extension(name, own)) and not _is_defined(setup, module, call):
            kind, what = Kind.FLOAT32, package
        if kind is not None and _trains(module, call) and setup.runs(module, call).truth is not False:
            yield Obstacle(kind, what, setup.place(module, call))


def _of_masks(setup: Setup) -> Iterator[Obstacle]:
    """`weight = torch.zeros_like(logits); weight[mask] = others.sum() / mask.sum()`, where a loss takes `logits`: an index put raises where
    the types differ.
    """
    try:
        yield from list(_puts_by_mask(setup))
    except (WorkLimitError, RecursionError):  # the rows of the table, which come first, stay
        return


def _puts_by_mask(setup: Setup) -> Iterator[Obstacle]:
    for module in setup.live.read.values():
        for assign, name, made, function in module.once(_written_by_mask, module.file.tree):
            if (
                function in setup.live.functions
                and _trains(module, made)
                and setup.runs(module, assign).truth is not False
            ):
                yield Obstacle(Kind.PUT_BY_MASK, name, setup.place(module, made))


def _written_by_mask(module: Module, _: ast.Module) -> list[tuple[ast.Assign, str, ast.Call, FunctionNode]]:
    """The assignments by a mask, each with the name and the making of what it writes to, and their function."""
    found = []
    for assign in module.file.index.of_type(ast.Assign):
        target = assign.targets[0]
        if not isinstance(target, ast.Subscript) or not isinstance(target.value, ast.Name):
            continue
        function = module.file.index.function_of(assign)
        made = _value_of(module, target.value)
        if (
            function is not None
            and isinstance(made, ast.Call)
            and _LIKE.match(qualified(module, made.func))
            and len(made.args) == 1
            and not any(keyword.arg == "dtype" for keyword in made.keywords)
            and isinstance(_value_of(module, target.slice), ast.Compare)
            and _is_share(module, assign.value)
            and _is_given_to_loss(module, function, made.args[0])
        ):
            found.append((assign, target.value.id, made, function))
    return found


def _value_of(module: Module, node: ast.expr) -> ast.expr | None:
    """What the name holds; another expression itself."""
    if not isinstance(node, ast.Name):
        return node
    binding = module.file.bindings.last_before(node)
    return binding.value if binding is not None and binding.kind == "assign" else None


def _is_share(module: Module, value: ast.expr) -> bool:
    """A number of elements divided by another: float32 under any autocast."""
    if not isinstance(value, ast.BinOp) or not isinstance(value.op, ast.Div):
        return False
    return all(_counts(module, side) for side in (value.left, value.right))


def _counts(module: Module, node: ast.expr, depth: int = 0) -> bool:
    """Is it made of sums of masks?"""
    held = _value_of(module, node)
    if held is None or depth > _DEEPEST:
        return False
    if isinstance(held, ast.BinOp):
        sides = [side for side in (held.left, held.right) if not isinstance(side, ast.Constant)]
        return bool(sides) and all(_counts(module, side, depth + 1) for side in sides)
    return (
        isinstance(held, ast.Call)
        and isinstance(held.func, ast.Attribute)
        and held.func.attr == "sum"
        and isinstance(_value_of(module, held.func.value), ast.Compare)
    )


def _is_given_to_loss(module: Module, function: FunctionNode, logits: ast.expr) -> bool:
    """Does a loss of torch take it as the output of a network, in the same function?"""
    return isinstance(logits, ast.Name) and any(
        _OF_LOGITS.search(qualified(module, call.func))
        and bool(call.args)
        and isinstance(call.args[0], ast.Name)
        and call.args[0].id == logits.id
        for call in module.file.index.of_type(ast.Call)
        if module.file.index.function_of(call) is function
    )


def _suspects(modules: Modules) -> Callable[[Module, ast.Call], str | None]:
    """What tells the calls that may be an obstacle by their names."""
    own = modules.once(_own_extensions)

    def name_of(module: Module, call: ast.Call) -> str | None:
        name = qualified(module, call.func)
        may_be = (
            _PROBABILITIES.match(name)
            or name.rpartition(".")[2] in _THREADS
            or _SPECTRA.match(name)
            or name == "torch.autograd.grad"
            or name.startswith(_ENGINES)
            or _LOADS.match(name)
            or _extension(name, own)
        )
        return name if may_be else None

    return name_of


def _is_true(given: ast.expr | None) -> bool:
    return isinstance(given, ast.Constant) and given.value is True


def _of_registry(setup: Setup) -> Iterator[Obstacle]:
    """Compiled kernels beside the code that finds classes by their names: which of them it will find is not known."""
    folders = tuple({"".join(module.path.rpartition("/")[:2]) for module, _ in setup.live.dynamic})
    kernels = setup.live.modules.once(_own_extensions) | _KERNELS
    for path, data in sorted(setup.live.modules.files.items()) if folders else ():
        if not path.startswith(folders) or b"def forward" not in data or path_kind(path) is not None:
            continue
        for match in _IMPORT.finditer(data):
            name = match[1].decode()
            package = next((part for part in name.split(".") if part in kernels), "")
            if package and setup.live.modules.find(name, 0, path) is None:
                yield Obstacle(
                    Kind.OF_REGISTRY, package, Place(path, data.count(b"\n", 0, match.start(1)) + 1)
                )
                break  # one place a file


def _is_used(setup: Setup, module: Module, call: ast.Call) -> bool:
    """Does anything that runs read the attribute that holds a loss?"""
    parent = module.file.index.parent(call)
    if not isinstance(parent, ast.Assign) or not isinstance(parent.targets[0], ast.Attribute):
        return True
    held = setup.live.mentions.get(parent.targets[0].attr)
    return any(isinstance(getattr(node, "ctx", None), ast.Load) for _, node in held)


def _extension(name: str, own: frozenset[str]) -> str:
    """The module of compiled code that is called; "" where it is none."""
    if name.startswith(_APEX):
        return ".".join(name.split(".")[:2])
    parts = name.split(".")
    if parts[0] in ("torch", "torchvision"):
        return ""  # `torch._C`: its kernels know autocast
    if parts[0] in _KERNELS:
        return parts[0]
    return next((part for part in parts[:-1] if part in own or part in _COMPILED), "")


def _is_defined(setup: Setup, module: Module, call: ast.Call) -> bool:
    """Is it Python code of the repository, which was read?"""
    return not setup.is_external(module, call.func)


def _own_extensions(modules: Modules) -> frozenset[str]:
    """The modules that a `setup.py` of the repository compiles, and those that run-time compilation binds to a name."""
    found = {
        name.decode().rpartition(".")[2]
        for path, data in modules.files.items()
        if b"Extension(" in data or b"make_cuda_ext(" in data
        for name in _DECLARED.findall(data)
    }
    return frozenset(found - {"torch", "nn"})


def _name_of(setup: Setup, call: ast.Call) -> str:
    """The name that `cpp_extension.load` is given."""
    given = setup.keyword(call, "name", 0)
    return given.value if isinstance(given, ast.Constant) and isinstance(given.value, str) else ""


def _trains(module: Module, call: ast.Call) -> bool:
    """Not in a function that evaluates."""
    function = module.file.index.function_of(call)
    return function is None or not module.file.context.is_eval_function(function)


def _of_old_code(setup: Setup) -> Iterator[Obstacle]:
    """What torch has taken away before it got autocast."""
    for module in setup.live.read.values():
        for line, what in module.file.once(_old_lines):
            if module is setup.live.start or _is_live(setup, module, line):
                yield Obstacle(Kind.OLD_TORCH, what, setup.place_of_line(module, line))
                return


def _old_lines(file: SourceFile) -> list[tuple[int, str]]:
    """The lines that say so, each with what it says."""
    found = []
    for line, text in enumerate(file.text.split("\n") if file.search(_OLD_CODE, _OLD_WORDS) else (), 1):
        match = _OLD_CODE.search(text)
        if match is not None and "#" not in text[: match.start()]:
            found.append((line, match[0] if "[" in match[0] else "".join(match[0].split())))
    return found


def _is_live(setup: Setup, module: Module, line: int) -> bool:
    return any(
        holder is module
        and isinstance(function, FUNCTIONS)
        and function.lineno <= line <= (function.end_lineno or line)
        for function, holder in setup.live.functions.items()
    )
