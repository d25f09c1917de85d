from __future__ import annotations

import builtins
import importlib

import pytest

from ptopt.prove.names import ATTRIBUTES, BUILTINS, MODULES

_DANGEROUS = {
    "apply_", "compile", "cuda", "data_ptr", "dump", "eval", "exec", "from_file", "fromfile", "getattr", "globals", "hub", "jit",
    "load", "locals", "manual_seed", "map_", "memmap", "open", "ops", "os", "register_hook", "save", "savez", "set_", "set_num_threads",
    "setattr", "share_memory_", "storage", "sys", "tofile", "type", "untyped_storage", "vars", "ctypeslib",
}  # fmt: skip


def test_nothing_listed_reaches_files_or_the_interpreter() -> None:
    allowed_type = {"type"}  # of a tensor: the name of its type
    assert not _DANGEROUS & BUILTINS
    assert not (_DANGEROUS - allowed_type) & ATTRIBUTES
    assert not any(_DANGEROUS & names for names in MODULES.values())
    assert not any(
        name.startswith("_") for names in (ATTRIBUTES, BUILTINS, *MODULES.values()) for name in names
    )
    assert all(hasattr(builtins, name) for name in BUILTINS)


@pytest.mark.model
@pytest.mark.parametrize("module", MODULES)
def test_what_is_listed_exists_and_is_no_module(module: str) -> None:
    found = importlib.import_module(module)
    missing = [name for name in MODULES[module] if not hasattr(found, name)]
    assert not missing
    modules = [name for name in MODULES[module] if type(getattr(found, name)).__name__ == "module"]
    assert not modules


@pytest.mark.model
def test_attributes_are_those_of_tensors_arrays_or_plain_values() -> None:
    import numpy as np
    import torch

    values = (
        torch.ones(2),
        np.ones(2),
        torch.finfo(),
        torch.iinfo(torch.int64),
        torch.float32,
        "",
        [],
        {},
        set(),
        slice(1),
    )
    values += (torch.ones(2, 2).max(0),)
    known = {name for value in values for name in dir(value)}
    assert known >= ATTRIBUTES
