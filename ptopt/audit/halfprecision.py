"""How mixed precision is advised for the code that a script runs and the GPUs it is said to run on."""

from __future__ import annotations

from collections.abc import Sequence

from ptopt.audit.values import EntryPoint, Kind, Place
from ptopt.project.facts import ProjectFacts

_FAST_BFLOAT16 = "2.0"  # of torch: before it cuDNN is not used for convolutions in bfloat16 by default
_FORM_BFLOAT16 = '`torch.autocast("cuda", dtype=torch.bfloat16)`'
_FORM_FLOAT16 = '`torch.autocast("cuda", dtype=torch.float16)` and step through a `GradScaler`'
# How frameworks call the two; the longer ones first.
_OF_FRAMEWORKS = (
    ("(`bf16`", "(`fp16`"), ("bf16=True", "fp16=True"), ("--bf16", "--fp16"), ('"bf16-mixed"', '"16-mixed"'),
    ('mixed_precision="bf16"', 'mixed_precision="fp16"'), ('precision="bf16"', "precision=16"),
)  # fmt: skip
_SAYS = {
    Kind.OLD_TORCH: "First move to torch 1.10 or later: {what} is of a torch without autocast.",
    Kind.THREADS: (
        "`DataParallel` runs the network in threads of its own, which do not take the dtype over: put the autocast inside the network's "
        "`forward`, or go to `DistributedDataParallel` first."
    ),
    Kind.PROBABILITIES: (
        "{what} raises under autocast: use the version with logits (`nn.BCEWithLogitsLoss`) without the sigmoid first, or compute that "
        'loss in float32 inside `torch.autocast("cuda", enabled=False)`.'
    ),
    Kind.FLOAT32: (
        'Keep {what} in float32 (`torch.autocast("cuda", enabled=False)` around it, its inputs cast by `.float()`): it is not known to take '
        "half precision."
    ),
    Kind.PUT_BY_MASK: (
        "Make {what} in float32 (`dtype=torch.float32`): what is put into it by a mask is float32, and would not match a tensor of half "
        "precision."
    ),
    Kind.OF_REGISTRY: (
        "Of the networks that are found by their names some use {what}, which is not known to take half precision: keep it in float32 there."
    ),
    Kind.ENGINE: "{what} runs the steps in a way of its own: ask for half precision as it documents, instead of autocast.",
    Kind.GRADIENT_PENALTY: (
        "Gradients that {what} takes inside the loss are differentiated again: compute that part in float32, and where a `GradScaler` scales "
        "the loss, unscale them first."
    ),
    Kind.PARTLY_NO_BFLOAT16: "On {what} use float16 and a `GradScaler`: there is no fast bfloat16.",
    Kind.NO_TENSOR_CORES: "There are no tensor cores on {what}, which is named: half precision saves memory there, hardly time.",
}  # fmt: skip
_FIRST = (Kind.OLD_TORCH,)
_OF_CODE = frozenset(
    {
        Kind.PUT_BY_MASK,
        Kind.PROBABILITIES,
        Kind.FLOAT32,
        Kind.OF_REGISTRY,
        Kind.ENGINE,
        Kind.GRADIENT_PENALTY,
        Kind.OLD_TORCH,
    }
)
_ONLY_FLOAT16 = frozenset({Kind.NO_BFLOAT16, Kind.NO_TENSOR_CORES})
_PLURAL = (
    (" raises ", " raise "), (": it is not", ": they are not"), ("around it, its", "around them, their"), (" is of a torch", " are of a torch"),
    (", which is named", ", which are named"), (", which is not known", ", which are not known"), ("keep it in", "keep them in"),
    (" runs the steps in a way of its own", " run the steps in ways of their own"), ("as it documents", "as they document"),
)  # fmt: skip
_MOST_PATHS = 3


def precision_action(action: str, entries: Sequence[EntryPoint], facts: ProjectFacts) -> str:
    """The action with what the code and the GPUs of these scripts ask for; what some of them ask for names them."""
    float16 = facts.excludes("torch", _FAST_BFLOAT16) or all(
        any(o.kind in _ONLY_FLOAT16 for o in entry.obstacles) for entry in entries
    )
    if float16:
        for bfloat16, half in ((_FORM_BFLOAT16, _FORM_FLOAT16), *_OF_FRAMEWORKS):
            action = action.replace(bfloat16, half)
    before = [text for kind in _FIRST if (text := _sentence(kind, entries, float16))]
    after = [text for kind in _SAYS if kind not in _FIRST and (text := _sentence(kind, entries, float16))]
    return " ".join([*before, action, *after])


def _sentence(kind: Kind, entries: Sequence[EntryPoint], float16: bool) -> str:
    """What the obstacles of a kind ask for; "" where there are none, or where the `float16` of the action is the answer."""
    kinds = {kind, Kind.NO_BFLOAT16} if kind is Kind.PARTLY_NO_BFLOAT16 and not float16 else {kind}
    held = {entry.path: [o.what for o in entry.obstacles if o.kind in kinds] for entry in entries}
    where = [path for path, found in held.items() if found]
    what = list(dict.fromkeys(w for found in held.values() for w in found))
    if not what:
        return ""
    shown = _listed([f"`{name}`" if kind in _OF_CODE else name for name in what])
    text = _SAYS[kind].format(what=shown)
    if len(what) > 1:
        for one, several in _PLURAL:
            text = text.replace(one, several)
    paths = where if len(where) <= _MOST_PATHS else [*where[:_MOST_PATHS], f"{len(where) - _MOST_PATHS} more"]
    return text if len(where) == len(entries) else f"In {_listed(paths)}: {text}"


def obstacle_places(entries: Sequence[EntryPoint]) -> tuple[Place, ...]:
    """Where they stand, for the evidence."""
    return tuple(
        dict.fromkeys(
            o.place for e in entries for o in e.obstacles if o.kind in _SAYS or o.kind is Kind.NO_BFLOAT16
        )
    )


def _listed(words: Sequence[str]) -> str:
    return " and ".join(part for part in (", ".join(words[:-1]), words[-1]) if part)
