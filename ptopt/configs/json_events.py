"""JSON as events: `json` says whether it is JSON, and a pattern finds where its parts stand."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

from ptopt.configs.compose import Event, RefusedError

_TOKEN = re.compile(r'[{}\[\]]|"(?:[^"\\]|\\.)*"|[^\s,:{}\[\]"]+')


def json_events(text: str) -> Iterator[Event]:
    """The events of a JSON text. Raises RefusedError for what is not JSON."""
    try:
        json.loads(text)
    except json.JSONDecodeError as error:
        raise RefusedError(f"not JSON: {error.msg}", error.pos) from None
    except RecursionError:
        raise RefusedError("nested too deeply") from None
    except ValueError as error:
        raise RefusedError(f"not JSON: {error}") from None
    for match in _TOKEN.finditer(text):
        part, start, end = match[0], match.start(), match.end()
        if part in "[{":
            yield Event(part, start, end, flow=True)
        elif part in "]}":
            yield Event("end", start, end)
        else:
            value = json.loads(part)
            yield Event("scalar", start, end, value, value if part[0] == '"' else part)
