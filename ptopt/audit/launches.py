"""Shell scripts of a repository, and the commands of its documentation: with which options they start a training script."""

from __future__ import annotations

import posixpath
import re
import shlex
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from itertools import chain, islice
from pathlib import PurePosixPath

from ptopt.audit.values import Place
from ptopt.pathkind import is_readme

_LONGEST = 200_000  # bytes of one script
_LINE = 20_000
SHELL = (".sh", ".bash", ".slurm", ".sbatch")
_ASSIGNED = re.compile(
    r"^\s*(?:export\s+|local\s+|declare\s+-a\s+)?(?P<name>[A-Za-z_]\w*)(?P<more>\+?)="
    r"(?:\"(?P<double>[^\"]*)\"|'(?P<single>[^']*)'|\((?P<list>[^()]*)\)|(?P<word>[^\s\"'()$`;&|]*))\s*(?:#.*)?$"
)
_OPENS = re.compile(r"^\s*(?:export\s+|local\s+|declare\s+-a\s+)?[A-Za-z_]\w*\+?=([\"'(])")
_CLOSED_BY = {"(": ")"}
_MOST_OPEN = 80  # lines of one assignment
_MOST_EXPANDED = 4  # variables that hold variables
_NO_VALUE = re.compile(
    r"\$(@|\*|\{[@*]\}|\{\w+[\[@])|[|&;>]|\d>|2>&1"
)  # the rest of a command line, and what follows it
_COMMAND = re.compile(
    r"\s*(\$ )?([A-Z_][A-Z_0-9]*=\S+ )*"
    r"((python3?(\.\d+)?|torchrun|accelerate launch|deepspeed|horovodrun|mpirun|nohup|srun|(colossalai|uv|poetry|pdm|pipenv) run)\s|"
    r"((ba|z)?sh\s+|\./)\S+\.(sh|bash)\b)"
)
# In a sentence, with an option: without one it may be a name and not how the training is started.
_IN_SENTENCE = re.compile(
    r"(`{1,2})\s*((?:[A-Z_]+=\S+ )*(?:python3?|torchrun|accelerate launch|deepspeed)\s[^`]*\s--?[A-Za-z][^`]*)\1"
)
_MAY_START = re.compile(r"\.(py|sh)|\s(-m|--module)\s")
_PASSED_ON = ("$@", "$*", "${@}", "${*}")  # what a shell script was given
_VARIABLE = re.compile(r"\$\{([A-Za-z_]\w*)(?:\[[@*]\])?\}|\$([A-Za-z_]\w*)")
_WHOLE_LIST = re.compile(r"\"(\$\{\w+\[[@*]\]\})\"")  # its parts, and not one text
_MORE_OPTIONS = re.compile(r"^\s*--?[A-Za-z][\w-]*(?:[\s=]|$)")
_REMARK = re.compile(r"\s+(\\?)\s*#\s[^'\"]*$")
_QUOTED_REMARK = re.compile(r"`\s*#[^`]*`")  # a comment between the lines of a command: nothing is run for it
_KEEPS_OPTIONS = re.compile(r"\s*(?:export\s+)?[A-Za-z_]\w*=[\"'(].*\s?-\w")  # `FLAGS="--lr 1e-4"`
_IN_FOLDER = re.compile(r"\$\{?\w+\}?/([\w./-]+\.\w+)")
_LINK = re.compile(
    r"(?:\]\(|href=[\"'])\s*<?(?:https://github\.com/[^/\s]+/[^/\s]+/blob/[^/\s]+/)?([^)\s#>\"']+\.md)\b"
)
_HTML = re.compile(r"</?(?:pre|code)\b[^>\n]{0,80}>", re.I)
_SPAN = re.compile(
    r"\s*(`{1,3})\s*([^`]+?)\s*\1\s*$"
)  # a line that is one piece of code: "``` python train.py ```"
_OPTION = re.compile(r"--[A-Za-z]|-[A-Za-z](?:\w+|$)")  # also those of one dash
_OPTION_NAME = re.compile(r"(?<![\w-])--?([A-Za-z][\w.-]*)")
_OPTIONAL = re.compile(r"\[\s*-[^\]]*\]")  # `[--tag <tag>]` in a command of a page
_EVALUATES = re.compile(r"^(do_)?(eval|evaluate|evaluation|test|inference|infer|predict|demo)(_only|_mode)?$")
_MODE_EVALUATES = re.compile(rf"{_EVALUATES.pattern}|^valid(ate|ation)?$")
_MODE = ("mode", "phase", "stage", "split", "task")
_MOST_CALLS = 50  # of one shell script
_NO = ("false", "no", "0")
# Modules that start the script that follows them: launchers, debuggers, profilers.
_LAUNCHERS = re.compile(
    r"(torch|torchelastic|accelerate|deepspeed|colossalai|horovod|bagua|intel_extension_for_pytorch)(\.|$)|"
    r"(c?[pP]rofile|pdb|ipdb|debugpy|trace|coverage|scalene|kernprof|viztracer|memory_profiler)$"
)
_GOES_FIRST = ("$", "nohup", "time", "exec", "env")
# Those of what starts each process by hand say that it is one of several.
_GIVES_VARIABLE = re.compile(r"(?!\w*(?:RANK|WORLD_SIZE|MASTER_))[A-Za-z_]\w*=")
_PYTHON = re.compile(r"(?:\S*/)?python(?:\d(?:\.\d+)?)?$")
_PYTHON_FLAG = re.compile(r"-(?!m)[A-Za-z]+$")
_MODULE = ("-m", "--module")  # of python, torchrun, `accelerate launch`, deepspeed
_MODULE_NAME = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*$")
_FILE_NAME = re.compile(r"\.(py|sh|ya?ml|json|toml|cfg|conf|ini|txt)$")


