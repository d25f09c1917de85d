"""Names of classes that texts of a repository may give to `eval`: in configurations, in commands, and quoted in the code."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from itertools import chain

from ptopt.audit.configured import SUFFIXES
from ptopt.audit.launches import SHELL, Launch
from ptopt.configs.reading import MAX_BYTES

_WORD = re.compile(rb"[A-Za-z_]\w{0,80}")
_QUOTED = re.compile(rb"[\"']([A-Za-z_]\w{0,80})[\"']")


def names_in_texts(files: Mapping[str, bytes], started: Mapping[str, Iterable[Launch]]) -> frozenset[str]:
    """Every word that could name a class to a run: over-estimated, as nobody follows which text goes where."""
    found: set[bytes] = set()
    for path, data in files.items():
        if len(data) > MAX_BYTES:
            continue
        if path.endswith((*SUFFIXES, *SHELL)):
            found.update(_WORD.findall(data))
        elif path.endswith(".py"):
            found.update(_QUOTED.findall(data))
    given = (
        str(value) for launch in chain.from_iterable(started.values()) for value in launch.options.values()
    )
    return frozenset({*(word.decode("ascii", "replace") for word in found), *given})
