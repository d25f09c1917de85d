"""People who answer comments on code that lies in clones, and judged comments on code of other repositories."""

from __future__ import annotations

import json
import random
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

from sqlalchemy import Engine

from ptopt.findings import Finding
from service.database import writing
from service.models import CommentRow, Installation, Repository, ReviewRow, Signal
from tests.training.feedback_service import git
from training.dataset.synthesis import review

RULE = "item-every-step"
DISLIKED = "legacy"
START = datetime(2026, 11, 1, tzinfo=timezone.utc)
_SYLLABLES = "ba ce di fo gu ha je ki lo mu na pe ri so tu va we xi yo zu".split()


def function(chance: random.Random, disliked: bool) -> str:
    """A training loop that reads the loss at each step; all names in it are its own."""

    def name() -> str:
        return "".join(chance.choices(_SYLLABLES, k=3))

    kind = DISLIKED if disliked else "modern"
    net, data, row, more = (name() for _ in range(4))
    loss, total = (f"{kind}_{name()}" for _ in range(2))
    lines = [f"{name()} = {net}.{name()}({row}, {name()}={chance.randrange(99)})" for _ in range(3)]
    body = "".join(f"        {line}\n" for line in lines)
    return (
        f"import torch\n\n\ndef {kind}_{name()}({net}, {data}, {more}, {total}=0.0):\n"
        f"    for {row} in {data}:\n{body}"
        f"        {loss} = {net}({row}.cuda())\n        {loss}.backward()\n        {more}.step()\n"
        f"        {total} += {loss}.item()\n    return {total}\n"
    )


def finding_in(path: str, text: str) -> Finding:
    (found,) = (one for one in review(path, text) if one.name == RULE)
    return found


class Coded:
    """Clones, the database, and a file of judged comments."""

    def __init__(self, folder: Path, url: str, engine: Engine, seed: int = 0) -> None:
        self.url, self.engine, self.folder = url, engine, folder / "retraining"
        self.clones, self.registry, self.gold = folder / "clones", folder / "registry", folder / "gold.jsonl"
        self._chance, self._number, self._repositories = random.Random(seed), 0, 0
        self.clones.mkdir()
        self.work = self.readers(folder)

    def answers(self, repositories: int, each: int, *, taken: bool = False, learn: bool = True) -> None:
        """Comments on half liked and half disliked functions, each answered by somebody else."""
        for _ in range(repositories):
            self._repositories += 1
            number = self._repositories
            texts = [function(self._chance, n % 2 == 0) for n in range(each)]
            head = self._clone(f"acme-{number}/net", texts, learn)
            with writing(self.engine) as session:
                session.add(Installation(id=number, account=f"acme-{number}", created_at=START))
                session.flush()
                row = {"installation_id": number, "full_name": f"acme-{number}/net", "private": False}
                session.add(Repository(id=number, **row, learn=learn))
            for n, text in enumerate(texts):
                self._comment(number, head, finding_in(f"f{n}.py", text), n % 2 == 1, taken)

    def readers(self, folder: Path) -> Path:
        """Judged comments to learn from, of repositories without a clone."""
        rows = [
            {
                "repo": f"read-{n % 12}/net", "sha": "0" * 40, "path": "f.py", "start": 1, "end": 1, "rule": RULE,
                "verdict": "RT"[n % 2], "features": self._features(),
            }
            for n in range(96)
        ]  # fmt: skip
        path = folder / "work.jsonl"
        path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
        return path

    def judge(self, repositories: int, each: int, *, otherwise: bool = False) -> None:
        """A gold set in which readers say the same as people, or the opposite."""
        rows = []
        for number in range(repositories):
            texts = [function(self._chance, n % 2 == 0) for n in range(each)]
            sha = self._clone(f"gold-{number}/net", texts, True)
            for n, text in enumerate(texts):
                span = finding_in(f"f{n}.py", text).span
                useful = (n % 2 == 1) != otherwise
                rows.append({
                    "repo": f"gold-{number}/net", "sha": sha, "path": f"f{n}.py", "start": span.start,
                    "end": span.end, "rule": RULE, "verdict": "R" if useful else "T", "features": self._features(),
                })  # fmt: skip
        self.gold.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")

    def _features(self) -> dict[str, float]:
        return {"stated confidence": 0.7, "noise": self._chance.random()}

    def _clone(self, name: str, texts: list[str], learn: bool) -> str:
        at = self.clones / name
        at.mkdir(parents=True)
        git(at, "init", "-q", "-b", "main")
        (at / ".ptopt.toml").write_text(f"learn = {'true' if learn else 'false'}\n")
        for n, text in enumerate(texts):
            (at / f"f{n}.py").write_text(text)
        git(at, "add", "-A")
        git(at, "commit", "-q", "-m", "x")
        return git(at, "rev-parse", "HEAD")

    def _comment(self, repository: int, head: str, finding: Finding, good: bool, taken: bool) -> None:
        self._number += 1
        number, at = self._number, START + timedelta(minutes=self._number)
        of_pull: dict[str, Any] = {"repository_id": repository, "pull": number, "posted_at": at}
        with writing(self.engine) as session:
            made = ReviewRow(
                **of_pull, head_sha=head, github_id=number, ptopt_version="1", files_reviewed=1, findings=1,
                received_at=at,
            )  # fmt: skip
            session.add(made)
            session.flush()
            comment = CommentRow(
                **of_pull, review_id=made.id, github_id=number, rule=finding.rule, fingerprint=finding.fingerprint,
                origin="rule", confidence=0.5, path_hash="h", features=self._features(),
            )  # fmt: skip
            session.add(comment)
            session.flush()
            said = ("applied", "exact") if good and taken else ("reaction", "+1" if good else "-1")
            session.add(
                Signal(
                    comment_id=comment.id, kind=said[0], value=said[1], actor=f"dev-{number}", actor_writes=True,
                    source=f"r{number}", created_at=at,
                )
            )  # fmt: skip