@dataclass(frozen=True, slots=True)
class Launch:
    """One command that starts a script. `options`: name -> text; True where it stands alone, None where it is computed."""

    place: Place
    options: Mapping[str, str | bool | None]
    script: str = ""  # the path of the script as the command gives it
    lines: Mapping[str, int] = field(
        default_factory=dict
    )  # of an option, where that is not the first of the command
    passes_on: bool = False  # a shell script adds what it is given itself
    alone: bool = False  # Python itself runs the script, once: no launcher stands before it

    def place_of(self, option: str) -> Place:
        """Where an option stands; of one that a variable holds, where the command begins."""
        return replace(self.place, line=self.lines.get(option, self.place.line))

    @property
    def evaluates(self) -> bool:
        """Does it say that it trains nothing: `--eval`, `--mode test`?"""
        if self.options.get("do_train"):
            return False
        return any(
            _EVALUATES.match(name) is not None and not (isinstance(text, str) and text.lower() in _NO)
            for name, text in self.options.items()
        ) or any(_MODE_EVALUATES.match(str(self.options.get(name))) for name in _MODE)


def launches(files: Mapping[str, bytes]) -> dict[str, list[Launch]]:
    """Name of a Python file -> the commands that start a file of this name."""
    found: dict[str, list[Launch]] = {}
    for path, data in sorted(files.items()):
        if path.endswith(SHELL) and len(data) <= _LONGEST:
            for name, launch in _of_script(path, data.decode("utf-8", "replace")):
                found.setdefault(name, []).append(launch)
    shown: dict[str, list[Launch]] = {}
    for path in pages(files):
        text = _commands(files[path].decode("utf-8", "replace"))
        for name, launch in _of_script(path, text, page=True):
            shown.setdefault(name, []).append(launch)
    _hand_on(found, shown)
    names = [name for name in {**shown, **found} if not name.endswith(SHELL)]
    return {name: [*found.get(name, ()), *shown.get(name, ())] for name in names}


def _hand_on(found: dict[str, list[Launch]], shown: dict[str, list[Launch]]) -> None:
    """`./run.sh 8 --amp` of a script with `python train.py "$@"`: a command that starts `train.py` with `--amp`.

    It takes the place of that in the script. A script is called as the nearest of its name, and not by itself.
    """
    shells: dict[str, set[str]] = {}
    for launch in chain.from_iterable(found.values()):
        shells.setdefault(launch.place.path.rpartition("/")[2], set()).add(launch.place.path)
    same = {shell: sorted(paths) for shell, paths in shells.items()}
    for name, some in list(found.items()):
        left = []
        for launch in some:
            path = launch.place.path
            shell = path.rpartition("/")[2]
            given = False
            for table in (found, shown) if launch.passes_on and shell != name else ():
                calls = (call for call in tuple(table.get(shell, ())) if _is_called(call, path, same[shell]))
                for call in islice(calls, _MOST_CALLS):
                    options = {**launch.options, **call.options}
                    lines = {option: call.place_of(option).line for option in call.options}
                    whole = Launch(call.place, options, launch.script, lines, alone=launch.alone)
                    given = True
                    if table is found:
                        left.append(whole)
                    else:
                        shown.setdefault(name, []).append(whole)
            if not given:
                left.append(launch)
        if left:
            found[name] = left
        else:
            del found[name]


