"""The documentation site builds, and every link and anchor in it leads somewhere."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]


def build(folder: Path) -> subprocess.CompletedProcess[str]:
    """The site of a copy of the documentation, as `make site` builds it."""
    command = [Path(sys.executable).with_name("zensical"), "build", "--clean", "--strict"]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    shutil.copy(ROOT / "zensical.toml", folder)
    shutil.copytree(ROOT / "docs", folder / "docs")
    done = build(folder)
    assert done.returncode == 0, done.stdout[-4000:]
    return folder


def test_every_page_is_in_the_navigation() -> None:
    """But those of rules: their list is, and the search finds them."""
    named = re.findall(r'"([\w./-]+\.md)"', (ROOT / "zensical.toml").read_text(encoding="utf-8"))
    assert sorted(named) == sorted(["rules/README.md", *(path.name for path in (ROOT / "docs").glob("*.md"))])


@pytest.mark.slow
def test_it_builds(site: Path) -> None:
    pages = {path.relative_to(ROOT / "docs").with_suffix("") for path in (ROOT / "docs").rglob("*.md")}
    built = {path.parent.relative_to(site / "site") for path in (site / "site").rglob("index.html")}
    assert {page.parent if page.name in ("README", "index") else page for page in pages} <= built
    assert "item-every-step" in (site / "site/search.json").read_text()


@pytest.mark.slow
def test_a_reader_loads_nothing_from_elsewhere(site: Path) -> None:
    """No picture, script, style or font, and no request for the stars of the repository."""
    loaded = re.compile(r"""<(?:img|script|iframe|source)\b[^>]*\ssrc="?(https?:[^"\s>]+)|<link\b[^>]*rel="?(?:stylesheet|preconnect)[^>]*"""
                        r"""href="?(https?:[^"\s>]+)""")  # fmt: skip
    assert loaded.search('<img alt="x" src="https://cdn.example.org/x.svg">')
    assert loaded.search('<link rel="stylesheet" href="https://fonts.example.org/css">')
    for path in (site / "site").rglob("*.html"):
        text = path.read_text(encoding="utf-8")
        assert not loaded.search(text) and 'data-md-component="source"' not in text, path


@pytest.mark.slow
@pytest.mark.parametrize("link", ["nowhere.md", "service.md#nowhere", "rules/nowhere.md"])
def test_a_link_that_leads_nowhere_is_an_error(link: str, tmp_path: Path) -> None:
    shutil.copy(ROOT / "zensical.toml", tmp_path)
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs/index.md").write_text(f"# Home\n\n[a link]({link})\n")
    (tmp_path / "docs/service.md").write_text("# The service\n")
    done = build(tmp_path)
    assert done.returncode != 0 and "does not exist" in done.stdout + done.stderr
