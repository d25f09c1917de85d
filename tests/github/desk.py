"""A pull request on the fake GitHub, and what it takes to review and post it."""

from __future__ import annotations

from collections.abc import Callable

from fake_github import FakeGitHub, Pull
from ptopt.change import Change
from ptopt.config import Config
from ptopt.findings import Review
from ptopt.github import markers
from ptopt.github.auth import AppAuth, for_installation
from ptopt.github.client import GitHubClient
from ptopt.github.post import Posted, PostOptions, post
from ptopt.github.reading import read_change
from ptopt.project.facts import NO_FACTS
from ptopt.review import review_change

BOT = "ptopt[bot]"
BASE = """\
import torch


def train(model, loader, optimizer, device):
    for x, y in loader:
        loss = model(x, y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
"""
ITEM = BASE.replace("def train", "def fit").replace(
    "        optimizer.step()\n", "        optimizer.step()\n        print(loss.item())\n"
)
BOTH = ITEM.replace(
    "        loss = model(x, y)\n",
    "        y = y + torch.zeros(y.shape).to(device)\n        loss = model(x, y)\n",
)
EXTRAS = PostOptions(check_run=True, sarif=True, ref="refs/pull/1/head")
CLEAN = BASE.replace("def train", "def fit")


class Desk:
    """A pull request on the fake GitHub, reviewed and posted as the service does it."""

    def __init__(self, github: FakeGitHub, head: str = ITEM, base: str = BASE) -> None:
        self.github = github
        repo = github.repository("octo/repo", {"train.py": base.encode()})
        self.pull: Pull = repo.pull(files={"train.py": head.encode()})
        auth = AppAuth(github.url, github.app.id, github.app.private_key, seconds_between_writes=0)
        installation = repo.installation
        assert installation is not None
        self.client = for_installation(auth, installation.id)
        self.writes = 0

    def look(self, client: GitHubClient | None = None) -> tuple[Change, Review]:
        client = client or self.client
        change = read_change(client, client.pull("octo/repo", self.pull.number), Config())
        return change, review_change(change, config=Config(), facts=NO_FACTS)

    def post(
        self,
        change: Change | None = None,
        review: Review | None = None,
        *,
        client: GitHubClient | None = None,
        options: PostOptions = PostOptions(),  # noqa: B008 (a value)
        before_write: Callable[[], None] | None = None,
    ) -> Posted:
        client = client or self.client
        seen, found = self.look(client)
        pull = client.pull("octo/repo", self.pull.number)

        def count() -> None:
            self.writes += 1

        return post(
            client, pull, change or seen, review or found, options=options, before_write=before_write or count
        )

    def push(self, text: str) -> None:
        self.pull.push({"train.py": text.encode()})

    def rules(self) -> list[str]:
        marks = [markers.first(c.body, "finding") for c in self.pull.review_comments]
        return [mark.words[0] for mark in marks if mark is not None]
