"""The machines that gains were measured on, each named once below the text that refers to it by number."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

from ptopt.findings import Finding, Impact


class Machines:
    """Numbers them in the order in which a report comes to them."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}

    def short(self, impact: Impact) -> Impact:
        """The gain with a number in place of its machine."""
        machine, separator, sizes = impact.conditions.partition("; ")
        if impact.provenance != "measured" or not separator:
            return impact
        number = self._numbers.setdefault(machine, len(self._numbers) + 1)
        return dataclasses.replace(impact, provenance=f"measured [{number}]", conditions=sizes)

    def shortened(self, finding: Finding) -> Finding:
        """The finding with a number in place of the machine of each of its gains."""
        impact = tuple(map(self.short, finding.impact))
        also = (
            dataclasses.replace(place, impact=tuple(map(self.short, place.impact))) for place in finding.also
        )
        return dataclasses.replace(finding, impact=impact, also=tuple(also))

    def lines(self) -> Iterator[str]:
        for machine, number in self._numbers.items():
            yield f"[{number}] measured on {machine}"
