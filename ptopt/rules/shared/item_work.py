"""What a dataset does for each item: reads a file, decodes, transforms, tokenises."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from ptopt.rules.code import is_literal, keyword_of
from ptopt.rules.shared.moves import move_of
from ptopt.source.file import SourceFile
from ptopt.source.index import FunctionNode, own_nodes

_READS = re.compile(
    r"(^|\.)(open|imread|imdecode|read_image|decode_image|decode_jpeg|read_video|pil_loader|VideoReader|VideoCapture|File"
    r"|(load|read)_(audio|wav|waveform|image|video))$"
    r"|^(np|numpy|torch|torchaudio|librosa|pickle|json|sitk|nib|tifffile|zarr)(\.\w+)*\.load$"
    r"|^(sf|soundfile|skimage\.io|imageio|sitk|pd|pandas)\.(read|imread|ReadImage|read_\w+)$"
)
_WORKS = re.compile(
    r"(^|[._])(transforms?|augment\w*|tokenize|preprocess|processor)(_\w+)?$|(^|[._])tokenizer(\.\w+)?$"
)
_SPECTRUM = re.compile(r"(^|[._])(log_?)?(mel_?)?spectrogram$", re.I)  # costs more than tokenising a text
_IN_MEMORY = frozenset(
    "MNIST FashionMNIST KMNIST EMNIST QMNIST CIFAR10 CIFAR100 SVHN STL10 USPS SEMEION FakeData".split()
)
_TRANSFORM_KEYWORDS = ("transform", "transforms")
_CHEAP = frozenset("from_numpy tensor as_tensor len int float long LongTensor FloatTensor".split())
_WRAPPERS = frozenset({"Subset", "ConcatDataset", "random_split"})


@dataclass(frozen=True, slots=True)
class ItemWork:
    """What one item costs, in words that follow "for each item", and the line that shows it."""

    words: str
    line: int
    weight: Literal[
        "heavy", "light", "toy"
    ]  # reads or decodes; transforms what lies in memory; a small known dataset


def item_work(dataset: ast.expr, file: SourceFile, depth: int = 0) -> ItemWork | None:
    """The work behind a dataset expression, or None when it has none or cannot be told."""
    if depth > 4:
        return None
    if isinstance(dataset, ast.Subscript):
        return item_work(dataset.value, file, depth + 1)
    if isinstance(dataset, (ast.Name, ast.Attribute)):
        switched = _on_the_fly(dataset, file)
        if switched is not None:
            return switched
        for value in _values(dataset, file):
            found = item_work(value, file, depth + 1)
            if found is not None:
                return found
        return None
    return _of_call(dataset, file, depth) if isinstance(dataset, ast.Call) else None


def _of_call(call: ast.Call, file: SourceFile, depth: int) -> ItemWork | None:
    qualified = file.imports.qualified(call.func)
    leaf = (qualified or file.source(call.func)).rpartition(".")[2]
    if leaf in _WRAPPERS and call.args:
        first = call.args[0]
        parts = first.elts if isinstance(first, (ast.List, ast.Tuple)) else [first]
        return next((w for p in parts if (w := item_work(p, file, depth + 1)) is not None), None)
    if qualified.startswith("torchvision.datasets."):
        transformed = any(keyword_of(call, k) is not None for k in _TRANSFORM_KEYWORDS)
        if leaf in _IN_MEMORY:
            words = f"`{leaf}` converts and transforms an image"
            return ItemWork(words, call.lineno, "toy") if transformed else None
        return ItemWork(f"`{leaf}` reads and decodes an image", call.lineno, "heavy")
    if isinstance(call.func, ast.Attribute) and call.func.attr == "with_transform":
        return ItemWork("a transform is applied", call.lineno, "heavy")
    for cls in file.index.of_type(ast.ClassDef):
        if cls.name == leaf and isinstance(call.func, ast.Name):
            return _of_class(cls, file)
    if any(not is_literal(k.value, None) for k in call.keywords if k.arg in _TRANSFORM_KEYWORDS):
        return ItemWork("a transform is applied", call.lineno, "light")
    if isinstance(call.func, ast.Attribute) and call.func.attr in ("select", "shuffle", "cast_column"):
        return item_work(call.func.value, file, depth + 1)
    return None


def _of_class(cls: ast.ClassDef, file: SourceFile) -> ItemWork | None:
    """Work in the class's `__getitem__`, or in the methods that it calls: what costs most of it."""
    getitem = file.calls.method(cls, "__getitem__")
    if getitem is None or "IterableDataset" in {file.source(b).rpartition(".")[2] for b in cls.bases}:
        return None
    calls = list(_calls_from(getitem, file))
    if any(move_of(call, file) is not None for call in calls):
        return None  # items on a device cannot come from worker processes
    found: ItemWork | None = None
    spectral = False
    for call in calls:
        name = file.source(call.func)
        if _READS.search(name) and not _cached(call, file):
            return ItemWork(f"`{cls.name}` calls `{_short(name)}`", call.lineno, "heavy")
        spectrum = bool(_SPECTRUM.search(name))
        if spectrum and not spectral or found is None and _WORKS.search(name):
            spectral = spectrum
            found = ItemWork(f"`{cls.name}` calls `{_short(name)}`", call.lineno, "light")
    return found


