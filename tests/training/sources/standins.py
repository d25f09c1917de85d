"""Servers on the loopback that answer as the documentation of each API says, and can be told to have a bad day.

Stack Exchange: https://api.stackexchange.com/docs (wrapper object, paging, throttle, filters, answers-on-questions)
Discourse: https://docs.discourse.org (list latest topics, get a topic, get specific posts of a topic)
GitHub: https://docs.github.com/rest (search issues, issue comments, pull request files, contents, licence of a repository)
Sphinx: objects.inv, version 2. Package index: PEP 691 and PEP 503. Completions: OpenAI's chat completions.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import io
import json
import socket
import tarfile
import threading
import zlib
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

Handler = Callable[[Request], Awaitable[Response]]


@dataclass
class Asked:
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: bytes


@dataclass
class StandIn:
    """`faults` are answers that come first, one for each request whose path starts with their key."""

    routes: Sequence[tuple[str, Handler]] = ()
    asked: list[Asked] = field(default_factory=list)
    faults: list[tuple[str, Response]] = field(default_factory=list)
    url: str = ""

    def app(self) -> Starlette:
        def wrapped(handler: Handler) -> Handler:
            async def answer(request: Request) -> Response:
                path = request.url.path
                body = await request.body()
                self.asked.append(Asked(path, dict(request.query_params), dict(request.headers), body))
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
        return [asked.path for asked in self.asked]

    @property
    def host(self) -> str:
        return self.url.removeprefix("http://")


@contextmanager
def serve(standin: StandIn) -> Iterator[StandIn]:
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    config = uvicorn.Config(standin.app(), log_level="error", lifespan="off", ws="none")
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
    thread.start()
    standin.url = f"http://127.0.0.1:{listener.getsockname()[1]}"
    try:
        yield standin
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


# --- Stack Exchange

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


def question(number: int, **values: Any) -> dict[str, Any]:
    return {
        "question_id": number,
        "title": f"Why is training {number} slow? &quot;pytorch&quot;",
        "body": post(SLOW),
        "score": 5,
        "tags": ["python", "pytorch"],
        "owner": {"user_id": 7, "display_name": "Ada &amp; Co", "link": "https://stackoverflow.com/users/7"},
        "link": f"https://stackoverflow.com/questions/{number}/why",
        "content_license": "CC BY-SA 4.0",
        "creation_date": 1_600_000_000 + number,
        **values,
    }


def answer(number: int, of: int, **values: Any) -> dict[str, Any]:
    return {
        "answer_id": number,
        "question_id": of,
        "body": post(FAST, "Do not read the loss."),
        "score": 1,
        "is_accepted": True,
        "owner": {"display_name": "Grace"},
        "content_license": "CC BY-SA 3.0",
        **values,
    }


class StackExchangeStandIn(StandIn):
    def __init__(
        self, questions: Sequence[dict[str, Any]], answers: Sequence[dict[str, Any]], *, page: int = 2, quota: int = 300
    ) -> None:
        super().__init__((("/2.3/search/advanced", self.search), ("/2.3/questions/{ids}/answers", self.answers_of)))
        self.questions, self.answers, self.page, self.quota = questions, answers, page, quota
        self.backoff: list[int] = []  # of the next answers

    async def search(self, request: Request) -> Response:
        assert request.query_params["filter"] == "withbody" and request.query_params["tagged"] == "pytorch"
        return self.wrapper(self.questions, request)

    async def answers_of(self, request: Request) -> Response:
        ids = {int(i) for i in request.path_params["ids"].split(";")}
        assert len(ids) <= 100
        return self.wrapper([a for a in self.answers if a["question_id"] in ids], request)

    def wrapper(self, items: Sequence[dict[str, Any]], request: Request) -> Response:
        """https://api.stackexchange.com/docs/wrapper; answers are always compressed."""
        if self.quota <= 0:
            return throttled("too many requests from this IP, more requests available in 81234 seconds")
        page = int(request.query_params.get("page", 1))
        self.quota -= 1
        value: dict[str, Any] = {
            "items": items[(page - 1) * self.page : page * self.page],
            "has_more": page * self.page < len(items),
            "quota_max": 300,
            "quota_remaining": self.quota,
        }
        if self.backoff:
            value["backoff"] = self.backoff.pop(0)
        body = gzip.compress(json.dumps(value).encode())
        return Response(body, media_type="application/json", headers={"content-encoding": "gzip"})


def throttled(message: str) -> Response:
    error = {"error_id": 502, "error_message": message, "error_name": "throttle_violation"}
    return JSONResponse(error, 400)


# --- Discourse


