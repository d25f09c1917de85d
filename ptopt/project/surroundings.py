"""Versions that a project names where `read_facts` does not look: environments and images in folders of their own, the README of a
folder, the Python that is asked for. For audits, which have all files.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace

from ptopt.pathkind import is_dockerfile, is_readme
from ptopt.project import pythons, readers
from ptopt.project.facts import PIN_FILES, ProjectFacts, with_readme
from ptopt.project.pins import Pin, Reading
from ptopt.project.stated import MOST_BYTES, README_FOLDERS

_MOST_FILES = 12
_REQUIREMENTS = re.compile(
    r"(^|/)requirements?[^/]*\.txt$|(^|/)requirements/[^/]+\.txt$"
    r"|(^|/)([^/]*conda[^/]*|[^/]*spec[-_]?(list|file)[^/]*|env(ironment)?|package[-_]?list)\.txt$",  # of `conda list`
    re.I,
)
_NOT_TRAINING = re.compile(
    r"(^|[/_.-])(docs?|tests?|dev|lint|serv\w*|deploy\w*|onnx|build|format|style|demo|eval\w*)([/_.-]|$)",
    re.I,
)
_IN_README = re.compile(r"(?<![\w-])(?P<package>transformers)\s*={1,2}\s*(?P<version>\d+\.\d+(?:\.\d+)?)(?![\w.*])", re.I)  # fmt: skip


def is_requirements(path: str) -> bool:
    """Is it a list of requirements, of pip or as `conda list` writes it, by its name?"""
    return _REQUIREMENTS.search(path) is not None


def with_surroundings(facts: ProjectFacts, files: Mapping[str, bytes]) -> ProjectFacts:
    """The facts of the root with what its other files say, and with what its Python allows."""
    found = _with_environments(facts, files)
    found = with_readme(found, files)
    pages = [path for path in sorted(files) if is_readme(path) and _folder(path) in README_FOLDERS]
    found = _with_names(found, files, pages)
    return _with_python(found, files, "")


def of_folder(facts: ProjectFacts, files: Mapping[str, bytes], folder: str) -> ProjectFacts:
    """The facts with what the README and the environments of a folder below the root say."""
    pages = [path for path in files if _folder(path) == folder and is_readme(path)]
    return _with_python(_with_names(facts, files, pages, nearer=True), files, folder)


def _with_python(facts: ProjectFacts, files: Mapping[str, bytes], folder: str) -> ProjectFacts:
    """The facts with the newest versions for the Python that files of a folder, or about its environment, ask for."""
    near = {"/".join(part for part in (folder, name) if part) for name in (*pythons.FOLDERS, "")}
    if not folder:
        near |= set(README_FOLDERS)
    asked = pythons.asked(files, [path for path in files if _folder(path) in near])
    return facts if asked is None else replace(facts, caps=pythons.caps(*asked))


def _with_environments(facts: ProjectFacts, files: Mapping[str, bytes]) -> ProjectFacts:
    """With pins of `docker/environment.yml`, `requirements/*.txt` and further Dockerfiles, of packages of which the root says nothing.

    Where a Dockerfile of the root decides, the pins of the other Dockerfiles count, too.
    """
    elsewhere = [
        path
        for path in sorted(files)
        if path not in PIN_FILES
        and _folder(path).lower() in ("", *pythons.FOLDERS)
        and not _NOT_TRAINING.search(path)
        and (is_dockerfile(path) or is_requirements(path) or pythons.is_environment(path, files[path]))
    ]
    more = [pin for path in elsewhere[:_MOST_FILES] for pin in _read(path, files[path])]
    pins = dict(facts.pins)
    for package in sorted({pin.package for pin in more}):
        held = [p for p in facts.pins.get(package, ()) if p.specifier and not is_readme(p.path)]
        exact = [p for p in held if p.exact]
        if exact and all(is_dockerfile(p.path) for p in exact):
            pins[package] = (*held, *(p for p in more if p.package == package and is_dockerfile(p.path)))
        elif not held:
            pins[package] = tuple(p for p in more if p.package == package)
    return replace(facts, pins=pins)


def _read(path: str, data: bytes) -> list[Pin]:
    if len(data) > MOST_BYTES:
        return []
    reading = Reading(path, data.decode("utf-8", "replace"))
    try:
        if pythons.is_environment(path, data):
            readers.conda(reading)
        elif is_dockerfile(path):
            readers.dockerfile(reading)
        elif is_requirements(path):
            readers.requirements(reading)
    except ValueError:
        return []
    return [pin for pin in reading.pins if pin.specifier]


def _with_names(
    facts: ProjectFacts, files: Mapping[str, bytes], pages: Iterable[str], nearer: bool = False
) -> ProjectFacts:
    """With `transformers==4.9.1` of the pages, where nothing else says it, or where the pages are `nearer` than what does."""
    found: dict[str, list[Pin]] = {}
    for path in pages:
        text = files[path][:MOST_BYTES].decode("utf-8", "replace")
        for match in _IN_README.finditer(text):
            line = text.count("\n", 0, match.start()) + 1
            pin = Pin(match["package"].lower(), f"=={match['version']}", True, path, line)
            found.setdefault(pin.package, []).append(pin)
    new = {name: tuple(pins) for name, pins in found.items() if nearer or not facts.known(name)}
    return replace(facts, pins={**facts.pins, **new}) if new else facts


def _folder(path: str) -> str:
    return path.rpartition("/")[0]
