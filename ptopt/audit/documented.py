"""What the documentation and the launch scripts say of a training script: whether it trains, on which GPUs, with how old a torch."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from functools import cached_property
from itertools import islice

from ptopt.audit.launches import SHELL, Launch, of_script, pages
from ptopt.audit.values import EntryPoint, Kind, Obstacle, Place, Sign
from ptopt.pathkind import PYTHON, is_notebook, is_readme

_LONGEST = 200_000  # bytes of one file
_MOST_GPUS = 40  # of one text, until one is not that of an inference
_MOST_HOPS = 3  # shell scripts that start shell scripts
_PASCAL = re.compile(
    r"\b(?:(?:GTX|GeForce)[\s-]*(?:GTX[\s-]*)?(?:9[5-8]0|10[5-8]0)(?:\s*-?Ti)?|10[678]0\s*-?Ti|Titan\s*-?Xp?|Tesla\s+[KMP]\d+|[KMP]\d{2,3}(?=\s+GPUs?)|P100|K80|M40)s?\b",
    re.I,
)
_VOLTA = re.compile(
    r"\b(?:V100|Titan\s*-?(?:V|RTX)|(?:RTX|GeForce)[\s-]*(?:RTX[\s-]*)?20[678]0(?:\s*-?(?:Ti|Super))?|20[78]0\s*-?Ti|2080s?(?=\s+GPUs?)|"
    r"(?:Tesla|NVIDIA)[\s-]*T4|T4(?=\s+GPUs?)|Quadro\s+RTX\s*\d+)s?\b",
    re.I,
)
_AMPERE = re.compile(
    r"\b(?:A100|A800|A6000|A5000|A40|A30|A10G?(?=\s+GPUs?)|H[128]00|H20(?=\s+GPUs?)|GH200|B200|L40S?|RTX[\s-]*[345]0[5-9]0(?:\s*-?Ti)?|[345]090|RTX[\s-]*A\d{4}|RTX[\s-]*6000[\s-]*Ada)s?\b",
    re.I,
)
# Of a GPU that a network was timed on, and not trained.
_TIMED = re.compile(r"\b(fps|inference|infer|real-?time|latency|throughput|deploy\w*|demo|ms)\b", re.I)
_TRAINED = re.compile(r"\b(pre-?|fine-?)?train", re.I)
_OLD_TORCH = re.compile(r"(?<![\w-])(?:py)?torch[-_=]*v?(?:0\.[0-4]|1\.[0-5])(?:\.\d+)?(?![\d+])", re.I)
_COMMAND_OF = re.compile(r"^[ \t\"']*([\w.-]+)[\"']?[ \t]*=[ \t]*[\"']?([\w.]+):\w", re.M)
_DECLARES = ("pyproject.toml", "setup.cfg", "setup.py")
_FOLDERS = r"(?<![\w./-])[\w./-]*"  # a path before a name


def documented(
    entries: tuple[EntryPoint, ...],
    files: Mapping[str, bytes],
    started: Mapping[str, list[Launch]],
    console: frozenset[str],
) -> tuple[EntryPoint, ...]:
    """The scripts with what the documentation says of them. `console`: scripts that are installed commands."""
    if not entries:
        return entries
    documentation = Documentation(files)
    python = [path for path in files if path.endswith(PYTHON)]
    found = []
    for entry in entries:
        commands = of_script(started, entry.path, python)
        text = "" if is_notebook(entry.path) else files[entry.path].decode("utf-8", "replace")
        elsewhere = entry.path not in console and documentation.is_elsewhere(entry.path, commands)
        signs = entry.signs | ({Sign.NOT_DOCUMENTED} if elsewhere else frozenset())
        more = documentation.obstacles(entry.path, text, commands)
        found.append(replace(entry, signs=signs, obstacles=(*entry.obstacles, *more)))
    return tuple(found)


class Documentation:
    """Of one repository. `files`: all that an audit reads, by path."""

    def __init__(self, files: Mapping[str, bytes]) -> None:
        self._texts = {
            path: data.decode("utf-8", "replace")
            for path, data in files.items()
            if len(data) <= _LONGEST and (path.endswith((*SHELL, ".yaml", ".yml", ".md")) or is_readme(path))
        }
        declared = [files[path][:_LONGEST].decode("utf-8", "replace") for path in _DECLARES if path in files]
        self._commands = [match.groups() for text in declared for match in _COMMAND_OF.finditer(text)]
        self._pages = [path for path in pages(files) if path in self._texts]
        self._gpus: dict[tuple[re.Pattern[str], str], re.Match[str] | None] = {}
        self._shells: dict[tuple[str, str], bool] = {}

    def is_elsewhere(self, script: str, commands: tuple[Launch, ...]) -> bool:
        """Is there documentation, and none of a training with this script?"""
        near = [path for path in self._pages if _is_above(path, script)]
        if not any(self._texts[path].strip() for path in near):
            return False
        if commands and all(launch.evaluates for launch in commands):
            return True
        named = [path for path in self._named_pages if _is_above(path, script)]
        texts = [self._texts[path] for path in (*named, *self._started_by(named))]
        installed = [
            name for name, module in self._commands if _is_end(module.replace(".", "/") + ".py", script)
        ]
        return not any(_names(text, script) or any(name in text for name in installed) for text in texts)

    def obstacles(self, script: str, text: str, commands: tuple[Launch, ...]) -> Iterator[Obstacle]:
        """What the GPUs and the torch that are named mean for mixed precision; `text`: the code of the script."""
        launchers = {launch.place.path for launch in commands}
        given = {str(value) for launch in commands for value in launch.options.values()}
        texts = {
            path: held
            for path, held in self._texts.items()
            if (path in self._pages and _is_above(path, script))
            or path in launchers
            or any(value.endswith((".yaml", ".yml")) and path.endswith(value.lstrip("./")) for value in given)
        }
        for path in sorted(launchers & texts.keys()):
            if path.endswith(SHELL) and (match := _OLD_TORCH.search(texts[path])):
                yield Obstacle(Kind.OLD_TORCH, match[0], _place(path, texts[path], match))
        texts[script] = text
        if any(self._gpu(_AMPERE, path, held) for path, held in texts.items()):
            kinds = [(Kind.PARTLY_NO_BFLOAT16, _VOLTA)]
        else:
            kinds = [(Kind.NO_BFLOAT16, _VOLTA), (Kind.NO_TENSOR_CORES, _PASCAL)]
        for kind, pattern in kinds:
            for path, held in texts.items():
                if match := self._gpu(pattern, path, held):
                    yield Obstacle(kind, " ".join(match[0].split()), _place(path, held, match))
                    return

    def _gpu(self, pattern: re.Pattern[str], path: str, text: str) -> re.Match[str] | None:
        """As `_gpu`, looked for once in each file: most scripts share the pages."""
        key = (pattern, path)
        if key not in self._gpus:
            self._gpus[key] = _gpu(pattern, text)
        return self._gpus[key]

    @cached_property
    def _named_pages(self) -> list[str]:
        """The pages of the root, and those of the folders that these name; all where the root has none."""
        found = [path for path in self._pages if "/" not in path and self._texts[path].strip()]
        if not found:
            return self._pages
        new = list(found)
        while new:
            texts = [self._texts[path] for path in new]
            new = [
                path
                for path in self._pages
                if path not in found
                and (
                    not is_readme(path) or any(_names_folder(text, path.rpartition("/")[0]) for text in texts)
                )
            ]
            found += new
        return found

    def _started_by(self, named: Iterable[str]) -> list[str]:
        """The shell scripts that pages name, or whose folder they name, and those that these start."""
        shells = [path for path in self._texts if path.endswith(SHELL)]
        found: list[str] = []
        naming = list(named)
        for _ in range(_MOST_HOPS):
            new = [
                path
                for path in shells
                if path not in found and any(self._names_shell(page, path) for page in naming)
            ]
            found += new
            naming = new
        return found

    def _names_shell(self, page: str, path: str) -> bool:
        key = (page, path)
        if key not in self._shells:
            self._shells[key] = _names_shell(self._texts[page], path)
        return self._shells[key]


def _gpu(pattern: re.Pattern[str], text: str) -> re.Match[str] | None:
    """The first GPU that is not said to be that of an inference, by the line or by the head of the table."""
    for match in islice(pattern.finditer(text), _MOST_GPUS):
        start = text.rfind("\n", 0, match.start()) + 1
        line = text[start : text.find("\n", start) if "\n" in text[start:] else len(text)]
        if line.lstrip().startswith("|"):
            rows = text[:start].split("\n")[:-1]
            above = next(
                (at for at, row in enumerate(reversed(rows)) if not row.lstrip().startswith("|")), len(rows)
            )
            line = f"{rows[len(rows) - above]} {line}" if above else line
        if not _TIMED.search(line) or _TRAINED.search(line):
            return match
    return None


def _is_above(page: str, script: str) -> bool:
    """Is the page of a folder around the script, or one that the pages of the root link?"""
    folder = page.rpartition("/")[0]
    return (
        not is_readme(page) or not folder or script.startswith(f"{folder}/") or folder in ("docs", ".github")
    )


def _names(text: str, script: str) -> bool:
    """Does the text name the script: by its path or the end of it, as a module, or by `make`, which nobody follows?"""
    name = script.rpartition("/")[2]
    if name in text and any(
        _is_end(match[0], script) for match in re.finditer(_FOLDERS + re.escape(name) + r"(?!\w)", text)
    ):
        return True
    dotted = script.removesuffix(".py").removesuffix("/__main__").replace("/", ".")
    for match in re.finditer(r"-m\s+(?!torch\.|accelerate\.)([\w.]+)", text):
        if f".{dotted}".endswith(f".{match[1]}"):
            return True
    return re.search(r"^\s*\$?\s*make \w", text, re.M) is not None


def _is_end(token: str, script: str) -> bool:
    """`tools/train.py` means `repository/tools/train.py`; a command may start in a folder that the page names before."""
    path = token.lstrip("./")
    return f"/{script}".endswith(f"/{path}") or f"/{path}".endswith(f"/{script}")


def _names_shell(text: str, path: str) -> bool:
    folder, _, name = path.rpartition("/")
    named = re.search(_FOLDERS + re.escape(name) + r"(?!\w)", text) is not None
    return named or bool(folder and _names_folder(text, folder))


def _names_folder(text: str, folder: str) -> bool:
    """As a path, a link, or where a command goes: `scripts/`, `[here](scripts)`, `cd scripts`."""
    parts = folder.split("/")
    if parts[-1] not in text:
        return False
    ends = "|".join(re.escape("/".join(parts[at:])) for at in range(len(parts)))
    return (
        re.search(rf"(?:[`\"'(\[/]|\bcd |\s\./|\s)(?:{ends})/|(?:[`\"'(\[/]|\bcd )(?:{ends})(?![\w-])", text)
        is not None
    )


def _place(path: str, text: str, match: re.Match[str]) -> Place:
    return Place(path, text.count("\n", 0, match.start()) + 1)
