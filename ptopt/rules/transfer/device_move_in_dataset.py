from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from ptopt.rules.base import Evidence, Invalid, Problem, Rule, Severity, SourceFile
from ptopt.rules.code import keyword_of, quote
from ptopt.rules.shared.moves import move_of
from ptopt.source.calls import called_name
from ptopt.source.file import remembered
from ptopt.source.index import FunctionNode, own_nodes

_DATASET = re.compile(r"Dataset|Collat", re.I)
_CHEAP = frozenset("to cuda long int float size len randint from_numpy tensor astype copy clone item".split())


class DeviceMoveInDataset(Rule):
    """A dataset or a collate function moves its tensors to the device.

    ## What it does
    Finds `.cuda()` and `.to(device)` in the `__getitem__` of a dataset, and in functions used as `collate_fn`.

    ## Why it is slow
    Items cross the bus one by one, each with a copy that waits. In worker processes, every worker would need a CUDA
    context of its own (with `fork` it fails), so the loader is bound to `num_workers=0` and loads nothing ahead.

    ## When this is wrong
    When the whole dataset already lies on the device and the items are views of it.

    ## Example
    ```python
    class Images(Dataset):
        def __getitem__(self, i):
            return self.transform(Image.open(self.paths[i])).cuda()
    ```

    ## Use instead
    ```python
    class Images(Dataset):
        def __getitem__(self, i):
            return self.transform(Image.open(self.paths[i]))

    loader = DataLoader(Images(), batch_size=64, num_workers=4, pin_memory=True)
    for images in loader:
        images = images.cuda(non_blocking=True)
    ```

    ## Fix safety
    No fix: the loop that reads the loader has to move the batch instead.

    ## Sources
    - [PyTorch documentation: multiprocessing, CUDA in worker processes](https://docs.pytorch.org/docs/stable/notes/multiprocessing.html)
    - [PyTorch documentation: data loading with multiple processes](https://docs.pytorch.org/docs/stable/data.html)
    """

    id = "PTO205"
    name = "device-move-in-dataset"
    family = "transfer"
    severity = Severity.HIGH
    triggers = (".to(", ".cuda(")
    requires = ("__getitem__", "collate")
    nodes = (ast.Call,)
    calls = frozenset({"to", "cuda"})
    when_wrong = "the whole dataset already lies on the device"

    VALID = (
        """
        class Text(Dataset):
            def __getitem__(self, i):
                start = torch.randint(0, self.data.size(0) - self.length, (1,))
                return self.data[start : start + self.length + 1].long().cuda()
        """,
        """
        class Rays:
            def collate(self, index):
                angles = torch.FloatTensor([index[0] / self.size * 360]).to(self.device)
                pixels = torch.arange(self.width, device=self.device)
                return rays_of(angles, pixels)

            def dataloader(self):
                return DataLoader(range(self.size), batch_size=1, collate_fn=self.collate, num_workers=0)
        """,
        """
        class RaysDataset:
            def __init__(self, images, device):
                self.images = images
                if preload:
                    self.images = self.images.to(device)

            def collate(self, index):
                return self.images[index].to(self.device)

            def dataloader(self):
                return DataLoader(range(len(self.images)), batch_size=1, collate_fn=self.collate, num_workers=0)
        """,
        """
        class Images(Dataset):
            def __init__(self, images, device):
                self.images = images.to(device)

            def __getitem__(self, i):
                return self.images[i]
        """,
        """
        class Masks(Dataset):
            def __getitem__(self, i):
                return torch.from_numpy(self.masks[i]).to(torch.float32)
        """,
        """
        class Blocks(nn.ModuleList):
            def __getitem__(self, i):
                return super().__getitem__(i).to(self.device)
        """,
    )
    INVALID = (
        Invalid("""
            class Images(Dataset):
                def __getitem__(self, i):
                    return torch.from_numpy(self.images[i]).cuda()  # !

            class Trainer:
                def __init__(self, model, device):
                    self.model = model.to(device)
        """),
        Invalid("""
            class Images(Dataset):
                def __getitem__(self, i):
                    return torch.from_numpy(self.images[i]).cuda()  # !
        """),
        Invalid("""
            def pad(items):
                return torch.nn.utils.rnn.pad_sequence(items).to(device)  # !

            loader = DataLoader(dataset, batch_size=32, collate_fn=pad)
        """),
        Invalid("""
            class Images(torch.utils.data.Dataset):
                def __getitem__(self, i):
                    image = self.transform(self.open(i))
                    return image.to(self.device), self.labels[i]  # !
        """),
    )

    def check(self, node: ast.AST, file: SourceFile) -> Iterator[Problem]:
        move = move_of(node, file)
        function = file.context.is_item_code(node) if move is not None else None
        if move is None or function is None or not _is_loading(function, file):
            return
        if _lives_on_device(function, file) or _makes_on_device(function, file):
            return
        item = function.name.startswith("__getitem")
        if item and _only_slices(function, file):
            return
        yield Problem(
            node,
            f"{quote(file, node)} in `{function.name}` copies {'each item' if item else 'the batch'} to the device while "
            "loading, so the loader cannot use worker processes. Return CPU tensors and move the batch in the loop that reads "
            "it, from a loader with `pin_memory=True`.",
            (0.8 if move.sure else 0.65) if _is_dataset(function, file) or not item else 0.4,
            (Evidence(function.lineno, f"`{function.name}` runs in the loader"),),
            cause=function,
        )


