"""The engine behind HTTP, in a process of its own: `python -m benchmarks.serving.server [OPTIONS]` prints its address.

What of the protocol the client uses, and `/stats`: seconds in which the device computed, the most requests under way, answers.
"""

from __future__ import annotations

import argparse
import asyncio
import json
from typing import Any

from benchmarks.serving.engine import Engine, Speed

MODEL = "simulated"
_MODELS = {"object": "list", "data": [{"id": MODEL, "object": "model", "owned_by": "vllm"}]}
_SCORE = {"text": " yes", "logprobs": {"top_logprobs": [{" yes": -0.5, " no": -1.5}]}}
_CHAT = {"choices": [{"index": 0, "message": {"role": "assistant", "content": '{"findings": []}'}}]}
WRITTEN = 24  # tokens of a chat's answer: most code has no finding


class Server:
    """One connection after another asks the same engine."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    async def connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                path = head.split(b" ", 2)[1]
                length = next(
                    (
                        int(line[15:])
                        for line in head.split(b"\r\n")
                        if line[:15].lower() == b"content-length:"
                    ),
                    0,
                )
                body = json.loads(await reader.readexactly(length)) if length else {}
                answer = json.dumps(await self._answer(path, body)).encode()
                writer.write(
                    b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s"
                    % (len(answer), answer)
                )
        except (asyncio.IncompleteReadError, ConnectionError):
            pass  # the client is done
        finally:
            writer.close()

    async def _answer(self, path: bytes, body: dict[str, Any]) -> Any:
        if path == b"/v1/models":
            return _MODELS
        if path == b"/tokenize":
            return {"tokens": [7 if body["prompt"] == " yes" else 8]}
        if path == b"/stats":
            engine = self._engine
            most, engine.most = engine.most, 0
            return {"busy": engine.busy, "most": most, "answered": engine.answered}
        if path == b"/v1/completions":
            texts = [body["prompt"]] if isinstance(body["prompt"], str) else body["prompt"]
            await asyncio.gather(*(self._engine.serve(text, 1) for text in texts))
            return {"choices": [{"index": at, **_SCORE} for at in range(len(texts))]}
        await self._engine.serve("".join(message["content"] for message in body["messages"]), WRITTEN)
        return _CHAT


async def serve(speed: Speed) -> None:
    engine = Engine(speed)
    server = await asyncio.start_server(Server(engine).connected, "127.0.0.1", 0, limit=2**20, backlog=512)
    print(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", flush=True)
    await engine.run()


def options() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument(
        "--tokens-per-s", type=float, default=60_000, help="of prompts, that the device reads"
    )
    parser.add_argument("--step-ms", type=float, default=8.0, help="of each step, beside the tokens it reads")
    parser.add_argument("--slots", type=int, default=256, help="requests that run at once")
    parser.add_argument("--budget", type=int, default=8192, help="tokens of a step")
    return parser


if __name__ == "__main__":
    given = options().parse_args()
    asyncio.run(serve(Speed(given.tokens_per_s, given.step_ms, given.slots, given.budget)))