def of_script(started: Mapping[str, list[Launch]], script: str, paths: Iterable[str]) -> tuple[Launch, ...]:
    """The commands that start this script, and none of the same name in another folder."""
    name = script.rpartition("/")[2]
    same = [path for path in paths if path.rpartition("/")[2] == name]
    meant = [launch for launch in started.get(name, ()) if script in _meant(launch, same)]
    meant = [launch for launch in meant if launch.options or not launch.passes_on] or meant
    by_scripts = [launch for launch in meant if launch.place.path.endswith(SHELL)]
    return tuple(by_scripts or meant)  # where scripts start it, they say more than a page


def _meant(launch: Launch, same: list[str]) -> list[str]:
    """Of the scripts of one name those that a command may start: by the folders it gives, then the nearest to it."""
    ending = "/" + launch.script.lstrip("./")
    fitting = [path for path in same if f"/{path}".endswith(ending)] or same
    folder = launch.place.path.rpartition("/")[0].split("/")
    shared = {path: len(posixpath.commonprefix([folder, path.split("/")[:-1]])) for path in fitting}
    return [path for path in fitting if shared[path] == max(shared.values())]


def _is_called(call: Launch, path: str, same: list[str]) -> bool:
    """Does it start the shell script at this path, of those of one name?"""
    folder = call.place.path.rpartition("/")[0]
    exactly = posixpath.normpath(posixpath.join(folder, call.script))
    return path == exactly if exactly in same else path in _meant(call, same)


def pages(files: Mapping[str, bytes]) -> list[str]:
    """Each README, and the Markdown files that it links."""
    pages = {path for path, data in files.items() if is_readme(path) and len(data) <= _LONGEST}
    for path in sorted(pages):
        folder = path.rpartition("/")[0]
        for link in _LINK.finditer(files[path].decode("utf-8", "replace")):
            for base in (folder, ""):
                target = posixpath.normpath(posixpath.join(base, link[1].lstrip("/")))
                if len(files.get(target, b" " * (_LONGEST + 1))) <= _LONGEST:
                    pages.add(target)
    return sorted(pages)


def _commands(text: str) -> str:
    """The lines of a README that are commands, and what goes on below them; the others are left empty."""
    lines: list[str] = []
    goes_on = command = False
    for line in _HTML.sub("", text).split("\n"):
        if (span := _SPAN.match(line)) is not None:
            line = span[2]
        fence = line.lstrip().startswith("```")
        starts = bool(_COMMAND.match(line))
        below = command and bool(lines[-1]) and _MORE_OPTIONS.match(line) is not None  # a lost backslash
        kept = (goes_on and not fence) or starts or below or bool(_KEEPS_OPTIONS.match(line))
        if below and not goes_on:
            lines[-1] += " \\"
        command = kept and (starts or command)
        quoted = None if kept or fence else _IN_SENTENCE.search(line)
        shown = _REMARK.sub(r" \1", line.strip().removeprefix("$ ")).rstrip() if kept else ""
        if quoted:
            shown = quoted[2].strip()
        goes_on = kept and shown.endswith("\\")
        lines.append(shown)
    return "\n".join(lines)


def _of_script(path: str, text: str, page: bool = False) -> list[tuple[str, Launch]]:
    found: list[tuple[str, Launch]] = []
    variables: dict[str, str] = {}
    physical = text.split("\n")
    for number, end, line in _logical_lines(text):
        assigned = _ASSIGNED.match(line)
        if assigned:
            value = next((g for g in assigned.group("double", "single", "list", "word") if g is not None), "")
            before = variables.get(assigned["name"], "") if assigned["more"] else ""
            variables[assigned["name"]] = f"{before} {_expanded(value, variables)}".strip()
            continue
        line = _expanded(line, variables)
        if not _MAY_START.search(line) or len(line) > _LINE:
            continue
        if page:
            line = _OPTIONAL.sub(" ", line)
        try:
            tokens = shlex.split(line, comments=True)
        except ValueError:
            tokens = line.split()
        at, script = _started(tokens)
        if at is not None:
            options = _options(tokens[at + 1 :])
            lines = _lines_of(physical, number, end) if end > number else {}
            passes_on = any(token in _PASSED_ON for token in tokens[at + 1 :])
            alone = _is_alone(tokens[:at])
            launch = Launch(Place(path, number), options, script, lines, passes_on, alone)
            found.append((PurePosixPath(script).name, launch))
    return found


