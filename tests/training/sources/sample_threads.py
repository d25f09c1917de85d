"""Fakes of places where people talk.

Stack Exchange: https://api.stackexchange.com/docs (wrapper object, paging, throttle, filters, answers-on-questions)
Discourse: https://docs.discourse.org (list latest topics, get a topic, get specific posts of a topic)
GitHub: https://docs.github.com/rest (search issues, issue comments, pull request files, contents, licence of a repository)
"""

from __future__ import annotations

import base64
import gzip
import json
from collections.abc import Mapping, Sequence
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from tests.training.sources.fakes import FAST, SLOW, FakeServer, post

# --- Stack Exchange


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


class FakeStackExchange(FakeServer):
    def __init__(
        self,
        questions: Sequence[dict[str, Any]],
        answers: Sequence[dict[str, Any]],
        *,
        page: int = 2,
        quota: int = 300,
    ) -> None:
        super().__init__(
            (("/2.3/search/advanced", self.search), ("/2.3/questions/{ids}/answers", self.answers_of))
        )
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


class FakeDiscourse(FakeServer):
    """`topics`: id -> posts; a topic's own answer holds its first two posts only, as a long one's does its first 20."""

    def __init__(
        self, topics: Mapping[int, Sequence[dict[str, Any]]], robots: str = "", page: int = 2
    ) -> None:
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


class FakeGitHub(FakeServer):
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
            [
                {"filename": "src/train.py", "status": "modified"},
                {"filename": "README.md", "status": "modified"},
            ]
        )

    async def contents(self, request: Request) -> Response:
        assert request.headers["accept"] == "application/vnd.github.raw+json"
        text = self.before if request.query_params["ref"] == "b" * 40 else self.after
        return Response(text, media_type="application/vnd.github.raw+json; charset=utf-8")

    async def licence_of(self, request: Request) -> Response:
        content = base64.b64encode(self.licence_text.encode()).decode()
        return JSONResponse({"content": content, "license": {"key": "mit", "spdx_id": self.licence}})
