"""What is generated is current (`make docs` writes it), and links lead somewhere."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from types import ModuleType

import pytest

from ptopt.address import REPOSITORY, REVISION, rule_page
from ptopt.config import config_schema
from ptopt.report.rulelist import pages
from ptopt.rules import all_rules

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
PAGES = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md")),
    *sorted(DOCS.glob("*.md")),
]


def script(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"docs_{name}", DOCS / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_rule_pages_are_current() -> None:
    written = {file.name: file.read_text(encoding="utf-8") for file in (DOCS / "rules").iterdir()}
    assert written == pages(all_rules()), "run `make docs`"


def test_the_page_of_the_configuration_is_current_and_whole() -> None:
    text = script("pages").configuration()
    assert (DOCS / "configuration.md").read_text(encoding="utf-8") == text, "run `make docs`"
    schema = config_schema()
    for key in (*schema["properties"], *schema["$defs"]["PullRequests"]["properties"]):
        assert f"# `{key}`\n" in text


def test_the_example_of_a_rule_is_the_one_that_is_tested() -> None:
    text = (DOCS / "add-a-rule.md").read_text(encoding="utf-8")
    assert script("pages").with_example(text) == text, "run `make docs`"
    assert (ROOT / "examples/rule-package/acme_rules/seeds.py").read_text(encoding="utf-8") in text


@pytest.mark.usefixtures("learned_ranker")
def test_the_picture_is_what_the_command_prints() -> None:
    drawing = script("picture")
    words = re.compile(r"<text[^>]*>([^<]*)</text>")  # how it is drawn changes from version to version
    drawn = words.findall((DOCS / "review.svg").read_text(encoding="utf-8"))
    assert drawn == words.findall(drawing.picture()), "run `make docs`"
    assert any("review" in text and "base" in text for text in drawn)


def test_the_address_is_the_same_everywhere() -> None:
    pattern = re.compile(r"(?:github\.com/|uses: )([\w.-]+/ptopt)\b")
    found = [
        owner_and_name
        for path in (*PAGES, ROOT / "pyproject.toml", *DOCS.glob("workflows/*.yml"))
        for owner_and_name in pattern.findall(path.read_text(encoding="utf-8"))
    ]
    assert len(found) > 8
    assert set(found) == {REPOSITORY}, "edit ptopt/address.py and run `make docs`"
    assert rule_page("item-every-step").startswith(f"https://github.com/{REPOSITORY}/")


def test_what_is_pinned_is_the_one_commit() -> None:
    pin = re.compile(rf"{re.escape(REPOSITORY)}(?:@|\n +rev: )([0-9a-f]{{40}})\b")
    texts = [path.read_text(encoding="utf-8") for path in (*PAGES, *DOCS.glob("workflows/*.yml"))]
    found = [commit for text in texts for commit in pin.findall(text)]
    assert len(found) >= 7
    assert set(found) == {REVISION}, "edit ptopt/address.py and run `make docs`"
    other = "1f" * 20
    for text in texts:
        moved = pin.sub(lambda match: match[0].replace(match[1], other), text)
        assert script("pages").pinned(moved) == text
    theirs = f"uses: actions/checkout@{other}\nuses: a{REPOSITORY}@{other}\n"
    assert script("pages").pinned(theirs) == theirs


@pytest.mark.parametrize("name", ["README.md", "docs/action.md"])
def test_how_to_pin_without_a_release(name: str) -> None:
    assert f"`git ls-remote https://github.com/{REPOSITORY} main` prints" in (ROOT / name).read_text()


def test_nobody_is_sent_to_the_package_index() -> None:
    """It has no ptopt of ours."""
    code = (
        p
        for folder in ("ptopt", "bot", "service", "training", "worker")
        for p in (ROOT / folder).rglob("*.py")
    )
    for path in (*PAGES, *DOCS.glob("workflows/*.yml"), *code):
        text = path.read_text(encoding="utf-8")
        assert not re.search(r"pip install '?ptopt\b(?!\[[^]]*\] @ git\+)", text), path


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_links_lead_somewhere(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    for link in re.findall(r"\]\((?!https?:)([^)]+)\)", text):
        name, _, anchor = link.partition("#")
        target = (path.parent / name).resolve() if name else path
        assert target.exists(), link
        if anchor:
            headings = re.findall(r"^#+ (.+)$", target.read_text(encoding="utf-8"), re.M)
            known = {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}
            assert anchor in known, link


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_links_into_the_repository_lead_somewhere(path: Path) -> None:
    """The site has docs/ alone: pages link to other files of the repository on GitHub."""
    text = path.read_text(encoding="utf-8")
    for kind, name in re.findall(rf"github\.com/{REPOSITORY}/(blob|tree)/main/([^)#\s]+)", text):
        assert (ROOT / name).is_file() if kind == "blob" else (ROOT / name).is_dir(), name
    assert path.parent != DOCS or "](../" not in text


@pytest.mark.parametrize("path", [*PAGES, *sorted((DOCS / "rules").glob("*.md"))], ids=lambda path: path.name)
def test_tables_are_whole(path: Path) -> None:
    """A blank line within a table ends it: its rows after that are shown as text."""
    fenced = re.sub(r"^```.*?^```", "", path.read_text(encoding="utf-8"), flags=re.M | re.S)
    for block in fenced.split("\n\n"):
        if block.startswith("|"):
            assert re.match(r"\|.*\|\n\|[ :|-]+\|(\n|$)", block), block[:80]
