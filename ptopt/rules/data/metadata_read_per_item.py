from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from ptopt.rules.base import Invalid, Problem, Severity, SourceFile
from ptopt.rules.code import keyword_of, quote
from ptopt.rules.data._items import ItemRule, item_evidence, same_for_all
from ptopt.source.frequency import Often
from ptopt.source.index import FunctionNode

_HEADERS = re.compile(
    r"^(torchaudio\.info|(soundfile|sf)\.(info|SoundFile)|librosa\.(get_duration|get_samplerate)|sox\.file_info\.\w+|wave\.open"
    r"|ffmpeg\.probe|imagesize\.get|torchvision\.io\.read_video_timestamps|mutagen\.File)$"
)
_LISTINGS = re.compile(r"^(os\.(listdir|scandir|walk)|glob\.i?glob)$")
_PATH_LISTINGS = frozenset({"glob", "rglob", "iterdir"})


class MetadataReadPerItem(ItemRule):
    """A dataset asks the disk again for each item what does not change: headers, attributes, directories.

    ## What it does
    Finds `torchaudio.info`, `soundfile.info`, `librosa.get_duration(path=…)`, attributes of HDF5 objects, `os.listdir` and
    `glob` in code that runs for each item of a dataset.

    ## Why it is slow
    Each is a visit to the file system, often with a header to parse, for a few numbers that are the same in every epoch.
    On network storage a visit costs more than reading a small item.

    ## Fix safety
    No fix: the values have to be collected beforehand, or on first use.

    ## Sources
    - [PyTorch documentation: data loading with multiple processes](https://docs.pytorch.org/docs/stable/data.html)
    """

    id = "PTO331"
    name = "metadata-read-per-item"
    severity = Severity.LOW
    most_stated = 0.6
    requires = (
        "info",
        "SoundFile",
        "get_duration",
        "attrs",
        "listdir",
        "glob",
        "scandir",
        "walk",
        "iterdir",
        "probe",
        "wave",
    )
    nodes = (ast.Call, ast.Subscript)
    calls = frozenset(
        "info SoundFile get_duration get_samplerate open probe get read_video_timestamps File listdir scandir walk glob iglob "
        "rglob iterdir".split()
    )
    when_wrong = "each item is read once only, or files change while training runs"

    VALID = (
        """
        import torchaudio
        class Clips(Dataset):
            def __init__(self, paths):
                self.frames = [torchaudio.info(path).num_frames for path in paths]

            def __getitem__(self, i):
                return torch.zeros(self.frames[i])
        """,
        """
        class Folder(Dataset):
            def __init__(self, root):
                self.names = sorted(os.listdir(root))

            def __getitem__(self, i):
                return torch.load(self.names[i])
        """,
        """
        import torchaudio
        class Clips(Dataset):
            def __getitem__(self, i):
                if i not in self.cache:
                    self.cache[i] = torchaudio.info(self.paths[i])
                return self.cache[i]
        """,
    )
    INVALID = (
        Invalid("""
            import torchaudio
            from torch.utils.data import Dataset
            class Clips(Dataset):
                def __getitem__(self, i):
                    frames = torchaudio.info(self.paths[i]).num_frames  # !
                    return torchaudio.load(self.paths[i], frame_offset=random.randint(0, frames - self.size))
        """),
        Invalid("""
            import glob
            from torch.utils.data import Dataset
            class Folder(Dataset):
                def __getitem__(self, i):
                    return read(sorted(glob.glob(self.root + "/*.png"))[i])  # !
        """),
        Invalid("""
            import h5py
            from torch.utils.data import Dataset
            class Frames(Dataset):
                def __getitem__(self, i):
                    group = self.file[self.keys[i]]
                    assert group["coords"].attrs["unit"] == "Angstrom"  # !
                    return group["coords"][:]
        """),
    )

    def candidates(self, file: SourceFile) -> list[ast.AST]:
        calls: list[ast.AST] = [call for name in sorted(self.calls) for call in file.calls_named(name)]
        if file.imports.imports("sox"):
            calls = list(file.index.of_type(ast.Call))
        parents = map(file.index.parent, file.index.attributes_named("attrs"))
        return calls + [node for node in parents if isinstance(node, ast.Subscript)]

    def _candidate(self, node: ast.AST, file: SourceFile) -> bool:
        if isinstance(node, ast.Subscript):
            return isinstance(node.value, ast.Attribute) and node.value.attr == "attrs"
        return isinstance(node, ast.Call) and bool(_kind(node, file))

    def check(self, node: ast.AST, file: SourceFile) -> Iterator[Problem]:
        if not self._candidate(node, file):
            return
        found = list(super().check(node, file))
        yield from found
        if found or not isinstance(node, ast.Call) or _kind(node, file) != "header":
            return
        method = file.index.function_of(node)
        if method is None or method.name.startswith("_") or not _reads_on(node, method, file):
            return
        if file.frequencies.of(node).often not in (Often.RARELY, Often.ONCE, Often.EPOCH):
            yield Problem(
                node,
                f"{quote(file, node)} reads the file's header on each call of `{method.name}`, beside the samples. Where the same "
                "files are read many times, keep the values of the header.",
                0.35,
                cause=method,
                facts={"directory": 0.0, "same_for_all": 0.0},
            )

    def check_item(self, node: ast.AST, function: FunctionNode, file: SourceFile) -> Iterator[Problem]:
        kind = _kind(node, file) if isinstance(node, ast.Call) else "attributes"
        constant = (
            isinstance(node, ast.Call) and bool(node.args) and same_for_all(node.args[0], function, file)
        )
        what = {
            "header": "reads a file's header",
            "directory": "lists a directory",
            "attributes": "reads an attribute from the file",
        }[kind]
        yield Problem(
            node,
            f"{quote(file, node)} {what} again for each item, in every epoch. Collect the values once in `__init__`, or keep them "
            "on first use.",
            0.6 if constant and kind == "directory" else 0.4,
            item_evidence(node, file),
            cause=function,
            facts={"directory": float(kind == "directory"), "same_for_all": float(constant)},
        )


def _kind(call: ast.Call, file: SourceFile) -> str:
    name = file.imports.qualified(call.func)
    if not name:
        listed = isinstance(call.func, ast.Attribute) and call.func.attr in _PATH_LISTINGS
        return "directory" if listed else ""
    if _LISTINGS.match(name):
        return "directory"
    if _HEADERS.match(name):
        decoded = name.startswith("librosa.") and not call.args and keyword_of(call, "path") is None
        return "" if decoded and keyword_of(call, "filename") is None else "header"
    return ""


def _reads_on(node: ast.Call, function: FunctionNode, file: SourceFile) -> bool:
    """Does the function read samples too, so that its caller may come back for others?"""
    calls = file.calls.calls_in(function)
    return any(c is not node and file.source(c.func).rpartition(".")[2] in ("load", "read") for c in calls)
