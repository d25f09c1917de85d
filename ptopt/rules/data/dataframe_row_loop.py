from __future__ import annotations

import ast
from collections.abc import Iterator

from ptopt.rules.base import Invalid, Problem, Rule, Severity, SourceFile
from ptopt.rules.code import keyword_of, quote
from ptopt.rules.data._light import is_light
from ptopt.source.index import walk


class DataframeRowLoop(Rule):
    """A data frame is processed row by row in Python.

    ## What it does
    Finds `for … in df.iterrows()`, `df.apply(f, axis=1)`, and `.iloc[i]` or `.loc[i]` with the variable of a loop.

    ## Why it is slow
    Each row becomes a new Series with a look-up for every field, a hundred times as slow as an operation on columns, or as a
    loop over `zip(df["a"], df["b"])` or `df.itertuples()`.

    ## Fix safety
    No fix: the body of the loop has to use columns.

    ## Sources
    - [pandas documentation: iteration](https://pandas.pydata.org/docs/user_guide/basics.html#iteration)
    """

    id = "PTO338"
    name = "dataframe-row-loop"
    family = "data"
    severity = Severity.LOW
    most_stated = 0.4
    libraries = ("pandas",)
    requires = ("iterrows", "apply", "iloc", "loc")
    nodes = (ast.Call, ast.Subscript)
    when_wrong = "the frame has a few hundred rows, or each row costs far more than the look-up"

    VALID = (
        """
        import pandas as pd
        def items(path):
            df = pd.read_csv(path)
            return list(zip(df["path"], df["label"]))
        """,
        """
        import pandas as pd
        def first(df, n):
            return df.iloc[n]
        """,
        """
        import pandas as pd
        def scale(df):
            for name in ("a", "b"):
                df[name] = df[name].apply(abs)
        """,
    )
    INVALID = (
        Invalid("""
            import pandas as pd
            def items(path):
                out = []
                for _, row in pd.read_csv(path).iterrows():  # !
                    out.append((row["path"], row["label"]))
                return out
        """),
        Invalid("""
            import pandas as pd
            def label(df):
                df["label"] = df.apply(lambda row: row["a"] > row["b"], axis=1)  # !
        """),
        Invalid("""
            import pandas as pd
            def paths(df):
                out = []
                for i in range(len(df)):
                    out.append(df.iloc[i]["path"])  # !
                return out
        """),
    )

    def check(self, node: ast.AST, file: SourceFile) -> Iterator[Problem]:
        if isinstance(node, ast.Subscript):
            loop = _indexing_loop(node, file)
            if loop is None:
                return
            advice = "Take the columns out before the loop (`.tolist()`, `.to_numpy()`) or go over `zip(…)` of them."
            yield Problem(
                node, f"{quote(file, node)} looks up a row in each iteration. {advice}", 0.4, cause=loop
            )
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            if node.func.attr == "iterrows" and not node.args and _is_plain(node, file):
                advice = "Go over `itertuples()`, or over `zip(…)` of the columns that are needed."
                yield Problem(
                    node, f"{quote(file, node)} builds a Series for each row. {advice}", 0.4, cause=node
                )
            elif node.func.attr == "apply" and _is_one(keyword_of(node, "axis")):
                advice = "Write the function for whole columns, or go over `zip(…)` of them."
                yield Problem(
                    node, f"{quote(file, node)} builds a Series for each row. {advice}", 0.4, cause=node
                )


def _is_one(axis: ast.expr | None) -> bool:
    return isinstance(axis, ast.Constant) and axis.value in (1, "columns")


def _indexing_loop(node: ast.Subscript, file: SourceFile) -> ast.For | None:
    """The loop whose variable is the row that `.iloc[…]` or `.loc[…]` looks up, if the frame is not made in it."""
    accessor = node.value
    if not isinstance(accessor, ast.Attribute) or accessor.attr not in ("iloc", "loc", "at", "iat"):
        return None
    if not isinstance(node.ctx, ast.Load):
        return None
    row = node.slice.elts[0] if isinstance(node.slice, ast.Tuple) and node.slice.elts else node.slice
    names = {n.id for n in walk(row) if isinstance(n, ast.Name)}
    loop = next((loop for loop in file.index.loops_of(node) if isinstance(loop, ast.For)), None)
    if loop is None or isinstance(row, ast.Slice) or not names:
        return None
    targets = {n.id for n in walk(loop.target) if isinstance(n, ast.Name)}
    counted = isinstance(loop.iter, ast.Call) and file.source(loop.iter.func).endswith(("range", "tqdm"))
    if not counted and not file.source(loop.iter).endswith(".index"):
        return None
    return (
        loop if _is_light(loop, file) and names & targets and isinstance(row, (ast.Name, ast.BinOp)) else None
    )


def _is_plain(call: ast.Call, file: SourceFile) -> bool:
    """Is it the loop's own rows, and does the loop do nothing beside which the rows do not count?"""
    for ancestor, _ in file.index.ancestors(call):
        if isinstance(ancestor, ast.For):
            return _is_light(ancestor, file)
        if isinstance(ancestor, ast.comprehension):
            return True
        if isinstance(ancestor, ast.stmt):
            return False
    return False


def _is_light(loop: ast.For, file: SourceFile) -> bool:
    """Does the body only compute with Python values and fill containers?"""
    calls = [n for stmt in loop.body for n in walk(stmt) if isinstance(n, ast.Call)]
    return all(is_light(call) for call in calls)
