from __future__ import annotations

import pytest
from starlette.responses import JSONResponse, Response

from tests.training.sources.fakes import FAST, SLOW
from tests.training.sources.sample_threads import FakeGitHub
from tests.training.texts import GPL, MIT
from training.sources.github import TERMS, GitHub


@pytest.fixture
def source(client_for):
    def make(server, **options):
        return GitHub(client_for(server), api=server.url, queries=("slow",), **options)

    return make


def test_threads_are_under_terms_and_code_under_the_repository_s_licence(serving, source):
    server = serving(FakeGitHub(SLOW, FAST))
    (page,) = source(server).pull(None, 10)
    issue, talk, code = page.documents
    assert (issue.id, issue.licence, issue.train) == ("acme/net#1", TERMS, False)
    assert [(b.role, b.author) for b in issue.blocks] == [
        ("question", "ada"),
        ("answer", "user1"),
    ]  # the member's, of both
    assert (talk.id, talk.train) == ("acme/net#2", False)
    assert (code.id, code.licence, code.train) == ("acme/net#2:code", "MIT", True)
    assert code.provenance == f"acme/net@{'a' * 40}"
    before, after = code.blocks
    assert (before.role, after.role, before.pair, after.pair, before.symbol) == (
        "before",
        "after",
        1,
        1,
        "train",
    )
    assert before.rules == ("item-every-step",)
    assert code.raw["reasons"] == {"src/train.py:train": "both"}
    assert page.cursor == {"query": 1, "since": "", "page": 1}


@pytest.mark.parametrize(
    ("licence", "text", "left"),
    [("GPL-3.0", "", False), ("NOASSERTION", GPL, False), ("NOASSERTION", MIT, True)],
)
def test_the_code_of_a_repository_without_a_good_licence_is_left_out(serving, source, licence, text, left):
    server = serving(FakeGitHub(SLOW, FAST, licence))
    server.licence_text = text
    (page,) = source(server).pull(None, 10)
    assert any(d.id.endswith(":code") for d in page.documents) is left
    assert bool(page.notes) is not left


def test_a_repository_without_a_licence_file(serving, source):
    server = serving(FakeGitHub(SLOW, FAST))
    server.faults = [("/repos/acme/net/license", Response(status_code=404))]
    (page,) = source(server).pull(None, 10)
    assert len(page.documents) == 2 and "LicenseRef-unknown" in page.notes[0]


def test_the_secondary_rate_limit_is_waited_for(serving, source, clock):
    server = serving(FakeGitHub(SLOW, FAST))
    server.faults = [("/search", Response(status_code=403, headers={"retry-after": "60"}))]
    (page,) = source(server).pull(None, 10)
    assert len(page.documents) == 3 and 60 in clock.slept


@pytest.mark.parametrize(
    "path", ["/repos/acme/net/issues", "/repos/acme/net/contents", "/repos/acme/net/pulls/2/files"]
)
def test_one_bad_thread_does_not_end_the_pull(serving, source, path):
    server = serving(FakeGitHub(SLOW, FAST))
    server.faults = [(path, Response(b"gone", 404))]
    (page,) = source(server).pull(None, 10)
    assert len(page.documents) == 2 and len(page.notes) == 1


def test_hostile_results(serving, source):
    server = serving(FakeGitHub(SLOW, FAST))
    items = [
        None,
        {"number": 3},
        {"number": "1", "repository_url": "x"},
        {"number": 4, "repository_url": "u/repos/../../etc/x"},
    ]
    server.faults = [("/search", JSONResponse({"items": items}))]
    (page,) = source(server).pull(None, 10)
    assert page.documents == () and len(page.notes) == 3
    assert server.paths() == ["/search/issues"]


def test_after_a_thousand_results_it_goes_on_from_the_last_day(serving, source):
    server = serving(FakeGitHub(SLOW, FAST))
    item = {"number": 9, "title": "x", "body": "", "repository_url": "https://api.github.com/repos/acme/net"}
    full = [{**item, "created_at": f"2024-03-{n % 28 + 1:02}T00:00:00Z"} for n in range(50)]
    server.faults = [("/search", JSONResponse({"items": full}))]
    page = next(iter(source(server).pull({"query": 0, "since": "", "page": 20}, 10)))
    assert page.cursor == {"query": 0, "since": full[-1]["created_at"][:10], "page": 1}
    next(iter(source(server).pull(page.cursor, 10)))
    assert server.received[-1].path and any(
        "created:>=2024-03-22" in a.query.get("q", "") for a in server.received
    )
