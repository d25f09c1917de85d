"""Questions and answers of Stack Exchange (API 2.3): accepted and well-voted answers to questions about PyTorch's speed.

https://api.stackexchange.com/docs. Posts are under CC BY-SA, each under the version that `content_license` names; they are
stored with author and address, and not trained on unless the operator opts in.
"""

from __future__ import annotations

import html
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from training.dataset import licences
from training.sources.base import (
    Block,
    Cursor,
    Document,
    Page,
    QuotaError,
    Role,
    SourceError,
    UnusableError,
    clean,
)
from training.sources.html import extract
from training.sources.http import HttpClient
from training.sources.throttle import timestamp

API = "https://api.stackexchange.com/2.3"
QUERIES = (
    "slow",
    "performance",
    "speed up",
    "bottleneck",
    "out of memory",
    "gpu utilization",
    "num_workers",
    "faster",
)
_PAGE = 100  # the API's largest; also the number of ids that one call for answers takes
_WAIT = re.compile(r"more requests available in (\d{1,7}) seconds")
_LICENCE = re.compile(r"CC BY-SA ([234]\.\d)")


class StackExchange:
    """One document per question. `client` must know the host of `api`; `key` raises the daily quota.

    The cursor is (query, page): questions come oldest first, so that new ones do not shift the pages.
    """

    name = "stackexchange"

    def __init__(
        self,
        client: HttpClient,
        *,
        api: str = API,
        site: str = "stackoverflow",
        tag: str = "pytorch",
        queries: Sequence[str] = QUERIES,
        least_score: int = 3,
        key: str = "",
        opted_in: Collection[str] = (),
    ) -> None:
        self._client = client
        self._api = api
        self._site = site
        self._tag = tag
        self._queries = queries
        self._least_score = least_score
        self._key = key
        self._opted_in = opted_in
        self._quota: object = None  # calls left today, from the last response

    def pull(self, cursor: Cursor | None, limit: int) -> Iterator[Page]:
        at = dict(cursor or {"query": 0, "page": 1})
        number = 0
        while at["query"] < len(self._queries) and number < limit:
            answer = self._call(
                "/search/advanced",
                q=self._queries[at["query"]],
                tagged=self._tag,
                answers=1,
                sort="creation",
                order="asc",
                page=at["page"],
            )
            questions = [
                q for q in answer["items"] if isinstance(q, dict) and isinstance(q.get("question_id"), int)
            ]
            documents, notes = self._documents(questions)
            number += len(documents)
            if answer.get("has_more") is True:
                at = {"query": at["query"], "page": at["page"] + 1}
            else:
                at = {"query": at["query"] + 1, "page": 1}
            yield Page(tuple(documents), dict(at), tuple(notes))
            if self._quota == 0:
                raise QuotaError("the daily quota of the Stack Exchange API is spent; pull again tomorrow")

    def _documents(self, questions: list[dict[str, Any]]) -> tuple[list[Document], list[str]]:
        answers: dict[int, list[dict[str, Any]]] = {}
        ids = ";".join(str(q["question_id"]) for q in questions)
        page = 1
        while ids:
            found = self._call(f"/questions/{ids}/answers", sort="votes", order="desc", page=page)
            for answer in found["items"]:
                if isinstance(answer, dict) and (
                    answer.get("is_accepted") or self._score(answer) >= self._least_score
                ):
                    answers.setdefault(answer.get("question_id", 0), []).append(answer)
            if found.get("has_more") is not True:
                break
            page += 1
        documents, notes = [], []
        for question in questions:
            if chosen := answers.get(question["question_id"]):
                document = self._document(question, chosen)
                if isinstance(document, str):
                    notes.append(document)
                else:
                    documents.append(document)
        return documents, notes

    def _document(self, question: dict[str, Any], answers: list[dict[str, Any]]) -> Document | str:
        posts: list[tuple[Role, dict[str, Any]]] = [("question", question), *(("answer", a) for a in answers)]
        parts: list[str] = []
        blocks: list[Block] = []
        credit: list[dict[str, str]] = []
        for role, post in posts:
            body = extract(str(post.get("body", "")))
            number = post.get("answer_id", question["question_id"])
            url = f"https://{self._host()}/{'a' if role == 'answer' else 'q'}/{number}"
            owner = post.get("owner")
            author = (
                clean(html.unescape(str(owner.get("display_name", ""))), 200)
                if isinstance(owner, dict)
                else ""
            )
            licence = _spdx(post.get("content_license"))
            credit.append({"url": url, "author": author, "licence": licence})
            parts.append(body.text)
            blocks += [Block(code, role, url=url, author=author, licence=licence) for code in body.code]
        licence = licences.together(c["licence"] for c in credit)
        verdict = licences.gate(licence, self._opted_in)
        where = credit[0]["url"]
        if not verdict.store:
            return f"{where}: {verdict.reason}"
        return Document(
            source=self.name,
            id=f"{self._site}/{question['question_id']}",
            url=where,
            project=self._site,
            text="\n\n".join([clean(html.unescape(str(question.get("title", ""))), 300), *parts]),
            blocks=tuple(blocks),
            licence=licence,
            train=verdict.train,
            fetched_at=timestamp(self._client.clock),
            provenance=where,
            author=credit[0]["author"],
            raw={
                "posts": credit,
                "score": self._score(question),
                "tags": [clean(str(t), 50) for t in _list(question, "tags")],
            },
        )

    def _call(self, method: str, **parameters: str | int) -> dict[str, Any]:
        """The wrapper object of a response. A `backoff` in it delays the next call."""
        parameters |= {"site": self._site, "filter": "withbody", "pagesize": _PAGE}
        if self._key:
            parameters["key"] = self._key
        url = self._api + method
        for _ in range(3):
            reply = self._client.get(url, parameters, accept=(400,))
            answer = reply.json()
            if not isinstance(answer, dict):
                raise UnusableError(
                    f"{self._api}{method[:60]}: not the object that the API describes", reply.status
                )
            self._quota = answer.get("quota_remaining")
            if isinstance(backoff := answer.get("backoff"), int) and backoff > 0:
                self._client.pause(url, backoff)
            if reply.status == 200 and isinstance(answer.get("items"), list):
                return answer
            message = clean(str(answer.get("error_message", "")), 300)
            if answer.get("error_name") != "throttle_violation":
                break
            wait = _WAIT.search(message)
            self._client.pause(url, int(wait[1]) if wait else 60)
        else:
            raise QuotaError(f"the Stack Exchange API throttles: {message}; pull again later")
        raise SourceError(f"{self._api}{method[:60]}: {answer.get('error_name', 'no items')}: {message}")

    def _host(self) -> str:
        return "stackoverflow.com" if self._site == "stackoverflow" else f"{self._site}.stackexchange.com"

    @staticmethod
    def _score(post: Mapping[str, Any]) -> int:
        score = post.get("score")
        return score if isinstance(score, int) else 0


def _spdx(name: object) -> str:
    """`CC BY-SA 4.0`, as the API writes it, as SPDX."""
    match = _LICENCE.fullmatch(name) if isinstance(name, str) else None
    return f"CC-BY-SA-{match[1]}" if match else licences.UNKNOWN


def _list(values: Mapping[str, Any], name: str) -> list[Any]:
    found = values.get(name)
    return found if isinstance(found, list) else []
