"""Check runs and SARIF uploads."""

from __future__ import annotations

import base64
import gzip
import json
import re
import uuid
import zlib

from fake_github.accounts import App
from fake_github.checks import CheckRun, Sarif
from fake_github.http import Answer, ApiError, Call, invalid, not_found, page, route

_REPO = "/repos/{owner}/{repo}"


def _app(call: Call) -> App:
    """The App that a token belongs to. Actions is an App, too."""
    assert call.token
    if call.token.installation:
        return call.token.installation.app
    return App(15368, "github-actions", "GitHub Actions", call.github.account("github"), "", "", {}, [])


def _run(call: Call) -> CheckRun:
    run = call.repo.check_runs.get(call.number("check_run_id"))
    if run is None:
        raise not_found()
    return run


@route("POST", f"{_REPO}/check-runs", "checks:write")
def create_check_run(call: Call) -> Answer:
    head = call.text("head_sha")
    if not re.fullmatch(r"[0-9a-f]{40}", head) or call.repo.git.resolve(head) is None:
        raise ApiError(422, "No commit found for SHA: " + head)
    run = CheckRun(call.repo, call.github.next_id(), _app(call), call.text("name"), head)
    run.update(call.data)
    call.repo.check_runs[run.id] = run
    return Answer(run.shape(), 201)


@route("GET", f"{_REPO}/check-runs/{{check_run_id}}", "checks:read")
def get_check_run(call: Call) -> Answer:
    return Answer(_run(call).shape())


@route("PATCH", f"{_REPO}/check-runs/{{check_run_id}}", "checks:write")
def update_check_run(call: Call) -> Answer:
    run = _run(call)
    if run.app.id != _app(call).id:
        raise ApiError(
            403, "Invalid app_id `" + str(_app(call).id) + "` - check run can only be modified by its App"
        )
    run.update(call.data)
    return Answer(run.shape())


@route("GET", f"{_REPO}/check-runs/{{check_run_id}}/annotations", "checks:read")
def list_annotations(call: Call) -> Answer:
    run = _run(call)
    return page(call, run.annotations, run.annotation_shape)


@route("GET", f"{_REPO}/commits/{{ref}}/check-runs", "checks:read")
def list_check_runs(call: Call) -> Answer:
    sha = call.repo.git.resolve(call.params["ref"])
    if sha is None:
        raise ApiError(422, f"No commit found for SHA: {call.params['ref']}")
    name, app = call.query.get("check_name"), call.query.get("app_id")
    found = [
        run
        for run in call.repo.check_runs.values()
        if run.head_sha == sha and (not name or run.name == name) and (not app or str(run.app.id) == app)
    ]
    if call.query.get("filter", "latest") == "latest":
        latest = {(run.app.id, run.name): run for run in found}
        found = list(latest.values())
    return page(call, found[::-1], CheckRun.shape, wrap="check_runs")


@route("POST", f"{_REPO}/code-scanning/sarifs", "security_events:write")
def upload_sarif(call: Call) -> Answer:
    commit, ref = call.text("commit_sha"), call.text("ref")
    if call.repo.git.resolve(commit) is None:
        raise ApiError(404, "commit not found")
    if not re.fullmatch(r"refs/(heads|tags)/.+|refs/pull/\d+/(merge|head)", ref):
        raise invalid("Sarif", "ref")
    try:
        log = json.loads(gzip.decompress(base64.b64decode(call.text("sarif"), validate=True)))
    except (ValueError, OSError, EOFError, zlib.error):
        raise ApiError(
            400, "Invalid SARIF. The file is not gzip-compressed and Base64-encoded JSON."
        ) from None
    if log.get("version") != "2.1.0" or not isinstance(log.get("runs"), list):
        raise ApiError(400, "Invalid SARIF. Missing 'runs' or unsupported version.")
    upload = Sarif(str(uuid.uuid4()), commit, ref, log, call.login)
    call.repo.sarifs.append(upload)
    return Answer({"id": upload.id, "url": f"{call.github.url}{call.request.path}/{upload.id}"}, 202)


@route("GET", f"{_REPO}/code-scanning/sarifs/{{sarif_id}}", "security_events:read")
def get_sarif(call: Call) -> Answer:
    if not any(each.id == call.params["sarif_id"] for each in call.repo.sarifs):
        raise not_found()
    url = f"{call.github.url}/repos/{call.repo.full_name}/code-scanning/analyses"
    return Answer({"processing_status": "complete", "analyses_url": url})
