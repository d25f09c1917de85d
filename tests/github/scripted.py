"""An HTTP server that misbehaves as told: for what a well-behaved server cannot do to a connection."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import ssl
import struct
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from ptopt.github.auth import TokenAuth
from ptopt.github.endpoint import Endpoint
from ptopt.github.transport import Transport

SECRET = "ghs_a-secret-of-ours"


@dataclass
class Got:
    verb: str
    target: str  # path and query
    headers: dict[str, str]  # names in lower case
    body: bytes


@dataclass
class Say:
    """An answer. `cut`: bytes of the body that are sent before the connection is closed."""

    status: int = 200
    data: Any = field(default_factory=dict)
    headers: dict[str, str] = field(default_factory=dict)
    cut: int | None = None

    def encoded(self) -> bytes:
        body = self.data if isinstance(self.data, bytes) else json.dumps(self.data).encode()
        body = b"" if self.status in (204, 304) else body
        head = [f"HTTP/1.1 {self.status} X", f"Content-Length: {len(body)}"]
        head += [f"{name}: {value}" for name, value in self.headers.items()]
        return "\r\n".join(head).encode() + b"\r\n\r\n" + body[: self.cut]


DROP, RESET, SILENCE, GARBAGE = "drop", "reset", "silence", "garbage"
Script = Callable[[Got], "Say | str"]


class Scripted:
    """`answer(request)` is what each request gets: a Say, or DROP, RESET, SILENCE, GARBAGE once it was read."""

    def __init__(self, answer: Script, *, tls: ssl.SSLContext | None = None) -> None:
        self.answer = answer
        self.got: list[Got] = []
        self._tls = tls
        self._over = threading.Event()
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.port = self._socket.getsockname()[1]
        self.origin = f"{'https' if tls else 'http'}://127.0.0.1:{self.port}"
        self.url = f"{self.origin}/api/v3"
        threading.Thread(target=self._accept, daemon=True).start()

    def __enter__(self) -> Scripted:
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._socket.shutdown(socket.SHUT_RDWR)  # wakes `accept`, which `close` alone does not
        self._socket.close()

    def targets(self) -> list[str]:
        return [got.target.removeprefix("/api/v3") for got in self.got]

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, raw: socket.socket) -> None:
        below = os.dup(raw.fileno())
        with contextlib.suppress(OSError):
            connection = self._tls.wrap_socket(raw, server_side=True) if self._tls else raw
            with connection, connection.makefile("rb") as stream:
                while (got := _read(stream)) is not None:
                    self.got.append(got)
                    said = self.answer(got)
                    if isinstance(said, Say):
                        connection.sendall(said.encoded())
                        if said.cut is None:
                            continue
                    elif said == GARBAGE:
                        os.write(below, b"not TLS at all, and long enough to be a record\n" * 4)
                    elif said == SILENCE:
                        self._over.wait(30)
                    elif said == RESET:
                        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                    os.close(below)
                    return
        with contextlib.suppress(OSError):
            os.close(below)


def client(server: Scripted, **more: Any) -> Transport:
    more = {"seconds_between_writes": 0, **more}
    return Transport(Endpoint.of(server.url), TokenAuth(SECRET), **more)


def in_turn(*answers: Say | str) -> Script:
    left = list(answers)
    return lambda _got: left.pop(0)


def same(data: Any) -> Any:
    return data


def _read(stream: Any) -> Got | None:
    line = stream.readline().decode("latin-1")
    if not line:
        return None
    verb, target, _ = line.split(" ")
    headers = {}
    while header := stream.readline().decode("latin-1").strip():
        name, _, value = header.partition(":")
        headers[name.lower()] = value.strip()
    return Got(verb, target, headers, stream.read(int(headers.get("content-length", 0))))
