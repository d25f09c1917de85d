"""Is each item of the training data decoded from a file when it is asked for?"""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Mapping

from ptopt.audit.modules import Module, qualified, text_of
from ptopt.audit.setup import Setup
from ptopt.source.calls import last_name
from ptopt.source.index import FunctionNode

_DEEPEST = 4  # calls from `__getitem__` on
_OF_AN_ITEM = frozenset({"__getitem__", "__getitems__", "__iter__"})
_DATASET = re.compile(r"data_?set|data_?pipe|folder|images|pictures|videos", re.I)
_OTHER = re.compile(r"sampler|loader|prefetch|config", re.I)
# `self.dataset[i]`: what the items cost is decided there.
_WRAPS = re.compile(r"self\.\w*(data|set)\w*\[", re.I)
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


def decodes(setup: Setup) -> bool:
    """A picture, video or recording, in each dataset that the script may use: which of them its training loader is given is
    seldom plain.
    """
    answers = _of_datasets(setup)
    if False in answers:
        return False
    return bool(answers) or _uses_decoding_set(setup) or _may_decode(setup)


def _of_datasets(setup: Setup) -> set[bool]:
    """For the datasets of the repository that the script runs: do their items decode?"""
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
            answer = _reaches_decoding(setup, function, named)
            if answer or not _WRAPS.search(module.file.source(function)):
                found.add(answer)
    return found


def _is_dataset(cls: ast.ClassDef) -> bool:
    words = " ".join([cls.name, *map(text_of, cls.bases)])
    return _DATASET.search(words) is not None and _OTHER.search(words) is None


def _reaches_decoding(setup: Setup, item: FunctionNode, named: Mapping[str, list[FunctionNode]]) -> bool:
    waiting, seen = [item], {item}
    for _ in range(_DEEPEST):
        called = set()
        for function in waiting:
            for module, call in setup.live.calls_in(function):
                if _DECODES.search(setup.qualified(module, call.func)):
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
    """Where datasets are found by their names: do those beside the code that looks for them decode pictures?"""
    folders = {module.path.rpartition("/")[0] + "/" for module, _ in setup.live.dynamic} - {"/"}
    every = [
        _DECODES_IN_TEXT.search(data) is not None
        for path, data in setup.live.modules.files.items()
        if path.startswith(tuple(folders)) and b"def __getitem__" in data
    ]
    return bool(every) and all(every)
