"""What the configuration files of a repository say: YAML, JSON and TOML that look like settings of a training, and lines for `configargparse`."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

from ptopt.audit.composed import Part, chosen
from ptopt.audit.values import Place
from ptopt.configs.lines import read_lines
from ptopt.configs.reading import MAX_BYTES, read_config
from ptopt.configs.values import Document, Node, Plain, Scalar
from ptopt.configs.values import Mapping as Table
from ptopt.pathkind import PYTHON, is_config_of_lines

SUFFIXES = (".yaml", ".yml", ".json", ".toml")
_OF_PACKAGING = ("pyproject.toml", "Cargo.toml", "netlify.toml")
MOST_FILES = 200
_READS_LINES = b"configargparse"
_TRAINS = re.compile(
    rb"batch_size|learning_rate|num_workers|\blr\b|epochs|max_steps|bf16|fp16|precision|_target_|target:|class_path|^defaults:",
    re.M | re.I,
)
_WHOLE = re.compile(
    r"^_?(c|cfg|config|conf|args|opts?|hparams|params|flags)$", re.I
)  # not a part of a configuration
# Files that say of themselves that they are for a run that only evaluates: `configs/test/x2.yaml`, `test_x2.yaml`.
_TESTS = re.compile(r"(^|/)(tests?|testing|inference|infer)([-_.][^/]*)?(/|$)", re.I)
_CLASS = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*\.[A-Z]\w*$")
_TARGETS = ("_target_", "target", "class_path", "_component_")
# Where the arguments of a class stand, from the part that names it.
_ARGUMENTS: tuple[tuple[str, ...], ...] = ((), ("init_args",), ("params",))
_TRAINER = ("per_device_train_batch_size", "output_dir", "num_train_epochs")
_DEEPEST = 12


@dataclass(frozen=True, slots=True)
class Setting:
    """One value in one file, with the keys that lead to it."""

    keys: tuple[str, ...]
    value: Plain
    place: Place


Read = dict[str, list[Setting]]  # the settings of files


class Configured:
    """The settings of the files near one script. `read` holds what other scripts read, by path."""

    def __init__(
        self, files: Mapping[str, Document], script: str, parts: list[Part] | None = None, read: Read | None = None
    ) -> None:  # fmt: skip
        self._files = files
        self._script = script
        self._read = {} if read is None else read
        self._composed = parts  # the files of the default run, where Hydra chooses them

    @cached_property
    def _near(self) -> dict[str, Document]:
        """Those of the nearest folder above the script that has any below it; without those of tests where others are left."""
        folder = self._script.rpartition("/")[0]
        while True:
            found = {p: d for p, d in self._files.items() if not folder or p.startswith(f"{folder}/")}
            if found or not folder:
                return {p: d for p, d in found.items() if not _TESTS.search(p[len(folder) :])} or found
            folder = folder.rpartition("/")[0]

    @cached_property
    def _by_key(self) -> dict[str, list[Setting]]:
        table: dict[str, list[Setting]] = {}
        for setting in self._all:
            table.setdefault(setting.keys[-1], []).append(setting)
        return table

    @cached_property
    def _all(self) -> list[Setting]:
        if self._composed is not None:
            last: dict[tuple[str, ...], Setting] = {}
            for package, path, document in self._composed:
                for root in document.roots:
                    last |= {s.keys: s for s in _settings(path, document, root, package)}
            return list(last.values())
        return [setting for path in self._near for setting in self._of_file(path)]

    def _of_file(self, path: str) -> list[Setting]:
        """All settings of one file."""
        if path not in self._read:
            document = self._files[path]
            self._read[path] = [s for root in document.roots for s in _settings(path, document, root, ())]
        return self._read[path]

    @cached_property
    def targets(self) -> list[Setting]:
        """The classes and functions that the settings name: `_target_: package.Class`."""
        return [
            setting
            for key in _TARGETS
            for setting in self._by_key.get(key, [])
            if isinstance(setting.value, str) and "." in setting.value
        ]

    @cached_property
    def classes(self) -> list[str]:
        """What may be the dotted name of a class, whatever its key: `path: package.module.Class`."""
        named = (s.value for s in self._all if isinstance(s.value, str) and _CLASS.match(s.value))
        return list(dict.fromkeys(named))

    @property
    def is_composed(self) -> bool:
        return self._composed is not None

    def of(self, keys: tuple[str, ...]) -> list[Setting]:
        """The settings of this name; those under the same keys where there are any."""
        found = self._by_key.get(keys[-1], [])
        exact = [s for s in found if len(keys) > 1 and s.keys[-2:] == keys[-2:]]
        return exact or found

    def beside(self, target: Setting, name: str) -> list[Setting]:
        """The settings of this name in the part that has `target`; where no part is around it, in its file."""
        if len(target.keys) > 1:
            return self.under((*target.keys[:-1], name)) or []
        return [
            s for s in self._by_key.get(name, []) if len(s.keys) == 1 and s.place.path == target.place.path
        ]

    def given_to(self, cls: str, name: str) -> list[Setting]:
        """What the settings that make an object of a class give its `__init__` by a name: beside `_target_`, or below `init_args`."""
        made = [target for target in self.targets if str(target.value).rpartition(".")[2] == cls]
        return [
            setting
            for target in made
            for setting in self._by_key.get(name, [])
            if setting.place.path == target.place.path or self.is_composed
            if setting.keys[:-1] in {(*target.keys[:-1], *part) for part in _ARGUMENTS}
        ]

    def under(self, keys: tuple[str, ...]) -> list[Setting] | None:
        """The settings of this name in the part that is named before it; None where no file has such a part."""
        found = [s for s in self._by_key.get(keys[-1], []) if s.keys[-2:] == keys[-2:]]
        return found if found or keys[-2] in self._parts else None

    def exactly(self, path: tuple[str, ...]) -> list[Setting]:
        """The setting of the composed configuration at `path`, as in `keys_below`."""
        if self._composed is None or len(path) < 2 or not _WHOLE.match(path[0]):
            return []
        return [s for s in self._by_key.get(path[-1], []) if s.keys == path[1:]]

    def keys_below(self, path: tuple[str, ...]) -> tuple[str, ...]:
        """The keys of a part of the composed configuration, `path` from its root without the name of that; none where it has no such part."""
        if self._composed is None or len(path) < 2 or not _WHOLE.match(path[0]):
            return ()
        above = path[1:]
        found = [s.keys for s in self._all if s.keys[: len(above)] == above and len(s.keys) > len(above)]
        return tuple(dict.fromkeys(keys[len(above)] for keys in found))

    @cached_property
    def _parts(self) -> frozenset[str]:
        return frozenset(key for settings in self._by_key.values() for s in settings for key in s.keys[-2:-1])

    def near(self) -> tuple[str, ...]:
        """The paths of the files that may configure the script."""
        return tuple(self._near)

    def path_of(self, text: str) -> str | None:
        """The file that a command names, from whatever folder."""
        ending = "/" + text.lstrip("./")
        found = [path for path in self._files if f"/{path}".endswith(ending)] if len(ending) > 1 else []
        return min(found, key=len) if found else None

    def within(self, path: str, keys: tuple[str, ...], anywhere: bool = False) -> list[Setting]:
        """The settings under these keys in one file: the last two of them, or one at its top; of the last `anywhere`."""
        return [
            s for s in self._of_file(path) if (s.keys[-1] == keys[-1] if anywhere else _is_under(s, keys))
        ]

    def common(self, keys: tuple[str, ...]) -> list[Setting]:
        """The settings under these keys, where every file of the folders that hold one has it; else none."""
        found = [s for s in self._by_key.get(keys[-1], []) if _is_under(s, keys)]
        paths = {s.place.path for s in found}
        folders = {path.rpartition("/")[0] for path in paths}
        beside = {path for path in self._near if path.rpartition("/")[0] in folders}
        return found if paths == beside else []

    def of_trainer(self, name: str) -> tuple[list[Setting], int]:
        """The settings of an argument of transformers, and how many files hold such arguments."""
        found = [
            s for s in self._by_key.get(name, []) if len(s.keys) == 1 and s.place.path in self._of_trainers
        ]
        return found, len(self._of_trainers)

    @cached_property
    def _of_trainers(self) -> frozenset[str]:
        """The files that hold arguments of transformers."""
        return frozenset(
            path
            for path, document in self._near.items()
            if any(
                isinstance(root, Table) and any(key in root for key in _TRAINER) for root in document.roots
            )
        )


def read_all(files: Mapping[str, bytes]) -> dict[str, Document]:
    """The configuration files that look like settings of a training, as many as are read."""
    found: dict[str, Document] = {}
    of_lines = [path for path in files if is_config_of_lines(path)]
    if of_lines and not any(path.endswith(PYTHON) and _READS_LINES in data for path, data in files.items()):
        of_lines = []
    for path in sorted(files):
        data, has_lines = files[path], path in of_lines
        if not (path.endswith(SUFFIXES) or has_lines) or len(data) > MAX_BYTES:
            continue
        if path.rpartition("/")[2] in _OF_PACKAGING or not (has_lines or _TRAINS.search(data)):
            continue
        document = read_lines(data) if has_lines else read_config(path, data)
        if isinstance(document, Document):
            found[path] = document
        if len(found) >= MOST_FILES:
            break
    return found | _chosen(files, found)


def _chosen(files: Mapping[str, bytes], found: Mapping[str, Document]) -> dict[str, Document]:
    """The other files that lists of defaults choose: small ones, such as that of a data set, need not look like settings of a training."""
    more: dict[str, Document] = {}
    waiting = list(found.items())
    while waiting and len(more) < MOST_FILES:
        for path in chosen(*waiting.pop()):
            if path in found or path in more or not path.endswith(SUFFIXES) or path not in files:
                continue
            document = read_config(path, files[path]) if len(files[path]) <= MAX_BYTES else None
            if isinstance(document, Document):
                more[path] = document
                waiting.append((path, document))
    return more


def _is_under(setting: Setting, keys: tuple[str, ...]) -> bool:
    wanted = keys[1:] if len(keys) > 1 and _WHOLE.match(keys[0]) else keys
    return setting.keys == wanted if len(wanted) == 1 else setting.keys[-len(wanted) :] == wanted


def _settings(path: str, document: Document, node: Node, keys: tuple[str, ...]) -> Iterator[Setting]:
    if not isinstance(node, Table) or len(keys) > _DEEPEST:
        return
    for entry in node:
        inner = (*keys, entry.key.text)
        if isinstance(entry.value, Scalar):
            yield Setting(inner, entry.value.value, Place(path, document.line(entry.key.start)))
        else:
            yield from _settings(path, document, entry.value, inner)
