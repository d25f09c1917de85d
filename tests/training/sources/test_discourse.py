from __future__ import annotations

from pathlib import Path

import pytest
from starlette.responses import Response

from tests.training.sources.fakes import FAST, SLOW, post
from tests.training.sources.sample_threads import FakeDiscourse, forum_post
from training.sources.base import SourceError
from training.sources.discourse import Discourse
from training.sources.store import Store, pull


def topic(number: int, posts: int = 2, likes: int = 3) -> list[dict[str, object]]:
    rest = [forum_post(number, n, post(FAST), likes) for n in range(2, posts + 1)]
    return [forum_post(number, 1, post(SLOW)), *rest]


@pytest.fixture
def source(client_for):
    def make(server, **options):
        return Discourse(client_for(server, robots=True), forum=server.url, **options)

    return make


def test_every_page_and_every_liked_answer(serving, source):
    server = serving(
        FakeDiscourse({1: topic(1), 2: topic(2, likes=0), 3: topic(3), 4: topic(4, posts=45), 5: topic(5, 1)})
    )
    pages = list(source(server).pull(None, 100))
    documents = [d for page in pages for d in page.documents]
    assert [d.url.rpartition("/")[2] for d in documents] == [
        "1",
        "3",
        "4",
    ]  # liked, liked, liked; 2 is not, 5 has no answer
    assert len(documents[2].blocks) == 45
    assert [a.path for a in server.received if a.path.endswith("posts.json")] == ["/t/4/posts.json"] * 3
    assert [page.cursor for page in pages] == [{"page": 1}, {"page": 2}, {"page": 2}]


def test_an_accepted_answer_needs_no_likes(serving, source):
    server = serving(FakeDiscourse({1: topic(1, 3, likes=0)}))
    server.accepted = {1: 3}
    ((document,),) = [page.documents for page in source(server).pull(None, 10)]
    assert [(b.role, b.author, b.url.rpartition("/t/")[2]) for b in document.blocks] == [
        ("question", "user1", "1/1"),
        ("answer", "user3", "1/3"),
    ]


def test_its_terms_are_no_licence(serving, source):
    server = serving(FakeDiscourse({1: topic(1)}))
    (page,) = source(server).pull(None, 10)
    licence = page.documents[0].licence
    assert licence.startswith("LicenseRef-terms-of-127.0.0.1-") and not page.documents[0].train
    (page,) = source(server, opted_in=[licence]).pull(None, 10)
    assert page.documents[0].train


def test_robots_txt_that_forbids_topics_is_obeyed(serving, source):
    server = serving(FakeDiscourse({1: topic(1), 2: topic(2)}, robots="User-agent: *\nDisallow: /t/\n"))
    (page,) = source(server).pull(None, 10)
    assert page.documents == () and len(page.notes) == 2
    assert server.paths() == ["/robots.txt", "/latest.json"]


def test_429_is_waited_for(serving, source, clock):
    server = serving(FakeDiscourse({1: topic(1)}))
    server.faults = [("/t/1", Response(status_code=429, headers={"retry-after": "48"}))]
    (page,) = source(server).pull(None, 10)
    assert len(page.documents) == 1 and 48 in clock.slept


@pytest.mark.parametrize(
    "fault",
    [Response(b"{", 200), Response(b"[]"), Response(status_code=404), Response(b'{"post_stream": 1}')],
)
def test_one_bad_topic_does_not_end_the_pull(serving, source, fault):
    server = serving(FakeDiscourse({1: topic(1), 2: topic(2)}))
    server.faults = [("/t/1", fault)]
    (page,) = source(server).pull(None, 10)
    assert len(page.documents) == 1 and len(page.notes) == 1


def test_a_list_that_is_none_ends_it(serving, source):
    server = serving(FakeDiscourse({1: topic(1)}))
    server.faults = [("/latest", Response(b'{"topic_list": null}'))]
    with pytest.raises(SourceError):
        list(source(server).pull(None, 10))


def test_it_goes_on_after_a_kill_and_finds_what_came_since(serving, source, tmp_path: Path):
    topics = {n: topic(n) for n in range(1, 4)}
    server = serving(FakeDiscourse(topics))
    with Store(tmp_path / "s.sqlite") as store:
        store.save("discourse", next(iter(source(server).pull(None, 10))))
    with Store(tmp_path / "s.sqlite") as store:
        pull(source(server), store, 10)
        topics[4], topics[5] = topic(4), topic(5)
        server.topics = topics
        pull(source(server), store, 10)
        assert len(list(store.documents())) == 5
