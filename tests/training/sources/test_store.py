from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from training.sources.base import Block, Cursor, Document, Page, QuotaError, SourceError, clean
from training.sources.html import extract
from training.sources.store import Store, pull


def document(number: int, text: str = "", train: bool = True) -> Document:
    blocks = (Block("x = 1\n", "file", rules=("a",)),)
    return Document(
        "s",
        str(number),
        "",
        "p",
        text,
        blocks,
        "MIT",
        train,
        "2026-01-01T00:00:00+00:00",
        "here",
        raw={"n": [1]},
    )


class Counting:
    """Ten documents, two a page."""

    name = "s"

    def __init__(self, fails_at: int | None = None, error: type[Exception] = QuotaError) -> None:
        self.fails_at, self.error = fails_at, error

    def pull(self, cursor: Cursor | None, limit: int) -> Iterator[Page]:
        start = (cursor or {"at": 0})["at"]
        for at in range(start, min(10, start + limit), 2):
            if at == self.fails_at:
                raise self.error("enough")
            yield Page((document(at), document(at + 1)), {"at": at + 2})


def test_documents_come_back_as_they_were(tmp_path: Path):
    with Store(tmp_path / "a" / "s.sqlite") as store:
        store.save("s", Page((document(1, clean("ä\ud800")),), {"at": 1}))
        assert list(store.documents("s")) == [document(1, "ä\N{REPLACEMENT CHARACTER}")]
        assert store.cursor("s") == {"at": 1} and store.cursor("t") is None


def test_pulls_go_on_where_they_ended(tmp_path: Path):
    with Store(tmp_path / "s.sqlite") as store:
        assert pull(Counting(fails_at=4), store, 100).stopped == "enough"
        assert pull(Counting(), store, 4).documents == 4
        assert pull(Counting(), store, 100).documents == 2
        assert len(list(store.documents())) == 10
        store.forget("s")
        assert pull(Counting(), store, 100).documents == 10
        assert len(list(store.documents())) == 10


def test_pages_before_an_error_are_kept(tmp_path: Path):
    with Store(tmp_path / "s.sqlite") as store:
        with pytest.raises(SourceError):
            pull(Counting(fails_at=4, error=SourceError), store, 100)
        assert len(list(store.documents())) == 4 and store.cursor("s") == {"at": 4}


def test_counts_and_the_training_filter(tmp_path: Path):
    with Store(tmp_path / "s.sqlite") as store:
        store.save("s", Page((document(1), document(2, train=False)), {}))
        assert [d.id for d in store.documents(train=True)] == ["1"]
        assert store.counts() == {"s": {"documents": 2, "trainable": 1, "MIT": 2}}


KILLED = """
import os, signal, sys
from pathlib import Path
from tests.training.sources.test_store import Counting
from training.sources.store import Store, pull

pages = 0
def count(page):
    global pages
    pages += 1
    if pages == 3:
        os.kill(os.getpid(), signal.SIGKILL)
pull(Counting(), Store(Path(sys.argv[1])), 100, count)
"""


def test_kill_9_in_the_middle(tmp_path: Path):
    path = tmp_path / "s.sqlite"
    root = Path(__file__).parents[3]
    done = subprocess.run(
        [sys.executable, "-c", KILLED, str(path)],
        cwd=root,
        env={**os.environ, "PYTHONPATH": str(root)},
        capture_output=True,
    )
    assert done.returncode == -signal.SIGKILL, done.stderr.decode()
    with Store(path) as store:
        assert store.cursor("s") == {"at": 6} and len(list(store.documents())) == 6
        assert pull(Counting(), store, 100).documents == 4


@given(st.text(st.characters(codec=None), max_size=200))
def test_cleaned_text_can_be_written_anywhere(text: str):
    cleaned = clean(text)
    cleaned.encode("utf-8")
    assert "\0" not in cleaned and "\r" not in cleaned and clean(cleaned) == cleaned


def test_cleaned_text_is_cut():
    assert len(clean("x" * 1_000_000)) == 400_000


PAGE = """<html><head><title>T &amp; U</title><script>var a = "<pre>no</pre>";</script></head>
<body><nav><pre>menu</pre></nav><article><h1>Head</h1><p>One <b>two</b></p>
<pre><span class="k">def</span> f(x):
    return x &lt; 1
</pre><style>p {}</style><!-- <pre>secret</pre> --></article><footer>end</footer></body></html>"""


def test_a_page():
    read = extract(PAGE, only="article")
    assert read.code == ("def f(x):\n    return x < 1\n",)
    assert read.text == "Head\nOne two\n```\ndef f(x):\n    return x < 1\n```"
    assert read.title == "T & U"
    assert extract("<p>no article</p>", only="article").text == "no article"


@given(st.text(alphabet="<>/!-&;#ax \n\"'=presctilynav\ud800", max_size=300))
def test_no_page_breaks_the_reader(page: str):
    extract(page).text.encode("utf-8")
    extract(page, only="article")


def test_code_that_never_ends_and_many_blocks():
    assert extract("<pre>x = 1").code == ("x = 1\n",)
    assert len(extract("<pre>x</pre>" * 1_000).code) == 200
    assert extract("<pre>" * 5_000 + "x").code == ("x\n",)
