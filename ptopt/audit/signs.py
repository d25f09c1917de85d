"""What the code that a script runs tells of its training, beyond the rows of its table."""

from __future__ import annotations

import re

from ptopt.audit.arguments import TrainerArguments
from ptopt.audit.decoding import decodes
from ptopt.audit.setup import Setup
from ptopt.audit.values import Lines, Sign
from ptopt.source.work import WorkLimitError

# Names of the second network of an adversarial training, and of its optimizer; packages of diffusion.
_ADVERSARY = re.compile(r"discriminator|\bnet_?D\b|\b(optimizer|optim|opt)_?D\b|\bd_optim|\bgan_?loss", re.I)
_ADVERSARY_WORDS = (  # one is in all of these
    "discriminator", "netd", "net_d", "optimizerd", "optimizer_d", "optimd", "optim_d", "optd", "opt_d", "d_optim", "ganloss", "gan_loss",
)  # fmt: skip
_DIFFUSION = frozenset({"diffusers", "k_diffusion", "guided_diffusion", "ldm"})
_FEEDS_ALL = re.compile(r"^(?!.*[Dd]istributed)\w*DataParallel\w*$")
_MOST_ASKED = (
    150  # functions, those that the script calls itself first: whether one runs takes its callers, and theirs
)
# Of a library, and not its tokenizer.
_LOADS = re.compile(r"^(transformers|diffusers|peft)\.(?!.*(Tokenizer|Processor|Config|Extractor|Scheduler))")


def signs_of(setup: Setup) -> frozenset[Sign]:
    """Of one script."""
    found = set()
    if setup.is_small:
        found.add(Sign.SMALL)
    if setup.launches:
        found.add(Sign.STARTED)
    if any(
        _LOADS.search(setup.qualified(module, call.func)) for module, call in setup.calls("from_pretrained")
    ):
        found.add(Sign.PRETRAINED)
    if TrainerArguments(setup).are_flags:
        found.add(Sign.TAKES_FLAGS)
    if decodes(setup):
        found.add(Sign.DECODES)
    if setup.says(_ADVERSARY, _ADVERSARY_WORDS) or not _DIFFUSION.isdisjoint(setup.packages):
        found.add(Sign.MAKES_PICTURES)
    if setup.named(_FEEDS_ALL):
        found.add(Sign.FEEDS_ALL)
    return frozenset(found)


def reached(setup: Setup) -> dict[Lines, bool | None]:
    """The functions that run, each with whether it surely does: None where that is open, or the function far from the script."""
    found: dict[Lines, bool | None] = {}
    is_spent = False
    for function, module in setup.live.functions.items():
        lines = (
            module.path,
            module.file.head_line(function.lineno),
            module.file.head_line(function.end_lineno or function.lineno),
        )
        is_spent = is_spent or len(found) >= _MOST_ASKED
        try:
            found[lines] = None if is_spent else setup.runs(module, function.body[0]).truth
        except (WorkLimitError, RecursionError):  # the rows of the table, which come first, stay
            is_spent, found[lines] = True, None
    return found
