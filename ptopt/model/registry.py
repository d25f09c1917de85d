"""Adapters by the hash of their content, and which of them the reviews use.

    adapters/<hash>/        an adapter folder as a recipe wrote it; never changed
    champion, challenger    links to one of these, each moved in one step
    history.jsonl           one line an event; a promotion is logged here before its link moves

A folder on a shared volume is the whole of it: a worker reads a link, and needs no database and no MLflow. The run that
trained an adapter is in MLflow; its card may name it. Every change is made under a lock of the file system.
"""

from __future__ import annotations

import dataclasses
import fcntl
import json
import os
import re
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timezone
from enum import Enum
from pathlib import Path
from typing import Any, Literal

from ptopt.model.adapter_folder import (
    RegistryError,
    check_folder,
    content_hash,
    files_of,
    read_card,
    why_unusable,
)

CHAMPION, CHALLENGER = "champion", "challenger"
ALIASES = (CHAMPION, CHALLENGER)
_HASH = re.compile(r"[0-9a-f]{64}")
_MIN_PREFIX = 6  # characters of a hash that name an adapter
_INCOMING = ".incoming-"


class CorruptError(RegistryError):
    """The content of the registry is not what was added."""


class State(str, Enum):
    """The stage of an adapter."""

    CANDIDATE = "candidate"  # never used
    CANARY = "canary"  # the challenger
    ACTIVE = "active"  # the champion
    RETIRED = "retired"  # it was one of these


@dataclass(frozen=True, slots=True)
class Event:
    """A line of the history. `hash` is what the alias stands for afterwards, "" for nothing."""

    at: str
    action: Literal["add", "promote", "rollback"]
    hash: str
    alias: str = ""
    forced: bool = False


@dataclass(frozen=True, slots=True)
class Entry:
    """An adapter of the registry."""

    hash: str
    state: State
    aliases: tuple[str, ...]
    card: Mapping[str, Any]
    problem: str = ""  # why it may not be promoted


