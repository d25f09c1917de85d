"""git's smart HTTP protocol, fetching only: /OWNER/NAME.git."""

from __future__ import annotations

import gzip
import re
import subprocess
from typing import TYPE_CHECKING

from fake_github import access
from fake_github.http import Answer, ApiError, Request, not_found

if TYPE_CHECKING:
    from fake_github.fake import FakeGitHub

_PATH = re.compile(r"/([^/]+/[^/]+?)(?:\.git)?/(info/refs|git-upload-pack)")


def handle(github: FakeGitHub, request: Request) -> Answer:
    match = _PATH.fullmatch(request.path)
    if match is None:
        raise not_found()
    with github.lock:
        repo = github.find_repo(match[1])
        try:
            token = access.authenticate(github, request)
            access.check_repo(github, token, repo, [["contents", "read"]])
        except ApiError as error:
            raise ApiError(
                401, "Authentication required", headers={"WWW-Authenticate": 'Basic realm="GitHub"'}
            ) from error
    command, environment = repo.git.upload_pack
    if "git-protocol" in request.headers:
        environment = {**environment, "GIT_PROTOCOL": request.headers["git-protocol"]}
    body, flags, kind = request.body, [], "result"
    if match[2] == "info/refs":
        if request.query.get("service") != "git-upload-pack":
            raise ApiError(403, "Pushing is not offered here")
        flags, kind, body = ["--http-backend-info-refs"], "advertisement", b""
    elif request.headers.get("content-encoding") == "gzip":
        body = gzip.decompress(body)
    done = subprocess.run(
        [*command, *flags, str(repo.git.folder)], input=body, capture_output=True, env=environment
    )
    out = done.stdout
    if kind == "advertisement" and not request.headers.get("git-protocol", "").startswith("version=2"):
        out = b"001e# service=git-upload-pack\n0000" + out
    headers = {"Cache-Control": "no-cache"}
    return Answer(out, headers=headers, media_type=f"application/x-git-upload-pack-{kind}")
