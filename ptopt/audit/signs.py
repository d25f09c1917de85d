"""What the code that a script runs tells of the cost of its training, beyond the rows of its table."""

from __future__ import annotations

import ast
import re

from ptopt.audit.decoding import decodes
from ptopt.audit.modules import Module, qualified
from ptopt.audit.setup import Setup
from ptopt.audit.values import Lines, Sign

_HALF = re.compile(
    r"bfloat16|bf16|float16|fp16|half\(\)|autocast|GradScaler|\bamp\b|apex|mixed_?precision", re.I
)
_PICTURES = frozenset(
    {"torchvision", "PIL", "cv2", "timm", "skimage", "imageio", "albumentations", "kornia", "monai", "diffusers", "decord"}
)  # fmt: skip
# Sound is computed with spectra, whose losses are often kept in float32 on purpose.
_SOUND = frozenset({"torchaudio", "librosa", "soundfile", "scipy.io.wavfile", "asteroid", "pyworld"})
_TINY = re.compile(
    r"^torchvision\.datasets\.(\w+\.)?(CIFAR\w+|SVHN|[A-Z]*MNIST|FashionMNIST|USPS|Omniglot|SEMEION)$"
)
# Names of the second network of an adversarial training, and of its optimizer; packages of diffusion.
_ADVERSARY = re.compile(r"discriminator|\bnet_?D\b|\b(optimizer|optim|opt)_?D\b|\bd_optim|\bgan_?loss", re.I)
_DIFFUSION = frozenset({"diffusers", "k_diffusion", "guided_diffusion", "ldm"})
_FEEDS_ALL = re.compile(r"^(?!.*[Dd]istributed)\w*DataParallel\w*$")
# Of a library, and not its tokenizer.
_LOADS = re.compile(r"^(transformers|diffusers|peft)\.(?!.*(Tokenizer|Processor|Config|Extractor|Scheduler))")


def signs_of(setup: Setup) -> frozenset[Sign]:
    """Of one script."""
    found = set()
    packages = setup.packages
    if setup.is_small:
        found.add(Sign.SMALL)
    if setup.says(_HALF) or any(_HALF.search(name) for launch in setup.launches for name in launch.options):
        found.add(Sign.HALF)
    if not _PICTURES.isdisjoint(packages):
        found.add(Sign.PICTURES)
    if not _SOUND.isdisjoint(packages):
        found.add(Sign.SOUND)
    if setup.launches:
        found.add(Sign.STARTED)
    if any(
        _LOADS.search(setup.qualified(module, call.func)) for module, call in setup.calls("from_pretrained")
    ):
        found.add(Sign.PRETRAINED)
    if decodes(setup):
        found.add(Sign.DECODES)
    elif _uses_tiny_set(setup):
        found.add(Sign.TINY_PICTURES)
    if setup.says(_ADVERSARY) or not _DIFFUSION.isdisjoint(packages):
        found.add(Sign.MAKES_PICTURES)
    if setup.named(_FEEDS_ALL):
        found.add(Sign.FEEDS_ALL)
    return frozenset(found)


def _uses_tiny_set(setup: Setup) -> bool:
    return any(
        setup.runs(module, call).truth is not False for module, call, _ in setup.live.found(_makes_tiny_set)
    )


def _makes_tiny_set(module: Module, call: ast.Call) -> bool | None:
    return _TINY.search(qualified(module, call.func)) is not None or None


def reached(setup: Setup) -> frozenset[Lines]:
    """The functions that run."""
    return frozenset(
        (
            module.path,
            module.file.head_line(function.lineno),
            module.file.head_line(function.end_lineno or function.lineno),
        )
        for function, module in setup.live.functions.items()
    )
