"""Pull requests, their files, commits and diffs."""

from __future__ import annotations

from urllib.parse import quote

from fake_github import shapes
from fake_github.diffs import FileDiff
from fake_github.http import Answer, ApiError, Call, Json, page, route
from fake_github.pulls import Pull, shape


def wanted_type(call: Call) -> str:
    accept = call.request.headers.get("accept", "")
    return next((kind for kind in ("diff", "patch") if f".{kind}" in accept), "json")


@route("GET", "/repos/{owner}/{repo}/pulls", "pull_requests:read")
def list_pulls(call: Call) -> Answer:
    state, head, base = call.query.get("state", "open"), call.query.get("head"), call.query.get("base")
    found = [
        pull
        for pull in call.repo.pulls.values()
        if (state == "all" or pull.open == (state == "open"))
        and (not head or pull.head_label == head)
        and (not base or pull.base_ref == base)
    ]
    if call.query.get("sort") == "updated":
        found.sort(key=lambda pull: pull.updated)
    if call.query.get("direction", "desc") == "desc":
        found.reverse()
    return page(call, found, lambda pull: shape(pull, full=False))


@route("GET", "/repos/{owner}/{repo}/pulls/{pull_number}", "pull_requests:read")
def get_pull(call: Call) -> Answer:
    pull, limits = call.pull, call.github.limits
    kind = wanted_type(call)
    if kind == "json":
        return Answer(shape(pull))
    lines = sum((file.patch or "").count("\n") + 1 for file in pull.files)
    text = pull.repo.git.raw_diff(pull.merge_base, pull.head_sha)
    for amount, limit, word in (
        (len(pull.files), limits.diff_files, "files"),
        (lines, limits.diff_lines, "lines"),
        (len(text), limits.total_bytes, "bytes"),
    ):
        if amount > limit:
            message = f"Sorry, the diff exceeded the maximum number of {word} ({limit})."
            if word == "files":
                message += " Consider using 'List pull requests files' API or locally cloning the repository instead."
            error = {"resource": "PullRequest", "field": "diff", "code": "too_large"}
            raise ApiError(406, message, [error])
    return Answer(text, media_type=f"application/vnd.github.{kind}; charset=utf-8")


@route("PATCH", "/repos/{owner}/{repo}/pulls/{pull_number}", "pull_requests:write")
def edit_pull(call: Call) -> Answer:
    pull = call.pull
    pull.title = call.data.get("title", pull.title)
    pull.body = call.data.get("body", pull.body)
    return Answer(shape(pull))


@route("GET", "/repos/{owner}/{repo}/pulls/{pull_number}/commits", "pull_requests:read")
def list_commits(call: Call) -> Answer:
    return page(call, call.pull.log[:250], lambda sha: shapes.commit(call.repo, sha))


@route("GET", "/repos/{owner}/{repo}/pulls/{pull_number}/files", "pull_requests:read")
def list_files(call: Call) -> Answer:
    pull, limits = call.pull, call.github.limits
    files = pull.files[: limits.files]
    shown = _with_patch(pull, files, limits.file_lines, limits.file_bytes, limits.total_bytes)
    return page(call, files, lambda file: file_shape(call, pull.head_sha, file, patch=file.path in shown))


def _with_patch(pull: Pull, files: tuple[FileDiff, ...], lines: int, size: int, total: int) -> set[str]:
    """Files whose patch is not too large, alone or with those before it."""
    shown, spent = set(), 0
    for file in files:
        if file.patch is None:
            continue
        length = len(file.patch.encode())
        if file.patch.count("\n") + 1 > lines or length > size or spent + length > total:
            continue
        spent += length
        shown.add(file.path)
    return shown


def file_shape(call: Call, sha: str, file: FileDiff, *, patch: bool = True) -> Json:
    """`diff-entry`."""
    place = quote(file.path)
    html = f"{call.github.html}/{call.repo.full_name}"
    data = {
        "sha": file.blob_sha,
        "filename": file.path,
        "status": file.status,
        "additions": file.additions,
        "deletions": file.deletions,
        "changes": file.additions + file.deletions,
        "blob_url": f"{html}/blob/{sha}/{quote(file.path, safe='')}",
        "raw_url": f"{html}/raw/{sha}/{quote(file.path, safe='')}",
        "contents_url": f"{call.github.url}/repos/{call.repo.full_name}/contents/{place}?ref={sha}",
    }
    if file.patch is not None and patch:
        data["patch"] = file.patch
    if file.previous_path:
        data["previous_filename"] = file.previous_path
    return data
