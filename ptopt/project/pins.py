"""What a project says about the version of one package, in each notation in which it may say it."""

from __future__ import annotations

import re
from dataclasses import dataclass

CUDA = "cudatoolkit"  # as conda has it
_HUGGING_FACE = ("accelerate", "datasets", "peft", "transformers", "trl")
PACKAGES = frozenset(
    ("torch", "torchvision", "lightning", "pytorch-lightning", "numpy", CUDA, *_HUGGING_FACE)
)
RENAMED = {"pytorch-lightning": "lightning"}  # old name -> new name of a package whose versions go on

_LONGEST = 200  # characters of a specifier; what is longer would only be a burden to read
_LONGEST_REQUIREMENT = 2_000  # characters, markers included
# Far more than any project has of the few packages of interest, and few enough that a search through the file for each
# costs nothing.
_MOST = 1_000


@dataclass(frozen=True, slots=True)
class Pin:
    """What one line of the project says about the version of one package."""

    package: str  # normalised name
    specifier: str  # a PEP 440 specifier set, "" when any version will do
    exact: bool  # one version, as in a lock file
    path: str
    line: int
    python: str = ""  # "python=3.7", where the Python of the project bounds the version
    removed: str = ""  # "`torch._six`", where an import that newer versions lack bounds it
    refused: str = ""  # "`loss.data[0]`", where newer versions refuse what the code does
    named: bool = False  # a README names it as one that works: others are not excluded


class Reading:
    """The pins of one file as they are found, and the lines that could not be understood."""

    def __init__(self, path: str, text: str) -> None:
        self.path = path
        self.text = text
        self.pins: list[Pin] = []
        self.optional_pins: list[Pin] = []  # of extras, development and test groups
        self.optional = False  # whether such a group is being read
        self.unread: list[str] = []
        self.includes: list[str] = []  # other requirements files it names, as written
        self._entries = 0

    def line_of(self, *needles: str) -> int:
        """First line that holds one of `needles`, tried in order; 1 when none does."""
        for needle in needles:
            at = self.text.find(needle)
            if at >= 0:
                return self.text.count("\n", 0, at) + 1
        return 1

    def line_of_string(self, value: str) -> int:
        return self.line_of(f'"{value}"', f"'{value}'", value)

    def count_entry(self) -> None:
        """One more entry on a package of interest. Raises ValueError for more than any project has."""
        self._entries += 1
        if self._entries > _MOST:
            raise ValueError(f"more than {_MOST:,} entries on packages of interest")

    def add(self, package: str, specifier: str, line: int) -> None:
        """Keep a pin on a package of interest. `specifier` is PEP 440; "*" and "" stand for any version."""
        from packaging.specifiers import SpecifierSet

        name = re.sub(r"[-_.]+", "-", package).lower()
        if name == _ALSO_TORCH and "1.0.2" not in specifier:
            name = "torch"
        if name not in PACKAGES:
            return
        self.count_entry()
        try:
            if len(specifier) > _LONGEST:
                raise ValueError
            parsed = SpecifierSet("" if specifier.strip() == "*" else specifier)
        except ValueError:
            self.unread.append(f"the version of {name} is not understood (line {line})")
            return
        exact = any(s.operator in ("==", "===") and not s.version.endswith(".*") for s in parsed)
        pins = self.optional_pins if self.optional else self.pins
        pins.append(Pin(name, str(parsed), exact, self.path, line))

    def add_requirement(self, requirement: str, line: int) -> None:
        """Keep a PEP 508 requirement, unless its marker does not hold on Linux with a current Python."""
        if not OF_INTEREST.match(requirement):
            return
        from packaging.requirements import Requirement

        self.count_entry()
        try:
            if len(requirement) > _LONGEST_REQUIREMENT:
                raise ValueError
            parsed = Requirement(requirement)
        except ValueError:
            self.unread.append(f"not a requirement (line {line})")
            return
        if parsed.marker and not parsed.marker.evaluate(_ENVIRONMENT):
            return
        if parsed.url:
            self.add_wheel(parsed.url, line)
        else:
            self.add(parsed.name, str(parsed.specifier), line)

    def add_wheel(self, url: str, line: int) -> None:
        wheel = _WHEEL.search(url.replace("%2B", "+").replace("%2b", "+"))
        if wheel:
            self.add(wheel[1], f"=={wheel[2]}", line)

    def add_conda(self, spec: str, line: int) -> None:
        """Keep a conda match specification: `pytorch=2.1`, `conda-forge::pytorch>=2,<3`, `pytorch 2.1.*`."""
        match = _CONDA.match(spec)
        if not match:
            return
        name, version = match[1].lower(), match[2].strip()
        single = re.fullmatch(r"(=?)\s*(\d[\w.+]*?)(?:\.?\*)?(?:[=\s].*)?", version)
        if single:
            # `=2.1` is any 2.1.x; with three parts there is one release left.
            fuzzy = single[2].count(".") < 2 and (single[1] or "*" in version)
            version = f"=={single[2]}{'.*' if fuzzy else ''}"
        self.add("torch" if name == "pytorch" else name, version.replace(" ", ""), line)


# Written for torch in many a file of requirements; the package of that name is an empty one, whose last release is 1.0.2.
_ALSO_TORCH = "pytorch"
_NAMES = "|".join(
    sorted((re.sub("-", "[-_.]", name) for name in (*PACKAGES, _ALSO_TORCH)), key=len, reverse=True)
)
OF_INTEREST = re.compile(rf"\s*(?:{_NAMES})(?![\w-]|\.\w)", re.IGNORECASE)
_WHEEL = re.compile(rf"(?:^|/)({_NAMES})-(\d[\w.+!]*)-[^/]*\.whl", re.IGNORECASE)
_CONDA = re.compile(rf"(?:[\w./-]+::)?({_NAMES})(?![\w.:-])\s*(.*)$", re.IGNORECASE)
# Fixed, so that a review says the same on every machine.
_ENVIRONMENT = {
    "implementation_name": "cpython",
    "implementation_version": "3.12.0",
    "os_name": "posix",
    "platform_machine": "x86_64",
    "platform_python_implementation": "CPython",
    "platform_release": "",
    "platform_system": "Linux",
    "platform_version": "",
    "python_full_version": "3.12.0",
    "python_version": "3.12",
    "sys_platform": "linux",
    "extra": "",
}