def _lines_of(physical: list[str], first: int, last: int) -> dict[str, int]:
    """The options of a command over several lines, each with the first line that gives it."""
    found: dict[str, int] = {}
    for number in range(first, last + 1):
        line = _QUOTED_REMARK.sub("", physical[number - 1])
        for option in () if line.lstrip().startswith("#") else _OPTION_NAME.finditer(line):
            found.setdefault(option[1].replace("-", "_"), number)
    return found


def _started(tokens: list[str]) -> tuple[int | None, str]:
    """The file that a command starts: `train.py`, `-m package.train`; and where in it that stands."""
    for i, word in enumerate(tokens):
        if word.endswith(".py"):
            return i, word
        if word.endswith(SHELL[:2]) and (
            word.startswith("./") or tokens[i - 1 : i] in (["sh"], ["bash"], ["zsh"])
        ):
            return i, word
        if word in _MODULE and (at := _module(tokens, i + 1)) is not None:
            return at, tokens[at].replace(".", "/") + ".py"
    return None, ""


def _is_alone(before: list[str]) -> bool:
    """`CUDA_VISIBLE_DEVICES=0 python -u`: what stands before a script that is started as one process."""
    words = [word for word in before if not _GIVES_VARIABLE.match(word)]
    while words and words[0] in _GOES_FIRST:
        del words[0]
    flags = words[1:-1] if words[-1:] == ["-m"] else words[1:]
    return bool(words) and bool(_PYTHON.match(words[0])) and all(map(_PYTHON_FLAG.match, flags))


def _module(tokens: list[str], at: int) -> int | None:
    """Where the module is that `-m` asks for: next to it, or behind more options of a launcher, whose `-m` is a switch."""
    if at < len(tokens) and _MODULE_NAME.match(tokens[at]):
        return None if _LAUNCHERS.match(tokens[at]) else at
    if at >= len(tokens) or not tokens[at].startswith("-"):
        return None
    for i in range(at, len(tokens)):
        word = tokens[i]
        if "." in word and _MODULE_NAME.match(word) and not _FILE_NAME.search(word):
            return i
    return None


def _logical_lines(text: str) -> list[tuple[int, int, str]]:
    """Lines joined at a backslash and inside an assignment, each with the numbers of its first and its last."""
    lines: list[tuple[int, int, str]] = []
    start = 1
    parts: list[str] = []
    closes = ""  # what ends an assignment over several lines
    for number, line in enumerate(text.split("\n"), 1):
        if not parts:
            start = number
        stripped = _QUOTED_REMARK.sub("", line).rstrip()
        if stripped.lstrip().startswith("#"):
            stripped = "\\" if parts else ""  # a comment inside a command that goes on
        goes_on = stripped.endswith("\\")
        stripped = stripped[:-1] if goes_on else stripped
        opened = None if parts else _OPENS.match(stripped)
        if opened and _CLOSED_BY.get(opened[1], opened[1]) not in stripped[opened.end() :]:
            closes = _CLOSED_BY.get(opened[1], opened[1])
        elif closes and (closes in stripped or len(parts) > _MOST_OPEN):
            closes = ""
        parts.append(stripped)
        if not goes_on and not closes:
            lines.append((start, number, " ".join(parts)))
            parts = []
    if parts:
        lines.append((start, number, " ".join(parts)))
    return lines


def _options(tokens: list[str]) -> dict[str, str | bool | None]:
    options: dict[str, str | bool | None] = {}
    for i, token in enumerate(tokens):
        if not _OPTION.match(token):
            continue
        name, equals, value = token.lstrip("-").partition("=")
        following = tokens[i + 1] if i + 1 < len(tokens) else "--"
        alone = bool(_NO_VALUE.match(following) or _OPTION.match(following) or following == "--")
        options[name.replace("-", "_")] = _known(value if equals else True if alone else following)
    return options


def _expanded(line: str, variables: Mapping[str, str]) -> str:
    """The line with what its variables hold, those that are not known as they stand."""
    line = _WHOLE_LIST.sub(r"\1", line)
    for _ in range(_MOST_EXPANDED):
        if "$" not in line or len(line) > _LINE:
            break
        line = _VARIABLE.sub(lambda match: variables.get(match[1] or match[2], match[0]), line)
    return line


def _known(text: str | bool) -> str | bool | None:
    """What an option is given; None where a variable decides, but the name of a file in a folder that one decides."""
    if not isinstance(text, str) or "$" not in text:
        return text
    tail = _IN_FOLDER.fullmatch(text)
    return tail[1] if tail else None
