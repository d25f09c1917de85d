"""Answers questions about the libraries of one environment. It runs there, so it needs nothing but them and Python.

Questions come as a JSON list of expressions on stdin; the answers go to stdout: the versions, and `repr` of each value. An
expression may use the functions below; one that names a library that is not installed is answered by null.
"""

from __future__ import annotations

import dataclasses
import importlib
import importlib.util
import inspect
import json
import os
import sys
import warnings
from typing import Any

LIBRARIES = ("torch", "transformers", "trl", "lightning", "accelerate", "deepspeed", "datasets", "numpy")
MISSING = "missing"
_HOLDERS = (
    "torch.Tensor", "torch.nn.Module", "torch.optim.Optimizer", "torch.utils.data.DataLoader", "torch.cuda.Event", "numpy.ndarray",
    "torch.nn.parallel.DistributedDataParallel",
)  # fmt: skip


def find(dotted: str) -> Any:
    """What a dotted name stands for: the longest module, then attributes. Raises AttributeError, ImportError."""
    parts = dotted.split(".")
    for length in range(len(parts), 0, -1):
        name = ".".join(parts[:length])
        try:
            found = importlib.import_module(name)
        except ModuleNotFoundError as error:
            if error.name is None or not (name + ".").startswith(error.name + "."):
                raise
            continue
        for part in parts[length:]:
            found = getattr(found, part)
        return found
    raise ModuleNotFoundError(dotted, name=parts[0])


def exists(dotted: str) -> bool:
    try:
        find(dotted)
    except AttributeError:
        return False
    return True


def method(name: str) -> bool:
    """Has one of the usual objects such a method?"""
    found = False
    for holder in _HOLDERS:
        try:
            found = found or hasattr(find(holder), name)
        except (AttributeError, ImportError):
            continue
    return found


def takes(dotted: str, keyword: str) -> bool | None:
    """Does the callable take the keyword? None where it does not show its signature, or is not there at all."""
    try:
        parameters = inspect.signature(find(dotted)).parameters
    except (AttributeError, TypeError, ValueError):
        return None
    named = keyword in parameters
    open_ended = any(p.kind is p.VAR_KEYWORD for p in parameters.values())
    return named or (
        None if open_ended or any(p.kind is p.VAR_POSITIONAL for p in parameters.values()) else False
    )


def default(dotted: str, parameter: str) -> Any:
    """The default of a parameter, or of a field of a dataclass or pydantic model; "missing" where there is no such."""
    owner = find(dotted)
    if dataclasses.is_dataclass(owner):
        for field in dataclasses.fields(owner):
            if field.name == parameter:
                factory = field.default_factory
                return field.default if factory is dataclasses.MISSING else factory()
        return MISSING
    fields = getattr(owner, "model_fields", None) or getattr(owner, "__fields__", None)
    if isinstance(fields, dict):
        return fields[parameter].default if parameter in fields else MISSING
    found = inspect.signature(owner).parameters.get(parameter)
    return MISSING if found is None else found.default


def answer(question: str) -> str | None:
    """`repr` of the value; null where a library is not installed."""
    scope = {"find": find, "exists": exists, "method": method, "takes": takes, "default": default}
    try:
        return repr(eval(question, scope))  # the questions are this repository's own
    except ImportError as error:
        root = (error.name or "").partition(".")[0]
        if (
            isinstance(error, ModuleNotFoundError)
            and root in LIBRARIES
            and importlib.util.find_spec(root) is None
        ):
            return None
        return f"{type(error).__name__}: {error}"
    except Exception as error:  # that is an answer, too
        return f"{type(error).__name__}: {error}"


def versions() -> dict[str, str]:
    from importlib.metadata import PackageNotFoundError, version

    found = {}
    for name in LIBRARIES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    answers_to = sys.stdout
    sys.stdout = sys.stderr  # libraries print when they are imported
    questions = json.load(sys.stdin)
    result = {"versions": versions(), "answers": {question: answer(question) for question in questions}}
    json.dump(result, answers_to)
