from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.training.sources.fakes import FAST, SLOW
from tests.training.texts import GPL, MIT
from training.sources.base import SourceError
from training.sources.changes import changed_functions, performance_score
from training.sources.commits import Commits
from training.sources.git import Clone
from training.sources.store import Store, pull


class Repository:
    def __init__(self, path: Path) -> None:
        self.path = path
        path.mkdir()
        self.git("init", "-q", "-b", "main")
        self.git("remote", "add", "origin", "git@github.com:acme/net.git")

    def git(self, *arguments: str) -> str:
        who = ("-c", "user.name=T", "-c", "user.email=t@example.com", "-c", "commit.gpgsign=false")
        return subprocess.run(
            ["git", *who, *arguments], cwd=self.path, check=True, capture_output=True, text=True
        ).stdout.strip()

    def commit(self, message: str, **files: str) -> str:
        for name, text in files.items():
            path = self.path / name.replace("__", "/").replace("_py", ".py")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        self.git("add", "-A")
        self.git("commit", "-q", "--allow-empty", "-m", message)
        return self.git("rev-parse", "HEAD")


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    repo = Repository(tmp_path / "net")
    repo.commit("start", LICENSE=MIT, src__train_py=SLOW, src__other_py="x = 1\n")
    return repo


def mined(*clones: Path, **options):
    return [
        d for page in Commits([("", c) for c in clones], **options).pull(None, 100) for d in page.documents
    ]


def test_a_commit_that_ends_what_a_rule_sees(repository: Repository, clock):
    sha = repository.commit("Do not wait for the loss", src__train_py=FAST)
    repository.commit("words only", src__train_py=FAST.replace("total = ", "total  =  "))
    (document,) = mined(repository.path, clock=clock)
    assert document.provenance == f"acme/net@{sha}"
    assert document.url == f"https://github.com/acme/net/commit/{sha}"
    assert (document.licence, document.train, document.text) == ("MIT", True, "Do not wait for the loss")
    before, after = document.blocks
    assert (before.role, before.rules, before.path, before.symbol) == (
        "before",
        ("item-every-step",),
        "src/train.py",
        "train",
    )
    assert "total += loss.item()" in before.code and "total += loss.detach()" in after.code
    assert document.raw["reasons"] == {"src/train.py:train": "rule"}
    assert document.fetched_at == "2027-01-15T08:00:00+00:00"


def test_a_message_counts_only_for_code_that_performance_is_made_of(repository: Repository):
    pinned = SLOW.replace(
        "x.to(device), y.to(device)", "x.to(device, non_blocking=True), y.to(device, non_blocking=True)"
    )
    repository.commit("Speed up training", src__train_py=pinned)
    repository.commit("Faster still", src__train_py=pinned.replace("total = 0.0", "total = 1.0"))
    (document,) = mined(repository.path)
    assert set(document.raw["reasons"].values()) <= {"message", "both"}
    assert document.text == "Speed up training"


def test_what_makes_it_slower_or_rewrites_it_is_no_pair(repository: Repository):
    repository.commit("fast", src__train_py=FAST)
    fast = len(mined(repository.path))
    repository.commit("Revert", src__train_py=SLOW)
    other = "import torch\n\n\ndef train(model):\n" + "".join(
        f"    a{n} = torch.zeros({n})\n" for n in range(60)
    )
    repository.commit("Rewrite for performance", src__train_py=other)
    assert len(mined(repository.path)) == fast == 1


def test_commits_that_touch_too_much_are_skipped(repository: Repository):
    many = {f"m{n}_py": SLOW for n in range(30)}
    repository.commit("many", **many)
    repository.commit("faster, everywhere", **dict.fromkeys(many, FAST))
    assert mined(repository.path) == []


@pytest.mark.parametrize("licence", [GPL, "Ask me.", None])
def test_a_clone_without_a_good_licence_is_left_out(tmp_path: Path, licence: str | None):
    repo = Repository(tmp_path / "net")
    repo.commit("start", train_py=SLOW, **({"LICENSE": licence} if licence else {}))
    repo.commit("faster", train_py=FAST)
    (page,) = Commits([("", repo.path)]).pull(None, 10)
    assert page.documents == () and "acme/net" in page.notes[0]


