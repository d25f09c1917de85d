"""Mixed precision, TF32, torch.compile."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import replace

from ptopt.audit.arguments import TrainerArguments, keyword_value, lightning_argument
from ptopt.audit.calling import lineage
from ptopt.audit.engines import half_precision
from ptopt.audit.known import Value
from ptopt.audit.measures.breaks import graph_break
from ptopt.audit.measures.convolutions import nearly_all_convolve, without_products
from ptopt.audit.measures.optimizer import only_lbfgs
from ptopt.audit.modules import Module, dotted_name, text_of
from ptopt.audit.setup import Candidate, Setup, aside
from ptopt.audit.values import Measure, State

_DTYPE = re.compile(r"(bfloat16|float16|\bhalf\b|bf16|fp16)")
_HALF_TYPE = re.compile(r"torch\.(bfloat16|float16|half)\b|\.autocast\b(?!\()")
_HELPER = re.compile(r"attention$|_fn$|_func$|^F\.|^torch\.")
_MODULES = re.compile(r"\.(named_)?(modules|children)$")
_LINE_SEARCH = "float32: `LBFGS` compares losses and gradients that hardly differ, and its closure cannot be stepped through a `GradScaler`"
HALF_WEIGHTS = "half-precision weights without autocast, so not mixed: "
WITHOUT_PRODUCTS = "no product of matrices and no convolution in the code that runs"
CONVOLVES = "convolutions, nearly all of the work here, use TF32 by default"
_FULL = ("32", "32-true", "no", "none", "fp32", "float32", "64", "64-true", "tf32")


def mixed_precision(setup: Setup) -> Measure:
    key, title = "precision", "Mixed precision"
    if setup.framework in ("transformers", "TRL"):
        return _of_trainer(setup, key, title)
    if setup.framework == "Lightning":
        value = lightning_argument(setup, "precision", _full_by_default(setup))
        return _of_value(setup, key, title, value, "`precision`")
    if setup.framework == "Fabric":
        lite = [
            cls.name
            for cls in setup.live.classes
            if any(text_of(b).endswith("LightningLite") for b in cls.bases)
        ]
        calls = [
            pair
            for pair in setup.calls("Fabric", "LightningLite", *lite)
            if setup.runs(*pair).truth is not False
        ]
        value = keyword_value(
            setup,
            calls,
            "precision",
            Value(True, _full_by_default(setup), "default of Fabric for `precision`"),
        )
        return _of_value(setup, key, title, value, "`precision`")
    if setup.framework == "Accelerate":
        calls = setup.calls("Accelerator")
        launched = Value(False, note="`accelerate launch` or its configuration sets it")
        value = keyword_value(setup, calls, "mixed_precision", launched)
        if value.known and value.value is None:
            value = replace(launched, place=value.place)
        return _of_value(setup, key, title, value, "`mixed_precision`")
    blind = setup.blind_model  # a network can set it for itself
    if setup.framework in ("DeepSpeed", "Colossal-AI"):
        blind = f"the configuration of {setup.framework} sets it"
    if setup.framework == "DeepSpeed" and not any(c.value.truth for c in _autocasts(setup)):
        stated = [
            Candidate(
                value,
                setup.place(module, node),
                f"`{name}` of the configuration that the code makes for DeepSpeed",
            )
            for name, value, module, node in half_precision(setup.live, setup.evaluator)
            if setup.runs(module, node).truth is not False
        ]
        return setup.decide(key, title, stated, "", blind=blind)
    blind = blind or _named(setup)
    absent = "float32 throughout: no autocast, no half-precision model"
    lacking = setup.lacking("torch.cuda.amp", "autocast")
    measure = setup.decide(
        key, title, _autocasts(setup), absent, blind=blind, lacking=lacking and f"float32; {lacking}"
    )
    if measure.state is State.OFF and (place := only_lbfgs(setup)) is not None:
        return Measure(key, title, State.NOT_APPLICABLE, _LINE_SEARCH, (place,))
    return measure


def _full_by_default(setup: Setup) -> str:
    """How Lightning calls float32: its `32-true` came with `bf16-mixed`."""
    return "32" if setup.lacking("bf16-mixed") else "32-true"


def _of_trainer(setup: Setup, key: str, title: str) -> Measure:
    arguments = TrainerArguments(setup)
    values = {name: arguments.of(name) for name in ("bf16", "fp16")}
    for name, value in values.items():
        if value.truth:
            return _measure(key, title, State.ON, f"{name}{_note(value)}", value)
    for name, value in values.items():
        if not value.known:
            return _measure(key, title, State.UNKNOWN, f"`{name}`: {value.note}", value)
    return _measure(key, title, State.OFF, f"neither bf16 nor fp16{_note(values['bf16'])}", values["bf16"])


def _of_value(setup: Setup, key: str, title: str, value: Value, name: str) -> Measure:
    if not value.known:
        return _measure(key, title, State.UNKNOWN, f"{name}: {value.note}", value)
    text = str(value.value).lower()
    state = State.OFF if text in _FULL else State.ON
    return _measure(key, title, state, f"{name} is {value.value!r}".replace("'", "") + _note(value), value)


def _note(value: Value) -> str:
    return f" ({value.note})" if value.note else ""


def _measure(key: str, title: str, state: State, detail: str, value: Value) -> Measure:
    places = () if value.place is None else (value.place,)
    return Measure(key, title, state, detail, places, lacking=value.lacking)


def _autocasts(setup: Setup) -> Iterator[Candidate]:
    made = list(_made(setup))
    yield from made
    for module, call in setup.calls("autocast", "custom_autocast"):
        name = setup.qualified(module, call.func)
        if made and name == "autocast" and name not in module.imported and name not in module.definitions:
            continue  # a variable: what made it says which options decide
        if not (
            name.startswith(("torch", "apex")) or name == "autocast" or "amp" in name
        ) or not _in_training(module, call):
            continue
        if _of_evaluated(setup, module, call):
            continue
        enabled = setup.keyword(call, "enabled", 0 if "cuda.amp" in name or name == "autocast" else None)
        dtype = _dtype(setup, module, call, 1 if "cuda.amp" not in name else None)
        yield setup.site(module, call, f"autocast {dtype}", _enabled(setup, module, enabled))
    chosen = list(_chosen(setup))
    yield from chosen
    for module, call in setup.calls("initialize"):
        if setup.qualified(module, call.func).startswith(("apex.amp", "amp.")):
            level = setup.keyword(call, "opt_level", 2)
            value = Value(True, "O1") if level is None else setup.value(module, level)
            enabling = value.mapped(lambda name: name != "O0")
            yield setup.site(module, call, "apex.amp, float16", enabling)
    for module, call in setup.calls(
        "convert_to_fp16", "network_to_half", "convert_network", "convert_to_fp16_"
    ):
        if _in_training(module, call) and not _inside_of(module, call, _last(call) or text_of(call.func)):
            yield setup.site(module, call, f"`{text_of(call.func)[:60]}`")
    masters = list(_with_master_weights(setup))
    yield from masters
    halves = [] if any(candidate.value.truth for candidate in masters) else setup.calls("half", "bfloat16")
    for module, call in halves:
        receiver = dotted_name(call.func.value) if isinstance(call.func, ast.Attribute) else ""
        if not call.args and re.search(r"model|net\b|module", receiver) and _in_training(module, call):
            yield setup.site(module, call, f"{HALF_WEIGHTS}`{receiver}.{_last(call)}()`")
        elif not call.args and (loop := _over_modules(module, call, receiver)) is not None:
            yield replace(setup.site(module, loop, f"`{receiver}.{_last(call)}()` for the modules of the network"),
                          place=setup.place(module, call))  # fmt: skip
    for module, call in setup.calls("to"):
        receiver = dotted_name(call.func.value) if isinstance(call.func, ast.Attribute) else ""
        texts = [text_of(a) for a in (*call.args, *(k.value for k in call.keywords))]
        if re.search(r"(^|\.)(model|net|unet|transformer)$", receiver) and any(
            re.fullmatch(r"torch\.(bfloat16|float16|half)", text) for text in texts
        ):
            yield setup.site(
                module, call, f"{HALF_WEIGHTS}`{receiver}` in {next(t for t in texts if 'torch.' in t)}"
            )
    for module, call in setup.calls("set_default_dtype", "set_default_tensor_type"):
        text = text_of(call)
        if _DTYPE.search(text):
            yield setup.site(module, call, f"`{text}`"[:80])
    for module, call in setup.calls("GradScaler"):
        if not (
            made or chosen or setup.calls("autocast")
        ):  # it scales what autocast computes, and decides nothing
            scaled = _enabled(setup, module, setup.keyword(call, "enabled"))
            yield setup.site(module, call, "`GradScaler`", scaled)
    for module, call in setup.calls("MixedPrecision", "MixedPrecisionPolicy"):
        yield setup.site(
            module, call, "mixed precision of FSDP", _half(setup, module, call, "param_dtype", 0)
        )
    for module, call in setup.calls("from_pretrained"):
        for name in ("dtype", "torch_dtype"):
            given = setup.keyword(call, name)
            if given is not None and text_of(given) not in ("'auto'", '"auto"'):
                yield setup.site(
                    module, call, f"{HALF_WEIGHTS}loaded with `{name}`", _half(setup, module, call, name)
                )


def _with_master_weights(setup: Setup) -> Iterator[Candidate]:
    """`FP16_Optimizer(optimizer)` of apex, for a network in float16: it keeps float32 weights and scales the loss."""
    halves = setup.calls("half", "network_to_half", "convert_network", "BN_convert_float")
    if not any(setup.runs(*pair).truth is not False for pair in halves):
        return
    for module, call in setup.calls("FP16_Optimizer"):
        if setup.qualified(module, call.func).startswith("apex."):
            yield setup.site(module, call, "float16 with float32 master weights, by `FP16_Optimizer` of apex")


def _over_modules(module: Module, call: ast.Call, receiver: str) -> ast.For | None:
    """`for part in self.modules(): ...part.half()`: which of them, a condition inside may say."""
    for loop in module.file.index.loops_of(call):
        if (
            isinstance(loop, ast.For)
            and isinstance(loop.iter, ast.Call)
            and _MODULES.search(text_of(loop.iter.func))
        ):
            names = {node.id for node in ast.walk(loop.target) if isinstance(node, ast.Name)}
            if receiver in names and _in_training(module, call):
                return loop
    return None


def _chosen(setup: Setup) -> Iterator[Candidate]:
    """`context = torch.cuda.amp.autocast if amp else nullcontext`: autocast that is named here and entered elsewhere."""
    for module in setup.live.read.values():
        for node in module.file.index.attributes_named("autocast"):
            parent = module.file.index.parent(node)
            named = isinstance(parent, (ast.Assign, ast.IfExp)) and setup.live.runs(module, node)
            if isinstance(parent, ast.Assign) and text_of(parent.targets[0]) == "autocast":
                continue  # the calls of this name say more
            if named and setup.qualified(module, node).startswith(("torch", "amp")):
                yield setup.site(module, node, f"`{text_of(node)}`")


def _made(setup: Setup) -> Iterator[Candidate]:
    """`return partial(torch.autocast, "cuda", dtype=torch.bfloat16)`: autocast that is entered where it is handed to."""
    for module, call in setup.calls("partial"):
        if call.args and re.match(
            r"(torch|apex)\b.*\bautocast$", name := setup.qualified(module, call.args[0])
        ):
            on_cuda = "cuda.amp" in name
            enabled = _enabled(setup, module, setup.keyword(call, "enabled", 1 if on_cuda else None))
            if enabled is None or enabled.truth:
                past = setup.evaluator.gets_past(call, module)
                enabled = past if enabled is None or past.truth is not True or past.note else enabled
            dtype = _dtype(setup, module, call, None if on_cuda else 2)
            yield setup.site(module, call, f"autocast {dtype}", enabled)


def _inside_of(module: Module, call: ast.Call, name: str) -> bool:
    """Does the call stand in a function of the same name, which hands it on to a part?"""
    function = module.file.index.function_of(call)
    return function is not None and function.name == name.rpartition(".")[2]


def _half(setup: Setup, module: Module, call: ast.Call, name: str, position: int | None = None) -> Value:
    """Is the dtype that the call is given a half-precision one?"""
    given = setup.keyword(call, name, position)
    if given is None:
        return Value(True, False)
    text = dotted_name(given)
    if text.startswith("torch."):
        return Value(True, bool(_DTYPE.search(text)))
    value = setup.value(module, given)
    if value.known and isinstance(value.value, str):
        return replace(value, value=bool(_DTYPE.search(value.value)))
    return replace(value, known=False, note=f"`{text_of(given)[:40]}` is a half-precision type")


def _named(setup: Setup) -> str:
    """Why something may compute in half precision though nothing was recognised: its type is used in code that runs."""
    if not setup.says(_HALF_TYPE):
        return ""
    for module in setup.live.read.values():
        for node in module.file.index.attributes_named("bfloat16", "float16", "half", "autocast"):
            text = text_of(node)
            if not _HALF_TYPE.fullmatch(text.removeprefix("_")) and not text.endswith(".autocast"):
                continue
            if setup.live.runs(module, node) and _may_compute(setup, module, node):
                return f"how `{text}` is used at {setup.place(module, node)} was not understood"
    return ""


def _may_compute(setup: Setup, module: Module, node: ast.AST) -> bool:
    """Not compared with, not a default that nobody takes, not in an evaluation."""
    for ancestor, _ in module.file.index.ancestors(node):
        if isinstance(ancestor, (ast.Compare, ast.arg, ast.AnnAssign)):
            return False
        if isinstance(ancestor, ast.stmt):
            break
    function = module.file.index.function_of(node)
    if function is not None and module.file.context.is_eval_function(function):
        return False
    return setup.runs(module, node).truth is not False


def _in_training(module: Module, call: ast.Call) -> bool:
    """Not in an evaluation alone: what a training calls is none, whatever its name."""
    function = module.file.index.function_of(call)
    if function is None or not module.file.context.is_eval_function(function):
        return True
    callers = (module.file.index.function_of(other) for other in module.file.calls.callers(function))
    return any(caller is not None and module.file.context.trains(caller) for caller in callers)


def _of_evaluated(setup: Setup, module: Module, call: ast.Call) -> bool:
    """Does it stand in a class, no network, of which objects are made and kept only where no graph is recorded: a system to test?"""
    cls = module.file.index.class_of(call)
    if cls is None or any(
        getattr(part, "name", "") == "forward"
        for _, each in lineage(setup.live, module, cls)
        for part in each.body
    ):
        return False
    sites = setup.live.sites.get(cls)
    return bool(sites) and all(_stays_without_graph(other, node) for other, node in sites)


def _stays_without_graph(module: Module, node: ast.AST) -> bool:
    """`system = System(network)` under `no_grad`, of a function that does not return it."""
    made = module.file.index.parent(node)
    assign = module.file.index.parent(made) if made is not None else None
    target = assign.targets[0] if isinstance(assign, ast.Assign) and assign.value is made else None
    function = module.file.index.function_of(node)
    if not isinstance(target, ast.Name) or function is None or not module.file.context.grad_off(node):
        return False
    return not any(
        isinstance(module.file.index.parent(read), ast.Return)
        for read in module.file.reads_of(function, target.id)
    )


def _enabled(setup: Setup, module: Module, enabled: ast.expr | None) -> Value | None:
    if enabled is None:
        return None
    value = setup.value(module, enabled)
    return replace(value, value=bool(value.value)) if value.known else value


def _dtype(setup: Setup, module: Module, call: ast.Call, position: int | None) -> str:
    given = setup.keyword(call, "dtype", position)
    if given is None:
        on_cuda = "cuda" in text_of(call)
        return "float16 (its default on CUDA)" if on_cuda else "in the default dtype of the device"
    text = dotted_name(given)
    if text.startswith("torch."):
        return text.removeprefix("torch.")
    value = setup.value(module, given)
    if not value.known and (types := _types(setup, module, given)):
        return " or ".join(types)
    return str(value.value) if value.known else f"the dtype of `{text_of(given)[:40]}`"


def _types(setup: Setup, module: Module, given: ast.expr) -> list[str]:
    """The types that a name is given where that runs: `if precision == "amp": dtype = torch.float16`; none where one is not seen."""
    if not isinstance(given, ast.Name):
        return []
    bindings = module.file.bindings.of(module.file.index.function_of(given), given.id)
    names = [
        dotted_name(binding.value) if binding.kind == "assign" and binding.value is not None else ""
        for binding in bindings
        if setup.evaluator.condition(binding.node, module).truth is not False
    ]
    return (
        list(dict.fromkeys(n.removeprefix("torch.") for n in names))
        if all(map(_HALF_TYPE.fullmatch, names))
        else []
    )


def _last(call: ast.Call) -> str:
    return call.func.attr if isinstance(call.func, ast.Attribute) else ""


def tf32(setup: Setup) -> Measure:
    key, title = "tf32", "TF32 matrix products"
    found = list(_tf32(setup))
    old = setup.facts.excludes("torch", "1.12")
    if setup.framework in ("transformers", "TRL") and not old and not any(c.value.truth for c in found):
        value = TrainerArguments(setup).of("tf32")
        if not value.known:
            return _measure(key, title, State.UNKNOWN, f"`tf32`: {value.note}", value)
        if value.lacking is not None:
            return _measure(key, title, State.OFF, f"off by default since torch 1.12; {value.note}", value)
        state = State.ON if value.value else State.OFF
        return _measure(key, title, state, f"`tf32` is {value.value}{_note(value)}", value)
    pin = setup.facts.span("torch")
    if why := setup.lacking("allow_tf32"):
        return setup.not_applicable(key, title, why)
    if older := setup.facts.cuda_before("11.0"):
        return setup.not_applicable(key, title, f"it takes CUDA 11; the project needs {older}")
    if not found and setup.framework == "PyTorch" and without_products(setup):
        return setup.not_applicable(key, title, WITHOUT_PRODUCTS)
    if not found and any(setup.facts.divided("torch", version) for version in ("1.7", "1.12")):
        why = f"{pin}: torch 1.7 to 1.11 have it on by default, later ones off"
        return Measure(key, title, State.UNKNOWN, why, setup.where())
    if not found and old:
        return Measure(
            key, title, State.ON, f"the default of torch 1.7 to 1.11; the project needs {pin}", setup.where()
        )
    if not found and setup.named_before("1.12"):
        why = f"on by default in torch 1.7 to 1.11, off since; the project names {pin}"
        return Measure(key, title, State.UNKNOWN, why, setup.where())
    absent = "off by default since torch 1.12, nothing switches it on"
    absent += setup.admits_older("1.12", "have it on from 1.7")
    if setup.facts.excludes("torch", "2.0") and setup.facts.at_least("torch", "1.12") is None:
        absent += f"; {pin}, and torch 1.7 to 1.11 have it on"
    row = setup.decide(key, title, found, absent, blind=setup.blind)
    if row.state is State.OFF and nearly_all_convolve(setup) and not _convolves_in_float32(setup):
        return replace(row, detail=f"{row.detail}; {CONVOLVES}")
    return row


def _convolves_in_float32(setup: Setup) -> bool:
    """`torch.backends.cudnn.allow_tf32 = False`"""
    return any(
        "cudnn" in text_of(assign.targets[0]) and setup.value(module, assign.value).truth is not True
        for module, assign in setup.assignments("allow_tf32")
    )


def _tf32(setup: Setup) -> Iterator[Candidate]:
    for module, assign in setup.assignments("allow_tf32"):
        target = text_of(assign.targets[0])
        if "matmul" in target:
            yield setup.site(module, assign, f"`{target}`", setup.value(module, assign.value))
    for module, call in setup.calls("set_float32_matmul_precision"):
        value = setup.value(module, call.args[0]) if call.args else Value(False, note="its argument")
        fast = value.mapped(lambda name: name in ("high", "medium"))
        yield setup.site(module, call, "`set_float32_matmul_precision`", fast)
    for module, assign in setup.assignments("fp32_precision"):
        value = setup.value(module, assign.value)
        yield setup.site(
            module, assign, "`fp32_precision`", replace(value, value=value.value in ("tf32", "high"))
        )


def compiled(setup: Setup) -> Measure:
    key, title = "compile", "torch.compile"
    if why := setup.lacking("torch.compile"):
        return setup.not_applicable(key, title, why)
    found = list(_compiles(setup))
    if setup.framework in ("transformers", "TRL") and not any(c.value.truth for c in found):
        value = TrainerArguments(setup).of("torch_compile")
        if not value.known:
            return _measure(key, title, State.UNKNOWN, f"`torch_compile`: {value.note}", value)
        if value.value:
            return _measure(key, title, State.ON, f"`torch_compile`{_note(value)}", value)
        if value.lacking is not None:
            return _measure(key, title, State.OFF, f"nothing is compiled; {value.note}", value)
        return _measure(key, title, State.OFF, f"`torch_compile` is off{_note(value)}", value)
    if setup.framework == "Accelerate" and not found:
        return Measure(
            key,
            title,
            State.UNKNOWN,
            "`accelerate launch` or its configuration may set a Dynamo backend",
            setup.where(),
        )
    absent = "nothing is compiled"
    if setup.facts.divided("torch", "2.0"):
        absent = f"{absent}, and torch before 2.0 cannot; {setup.facts.span('torch')}"
    absent += setup.admits_older("2.0", "cannot")
    row = setup.decide(key, title, found, absent, blind=setup.blind_model)
    broken = None if found or row.state is not State.OFF else graph_break(setup)
    if broken is None:
        return row
    return replace(row, detail=f"{row.detail}; {broken.said}", evidence=(broken.place, *row.evidence))


def _compiles(setup: Setup) -> Iterator[Candidate]:
    for module, call in setup.calls("compile", "optimize"):
        name = setup.qualified(module, call.func)
        receiver = name.rpartition(".")[0]
        given = text_of(call.args[0]) if call.args else ""
        if _HELPER.search(given):
            continue  # a function, not the network
        if name == "torch.compile" or name.startswith("torch._dynamo.optimize"):
            found = setup.site(module, call, "`torch.compile`")
            of_others = call.args and setup.trained.leaves_out_value(module, call.args[0])
            yield aside(found) if of_others else found
        elif (
            name.endswith(".compile")
            and re.search(r"(^|\.|_)(model|net|module)$", receiver)
            and not call.args
        ):
            yield setup.site(module, call, f"`{name}()`")
    for function, module in setup.live.functions.items():
        if not (
            function.name == "forward" or "step" in function.name or module.file.context.trains(function)
        ):
            continue  # a helper: the model is not compiled
        for decorator in function.decorator_list:
            target = decorator.func if isinstance(decorator, ast.Call) else decorator
            if setup.qualified(module, target) == "torch.compile":
                yield setup.site(module, decorator, f"`@torch.compile` on `{function.name}`")
