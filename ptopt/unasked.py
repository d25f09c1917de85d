"""Files on which no rule has a question: they are clean, or do not parse, which is said while that costs little."""

from __future__ import annotations

from ptopt.file_result import FileResult
from ptopt.findings import NotReviewed
from ptopt.source.decode import parse_python
from ptopt.syntax import ParseError

# How much is parsed of them, only to name those that do not parse.
UNASKED_BYTES = 500_000


class Unasked:
    """What is said of such files, asked for one after the other."""

    def __init__(self) -> None:
        self._left = UNASKED_BYTES

    def __call__(self, path: str, head: bytes) -> FileResult:
        if len(head) <= self._left:
            self._left -= len(head)
            try:
                parse_python(path, head)
            except ParseError as error:
                return FileResult.skipped(NotReviewed(path, str(error), error.syntax))
        return FileResult(path)


class Deferred(Unasked):
    """Notes them, for a caller that has the files before these, too, and so knows what is left."""

    def __init__(self) -> None:
        super().__init__()
        self.paths: set[str] = set()

    def __call__(self, path: str, head: bytes) -> FileResult:
        self.paths.add(path)
        return FileResult(path)
