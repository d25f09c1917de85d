"""Blobs and the contents API."""

from __future__ import annotations

import base64
from urllib.parse import quote

from fake_github.http import Answer, ApiError, Call, Json, not_found, route

_RAW = "application/vnd.github.raw"
_LINK, _MODULE = "120000", "160000"


def _wants_raw(call: Call) -> bool:
    accept = call.request.headers.get("accept", "")
    return "vnd.github" in accept and "raw" in accept


@route("GET", "/repos/{owner}/{repo}/git/blobs/{file_sha}", "contents:read")
def get_blob(call: Call) -> Answer:
    sha = call.params["file_sha"]
    data = call.repo.git.blob(sha)
    if data is None:
        raise not_found()
    if len(data) > call.github.limits.blob:
        text = "This API returns blobs up to 100 MB in size. The requested blob is too large to fetch via the API."
        raise ApiError(403, text, [{"resource": "Blob", "field": "data", "code": "too_large"}])
    if _wants_raw(call):
        return Answer(data, media_type=f"{_RAW}; charset=utf-8")
    return Answer(
        {
            "sha": sha,
            "node_id": f"B_{sha}",
            "size": len(data),
            "url": f"{call.github.url}{call.request.path}",
            "content": _base64(data),
            "encoding": "base64",
        }
    )


@route("GET", "/repos/{owner}/{repo}/contents/{path}", "contents:read")
def get_contents(call: Call) -> Answer:
    repo, path = call.repo, call.params["path"].strip("/")
    ref = call.query.get("ref") or repo.default_branch
    sha = repo.git.resolve(ref)
    if sha is None:
        raise ApiError(404, f"No commit found for the ref {ref}")
    files = repo.git.files(sha)
    if path in files:
        return _file(call, ref, path, *files[path])
    inside = f"{path}/" if path else ""
    below = sorted(each for each in files if each.startswith(inside))
    if not below:
        raise not_found()
    entries: dict[str, Json] = {}
    for each in below:
        name, _, deeper = each.removeprefix(inside).partition("/")
        if deeper:
            where = f"{sha}:{inside}{name}"
            if name not in entries:
                tree = repo.git.run("rev-parse", where).decode().strip()
                entries[name] = _entry(call, ref, inside + name, "dir", tree, 0)
        else:
            mode, blob = files[each]
            kind = "symlink" if mode == _LINK else "submodule" if mode == _MODULE else "file"
            size = 0 if kind == "submodule" else len(repo.git.blob(blob) or b"")
            entries[name] = _entry(call, ref, each, kind, blob, size)
    return Answer([entries[name] for name in sorted(entries)])


def _file(call: Call, ref: str, path: str, mode: str, sha: str) -> Answer:
    if mode == _MODULE:
        entry = _entry(call, ref, path, "submodule", sha, 0)
        return Answer({**entry, "submodule_git_url": ""})
    data = call.repo.git.blob(sha) or b""
    if mode == _LINK:
        target = data.decode("utf-8", "replace")
        return Answer({**_entry(call, ref, path, "symlink", sha, len(data)), "target": target})
    if _wants_raw(call):
        return Answer(data, media_type=f"{_RAW}; charset=utf-8")
    if len(data) > call.github.limits.blob:
        raise ApiError(403, "This API returns blobs up to 100 MB in size.")
    small = len(data) <= call.github.limits.contents
    content = (
        {"content": _base64(data), "encoding": "base64"} if small else {"content": "", "encoding": "none"}
    )
    return Answer({**_entry(call, ref, path, "file", sha, len(data)), **content})


def _entry(call: Call, ref: str, path: str, kind: str, sha: str, size: int) -> Json:
    repo, github = call.repo, call.github
    place = quote(path)
    url = f"{github.url}/repos/{repo.full_name}/contents/{place}?ref={quote(ref, safe='')}"
    objects = "trees" if kind == "dir" else "blobs"
    git = f"{github.url}/repos/{repo.full_name}/git/{objects}/{sha}"
    html = f"{github.html}/{repo.full_name}/{'tree' if kind == 'dir' else 'blob'}/{ref}/{place}"
    return {
        "name": path.rpartition("/")[2],
        "path": path,
        "sha": sha,
        "size": size,
        "url": url,
        "html_url": html,
        "git_url": git,
        "download_url": None if kind in ("dir", "submodule") else f"{html}?raw=1",
        "type": kind,
        "_links": {"self": url, "git": git, "html": html},
    }


def _base64(data: bytes) -> str:
    """As GitHub writes it: lines of 60 characters."""
    text = base64.b64encode(data).decode()
    return "".join(f"{text[at : at + 60]}\n" for at in range(0, len(text), 60))