def _lives_on_device(function: FunctionNode, file: SourceFile) -> bool:
    """Does its class keep the data on a device: `self.images = self.images.to(self.device)`?"""
    return file.index.class_of(function) in file.once(_classes_on_device)


@remembered
def _only_slices(function: FunctionNode, file: SourceFile) -> bool:
    """Is an item a stretch of what lies in memory, such as tokens? Then worker processes gain nothing."""
    sliced = any(
        isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Slice) for node in own_nodes(function)
    )
    return sliced and all(called_name(call) in _CHEAP for call in file.calls.calls_in(function))


@remembered
def _makes_on_device(function: FunctionNode, file: SourceFile) -> bool:
    """Does it make its data there, such as the rays of a camera? Moving all of that would be slower."""
    given = (keyword_of(call, "device") for call in file.calls.calls_in(function))
    return any(
        device is not None and not (isinstance(device, ast.Constant) and device.value == "cpu")
        for device in given
    )


def _classes_on_device(file: SourceFile) -> frozenset[ast.ClassDef]:
    """Those that store what they move to a device in an attribute."""
    stores = (
        assign
        for assign in file.index.of_type(ast.Assign)
        if any(isinstance(target, ast.Attribute) for target in assign.targets)
    )
    classes = (file.index.class_of(assign) for assign in stores if move_of(assign.value, file) is not None)
    return frozenset(cls for cls in classes if cls is not None)


def _is_dataset(function: FunctionNode, file: SourceFile) -> bool:
    """Does its class derive from a dataset?"""
    cls = file.index.parent(function)
    return isinstance(cls, ast.ClassDef) and any(_DATASET.search(file.source(base)) for base in cls.bases)


def _is_loading(function: FunctionNode, file: SourceFile) -> bool:
    """Does a loader run the function: the item method of a dataset class, or a function passed as `collate_fn`?"""
    cls = file.index.parent(function)
    if function.name.startswith("__getitem"):
        named = isinstance(cls, ast.ClassDef) and bool(_DATASET.search(cls.name))
        return named or _is_dataset(function, file)
    return function.name in file.once(_collate_functions)


def _collate_functions(file: SourceFile) -> frozenset[str]:
    used = (keyword_of(call, "collate_fn") for call in file.index.of_type(ast.Call))
    return frozenset(file.source(each).rpartition(".")[2] for each in used if each is not None)
