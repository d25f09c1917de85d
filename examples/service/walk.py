"""The service, start to end, on this machine; with `setup` in a browser (`rehearsal`).

The embedded service (one process, SQLite) beside a fake GitHub on loopback. A recorded `pull_request` payload is
delivered and signed; the review, the answer to a command, what became of a suggestion and what votes teach are shown as
they stand there.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import re
import shutil
import sqlite3
import time
import uuid
from pathlib import Path
from typing import Any

import click
import httpx
from rich.console import Console
from rich.markdown import Markdown
from rich.padding import Padding
from rich.rule import Rule
from rich.text import Text

from examples.service.rehearsal import rehearse
from examples.service.running import EXAMPLE, TITLE, files, repository, service, wait_for, workplace
from fake_github import FakeGitHub, Pull, Repo
from fake_github.descriptions import webhooks

console = Console(width=min(110, shutil.get_terminal_size((110, 24)).columns), highlight=False)


@click.command()
@click.argument("what", type=click.Choice(["walk", "setup"]), default="walk")
@click.option(
    "--port", default=0, type=click.IntRange(0, 65535), help="Of the service; by default any that is free."
)
@click.option("--github-port", default=0, type=click.IntRange(0, 65535), help="Of the fake GitHub; likewise.")
def main(what: str, port: int, github_port: int) -> None:
    """The service beside a fake GitHub: a WALK through it in this terminal, or its SETUP in your browser."""
    (rehearse if what == "setup" else walk)(port, github_port)


def walk(port: int, github_port: int) -> None:
    started = time.monotonic()
    with workplace(github_port) as (folder, github):
        repo, changed = repository(github, folder, "Codertocat", installed=True)
        pull = repo.pull(files=changed, title=TITLE, author="Codertocat")
        step(f"A pull request on a fake GitHub: “{pull.title}”")
        with service(github, folder, port) as running:
            step(f"The service runs at {running.url}: one process, SQLite")
            github.webhook_url = f"{running.url}/webhooks/github"
            deliver(github, repo, pull)
            show_review(pull)
            explain(pull)
            accept(pull, folder)
            learn(github, repo, pull)
    console.print(
        f"\n[bold]Done[/bold] in {time.monotonic() - started:.0f} s. No account, no GPU, nothing left behind."
    )


def step(text: str) -> None:
    title = Text(text, style="bold")
    console.print()
    if title.cell_len + 2 < console.width:  # a rule cuts a longer one
        console.print(Rule(title, align="left", style="dim"))
    else:
        console.print(title)


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
        f"GitHub's webhook, a recorded one, signed: {len(body):,} bytes → {answer.status_code} {answer.json()['outcome']}"
    )


def show_review(pull: Pull) -> None:
    (review,) = wait_for("the review", lambda: pull.reviews)
    step(f"{review.author.login} reviews {review.commit_id[:7]}: {len(review.comments)} comments")
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
    question = "SELECT c.rule, s.source FROM signals s JOIN comments c ON c.id = s.comment_id WHERE s.kind = 'applied'"

    def recorded() -> list[Any]:
        with sqlite3.connect(f"file:{folder / 'ptopt.db'}?mode=ro", uri=True) as database:
            return database.execute(question).fetchall()

    for rule, source in wait_for("the signal", recorded):
        console.print(f"\nRecorded as feedback: the suggestion of {rule} was committed, in {source[:7]}")


def learn(github: FakeGitHub, repo: Repo, pull: Pull) -> None:
    """People with write access do not want a comment; the next review of the same code has none of its rule."""
    comment = pull.reviews[0].comments[-1]
    rule = rule_of(comment.body)
    people = ("ada", "grace", "barbara", "radia")
    step(f"Four people with write access reply to the comment of {rule}: /ptopt feedback bad")
    for login in people:
        repo.permission(login, "write")
        pull.reply(login, comment.id, "/ptopt feedback bad on purpose: this is how we want it")
    wait_for(
        "the answers", lambda: sum("Noted as bad" in c.body for c in pull.review_comments) == len(people)
    )
    step("The same code in another pull request")
    second = repo.pull(files=files(EXAMPLE / "head"), title="The same code once more", author="Codertocat")
    deliver(github, repo, second)
    (review,) = wait_for("the second review", lambda: second.reviews)
    before, now = ([rule_of(c.body) for c in r.comments] for r in (pull.reviews[0], review))
    console.print(
        f"\nrules in the first review:  {', '.join(before)}\nrules in the second review: {', '.join(now)}"
    )
    console.print("\nWhat /ptopt status says of the rule:")
    second.comment("ada", "/ptopt status")
    status = wait_for("the status", lambda: second.issue_comments[1:])[0].body
    show("\n".join(line for line in status.splitlines() if f"Feedback on `{rule}" in line))


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
