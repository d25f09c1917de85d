"""What kind of file a path promises: tests, examples, demos and benchmarks are seldom worth a comment on speed."""

from __future__ import annotations

import re
from typing import Literal

Kind = Literal["tests", "examples", "demos", "benchmarks"]

KINDS: tuple[Kind, ...] = ("tests", "examples", "demos", "benchmarks")

_FOLDERS: dict[str, Kind] = {
    **dict.fromkeys(("test", "tests", "testing"), "tests"),
    **dict.fromkeys(("example", "examples", "samples", "tutorial", "tutorials", "docs"), "examples"),
    **dict.fromkeys(("demo", "demos"), "demos"),
    **dict.fromkeys(("bench", "benchmark", "benchmarks", "perf"), "benchmarks"),
}

# `examples-da`, `unit_tests`; but `test_time_adaptation` and `sample_generation` are ordinary code.
_IN_LONGER_NAMES = frozenset({"example", "examples", "tutorial", "tutorials", "demos", "benchmarks", "tests"})

# `demo_utils.py` among a package's modules is what demos call, and others, too.
_HELPERS = frozenset({"util", "utils", "helper", "helpers", "common"})

# What a file of tests has and a script that evaluates a model, such as `test_det.py`, has not: a framework for tests, a class of
# them, or a test that needs no arguments.
_TESTS = re.compile(
    rb"^[ \t]*(?:import|from)[ \t]+(?:pytest|unittest|nose|absl\.testing|(?:torch|numpy)\.testing)\b|^class[ \t]+Test"
    rb"|^[ \t]*(?:async[ \t]+)?def[ \t]+test\w*\([ \t]*(?:self)?[ \t]*\)",
    re.MULTILINE,
)
_MAIN = re.compile(rb"^if[ \t]+__name__[ \t]*==[ \t]*[\"']__main__[\"']", re.MULTILINE)

_NOTEBOOK = ".ipynb"
PYTHON = (".py", _NOTEBOOK)
# One of them is in the name of a JSON file that may configure training, or of its folder: most of these files are data.
JSON_WORDS = (
    "config", "zero", "ds_", "ds-", "_ds", "/ds", "deepspeed", "stage", "args", "train", "tune", "sft", "lora", "dpo", "z1", "z2", "z3",
)  # fmt: skip
_JSON = re.compile("|".join(JSON_WORDS))
_DOCKERFILE = re.compile(r"(?:.*[.-])?(?:Dockerfile|Containerfile)(?:[.-][\w.-]+)?$", re.IGNORECASE)
_README = re.compile(r"(^|/)(readme|install(ation)?|get(ting)?[_-]?started)[^/]*\.(md|rst|txt)$", re.I)
_OF_LINES = re.compile(r"(^|/)conf(ig)?s?/(.*/)?[^/]+\.txt$")
_NO_DOCKERFILE = (".md", ".sh", ".txt", ".rst", ".j2", ".template", ".tmpl", ".in", ".dockerignore", ".erb")
# Written by tools, or read by others than training and serving.
_OF_OTHERS = re.compile(
    r"(?:package|package-lock|tsconfig.*|composer|vocab|tokenizer.*|special_tokens_map|added_tokens|preprocessor_config|"
    r"generation_config|openapi|swagger|\..*)\.json$|pnpm-lock\.yaml$|conda-lock\.ya?ml$|mkdocs\.ya?ml$"
    r"|\.pre-commit-config\.yaml$"
)


def is_notebook(path: str) -> bool:
    return path.endswith(_NOTEBOOK)


def path_kind(path: str) -> Kind | None:
    """The kind of the file at `path` (relative to the repository root); None for ordinary code.

    The outermost telling folder decides, then the file's name. `test.py` and `train_test.py` are ordinary code:
    in research repositories they are the scripts that evaluate, or train and evaluate, a model.
    """
    *folders, name = path.lower().split("/")
    for folder in folders:
        words = re.split(r"[-_]", folder)
        for word in (folder, words[0], words[-1]):
            if word in _FOLDERS and (word == folder or word in _IN_LONGER_NAMES):
                return _FOLDERS[word]
    stem, dot, suffix = name.rpartition(".")
    if not dot or suffix != "py":
        return None
    words = stem.split("_")
    if stem == "conftest" or (len(words) > 1 and words[0] == "test"):
        return "tests"
    if len(words) > 1 and words[-1] == "test" and words[0] != "train":
        return "tests"
    if words[0] == "demo" and words[-1] not in _HELPERS:
        return "demos"
    if stem in ("benchmark", "benchmarks"):
        return "benchmarks"
    return None


def may_evaluate(path: str) -> bool:
    """Is it a test by nothing but the name of the file, so that it may be a script that evaluates a model?"""
    folder, _, name = path.rpartition("/")
    own = path_kind(name) == "tests" and not name.startswith("conftest")
    return own and path_kind(f"{folder}/_.py") is None


def is_evaluation(path: str, data: bytes) -> bool:
    """Is it a script with a main block and without tests, for all that its name begins as that of a test does?"""
    return may_evaluate(path) and _MAIN.search(data) is not None and _TESTS.search(data) is None


def is_dockerfile(path: str) -> bool:
    name = path.rpartition("/")[2]
    return (
        "file" in name.lower() and _DOCKERFILE.match(name) is not None and not name.endswith(_NO_DOCKERFILE)
    )


def is_config(path: str) -> bool:
    """May the file configure training, serving, an image or a workflow? Its content decides."""
    if path.endswith(".json"):  # most are data
        return _JSON.search("/".join(path.lower().split("/")[-2:])) is not None and not _is_of_others(path)
    return not _is_of_others(path) if path.endswith((".yaml", ".yml")) else is_dockerfile(path)


def is_config_of_lines(path: str) -> bool:
    """May the file be a configuration of lines, `key = value`, by its folder? The code that reads it decides."""
    return path.endswith(".txt") and _OF_LINES.search(path) is not None


def is_config_for_sure(path: str) -> bool:
    """Does the name alone tell that the file is one of those?"""
    return is_dockerfile(path) or (path.startswith(".github/workflows/") and is_config(path))


def _is_of_others(path: str) -> bool:
    return _OF_OTHERS.match(path.rpartition("/")[2]) is not None


def language(path: str) -> str:
    """What highlighters call the language of a reviewed file."""
    if is_dockerfile(path):
        return "dockerfile"
    return {"yaml": "yaml", "yml": "yaml", "json": "json"}.get(path.rpartition(".")[2], "python")


def is_reviewable(path: str) -> bool:
    """May there be something to review in the file at `path`?"""
    return path.endswith(PYTHON) or is_config(path)


def is_readme(path: str) -> bool:
    """A README, or a page on how to install."""
    return bool(_README.search(path))


def folder_steps(one: str, other: str) -> int:
    """Steps up and down from one folder to the other."""
    here, there = one.split("/") if one else [], other.split("/") if other else []
    common = 0
    for ours, theirs in zip(here, there, strict=False):
        if ours != theirs:
            break
        common += 1
    return len(here) + len(there) - 2 * common
