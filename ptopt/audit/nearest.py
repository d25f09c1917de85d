"""The facts of one project of a repository that holds several: the files of the nearest folder say more than those of the root."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from ptopt.audit.launches import Launch
from ptopt.pathkind import is_readme
from ptopt.project import pythons
from ptopt.project.facts import FACT_FILES, ProjectFacts, read_facts
from ptopt.project.pins import Pin
from ptopt.project.surroundings import of_folder

_FIRST = "torch"  # a folder that does not say which torch it needs is no project of its own


class NearestFacts:
    """Facts by folder; those of the root where no folder above a script has its own."""

    def __init__(self, root: ProjectFacts, files: Mapping[str, bytes]) -> None:
        self.root = root
        self._files = files
        self._by_folder: dict[str, dict[str, bytes]] = {}
        self._read: dict[str, ProjectFacts | None] = {}
        names = {name.rpartition("/")[2] for name in FACT_FILES}
        for path, data in files.items():
            folder, _, name = path.rpartition("/")
            if folder and name in names:
                self._by_folder.setdefault(folder, {})[name] = data

    def of(self, path: str, launches: Iterable[Launch] = ()) -> ProjectFacts:
        """The facts that hold for a script; `launches`: the commands that start it, which may name a Python."""
        facts = self._of_files(path)
        asked = [found for launch in launches if (found := self._started(launch)) is not None]
        return replace(facts, caps=pythons.caps(*max(asked, key=lambda found: found[0]))) if asked else facts

    def _started(self, launch: Launch) -> tuple[int, Pin] | None:
        path, line = launch.place.path, launch.place.line
        lines = self._files.get(path, b"").decode("utf-8", "replace").split("\n")
        return pythons.started(path, line, lines[line - 1]) if 0 < line <= len(lines) else None

    def _of_files(self, path: str) -> ProjectFacts:
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
            if self._are_narrower(pins.get(_FIRST, ())):
                pins[_FIRST] = self.root.pins[_FIRST]
            held = replace(self.root, pins={**self.root.pins, **pins}) if own else self.root
            found = of_folder(held, self._files, folder)
            self._read[folder] = None if found is self.root else found
        return self._read[folder]

    def _are_narrower(self, named: tuple[Pin, ...]) -> bool:
        """Does the root pin versions that a README of the folder, which only names a range, admits?"""
        exact = [pin for pin in self.root.pins.get(_FIRST, ()) if pin.exact]
        asked = [pin for pin in named if pin.specifier]
        return (
            bool(exact and asked)
            and all(is_readme(pin.path) and not pin.exact for pin in asked)
            and all(_admits(pin.specifier, one.specifier) for pin in asked for one in exact)
        )


def _admits(range_: str, exact: str) -> bool:
    from packaging.specifiers import InvalidSpecifier, SpecifierSet

    try:
        return SpecifierSet(range_).contains(exact.lstrip("="), prereleases=True)
    except InvalidSpecifier:
        return False
