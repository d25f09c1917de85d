from __future__ import annotations

from pathlib import Path

import pytest
from starlette.responses import Response

from tests.training.sources.fakes import SLOW, post
from tests.training.sources.sample_threads import FakeStackExchange, answer, question, throttled
from training.sources.base import QuotaError, SourceError, UnusableError
from training.sources.stackexchange import StackExchange
from training.sources.store import Store, pull

FIVE = [question(n) for n in range(1, 6)]
ANSWERS = [answer(100 + n, n) for n in range(1, 6)]


@pytest.fixture
def source(client_for):
    def make(server, queries=("slow",), **options):
        return StackExchange(client_for(server), api=f"{server.url}/2.3", queries=queries, **options)

    return make


def test_all_pages_of_questions_and_of_answers(serving, source):
    low = [answer(200 + n, 1, is_accepted=False, score=3) for n in range(3)] + [
        answer(300, 1, is_accepted=False)
    ]
    server = serving(FakeStackExchange(FIVE, ANSWERS + low))
    pages = list(source(server).pull(None, 100))
    documents = [d for page in pages for d in page.documents]
    assert [d.id for d in documents] == [f"stackoverflow/{n}" for n in range(1, 6)]
    assert [page.cursor for page in pages] == [
        {"query": 0, "page": 2},
        {"query": 0, "page": 3},
        {"query": 1, "page": 1},
    ]
    first = documents[0]
    assert [b.role for b in first.blocks] == ["question", *["answer"] * 4]  # accepted, or three votes
    assert first.blocks[0].code == SLOW
    assert 'Why is training 1 slow? "pytorch"' in first.text


def test_each_post_is_credited_and_under_its_own_licence(serving, source):
    server = serving(FakeStackExchange(FIVE[:1], ANSWERS[:1]))
    (page,) = source(server).pull(None, 1)
    (document,) = page.documents
    assert document.licence == "CC-BY-SA-3.0 AND CC-BY-SA-4.0"
    assert document.author == "Ada & Co"
    assert document.url == "https://stackoverflow.com/q/1"
    assert [(b.author, b.url, b.licence) for b in document.blocks] == [
        ("Ada & Co", "https://stackoverflow.com/q/1", "CC-BY-SA-4.0"),
        ("Grace", "https://stackoverflow.com/a/101", "CC-BY-SA-3.0"),
    ]


@pytest.mark.parametrize(
    ("opted_in", "train"),
    [((), False), (("CC-BY-SA-4.0",), False), (("CC-BY-SA-4.0", "CC-BY-SA-3.0"), True)],
)
def test_not_for_training_without_an_opt_in_to_every_version(serving, source, opted_in, train):
    server = serving(FakeStackExchange(FIVE[:1], ANSWERS[:1]))
    (page,) = source(server, opted_in=opted_in).pull(None, 1)
    assert page.documents[0].train is train


@pytest.mark.parametrize("licence", [None, "All rights reserved", "CC BY-NC-SA 4.0", 4])
def test_a_post_without_a_known_licence_is_left_out(serving, source, licence):
    server = serving(FakeStackExchange([question(1, content_license=licence), question(2)], ANSWERS))
    (page,) = source(server).pull(None, 10)
    assert [d.id for d in page.documents] == ["stackoverflow/2"]
    assert "https://stackoverflow.com/q/1" in page.notes[0]


def test_backoff_is_obeyed_before_the_next_call(serving, source, clock):
    server = serving(FakeStackExchange(FIVE, ANSWERS))
    server.backoff = [23]
    list(source(server).pull(None, 2))
    assert clock.slept[0] == 23


def test_a_backoff_beyond_patience_ends_the_pull(serving, source):
    server = serving(FakeStackExchange(FIVE, ANSWERS))
    server.backoff = [90_000]
    with pytest.raises(QuotaError, match="90000 s"):
        list(source(server).pull(None, 2))


def test_the_end_of_the_quota_keeps_what_was_pulled_and_goes_on_later(serving, source, tmp_path: Path):
    server = serving(FakeStackExchange(FIVE, ANSWERS, quota=4))
    with Store(tmp_path / "s.sqlite") as store:
        pulled = pull(source(server), store, 100)
        assert pulled.documents == 4 and "quota" in pulled.stopped
        server.quota = 300
        before = len(server.received)
        assert pull(source(server), store, 100).documents == 1
        assert server.received[before].query["page"] == "3"
        assert len(list(store.documents())) == 5


