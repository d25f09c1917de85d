"""A Dockerfile as its instructions, each with the place where it stands. Offsets count characters of the text."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

_INSTRUCTION = re.compile(r"[ \t]*([A-Za-z]+)(?=[ \t\\]|$)[ \t]*")
_HEREDOC = re.compile(r"<<-?([\"']?)([A-Za-z_]\w*)\1")
_FLAG = re.compile(r"--[a-z-]+(?:=\S+)?\s+")
_MOST_INSTRUCTIONS = 2000
_MOST_BASES = 20
NAMES = frozenset(
    "ADD ARG CMD COPY ENTRYPOINT ENV EXPOSE FROM HEALTHCHECK LABEL MAINTAINER ONBUILD RUN SHELL STOPSIGNAL USER VOLUME "
    "WORKDIR".split()
)


@dataclass(frozen=True, slots=True)
class Instruction:
    """`text` is what stands behind the name, on one line: continuations joined, comments between them left out."""

    name: str  # in capitals
    text: str
    start: int  # the first character of the instruction, and one past its last
    end: int
    flags: str  # `--mount=type=cache,... ` of RUN, `--from=build ` of COPY
    at: int  # offset of what stands behind the name

    @property
    def words(self) -> list[str]:
        """The arguments of the form in brackets, else the words of the text."""
        if self.text.startswith("["):
            try:
                read = json.loads(self.text)
            except (ValueError, RecursionError):
                read = None
            if isinstance(read, list) and all(isinstance(item, str) for item in read):
                return [str(item) for item in read]
        return self.text.split()


@dataclass(frozen=True, slots=True)
class Stage:
    """A `FROM` and what follows it. `bases` are the image and, where that is another stage, what that one is built on."""

    base: Instruction
    image: str
    name: str
    bases: tuple[str, ...]
    instructions: tuple[Instruction, ...]


@dataclass(frozen=True)
class Dockerfile:
    stages: tuple[Stage, ...]

    @cached_property
    def kept(self) -> tuple[Stage, ...]:
        """The stages whose layers come into an image: the last one, what these build on, and targets that nothing copies from."""
        found: list[Stage] = []
        for stage in reversed(self.stages):
            built_on = any(other.image == stage.name for other in found)
            used = any(other.image == stage.name for other in self.stages) or any(
                f"from={stage.name}" in instruction.flags
                for other in self.stages
                for instruction in other.instructions
            )
            if not found or (stage.name and (built_on or not used)):
                found.append(stage)
        return tuple(reversed(found))

    def runs(self) -> Iterator[tuple[Stage, Instruction]]:
        for stage in self.stages:
            for instruction in stage.instructions:
                if instruction.name == "RUN":
                    yield stage, instruction


def read_dockerfile(text: str) -> Dockerfile | None:
    """None for what has no `FROM`, or is too long to be written by a person."""
    stages: list[Stage] = []
    arguments: dict[str, str] = {}
    base: Instruction | None = None
    held: list[Instruction] = []

    def close() -> None:
        if base is not None:
            stages.append(_stage(base, held, stages, arguments))

    for count, instruction in enumerate(_instructions(text)):
        if count > _MOST_INSTRUCTIONS:
            return None
        if instruction.name == "ARG" and base is None:
            name, _, value = instruction.text.partition("=")
            arguments[name.strip()] = value.strip().strip("\"'")
        if instruction.name == "FROM":
            close()
            base, held = instruction, []
        else:
            held.append(instruction)
    close()
    return Dockerfile(tuple(stages)) if stages else None


def _stage(
    base: Instruction, held: list[Instruction], before: list[Stage], arguments: dict[str, str]
) -> Stage:
    words = base.text.split()
    image = re.sub(r"\$\{?(\w+)\}?", lambda m: arguments.get(m[1], m[0]), words[0]) if words else ""
    name = words[2] if len(words) > 2 and words[1].lower() == "as" else ""
    inherited = next((stage.bases for stage in before if stage.name and stage.name == image), ())
    return Stage(base, image, name, (image, *inherited)[:_MOST_BASES], tuple(held))


def _instructions(text: str) -> Iterator[Instruction]:
    lines = text.split("\n")
    number, offset = 0, 0
    while number < len(lines):
        line = lines[number]
        match = _INSTRUCTION.match(line)
        if match is None or match[1].upper() not in NAMES:
            offset += len(line) + 1
            number += 1
            continue
        start, parts, end = offset + len(line) - len(line.lstrip()), [], offset
        current = line[match.end() :]
        at = offset + match.end()
        while True:
            stripped = current.rstrip()
            end = offset + len(lines[number].rstrip())
            offset += len(lines[number]) + 1
            number += 1
            continued = stripped.endswith("\\")
            parts.append(stripped.removesuffix("\\").strip())
            if not continued:
                break
            while number < len(lines) and (
                lines[number].lstrip().startswith("#") or not lines[number].strip()
            ):
                offset += len(lines[number]) + 1
                number += 1
            if number >= len(lines):
                break
            current = lines[number]
        joined = " ".join(part for part in parts if part)
        for heredoc in _HEREDOC.findall(joined) if "<<" in joined else ():
            body = []
            while number < len(lines):
                line = lines[number]
                end = offset + len(line.rstrip())
                offset += len(line) + 1
                number += 1
                if line.strip() == heredoc[1]:
                    break
                body.append(line.strip())
            joined += "\n" + "\n".join(body)
        flags = ""
        while flag := _FLAG.match(joined):
            flags, joined = flags + flag[0], joined[flag.end() :]
        yield Instruction(match[1].upper(), joined, start, end, flags, at)
