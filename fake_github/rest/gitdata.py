"""The git data API: refs, commits, trees, blobs."""

from __future__ import annotations

import base64
import binascii
import re
import time
from datetime import datetime
from typing import Any

from fake_github import shapes
from fake_github.git import GitError, Person
from fake_github.http import Answer, ApiError, Call, Json, not_found, route

_SHA = re.compile(r"[0-9a-f]{40}")


def _ref_shape(call: Call, ref: str, sha: str) -> Json:
    url = f"{call.github.url}/repos/{call.repo.full_name}/git"
    return {
        "ref": ref,
        "node_id": f"REF_{ref}",
        "url": f"{url}/{ref}",
        "object": {"sha": sha, "type": "commit", "url": f"{url}/commits/{sha}"},
    }


@route("GET", "/repos/{owner}/{repo}/git/ref/{ref}", "contents:read")
def get_ref(call: Call) -> Answer:
    ref = f"refs/{call.params['ref']}"
    sha = call.repo.git.refs.get(ref)
    if sha is None:
        raise not_found()
    return Answer(_ref_shape(call, ref, sha))


@route("POST", "/repos/{owner}/{repo}/git/refs", "contents:write")
def create_ref(call: Call) -> Answer:
    ref, sha = call.text("ref"), call.text("sha")
    if not ref.startswith("refs/") or ref.count("/") < 2:
        raise ApiError(422, "Reference name must start with 'refs/' and have at least three components.")
    if ref in call.repo.git.refs:
        raise ApiError(422, "Reference already exists")
    _commit(call, sha)
    try:
        call.repo.git.set_ref(ref, sha)
    except GitError as error:
        raise ApiError(422, str(error)) from None
    return Answer(_ref_shape(call, ref, sha), 201)


@route("PATCH", "/repos/{owner}/{repo}/git/refs/{ref}", "contents:write")
def update_ref(call: Call) -> Answer:
    repo, ref, sha = call.repo, f"refs/{call.params['ref']}", call.text("sha")
    old = repo.git.refs.get(ref)
    if old is None:
        raise ApiError(422, "Reference does not exist")
    if not _SHA.fullmatch(sha) or repo.git.resolve(sha) is None:
        raise ApiError(422, "Object does not exist")
    if not call.data.get("force") and not repo.git.is_ancestor(old, sha):
        raise ApiError(422, "Update is not a fast forward")
    repo.git.set_ref(ref, sha)
    if ref.startswith("refs/heads/"):
        call.github.webhooks.background(*repo.pushed(ref.removeprefix("refs/heads/"), sha, call.login))
    return Answer(_ref_shape(call, ref, sha))


@route("DELETE", "/repos/{owner}/{repo}/git/refs/{ref}", "contents:write")
def delete_ref(call: Call) -> Answer:
    ref = f"refs/{call.params['ref']}"
    if ref not in call.repo.git.refs:
        raise ApiError(422, "Reference does not exist")
    call.repo.git.delete_ref(ref)
    return Answer(None, 204)


@route("GET", "/repos/{owner}/{repo}/git/commits/{commit_sha}", "contents:read")
def get_commit(call: Call) -> Answer:
    return Answer(shapes.git_commit(call.repo, _commit(call, call.params["commit_sha"])))


@route("GET", "/repos/{owner}/{repo}/commits/{ref}", "contents:read")
def get_full_commit(call: Call) -> Answer:
    sha = call.repo.git.resolve(call.params["ref"])
    if sha is None:
        raise ApiError(422, f"No commit found for SHA: {call.params['ref']}")
    return Answer(shapes.commit(call.repo, sha))


@route("POST", "/repos/{owner}/{repo}/git/commits", "contents:write")
def create_commit(call: Call) -> Answer:
    git, data = call.repo.git, call.data
    me = call.repo.person(call.login)
    author = _person(data.get("author"), me)
    parents = data.get("parents") or []
    for parent in parents:
        _commit(call, parent)
    tree = call.text("tree")
    if not _SHA.fullmatch(tree):
        raise ApiError(422, "The tree parameter must be exactly 40 characters and contain only [0-9a-f].")
    try:
        sha = git.add_commit(
            tree, parents, call.text("message"), author, _person(data.get("committer"), author)
        )
    except GitError:
        raise ApiError(422, "Tree SHA does not exist") from None
    return Answer(shapes.git_commit(call.repo, sha), 201)


@route("GET", "/repos/{owner}/{repo}/git/trees/{tree_sha}", "contents:read")
def get_tree(call: Call) -> Answer:
    git, sha = call.repo.git, call.params["tree_sha"]
    name = git.resolve(sha) or sha
    flags = ["-r", "-t"] if call.query.get("recursive") else []
    try:
        sha = git.run("rev-parse", "--verify", f"{name}^{{tree}}").decode().strip()
        lines = git.run("ls-tree", "-l", "-z", "--full-tree", *flags, sha).split(b"\0")[:-1]
    except GitError:
        raise not_found() from None
    url = f"{call.github.url}/repos/{call.repo.full_name}/git"
    entries = []
    for line in lines:
        head, path = line.split(b"\t", 1)
        mode, kind, object_sha, size = head.decode().split()
        entry: Json = {"path": path.decode("utf-8", "replace"), "mode": mode, "type": kind, "sha": object_sha}
        if kind == "blob":
            entry["size"] = int(size)
        if kind != "commit":
            entry["url"] = f"{url}/{kind}s/{object_sha}"
        entries.append(entry)
    return Answer({"sha": sha, "url": f"{url}/trees/{sha}", "tree": entries, "truncated": False})


@route("POST", "/repos/{owner}/{repo}/git/trees", "contents:write")
def create_tree(call: Call) -> Answer:
    git = call.repo.git
    entries: list[tuple[str, str, str | None]] = []
    for entry in call.data.get("tree") or []:
        sha = entry.get("sha")
        if "content" in entry:
            sha = git.add_blob(entry["content"].encode())
        if entry.get("mode") not in ("100644", "100755", "040000", "160000", "120000"):
            raise ApiError(422, "Must supply a valid tree.mode")
        entries.append((entry["mode"], entry["path"], sha))
    try:
        sha = git.add_tree(call.text("base_tree", required=False) or None, entries)
    except GitError:
        raise ApiError(422, "GitRPC::BadObjectState") from None
    call.params["tree_sha"] = sha
    return Answer(get_tree(call).data, 201)


@route("POST", "/repos/{owner}/{repo}/git/blobs", "contents:write")
def create_blob(call: Call) -> Answer:
    content, encoding = call.text("content"), call.data.get("encoding", "utf-8")
    try:
        data = base64.b64decode(content, validate=False) if encoding == "base64" else content.encode()
    except binascii.Error:
        raise ApiError(422, "content is not valid Base64") from None
    sha = call.repo.git.add_blob(data)
    url = f"{call.github.url}/repos/{call.repo.full_name}/git/blobs/{sha}"
    return Answer({"sha": sha, "url": url}, 201)


def _commit(call: Call, sha: Any) -> str:
    if not isinstance(sha, str) or not _SHA.fullmatch(sha) or call.repo.git.resolve(sha) is None:
        raise not_found() if call.request.method == "GET" else ApiError(422, "Object does not exist")
    return sha


def _person(data: Any, default: Person) -> Person:
    if not data:
        return default
    date = data.get("date")
    seconds = datetime.fromisoformat(date.replace("Z", "+00:00")).timestamp() if date else time.time()
    return Person(data["name"], data["email"], int(seconds))
