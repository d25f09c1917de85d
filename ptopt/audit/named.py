"""Where the code that runs names things: looked up when somebody asks, as most things nobody asks for."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import Generic, TypeVar

from ptopt.audit.summaries import Site, Summary

K = TypeVar("K")


class Named(Generic[K]):
    """Places by what is named there: a definition, or an attribute."""

    def __init__(
        self, naming: Mapping[K, list[Summary]], sites: Callable[[Summary, K], list[Site]], places: dict[Summary, int]
    ) -> None:  # fmt: skip
        self._naming, self._sites, self._places = naming, sites, places
        self.more: defaultdict[K, list[tuple[float, Site]]] = defaultdict(list)
        """What is found in another way, each with its place among the units."""
        self._known: dict[K, tuple[tuple[int, int], list[Site]]] = {}

    def get(self, key: K) -> list[Site]:
        more = self.more.get(key, ())
        state = len(self._places), len(more)  # both only grow
        known = self._known.get(key)
        if known is None or known[0] != state:
            places, sites = self._places, self._sites
            found: list[tuple[float, Site]] = [
                (places[unit], site)
                for unit in self._naming.get(key, ())
                if unit in places
                for site in sites(unit, key)
            ]
            found += more
            found.sort(key=_place)
            known = self._known[key] = state, [site for _, site in found]
        return known[1]

    def __contains__(self, key: K) -> bool:
        return bool(self.get(key))


def _place(found: tuple[float, Site]) -> float:
    return found[0]
