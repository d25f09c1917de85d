"""Links and paths that stay whole where lines are wrapped: in two parts nobody can follow them."""

from __future__ import annotations

import re

_FILL = "\uf8ff"  # not printable, so that no text of a report holds it: see `text.visible`
_FIRST, _MOST = 0xE000, 0x1000


class Unbroken:
    """Stands in for links and paths that are longer than a line while the text is wrapped."""

    _LONG = re.compile(r"[^\s`]*/[^\s`]*")

    def __init__(self) -> None:
        self._kept: list[str] = []

    def keep(self, text: str, room: int) -> str:
        """The text, where each link or path that is longer than `room` columns has a stand-in that fills a line."""

        def stand_in(match: re.Match[str]) -> str:
            if len(match[0]) <= room or room < 1 or len(self._kept) >= _MOST:
                return match[0]
            self._kept.append(match[0])
            return chr(_FIRST + len(self._kept) - 1) + _FILL * (room - 1)

        return self._LONG.sub(stand_in, text)

    def restore(self, text: str) -> str:
        """The wrapped text with the links and paths themselves; their lines are longer than the others."""
        return re.sub(
            f"([{chr(_FIRST)}-{chr(_FIRST + _MOST - 1)}]){_FILL}*",
            lambda match: self._kept[ord(match[1]) - _FIRST],
            text,
        )