class DiscourseStandIn(StandIn):
    """`topics`: id -> posts; a topic's own answer holds its first two posts only, as a long one's does its first 20."""

    def __init__(self, topics: Mapping[int, Sequence[dict[str, Any]]], robots: str = "", page: int = 2) -> None:
        super().__init__(
            (
                ("/robots.txt", self.robots_txt),
                ("/latest.json", self.latest),
                ("/t/{id:int}/posts.json", self.posts),
                ("/t/{id:int}.json", self.topic),
            )
        )
        self.topics, self.robots, self.page = topics, robots, page
        self.accepted: dict[int, int] = {}

    async def robots_txt(self, request: Request) -> Response:
        return Response(self.robots, media_type="text/plain")

    async def latest(self, request: Request) -> Response:
        page = int(request.query_params.get("page", 0))
        ids = sorted(self.topics)
        shown = ids[page * self.page : (page + 1) * self.page]
        listed: dict[str, Any] = {
            "per_page": self.page,
            "topics": [{"id": i, "title": f"Topic {i}", "posts_count": len(self.topics[i])} for i in shown],
        }
        if (page + 1) * self.page < len(ids):
            listed["more_topics_url"] = f"/latest?page={page + 1}"
        return JSONResponse({"users": [], "topic_list": listed})

    async def topic(self, request: Request) -> Response:
        number = request.path_params["id"]
        posts = self.topics[number]
        value: dict[str, Any] = {
            "id": number,
            "title": f"Topic {number}",
            "post_stream": {"posts": posts[:2], "stream": [p["id"] for p in posts]},
        }
        if number in self.accepted:
            value["accepted_answer"] = {"post_number": self.accepted[number], "username": "grace"}
        return JSONResponse(value)

    async def posts(self, request: Request) -> Response:
        wanted = {int(i) for i in request.query_params.getlist("post_ids[]")}
        posts = [p for p in self.topics[request.path_params["id"]] if p["id"] in wanted]
        return JSONResponse({"post_stream": {"posts": posts}, "id": request.path_params["id"]})


def forum_post(topic: int, number: int, cooked: str, likes: int = 0) -> dict[str, Any]:
    return {
        "id": topic * 100 + number,
        "post_number": number,
        "username": f"user{number}",
        "cooked": cooked,
        "actions_summary": [{"id": 2, "count": likes}] if likes else [],
    }


# --- GitHub


class GitHubStandIn(StandIn):
    """One repository, acme/net, with an issue (1) and a merged pull request (2) that turns `before` into `after`."""

    def __init__(self, before: str, after: str, licence: str = "MIT") -> None:
        repo = "/repos/acme/net"
        super().__init__(
            (
                ("/search/issues", self.search),
                (f"{repo}/issues/{{n}}/comments", self.comments),
                (f"{repo}/pulls/{{n}}", self.pull),
                (f"{repo}/pulls/{{n}}/files", self.files),
                (f"{repo}/contents/{{path:path}}", self.contents),
                (f"{repo}/license", self.licence_of),
            )
        )
        self.before, self.after, self.licence = before, after, licence
        self.licence_text = ""

    async def search(self, request: Request) -> Response:
        url = "https://api.github.com/repos/acme/net"
        issue = {
            "number": 1,
            "title": "Training is slow",
            "body": f"Look:\n\n```python\n{self.before}```\n",
            "html_url": "https://github.com/acme/net/issues/1",
            "repository_url": url,
            "comments": 3,
            "created_at": "2024-01-02T03:04:05Z",
            "user": {"login": "ada"},
        }
        pull = {
            **issue,
            "number": 2,
            "title": "Speed up training: no sync",
            "body": "",
            "comments": 0,
            "pull_request": {"merged_at": "2024-02-02T03:04:05Z"},
        }
        return JSONResponse({"total_count": 2, "incomplete_results": False, "items": [issue, pull]})

    async def comments(self, request: Request) -> Response:
        page = int(request.query_params.get("page", 1))
        body = {"body": f"```\n{self.after}```", "user": {"login": f"user{page}"}}
        said = {1: {**body, "author_association": "MEMBER"}, 2: {**body, "author_association": "NONE"}}[page]
        headers = {}
        if page == 1:
            headers["link"] = f'<{self.url}{request.url.path}?per_page=100&page=2>; rel="next"'
        return JSONResponse([said], headers=headers)

    async def pull(self, request: Request) -> Response:
        return JSONResponse({"base": {"sha": "b" * 40}, "merge_commit_sha": "a" * 40, "merged": True})

    async def files(self, request: Request) -> Response:
        return JSONResponse(
            [{"filename": "src/train.py", "status": "modified"}, {"filename": "README.md", "status": "modified"}]
        )

    async def contents(self, request: Request) -> Response:
        assert request.headers["accept"] == "application/vnd.github.raw+json"
        text = self.before if request.query_params["ref"] == "b" * 40 else self.after
        return Response(text, media_type="application/vnd.github.raw+json; charset=utf-8")

    async def licence_of(self, request: Request) -> Response:
        content = base64.b64encode(self.licence_text.encode()).decode()
        return JSONResponse({"content": content, "license": {"key": "mit", "spdx_id": self.licence}})


# --- documentation, package index, completions


def inventory(pages: Sequence[str], bomb: bool = False) -> bytes:
    lines = [f"{page} std:doc -1 {page.replace(' ', '_')}.html A title" for page in pages]
    lines += ["torch.no_grad py:class 1 generated/torch.no_grad.html#$ -"]
    text = ("\n".join(lines) + "\n").encode() if not bomb else b"\0" * 40_000_000
    head = b"# Sphinx inventory version 2\n# Project: PyTorch\n# Version: 2.9\n# The rest is compressed with zlib.\n"
    return head + zlib.compress(text)


class FilesStandIn(StandIn):
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


class TeacherStandIn(StandIn):
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
                    {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": content}}
                ],
                "usage": {"prompt_tokens": self.tokens[0], "completion_tokens": self.tokens[1]},
            }
        )
