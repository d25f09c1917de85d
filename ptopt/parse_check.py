"""Files on which no rule has a question: they are clean, or do not parse, which is reported while that costs little."""

from __future__ import annotations

from ptopt.file_result import FileResult
from ptopt.findings import NotReviewed
from ptopt.source.decode import parse_python
from ptopt.syntax import ParseError

MOST_BYTES = 500_000  # of such files that are parsed in one review


class ParseCheck:
    """The results of such files, one after the other, until `MOST_BYTES` are parsed."""

    def __init__(self) -> None:
        self._left = MOST_BYTES

    def __call__(self, path: str, head: bytes) -> FileResult:
        if len(head) <= self._left:
            self._left -= len(head)
            try:
                parse_python(path, head)
            except ParseError as error:
                return FileResult.skipped(NotReviewed(path, str(error), error.syntax))
        return FileResult(path)
