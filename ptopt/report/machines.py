"""The machines that gains were measured on, each named once below the text that refers to it by number."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

from ptopt.address import rule_of_page
from ptopt.findings import Finding, Impact


class Machines:
    """Numbers them in the order in which a report comes to them.

    `commands`: a command stands in place of the link to a page of ours, which is longer than a line of many terminals.
    """

    def __init__(self, *, commands: bool = False) -> None:
        self._commands = commands
        self._numbers: dict[str, int] = {}

    def short(self, impact: Impact) -> Impact:
        """The gain with a number in place of its machine."""
        machine, separator, sizes = impact.conditions.partition("; ")
        if impact.provenance != "measured" or not separator:
            return impact
        number = self._numbers.setdefault(machine, len(self._numbers) + 1)
        rule = rule_of_page(impact.source) if self._commands else ""
        source = f"`ptopt explain {rule}`" if rule else impact.source
        return dataclasses.replace(impact, provenance=f"measured [{number}]", conditions=sizes, source=source)

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