def reads_files(function: FunctionNode, file: SourceFile) -> bool:
    """Does the function, or one that it calls, read or decode a file?"""
    return any(_READS.search(file.source(call.func)) for call in _calls_from(function, file))


def _short(name: str) -> str:
    return name if "\n" not in name and len(name) < 50 else name.rpartition(".")[2]


def in_memory(dataset: ast.expr, file: SourceFile, depth: int = 0) -> bool:
    """Do the items surely lie in memory: tensors, a list, a class of this file whose items are only looked up?"""
    if depth > 4:
        return False
    if isinstance(dataset, (ast.List, ast.ListComp, ast.Tuple)):
        return True
    if isinstance(dataset, ast.Call):
        leaf = file.source(dataset.func).rpartition(".")[2]
        if leaf in ("TensorDataset", "StackDataset", "ArrayDataset", "list", "zip", "range"):
            return True
        if leaf in _WRAPPERS and dataset.args:
            return in_memory(dataset.args[0], file, depth + 1)
        made = file.definition_of(dataset)
        if made is not None and made[1].name != "__init__":
            other, function = made
            results = [n.value for n in own_nodes(function) if isinstance(n, ast.Return)]
            return bool(results) and all(r is not None and in_memory(r, other, depth + 1) for r in results)
        cls = next((c for c in file.index.of_type(ast.ClassDef) if c.name == leaf), None)
        getitem = file.calls.method(cls, "__getitem__") if cls is not None else None
        return getitem is not None and all(
            file.source(call.func).rpartition(".")[2] in _CHEAP for call in file.calls.calls_in(getitem)
        )
    if isinstance(dataset, (ast.Name, ast.Attribute)):
        values = list(_values(dataset, file))
        return bool(values) and all(in_memory(value, file, depth + 1) for value in values)
    return isinstance(dataset, ast.Subscript) and in_memory(dataset.value, file, depth + 1)


def _calls_from(getitem: FunctionNode, file: SourceFile) -> Iterator[ast.Call]:
    seen = {getitem}
    for call in file.calls.calls_in(getitem):
        yield call
        target = file.calls.resolve(call)
        if target is not None and target not in seen:
            seen.add(target)
            yield from file.calls.calls_in(target)


def _cached(call: ast.Call, file: SourceFile) -> bool:
    """Does a test stand around the read, so that it may run once only?"""
    return file.index.enclosing(call, (ast.If,)) is not None


def _on_the_fly(dataset: ast.Name | ast.Attribute, file: SourceFile) -> ItemWork | None:
    """Is `set_transform` called on this very dataset?"""
    text = file.source(dataset)
    for call in file.calls_named("set_transform"):
        if isinstance(call.func, ast.Attribute):
            base = call.func.value
            if file.source(base.value if isinstance(base, ast.Subscript) else base) == text:
                return ItemWork("the transform set here is applied", call.lineno, "heavy")
    return None


def _values(dataset: ast.Name | ast.Attribute, file: SourceFile) -> Iterator[ast.expr]:
    """What the variable or attribute was given, at the places that can bind it."""
    if isinstance(dataset, ast.Attribute):
        cls = file.index.class_of(dataset)
        own = isinstance(dataset.value, ast.Name) and dataset.value.id == "self"
        value = file.bindings.attribute(cls, dataset.attr) if cls is not None and own else None
        if value is not None:
            yield value
        return
    function = file.index.function_of(dataset)
    while True:
        bindings = file.bindings.of(function, dataset.id)
        for binding in reversed(bindings):
            if (
                binding.kind in ("assign", "unpack")
                and binding.value is not None
                and binding.value is not dataset
            ):
                yield binding.value
        if bindings or function is None:
            return
        function = file.index.function_of(function)