def test_a_throttle_violation_waits_as_it_says(serving, source, clock):
    server = serving(FakeStackExchange(FIVE[:1], ANSWERS))
    server.faults = [
        ("/2.3/search", throttled("too many requests from this IP, more requests available in 99 seconds"))
    ]
    assert len(list(source(server).pull(None, 10))) == 1
    assert 99 in clock.slept
    server.quota = 0  # the fake then says: in 81,234 seconds
    with pytest.raises(QuotaError, match="81234"):
        list(source(server).pull(None, 10))


def test_it_stops_when_throttling_does_not(serving, source):
    server = serving(FakeStackExchange(FIVE[:1], ANSWERS))
    server.faults = [("/2.3/search", throttled("Violation of backoff parameter")) for _ in range(9)]
    with pytest.raises(QuotaError, match="throttles"):
        list(source(server).pull(None, 10))


def test_other_errors_of_the_api_are_told(serving, source):
    server = serving(FakeStackExchange(FIVE, ANSWERS))
    body = b'{"error_id": 400, "error_message": "tagged", "error_name": "bad_parameter"}'
    server.faults = [("/2.3", Response(body, 400))]
    with pytest.raises(SourceError, match="bad_parameter: tagged"):
        list(source(server).pull(None, 10))


@pytest.mark.parametrize("body", [b"<html>maintenance</html>", b"[]", b'{"items": 3}', b'{"items"'])
def test_an_answer_that_is_not_the_api_s(serving, source, body):
    server = serving(FakeStackExchange(FIVE, ANSWERS))
    server.faults = [("/2.3", Response(body))]
    with pytest.raises(SourceError):
        list(source(server).pull(None, 10))


def test_hostile_posts_are_only_text(serving, source):
    body = (
        "<script>alert(1)</script><p>hi\ud800\x00\u202e</p><style>x</style>"
        "<pre><code>import torch\nloss.item()\n</code></pre><pre><code>unclosed &lt;/s&gt;"
    )
    hostile = question(1, body=body, title="\x1b[31m<b>x", owner="nobody", tags=None, score="many")
    server = serving(FakeStackExchange([hostile, {"question_id": "x"}, "?"], ANSWERS))
    pages = list(source(server).pull(None, 10))
    (document,) = [d for page in pages for d in page.documents]
    assert "alert" not in document.text and "\ud800" not in document.text and "\x1b" not in document.text
    document.to_json().encode("utf-8")
    assert [b.code for b in document.blocks if b.role == "question"] == [
        "import torch\nloss.item()\n",
        "unclosed </s>\n",
    ]


def test_a_kill_in_the_middle_loses_and_repeats_nothing(serving, source, tmp_path: Path):
    server = serving(FakeStackExchange(FIVE, ANSWERS))
    with Store(tmp_path / "s.sqlite") as store:
        pages = source(server).pull(None, 100)
        store.save("stackexchange", next(pages))
        next(pages)  # killed before this page was saved
        del pages
    with Store(tmp_path / "s.sqlite") as store:
        assert pull(source(server), store, 100).documents == 3
        assert [d.id for d in store.documents()] == [f"stackoverflow/{n}" for n in range(1, 6)]


def test_the_answers_of_a_question_without_code(serving, source):
    server = serving(
        FakeStackExchange([question(1, body="<p>words</p>")], [answer(2, 1, body=post("x = 1"))])
    )
    (page,) = source(server).pull(None, 10)
    assert [b.code for b in page.documents[0].blocks] == ["x = 1\n"]


def test_a_key_is_sent_and_never_told(serving, source):
    server = serving(FakeStackExchange(FIVE, ANSWERS))
    server.faults = [("/2.3", Response(status_code=403))]
    with pytest.raises(UnusableError) as caught:
        list(source(server, key="k3y").pull(None, 10))
    assert server.received[0].query["key"] == "k3y"
    assert "k3y" not in str(caught.value)
