"""The documented configuration of a reverse proxy, in a real nginx before the real server."""

from __future__ import annotations

import json
import os
import shutil
import socket
import ssl
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from datetime import datetime, timedelta, timezone
from pathlib import Path

import httpx
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from tests.bot.conftest import Serve, Served, pull_request, sign
from tests.worker.processes import free_port, wait_for

CONFIGURATION = Path(__file__).parents[2] / "docs/nginx.conf"
NGINX = shutil.which("nginx", path=os.environ.get("PATH", "") + os.pathsep + "/usr/sbin")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(NGINX is None, reason="nginx is not installed (apt-get install nginx-light)"),
]
HEAD = "POST /webhooks/github HTTP/1.1\r\nHost: ptopt.example.org\r\nContent-Type: application/json\r\n"


def certificate(folder: Path) -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "ptopt.example.org")])
    now = datetime.now(timezone.utc)
    made = x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
    made = made.not_valid_before(now).not_valid_after(now + timedelta(days=1))
    folder.joinpath("fullchain.pem").write_bytes(
        made.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
    )
    folder.joinpath("privkey.pem").write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
    )


class Proxied:
    """The service, and the port of the nginx before it."""

    def __init__(self, served: Served, port: int) -> None:
        self.served, self.port = served, port
        self.context = ssl.create_default_context()
        self.context.check_hostname, self.context.verify_mode = False, ssl.CERT_NONE
        self.client = httpx.Client(base_url=f"https://127.0.0.1:{port}", verify=self.context, timeout=30)

    def deliver(self, body: bytes) -> int:
        through = Served(self.client, self.port, self.served.engine)
        return through.deliver("pull_request", body).status_code

    def connect(self) -> ssl.SSLSocket:
        return self.context.wrap_socket(socket.create_connection(("127.0.0.1", self.port), timeout=20))

    def answers(self) -> bool:
        with suppress(OSError), self.connect():
            return True
        return False


@pytest.fixture
def proxied(serve: Serve, tmp_path: Path) -> Iterator[Proxied]:
    certificate(tmp_path)
    port = free_port()
    with serve() as served:
        site = CONFIGURATION.read_text()
        for written, here in (
            ("listen 443 ssl;", f"listen 127.0.0.1:{port} ssl;"),
            ("/etc/ssl/ptopt/", f"{tmp_path}/"),
            ("127.0.0.1:8000", f"127.0.0.1:{served.port}"),
        ):
            assert written in site
            site = site.replace(written, here)
        kinds = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
        temporary = "".join(f"{kind}_temp_path {tmp_path}/{kind};" for kind in kinds)
        user = "user root;" if os.geteuid() == 0 else ""  # the temporary folder is ours alone
        main = tmp_path / "nginx.conf"
        main.write_text(
            f"{user} daemon off; pid {tmp_path}/pid; error_log {tmp_path}/error.log; events {{}}\n"
            f"http {{ access_log {tmp_path}/access.log; {temporary}\n{site}\n}}\n"
        )
        assert NGINX is not None
        subprocess.run([NGINX, "-t", "-q", "-c", main, "-e", tmp_path / "error.log"], check=True)
        with subprocess.Popen([NGINX, "-c", main, "-e", tmp_path / "error.log"]) as nginx:
            try:
                proxied = Proxied(served, port)
                wait_for(proxied.answers)
                with proxied.client:
                    yield proxied
            finally:
                nginx.terminate()


def test_what_is_let_through(proxied: Proxied) -> None:
    body = json.dumps(pull_request()).encode()
    assert proxied.deliver(body) == 202
    assert proxied.deliver(json.dumps(pull_request() | {"x": "y" * (24 * 2**20)}).encode()) == 202
    assert proxied.client.post("/webhooks/github", content=body).status_code == 401
    assert proxied.client.post("/webhooks/github", content=b"x" * (26 * 2**20)).status_code == 413
    for path in ("/metrics", "/healthz", "/readyz", "/", "/setup/x", "/webhooks/github/", "/dashboards"):
        answer = proxied.client.get(path)
        assert answer.status_code == 404 and "problem" not in answer.headers["content-type"], path
    assert proxied.client.get("/dashboard").headers["location"] == "/dashboard/reviews"
    assert proxied.client.get("/dashboard/sign-in").status_code == 503  # of a service without a secret key
    closed = proxied.client.get("/setup", params={"token": "hunter2"})
    assert closed.status_code == 404 and "problem" in closed.headers["content-type"]  # by the service


def test_the_setup_token_is_not_logged(proxied: Proxied, tmp_path: Path) -> None:
    for path in ("/setup", "/setup/callback", "/dashboard/callback"):
        proxied.client.get(path, params={"token": "hunter2", "code": "hunter2", "state": "hunter2"})
    assert proxied.client.get("/elsewhere").status_code == 404
    wait_for(lambda: "/elsewhere" in (tmp_path / "access.log").read_text())
    assert "hunter2" not in (tmp_path / "access.log").read_text()


def test_unfinished_requests_do_not_reach_the_service(proxied: Proxied) -> None:
    """60 connections that stop in the middle of a body of 25 MB, and 60 more that say nothing at all."""
    body = json.dumps(pull_request()).encode()
    with ExitStack() as stack:
        for _ in range(60):
            head = f"{HEAD}X-Hub-Signature-256: {sign(body)}\r\nContent-Length: {25 * 2**20}\r\n\r\n"
            stack.enter_context(proxied.connect()).sendall(head.encode() + b"x" * 2**16)
            stack.enter_context(socket.create_connection(("127.0.0.1", proxied.port)))
        started = time.monotonic()
        assert proxied.deliver(body) == 202
        assert time.monotonic() - started < 3
        assert proxied.served.metric("ptopt_accept_seconds_count") == 1


def test_one_client_has_64_requests_at_a_time(proxied: Proxied) -> None:
    body = json.dumps(pull_request()).encode()
    with ExitStack() as stack:
        for _ in range(64):
            stack.enter_context(proxied.connect()).sendall(f"{HEAD}Content-Length: 9\r\n\r\n".encode())
        wait_for(lambda: proxied.deliver(body) == 503)
    wait_for(lambda: proxied.deliver(body) == 202)


def test_who_stops_is_hung_up_on(proxied: Proxied) -> None:
    started = time.monotonic()
    for part in ("", "POST /webhooks/github HTTP/1.1\r\n", f"{HEAD}Content-Length: 9\r\n\r\nx"):
        with proxied.connect() as stopped:
            stopped.sendall(part.encode())
            with suppress(ConnectionResetError):
                while stopped.recv(1024):
                    pass
    assert time.monotonic() - started < 19
