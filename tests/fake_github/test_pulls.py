"""Pull requests, their files and diffs, contents, git data, and fetching with git."""

from __future__ import annotations

import base64
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from fake_github import FakeGitHub, Pull, Repo
from fake_github.http import Json
from tests.fake_github.conftest import LINES, Ask

FILES = "/repos/octo/models/pulls/1/files"


def git(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {
        "GIT_CONFIG_GLOBAL": "/dev/null",
        "GIT_TERMINAL_PROMPT": "0",
        "PATH": "/usr/bin:/bin",
        "HOME": "/",
    }
    return subprocess.run(
        ["git", *arguments], cwd=folder, env=environment, capture_output=True, text=True, timeout=60
    )


BLOBS = """query($oid: GitObjectID!) { repository(owner: "octo", name: "models") { object(oid: $oid) { __typename oid
    abbreviatedOid ... on Blob { byteSize isBinary isTruncated text } } } }"""


def test_objects_by_graphql(github: FakeGitHub, repo: Repo, graphql: Callable[..., Json]) -> None:
    def found(oid: str) -> Json:
        data: Json = graphql(BLOBS, oid=oid)["data"]["repository"]["object"]
        return data

    github.limits.blob_text = 10
    plain, binary, long = (repo.git.add_blob(data) for data in (b"\xc3\xa9\r\n", b"\0\1", b"x" * 11))
    assert found(plain) == {
        "__typename": "Blob", "oid": plain, "abbreviatedOid": plain[:7], "byteSize": 4, "isBinary": False,
        "isTruncated": False, "text": "é\r\n",
    }  # fmt: skip
    assert (found(binary)["isBinary"], found(binary)["text"]) == (True, None)
    assert (found(long)["isTruncated"], found(long)["byteSize"], found(long)["text"]) == (True, 11, "x" * 10)
    commit = repo.git.refs["refs/heads/main"]
    assert found(commit) == {"__typename": "Commit", "oid": commit, "abbreviatedOid": commit[:7]}
    assert found(repo.git.read_commit(commit).tree)["__typename"] == "Tree"
    assert found("0" * 40) is None


def test_who_may_read_objects_by_graphql(
    github: FakeGitHub, repo: Repo, graphql: Callable[..., Json]
) -> None:
    secret = github.repository("octo/secret", {"a.py": b"a\n"}, private=True)
    sha = secret.git.add_blob(b"a\n")
    query = BLOBS.replace("models", "secret")
    reader = github.token(secret, {"contents": "read"})
    assert graphql(query, oid=sha, token=reader)["data"]["repository"]["object"]["text"] == "a\n"
    without = graphql(query, oid=sha, token=github.token(secret, {"pull_requests": "read"}))
    assert without["errors"][0]["type"] == "FORBIDDEN"
    assert without["data"] == {"repository": {"object": None}}
    assert graphql(query, oid=sha, token=github.token(repo))["errors"][0]["type"] == "NOT_FOUND"


def test_files_of_each_kind(repo: Repo, ask: Ask) -> None:
    repo.commit("main", {"gone.py": b"1\n", "old name.py": LINES, "image": b"\0\1\2"})
    repo.pull(
        files={
            "gone.py": None,
            "old name.py": None,
            "new name.py": LINES + b"more\n",
            "image": b"\0\1\3",
            "empty.py": b"",
            "ünï\t.py": b"x",
        }
    )
    found = {file["filename"]: file for file in ask("GET", FILES).json()}
    assert {name: file["status"] for name, file in found.items()} == {
        "gone.py": "removed",
        "new name.py": "renamed",
        "image": "modified",
        "empty.py": "added",
        "ünï\t.py": "added",
    }
    assert found["new name.py"]["previous_filename"] == "old name.py"
    assert found["new name.py"]["additions"] == 1
    assert "patch" not in found["image"]
    assert "patch" not in found["empty.py"]
    assert found["ünï\t.py"]["patch"] == "@@ -0,0 +1 @@\n+x\n\\ No newline at end of file"
    blob = ask("GET", f"/repos/octo/models/git/blobs/{found['image']['sha']}").json()
    assert base64.b64decode(blob["content"]) == b"\0\1\3"


def test_pages(repo: Repo, ask: Ask) -> None:
    repo.pull(files={f"f{number:03}.py": b"x\n" for number in range(250)})
    assert len(ask("GET", FILES).json()) == 30
    seen: list[str] = []
    url = f"{FILES}?per_page=100"
    while url:
        answer = ask("GET", url)
        seen += [file["filename"] for file in answer.json()]
        url = answer.links.get("next", {}).get("url", "")
    assert seen == [f"f{number:03}.py" for number in range(250)]


def test_limits_of_files(github: FakeGitHub, repo: Repo, ask: Ask) -> None:
    github.limits.files, github.limits.file_lines, github.limits.total_bytes = 5, 20, 1000
    large = b"".join(b"%d\n" % number for number in range(30))
    repo.pull(files={"a.py": large, **{f"b{number}.py": b"y" * 300 + b"\n" for number in range(8)}})
    files = ask("GET", FILES).json()
    assert [("patch" in file) for file in files] == [False, True, True, True, False]


@pytest.mark.parametrize(
    ("limit", "word"), [("diff_files", "files"), ("diff_lines", "lines"), ("total_bytes", "bytes")]
)
def test_a_diff_that_is_too_large(github: FakeGitHub, pull: Pull, ask: Ask, limit: str, word: str) -> None:
    diff = ask("GET", "/repos/octo/models/pulls/1", Accept="application/vnd.github.diff")
    assert diff.text.startswith("diff --git a/train.py b/train.py\n")
    setattr(github.limits, limit, 0)
    answer = ask("GET", "/repos/octo/models/pulls/1", Accept="application/vnd.github.diff")
    assert answer.status_code == 406
    assert answer.json()["errors"][0]["code"] == "too_large"
    assert word in answer.json()["message"]


def test_the_merge_base_stays_when_the_base_branch_moves(repo: Repo, pull: Pull, ask: Ask) -> None:
    base = pull.base_sha
    repo.commit("main", {"other.py": b"1\n"})
    pull.push({"sub/x.py": b"a = 2\n"})
    compared = ask("GET", f"/repos/octo/models/compare/{pull.base_sha}...{pull.head_sha}").json()
    assert compared["merge_base_commit"]["sha"] == base
    assert (compared["status"], compared["ahead_by"], compared["behind_by"]) == ("diverged", 2, 1)
    assert [file["filename"] for file in ask("GET", FILES).json()] == ["sub/x.py", "train.py"]


def test_a_fork(github: FakeGitHub, repo: Repo, ask: Ask) -> None:
    pull = repo.pull("mallory:fix", files={"train.py": b"x\n"}, author="mallory")
    data = ask("GET", "/repos/octo/models/pulls/1").json()
    assert data["head"]["repo"]["full_name"] == "mallory/models"
    assert data["head"]["label"] == "mallory:fix"
    assert data["base"]["repo"]["full_name"] == "octo/models"
    assert data["head"]["repo"]["fork"]
    # The App is not installed on the fork: it reads, and may not write.
    ref = "/repos/mallory/models/git/refs/heads/fix"
    assert ask("PATCH", ref, {"sha": pull.base_sha, "force": True}).status_code == 403
    pull.head_repo = None
    assert ask("GET", "/repos/octo/models/pulls/1").json()["head"]["repo"] is None
    github.violations.clear()  # GitHub's description forgets that forks can be gone


def test_merging(repo: Repo, pull: Pull, ask: Ask) -> None:
    repo.commit("main", {"other.py": b"1\n"})
    pull.close(merged=True)
    data = ask("GET", "/repos/octo/models/pulls/1").json()
    assert (data["state"], data["merged"]) == ("closed", True)
    assert b"forty" in (repo.file("train.py") or b"")
    assert repo.file("other.py") == b"1\n"


def test_contents(github: FakeGitHub, repo: Repo, pull: Pull, ask: Ask) -> None:
    path = "/repos/octo/models/contents/train.py"
    assert base64.b64decode(ask("GET", path).json()["content"]) == LINES
    raw = ask("GET", f"{path}?ref={pull.head_sha}", Accept="application/vnd.github.raw+json")
    assert b"forty" in raw.content
    assert [each["name"] for each in ask("GET", "/repos/octo/models/contents/sub").json()] == ["x.py"]
    assert ask("GET", "/repos/octo/models/contents/nothing").status_code == 404
    assert "nowhere" in ask("GET", f"{path}?ref=nowhere").json()["message"]
    github.limits.contents = 10
    large = ask("GET", path).json()
    assert (large["content"], large["encoding"], large["size"]) == ("", "none", len(LINES))


def test_an_etag(github: FakeGitHub, repo: Repo, ask: Ask) -> None:
    first = ask("GET", "/repos/octo/models")
    second = ask("GET", "/repos/octo/models", If_None_Match=first.headers["etag"])
    assert (second.status_code, second.content) == (304, b"")
    repo.pull(files={"a.py": b"1\n"})
    assert ask("GET", "/repos/octo/models", If_None_Match=first.headers["etag"]).status_code == 200


def test_a_commit_by_the_git_data_api(repo: Repo, pull: Pull, ask: Ask) -> None:
    base = "/repos/octo/models/git"
    head = pull.head_sha
    tree = ask("GET", f"{base}/commits/{head}").json()["tree"]["sha"]
    blob = ask("POST", f"{base}/blobs", {"content": "bmV3Cg==", "encoding": "base64"}).json()["sha"]
    entry = {"path": "sub/new.py", "mode": "100644", "type": "blob", "sha": blob}
    made = ask("POST", f"{base}/trees", {"base_tree": tree, "tree": [entry]}).json()["sha"]
    commit = ask("POST", f"{base}/commits", {"message": "New", "tree": made, "parents": [head]}).json()["sha"]
    moved = ask("PATCH", f"{base}/refs/heads/{pull.head_ref}", {"sha": commit, "force": False})
    assert moved.status_code == 200
    assert pull.head_sha == commit
    assert repo.file("sub/new.py", commit) == b"new\n"
    assert repo.git.read_commit(commit).author.name == "ptopt[bot]"
    assert ask("GET", f"{base}/ref/heads/{pull.head_ref}").json()["object"]["sha"] == commit
    refused = ask("PATCH", f"{base}/refs/heads/{pull.head_ref}", {"sha": head, "force": False})
    assert (refused.status_code, refused.json()["message"]) == (422, "Update is not a fast forward")


def test_a_force_push(pull: Pull, ask: Ask) -> None:
    old = pull.head_sha
    new = pull.force_push({"train.py": b"all new\n"})
    compared = ask("GET", f"/repos/octo/models/compare/{old}...{new}").json()
    assert compared["status"] == "diverged"
    assert len(ask("GET", "/repos/octo/models/pulls/1/commits").json()) == 1


def test_git_fetches_what_the_api_says(github: FakeGitHub, repo: Repo, pull: Pull, tmp_path: Path) -> None:
    git(tmp_path, "init", "-q")
    url = f"{github.html}/octo/models.git"
    done = git(tmp_path, "fetch", "-q", "--depth=1", "--filter=blob:none", url, "refs/pull/1/head")
    assert done.returncode == 0, done.stderr
    assert git(tmp_path, "rev-parse", "FETCH_HEAD").stdout.strip() == pull.head_sha
    done = git(tmp_path, "fetch", "-q", url, pull.base_sha)
    assert done.returncode == 0, done.stderr
    assert git(tmp_path, "show", f"{pull.base_sha}:train.py").stdout == LINES.decode()


def test_git_and_a_private_repository(github: FakeGitHub, tmp_path: Path) -> None:
    repo = github.repository("octo/secret", private=True)
    pull = repo.pull("mallory:fix", files={"a.py": b"1\n"})
    git(tmp_path, "init", "-q")
    url = f"{github.html}/octo/secret.git"
    assert git(tmp_path, "fetch", url, "refs/pull/1/head").returncode
    assert repo.installation
    value = base64.b64encode(
        f"x-access-token:{github.installation_token(repo.installation)}".encode()
    ).decode()
    header = f"http.extraHeader=Authorization: Basic {value}"
    done = git(tmp_path, "-c", header, "fetch", "-q", url, "refs/pull/1/head")
    assert done.returncode == 0, done.stderr
    assert git(tmp_path, "rev-parse", "FETCH_HEAD").stdout.strip() == pull.head_sha


def test_a_renamed_repository(github: FakeGitHub, repo: Repo, pull: Pull, ask: Ask) -> None:
    repo.rename("octo/networks")
    moved = ask("GET", "/repos/octo/models/pulls/1")
    assert moved.status_code == 301
    assert moved.headers["location"] == f"{github.url}/repositories/{repo.id}/pulls/1"
    assert ask("GET", moved.headers["location"]).json()["number"] == 1


@pytest.mark.parametrize(
    ("role", "coarse"),
    [("admin", "admin"), ("maintain", "write"), ("write", "write"), ("triage", "read"), ("none", "none")],
)
def test_permission(repo: Repo, ask: Ask, role: str, coarse: str) -> None:
    repo.permission("somebody", role)
    data = ask("GET", "/repos/octo/models/collaborators/somebody/permission").json()
    assert (data["permission"], data["role_name"]) == (coarse, role)


def test_labels(repo: Repo, pull: Pull, ask: Ask) -> None:
    pull.label("performance")
    assert [each["name"] for each in ask("GET", "/repos/octo/models/issues/1/labels").json()] == [
        "performance"
    ]
    assert ask("DELETE", "/repos/octo/models/issues/1/labels/performance").json() == []
