"""GitHub as ptopt uses it, for one installation or one token. `ptopt.github.auth` makes it."""

from __future__ import annotations

import base64
import gzip
import hashlib
import re
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar, cast, get_args

from ptopt.github import commits, graphql, parsing
from ptopt.github.endpoint import checked_login, checked_repo, checked_sha, quoted, repo_path
from ptopt.github.errors import NotFoundError, TooLargeError
from ptopt.github.responses import responses
from ptopt.github.transport import Transport
from ptopt.github.values import (
    Annotation,
    CheckRun,
    CommentDraft,
    CommentKind,
    IssueComment,
    PostedComment,
    PostedReview,
    PullFile,
    PullRequest,
    PullResponses,
    Reaction,
    ReactionContent,
    ReviewDraft,
    Role,
    Thread,
    TreeEntry,
)

if TYPE_CHECKING:
    from ptopt.github.auth import TokenAuth

T = TypeVar("T")

CHECK_NAME = "ptopt"
MAX_FILE = 2**20  # bytes that `file` reads at most
ANNOTATIONS = 50  # that GitHub takes in one request
_COMMIT = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
_ROLES = frozenset(get_args(Role))
_WHERE: dict[CommentKind, str] = {"issue": "issues", "review": "pulls"}


class GitHubClient:
    """Reads are repeated a little by themselves; a write is sent once. All methods raise `ptopt.github.errors`.

    A `repo`, SHA, path or login that can be none raises ValueError before anything is sent.
    """

    def __init__(self, transport: Transport, auth: TokenAuth, identity: Callable[[], str]) -> None:
        self._transport = transport
        self._auth = auth
        self._fetch_identity = identity
        self._identity: str | None = None
        self._lock = threading.Lock()

    def __repr__(self) -> str:
        return f"GitHubClient({self._transport.endpoint.origin})"

    def identity(self) -> str:
        """Our login: `<slug>[bot]` for an App, `github-actions[bot]` in a workflow, else the user's. Fetched once."""
        with self._lock:
            if self._identity is None:
                self._identity = self._fetch_identity()
            return self._identity

    def token(self) -> str:
        """Good for at least the next two minutes."""
        return self._auth.token()

    def clone_url(self, repo: str) -> str:
        """Without credentials."""
        return f"{self._transport.endpoint.web}/{checked_repo(repo)}.git"

    # Pull requests and files

    def pull(self, repo: str, number: int) -> PullRequest:
        return self._transport.get(_pull(repo, number), parsing.pull_request)

    def pull_files(self, repo: str, number: int) -> list[PullFile]:
        """In GitHub's order, which is by path. GitHub stops at 3,000."""
        return self._all(f"{_pull(repo, number)}/files", parsing.pull_file)

    def merge_base(self, repo: str, base_sha: str, head_sha: str) -> str:
        path = f"{repo_path(repo)}/compare/{checked_sha(base_sha)}...{checked_sha(head_sha)}"
        return self._transport.get(
            path, lambda data: checked_sha(str(data["merge_base_commit"]["sha"])), {"per_page": 1}
        )

    def blob(self, repo: str, sha: str, limit: int) -> bytes:
        """TooLargeError above `limit` bytes; no more than that and its encoding is read."""
        path = _blob_path(repo, sha)
        size, content = self._transport.get(path, _blob, limit=limit * 3 // 2 + 2**16, immutable=True)
        if size > limit or len(content) > limit:
            raise TooLargeError(f"GET {path}: {max(size, len(content)):,} bytes, more than {limit:,}")
        return content

    def text_blobs(self, repo: str, shas: Sequence[str]) -> dict[str, bytes]:
        """Those of the blobs that GraphQL gives unchanged, in one request: UTF-8, and of at most half a megabyte.

        None is requested that is known already.
        """
        paths = {sha: _blob_path(repo, sha) for sha in shas}
        known = {sha: self._transport.known(path, _blob) for sha, path in paths.items()}
        found = {sha: blob[1] for sha, blob in known.items() if blob is not None}
        missing = [sha for sha in paths if sha not in found]
        texts = graphql.blob_texts(self._transport, repo, missing) if missing else []
        for sha, text in zip(missing, texts, strict=True):
            content = (text or "").encode("utf-8", "surrogatepass")
            if _is_blob(sha, content):  # neither cut off nor converted
                found[sha] = content
                as_read = {"size": len(content), "encoding": "utf-8", "content": text or ""}
                self._transport.remember(paths[sha], as_read)
        return found

    def file(self, repo: str, path: str, ref: str) -> bytes | None:
        """A file's content at `ref`, "" for the default branch; None when there is none, or it is no file.

        TooLargeError above 1 MiB.
        """
        try:
            where = f"{repo_path(repo)}/contents/{quoted(path)}"
            named = _COMMIT.fullmatch(ref) is not None
            found = self._transport.get(where, _content, {"ref": ref} if ref else None, immutable=named)
        except NotFoundError:
            return None
        if found is None:
            return None
        sha, size, content = found
        if size > MAX_FILE:
            raise TooLargeError(f"GET {where}: {size:,} bytes, more than {MAX_FILE:,}")
        return self.blob(repo, sha, MAX_FILE) if content is None else content

    def tree(self, repo: str, sha: str, *, recursive: bool = False) -> list[TreeEntry]:
        """The top folder of a commit, or the folder that a tree is; `recursive`: with all that is below, as far as GitHub
        lists it.

        NotFoundError when `sha` is neither, TooLargeError when the list is.
        """
        path = f"{repo_path(repo)}/git/trees/{checked_sha(sha)}"
        parameters = {"recursive": 1} if recursive else None
        return self._transport.get(path, parsing.each(parsing.tree_entry, "tree"), parameters, immutable=True)

    # Reviews, comments, reactions

    def reviews(self, repo: str, number: int) -> list[PostedReview]:
        return self._all(f"{_pull(repo, number)}/reviews", parsing.review)

    def review_comments(self, repo: str, number: int) -> list[PostedComment]:
        return self._all(
            f"{_pull(repo, number)}/comments",
            parsing.review_comment,
            {"sort": "created", "direction": "asc"},
        )

    def issue_comments(self, repo: str, number: int) -> list[IssueComment]:
        return self._all(f"{repo_path(repo)}/issues/{int(number)}/comments", parsing.issue_comment)

    def threads(self, repo: str, number: int) -> list[Thread]:
        return graphql.threads(self._transport, repo, number)

    def responses(self, repo: str, number: int) -> PullResponses:
        """What people did about the review comments, in one request for each hundred threads."""
        return responses(self._transport, repo, number)

    def reactions(self, repo: str, where: CommentKind, comment_id: int) -> list[Reaction]:
        return self._all(f"{_comment(repo, where, comment_id)}/reactions", parsing.reaction)

    def permission(self, repo: str, login: str) -> Role:
        """Of a custom role, what it is built upon."""
        path = f"{repo_path(repo)}/collaborators/{checked_login(login)}/permission"
        try:
            return self._transport.get(path, _role)
        except NotFoundError:
            return "none"

    # Writing them

    def create_review(self, repo: str, number: int, draft: ReviewDraft) -> PostedReview:
        payload = {
            "commit_id": checked_sha(draft.commit_id),
            "event": "COMMENT",
            "body": draft.body,
            "comments": [_comment_payload(comment) for comment in draft.comments],
        }
        return self._transport.write("POST", f"{_pull(repo, number)}/reviews", payload, parsing.review)

    def edit_review(self, repo: str, number: int, review_id: int, body: str) -> None:
        path = f"{_pull(repo, number)}/reviews/{int(review_id)}"
        self._transport.write("PUT", path, {"body": body}, parsing.nothing)

    def create_issue_comment(self, repo: str, number: int, body: str) -> IssueComment:
        path = f"{repo_path(repo)}/issues/{int(number)}/comments"
        return self._transport.write("POST", path, {"body": body}, parsing.issue_comment)

    def edit_issue_comment(self, repo: str, comment_id: int, body: str) -> None:
        path = _comment(repo, "issue", comment_id)
        self._transport.write("PATCH", path, {"body": body}, parsing.nothing)

    def edit_review_comment(self, repo: str, comment_id: int, body: str) -> None:
        path = _comment(repo, "review", comment_id)
        self._transport.write("PATCH", path, {"body": body}, parsing.nothing)

    def delete_issue_comment(self, repo: str, comment_id: int) -> None:
        self._transport.write("DELETE", _comment(repo, "issue", comment_id), None, parsing.nothing)

    def reply(self, repo: str, number: int, comment_id: int, body: str) -> PostedComment:
        """Answers in the thread of the review comment."""
        path = f"{_pull(repo, number)}/comments/{int(comment_id)}/replies"
        return self._transport.write("POST", path, {"body": body}, parsing.review_comment)

    def resolve_thread(self, thread_id: str) -> None:
        graphql.resolve_thread(self._transport, thread_id)

    def react(self, repo: str, where: CommentKind, comment_id: int, content: ReactionContent) -> None:
        """A reaction that is there already is a success."""
        path = f"{_comment(repo, where, comment_id)}/reactions"
        self._transport.write("POST", path, {"content": content}, parsing.nothing)

    # Checks, SARIF, commits

    def create_check_run(self, repo: str, run: CheckRun) -> int:
        """The id of the completed check run named "ptopt"; its annotations go out fifty at a time."""
        chunks = [
            run.annotations[start : start + ANNOTATIONS]
            for start in range(0, len(run.annotations), ANNOTATIONS)
        ]
        payload = {
            "name": CHECK_NAME,
            "head_sha": checked_sha(run.head_sha),
            "status": "completed",
            "conclusion": run.conclusion,
            "external_id": run.external_id,
            "output": _output(run, chunks[0] if chunks else ()),
        }
        path = f"{repo_path(repo)}/check-runs"
        run_id = self._transport.write("POST", path, payload, lambda data: int(data["id"]))
        for chunk in chunks[1:]:
            self._transport.write(
                "PATCH", f"{path}/{run_id}", {"output": _output(run, chunk)}, parsing.nothing
            )
        return run_id

    def check_runs(self, repo: str, head_sha: str, name: str) -> list[tuple[int, str]]:
        """(id, external_id) of the runs of that name that we made for the commit."""
        path = f"{repo_path(repo)}/commits/{checked_sha(head_sha)}/check-runs"
        runs = self._all(path, _check_run, {"check_name": name, "filter": "all"}, key="check_runs")
        ours = self.identity()
        return [(run_id, external_id) for run_id, external_id, login in runs if login == ours]

    def upload_sarif(self, repo: str, commit_sha: str, ref: str, sarif: bytes) -> None:
        """`ref`: fully qualified, as `refs/pull/1/head`."""
        payload = {
            "commit_sha": checked_sha(commit_sha),
            "ref": ref,
            "sarif": base64.b64encode(gzip.compress(sarif, mtime=0)).decode("ascii"),
        }
        self._transport.write("POST", f"{repo_path(repo)}/code-scanning/sarifs", payload, parsing.nothing)

    def commit_files(
        self, repo: str, branch: str, expected_head: str, files: Mapping[str, bytes], message: str
    ) -> str:
        return commits.commit_files(self._transport, repo, branch, expected_head, files, message)

    commit_files.__doc__ = commits.commit_files.__doc__

    def _all(
        self,
        path: str,
        parse: Callable[[parsing.Json], T],
        parameters: Mapping[str, str | int] | None = None,
        *,
        key: str | None = None,
    ) -> list[T]:
        pages = self._transport.pages(path, parsing.each(parse, key), parameters)
        return [item for page in pages for item in page]


def _pull(repo: str, number: int) -> str:
    return f"{repo_path(repo)}/pulls/{int(number)}"


def _comment(repo: str, where: CommentKind, comment_id: int) -> str:
    return f"{repo_path(repo)}/{_WHERE[where]}/comments/{int(comment_id)}"


def _comment_payload(comment: CommentDraft) -> dict[str, str | int]:
    payload: dict[str, str | int] = {
        "path": comment.path,
        "line": comment.line,
        "side": "RIGHT",
        "body": comment.body,
    }
    if comment.start_line is not None and comment.start_line != comment.line:
        payload |= {"start_line": comment.start_line, "start_side": "RIGHT"}  # GitHub refuses equal ones
    return payload


def _output(run: CheckRun, annotations: tuple[Annotation, ...]) -> dict[str, Any]:
    return {
        "title": run.title,
        "summary": run.summary,
        "annotations": [
            {
                "path": note.path,
                "start_line": note.start_line,
                "end_line": note.end_line,
                "annotation_level": note.level,
                "title": note.title,
                "message": note.message,
            }
            for note in annotations
        ],
    }


def _blob_path(repo: str, sha: str) -> str:
    return f"{repo_path(repo)}/git/blobs/{checked_sha(sha)}"


def _is_blob(sha: str, content: bytes) -> bool:
    """Whether git names that content so."""
    name = hashlib.new("sha1" if len(sha) == 40 else "sha256", usedforsecurity=False)
    name.update(b"blob %d\0" % len(content) + content)
    return name.hexdigest() == sha


def _blob(data: Any) -> tuple[int, bytes]:
    return int(data["size"]), _decoded(data)


def _content(data: Any) -> tuple[str, int, bytes | None] | None:
    """SHA, size and bytes of a file; no bytes above 1 MB. A folder is a list."""
    if isinstance(data, list) or data["type"] != "file":
        return None
    inline = data.get("encoding") == "base64" and (data.get("content") or not data["size"])
    return str(data["sha"]), int(data["size"]), _decoded(data) if inline else None


def _decoded(data: Any) -> bytes:
    if data["encoding"] == "utf-8":
        return str(data["content"]).encode()
    if data["encoding"] != "base64":
        raise ValueError(f"encoding {data['encoding']!r}")
    return base64.b64decode(data["content"])


def _check_run(data: parsing.Json) -> tuple[int, str, str]:
    app = data.get("app") or {}
    return int(data["id"]), str(data.get("external_id") or ""), f"{app.get('slug')}[bot]"


def _role(data: Any) -> Role:
    role = data.get("role_name")
    if role not in _ROLES:
        role = data["permission"]
    return cast("Role", role) if role in _ROLES else "none"