def test_it_goes_on_after_the_last_commit_and_misses_no_branch(repository: Repository, tmp_path: Path):
    source = Commits([("", repository.path)])
    repository.git("checkout", "-q", "-b", "side")
    side = repository.commit("avoid the sync", src__train_py=FAST)
    repository.git("checkout", "-q", "main")
    repository.commit("other", src__other_py="x = 2\n")
    with Store(tmp_path / "s.sqlite") as store:
        assert pull(source, store, 10).documents == 0
        repository.git("merge", "-q", "--no-edit", "side")
        assert pull(source, store, 10).documents == 1
        assert pull(source, store, 10).documents == 0
        assert [d.id for d in store.documents()] == [f"acme/net@{side}"]


def test_a_history_that_was_rewritten_is_read_anew(repository: Repository):
    repository.commit("faster", src__train_py=FAST)
    (page,) = Commits([("", repository.path)]).pull({"acme/net": "0" * 40}, 10)
    assert len(page.documents) == 1


def test_a_bare_clone_and_one_with_a_name(repository: Repository, tmp_path: Path):
    repository.commit("faster", src__train_py=FAST)
    bare = tmp_path / "bare.git"
    subprocess.run(
        ["git", "clone", "-q", "--bare", str(repository.path), str(bare)], check=True, capture_output=True
    )
    assert mined(bare)[0].project == "bare"
    (page,) = Commits([("acme/named", bare)]).pull(None, 10)
    assert page.documents[0].project == "acme/named"
    with pytest.raises(SourceError, match="name them"):
        mined(repository.path, repository.path)


def test_nothing_of_a_clone_runs(repository: Repository, tmp_path: Path):
    repository.commit("faster", src__train_py=FAST)
    mark = tmp_path / "ran"
    script = tmp_path / "run.sh"
    script.write_text(f"#!/bin/sh\ntouch {mark}\n")
    script.chmod(0o755)
    (repository.path / ".gitattributes").write_text("*.py diff=evil\n")
    for key in ("diff.evil.textconv", "diff.external", "core.fsmonitor", "core.pager", "diff.evil.command"):
        repository.git("config", key, str(script))
    assert len(mined(repository.path)) == 1
    assert not mark.exists()


def test_odd_file_names_and_messages(repository: Repository):
    repository.commit("start", **{'odd\n"ä\x01_py': SLOW})
    sha = repository.commit(
        "faster \x01\x02\n\n:100644 100644 x y M\tevil.py", **{'odd\n"ä\x01_py': FAST, "src__train_py": FAST}
    )
    (document,) = mined(repository.path)
    assert document.id == f"acme/net@{sha}" and [b.path for b in document.blocks] == ["src/train.py"] * 2


def test_a_folder_that_is_no_clone(tmp_path: Path):
    with pytest.raises(SourceError, match="no such folder"):
        Clone(tmp_path / "none")
    with pytest.raises(SourceError, match="git rev-parse failed"):
        Clone(tmp_path)


@pytest.mark.parametrize(
    ("message", "yes"),
    [
        ("Speed up data loading", True),
        ("perf: vectorize the loss", True),
        ("Optimize training speed by moving loss.item()", True),
        ("Fix slow evaluation", True),
        ("Reduce GPU memory usage", True),
        ("Fix typo in performance docs", False),
        ('Revert "Speed up data loading"', False),
        ("Add optimizer step", False),
        ("Improve model performance (accuracy)", False),
        ("Add SimPO\n\nThis makes it faster, and reduces memory usage.", False),
        ("", False),
    ],
)
def test_what_messages_say(message: str, yes: bool):
    assert (performance_score(message) >= 2) is yes


def test_only_meaning_counts():
    noise = FAST.replace("def train(", "def train(  # fast\n        ").replace(
        "    model.to", '    """Train."""\n    model.to', 1
    )
    assert list(changed_functions("a.py", FAST.encode(), noise.encode())) == []
    assert list(changed_functions("a.py", b"def f(:\n", FAST.encode())) == []
    (change,) = changed_functions("a.py", SLOW.encode(), FAST.encode())
    assert (change.resolved, change.introduced) == (("item-every-step",), ())
