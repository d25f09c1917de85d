"""The service, start to end, on this machine: `python -m examples.service`, or `setup` to try `/setup` in a browser.

The embedded service (one process, SQLite) beside a fake GitHub on loopback. A recorded `pull_request` payload is
delivered and signed; the review, the answer to a command, what became of a suggestion and what votes teach are shown as
they stand there.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import re
import secrets
import shutil
import socket
import sqlite3
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

import httpx
from rich.console import Console
from rich.markdown import Markdown
from rich.padding import Padding
from rich.rule import Rule
from rich.text import Text

from fake_github import FakeGitHub, Pull, Repo
from fake_github.descriptions import webhooks

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples/pull-request"
SECONDS = 60.0  # to wait for anything
T = TypeVar("T")

console = Console(width=min(110, shutil.get_terminal_size((110, 24)).columns), highlight=False)


def main() -> int:
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="ptopt-demo-") as name, FakeGitHub() as github:
        folder = Path(name)
        repo, pull = pull_request(github, folder)
        step(f"A pull request on the fake GitHub at {github.html}: “{pull.title}”")
        with service(github, folder) as url:
            step(f"The embedded service at {url}: webhooks, worker and scheduler in one process, SQLite")
            github.webhook_url = f"{url}/webhooks/github"
            deliver(github, repo, pull)
            show_review(pull)
            explain(pull)
            accept(pull, folder)
            learn(github, repo, pull)
    console.print(
        f"\n[bold]Done[/bold] in {time.monotonic() - started:.0f} s. No account, no GPU, nothing left behind."
    )
    return 0


def rehearse_setup() -> int:
    """A service without an App, and a fake GitHub to make one on, until Ctrl-C."""
    with tempfile.TemporaryDirectory(prefix="ptopt-demo-") as name, FakeGitHub() as github:
        pull_request(github, Path(name))
        token = secrets.token_urlsafe(16)
        with service(github, Path(name), PTOPT_SETUP_TOKEN=token) as url:
            console.print(f"Open {url}/setup?token={token}")
            console.print("GitHub's pages are those of a fake GitHub on this machine. Press Ctrl-C to stop.")
            with suppress(KeyboardInterrupt):
                while True:
                    time.sleep(1)
    return 0


def step(text: str) -> None:
    title = Text(text, style="bold")
    console.print()
    if title.cell_len + 2 < console.width:  # a rule cuts a longer one
        console.print(Rule(title, align="left", style="dim"))
    else:
        console.print(title)


def pull_request(github: FakeGitHub, folder: Path) -> tuple[Repo, Pull]:
    """The pull request of examples/pull-request: its head, and its base by the patch taken back."""
    base = folder / "base"
    shutil.copytree(EXAMPLE / "head", base)
    patch = EXAMPLE / "change.patch"
    subprocess.run(["git", "apply", "-R", str(patch)], cwd=base, check=True)
    head_files, base_files = files(EXAMPLE / "head"), files(base)
    gone = dict.fromkeys(base_files.keys() - head_files.keys())
    repo = github.repository("Codertocat/Hello-World", base_files)
    repo.permission("Codertocat", "write")
    pull = repo.pull(files=head_files | gone, title="Mixup and a larger patch net", author="Codertocat")
    return repo, pull


def files(folder: Path) -> dict[str, bytes | None]:
    return {
        p.relative_to(folder).as_posix(): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()
    }


@contextmanager
def service(github: FakeGitHub, folder: Path, **more: str) -> Iterator[str]:
    """`python -m embedded`, up. With `more` settings it has no App yet. When it does not start, its log is shown."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    settings = {
        "PTOPT_GITHUB_URL": github.url,
        "PTOPT_PUBLIC_URL": f"http://127.0.0.1:{port}",
        "PTOPT_SECRET_KEY": "the demo has nothing to hide",
        "PTOPT_DATABASE_URL": f"sqlite:///{folder / 'ptopt.db'}",
        "PTOPT_DEBOUNCE": "0.5",
        "PTOPT_SECONDS_BETWEEN_WRITES": "0",
    }
    app = {
        "PTOPT_APP_ID": str(github.app.id),
        "PTOPT_PRIVATE_KEY": github.app.private_key,
        "PTOPT_WEBHOOK_SECRET": github.app.webhook_secret,
    }
    settings |= more or app
    log = folder / "service.log"
    with log.open("wb") as out:
        process = subprocess.Popen(
            [sys.executable, "-m", "embedded", "--port", str(port)],
            cwd=ROOT,
            env={"PATH": os.environ["PATH"], "HOME": str(folder), **settings},
            stdout=out,
            stderr=subprocess.STDOUT,
        )
    url = f"http://127.0.0.1:{port}"
    try:
        wait_for("the service to be ready", lambda: ready(process, url, log))
        yield url
    finally:
        process.terminate()
        process.wait(SECONDS)


def ready(process: subprocess.Popen[bytes], url: str, log: Path) -> bool:
    if process.poll() is not None:
        sys.exit(f"The service ended:\n{log.read_text()[-4000:]}")
    try:
        return httpx.get(f"{url}/readyz").status_code == 200
    except httpx.TransportError:
        return False


