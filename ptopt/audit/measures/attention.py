"""How attention is computed: fused (SDPA, FlashAttention, xFormers) or by hand."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import replace

from ptopt.audit.known import UNFOUND, Value
from ptopt.audit.measures.convolutions import attends_by_timm
from ptopt.audit.modules import Module, text_of
from ptopt.audit.setup import Candidate, Setup, enough
from ptopt.audit.values import Measure, State
from ptopt.project.added import ADDED
from ptopt.source.index import FunctionNode

_KERNELS = frozenset({"xformers", "flash_attn", "apex"})  # packages that have some for an older torch
_FUSED = re.compile(
    r"^(scaled_dot_product_attention|flash_attn\w*func|memory_efficient_attention|flex_attention|flash_attn_\w+|FlashAttention\w*)$"
)
_LAYERS = ("TransformerEncoderLayer", "TransformerDecoderLayer", "Transformer")
_WITH_ATTENTION = (
    "timm.models",
    "torchvision.models",
    "x_transformers",
    "clip.",
    "open_clip",
    "transformers.",
    "CLIP.",
    "diffusers",
    "monai.networks",
)
_FOREIGN = re.compile(
    r"Attention|Transformer|^Block$|^vit_|ViT|UNETR|^load$|create_model_and_transforms|UNet2D|^deit|^swin|Swin|DiT|"
    r"For(CausalLM|ConditionalGeneration|MaskedLM|PreTraining|\w*Classification|QuestionAnswering)$|LMHeadModel$|^(Bert|GPT2|Llama|T5|CLIP\w*|ViT)Model$"
)
_NO_MODEL = re.compile(
    r"token|process|config|extractor|scheduler|vae|autoencoder|pipeline|image|peft|super", re.I
)
# Packages whose `from_pretrained` may make a model of transformers
_HANDS_ON = frozenset(
    {"transformers", "optimum", "peft", "trl", "unsloth", "sentence_transformers", "modelscope", "adapters"}
)
_OF_DIFFUSERS = re.compile(
    r"^diffusers\.(\w+\.)*\w*(UNet|ControlNet|Transformer\w*Model|PriorTransformer|DiT)\w*\.from_\w+$"
)
_PROCESSORS = re.compile(r"^(set_(attn_)?processor|\w*AttnProcessor)$")
_SCORES = re.compile(r"@|matmul\(|\bb?mm\(|einsum\(")
_NAMED = re.compile(r"attn|attention|query|\bq\b|\bsim\b|dots", re.I)
_REDUCED = re.compile(r"\b(sum|mean|loss|cross_entropy|multinomial|argmax|topk)\b", re.I)
OF_WEIGHTS = "`nn.MultiheadAttention` computes its weights"
IN_PART = ", which take no fused kernel"
_SEPARATE = "by separate products and softmax"
_EXPRESSION = re.compile(r"`[^`]+`$")
_FUSED_NAMES = ("sdpa", "flash_attention_2", "flash_attention_3", "flex_attention")


def attention(setup: Setup) -> Measure:
    found = _attention(setup)
    # A network that was not seen may attend, but by no kernel that its torch lacks.
    unseen = found.state is State.UNKNOWN and found.detail.startswith("no attention seen")
    why = (
        setup.lacking("scaled_dot_product_attention", "fused attention")
        if unseen and _KERNELS.isdisjoint(setup.packages)
        else ""
    )
    return setup.not_applicable(found.key, found.title, why) if why else found


def _attention(setup: Setup) -> Measure:
    key, title = "attention", "Attention"
    fused = list(enough(_fused(setup)))
    by_hand = list(_by_hand(setup)) if not any(c.value.truth for c in fused) else []
    library = [candidate for candidate in _library(setup) if candidate.value.truth is not False]
    pretrained = list(_pretrained(setup))
    stated = [c for c in pretrained if c.detail]
    if stated:
        return setup.decide(key, title, stated, "")
    if any(c.value.truth for c in fused):
        return setup.decide(key, title, fused, "")
    if fused and any(c.value.truth is None for c in fused):
        return setup.decide(key, title, fused, "")
    if by_hand:
        first = by_hand[0]
        return Measure(
            key, title, State.OFF, first.detail, tuple(dict.fromkeys(c.place for c in by_hand))[:4]
        )
    if diffusion := _of_diffusers(setup):
        return diffusion
    if pretrained:
        first = pretrained[0]
        where = (first.place,)
        fused_since = ADDED["attn_implementation"]
        if lacking := setup.lacking("scaled_dot_product_attention", "SDPA"):  # whatever the transformers
            return Measure(
                key,
                title,
                State.OFF,
                f"{_SEPARATE}: {lacking}",
                where,
                lacking=ADDED["scaled_dot_product_attention"],
            )
        if setup.facts.excludes(fused_since.package, fused_since.version):
            pin = setup.facts.span("transformers")
            why = f"{_SEPARATE}: transformers has SDPA since {fused_since.version}; {pin}"
            return Measure(key, title, State.OFF, why, where, lacking=fused_since)
        return Measure(
            key,
            title,
            State.UNKNOWN,
            "transformers chooses: SDPA where the model and the version have it",
            where,
        )
    blind = setup.blind_network
    if blind and setup.blind and not pretrained:
        return Measure(key, title, State.UNKNOWN, f"no attention seen{setup.seen_where}; {setup.blind}")
    by_layer = _by_layer(setup)
    if by_layer is not None and not pretrained:
        return by_layer
    if library:
        return Measure(key, title, State.UNKNOWN, library[0].detail, (library[0].place,))
    if blind:
        return Measure(key, title, State.UNKNOWN, f"no attention seen{setup.seen_where}; {blind}")
    return setup.not_applicable(key, title, f"no attention {setup.where_trained}")


def _fused(setup: Setup) -> Iterator[Candidate]:
    for module, call in setup.of_trained(setup.named(_FUSED)):
        name = call.func.attr if isinstance(call.func, ast.Attribute) else text_of(call.func)
        if setup.is_external(module, call.func):  # one of the repository may compute it in steps
            yield setup.site(module, call, f"`{name}`")


def _by_hand(setup: Setup) -> Iterator[Candidate]:
    """A function that makes scores by a product, runs them through softmax and multiplies again."""
    for module, call in setup.of_trained(setup.calls("softmax", "Softmax")):
        function = module.file.index.function_of(call)
        applied = module.file.index.parent(call)
        if isinstance(applied, ast.Call) and applied.func is call:
            call = applied  # `nn.Softmax(dim=-1)(scores)`
        if function is None or _is_patched_in_by_others(setup, module, function):
            continue
        text = module.file.source(function)
        name = f"{function.name} {getattr(module.file.index.class_of(call), 'name', '')}"
        named = _NAMED.search(name) or len(_NAMED.findall(text)) >= 2
        if (
            named
            and len(_SCORES.findall(text)) >= 2
            and _is_of_a_product(module, call, function)
            and _goes_into_a_product(module, call, function)
        ):
            candidate = setup.site(module, call, f"computed {_SEPARATE} in `{function.name}`")
            if candidate.value.truth is not False:
                yield candidate


def _is_of_a_product(module: Module, softmax: ast.Call, function: FunctionNode) -> bool:
    """Is what the softmax is taken of made by a product, in the function and above it?

    Linear attention takes it of queries and keys each, before they are multiplied: no fused kernel computes that.
    """
    steps = [
        (node, _names(*_targets(node)))
        for node in ast.walk(function)
        if isinstance(node, (ast.Assign, ast.AugAssign, ast.AnnAssign, ast.NamedExpr, ast.Expr))
        and node.lineno <= softmax.lineno
    ]
    expressions: list[ast.AST] = [softmax]
    seen: set[ast.AST] = set()
    while expressions:
        expression = expressions.pop()
        if _SCORES.search(module.file.source(expression)):
            return True
        names = _names(expression)
        made = [node for node, given in steps if node not in seen and not names.isdisjoint(given)]
        seen.update(made)
        expressions += (node.value for node in made if node.value is not None)
    return False


def _goes_into_a_product(module: Module, softmax: ast.Call, function: FunctionNode) -> bool:
    """Are the weights multiplied by values, or returned or kept for somebody who does? Targets of a loss and chances are not."""
    weights: frozenset[str] = frozenset()
    steps = (
        n
        for n in ast.walk(function)
        if isinstance(n, (ast.Assign, ast.AnnAssign, ast.AugAssign, ast.Expr, ast.Return))
    )
    for node in sorted(steps, key=lambda step: step.lineno):
        own = any(each is softmax for each in ast.walk(node))
        if not own and weights.isdisjoint(_names(node)):
            continue
        source = module.file.source(node)
        if _SCORES.search(source.replace(module.file.source(softmax), "")) or isinstance(node, ast.Return):
            return True
        if isinstance(node, (ast.Assign, ast.AnnAssign)) and not _REDUCED.search(source):
            targets = _targets(node)
            if any(isinstance(target, (ast.Attribute, ast.Subscript)) for target in targets):
                return True
            weights |= _names(*targets)
    return False


def _targets(step: ast.Assign | ast.AugAssign | ast.AnnAssign | ast.NamedExpr | ast.Expr) -> list[ast.expr]:
    """What a statement gives a value; of `scores.add_(x)` the receiver."""
    if isinstance(step, ast.Assign):
        return step.targets
    if not isinstance(step, ast.Expr):
        return [step.target]
    call = step.value
    return [call.func] if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) else []


def _names(*expressions: ast.AST) -> frozenset[str]:
    return frozenset(n.id for e in expressions for n in ast.walk(e) if isinstance(n, ast.Name))


def _is_patched_in_by_others(setup: Setup, module: Module, function: FunctionNode) -> bool:
    """Is it only handed on, `MethodType(attend, layer)`, by methods that other scripts of the repository call and this one does not?"""
    sites = setup.live.sites.get(function)
    methods = [(other, other.file.index.function_of(node), node) for other, node in sites]
    return bool(methods) and all(
        method is not None
        and other.file.index.class_of(method) is not None
        and method.name not in setup.live.mentions
        and not _is_called(other, node)
        and _is_called_elsewhere(setup, method.name)
        for other, method, node in methods
    )


def _is_called(module: Module, node: ast.AST) -> bool:
    call = module.file.index.parent(node)
    return isinstance(call, ast.Call) and call.func is node


def _is_called_elsewhere(setup: Setup, name: str) -> bool:
    """Does a file that the script does not run call a method of this name?"""
    wanted = f".{name}(".encode()
    return any(
        wanted in data for path, data in setup.live.modules.files.items() if path not in setup.live.read
    )


def _pretrained(setup: Setup) -> Iterator[Candidate]:
    """Models of transformers: with a detail where the call says which attention it wants."""
    for module, call in setup.of_trained(setup.calls("from_pretrained", "from_config")):
        receiver = text_of(call.func.value) if isinstance(call.func, ast.Attribute) else ""
        if "transformers" not in setup.packages or _NO_MODEL.search(receiver):
            continue
        if _is_of_another_package(setup, module, receiver):
            continue
        given = setup.keyword(call, "attn_implementation") or setup.keyword(call, "_attn_implementation")
        flash = setup.keyword(call, "use_flash_attention_2")
        value = _implementation(setup, module, given) if given is not None else _spread(setup, module, call)
        if value is not None and (value.value is not None or not value.known):
            shown = f"`attn_implementation` is {value.value}" if value.known else "`attn_implementation`"
            fused = value.mapped(lambda name: name in _FUSED_NAMES)
            if not value.known and _EXPRESSION.match(
                value.note
            ):  # which name it is, and not whether it holds
                fused = replace(fused, note=f"{UNFOUND}{value.note} was not found")
            yield setup.site(module, call, shown, fused)
            continue
        if flash is not None and (value := setup.value(module, flash)).truth:
            yield setup.site(module, call, "`use_flash_attention_2`", value)
            continue
        yield Candidate(Value(False, note="transformers chooses"), setup.place(module, call), "")


def _spread(setup: Setup, module: Module, call: ast.Call) -> Value | None:
    """What `**options` says of the attention; None where it says nothing, or nothing that is known."""
    absent = Value(True)
    if not setup.unpacks(call):
        return None
    value = setup.unpacked(module, call, "attn_implementation", absent)
    return None if value is absent else value


def _of_diffusers(setup: Setup) -> Measure | None:
    """Networks of diffusers, which take SDPA where torch has it; None where the script loads none of them."""
    made = [
        (module, call)
        for module, call in setup.of_trained(setup.calls("from_pretrained", "from_config"))
        if _OF_DIFFUSERS.search(setup.qualified(module, call.func))
        and setup.is_external(module, call.func)
        and setup.runs(module, call).truth is not False
    ]
    if not made:
        return None
    key, title, places = "attention", "Attention", (setup.place(*made[0]),)
    asked = [
        setup.site(m, c, "xFormers") for m, c in setup.calls("enable_xformers_memory_efficient_attention")
    ]
    if any(candidate.value.truth for candidate in asked):
        return setup.decide(key, title, asked, "")
    own = [pair for pair in setup.named(_PROCESSORS) if setup.runs(*pair).truth is not False]
    if own:
        detail = "the code sets attention processors of its own"
        return Measure(key, title, State.UNKNOWN, detail, (setup.place(*own[0]),))
    if setup.facts.excludes("torch", "2.0"):
        why = f"{_SEPARATE}: diffusers takes SDPA with torch 2.0; {setup.facts.span('torch')}"
        return Measure(key, title, State.OFF, why, places)
    admits = setup.admits_older("2.0", "compute it without a fused kernel")
    return Measure(key, title, State.ON, f"SDPA, the default of diffusers with torch 2.0{admits}", places)


def _is_of_another_package(setup: Setup, module: Module, receiver: str) -> bool:
    """Is the class imported, and not from transformers, one that hands its models on, or the repository?"""
    level, package, _ = module.imported.get(receiver.partition(".")[0], (1, "", ""))
    return (
        not level
        and package.partition(".")[0] not in _HANDS_ON
        and not setup.live.modules.is_ours(package, module.path)
    )


def _implementation(setup: Setup, module: Module, given: ast.expr) -> Value:
    """One name; of a table for several parts, the first."""
    if isinstance(given, ast.Dict) and given.values:
        return setup.value(module, given.values[0])
    return setup.value(module, given)


def _by_layer(setup: Setup) -> Measure | None:
    """`nn.MultiheadAttention`: fused where each call of it gives up the weights."""
    calls: list[tuple[Module, ast.Call]] = []
    for module, made in setup.of_trained(setup.calls("MultiheadAttention")):
        assigned = module.file.index.parent(made)
        cls = module.file.index.class_of(made)
        if not setup.qualified(module, made.func).startswith(("torch.nn", "nn.")) or not isinstance(
            assigned, ast.Assign
        ):
            continue
        names = [t.attr for t in assigned.targets if isinstance(t, ast.Attribute)]
        calls += [
            (other, call)
            for name in names
            for other, call in setup.calls(name)
            if other is module and other.file.index.class_of(call) is cls
        ]
    if not calls:
        return None
    places = tuple(setup.place(module, call) for module, call in calls)[:4]
    gives_up = [_gives_up_weights(setup, call) for _, call in calls]
    key, title = "attention", "Attention"
    if why := setup.lacking("scaled_dot_product_attention", "SDPA"):
        return Measure(key, title, State.OFF, f"`nn.MultiheadAttention` by separate products: {why}", places)
    if all(gives_up):
        return Measure(key, title, State.ON, "`nn.MultiheadAttention` without its weights: SDPA", places)
    if all(free is False for free in gives_up):
        return Measure(key, title, State.OFF, f"{OF_WEIGHTS}: no fused kernel", places)
    certain = [pair for pair, free in zip(calls, gives_up, strict=True) if free is False]
    if not certain:
        return None
    others = "gives them up: SDPA" if all(free is not None for free in gives_up) else "may give them up"
    many = len(calls) - len(certain)
    if many > 1:
        others = others.replace("gives", "give", 1)
    said = f"{OF_WEIGHTS} in {len(certain)} of {len(calls)} calls{IN_PART}; {many} {others}"
    return Measure(key, title, State.OFF, said, tuple(setup.place(*pair) for pair in certain)[:4])


def _gives_up_weights(setup: Setup, call: ast.Call) -> bool | None:
    """`need_weights=False`; None where the call leaves it to a variable."""
    given = setup.keyword(call, "need_weights", 4)
    if given is None:
        return None if setup.unpacks(call) or any(isinstance(a, ast.Starred) for a in call.args) else False
    return not given.value if isinstance(given, ast.Constant) else None


def _library(setup: Setup) -> Iterator[Candidate]:
    """Layers of torch and of other packages, which choose for themselves."""
    for module, call in setup.of_trained(setup.calls(*_LAYERS)):
        if setup.qualified(module, call.func).startswith("torch.nn"):
            yield setup.site(
                module, call, f"`nn.{_last(call)}` uses SDPA unless its attention weights are read"
            )
    for module, call in setup.of_trained(setup.calls("MultiheadAttention")):
        if setup.qualified(module, call.func).startswith("torch.nn"):
            yield setup.site(
                module, call, "`nn.MultiheadAttention` uses SDPA where it is called with `need_weights=False`"
            )
    for module, call in setup.of_trained(setup.named(_FOREIGN)):
        name = setup.qualified(module, call.func)
        if name.startswith(_WITH_ATTENTION) and setup.is_external(module, call.func):
            yield setup.site(module, call, f"`{name}` chooses, by its version")
    for module, node, name in attends_by_timm(setup):
        parent = module.file.index.parent(node)
        runs = setup.runs(module, parent) if isinstance(parent, ast.Call) else Value(True, True)
        yield Candidate(runs, setup.place(module, node), f"`{name}` chooses, by its version")
    for module, call in () if setup.live.registers else setup.of_trained(setup.calls("create_model")):
        if setup.qualified(module, call.func).startswith("timm"):
            yield setup.site(module, call, "the model comes from timm, which chooses")


def _last(call: ast.Call) -> str:
    return call.func.attr if isinstance(call.func, ast.Attribute) else text_of(call.func)
