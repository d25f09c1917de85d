from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from ptopt.rules.base import Invalid, Problem, Rule, SourceFile
from ptopt.rules.code import quote
from ptopt.source.index import walk

_CACHES = frozenset({"functools.lru_cache", "functools.cache"})
_HOLDS = re.compile(
    r"(Module|Model|Dataset|Teacher|Pipeline|Trainer|Agent|Net|Encoder|Decoder|Loader|Layer|Distribution|Kernel|Engine)\w*$"
)


class CacheOnMethod(Rule):
    """A cached method keeps its object, and the tensors that it holds, alive for good.

    ## What it does
    Finds `@lru_cache` or `@cache` on a method of a class that holds tensors, a network or data.

    ## Why it is slow
    The cache belongs to the function, and each key contains `self`. An object that was ever asked is never freed, with all that it
    holds in host and device memory, until its entry is pushed out; a bound on the entries is shared by all objects.

    ## Example
    ```python
    @lru_cache(maxsize=1)
    def mask(self): ...
    ```

    ## Use instead
    ```python
    @cached_property
    def mask(self): ...
    ```

    ## Fix safety
    There is no fix: a method with arguments needs a dictionary in the object.

    ## Sources
    - [Python FAQ: how do I cache method calls?](https://docs.python.org/3/faq/programming.html#how-do-i-cache-method-calls)
    """

    id = "PTO889"
    name = "cache-on-method"
    family = "memory"
    most_stated = 0.4
    nodes = (ast.FunctionDef,)
    triggers = ("lru_cache", "cache")
    requires = ("functools",)
    when_wrong = "there is one object of the class, which lives as long as the process"

    VALID = (
        """
        import functools
        import torch
        @functools.lru_cache
        def table(n):
            return torch.arange(n)
        """,
        """
        import functools
        import torch
        class Masks(torch.nn.Module):
            @functools.cached_property
            def mask(self):
                return torch.ones(8, 8).tril()
        """,
        """
        import functools
        import torch
        class Words:
            @staticmethod
            @functools.lru_cache
            def index(word):
                return len(word)
        """,
    )
    INVALID = (
        Invalid("""
            import functools
            import torch
            class Masks(torch.nn.Module):
                @functools.lru_cache(maxsize=8)
                def mask(self, n):  # !
                    return torch.ones(n, n).tril()
        """),
        Invalid("""
            from functools import lru_cache
            from torch.utils.data import Dataset
            class Dialogues(Dataset):
                @lru_cache
                def num_examples(self):  # !
                    return sum(len(d) for d in self.data)
        """),
        Invalid("""
            from functools import cache
            import torch
            class Grid:
                def __init__(self, n):
                    self.points = torch.rand(n, 3, device="cuda")
                @cache
                def distances(self):  # !
                    return torch.cdist(self.points, self.points)
        """),
    )

    def check(self, node: ast.AST, file: SourceFile) -> Iterator[Problem]:
        cls = file.index.parent(node)
        if not isinstance(node, ast.FunctionDef) or not isinstance(cls, ast.ClassDef) or not node.args.args:
            return
        if node.args.args[0].arg != "self" or len(node.decorator_list) != 1:
            return
        decorator = node.decorator_list[0]
        target = decorator.func if isinstance(decorator, ast.Call) else decorator
        if file.imports.qualified(target) not in _CACHES:
            return
        module = file.context.is_module(cls) or any(_HOLDS.search(ast.unparse(base)) for base in cls.bases)
        held = next(
            (
                n.attr
                for n in walk(cls)
                if isinstance(n, ast.Attribute)
                and isinstance(n.ctx, ast.Store)
                and isinstance(n.value, ast.Name)
                and n.value.id == "self"
                and (value := file.bindings.attribute(cls, n.attr)) is not None
                and file.values.of(value).kind in ("tensor", "tensors", "module", "array")
            ),
            "",
        )
        if not module and not held:
            return
        alone = len(node.args.args) == 1 and not node.args.kwonlyargs and node.args.vararg is None
        advice = (
            f"Write `@cached_property` for `{node.name}`"
            if alone
            else "Keep the results in a dictionary of the object"
        )
        what = f"with `self.{held}`" if held else "with the tensors that it holds"
        yield Problem(
            node,
            f"{quote(file, decorator, 30)} keeps each `{cls.name}` whose `{node.name}` was called alive, {what}, because `self` is a part of the "
            f"key. {advice}.",
            0.4,
            span=file.span(ast.Pass(lineno=node.lineno, end_lineno=node.lineno)),
            cause=node,
            facts={"module": module, "holds_tensor": bool(held), "alone": alone},
        )
