"""What an installation brings: PyTorch by name, or through a file of requirements or the project itself."""

from __future__ import annotations

import re

from ptopt.configs.dockerfile import Instruction, Stage
from ptopt.configs.shell import Install
from ptopt.project.facts import ProjectFacts

TORCH = frozenset({"torch", "torchvision", "torchaudio"})
_PROJECT = frozenset({"pyproject.toml", "setup.py", "setup.cfg"})
_CHOSEN = re.compile(r"--no-deps|cpu|index|find-links|--constraint|\s-[cfi]\s", re.I)


def needs_torch(install: Install, facts: ProjectFacts) -> bool:
    """Does the project that it installs, or a file of requirements at this path, bring the default build of torch?"""
    if _CHOSEN.search(install.text):
        return False
    wanted = {name.removeprefix("./") for name in install.requirements}
    return not facts.with_torch.isdisjoint(wanted) or (
        install.local and not _PROJECT.isdisjoint(facts.with_torch)
    )


def copied_with_torch(
    install: Install, run: Instruction, path: str, stage: Stage, facts: ProjectFacts
) -> bool:
    """The same in an image whose Dockerfile at `path` copies the file from the root of the repository before it runs that."""
    folder = path.rpartition("/")[0].rpartition("/")[2]
    if _CHOSEN.search(install.text) or (folder and "docker" not in folder.lower()):
        return False
    wanted = {name.rpartition("/")[2] for name in install.requirements}
    found = {known for known in facts.with_torch - _PROJECT if known.rpartition("/")[2] in wanted}
    return any(
        i.name in ("COPY", "ADD")
        and i.start < run.start
        and "--from" not in i.flags
        and any(word.removeprefix("./") in {*found, "", "."} for word in i.words[:-1])
        for i in stage.instructions
        if found
    )
