"""The HTTP side: uvicorn in a thread, access control, faults, ETags, checks."""

from __future__ import annotations

import asyncio
import hashlib
import json
import socket
import threading
import time
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl

import uvicorn

from fake_github import access, githttp, graphql, rest, web
from fake_github.faults import Fault
from fake_github.http import ROUTES, Answer, ApiError, Call, Request, Response, Route, not_found

if TYPE_CHECKING:
    from fake_github.accounts import Token
    from fake_github.fake import FakeGitHub

_ = rest  # its modules register their routes
_API = "/api/v3"


def _listen(port: int) -> socket.socket:
    """A listening socket whose connections have TCP_NODELAY.

    asyncio sets that only where the protocol is named, which `socket.create_server` leaves open.
    """
    listening = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listening.bind(("127.0.0.1", port))
    listening.listen(128)
    return listening


class _Joined:
    """A transport that sends what is written in one segment: uvicorn writes head and body apart.

    Some kernels acknowledge a first segment 40 ms late.
    """

    def __init__(self, transport: Any) -> None:
        self._transport = transport
        self._parts: list[bytes] = []

    def write(self, data: bytes) -> None:
        self._parts.append(data)

    def flush(self) -> None:
        if self._parts:
            self._transport.write(b"".join(self._parts))
            self._parts.clear()

    def close(self) -> None:
        self.flush()
        self._transport.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)


class Server:
    def __init__(self, github: FakeGitHub, port: int) -> None:
        self.github = github
        self._socket = _listen(port)
        self.port = self._socket.getsockname()[1]
        config = uvicorn.Config(
            self._app,
            interface="asgi3",
            lifespan="off",
            log_config=None,
            access_log=False,
            proxy_headers=False,
            server_header=False,
            timeout_graceful_shutdown=1,
        )
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._run, name="fake-github", daemon=True)

    def _run(self) -> None:
        self._server.run(sockets=[self._socket])

    def start(self) -> None:
        # The socket listens already: whoever connects now waits for the loop.
        self._thread.start()

    def stop(self) -> None:
        self._server.should_exit = self._server.force_exit = True
        if self._thread.is_alive():
            self._thread.join(5)
        self._socket.close()

    async def _app(self, scope: Any, receive: Any, send: Any) -> None:
        body = b""
        more = True
        while more:
            message = await receive()
            if message["type"] == "http.disconnect":
                return
            body += message.get("body", b"")
            more = message.get("more_body", False)
        path = scope["path"]
        request = Request(
            method=scope["method"],
            path=path.removeprefix(_API) if path.startswith(_API) else path,
            query=dict(parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True)),
            headers={name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]},
            body=body,
        )
        if self.github.delay is not None:
            await asyncio.sleep(self.github.delay())
        fault = self.github.faults.take(request.method, request.path)
        request.fault = fault.name if fault else None
        if fault and fault.kind == "slow" and not fault.late:
            await asyncio.sleep(fault.seconds)
        answer = await asyncio.to_thread(self._answer, request, fault, path)
        if fault and fault.kind == "slow" and fault.late:
            await asyncio.sleep(fault.seconds)
        if answer is None:
            # uvicorn's cycle owns the connection; ASGI has no word for breaking it.
            send.__self__.transport.abort()
            return
        headers = [
            (name.encode("latin-1"), value.encode("latin-1")) for name, value in answer.headers.items()
        ]
        cycle = send.__self__
        cycle.transport = joined = _Joined(cycle.transport)
        await send({"type": "http.response.start", "status": answer.status, "headers": headers})
        await send({"type": "http.response.body", "body": b"" if request.method == "HEAD" else answer.body})
        joined.flush()

    def _answer(self, request: Request, fault: Fault | None, path: str) -> Response | None:
        if fault and not fault.late and fault.kind != "slow":
            answer = fault.answer()
        else:
            answer = self._handle(request, path)
            if fault and fault.late and fault.kind != "slow":
                answer = fault.answer()
        response = self._finish(request, answer) if answer else None
        if response:
            response.fault = request.fault
            request.status = response.status
        with self.github.lock:
            self.github.requests.append(request)
        if response:
            self._check(request, response)
        return response

    def _check(self, request: Request, response: Response) -> None:
        for check in self.github.checks:
            try:
                found = list(check(request, response) or ())
            except Exception as error:
                found = [f"{type(error).__name__}: {error}"]
            if found:
                with self.github.lock:
                    self.github.violations += [f"{request.method} {request.path}: {each}" for each in found]

    def _handle(self, request: Request, path: str) -> Answer:
        try:
            if path == "/api/graphql" or request.path == "/graphql":
                request.path = request.route = "/graphql"
                with self.github.lock:
                    token = access.authenticate(self.github, request)
                    return graphql.handle(Call(self.github, request, {}, token))
            if not path.startswith(_API):
                page = web.handle(self.github, request)
                return githttp.handle(self.github, request) if page is None else page
            if "user-agent" not in request.headers:
                raise ApiError(403, "Request forbidden by administrative rules.")
            with self.github.lock:
                return self._rest(request)
        except ApiError as error:
            return error.answer
        except Exception as error:
            # Our own fault, so the test must see it.
            self.github.violations.append(f"fake GitHub: {request.method} {request.path}: {error!r}")
            return Answer({"message": f"fake GitHub failed: {error!r}"}, 500)

    def _rest(self, request: Request) -> Answer:
        found, params, token = self._route(request)
        call = Call(self.github, request, params, token)
        access.check(call, found)
        return found.handler(call)

    def _route(self, request: Request) -> tuple[Route, dict[str, str], Token | None]:
        path = request.path
        if path.startswith("/repositories/"):
            number, _, rest_ = path.removeprefix("/repositories/").partition("/")
            repo = self.github.repo_of(int(number) if number.isdecimal() else 0)
            path = f"/repos/{repo.full_name}" + (f"/{rest_}" if rest_ else "")
        method = "GET" if request.method == "HEAD" else request.method
        for found in ROUTES:
            match = found.pattern.fullmatch(path) if found.method == method else None
            if match:
                request.route = found.template
                return found, match.groupdict(), access.authenticate(self.github, request, found)
        raise not_found()

    def _finish(self, request: Request, answer: Answer) -> Response:
        data = answer.data
        body = data if isinstance(data, bytes) else b"" if data is None else json.dumps(data).encode()
        # Never near the end: a limit is a fault that a test asks for.
        remaining = self.github.limits.requests - len(self.github.requests) % 1000
        headers = {
            "server": "github.com",
            "x-github-request-id": f"{len(self.github.requests):X}:STANDIN",
            "x-ratelimit-limit": str(self.github.limits.requests),
            "x-ratelimit-remaining": str(remaining),
            "x-ratelimit-used": str(self.github.limits.requests - remaining),
            "x-ratelimit-reset": str(int(time.time()) + 3600),
            "x-ratelimit-resource": "graphql" if request.path == "/graphql" else "core",
            **{name.lower(): value for name, value in answer.headers.items()},
        }
        if body:
            headers["content-type"] = answer.media_type
        status = answer.status
        if request.method in ("GET", "HEAD") and status == 200 and request.route:
            tag = f'W/"{hashlib.sha256(body).hexdigest()}"'
            headers["etag"] = tag
            headers["cache-control"] = "private, max-age=60, s-maxage=60"
            if tag.removeprefix("W/") in request.headers.get("if-none-match", ""):
                status, body = 304, b""
        if status not in (204, 304):
            headers["content-length"] = str(len(body))
        return Response(status, headers, body)
