"""The least that a client can do, for comparison: requests that are made beforehand, answers that are not read."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from typing import Any
from urllib.parse import urlsplit


def requests(url: str, path: str, bodies: Sequence[dict[str, Any]]) -> list[bytes]:
    host = urlsplit(url).netloc
    made = []
    for body in bodies:
        content = json.dumps(body).encode()
        head = f"POST {path} HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\nContent-Length: {len(content)}\r\n\r\n"
        made.append(head.encode() + content)
    return made


def send(url: str, made: Sequence[bytes], concurrency: int) -> None:
    """Send all, so many at once. Raises RuntimeError for an answer that is not 200."""
    asyncio.run(_send(url, made, concurrency))


async def _send(url: str, made: Sequence[bytes], concurrency: int) -> None:
    place = urlsplit(url)
    left = iter(made)

    async def one() -> None:
        reader, writer = await asyncio.open_connection(place.hostname, place.port, limit=2**20)
        for request in left:
            writer.write(request)
            head = await reader.readuntil(b"\r\n\r\n")
            if b" 200 " not in head[:20]:
                raise RuntimeError(f"the server answered {head[:40]!r}")
            length = next(
                int(line[15:]) for line in head.split(b"\r\n") if line[:15].lower() == b"content-length:"
            )
            await reader.readexactly(length)
        writer.close()

    await asyncio.gather(*(one() for _ in range(concurrency)))
