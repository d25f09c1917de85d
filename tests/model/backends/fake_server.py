"""A small model server with a script of faults, on a real socket. It speaks the documented forms of the protocol."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

VLLM_MODELS = {"object": "list", "data": [{"id": "m", "object": "model", "owned_by": "vllm"}]}
LLAMA_MODELS = {"object": "list", "data": [{"id": "m", "object": "model", "owned_by": "llamacpp"}]}


class Reply:
    """What one request gets: a status, headers, a body, perhaps late."""

    def __init__(
        self,
        status: int = 200,
        body: Any = None,
        *,
        headers: dict[str, str] | None = None,
        after: float = 0.0,
    ) -> None:
        self.status = status
        self.body = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.headers = headers or {}
        self.after = after


class FakeServer:
    """`replies[path]` is asked with the body of each request; all requests are kept."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.requests: list[tuple[str, dict[str, Any]]] = []
        self.connections: set[Any] = set()
        self.authorization: set[str | None] = set()
        self.replies: dict[str, Callable[[dict[str, Any]], Reply]] = {
            "/v1/models": lambda _: Reply(body=VLLM_MODELS),
            "/tokenize": lambda body: Reply(
                body={"tokens": [7 if body["prompt"] == " yes" else 8], "count": 1}
            ),
        }
        self.busiest = 0  # requests under way at once
        self._now = 0
        self._lock = threading.Lock()
        self.ended = threading.Event()

    def bodies(self, path: str) -> list[dict[str, Any]]:
        return [body for at, body in self.requests if at == path]

    def answer(self, handler: BaseHTTPRequestHandler) -> None:
        size = int(handler.headers.get("Content-Length") or 0)
        body = json.loads(handler.rfile.read(size)) if size else {}
        with self._lock:
            self.requests.append((handler.path, body))
            self.connections.add(handler.client_address)
            self.authorization.add(handler.headers.get("Authorization"))
            self._now += 1
            self.busiest = max(self.busiest, self._now)
        make = self.replies.get(handler.path)
        reply = self.several(make, body) if make else Reply(404, {"detail": "Not Found"})
        self.ended.wait(reply.after)
        with self._lock:
            self._now -= 1
        handler.send_response(reply.status)
        for name, value in reply.headers.items():
            handler.send_header(name, value)
        handler.send_header("Content-Length", str(len(reply.body)))
        handler.end_headers()
        handler.wfile.write(reply.body)

    def several(self, make: Callable[[dict[str, Any]], Reply], body: dict[str, Any]) -> Reply:
        """A request with a list of prompts gets a choice for each; the first reply that is none stands for all."""
        if not isinstance(body.get("prompt"), list):
            return make(body)
        replies = [make({**body, "prompt": prompt}) for prompt in body["prompt"]]
        try:
            choices = [json.loads(reply.body)["choices"][0] for reply in replies]
            merged = {"choices": [{**choice, "index": at} for at, choice in enumerate(choices)]}
        except (ValueError, LookupError, TypeError):
            return replies[0]
        return Reply(body=merged, after=max(reply.after for reply in replies))


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that hangs up is part of the tests."""


@contextmanager
def serving() -> Iterator[FakeServer]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            fake.answer(self)

        def do_POST(self) -> None:
            fake.answer(self)

        def log_message(self, *_: Any) -> None:
            """Quiet."""

    server = _Server(("127.0.0.1", 0), Handler)
    fake = FakeServer(f"http://127.0.0.1:{server.server_address[1]}")
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield fake
    finally:
        fake.ended.set()
        server.shutdown()
        server.server_close()
        thread.join()


def completion(**top: float) -> Reply:
    """The answer of /v1/completions, with these log-probabilities ("yes" stands for " yes")."""
    tokens = {f" {word}": value for word, value in top.items()}
    best = max(tokens, key=tokens.__getitem__)
    logprobs = {
        "tokens": [best],
        "token_logprobs": [tokens[best]],
        "top_logprobs": [tokens],
        "text_offset": [0],
    }
    return Reply(
        body={"object": "text_completion", "choices": [{"index": 0, "text": best, "logprobs": logprobs}]}
    )


def chat(text: str) -> Reply:
    message = {"role": "assistant", "content": text}
    return Reply(body={"object": "chat.completion", "choices": [{"index": 0, "message": message}]})


def word(best: str, usage: tuple[int, int] | None = None, **top: float) -> Reply:
    """The answer of a chat that is one word, with the log-probabilities of some words."""
    content = [{"token": best, "top_logprobs": [{"token": w, "logprob": p} for w, p in top.items()]}]
    message = {"role": "assistant", "content": best}
    choice = {"index": 0, "message": message, "logprobs": {"content": content} if top else None}
    counted = (
        {}
        if usage is None
        else {"usage": dict(zip(("prompt_tokens", "completion_tokens"), usage, strict=True))}
    )
    return Reply(body={"object": "chat.completion", "choices": [choice], **counted})


def in_turn(*replies: Reply) -> Callable[[dict[str, Any]], Reply]:
    """One after the other; the last again and again."""
    left = list(replies)
    return lambda _: left.pop(0) if len(left) > 1 else left[0]
