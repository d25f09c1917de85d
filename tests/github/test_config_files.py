"""Configurations in pull requests: read from the API and from git, and commented with a suggestion."""

from __future__ import annotations

from fake_github import FakeGitHub
from fake_github.repos import Repo
from ptopt.config import Config
from ptopt.github import git_diff
from ptopt.github.auth import for_token
from ptopt.github.pipeline import review_pull
from ptopt.github.reading import list_files, may_hold_code, read_change

TRAINING = (
    b'{\n  "output_dir": "out",\n  "learning_rate": 1e-4,\n  "gradient_accumulation_steps": 4,\n'
    b'  "per_device_train_batch_size": 8,\n  "dataloader_pin_memory": false\n}\n'
)
DOCKERFILE = b"FROM python:3.12\nRUN pip install torch\n"
WORKFLOW = (
    b"on: push\njobs:\n  test:\n    runs-on: ubuntu-latest\n    steps:\n      - run: pip install torch\n"
)
FILES = {
    ".github/workflows/ci.yml": WORKFLOW,
    "Dockerfile": DOCKERFILE,
    "conf/train.json": TRAINING,
    "data/labels.json": b'{"zero_optimization": {"stage": 2}}',
    "notes.yaml": b"a: 1\n",
}


def _repository(github: FakeGitHub) -> Repo:
    return github.repository(
        "octo/models", {"README.md": b"# Models\n\n    python train.py conf/train.json\n"}
    )


def test_a_pull_request_without_python_is_commented(github: FakeGitHub) -> None:
    repo = _repository(github)
    pull = repo.pull(files=FILES)
    client = for_token(repo.github.token(repo), repo.github.url)
    outcome = review_pull(client, repo.full_name, pull.number, before_write=lambda: None)
    assert outcome.status == "posted" and outcome.review is not None
    assert outcome.review.files_reviewed == 3 and not outcome.review.not_reviewed
    placed = sorted((comment.path, comment.line) for comment in pull.review_comments)
    assert placed == [(".github/workflows/ci.yml", 6), ("Dockerfile", 2), ("conf/train.json", 6)]
    bodies = {comment.path: comment.body for comment in pull.review_comments}
    assert '```suggestion\n  "dataloader_pin_memory": true\n```' in bodies["conf/train.json"]
    assert "```suggestion\nRUN pip install --no-cache-dir torch\n```" in bodies["Dockerfile"]


def test_git_gives_the_same_change_as_the_api(github: FakeGitHub) -> None:
    repo = _repository(github)
    pull = repo.pull(files=FILES)
    client = for_token(repo.github.token(repo), repo.github.url)
    read = client.pull(repo.full_name, pull.number)
    by_api = read_change(client, read, Config())
    by_git = git_diff.fetch_change(client, read, why_not=lambda path: None)
    assert [file.path for file in by_api.files] == [
        ".github/workflows/ci.yml", "Dockerfile", "conf/train.json", "notes.yaml"
    ]  # fmt: skip
    assert by_git.files == by_api.files


def test_many_data_files_are_few_requests(github: FakeGitHub) -> None:
    repo = _repository(github)
    pull = repo.pull(
        files={f"data/{number:03}.yaml": b"a: 1\n" for number in range(60)} | {"Dockerfile": DOCKERFILE}
    )
    client = for_token(repo.github.token(repo), repo.github.url)
    change = read_change(client, client.pull(repo.full_name, pull.number), Config())
    assert len(change.files) == 41 and change.files[0].path == "Dockerfile"
    assert {item.reason for item in change.not_reviewed} == {"more than 40 YAML and JSON files"}
    assert sum("/git/blobs/" in request.path for request in github.requests) <= 41


def test_data_alone_is_nothing_to_review(github: FakeGitHub) -> None:
    repo = _repository(github)
    pull = repo.pull(files={"data/labels.json": b"{}", "notes.md": b"x"})
    client = for_token(repo.github.token(repo), repo.github.url)
    read = client.pull(repo.full_name, pull.number)
    assert not may_hold_code(read, list_files(client, read))
