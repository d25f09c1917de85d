"""Is each item of the training data decoded from a file when it is asked for, and is that much work?

A picture that is stored as the network takes it, such as a tile of 128 x 128, is decoded in a millisecond. One that is larger is resized, or a
part of it is: where no code does so, its size is not known to matter, nor is a handful of pictures a step. Films, volumes and recordings
that are resampled are large; a short recording is read in a millisecond.
"""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Mapping

from ptopt.audit.measures.loader import has_batches_below
from ptopt.audit.modules import Module, qualified, text_of
from ptopt.audit.setup import Setup
from ptopt.source.calls import last_name
from ptopt.source.index import FunctionNode

_MANY = 8  # pictures in a batch, whose decoding outlasts many a step
_DEEPEST = 4  # calls from `__getitem__` on
_OF_AN_ITEM = frozenset({"__getitem__", "__getitems__", "__iter__"})
_DATASET = re.compile(r"data_?set|data_?pipe|folder|images|pictures|videos", re.I)
_OTHER = re.compile(r"sampler|loader|prefetch|config", re.I)
# `self.dataset[i]`: what the items cost is decided there.
_WRAPS = re.compile(r"self\.\w*(data|set)\w*\[", re.I)
_PICTURE = re.compile(
    r"(^PIL\.Image\.open|^cv2\.(imread|imdecode)|^imageio(\.v\d)?\.imread|\.io\.imread|^torchvision\.io\.(read|decode)_(image|jpeg|png|webp|gif)"
    r"|\.default_loader|\.pil_loader)$"
)
_LARGE = re.compile(
    r"(^cv2\.VideoCapture|^imageio(\.v\d)?\.(mimread|get_reader)|^torchvision\.io\.read_video\w*|^librosa\.(load|core\.load)"
    r"|^decord\.VideoReader|^av\.open|^nibabel\.load|^SimpleITK\.ReadImage|^rasterio\.open|^pydicom\.dcmread)$"
)
# Of torchvision, PIL, OpenCV, albumentations, kornia and scikit-image.
_SHRINKS = re.compile(
    r"^(resize\w*|Resize\w*|RandomResizedCrop|RandomSizedCrop|RandomScale\w*|resized_crop|thumbnail|LongestMaxSize|SmallestMaxSize|"
    r"ScaleJitter|RandomShortestSize|rescale|zoom|create_transform)$"
)
_DECODING_SETS = re.compile(
    r"^torchvision\.datasets\.(\w+\.)?(ImageFolder|DatasetFolder|ImageNet|CocoDetection|CocoCaptions|VOC\w+|CelebA|Places365|LSUN|Cityscapes|"
    r"Kinetics\w*|Flowers102|Food101|Caltech\w+|INaturalist|StanfordCars|OxfordIIITPet)$"
)
_SHRINKS_IN_TEXT = re.compile(rb"[Rr]esize|Resized|thumbnail")
_DECODES_IN_TEXT = re.compile(rb"\bImage\.open\(|\bcv2\.imread\(|\bimageio\.imread\(")


def decodes(setup: Setup) -> bool:
    """A picture, film, volume or recording, in each dataset that the script may use: which of them its training loader is given is
    seldom plain.
    """
    answers = _of_datasets(setup, re.compile(f"{_PICTURE.pattern}|{_LARGE.pattern}"))
    if False in answers:
        return False
    if _of_datasets(setup, _LARGE) == {True}:
        return True
    pictures = (bool(answers) or _uses_decoding_set(setup)) and _shrinks(setup) or _may_decode(setup)
    return pictures and not has_batches_below(setup, _MANY)


def _shrinks(setup: Setup) -> bool:
    """Are pictures made smaller, so that they are stored larger than the network takes them?"""
    return any(setup.runs(module, call).truth is not False for module, call in setup.named(_SHRINKS))


def _of_datasets(setup: Setup, decoders: re.Pattern[str]) -> set[bool]:
    """For the datasets of the repository that the script runs: do their items call one of the decoders?"""
    named: defaultdict[str, list[FunctionNode]] = defaultdict(list)
    for function in setup.live.functions:
        named[function.name].append(function)
    found = set()
    for name in _OF_AN_ITEM:
        for function in named[name]:
            module = setup.live.functions[function]
            cls = module.file.index.class_of(function)
            if cls is None or not _is_dataset(cls):
                continue
            answer = _reaches(setup, function, decoders, named)
            if answer or not _WRAPS.search(module.file.source(function)):
                found.add(answer)
    return found


def _is_dataset(cls: ast.ClassDef) -> bool:
    words = " ".join([cls.name, *map(text_of, cls.bases)])
    return _DATASET.search(words) is not None and _OTHER.search(words) is None


def _reaches(
    setup: Setup, item: FunctionNode, decoders: re.Pattern[str], named: Mapping[str, list[FunctionNode]]
) -> bool:
    waiting, seen = [item], {item}
    for _ in range(_DEEPEST):
        called = set()
        for function in waiting:
            for module, call in setup.live.calls_in(function):
                if decoders.search(setup.qualified(module, call.func)):
                    return True
                called.add(last_name(call.func))
        waiting = [f for name in called - {"__init__"} for f in named.get(name, ()) if f not in seen]
        seen.update(waiting)
    return False


def _uses_decoding_set(setup: Setup) -> bool:
    """Of torchvision."""
    return any(
        setup.runs(module, call).truth is not False
        for module, call, _ in setup.live.found(_makes_decoding_set)
    )


def _makes_decoding_set(module: Module, call: ast.Call) -> bool | None:
    return _DECODING_SETS.search(qualified(module, call.func)) is not None or None


def _may_decode(setup: Setup) -> bool:
    """Where datasets are found by their names: do those beside the code that looks for them decode and resize pictures?"""
    folders = {module.path.rpartition("/")[0] + "/" for module, _ in setup.live.dynamic} - {"/"}
    every = [
        _DECODES_IN_TEXT.search(data) is not None and _SHRINKS_IN_TEXT.search(data) is not None
        for path, data in setup.live.modules.files.items()
        if path.startswith(tuple(folders)) and b"def __getitem__" in data
    ]
    return bool(every) and all(every)
