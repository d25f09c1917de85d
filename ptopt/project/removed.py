"""Imports that only older versions of a library have: what a module needs on import bounds the version that it runs with.

The versions are those of the newest wheel that has the name; `python -m benchmarks.versions.added WHEEL...` looks again.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from ptopt.project.pins import Pin


@dataclass(frozen=True, slots=True)
class Removed:
    """A module, or a `name` in it, that `package` has up to the version `last`.

    `torch`: the torch that this version of the package is built for, where it runs with no other.
    """

    module: str
    name: str
    package: str
    last: str
    torch: str = ""

    @property
    def spelled(self) -> str:
        return f"{self.module}.{self.name}" if self.name else self.module


_OLD_LAYOUT = (
    "albert", "bart", "bert", "distilbert", "electra", "gpt2", "longformer", "roberta", "t5", "xlm_roberta", "xlnet",
)  # fmt: skip
REMOVED = (
    Removed("torch._six", "", "torch", "1.13.1"),
    Removed("torch._six", "container_abcs", "torch", "1.8.1"),
    Removed("torch._six", "int_classes", "torch", "1.8.1"),
    Removed("torch.autograd.gradcheck", "zero_gradients", "torch", "1.8.1"),
    Removed("torch.utils.data._utils.collate", "string_classes", "torch", "1.13.1"),
    Removed("torch.utils.data._utils.collate", "container_abcs", "torch", "1.8.1"),
    Removed("torch.utils.data._utils.collate", "int_classes", "torch", "1.8.1"),
    Removed("torch.utils.data.dataloader", "string_classes", "torch", "1.13.1"),
    Removed("torchvision.models.resnet", "load_state_dict_from_url", "torchvision", "0.12.0", "1.11.0"),
    Removed("torchvision.models.resnet", "model_urls", "torchvision", "0.14.1", "1.13.1"),
    Removed("torchvision.models.vgg", "model_urls", "torchvision", "0.14.1", "1.13.1"),
    Removed("torchvision.transforms.functional_tensor", "", "torchvision", "0.16.2", "2.1.2"),
    Removed("transformers", "AdamW", "transformers", "4.49.0"),
    Removed("transformers.optimization", "AdamW", "transformers", "4.49.0"),
    *(
        Removed(f"transformers.{part}_{model}", "", "transformers", "3.5.1")
        for part in ("configuration", "modeling", "tokenization")
        for model in _OLD_LAYOUT
    ),
    Removed("pytorch_lightning.metrics", "", "lightning", "1.4.9"),
)
_MODULES = {removed.module for removed in REMOVED}
# The last part of each, as `from torch import _six` leaves out the rest.
LAST_PARTS = frozenset((r.name or r.module).rpartition(".")[2].encode() for r in REMOVED)
_BY_NAME = {(removed.module, removed.name): removed for removed in REMOVED}


def imported(tree: ast.Module) -> Iterator[ast.Import | ast.ImportFrom]:
    """The imports without which the module cannot be imported: those that stand under no condition, and in no `try`."""
    for statement in tree.body:
        if isinstance(statement, (ast.Import, ast.ImportFrom)):
            yield statement


def bounds(path: str, tree: ast.Module) -> list[Pin]:
    """What the imports of a module say of the newest versions that it runs with."""
    found = []
    for statement in imported(tree):
        for removed in _removed(statement):
            why = f"`{removed.spelled}`"
            versions = {removed.package: removed.last, **({"torch": removed.torch} if removed.torch else {})}
            for package, last in versions.items():
                found.append(Pin(package, f"<={last}", False, path, statement.lineno, removed=why))
    return found


def lowest(pins: Iterable[Pin]) -> dict[str, Pin]:
    """By package the pin with the lowest newest version."""
    found: dict[str, Pin] = {}
    for pin in pins:
        known = found.get(pin.package)
        if known is None or newest(pin) < newest(known):
            found[pin.package] = pin
    return found


def newest(pin: Pin) -> tuple[int, ...]:
    """The newest version of a pin that is an upper bound."""
    return tuple(map(int, pin.specifier.removeprefix("<=").split(".")))


def _removed(statement: ast.Import | ast.ImportFrom) -> Iterator[Removed]:
    if isinstance(statement, ast.Import):
        keys = [(alias.name, "") for alias in statement.names]
    elif statement.level or statement.module is None:
        return
    else:
        module = statement.module
        keys = [(module, ""), *((module, alias.name) for alias in statement.names)]
        keys += [(f"{module}.{alias.name}", "") for alias in statement.names]  # from torch import _six
    for module, name in keys:
        if module in _MODULES and (removed := _BY_NAME.get((module, name))) is not None:
            yield removed
