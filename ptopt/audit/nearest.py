"""The facts of one project of a repository that holds several: the files of the nearest folder say more than those of the root."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from ptopt.project.facts import FACT_FILES, ProjectFacts, read_facts

_FIRST = "torch"  # a folder that does not say which torch it needs is no project of its own


class NearestFacts:
    """Facts by folder; those of the root where no folder above a script has its own."""

    def __init__(self, root: ProjectFacts, files: Mapping[str, bytes]) -> None:
        self.root = root
        self._by_folder: dict[str, dict[str, bytes]] = {}
        self._read: dict[str, ProjectFacts | None] = {}
        names = {name.rpartition("/")[2] for name in FACT_FILES}
        for path, data in files.items():
            folder, _, name = path.rpartition("/")
            if folder and name in names:
                self._by_folder.setdefault(folder, {})[name] = data

    def of(self, path: str) -> ProjectFacts:
        """The facts that hold for a script."""
        folder = path.rpartition("/")[0]
        while folder:
            found = self._of_folder(folder)
            if found is not None:
                return found
            folder = folder.rpartition("/")[0]
        return self.root

    def _of_folder(self, folder: str) -> ProjectFacts | None:
        if folder not in self._read:
            facts = read_facts(self._by_folder[folder]) if folder in self._by_folder else self.root
            own = facts is not self.root and facts.known(_FIRST)
            pins = {
                name: tuple(replace(pin, path=f"{folder}/{pin.path}") for pin in pins)
                for name, pins in facts.pins.items()
            }
            self._read[folder] = replace(self.root, pins={**self.root.pins, **pins}) if own else None
        return self._read[folder]