class Registry:
    """The registry in a folder, which is made when the first adapter comes."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    # Reading: no lock, and nothing is written.

    def target(self, alias: str) -> str | None:
        """The hash that the alias stands for now. Cheap: it reads one link."""
        try:
            name = Path(os.readlink(self.folder / _checked(alias))).name
        except FileNotFoundError:
            return None
        except OSError:
            raise CorruptError(f"{self.folder / alias} is no link to an adapter") from None
        if not _HASH.fullmatch(name):
            raise CorruptError(f"{self.folder / alias} is no link to an adapter")
        return name

    def resolve(self, alias: str) -> Path | None:
        """The adapter folder that the alias stands for, verified; None while it is unset."""
        hash_ = self.target(alias)
        return None if hash_ is None else self.verified(hash_)

    def verified(self, hash_: str) -> Path:
        """The folder of an adapter, all files of which were read and found to be what was added."""
        folder = self._folder_of(hash_)
        if content_hash(folder) != hash_:
            raise CorruptError(f"{folder} was changed since it was added: its content has another hash")
        return folder

    def entries(self, *, verify: bool = True) -> list[Entry]:
        """All adapters, in the order they were added. Without `verify` their content is not read to its end."""
        history = self.history()
        try:
            found = {f.name for f in (self.folder / "adapters").iterdir() if _HASH.fullmatch(f.name)}
        except FileNotFoundError:
            return []
        added = dict.fromkeys(
            event.hash for event in history if event.action == "add" and event.hash in found
        )
        return [self._entry(hash_, history, verify) for hash_ in (*added, *sorted(found - added.keys()))]

    def show(self, name: str) -> Entry:
        """The adapter of this alias, hash, or beginning of a hash."""
        return self._entry(self.find(name), self.history())

    def find(self, name: str) -> str:
        """The hash of the adapter of this alias, hash, or beginning of a hash."""
        if name in ALIASES:
            target = self.target(name)
            if target is None:
                raise RegistryError(f"there is no {name}")
            return target
        if len(name) < _MIN_PREFIX:
            raise RegistryError(f"{name!r} is too short for a hash: {_MIN_PREFIX} characters are needed")
        everything = [f.name for f in (self.folder / "adapters").glob("*") if _HASH.fullmatch(f.name)]
        found = [hash_ for hash_ in everything if hash_.startswith(name)]
        if len(found) != 1:
            how_many = f"{len(found)} adapters have" if found else "no adapter has"
            raise RegistryError(f"{how_many} a hash that begins with {name!r}")
        return found[0]

    def history(self) -> list[Event]:
        """The events, oldest first. A last line without a line end, from a crash, does not count."""
        try:
            data = (self.folder / "history.jsonl").read_bytes()
        except FileNotFoundError:
            return []
        events = []
        for number, line in enumerate(data.split(b"\n")[:-1], 1):
            try:
                events.append(Event(**json.loads(line)))
            except (ValueError, TypeError):
                raise CorruptError(f"{self.folder / 'history.jsonl'}: line {number} cannot be read") from None
        return events

    # Changes.

    def add(self, folder: Path) -> str:
        """Copy an adapter folder into the registry; its hash. Adding the same once more changes nothing."""
        check_folder(folder)
        with self._locked():
            adapters = self.folder / "adapters"
            incoming = Path(tempfile.mkdtemp(prefix=_INCOMING, dir=adapters))
            copy = incoming / "adapter"
            shutil.copytree(folder, copy, symlinks=True)
            check_folder(copy)  # what is kept is what was checked
            hash_ = content_hash(copy)
            if (adapters / hash_).exists():
                self.verified(hash_)
                shutil.rmtree(incoming)
            else:
                _make_durable(copy)
                os.rename(copy, adapters / hash_)
                incoming.rmdir()
                _sync(adapters)
            if not any(event.action == "add" and event.hash == hash_ for event in self.history()):
                self._log(Event(_now(), "add", hash_))
        return hash_

    def promote(self, name: str, alias: str, *, force: bool = False) -> Event | None:
        """Let the alias stand for this adapter; None when it did already.

        Refused with the reason when this version of ptopt cannot use the adapter, unless forced. A corrupt one is
        always refused.
        """
        _checked(alias)
        with self._locked():
            hash_ = self.find(name)
            self._check_usable(hash_, force)
            if self.target(alias) == hash_:
                return None
            return self._move(Event(_now(), "promote", hash_, alias, force))

    def rollback(self, alias: str, *, force: bool = False) -> Event:
        """Take the last promotion back that was not taken back yet.

        The alias then stands for what it stood for before; before the first promotion that is nothing.
        """
        with self._locked():
            stack = _stack(self.history(), _checked(alias))
            if not stack:
                raise RegistryError(f"there is no {alias} to roll back")
            before = stack[-2] if len(stack) > 1 else ""
            if before:
                self._check_usable(before, force)
            return self._move(Event(_now(), "rollback", before, alias, force))

    def _move(self, event: Event) -> Event:
        """The history first: after a crash in between, the next change moves the link."""
        self._log(event)
        self._link(event.alias, event.hash)
        return event

    def _link(self, alias: str, hash_: str) -> None:
        link = self.folder / alias
        if hash_:
            new = self.folder / f"{_INCOMING}{alias}"
            new.unlink(missing_ok=True)
            new.symlink_to(Path("adapters", hash_))
            os.replace(new, link)
        else:
            link.unlink(missing_ok=True)
        _sync(self.folder)

    def _log(self, event: Event) -> None:
        path = self.folder / "history.jsonl"
        line = json.dumps(dataclasses.asdict(event), sort_keys=True).encode() + b"\n"
        with path.open("a+b") as file:
            file.seek(0)
            file.truncate(file.read().rfind(b"\n") + 1)  # a crash may have cut off the last line
            file.write(line)
            file.flush()
            os.fsync(file.fileno())
        _sync(self.folder)

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Exclusive, for all machines that share the folder. Repairs first what a crash left incomplete."""
        (self.folder / "adapters").mkdir(parents=True, exist_ok=True)
        with (self.folder / ".lock").open("a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # given back when the process ends, however it ends
            for left in (self.folder / "adapters").glob(f"{_INCOMING}*"):
                shutil.rmtree(left)
            history = self.history()
            for alias in ALIASES:
                wanted = _current(history, alias)
                if (self.target(alias) or "") != wanted:
                    self._link(alias, wanted)
            yield

    def _check_usable(self, hash_: str, force: bool) -> None:
        problem = why_unusable(read_card(self.verified(hash_)))
        if problem and not force:
            raise RegistryError(f"{hash_[:12]} is refused: {problem}")

    def _entry(self, hash_: str, history: list[Event], verify: bool = True) -> Entry:
        aliases = tuple(alias for alias in ALIASES if self.target(alias) == hash_)
        used = any(event.action != "add" and event.hash == hash_ for event in history)
        if CHAMPION in aliases:
            state = State.ACTIVE
        elif CHALLENGER in aliases:
            state = State.CANARY
        else:
            state = State.RETIRED if used else State.CANDIDATE
        try:
            card = read_card(self.verified(hash_) if verify else self._folder_of(hash_))
        except RegistryError as error:
            return Entry(hash_, state, aliases, {}, str(error))
        return Entry(hash_, state, aliases, card, why_unusable(card))

    def _folder_of(self, hash_: str) -> Path:
        folder = self.folder / "adapters" / hash_
        if not _HASH.fullmatch(hash_) or not folder.is_dir():
            raise RegistryError(f"there is no adapter {hash_} in {self.folder}")
        return folder


def _make_durable(folder: Path) -> None:
    """Flush to the disk, and make read-only: the name is the hash of the content."""
    for path in files_of(folder):
        path.chmod(0o444)
        _sync(path)
    for path in sorted(folder.rglob("*"), reverse=True):
        if path.is_dir():
            _sync(path)
    _sync(folder)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _stack(history: list[Event], alias: str) -> list[str]:
    """The promotions of the alias that were not taken back."""
    stack: list[str] = []
    for event in history:
        if event.alias == alias and event.action == "promote":
            stack.append(event.hash)
        elif event.alias == alias and stack:
            stack.pop()
    return stack


def _current(history: list[Event], alias: str) -> str:
    stack = _stack(history, alias)
    return stack[-1] if stack else ""


def _checked(alias: str) -> str:
    if alias not in ALIASES:
        raise RegistryError(f"{alias!r} is not an alias; the aliases are {' and '.join(ALIASES)}")
    return alias


def _now() -> str:
    return datetime.now(timezone.utc).isoformat(timespec="seconds")
