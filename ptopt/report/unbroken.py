"""Links and paths that stay whole where lines are wrapped: in two parts nobody can follow them."""

from __future__ import annotations

import re

_FILL = "\uf8ff"  # not printable, so that no text of a report holds it: see `text.visible`
_FIRST, _MOST = 0xE000, 0x1000


class Unbroken:
    """Stands in for what is to stay in one piece while the text is wrapped."""

    _LONG = re.compile(r"[^\s`]+:cell \d+:\d+(?:-\d+)?[^\s`]*|[^\s`]*/[^\s`]*")

    def __init__(self) -> None:
        self._kept: list[str] = []

    def keep(self, text: str, room: int) -> str:
        """The text, where each link or path that is longer than `room` columns has a stand-in that fills a line; so has a
        place in a notebook (`demo.ipynb:cell 2:5`), of its own length.
        """

        def stand_in(match: re.Match[str]) -> str:
            splits = len(match[0]) > room or " " in match[0]
            return self.piece(match[0], room) if splits else match[0]

        return self._LONG.sub(stand_in, text)

    def piece(self, text: str, room: int) -> str:
        """What stands in for the text, spaces and all, as one word that is at most `room` columns wide."""
        if room < 1 or not text or len(self._kept) >= _MOST:
            return text
        self._kept.append(text)
        return chr(_FIRST + len(self._kept) - 1) + _FILL * (min(len(text), room) - 1)

    def restore(self, text: str) -> str:
        """The wrapped text with the links and paths themselves; their lines are longer than the others."""
        return re.sub(
            f"([{chr(_FIRST)}-{chr(_FIRST + _MOST - 1)}]){_FILL}*",
            lambda match: self._kept[ord(match[1]) - _FIRST],
            text,
        )
