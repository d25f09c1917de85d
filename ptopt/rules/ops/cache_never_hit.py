from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from ptopt.rules.base import Evidence, Fix, Invalid, Problem, Rule, Safety, Severity, SourceFile
from ptopt.rules.code import is_call_of, quote, replace_node
from ptopt.rules.shared.flow import value_of
from ptopt.source.bindings import is_self
from ptopt.source.file import remembered
from ptopt.source.frequency import Often
from ptopt.source.index import FunctionNode, walk

_EMPTY = ("{}", "dict()", "OrderedDict()", "collections.OrderedDict()")
_ASKS = frozenset({"get", "keys", "values", "items", "pop", "clear", "copy"})
_MOST_STORES = 4


class CacheNeverHit(Rule):
    """A cache is asked for one key and filled under another, so that nothing in it is ever found.

    ## What it does
    Finds `if key not in cache:` before `cache[other] = ...` in code that runs more than once, where `other` is a text or a
    tuple that `key` is only a part of, or the other way round, and nothing else fills the cache.

    ## Why it is slow
    The two keys are never equal: what the cache was made for, such as a filter bank or a window, is computed again, and
    copied to the device again, in each call. Nothing fails, as what was just stored is there when it is read.

    ## Fix safety
    Unsafe: a value is then kept that may depend on more than its key.

    ## Sources
    - [Python: mapping types](https://docs.python.org/3/library/stdtypes.html#mapping-types-dict)
    """

    id = "PTO493"
    name = "cache-never-hit"
    family = "ops"
    severity = Severity.HIGH
    nodes = (ast.If,)
    triggers = (" not in ",)
    when_wrong = "another module fills the cache"

    VALID = (
        """
        filters = {}
        def forward(y, fmax):
            key = f"{fmax}_{y.device}"
            if key not in filters:
                filters[f"{fmax}_{y.device}"] = mel_filter(fmax).to(y.device)
            return filters[key] @ y
        """,
        """
        table = {}
        def forward(x, name):
            if name not in table:
                table[name.lower()] = torch.randn(len(name), device=x.device)
            return table[name.lower()] * x
        """,
        """
        table = {}
        def forward(x, name):
            if name not in table:
                table[name[1:] + "_"] = torch.randn(len(name), device=x.device)
            return table[name[1:] + "_"] * x
        """,
        """
        windows = {}
        def forward(x, size):
            if size not in windows:
                windows[size, x.device] = torch.hann_window(size).to(x.device)
                windows[size] = True
            return windows[size, x.device] * x
        """,
        """
        windows = {512: torch.hann_window(512)}
        def forward(x, size):
            if size not in windows:
                windows[size, "own"] = torch.hann_window(size)
            return x
        """,
        """
        windows = {}
        def prefill(sizes):
            windows.update({size: torch.hann_window(size) for size in sizes})
        def forward(x, size):
            if size not in windows:
                windows[size, "own"] = torch.hann_window(size)
            return x
        """,
        """
        def collect(batches):
            first = {}
            for batch in batches:
                if batch.name not in first:
                    first[batch.name + suffix] = torch.stack(batch.items)
            return first
        """,
    )
    INVALID = (
        Invalid("""
            filters = {}
            def forward(y, fmax):
                if fmax not in filters:  # !
                # + if str(fmax) + "_" + str(y.device) not in filters:
                    mel = mel_filter(22050, 1024, 80, 0, fmax)
                    filters[str(fmax) + "_" + str(y.device)] = torch.from_numpy(mel).to(y.device)
                return filters[str(fmax) + "_" + str(y.device)] @ y
        """),
        Invalid("""
            class Windows(torch.nn.Module):
                def __init__(self):
                    super().__init__()
                    self.kept = {}
                def forward(self, x, size):
                    if size not in self.kept:  # !
                    # + if (size, x.device) not in self.kept:
                        self.kept[(size, x.device)] = torch.hann_window(size).to(x.device)
                    return x * self.kept[(size, x.device)]
        """),
        Invalid("""
            masks = dict()
            def forward(x):
                n = x.shape[1]
                if (n, x.device) not in masks:  # !
                # + if n not in masks:
                    masks[n] = torch.ones(n, n, device=x.device).tril()
                return x * masks[n]
        """),
    )

    def candidates(self, file: SourceFile) -> list[ast.AST]:
        return [node for node in file.index.of_type(ast.If) if isinstance(node.test, ast.Compare)]

    def check(self, node: ast.AST, file: SourceFile) -> Iterator[Problem]:
        asked = _asked(node)
        function = file.index.function_of(node) if asked is not None else None
        if asked is None or function is None or not isinstance(node, ast.If):
            return
        key, cache = asked
        stores = _stores(cache, function, file)
        inside = [store for store in stores if file.index.within(store, node)]
        if not inside or any(not _never_equal(key, store.slice, file) for store in stores):
            return
        made = _made(node)
        frequency = file.frequencies.of(node)
        if made is None or frequency.often in (Often.RARELY, Often.ONCE):
            return
        stored = inside[0].slice
        again = frequency.reason or "in each call"
        yield Problem(
            node.test,
            f"{quote(file, cache)} is asked for {quote(file, key)} and filled under {quote(file, stored, 50)}, so that "
            f"nothing is ever found: {quote(file, made, 50)} runs {again}. Ask for the key that is stored.",
            0.9 if frequency.often >= Often.EVALUATION else 0.7,
            (Evidence(inside[0].lineno, "stored under another key"),),
            cause=node,
            subject=cache,
            fix=_fix(key, stored, node, function, file),
        )