def deliver(github: FakeGitHub, repo: Repo, pull: Pull) -> None:
    """GitHub's own recording of an opened pull request, about this repository and this head."""
    payload = next(p for p in webhooks()["pull_request"] if p["action"] == "opened" and "installation" in p)
    installation = repo.installation
    assert installation is not None
    payload |= {"number": pull.number, "installation": payload["installation"] | {"id": installation.id}}
    payload["repository"] |= {"id": repo.id, "full_name": repo.full_name}
    payload["pull_request"] |= {"number": pull.number}
    payload["pull_request"]["head"] |= {"sha": pull.head_sha}
    body = json.dumps(payload).encode()
    headers = {
        "Content-Type": "application/json",
        "X-GitHub-Event": "pull_request",
        "X-GitHub-Delivery": str(uuid.uuid4()),
        "X-Hub-Signature-256": "sha256="
        + hmac.new(github.app.webhook_secret.encode(), body, hashlib.sha256).hexdigest(),
    }
    assert github.webhook_url
    answer = httpx.post(github.webhook_url, content=body, headers=headers)
    step(
        f"POST /webhooks/github: a recorded payload of {len(body):,} bytes, signed → {answer.status_code} {answer.text}"
    )


def show_review(pull: Pull) -> None:
    (review,) = wait_for("the review", lambda: pull.reviews)
    step(f"{review.author.login} reviewed {review.commit_id[:7]}: {len(review.comments)} comments")
    show(review.body)
    for comment in review.comments:
        start, line, _ = comment.place
        console.print(f"\n[bold cyan]{comment.path}:{start or line}{f'-{line}' if start else ''}[/bold cyan]")
        show(comment.body)


def explain(pull: Pull) -> None:
    """A slash command in the thread of the first comment."""
    first = pull.review_comments[0]
    before = len(pull.review_comments)
    text = "/ptopt explain"
    pull.reply("Codertocat", first.id, text)
    step(f"Codertocat replies to the first comment: {text}")
    answer = wait_for("the answer", lambda: pull.review_comments[before + 1 :])[0]
    console.print(f"\n[bold cyan]{answer.author.login}[/bold cyan]")
    show(answer.body)


def accept(pull: Pull, folder: Path) -> None:
    """The button “Commit suggestion”, and what the service makes of it."""
    comment = next(c for c in pull.review_comments if "```suggestion" in c.body)
    sha = pull.accept(comment.id, "Codertocat")
    step(f"Codertocat commits the suggestion on {comment.path}: {sha[:7]}")
    question = (
        "SELECT c.rule, s.kind, s.value, s.source, s.created_at FROM signals s JOIN comments c ON c.id = s.comment_id "
        "WHERE s.kind = 'applied'"
    )

    def recorded() -> list[Any]:
        with sqlite3.connect(f"file:{folder / 'ptopt.db'}?mode=ro", uri=True) as database:
            return database.execute(question).fetchall()

    for rule, kind, value, source, at in wait_for("the signal", recorded):
        console.print(
            f"\nRecorded as feedback at {at[:19]} UTC: the suggestion of {rule} was [bold]{kind}[/bold] ({value}) "
            f"in commit {source[:7]}"
        )


def learn(github: FakeGitHub, repo: Repo, pull: Pull) -> None:
    """People with write access do not want a comment; the next pull request with the same code has none of its rule."""
    comment = pull.reviews[0].comments[-1]
    rule = rule_of(comment.body)
    people = ("ada", "grace", "barbara", "radia")
    step(f"{', '.join(people)} answer the comment of {rule}: /ptopt feedback bad")
    for login in people:
        repo.permission(login, "write")
        pull.reply(login, comment.id, "/ptopt feedback bad on purpose: this is how we want it")
    wait_for(
        "the answers", lambda: sum("Noted as bad" in c.body for c in pull.review_comments) == len(people)
    )
    second = repo.pull(files=files(EXAMPLE / "head"), title="The same code once more", author="Codertocat")
    deliver(github, repo, second)
    (review,) = wait_for("the second review", lambda: second.reviews)
    before, now = ([rule_of(c.body) for c in r.comments] for r in (pull.reviews[0], review))
    console.print(
        f"\nrules in the first review: {', '.join(before)}\nrules in the second one:   {', '.join(now)}"
    )
    second.comment("ada", "/ptopt status")
    status = wait_for("the status", lambda: second.issue_comments[1:])[0].body
    show("\n".join(line for line in status.splitlines() if "Feedback on" in line))


def rule_of(body: str) -> str:
    found = re.search(r"PTO\d+", body)
    return found.group() if found else ""


def show(body: str) -> None:
    """A comment as a person sees it: the markers, which are HTML comments, are gone, and details are folded."""
    text = re.sub(r"<!-- ptopt:.*?-->", "", body)
    text = re.sub(r"<details><summary>(.*?)</summary>.*?</details>", r"▸ \1", text, flags=re.DOTALL)
    text = text.replace("```suggestion\n```", "*Suggestion: delete it.*")
    text = re.sub(r"(`{3,})suggestion\n", r"*Suggestion:*\n\n\1python\n", text)
    console.print(Padding(Markdown(text.strip()), (0, 0, 0, 2)))


def wait_for(what: str, look: Callable[[], T]) -> T:
    """The first true answer."""
    end = time.monotonic() + SECONDS
    while not (found := look()):
        if time.monotonic() > end:
            sys.exit(f"Waited {SECONDS:.0f} s for {what}.")
        time.sleep(0.05)
    return found


if __name__ == "__main__":
    sys.exit(rehearse_setup() if sys.argv[1:] == ["setup"] else main())
