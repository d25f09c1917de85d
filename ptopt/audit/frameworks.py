"""What is done, in the words of the framework that runs the training: the arguments of its trainer, where it has one for a measure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from ptopt.audit.known import TRANSFORMERS_ADDED
from ptopt.audit.values import EntryPoint, Sign
from ptopt.project.added import ADDED, Added
from ptopt.project.facts import ProjectFacts

TRAINERS = ("transformers", "TRL")
_TRAINER = "transformers"  # TRL's trainers take its arguments
_COMPARED = ", and compare the losses of a short run."
_FITTED = "Fit the compiled module, `trainer.fit(torch.compile(module))`."
_OF: Mapping[str, Mapping[str, str]] = {
    _TRAINER: {
        "precision": "Set `bf16=True` in the training arguments (`--bf16 True`)" + _COMPARED,
        "tf32": "Set `tf32=True` in the training arguments (`--tf32 True`).",
        "compile": "Set `torch_compile=True` in the training arguments (`--torch_compile True`). The first steps compile: compare later ones.",
        "workers": (
            "Set `dataloader_num_workers=4` in the training arguments (`--dataloader_num_workers 4`), for each GPU, and raise the number "
            "while the GPU waits for data."
        ),
        "pin_memory": "Set `dataloader_pin_memory=True` in the training arguments, which is the default (`--dataloader_pin_memory True`).",
        "persistent_workers": (
            "Set `dataloader_persistent_workers=True` in the training arguments (`--dataloader_persistent_workers True`), so that workers "
            "are not started again for each epoch."
        ),
        "fused_optimizer": 'Set `optim="adamw_torch_fused"` in the training arguments (`--optim adamw_torch_fused`).',
    },
    "Lightning": {
        "precision": 'Pass `precision="bf16-mixed"` to the `Trainer`' + _COMPARED,
        "compile": _FITTED + " The first steps compile: compare later ones.",
        "cudnn_benchmark": "Pass `benchmark=True` to the `Trainer` where the shapes of the inputs stay the same.",
    },
    "Fabric": {"precision": 'Pass `precision="bf16-mixed"` to `Fabric`' + _COMPARED},
    "Accelerate": {"precision": 'Pass `mixed_precision="bf16"` to `Accelerator`' + _COMPARED},
}  # fmt: skip
_ARGUMENTS = {
    "precision": "bf16", "tf32": "tf32", "compile": "torch_compile", "persistent_workers": "dataloader_persistent_workers",
    "fused_optimizer": "optim",
}  # fmt: skip


_FLAG = re.compile(r" \((`--\w+ \w+`)\)")


def with_frameworks(key: str, action: str, entries: Sequence[EntryPoint], facts: ProjectFacts) -> str:
    """The action in the words of the frameworks of the scripts; where they have several, one after the other."""
    names = dict.fromkeys(_name(entry) for entry in entries)
    own = {
        name: _spelled(_flagged(text, name, entries), facts)
        for name in names
        if (text := _OF.get(name, {}).get(key))
    }
    if len(own) == len(names) == 1:
        return next(iter(own.values()))
    general = [] if len(own) == len(names) else [action]
    return " ".join([*general, *(f"With {name}: {text}" for name, text in own.items())])


def has_own(key: str, entries: Sequence[EntryPoint]) -> bool:
    """Have the trainers of all of the scripts an argument for it?"""
    return all(key in _OF.get(_name(entry), {}) for entry in entries)


def argument_added(key: str, entries: Sequence[EntryPoint]) -> Added | None:
    """Since when transformers has the argument, where its trainer runs all of the scripts."""
    if not all(_name(entry) == _TRAINER for entry in entries):
        return None
    return TRANSFORMERS_ADDED.get(_ARGUMENTS.get(key, ""))


def _name(entry: EntryPoint) -> str:
    return _TRAINER if entry.framework in TRAINERS else entry.framework


def _flagged(text: str, name: str, entries: Sequence[EntryPoint]) -> str:
    """With the flag only where the command line takes it."""
    takes = {Sign.TAKES_FLAGS in entry.signs for entry in entries if _name(entry) == name}
    if False not in takes:
        return text
    return _FLAG.sub(r" (\1 where the script takes it)" if True in takes else "", text)


def _spelled(text: str, facts: ProjectFacts) -> str:
    """As the version of the project takes it: Lightning had `bf16` before `bf16-mixed`, and 16 before both, and takes no compiled module
    before 1.8.4.
    """
    if _FITTED in text and facts.excludes("lightning", "1.8.4"):
        return text.replace(
            _FITTED, "Compile the network that the module holds, `self.model = torch.compile(self.model)`."
        )
    if "bf16-mixed" not in text:
        return text
    for name, older in (('precision="bf16"', "precision=16"), ("bf16-mixed", 'precision="bf16"')):
        added = ADDED[name]
        if facts.excludes(added.package, added.version):
            return text.replace('precision="bf16-mixed"', older)
    return text