def _asked(node: ast.AST) -> tuple[ast.expr, ast.expr] | None:
    """The key and the cache of `if key not in cache:`."""
    test = node.test if isinstance(node, ast.If) and not node.orelse else None
    if not isinstance(test, ast.Compare) or len(test.ops) != 1 or not isinstance(test.ops[0], ast.NotIn):
        return None
    cache = test.comparators[0]
    return (test.left, cache) if isinstance(cache, ast.Name) or is_self(cache) else None


def _stores(cache: ast.expr, function: FunctionNode, file: SourceFile) -> list[ast.Subscript]:
    """Where a cache that outlives the call is filled; none where it starts filled, or something else may fill it."""
    if isinstance(cache, ast.Attribute):
        cls = file.index.class_of(cache)
        return [] if cls is None else _of_attribute(cls, cache.attr, file)
    if not isinstance(cache, ast.Name) or file.bindings.of(function, cache.id):
        return []
    return _of_global(cache.id, file)


@remembered
def _of_attribute(cls: ast.ClassDef, name: str, file: SourceFile) -> list[ast.Subscript]:
    made = file.bindings.attribute(cls, name)
    return _filled_by(file.index.attributes_named(name), file) if _is_empty(made) else []


@remembered
def _of_global(name: str, file: SourceFile) -> list[ast.Subscript]:
    bound = file.bindings.of(None, name)
    if not bound or any(b.kind != "assign" or not _is_empty(b.value) for b in bound):
        return []
    return _filled_by([node for node in file.index.of_type(ast.Name) if node.id == name], file)


def _is_empty(value: ast.expr | None) -> bool:
    return value is not None and ast.unparse(value) in _EMPTY


def _filled_by(uses: Sequence[ast.Name | ast.Attribute], file: SourceFile) -> list[ast.Subscript]:
    """The stores among the uses of a cache; none where it is handed on, or filled in many places."""
    found = []
    for use in uses:
        parent = file.index.parent(use)
        if isinstance(parent, ast.Subscript) and parent.value is use:
            found += [parent] if isinstance(parent.ctx, ast.Store) else []
        elif not (
            isinstance(use.ctx, ast.Store)
            or isinstance(parent, ast.Compare)
            or (isinstance(parent, ast.Attribute) and parent.attr in _ASKS)
        ):
            return []
    return found if len(found) <= _MOST_STORES else []


def _never_equal(one: ast.expr, other: ast.expr, file: SourceFile) -> bool:
    """Is one of the keys a tuple or a longer text with the other in it?"""
    if any(
        ast.dump(a) == ast.dump(b) for a in (one, value_of(one, file)) for b in (other, value_of(other, file))
    ):
        return False
    return any(
        ast.dump(part) == ast.dump(spelling)
        for key, whole in ((one, other), (other, one))
        for part in _parts(value_of(whole, file))
        for spelling in (key, value_of(key, file))
    )


def _parts(key: ast.expr) -> list[ast.expr]:
    """What stands as a whole in a tuple, or in a text with a fixed part; none of what was cut or changed before."""
    if isinstance(key, ast.Tuple):
        return key.elts
    if isinstance(key, ast.JoinedStr):
        parts = [v.value if isinstance(v, ast.FormattedValue) else v for v in key.values]
    else:
        parts = _summands(key)
    if not any(
        isinstance(part, ast.Constant) and isinstance(part.value, str) and part.value for part in parts
    ):
        return []
    written = [part.args[0] for part in parts if is_call_of(part, "str") and len(part.args) == 1]
    return [*parts, *written]


def _summands(key: ast.expr) -> list[ast.expr]:
    if not isinstance(key, ast.BinOp) or not isinstance(key.op, ast.Add):
        return [key]
    return [*_summands(key.left), *_summands(key.right)]


def _made(node: ast.If) -> ast.Call | None:
    """What is computed when nothing is found: the first call whose result is kept, as a whole."""
    values = [statement.value for statement in node.body if isinstance(statement, ast.Assign)]
    return next((call for value in values for call in walk(value) if isinstance(call, ast.Call)), None)


def _fix(
    key: ast.expr, stored: ast.expr, node: ast.If, function: FunctionNode, file: SourceFile
) -> Fix | None:
    names = {n.id for n in walk(stored) if isinstance(n, ast.Name)}
    if any(file.bindings.inside(function, name, node) for name in names):
        return None
    text = file.source(stored)
    if isinstance(stored, ast.Tuple) and not text.startswith("("):
        text = f"({text})"
    return Fix(Safety.UNSAFE, (replace_node(file, key, text),), "what is kept depends on its key alone")
