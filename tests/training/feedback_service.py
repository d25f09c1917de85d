"""The service's database with comments and the feedback on them, and clones of the code."""

from __future__ import annotations

import subprocess
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from sqlalchemy.orm import Session

from feedback.signals import SignalKind, record
from ptopt.change import whole_file
from ptopt.config import Config
from ptopt.findings import Finding
from ptopt.model.advisor import Advisor
from ptopt.model.calibration import Calibration, JudgeFit
from ptopt.model.interface import ChatPrompt, JudgePrompt
from ptopt.model.region import JUDGE_TOKENS
from ptopt.project.facts import NO_FACTS
from ptopt.review import review_files
from ptopt.rules import rules
from service import database
from service.models import CommentRow, Installation, Repository, ReviewRow
from training.feedback.rows import FeedbackRows, build_rows

NOW = datetime(2026, 5, 1, tzinfo=timezone.utc)
UP, DOWN = (SignalKind.REACTION, "+1"), (SignalKind.REACTION, "-1")
MERGED, APPLIED = (SignalKind.MERGED, "exact", ""), (SignalKind.APPLIED, "similar", "")


def code(number: int) -> str:
    filler = "".join(f"        y{n} = model.layer{n}(batch)\n" for n in range(40))
    return (
        "import torch\n\n\n"
        f"def train_{number}(model, loader, optimizer, total=0.0):\n"
        "    for batch in loader:\n"
        f"{filler}"
        "        loss = model(batch.cuda())\n"
        "        optimizer.zero_grad()\n"
        "        loss.backward()\n"
        "        optimizer.step()\n"
        "        total += loss.item()\n"
        "    return total\n"
    )


class RecordingBackend:
    """A back end that keeps the prompts it received."""

    name = "recording"

    def __init__(self) -> None:
        self.prompts: list[JudgePrompt] = []

    def score(self, prompts: list[JudgePrompt]) -> list[tuple[float, ...]]:
        self.prompts += prompts
        return [(3.0,) * len(one.pieces) for one in prompts]

    def complete(self, prompts: list[ChatPrompt]) -> list[str]:
        raise NotImplementedError

    def close(self) -> None: ...


def judged_review(
    path: str, text: str, judge_tokens: int = JUDGE_TOKENS
) -> tuple[Finding, list[JudgePrompt]]:
    """The finding of a review with a judge, and the prompts that the judge received."""
    backend = RecordingBackend()
    calibration = Calibration(JudgeFit(0.0, 0.0, 1.0))
    others = tuple(rule.name for rule in rules() if rule.name != "item-every-step")
    review = review_files(
        [whole_file(path, text.encode())], config=Config(ignore=others), facts=NO_FACTS, limit_to_change=True,
        advisor=Advisor(backend, calibration, judge_tokens=judge_tokens),
    )  # fmt: skip
    (finding,) = review.findings
    return finding, backend.prompts


class FeedbackService:
    """The service's database, and a folder of clones."""

    def __init__(self, folder: Path) -> None:
        self.clones = folder / "clones"
        self.url = f"sqlite:///{folder / 'ptopt.db'}"
        database.upgrade(self.url)
        self.engine = database.engine(self.url)
        self.number = 0
        self.repositories: dict[str, int] = {}
        with Session(self.engine) as session:
            session.add(Installation(id=1, account="acme", created_at=NOW))
            session.commit()

    def clone(self, layout: str, files: dict[str, str]) -> str:
        """Another commit of the clone; its SHA."""
        at = self.clones / layout
        if not at.exists():
            at.mkdir(parents=True)
            git(at, "init", "-q", "-b", "main")
            (at / ".ptopt.toml").write_text("learn = true\n")
        for path, text in files.items():
            (at / path).parent.mkdir(parents=True, exist_ok=True)
            (at / path).write_text(text)
        git(at, "add", "-A")
        git(at, "commit", "-q", "--allow-empty", "-m", "x")
        return git(at, "rev-parse", "HEAD")

    def comment(
        self, head: str, finding: Finding, *signals: tuple[SignalKind, str, str], repository: str = "acme/net",
        pull: int = 7, private: bool = False, writes: bool | None = True, origin: str = "rule", note: str = "",
        rule: str = "", learn: bool = True, installation: int = 1,
    ) -> None:  # fmt: skip
        self.number += 1
        with Session(self.engine) as session:
            if repository not in self.repositories:
                self.repositories[repository] = len(self.repositories) + 1
                if session.get(Installation, installation) is None:
                    session.add(Installation(id=installation, account=f"a{installation}", created_at=NOW))
                    session.flush()
                session.add(
                    Repository(
                        id=self.repositories[repository],
                        installation_id=installation,
                        full_name=repository,
                        private=private,
                        learn=learn,
                    )
                )
                session.flush()
            known = {"repository_id": self.repositories[repository], "pull": pull, "head_sha": head}
            review = session.query(ReviewRow).filter_by(**known).one_or_none()
            if review is None:
                review = ReviewRow(
                    **known, github_id=1, ptopt_version="1", files_reviewed=1, findings=1, received_at=NOW,
                    posted_at=NOW, model="base+judge", adapter="a" * 64, prompt_version="0", schema_version="1",
                    model_note=note,
                )  # fmt: skip
                session.add(review)
                session.flush()
            comment = CommentRow(
                review_id=review.id, repository_id=known["repository_id"], pull=pull, github_id=self.number,
                rule=rule or finding.rule, fingerprint=finding.fingerprint, origin=origin, confidence=0.9,
                path_hash="h", suggestion={}, posted_at=NOW,
            )  # fmt: skip
            session.add(comment)
            session.flush()
            for kind, value, actor in signals:
                record(session, comment, kind, value, actor=actor, source=actor, now=NOW, actor_writes=writes)
            session.commit()

    def make(self, **options: Any) -> FeedbackRows:
        return build_rows(self.url, self.clones, **options)


def git(at: Path, *arguments: str) -> str:
    who = ("-c", "user.name=T", "-c", "user.email=t@example.com", "-c", "commit.gpgsign=false")
    done = subprocess.run(["git", *who, *arguments], cwd=at, check=True, capture_output=True, text=True)
    return done.stdout.strip()
