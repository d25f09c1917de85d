from __future__ import annotations

import pytest

from tests.training.sources.fakes import FAST, FakeFiles, inventory, post
from training.sources.base import UnusableError
from training.sources.pytorchdocs import PyTorchDocs, read_inventory

PAGE = f"<html><head><title>Tuning</title></head><body><nav>menu</nav><article>{post(FAST)}</article><p>end</p></body>".encode()
PAGES = ("notes/cuda", "recipes/tuning_guide", "nn", "data")


@pytest.fixture
def site(serving):
    files = {f"/stable/{page}.html": (PAGE, "text/html") for page in PAGES}
    return serving(
        FakeFiles({"/stable/objects.inv": (inventory(PAGES), "application/octet-stream"), **files})
    )


@pytest.fixture
def source(client_for):
    return lambda server: PyTorchDocs(client_for(server, robots=True), sites=(f"{server.url}/stable",))


def test_the_inventory():
    version, entries = read_inventory(inventory(["a b"]))
    assert version == "2.9"
    assert [(e.name, e.kind, e.uri) for e in entries] == [
        ("a b", "std:doc", "a_b.html"),
        ("torch.no_grad", "py:class", "generated/torch.no_grad.html#torch.no_grad"),
    ]


GOOD = inventory(["x"])


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"# Sphinx inventory version 1\n",
        GOOD.replace(b"version 2", b"version 3"),
        GOOD[:-20][:110] + b"!" * 9,
    ],
)
def test_an_inventory_that_is_none(data):
    with pytest.raises(UnusableError):
        read_inventory(data)


def test_an_inventory_that_inflates_without_end():
    with pytest.raises(UnusableError, match="inflates to more"):
        read_inventory(inventory([], bomb=True))


def test_the_pages_on_performance(site, source):
    documents = [d for page in source(site).pull(None, 10) for d in page.documents]
    assert [d.url.rpartition("stable/")[2] for d in documents] == [
        "data.html",
        "notes/cuda.html",
        "recipes/tuning_guide.html",
    ]
    first = documents[0]
    assert (first.licence, first.train, first.raw["version"]) == ("BSD-3-Clause", True, "2.9")
    assert first.blocks[0].code == FAST and first.blocks[0].role == "page"
    assert "menu" not in first.text and "end" not in first.text and first.text.startswith("Tuning")


def test_it_goes_on_with_the_next_page(site, source):
    first = next(iter(source(site).pull(None, 1)))
    rest = [d.url for page in source(site).pull(first.cursor, 10) for d in page.documents]
    assert [url.rpartition("/")[2] for url in rest] == ["cuda.html", "tuning_guide.html"]


def test_a_missing_page_is_left_out(site, source):
    del site.files["/stable/notes/cuda.html"]
    pages = list(source(site).pull(None, 10))
    assert sum(len(page.documents) for page in pages) == 2
    assert [note for page in pages for note in page.notes] == [
        "http://127.0.0.1/stable/notes/cuda.html: status 404"
    ]


def test_the_limit(site, source):
    assert len(list(source(site).pull(None, 2))) == 2
