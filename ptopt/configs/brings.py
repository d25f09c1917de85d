"""What an installation brings: PyTorch by name, or through a file of requirements or the project itself."""

from __future__ import annotations

from ptopt.configs.shell import Install
from ptopt.project.facts import ProjectFacts

TORCH = frozenset({"torch", "torchvision", "torchaudio"})
_PROJECT = frozenset({"pyproject.toml", "setup.py", "setup.cfg"})


def needs_torch(install: Install, facts: ProjectFacts, anywhere: bool = False) -> bool:
    """Does a file of requirements that it names, or the project that it installs, need torch?

    `anywhere`: files are found by their name, because they were copied to another folder.
    """
    wanted = [name.removeprefix("./") for name in install.requirements]
    known = facts.with_torch
    if anywhere:
        wanted = [name.rpartition("/")[2] for name in wanted]
        known = frozenset(path.rpartition("/")[2] for path in known - _PROJECT)
    return not known.isdisjoint(wanted) or (install.local and not _PROJECT.isdisjoint(facts.with_torch))
