"""What the project under review says about itself: the versions of its libraries, and how long its lines may be."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import posixpath
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ptopt.project import readers
from ptopt.project.added import ADDED
from ptopt.project.linelength import LENGTH_FILES, line_length
from ptopt.project.naming import NO_NAMING, Naming
from ptopt.project.pins import CUDA, PACKAGES, RENAMED, Pin, Reading
from ptopt.project.removed import lowest
from ptopt.project.stated import cuda_of, torch_of

if TYPE_CHECKING:
    from packaging.version import Version

__all__ = ["FACT_FILES", "NO_FACTS", "PACKAGES", "Pin", "ProjectFacts", "read_facts"]

MAX_BYTES = 500_000
MAX_LOCK_BYTES = 10_000_000
MAX_LINE = 10_000  # characters; what machines write is exempt, and read in linear time

_LOCKS = ("uv.lock", "poetry.lock", "pdm.lock", "pylock.toml")
_MACHINE_WRITTEN = (*_LOCKS, "Pipfile.lock")
_CONDA = ("environment.yml", "environment.yaml", "conda.yml", "conda.yaml")
# Packages that cannot be installed without torch; and what says that another build is taken than the default one.
_NEED_TORCH = frozenset(
    ("torch", "torchvision", "lightning", "pytorch-lightning", "accelerate", "peft", "trl")
)
_OTHER_BUILD = re.compile(
    r"download\.pytorch\.org|--(?:extra-)?index-url|--find-links|\+(?:cpu|cu\d)|torch @ "
)
_DOCKERFILES = ("Dockerfile", "docker/Dockerfile")
_REQUIREMENTS = (
    "requirements.txt",
    "requirements.lock",
    "constraints.txt",
    "requirements-train.txt",
    "requirements-gpu.txt",
    "requirements_train.txt",
    "requirements_gpu.txt",
    *(f"requirements/{kind}.txt" for kind in ("base", "common", "core", "default", "main", "requirements")),
    *(f"requirements/{kind}.txt" for kind in ("cuda", "gpu", "prod", "pytorch", "runtime", "train")),
)
_OPTIONAL_REQUIREMENTS = (
    *(f"requirements{joint}{kind}.txt" for kind in ("dev", "test") for joint in "-_/"),
    "dev-requirements.txt",
    "test-requirements.txt",
)
_READERS: dict[str, Callable[[Reading], None]] = {
    "pyproject.toml": readers.pyproject,
    "setup.cfg": readers.setup_cfg,
    "setup.py": readers.setup_py,
    "Pipfile": readers.pipfile,
    "Pipfile.lock": readers.pipfile_lock,
    **dict.fromkeys((*_REQUIREMENTS, *_OPTIONAL_REQUIREMENTS), readers.requirements),
    **dict.fromkeys(_CONDA, readers.conda),
    **dict.fromkeys(_LOCKS, readers.lock),
    **dict.fromkeys(_DOCKERFILES, readers.dockerfile),
}

PIN_FILES = frozenset(_READERS)
"""Those of `FACT_FILES` in which packages are pinned."""

README_FILES = ("README.md", "README.rst")

FACT_FILES: tuple[str, ...] = tuple(dict.fromkeys((*_READERS, *LENGTH_FILES, *README_FILES)))
"""Paths, from the root of the repository, of the files `read_facts` understands."""


@dataclass(frozen=True)
class ProjectFacts:
    """The pins of a project. An exact pin (lock file, image tag, `==`) wins over every range.

    Several pins of one kind are all taken to be in use: the lowest version among them decides. Extras,
    development and test requirements count only for packages of which nothing else names a version.
    """

    pins: Mapping[str, tuple[Pin, ...]] = field(default_factory=dict)
    unread: tuple[str, ...] = ()  # what could not be read, as "<path>: <reason>"
    line_length: int | None = None  # characters, as the project's formatter or linter is configured
    naming: Naming = NO_NAMING  # which of its files name its configurations
    with_torch: frozenset[str] = (
        frozenset()
    )  # files whose plain installation brings the default build of torch

    # The newest versions that its Python has, or that have what it imports.
    caps: Mapping[str, Pin] = field(default_factory=dict)

    def with_texts(self, files: Mapping[str, bytes]) -> ProjectFacts:
        """The same with further texts that may name a configuration."""
        return dataclasses.replace(self, naming=self.naming.with_texts(files))

    def capped(self, caps: Iterable[Pin]) -> ProjectFacts:
        """The same with further bounds of the newest versions."""
        lower = lowest([*self.caps.values(), *caps])
        return self if lower == self.caps else dataclasses.replace(self, caps=lower)

    def known(self, package: str) -> bool:
        """Whether anything constrains the version of `package` (a bare name does not)."""
        return bool(self._deciding(package))

    def at_least(self, package: str, version: str) -> bool | None:
        """True: every version the project admits is `version` or later. False: it admits, or is locked to, an
        earlier one. None: nothing is known.

        An upper bound alone (`torch<2.6`) proves "earlier" only for versions it excludes. Local and
        pre-release parts are left out of the comparison: `2.4.0rc1+cu121` counts as 2.4.0.
        """
        pins = self._deciding(package)
        wanted = _version(version)
        if self._is_capped_below(package, wanted):
            return False
        if not pins:
            return None
        answers: list[bool | None] = []
        for pin in pins:
            bounds = _bounds(pin.specifier)
            if bounds.lower is not None:
                answers.append(bounds.lower >= wanted)
            elif bounds.upper is not None and bounds.upper <= wanted:
                answers.append(False)
            else:
                answers.append(None)
        if False in answers:
            return False
        return None if None in answers else True

    def has(self, name: str) -> bool:
        """Is `name`, one of `ptopt.project.added`, in every version that the project admits, as far as is known?"""
        added = ADDED[name]
        return self.at_least(added.package, added.version) is not False

    def cuda_before(self, version: str) -> str:
        """The CUDA of the project, "cudatoolkit==10.1 (environment.yml:9)", where it is older; also by the build, `torch==1.7.1+cu101`."""
        if self.excludes(CUDA, version):
            return self.describe(CUDA)
        builds = [_BUILD.search(pin.specifier) for pin in self.pins.get("torch", ()) if pin.exact]
        old = [b is not None and _version(f"{b[1]}.{b[2]}") < _version(version) for b in builds]
        return self.describe("torch") if old and all(old) else ""

    def allows(self, package: str, below: str) -> bool:
        """Whether the project may run with a version earlier than `below`; True where nothing is known."""
        return self.at_least(package, below) is not True

    def excludes(self, package: str, version: str) -> bool:
        """Whether the project admits no `version` or later one; False where nothing is known."""
        pins, wanted = self._deciding(package), _version(version)
        if self._is_capped_below(package, wanted):
            return True
        return bool(pins) and all(
            (bounds.upper is not None and bounds.upper <= wanted)
            or (pin.exact and bounds.lower is not None and bounds.lower < wanted)
            for pin in pins
            for bounds in (_bounds(pin.specifier),)
        )

    def divided(self, package: str, version: str) -> bool:
        """Whether one file pins a release before `version` and another one that release or a later one."""
        lowers = [_bounds(pin.specifier).lower for pin in self._deciding(package) if pin.exact]
        sides = {lower >= _version(version) for lower in lowers if lower is not None}
        return len(sides) > 1

    def span(self, package: str) -> str:
        """All that the project admits, as "torch==1.6 (Dockerfile:3) to 1.13.1 (docker/Dockerfile:9)"; the Python or the
        import that bounds it, as "python=3.7 (README.md:13), which has torch up to 1.13.1"; "" where nothing is known.
        """
        cap = self._cap(package)
        if cap is not None:
            return cap_in_words(cap)
        exact = [pin for pin in self._deciding(package) if pin.exact]
        lows = [(low, pin) for pin in exact if (low := _bounds(pin.specifier).lower) is not None]
        if len({low for low, _ in lows}) < 2:
            return self.describe(package)
        newest_pin = max(lows, key=lambda entry: entry[0])[1]
        newest = newest_pin.specifier.lstrip("=")
        return f"{self.describe(package)} to {newest} ({newest_pin.path}:{newest_pin.line})"

    def _is_capped_below(self, package: str, wanted: Version) -> bool:
        cap = self._cap(package)
        newest = None if cap is None else _bounds(cap.specifier).upper
        return newest is not None and newest < wanted

    def _cap(self, package: str) -> Pin | None:
        """What the Python or the imports of the project admit at most; None where pins decide, or say that another Python is meant."""
        cap = self.caps.get(package)
        if cap is None:
            return None
        newest = _bounds(cap.specifier).upper
        for pin in self._deciding(package):
            bounds = _bounds(pin.specifier)
            if pin.exact or (newest is not None and bounds.lower is not None and bounds.lower > newest):
                return None
            if newest is not None and bounds.upper is not None and bounds.upper <= newest:
                return None
        return cap

    def describe(self, package: str) -> str:
        """The pin that decides, as "torch>=2.1 (pyproject.toml:12)"; "torch 2.1 (README.md:9)" where a README names it as one that works;
        "" where nothing is known.
        """
        pins = self._deciding(package)
        if not pins:
            return ""
        lows = [(low, pin) for pin in pins if (low := _bounds(pin.specifier).lower) is not None]
        pin = min(lows, key=lambda entry: entry[0])[1] if len(lows) == len(pins) else pins[0]
        version = f" {pin.specifier.lstrip('>=')}" if pin.named else pin.specifier
        return f"{pin.package}{version} ({pin.path}:{pin.line})"

    def only_named(self, package: str) -> bool:
        """Is all that is known of its version that a README names one that works?"""
        return any(pin.named for pin in self._deciding(package))

    def _deciding(self, package: str) -> list[Pin]:
        names = (package, *(old for old, new in RENAMED.items() if new == package))
        pins = [
            pin for name in names for pin in self.pins.get(name, ()) if _bounds(pin.specifier).says_something
        ]
        exact = [pin for pin in pins if pin.exact]
        ranges = [pin for pin in pins if not (pin.exact or pin.named)]
        if exact and ranges and all(_excludes_all(pin, exact) for pin in ranges):
            return [pin for pin in pins if not pin.exact]  # an image of another time than the requirements
        return exact or pins


def _excludes_all(bound: Pin, exact: Sequence[Pin]) -> bool:
    """Does the range begin above each of the exact versions?"""
    least = _bounds(bound.specifier).lower
    lowers = [_bounds(pin.specifier).lower for pin in exact]
    return least is not None and all(low is not None and low < least for low in lowers)


def cap_in_words(cap: Pin) -> str:
    """What bounds the newest version of a package, and at which: "python=3.7 (README.md:13), which has torch up to 1.13.1"."""
    newest = cap.specifier.removeprefix("<=")
    if cap.removed:
        return f"{cap.removed} ({cap.path}:{cap.line}), which exists up to {cap.package} {newest}"
    if cap.refused:
        return f"{cap.refused} ({cap.path}:{cap.line}), which works up to {cap.package} {newest}"
    return f"{cap.python} ({cap.path}:{cap.line}), which has {cap.package} up to {newest}"


_BUILD = re.compile(r"\+cu(\d{1,2})(\d)$")  # `+cu92`, `+cu118`
NO_FACTS = ProjectFacts()


def read_facts(files: Mapping[str, bytes]) -> ProjectFacts:
    """Pins of the packages in `PACKAGES`, and the line length, from files by their path from the root of the repository.

    Reads those named in FACT_FILES and the requirements files they include; a README where nothing else names a torch. Never raises: what cannot be read
    is listed in `unread`.
    """
    pins: set[Pin] = set()
    optional_pins: set[Pin] = set()
    unread: list[str] = []
    seen: set[str] = set()
    includes: dict[str, list[str]] = {}
    plain: set[str] = set()
    # A stack: what an optional file includes is read last, and as optional too.
    waiting = [(path in _OPTIONAL_REQUIREMENTS, path) for path in files if path in _READERS]
    waiting.sort(reverse=True)
    while waiting:
        optional, path = waiting.pop()
        if path in seen:
            continue
        seen.add(path)
        try:
            reading = Reading(path, (_locked_text if path in _MACHINE_WRITTEN else _text)(files[path]))
            reading.optional = optional
            _READERS.get(path, readers.requirements)(reading)
        except (RecursionError, MemoryError):
            unread.append(f"{path}: nested too deeply")
            continue
        except ValueError as error:
            unread.append(f"{path}: {_printable(str(error))}")
            continue
        pins.update(reading.pins)
        optional_pins.update(reading.optional_pins)
        unread += [f"{path}: {reason}" for reason in reading.unread]
        if path not in _CONDA + _LOCKS and not _OTHER_BUILD.search(reading.text):
            plain.add(path)
        for include in reading.includes:
            target = posixpath.normpath(posixpath.join(posixpath.dirname(path), include))
            includes.setdefault(target, []).append(path)
            if target in files:
                waiting.append((optional, target))
    bringing = {pin.path for pin in pins if pin.package in _NEED_TORCH} & plain
    for _ in includes:
        bringing |= {above for path in bringing for above in includes.get(path, ()) if above in plain}
    settled = {pin.package for pin in pins if pin.specifier}
    pins.update(pin for pin in optional_pins if pin.package not in settled)
    ordered = sorted(pins, key=lambda pin: (pin.package, pin.path, pin.line, pin.specifier))
    by_package = {name: tuple(group) for name, group in itertools.groupby(ordered, lambda pin: pin.package)}
    found = ProjectFacts(
        by_package, tuple(sorted(unread)), line_length(files), with_torch=frozenset(bringing)
    )
    return with_readme(found, files)


def with_readme(facts: ProjectFacts, files: Mapping[str, bytes]) -> ProjectFacts:
    """The facts, with the torch and the CUDA that the README at the root names where nothing else does."""
    found = [None if facts.known("torch") else torch_of(files), None if facts.known(CUDA) else cuda_of(files)]
    stated = {pin.package: (pin,) for pin in found if pin is not None}
    return dataclasses.replace(facts, pins={**facts.pins, **stated}) if stated else facts


def _locked_text(data: bytes) -> str:
    return _decode(data, MAX_LOCK_BYTES)


def _text(data: bytes) -> str:
    text = _decode(data, MAX_BYTES)
    for number, line in enumerate(text.split("\n"), start=1):
        if len(line) > MAX_LINE:
            raise ValueError(f"line {number} has more than {MAX_LINE:,} characters")
    return text


def _decode(data: bytes, limit: int) -> str:
    if len(data) > limit:
        raise ValueError(f"larger than {limit // 1000} kB")
    # `pip freeze > requirements.txt` in PowerShell writes UTF-16.
    encoding = "utf-16" if data.startswith((b"\xff\xfe", b"\xfe\xff")) else "utf-8-sig"
    try:
        return data.decode(encoding)
    except UnicodeDecodeError:
        raise ValueError("not UTF-8") from None


def _printable(text: str) -> str:
    return "".join(c if c.isprintable() else "?" for c in text[:160])


@dataclass(frozen=True, slots=True)
class _Bounds:
    """The lowest version a specifier admits, and the lowest one above which it admits none."""

    lower: Version | None = None
    upper: Version | None = None

    @property
    def says_something(self) -> bool:
        return self.lower is not None or self.upper is not None


@functools.lru_cache(maxsize=256)
def _version(text: str) -> Version:
    from packaging.version import Version

    return Version(Version(text).base_version)


@functools.lru_cache(maxsize=1024)
def _bounds(specifier: str) -> _Bounds:
    from packaging.specifiers import SpecifierSet

    lower: list[Version] = []
    upper: list[Version] = []
    try:
        for clause in SpecifierSet(specifier):
            version = _version(clause.version.removesuffix(".*"))
            if clause.operator in ("==", "===", "~=", ">=", ">"):
                lower.append(version)
            elif clause.operator in ("<", "<="):
                upper.append(version)
    except ValueError:  # `===` takes any text for a version
        return _Bounds()
    return _Bounds(max(lower, default=None), min(upper, default=None))
