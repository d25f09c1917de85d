"""Gitignore-style globs over repository paths, for patterns and paths that may be hostile.

A glob library that turns the whole pattern into one regular expression backtracks over `**` and `*`, and a
pull request that brings its own configuration could then hold the reviewer for hours. Here each path component is
matched on its own (`fnmatch` builds expressions that do not backtrack), and `**` walks a set of positions,
so that a match costs at most (components of the glob) x (characters of the path) steps.
"""

from __future__ import annotations

import fnmatch
import functools
import re
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Glob:
    """A parsed glob. `segments` holds one pattern per path component; None stands for `**`."""

    segments: tuple[re.Pattern[str] | None, ...]
    folders_only: bool

    def matches(self, path: str) -> bool:
        """Whether `path` (relative to the repository root, with `/`), or a folder it lies in, matches."""
        parts = path.split("/")
        positions = self._past_stars({0})
        for index, part in enumerate(parts):
            reached = set()
            for position in positions:
                segment = self.segments[position]
                if segment is None:
                    reached.add(position)
                elif segment.match(part):
                    reached.add(position + 1)
            positions = self._past_stars(reached)
            if len(self.segments) in positions:
                inside_folder = index < len(parts) - 1
                if inside_folder or not self.folders_only:
                    return True
                positions.discard(len(self.segments))
        return False

    def _past_stars(self, positions: set[int]) -> set[int]:
        # `**` may stand for no component at all; the last segment is never `**`, so this stays in range.
        for position in sorted(positions):
            after = position
            while after < len(self.segments) and self.segments[after] is None:
                after += 1
                positions.add(after)
        return positions


@functools.lru_cache(maxsize=1024)
def parse_glob(text: str) -> Glob:
    """Parse one line of gitignore syntax, without negation and backslashes.

    A glob without `/` (but for one at the end) matches at any depth, any other from the repository root; `/` at the
    end matches folders only. ValueError says what is wrong with the glob.
    """
    if text.startswith("!"):
        raise ValueError("a glob cannot start with `!`, use `include` for that")
    if "\\" in text:
        raise ValueError("separate folders with `/`, and write `[*]` for a literal star")
    folders_only = text.endswith("/")
    body = text.removesuffix("/")
    names = body.removeprefix("/").split("/")
    if any(name in ("", ".", "..") for name in names):
        raise ValueError("give a path below the repository root, without empty, `.` or `..` parts")
    if "/" not in body:
        names.insert(0, "**")
    if names[-1] == "**":
        names[-1] = "*"  # a match of the folder takes in all that lies below it
    return Glob(tuple(None if name == "**" else _segment(name) for name in names), folders_only)


def _segment(name: str) -> re.Pattern[str]:
    try:
        return re.compile(fnmatch.translate(name.replace("[^", "[!")))
    except re.error:  # a range such as [z-a], on early patch releases of Python 3.10
        raise ValueError("the range in brackets is empty") from None
