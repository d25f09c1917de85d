from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from ptopt.rules.base import Evidence, Invalid, Problem, Rule, Severity, SourceFile
from ptopt.rules.code import quote

_NAMES = frozenset(
    "num_processes num_proc nproc n_proc num_procs n_processes processes n_jobs num_jobs".split()
)
_KEYWORDS = frozenset({"num_proc", "processes", "max_workers", "n_jobs"})
_POOLS = frozenset({"Pool", "ProcessPoolExecutor", "Parallel", "ProcessPool"})
_STARTS = re.compile(r"(^|\.)(Process|Pool|ProcessPoolExecutor|Parallel)$")


class PreparationInOneProcess(Rule):
    """The number of processes that prepare data is fixed at one.

    ## What it does
    Finds `num_proc=1`, `processes=1`, `max_workers=1`, `n_jobs=1`, `Pool(1)`, and a variable such as `num_processes = 1` that code
    splits its work by.

    ## Why it is slow
    Files or rows are prepared independently of each other; one process leaves the other cores idle, and data preparation is
    often hours of work.

    ## Fix safety
    No fix: how many processes fit the machine is the author's choice.

    ## Sources
    - [Python documentation: multiprocessing](https://docs.python.org/3/library/multiprocessing.html)
    """

    id = "PTO339"
    name = "preparation-in-one-process"
    family = "data"
    severity = Severity.LOW
    most_stated = 0.45
    libraries = ("torch", "datasets", "multiprocessing", "concurrent", "joblib")
    requires = ("num_proc", "processes", "max_workers", "n_jobs", "Pool", "num_processes", "nj")
    nodes = (ast.Call, ast.Assign)
    calls = _POOLS | {"map", "filter", "from_generator", "load_dataset"}
    when_wrong = "the work uses the GPU or many threads itself, or needs an order that a pool does not keep"

    VALID = (
        """
        from datasets import load_dataset
        data = load_dataset("imdb").map(tokenize, num_proc=8)
        """,
        """
        from multiprocessing import Pool
        with Pool(args.processes) as pool:
            pool.map(work, files)
        """,
        """
        import torch
        num_processes = 1
        print(torch.zeros(3))
        """,
    )
    INVALID = (
        Invalid("""
            from datasets import load_dataset
            data = load_dataset("imdb").map(tokenize, num_proc=1)  # !
        """),
        Invalid("""
            from multiprocessing import Pool
            with Pool(1) as pool:  # !
                pool.map(work, files)
        """),
        Invalid("""
            import multiprocessing
            num_processes = 1  # !
            chunks = split(files, num_processes)
            workers = [multiprocessing.Process(target=work, args=(chunk,)) for chunk in chunks]
        """),
    )

    def check(self, node: ast.AST, file: SourceFile) -> Iterator[Problem]:
        found: ast.AST | None = None
        evidence: tuple[Evidence, ...] = ()
        if isinstance(node, ast.Assign):
            target = node.targets[0]
            if not (isinstance(target, ast.Name) and target.id in _NAMES and _is_one(node.value)):
                return
            calls = file.calls.calls_in(file.index.function_of(node))
            start = next((call for call in calls if _STARTS.search(file.source(call.func))), None)
            if start:
                found, evidence = node, (Evidence(start.lineno, "the work is shared out here"),)
        elif isinstance(node, ast.Call):
            func = node.func
            name = func.attr if isinstance(func, ast.Attribute) else file.source(func)
            number = next((k.value for k in node.keywords if k.arg in _KEYWORDS), None)
            if number is None and name == "Pool" and node.args:
                number = node.args[0]
            if _is_one(number):
                found = node
        if found is None:
            return
        yield Problem(
            found,
            f"{quote(file, found)} prepares the data in one process, and the other cores wait. Make the number an option whose default "
            "follows the machine (`os.cpu_count()`).",
            0.45,
            evidence,
        )


def _is_one(value: ast.expr | None) -> bool:
    return isinstance(value, ast.Constant) and type(value.value) is int and value.value == 1
