"""What people do on the fake GitHub: they open, push, comment; and deliveries come again, and out of order."""

from __future__ import annotations

import random
import threading
import time
from concurrent.futures import ThreadPoolExecutor

from fake_github import FakeGitHub, Pull

PUSHES = 3  # to each pull request, after it was opened
OF_A_PULL = 10  # deliveries; what its own events leave is filled with repeated ones
SLOW = b"""\
import torch


def train(model, loader, optimizer):
    total = 0.0
    for x, y in loader:
        x, y = x.cuda(), y.cuda()
        loss = model(x, y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        total += loss.item()
    return total
"""


class People:
    """They make `deliveries` deliveries, about a tenth as many pull requests. The same seed gives the same choices."""

    def __init__(self, github: FakeGitHub, seed: int, deliveries: int) -> None:
        self.github, self.seed, self.deliveries = github, seed, deliveries
        self.repos = [github.repository(f"octo/models{n}", {"README.md": b"models"}) for n in range(4)]
        for repo in self.repos:
            repo.permission("dev", "write")
        self.pulls: list[Pull] = []
        self.delayed = 0  # deliveries that were held back, so that later ones overtake them
        self._delays = random.Random(f"{seed} delays")
        self._lock = threading.Lock()

    def act(self) -> None:
        self.github.webhooks.wait = self._wait
        with ThreadPoolExecutor(8) as pool:
            self.pulls = list(pool.map(self._one, range(max(1, self.deliveries // OF_A_PULL))))
        dice = random.Random(self.seed)
        while len(self.github.deliveries) < self.deliveries:
            self.github.redeliver(dice.choice(self.github.deliveries))
        self.github.webhooks.wait = None

    def _one(self, number: int) -> Pull:
        dice = random.Random(f"{self.seed} {number}")
        repo = self.repos[number % len(self.repos)]
        pull = repo.pull(files={"train0.py": SLOW}, title=f"Faster {number}", author="dev")
        for pushed in range(PUSHES):
            time.sleep(dice.uniform(0.2, 2.0))
            if dice.random() < 0.5:
                pull.comment("dev", f"/ptopt explain item-every-step\n\nand {pushed}")
            if dice.random() < 0.7:
                self.github.redeliver(dice.choice(self.github.deliveries))
            # A rule is reported once for a file, so each push has its own.
            pull.push({f"train{pushed + 1}.py": SLOW})
        return pull

    def _wait(self) -> float:
        with self._lock:
            if self._delays.random() > 0.03:
                return 0.0
            self.delayed += 1
            return self._delays.uniform(0.5, 3.0)
