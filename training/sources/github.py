"""Issues and merged pull requests about PyTorch performance, through GitHub's REST API.

https://docs.github.com/rest. What people say in a thread is under GitHub's terms, which are no licence: stored with author and
address, not trained on unless the operator opts in. The code of a merged pull request is under its repository's licence and is
a document of its own, with each function that the change made faster before and after.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import quote

from training.dataset import licences
from training.sources.base import Block, Cursor, Document, Page, Role, UnusableError, clean
from training.sources.changes import changed_functions, evidence
from training.sources.http import HttpClient, Reply
from training.sources.markdown import code_blocks
from training.sources.throttle import timestamp

API = "https://api.github.com"
TERMS = "LicenseRef-terms-of-github.com"
QUERIES = (
    "pytorch slow training language:python is:merged is:pr in:title",
    "torch speed up in:title language:python is:merged is:pr",
    "DataLoader slow in:title language:python is:issue is:closed",
    "torch memory leak in:title language:python is:issue is:closed",
)
_PAGE = 50
_MOST_RESULTS = 1000  # GitHub gives no more of one search
_MOST_FILES = 10
_JSON = {"accept": "application/vnd.github+json", "x-github-api-version": "2022-11-28"}
_RAW = {"accept": "application/vnd.github.raw+json", "x-github-api-version": "2022-11-28"}


class GitHub:
    """`client` must know the host of `api`, and send the token to it.

    The cursor is (query, since, page). A search ends after 1,000 results; it then goes on from the day of the last one.
    """

    name = "github"

    def __init__(
        self,
        client: HttpClient,
        *,
        api: str = API,
        queries: Sequence[str] = QUERIES,
        opted_in: Collection[str] = (),
    ) -> None:
        self._client = client
        self._api = api.rstrip("/")
        self._queries = queries
        self._opted_in = opted_in
        self._licences: dict[str, str] = {}

    def pull(self, cursor: Cursor | None, limit: int) -> Iterator[Page]:
        at: dict[str, Any] = dict(cursor or {"query": 0, "since": "", "page": 1})
        number = 0
        while at["query"] < len(self._queries) and number < limit:
            since = f" created:>={at['since']}" if at["since"] else ""
            parameters = {
                "q": self._queries[at["query"]] + since,
                "sort": "created",
                "order": "asc",
                "per_page": _PAGE,
                "page": at["page"],
            }
            reply = self._client.get(f"{self._api}/search/issues", parameters, headers=_JSON)
            items = [i for i in _list(_object(reply).get("items")) if isinstance(i, dict)]
            documents: list[Document] = []
            notes: list[str] = []
            for item in items:
                try:
                    documents += self._thread(item, notes)
                except UnusableError as error:
                    notes.append(str(error))
            number += len(documents)
            last = str(items[-1].get("created_at", ""))[:10] if items else ""
            if len(items) == _PAGE and at["page"] * _PAGE < _MOST_RESULTS:
                at = {**at, "page": at["page"] + 1}
            elif len(items) == _PAGE and last > at["since"]:
                at = {**at, "since": last, "page": 1}
            else:
                at = {"query": at["query"] + 1, "since": "", "page": 1}
            yield Page(tuple(documents), dict(at), tuple(notes))

    def _thread(self, item: Mapping[str, Any], notes: list[str]) -> Iterator[Document]:
        """The talk, and for a merged pull request its code."""
        repository = str(item.get("repository_url", "")).rpartition("/repos/")[2]
        thread = item.get("number")
        if repository.count("/") != 1 or not isinstance(thread, int):
            raise UnusableError("a search result without repository or number")
        url = f"https://github.com/{repository}/{'pull' if 'pull_request' in item else 'issues'}/{thread}"
        verdict = licences.gate(TERMS, self._opted_in)
        posts: list[tuple[Role, Mapping[str, Any]]] = [("question", item)]
        if item.get("comments"):
            address = f"{self._api}/repos/{_path(repository)}/issues/{thread}/comments"
            posts += [("answer", c) for c in self._pages(address) if _trusted(c)]
        blocks: list[Block] = []
        texts = [clean(str(item.get("title", "")), 300)]
        credit = []
        for role, post in posts:
            body = clean(str(post.get("body") or ""))
            author = _login(post)
            address = clean(str(post.get("html_url") or url), 300)
            texts.append(body)
            credit.append({"url": address, "author": author, "licence": TERMS})
            blocks += [Block(code, role, url=address, author=author) for code in code_blocks(body)]
        yield Document(
            source=self.name,
            id=f"{repository}#{thread}",
            url=url,
            project=repository,
            text="\n\n".join(texts),
            blocks=tuple(blocks),
            licence=TERMS,
            train=verdict.train,
            fetched_at=timestamp(self._client.clock),
            provenance=url,
            author=_login(item),
            raw={"posts": credit},
        )
        request = item.get("pull_request")
        if isinstance(request, dict) and request.get("merged_at"):
            licence = self._licence(repository)
            gated = licences.gate(licence, self._opted_in)
            if not gated.store:
                notes.append(f"{url}: its code: {gated.reason}")
            elif (code := self._code(repository, thread, url, item, licence, gated.train)) is not None:
                yield code

    def _code(
        self, repository: str, thread: int, url: str, item: Mapping[str, Any], licence: str, train: bool
    ) -> Document | None:
        pull = _object(
            self._client.get(f"{self._api}/repos/{_path(repository)}/pulls/{thread}", headers=_JSON)
        )
        base, merged = _sha(pull.get("base")), pull.get("merge_commit_sha")
        address = f"{self._api}/repos/{_path(repository)}/pulls/{thread}/files"
        files = [
            f
            for f in self._pages(address)
            if f.get("status") == "modified" and str(f.get("filename")).endswith(".py")
        ]
        if not base or not isinstance(merged, str) or len(files) > _MOST_FILES:
            return None
        title = str(item.get("title", ""))
        pairs = []
        reasons = {}
        for file in files:
            path = str(file["filename"])
            place = f"{self._api}/repos/{_path(repository)}/contents/{quote(path)}"
            before = self._client.get(place, {"ref": base}, headers=_RAW).body
            after = self._client.get(place, {"ref": merged}, headers=_RAW).body
            for function in changed_functions(path, before, after):
                if reason := evidence(title, function):
                    pairs.append(function)
                    reasons[f"{path}:{function.after.symbol}"] = reason
        if not pairs:
            return None
        return Document(
            source=self.name,
            id=f"{repository}#{thread}:code",
            url=url,
            project=repository,
            text=clean(title, 300),
            blocks=tuple(block for n, pair in enumerate(pairs, 1) for block in pair.blocks(n, url)),
            licence=licence,
            train=train,
            fetched_at=timestamp(self._client.clock),
            provenance=f"{repository}@{clean(merged, 64)}",
            author=_login(item),
            raw={"reasons": reasons},
        )

    def _licence(self, repository: str) -> str:
        """What GitHub detected, or else what we make of the licence file."""
        if repository not in self._licences:
            address = f"{self._api}/repos/{_path(repository)}/license"
            reply = self._client.get(address, headers=_JSON, accept=(404,))
            found = _object(reply) if reply.status == 200 else {}
            named = found.get("license")
            licence = licences.normalised(str(named.get("spdx_id"))) if isinstance(named, dict) else None
            if licence is None and isinstance(found.get("content"), str):
                try:
                    text = base64.b64decode(found["content"]).decode("utf-8", "replace")
                except (binascii.Error, ValueError):
                    text = ""
                licence = licences.of_text(text)
            self._licences[repository] = licence or licences.UNKNOWN
        return self._licences[repository]

    def _pages(self, url: str) -> Iterator[dict[str, Any]]:
        """The items of a listing, to the end, or to its third page."""
        following: str | None = f"{url}?per_page=100"
        for _ in range(3):
            if following is None:
                return
            reply = self._client.get(following, headers=_JSON)
            yield from (item for item in _list(reply.json()) if isinstance(item, dict))
            following = reply.next_url()


def _trusted(comment: Mapping[str, Any]) -> bool:
    """Does the comment come from someone of the project, or did others like it?"""
    reactions = comment.get("reactions")
    liked = reactions.get("+1", 0) if isinstance(reactions, dict) else 0
    return comment.get("author_association") in ("OWNER", "MEMBER", "COLLABORATOR") or (
        isinstance(liked, int) and liked >= 2
    )


def _object(reply_or_value: Reply | object) -> dict[str, Any]:
    value = reply_or_value.json() if isinstance(reply_or_value, Reply) else reply_or_value
    if not isinstance(value, dict):
        raise UnusableError("an answer of GitHub is not the object that its documentation describes")
    return value


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


def _login(post: Mapping[str, Any]) -> str:
    user = post.get("user")
    return clean(str(user.get("login", "")), 100) if isinstance(user, dict) else ""


def _sha(side: object) -> str:
    sha = side.get("sha") if isinstance(side, dict) else None
    return sha if isinstance(sha, str) else ""


def _path(repository: str) -> str:
    return quote(repository, safe="/")
