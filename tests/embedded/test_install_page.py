"""A newcomer follows docs/install-app.md, with a fake GitHub in place of GitHub: its commands, its steps, a posted review."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from fake_github import FakeGitHub
from tests.browser import needs_chromium
from tests.test_shell_blocks import SHELL, Block
from tests.worker.processes import ROOT, free_port, kill, wait_for

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytestmark = [pytest.mark.slow, needs_chromium]
EXAMPLE = ROOT / "examples/pull-request"
PAGE = ROOT / "docs/install-app.md"
TEXT = PAGE.read_text(encoding="utf-8")
ADDRESS, PORT = "https://ptopt.example.org", "8000"


def blocks() -> tuple[Block, Block]:
    """The page's commands that are not run elsewhere: those that start the service, and what is run beside it."""
    start, beside = (block for block in SHELL if block.page == PAGE and block.why is not None)
    return start, beside


def test_the_steps_of_the_page_lead_to_a_review(page: Page, tmp_path: Path) -> None:
    with FakeGitHub() as github:
        repo = github.repository("octocat/models", base(tmp_path), installation=False)
        assert repo.installation is None
        start, beside = blocks()
        port = free_port()
        address = f"http://127.0.0.1:{port}"
        script = start.script.replace(ADDRESS, address)
        assert start.script.count(ADDRESS) == 1 and f"--port {PORT}" in script
        log = tmp_path / "log.txt"
        with log.open("wb") as out:
            shell = subprocess.Popen(
                ["bash", "-euo", "pipefail", "-c", script.replace(f"--port {PORT}", f"--port {port}")],
                cwd=tmp_path,
                env=_environment(tmp_path, github),
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        try:
            wait_for(lambda: shell.poll() is None and _listens(page, address))
            assert shell.poll() is None, log.read_text()

            # *Create the App*, as the page numbers its steps.
            page.set_default_timeout(60_000)
            (printed,) = re.findall(r"^Open (\S+)$", log.read_text(), re.M)
            page.goto(printed)
            page.get_by_role("button", name=_named("Create the GitHub App")).click()
            page.get_by_role("button", name="Create GitHub App for octocat").click()
            page.get_by_role("link", name=_named("Install the App")).click()
            page.get_by_role("button", name="Install on octocat").click()
            page.get_by_role("heading", name="is installed").wait_for()
            assert repo.installation is not None

            # *See a review*.
            repo.permission("octocat", "admin")
            pull = repo.pull(files=files(EXAMPLE / "head"), title="Mixup", author="octocat")
            wait_for(lambda: pull.reviews or shell.poll() is not None)
            assert shell.poll() is None, log.read_text()
            (review,) = pull.reviews
            assert review.author.login == f"{github.app.slug}[bot]"
            assert {comment.path for comment in review.comments} == {"train.py"}
            assert all("```suggestion" in comment.body for comment in review.comments)

            assert "/ptopt status" in TEXT
            pull.comment("octocat", "/ptopt status")
            wait_for(lambda: len(pull.issue_comments) == 2)
            assert pull.head_sha[:7] in pull.issue_comments[1].body

            listed = subprocess.run(
                ["bash", "-euo", "pipefail", "-c", beside.script],
                cwd=tmp_path,
                env=_environment(tmp_path, github),
                capture_output=True,
                text=True,
            )
            assert listed.returncode == 0, listed.stderr
            assert re.search(r"\breview\b.*\bdone\b|\bdone\b.*\breview\b", listed.stdout), listed.stdout
        finally:
            kill(shell)


def files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def base(folder: Path) -> dict[str, bytes]:
    """What the pull request of examples/pull-request changes."""
    shutil.copytree(EXAMPLE / "head", folder / "base")
    subprocess.run(["git", "apply", "-R", EXAMPLE / "change.patch"], cwd=folder / "base", check=True)
    return files(folder / "base")


def _named(name: str) -> str:
    """The name of a button, which the page has to say."""
    assert f"*{name}*" in TEXT
    return name


def _environment(home: Path, github: FakeGitHub) -> dict[str, str]:
    """That of the newcomer's shell. What the page cannot know: where the fake GitHub is; and no pause before a review."""
    tools = home / "bin"
    tools.mkdir(exist_ok=True)
    if not (tools / "python").exists():
        (tools / "python").write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
        (tools / "python").chmod(0o755)
    assert shutil.which("openssl")
    return {
        "PATH": os.pathsep.join([str(tools), os.environ["PATH"]]),
        "HOME": str(home),
        "PYTHONPATH": str(ROOT),
        "PTOPT_GITHUB_URL": github.url,
        "PTOPT_DEBOUNCE": "0",
    }


def _listens(page: Page, address: str) -> bool:
    from playwright.sync_api import Error

    try:
        return page.request.get(f"{address}/readyz").status < 500
    except Error:
        return False
