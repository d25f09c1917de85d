"""What the code that a script runs tells of the cost of its training, beyond the rows of its table."""

from __future__ import annotations

import ast
import re
from collections import defaultdict

from ptopt.audit.modules import Module
from ptopt.audit.setup import Setup
from ptopt.audit.values import Lines, Sign
from ptopt.source.calls import last_name
from ptopt.source.index import FunctionNode

_DEEPEST = 4  # calls from `__getitem__` on
_HALF = re.compile(
    r"bfloat16|bf16|float16|fp16|half\(\)|autocast|GradScaler|\bamp\b|apex|mixed_?precision", re.I
)
_PICTURES = frozenset(
    {"torchvision", "PIL", "cv2", "timm", "skimage", "imageio", "albumentations", "kornia", "monai", "diffusers", "decord"}
)  # fmt: skip
# Sound is computed with spectra, whose losses are often kept in float32 on purpose.
_SOUND = frozenset({"torchaudio", "librosa", "soundfile", "scipy.io.wavfile", "asteroid", "pyworld"})
_DECODES = re.compile(
    r"(^PIL\.Image\.open|^cv2\.(imread|VideoCapture|imdecode)|^imageio(\.v\d)?\.(imread|mimread|get_reader)|\.io\.imread|^torchvision\.io\."
    r"(read|decode)_\w+|^torchaudio\.load|^librosa\.(load|core\.load)|^soundfile\.read|^decord\.VideoReader|^av\.open|^nibabel\.load"
    r"|^SimpleITK\.ReadImage|\.default_loader|\.pil_loader|^rasterio\.open|^pydicom\.dcmread)$"
)
_DECODING_SETS = re.compile(
    r"^torchvision\.datasets\.(\w+\.)?(ImageFolder|DatasetFolder|ImageNet|CocoDetection|CocoCaptions|VOC\w+|CelebA|Places365|LSUN|Cityscapes|"
    r"Kinetics\w*|Flowers102|Food101|Caltech\w+|INaturalist|StanfordCars|OxfordIIITPet)$"
)
_DECODES_IN_TEXT = re.compile(rb"\bImage\.open\(|\bcv2\.imread\(|\bimageio\.imread\(")
# Of a library, and not its tokenizer.
_LOADS = re.compile(r"^(transformers|diffusers|peft)\.(?!.*(Tokenizer|Processor|Config|Extractor|Scheduler))")
_OF_AN_ITEM = frozenset({"__getitem__", "__getitems__", "__iter__"})


def signs_of(setup: Setup) -> frozenset[Sign]:
    """Of one script."""
    found = set()
    packages = setup.packages
    if setup.is_small:
        found.add(Sign.SMALL)
    if _HALF.search(setup.live_text) or any(
        _HALF.search(name) for launch in setup.launches for name in launch.options
    ):
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
    if _decodes(setup) or _may_decode(setup):
        found.add(Sign.DECODES)
    return frozenset(found)


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


def _decodes(setup: Setup) -> bool:
    """Is a file of pictures or sound decoded whenever an item of a dataset is asked for?"""
    by_function: defaultdict[FunctionNode | None, list[tuple[Module, ast.Call]]] = defaultdict(list)
    for module, call in setup.live.calls:
        by_function[module.file.index.function_of(call)].append((module, call))
        if (
            _DECODING_SETS.search(setup.qualified(module, call.func))
            and setup.runs(module, call).truth is not False
        ):
            return True
    named: defaultdict[str, list[FunctionNode]] = defaultdict(list)
    for function in setup.live.functions:
        named[function.name].append(function)
    waiting = [function for name in _OF_AN_ITEM for function in named[name]]
    seen = set(waiting)
    for _ in range(_DEEPEST):
        called = set()
        for function in waiting:
            for module, call in by_function[function]:
                if _DECODES.search(setup.qualified(module, call.func)):
                    return True
                called.add(last_name(call.func))
        waiting = [f for name in called - {"__init__"} for f in named.get(name, ()) if f not in seen]
        seen.update(waiting)
    return False


def _may_decode(setup: Setup) -> bool:
    """Where datasets are found by their names: do those beside the code that looks for them decode pictures?"""
    folders = {module.path.rpartition("/")[0] + "/" for module, _ in setup.live.dynamic} - {"/"}
    return any(
        b"def __getitem__" in data and _DECODES_IN_TEXT.search(data) is not None
        for path, data in setup.live.modules.files.items()
        if path.startswith(tuple(folders))
    )
