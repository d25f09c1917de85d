"""Servers on the loopback that answer as the documentation of each API says, and can be told to have a bad day.

Sphinx: objects.inv, version 2. Package index: PEP 691 and PEP 503. Completions: OpenAI's chat completions.
"""

from __future__ import annotations

import hashlib
import io
import socket
import tarfile
import threading
import zlib
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

Handler = Callable[[Request], Awaitable[Response]]


@dataclass
class ReceivedRequest:
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: bytes


@dataclass
class FakeServer:
    """`faults` are answers that come first, one for each request whose path starts with their key."""

    routes: Sequence[tuple[str, Handler]] = ()
    received: list[ReceivedRequest] = field(default_factory=list)
    faults: list[tuple[str, Response]] = field(default_factory=list)
    url: str = ""

    def app(self) -> Starlette:
        def wrapped(handler: Handler) -> Handler:
            async def answer(request: Request) -> Response:
                path = request.url.path
                body = await request.body()
                self.received.append(
                    ReceivedRequest(path, dict(request.query_params), dict(request.headers), body)
                )
                for i, (prefix, fault) in enumerate(self.faults):
                    if path.startswith(prefix):
                        del self.faults[i]
                        return fault
                return await handler(request)

            return answer

        async def nothing(request: Request) -> Response:
            return Response(status_code=404)

        routes = [*self.routes, ("/{rest:path}", nothing)]
        return Starlette(routes=[Route(path, wrapped(h), methods=["GET", "POST"]) for path, h in routes])

    def paths(self) -> list[str]:
        return [request.path for request in self.received]

    @property
    def host(self) -> str:
        return self.url.removeprefix("http://")


@contextmanager
def serve(fake: FakeServer) -> Iterator[FakeServer]:
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    listener.listen(64)  # who comes before the server runs waits, and is not refused
    config = uvicorn.Config(fake.app(), log_level="error", lifespan="off", ws="none")
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
    thread.start()
    fake.url = f"http://127.0.0.1:{listener.getsockname()[1]}"
    try:
        yield fake
    finally:
        server.should_exit = True
        thread.join()
        listener.close()


class FakeClock:
    """Nobody waits: sleeping moves the time."""

    def __init__(self) -> None:
        self.time = 1_800_000_000.0
        self.slept: list[float] = []

    def now(self) -> float:
        return self.time

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.time += seconds


# --- what they hold

SLOW = """\
import torch
from torch import nn


def train(model, loader, optimizer, device):
    model.to(device)
    total = 0.0
    for x, y in loader:
        x, y = x.to(device), y.to(device)
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        total += loss.item()
    return total / len(loader)
"""
FAST = """\
import torch
from torch import nn


def train(model, loader, optimizer, device):
    model.to(device)
    total = torch.zeros((), device=device)
    for x, y in loader:
        x, y = x.to(device), y.to(device)
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        total += loss.detach()
    return total.item() / len(loader)
"""


def post(code: str, words: str = "It is slow.") -> str:
    escaped = code.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return f"<p>{words}</p>\n<pre><code>{escaped}</code></pre>"


# --- documentation, package index, completions


def inventory(pages: Sequence[str], bomb: bool = False) -> bytes:
    lines = [f"{page} std:doc -1 {page.replace(' ', '_')}.html A title" for page in pages]
    lines += ["torch.no_grad py:class 1 generated/torch.no_grad.html#$ -"]
    text = ("\n".join(lines) + "\n").encode() if not bomb else b"\0" * 40_000_000
    head = b"# Sphinx inventory version 2\n# Project: PyTorch\n# Version: 2.9\n# The rest is compressed with zlib.\n"
    return head + zlib.compress(text)


class FakeFiles(FakeServer):
    """Files by path, as they are."""

    def __init__(self, files: Mapping[str, tuple[bytes, str]]) -> None:
        super().__init__((("/{path:path}", self.get),))
        self.files = dict(files)

    async def get(self, request: Request) -> Response:
        found = self.files.get(request.url.path)
        if found is None:
            return Response(status_code=404)
        body, kind = found
        etag = f'"{hashlib.sha256(body).hexdigest()[:16]}"'
        headers = {"etag": etag, "cache-control": "no-cache"}
        if request.headers.get("if-none-match") == etag:
            return Response(status_code=304, headers=headers)
        return Response(body, media_type=kind, headers=headers)


def sdist(name: str, files: Mapping[str, bytes], extra: Sequence[tarfile.TarInfo] = ()) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as archive:
        for path, content in files.items():
            member = tarfile.TarInfo(f"{name}/{path}")
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
        for member in extra:
            archive.addfile(member)
    return out.getvalue()


class FakeTeacher(FakeServer):
    """Answers chat completions with `contents`, one after the other, then with the last again."""

    def __init__(self, contents: Sequence[str], tokens: tuple[int, int] = (1000, 500)) -> None:
        super().__init__((("/v1/chat/completions", self.complete),))
        self.contents, self.tokens = list(contents), tokens

    async def complete(self, request: Request) -> Response:
        content = self.contents.pop(0) if len(self.contents) > 1 else self.contents[0]
        return JSONResponse(
            {
                "id": "chatcmpl-1",
                "object": "chat.completion",
                "choices": [
                    {
                        "index": 0,
                        "finish_reason": "stop",
                        "message": {"role": "assistant", "content": content},
                    }
                ],
                "usage": {"prompt_tokens": self.tokens[0], "completion_tokens": self.tokens[1]},
            }
        )
