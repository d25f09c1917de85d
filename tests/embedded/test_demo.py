"""`make demo` and `make demo-setup` as a newcomer uses them: in a browser, stopped half-way, on ports of their choice."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import pytest

from tests.browser import check_page, needs_chromium
from tests.worker.processes import ROOT, free_port, kill, wait_for

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytestmark = pytest.mark.slow
STARTED = "The service runs at http"


class Demo:
    """The demonstration as a process; `folder` is where its temporary files are."""

    def __init__(self, process: subprocess.Popen[bytes], folder: Path) -> None:
        self.process, self.folder = process, folder
        self._log = folder.with_name("demo.txt")

    def printed(self) -> str:
        return self._log.read_text(encoding="utf-8")

    def wait_for(self, text: str) -> None:
        wait_for(lambda: text in self.printed() or self.process.poll() is not None)
        assert text in self.printed(), self.printed()


@contextmanager
def demo(tmp_path: Path, *arguments: str) -> Iterator[Demo]:
    folder = tmp_path / "tmp"
    folder.mkdir()
    with (tmp_path / "demo.txt").open("wb") as out:
        process = subprocess.Popen(
            [sys.executable, "-m", "examples.service", *arguments],
            cwd=ROOT,
            env={**os.environ, "TMPDIR": str(folder), "PYTHONUNBUFFERED": "1"},
            stdout=out,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        yield Demo(process, folder)
    finally:
        if process.poll() is None:
            process.terminate()
            process.wait(60)
        kill(process)


def groups(leader: int) -> set[int | None]:
    """The process groups of a process and of all that descend from it."""
    first = psutil.Process(leader)
    return {group_of(each) for each in (first, *first.children(recursive=True))} - {None}


def members(wanted: set[int | None]) -> list[int]:
    """The processes of these groups that still run."""
    listed = psutil.process_iter(["status"])
    return [
        each.pid
        for each in listed
        if each.info["status"] != psutil.STATUS_ZOMBIE and group_of(each) in wanted
    ]


def group_of(process: psutil.Process) -> int | None:
    """None when it has ended."""
    try:
        return os.getpgid(process.pid)
    except ProcessLookupError:
        return None


@pytest.mark.parametrize("arguments", [(), ("setup",)], ids=["demo", "demo-setup"])
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_leaves_nothing_behind(tmp_path: Path, arguments: tuple[str, ...], number: int) -> None:
    with demo(tmp_path, *arguments) as started:
        started.wait_for(STARTED)
        all_groups = groups(started.process.pid)
        assert len(members(all_groups)) > 1, "the service is a process of its own"
        assert list(started.folder.iterdir())
        os.killpg(started.process.pid, number)  # as a terminal does
        status = 0 if number == signal.SIGINT else 128 + number
        assert started.process.wait(60) == status, started.printed()
        assert members(all_groups) == []
        assert list(started.folder.iterdir()) == []
        assert "Traceback" not in started.printed()


@pytest.mark.parametrize("arguments", [(), ("setup",)], ids=["demo", "demo-setup"])
def test_ctrl_c_while_modules_are_imported_is_no_error(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    (tmp_path / "httpx.py").write_text("import os, signal\nos.kill(os.getpid(), signal.SIGINT)\n")
    ended = subprocess.run(
        [sys.executable, "-m", "examples.service", *arguments],
        cwd=ROOT, env={**os.environ, "PYTHONPATH": str(tmp_path)}, capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "", "")


def test_ports_of_ones_choice(tmp_path: Path) -> None:
    port, github = free_port(), free_port()
    make = ["make", "--no-print-directory", "-n", "-o", ".venv/.servable", "demo-setup"]
    make += [f"PORT={port}", f"GITHUB_PORT={github}"]
    command = subprocess.run(make, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
    assert command[1:4] == ["-m", "examples.service", "setup"]
    with demo(tmp_path, *command[3:]) as started:
        started.wait_for(STARTED)
        (line, *_) = started.printed().splitlines()
        assert (
            line
            == f"The service runs at http://127.0.0.1:{port}, a fake GitHub at http://127.0.0.1:{github}."
        )


@pytest.mark.parametrize("option", ["--port", "--github-port"])
def test_a_port_that_is_taken(tmp_path: Path, option: str) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with demo(tmp_path, "setup", option, str(port)) as started:
            assert started.process.wait(60) == 1
            (line,) = started.printed().splitlines()
            assert line == f"Error: port {port} cannot be used: Address already in use"
            assert list(started.folder.iterdir()) == []


@needs_chromium
def test_the_whole_page_in_a_browser(page: Page, tmp_path: Path) -> None:
    """From /setup to the dashboard, with nothing but what the demonstration prints and the pages show."""
    with demo(tmp_path, "setup") as started:
        started.wait_for("Ctrl-C stops")
        setup, repository, dashboard = re.findall(r"^(?:\d\. .*?: +)(http\S+)$", started.printed(), re.M)
        page.set_default_timeout(60_000)

        page.goto(setup)
        look(page, "setup")
        page.get_by_role("button", name="Create the GitHub App").click()
        page.get_by_role("button", name="Create GitHub App for octocat").click()
        page.get_by_role("link", name="Install the App").wait_for()
        look(page, "stored")
        page.get_by_role("link", name="Install the App").click()
        page.get_by_role("button", name="Install on octocat").click()
        page.get_by_role("link", name="octocat/Hello-World").click()
        assert page.url == repository
        look(page, "repository")

        page.get_by_role("button", name="Open a pull request").click()
        threads = page.locator("article article:has(textarea)")
        threads.first.wait_for()
        assert threads.count() >= 2
        look(page, "pull")
        last = threads.last
        rule = re.findall(r"PTO\d+", last.inner_text())[0]

        threads.first.get_by_role("button", name="👍").click()
        threads.first.get_by_role("button", name="👍 1").wait_for()
        threads.first.get_by_role("button", name="Commit suggestion").click()
        page.get_by_text("resolved").first.wait_for()
        page.get_by_label("Comment", exact=True).fill("/ptopt status")
        page.get_by_role("button", name="Comment", exact=True).click()
        page.locator("article[id^=issuecomment]").nth(1).wait_for()
        for number, person in enumerate(("ada", "grace", "barbara", "radia")):
            page.get_by_label("Act as").select_option(person)
            page.get_by_role("button", name="Change").click()
            last.locator("textarea").fill("/ptopt feedback bad we want it like this")
            last.get_by_role("button", name="Reply").click()
            last.get_by_text("we want it like this").nth(number).wait_for()
        last.get_by_text("Noted as bad").nth(3).wait_for()
        look(page, "pull-answered")
        page.get_by_label("Act as").select_option("octocat")
        page.get_by_role("button", name="Change").click()

        page.goto(dashboard)
        page.get_by_role("link", name="Sign in with GitHub").click()
        page.get_by_role("button", name="as octocat").click()
        page.get_by_role("heading", name="Reviews").wait_for()
        assert "octocat/Hello-World#1" in page.locator("main").inner_text()
        page.get_by_label("Repository").wait_for()
        seen = {}
        for name in ("Reviews", "Rules", "Models", "Jobs", "Health"):
            page.get_by_role("link", name=name, exact=True).click()
            page.get_by_role("heading", name=name, exact=True).wait_for()
            seen[name] = page.locator("main").inner_text()
            look(page, name.lower())
        row = next(line for line in seen["Rules"].splitlines() if line.startswith(rule))
        assert "no votes" not in row
        assert re.search(r"1 good, [1-9] bad|[1-9] good, 1 bad", seen["Reviews"]), seen["Reviews"]
        assert re.search(r"rules alone", seen["Models"])
        assert seen["Jobs"].count("octocat/Hello-World#1") >= 3 and "done" in seen["Jobs"]
        page.get_by_role("link", name="Reviews", exact=True).click()
        page.locator("tbody th a").last.click()
        page.get_by_role("heading", name="Comments").wait_for()
        wait_for(lambda: page.reload() and page.get_by_text("reaction 👍").count())
        look(page, "review")
        page.get_by_role("link", name="Jobs", exact=True).click()
        page.locator("tbody th a").first.click()
        page.get_by_role("heading", name="Job ").wait_for()
        look(page, "job")

        (jobs,) = re.findall(r"^ +or in another terminal, here: +(.*)$", started.printed(), re.M)
        listed = subprocess.run(jobs, shell=True, cwd=ROOT, capture_output=True, text=True)
        assert re.search(r"\bdone review octocat/Hello-World#1\b", listed.stdout), listed
        page.goto(setup)
        page.get_by_role("heading", name="This page is not open").wait_for()  # there is an App
        look(page, "closed")


def look(page: Page, name: str) -> None:
    """Narrow and wide, light and dark."""
    for scheme, width in (("light", 1440), ("dark", 1440), ("light", 360), ("dark", 360)):
        page.emulate_media(color_scheme=scheme)
        page.set_viewport_size({"width": width, "height": 900})
        axe = (scheme, width) in (("light", 1440), ("dark", 360))
        check_page(page, f"demo-{name}-{width}-{scheme}", axe=axe)
    page.set_viewport_size({"width": 1280, "height": 720})
