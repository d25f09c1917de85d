"""May an argument be added to the call of a method: is the method torch's own, or does the repository's class take it?"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ptopt.rules.base import SourceFile
from ptopt.source.calls import last_name
from ptopt.source.index import FunctionNode
from ptopt.source.receivers import Class


def may_take(call: ast.Call, argument: str, file: SourceFile, *, of_modules: bool = True) -> bool:
    """Does the method `x.m(...)` that is called take the keyword argument, as torch's own method does?

    Where the class of `x` cannot be told, no class of the repository may have a method of that name that does not take it;
    with `of_modules=False`, `x` is known to be no module, so that the methods of modules do not count.
    """
    func = call.func
    if not isinstance(func, ast.Attribute):
        return False
    if file.values.of(func.value).kind == "tensor":
        return True
    answers = [_takes(found, func.attr, argument, file) for found in file.receivers.classes_of(func.value)]
    if answers and None not in answers:
        return all(answers)
    return False not in answers and not _some_class_lacks(func.attr, argument, of_modules, file)


def _takes(found: Class, method: str, argument: str, file: SourceFile) -> bool | None:
    """None: not known."""
    if found.here is not None:
        return _class_takes(found.here, method, argument, file)
    if not found.qualified:
        return None
    if found.qualified.startswith("torch."):
        return True
    known = file.repository.class_named(file, found.qualified.rpartition(".")[2])
    return _class_takes(known[1], method, argument, known[0]) if known is not None else None


def _class_takes(cls: ast.ClassDef, method: str, argument: str, file: SourceFile) -> bool | None:
    lineage = file.receivers.lineage(cls)
    for one in lineage:
        own = file.calls.method(one, method)
        if own is not None:
            return _has_parameter(own, argument)
    named = {one.name for one in lineage}
    bases = [base for one in lineage for base in one.bases if last_name(base) not in named]
    from_torch = [file.imports.qualified(base).startswith("torch.") for base in bases]
    return True if from_torch and all(from_torch) else None


def _has_parameter(function: FunctionNode, argument: str) -> bool:
    taken = [*function.args.args, *function.args.kwonlyargs]
    return function.args.kwarg is not None or any(one.arg == argument for one in taken)


def _some_class_lacks(method: str, argument: str, of_modules: bool, file: SourceFile) -> bool:
    elsewhere = file.repository.methods(method)
    return elsewhere is None or any(
        not _has_parameter(function, argument)
        for function, cls, other in (*_methods_here(method, file), *_with_classes(elsewhere))
        if of_modules or not other.context.is_module(cls)
    )


def _methods_here(name: str, file: SourceFile) -> Iterator[tuple[FunctionNode, ast.ClassDef, SourceFile]]:
    return _with_classes((file, function) for function in file.calls.functions if function.name == name)


def _with_classes(
    functions: Iterator[tuple[SourceFile, FunctionNode]] | tuple[tuple[SourceFile, FunctionNode], ...],
) -> Iterator[tuple[FunctionNode, ast.ClassDef, SourceFile]]:
    for file, function in functions:
        cls = file.index.parent(function)
        if isinstance(cls, ast.ClassDef):
            yield function, cls, file
