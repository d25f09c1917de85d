from __future__ import annotations

import ast
from collections.abc import Iterator

from ptopt.rules.base import Invalid, Problem, SourceFile
from ptopt.rules.code import keyword_of, quote
from ptopt.rules.data._items import ItemRule, item_evidence, opened, same_for_all
from ptopt.source.index import FunctionNode, walk

_OPENERS = {
    "h5py.File": "HDF5 file",
    "tables.open_file": "HDF5 file",
    "zarr.open": "store",
    "zarr.open_group": "store",
    "zarr.open_array": "store",
    "lmdb.open": "database",
    "sqlite3.connect": "database",
    "rasterio.open": "raster",
    "netCDF4.Dataset": "data set",
    "xarray.open_dataset": "data set",
    "xarray.open_mfdataset": "data set",
    "xarray.open_zarr": "data set",
    "tarfile.open": "archive",
    "zipfile.ZipFile": "archive",
    "tifffile.TiffFile": "file",
    "anndata.read_h5ad": "file",
    "scanpy.read_h5ad": "file",
    "pyarrow.parquet.ParquetFile": "file",
    "pyarrow.parquet.read_table": "file",
    "openslide.OpenSlide": "slide",
    "openslide.open_slide": "slide",
}


class ContainerOpenedPerItem(ItemRule):
    """A file that holds many items is opened and closed again for each of them.

    ## What it does
    Finds `h5py.File`, `lmdb.open`, `zarr.open`, `rasterio.open`, `tarfile.open` and their kin in code that runs for each item
    of a dataset, when the result is not kept.

    ## Why it is slow
    Opening reads and parses the file's header and index, and throws away what the library has cached of the last item.

    ## Fix safety
    No fix: the handle needs a place, and must be opened in the worker.

    ## Sources
    - [h5py documentation: opening and creating files](https://docs.h5py.org/en/stable/high/file.html)
    - [PyTorch documentation: data loading with multiple processes](https://docs.pytorch.org/docs/stable/data.html)
    """

    id = "PTO330"
    name = "container-opened-per-item"
    most_stated = 0.6
    calls = frozenset(name.rpartition(".")[2] for name in _OPENERS)
    when_wrong = "each file is read once only, or there are more files than may be open at once"

    VALID = (
        """
        import h5py
        class Depths(torch.utils.data.Dataset):
            def __getitem__(self, i):
                path = self.paths[i]
                file = h5py.File(path, "r")
                return np.array(file["depth"])
        """,
        """
        import h5py
        class Depths(Dataset):
            def __getitem__(self, i):
                with h5py.File(self.paths[i], "r") as file:
                    depth = file["depth"][:]
                return torch.from_numpy(depth)
        """,
        """
        import h5py
        class Images(Dataset):
            def __getitem__(self, i):
                if self.file is None:
                    self.file = h5py.File(self.path, "r")
                return self.file["images"][i]
        """,
        """
        import h5py
        class Images(Dataset):
            def __init__(self, path):
                with h5py.File(path, "r") as f:
                    self.images = f["images"][:]

            def __getitem__(self, i):
                return self.images[i]
        """,
        """
        import functools, torch, rasterio
        class Tiles(Dataset):
            def __getitem__(self, i):
                return self.tile(self.paths[i]).read()

            @functools.lru_cache(maxsize=128)
            def tile(self, path):
                return rasterio.open(path)
        """,
    )
    INVALID = (
        Invalid("""
            import h5py, torch
            class Images(Dataset):
                def __getitem__(self, i):
                    with h5py.File(self.path, "r") as f:  # !
                    # ~ if self.file is None:  # each worker opens its own
                    # ~     self.file = h5py.File(self.path, "r")
                        return f["images"][i]
                    # ~ return self.file["images"][i]
        """),
        Invalid("""
            import rasterio, torch
            class Tiles(Dataset):
                def __getitem__(self, i):
                    return self.merge(self.paths[i])

                def merge(self, paths):
                    return combine([rasterio.open(path) for path in paths])  # !
        """),
        Invalid("""
            import lmdb, torch
            class Keys(Dataset):
                def __getitem__(self, i):
                    env = lmdb.open(self.root, readonly=True)  # !
                    return env.begin().get(self.keys[i])
        """),
    )

    def _candidate(self, node: ast.AST, file: SourceFile) -> bool:
        return isinstance(node, ast.Call) and file.imports.qualified(node.func) in _OPENERS

    def check_item(self, node: ast.AST, function: FunctionNode, file: SourceFile) -> Iterator[Problem]:
        if not isinstance(node, ast.Call):
            return
        path = opened(node.args[0], file) if node.args else None
        constant = path is not None and same_for_all(path, function, file)
        kind = _OPENERS[file.imports.qualified(node.func)]
        if not constant and (_is_the_item(node, file) or _one_dataset(node, file)):
            return
        which = f"the same {kind}" if constant else f"a {kind}"
        yield Problem(
            node,
            f"{quote(file, node)} opens {which} for each item and reads its header and index again. Keep the handle: open it on "
            "first use in each worker (`if self.file is None: …`), or behind `functools.lru_cache` where there are several files.",
            0.6 if constant else 0.4,
            item_evidence(node, file),
            cause=function,
            facts={"same_file": float(constant)},
        )


def _one_dataset(node: ast.Call, file: SourceFile) -> bool:
    """Is the whole of one dataset taken of the file of an item: `h5py.File(path)["depth"][()]`, `np.array(f["depth"])`?"""
    block: ast.AST | None = file.index.parent(node)
    name = ""
    if isinstance(block, ast.withitem) and isinstance(block.optional_vars, ast.Name):
        name = block.optional_vars.id
    elif isinstance(block, ast.Assign) and isinstance(block.targets[0], ast.Name):
        name = block.targets[0].id
    taken = [node] if isinstance(block, (ast.Subscript, ast.Attribute)) else []
    uses = taken or (file.uses.loads(file.index.function_of(node), name) if name else [])
    entries = [file.index.parent(use) for use in uses]
    keys = [e for e in entries if isinstance(e, ast.Subscript)]
    return bool(keys) and all(
        isinstance(e.slice, ast.Constant) and _whole(file.index.parent(e)) for e in keys
    )


def _whole(outer: ast.AST | None) -> bool:
    """`np.array(f["depth"])`, `f["depth"][()]`, `f["depth"][:]`, `f["depth"].__array__()`"""
    if isinstance(outer, ast.Subscript):
        index = outer.slice
        full = isinstance(index, ast.Slice) and (index.lower or index.upper or index.step) is None
        return full or (isinstance(index, ast.Tuple) and not index.elts)
    return isinstance(outer, ast.Call)


def _is_the_item(node: ast.Call, file: SourceFile) -> bool:
    """Is the file opened to read the whole of it, once: `with rasterio.open(path) as src: src.read()`?"""
    block = file.index.parent(node)
    if isinstance(block, ast.Attribute) and block.attr in ("read", "asarray"):
        return True
    while isinstance(block, ast.withitem):
        block = file.index.parent(block)
    if not isinstance(block, ast.With):
        return False
    calls = [n for stmt in block.body for n in walk(stmt) if isinstance(n, ast.Call)]
    reads = [
        c
        for c in calls
        if isinstance(c.func, ast.Attribute) and c.func.attr in ("read", "asarray", "read_h5ad")
    ]
    return bool(reads) and all(keyword_of(c, "window") is None for c in reads)
