"""Topics of a Discourse forum, such as PyTorch's, through the JSON that it serves to every reader.

https://docs.discourse.org. robots.txt and 429 are obeyed by the client. What people wrote there is under the forum's terms,
which are no licence: stored with author and address, and not trained on unless the operator opts in to that forum.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any

from training.dataset import licences
from training.sources.base import Block, Cursor, Document, Page, Role, UnusableError, clean
from training.sources.html import extract
from training.sources.http import HttpClient
from training.sources.throttle import timestamp

FORUM = "https://discuss.pytorch.org"
_BATCH = 20  # posts that one call for the rest of a topic names
_MOST_POSTS = 60


class Discourse:
    """One document per topic; `client` must know the forum's host, and obey its robots.txt.

    `category` is a path such as "c/vision/5"; "" is the whole forum. Topics come oldest first; the cursor is the page.
    """

    name = "discourse"

    def __init__(
        self,
        client: HttpClient,
        *,
        forum: str = FORUM,
        category: str = "",
        least_likes: int = 2,
        opted_in: Collection[str] = (),
    ) -> None:
        self._client = client
        self._forum = forum.rstrip("/")
        self._list = (
            f"{self._forum}/{category.strip('/')}/l/latest.json" if category else f"{self._forum}/latest.json"
        )
        self._least_likes = least_likes
        self._host = self._forum.rpartition("://")[2]
        self._licence = f"LicenseRef-terms-of-{self._host.replace(':', '-').replace('/', '-')}"
        self._opted_in = opted_in

    def pull(self, cursor: Cursor | None, limit: int) -> Iterator[Page]:
        page = (cursor or {"page": 0})["page"]
        number = 0
        while page is not None and number < limit:
            parameters = {"page": page, "order": "created", "ascending": "true"}
            listed = _object(_object(self._client.get(self._list, parameters).json()).get("topic_list"))
            documents, notes = [], []
            for topic in listed.get("topics", []):
                if not isinstance(topic, dict) or not isinstance(topic.get("id"), int):
                    continue
                if topic.get("posts_count", 0) < 2:
                    continue  # nobody answered
                try:
                    document = self._topic(topic["id"])
                except UnusableError as error:
                    notes.append(str(error))
                    continue
                if document is not None:
                    documents.append(document)
            number += len(documents)
            more = listed.get("topics") and listed.get("more_topics_url")
            page = page + 1 if more else None
            # At the end, the next pull looks at the last page again: it was not full.
            yield Page(
                tuple(documents), {"page": page if page is not None else parameters["page"]}, tuple(notes)
            )

    def _topic(self, number: int) -> Document | None:
        """None for a topic in which no answer was accepted or liked."""
        topic = _object(self._client.get(f"{self._forum}/t/{number}.json").json())
        stream = _object(topic.get("post_stream"))
        posts = [p for p in stream.get("posts", []) if isinstance(p, dict)]
        known = {p.get("id") for p in posts}
        rest = [i for i in stream.get("stream", []) if isinstance(i, int) and i not in known][
            : _MOST_POSTS - len(posts)
        ]
        for start in range(0, len(rest), _BATCH):
            ids = "&".join(f"post_ids[]={i}" for i in rest[start : start + _BATCH])
            found = _object(self._client.get(f"{self._forum}/t/{number}/posts.json?{ids}").json())
            posts += [p for p in _object(found.get("post_stream")).get("posts", []) if isinstance(p, dict)]
        accepted = topic.get("accepted_answer")
        chosen = accepted.get("post_number") if isinstance(accepted, dict) else None
        kept = [p for p in posts if p.get("post_number") == 1]
        answers = [
            p
            for p in posts
            if p.get("post_number") != 1
            and (
                p.get("post_number") == chosen
                or p.get("accepted_answer") is True
                or self._likes(p) >= self._least_likes
            )
        ]
        if not kept or not answers:
            return None
        url = f"{self._forum}/t/{number}"
        verdict = licences.gate(self._licence, self._opted_in)
        texts = [clean(str(topic.get("title", "")), 300)]
        blocks: list[Block] = []
        credit = []
        used: list[tuple[Role, dict[str, Any]]] = [("question", kept[0]), *(("answer", a) for a in answers)]
        for role, post in used:
            body = extract(str(post.get("cooked", "")))
            address = f"{url}/{post.get('post_number')}"
            author = clean(str(post.get("username", "")), 100)
            credit.append({"url": address, "author": author, "licence": self._licence})
            texts.append(body.text)
            blocks += [Block(code, role, url=address, author=author) for code in body.code]
        return Document(
            source=self.name,
            id=f"{self._host}/{number}",
            url=url,
            project=self._host,
            text="\n\n".join(texts),
            blocks=tuple(blocks),
            licence=self._licence,
            train=verdict.train,
            fetched_at=timestamp(self._client.clock),
            provenance=url,
            author=credit[0]["author"],
            raw={"posts": credit},
        )

    @staticmethod
    def _likes(post: Mapping[str, Any]) -> int:
        """Likes are the action of type 2."""
        for action in post.get("actions_summary") or []:
            if isinstance(action, dict) and action.get("id") == 2 and isinstance(action.get("count"), int):
                return int(action["count"])
        return 0


def _object(value: object) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise UnusableError("an answer of the forum is not the object that Discourse describes")
    return value
