"""Hostile code: what the check of its syntax refuses, and what a process does that runs it all the same."""

from __future__ import annotations

import ast
import json
import os
import select
import socket
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from benchmarks.prove.rewrites import HEAD
from ptopt.prove import sandbox
from ptopt.prove.extract import Pair, Side, compared
from ptopt.prove.reasons import Reason, RefusedError
from ptopt.prove.session import PROGRAM, Session
from tests.prove.attacks import ATTACKS, REFUSED

# The check of the syntax is what this leaves out: the code gets all of Python, in the same process and with the same limits.
_UNCHECKED = "import builtins\nfrom ptopt.prove.inside import child\nchild._SCOPE.update(vars(builtins))\n"
_ATTACKED = (
    _UNCHECKED
    + """
import json
import torch
from ptopt.prove.inside import confine, process, wire
from ptopt.prove.inside.compare import error_of
from ptopt.prove.inside.warm import warm

process.CALL = 0.5
torch.set_num_threads(1)
warm()
for line in sys.stdin:
    confine.note_size()
    try:
        with process.Process({"source": json.loads(line), "imports": {}}, "attack") as attack:
            attack.receive(0.5)
            attack.send({"do": "run", "args": []})
            answer = attack.receive(0.5)
            said = error_of(answer) or "returned " + json.dumps(answer[0]["result"])
    except wire.LateError:
        said = "late"
    except wire.BrokenError:
        said = "ended"
    print(json.dumps(said), flush=True)
"""
)


@pytest.mark.parametrize("name", REFUSED)
def test_the_check_of_the_syntax_refuses(name: str) -> None:
    before = f"{HEAD}def function(x):\n    y = 1\n    {REFUSED[name]}\n"
    try:
        ast.parse(before)
    except SyntaxError:  # `match` in Python 3.9
        pytest.skip("not in this version of Python")
    with pytest.raises(RefusedError) as refused:
        compared(before, before.replace("y = 1", "y = 2"))
    assert refused.value.reason in {Reason.NOT_PURE, Reason.INPUT_OUTPUT, Reason.OUTSIDE_NAME, Reason.DEVICE}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("outside")
    (folder / "kept").write_text("kept")
    return folder


@pytest.fixture(scope="module")
def server() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.setblocking(False)
        yield listening


@pytest.fixture(scope="module")
def attacked(folder: Path, server: socket.socket) -> Iterator[Any]:
    """Runs the body of an attack in a process of the sandbox, without the check of its syntax; what came of it."""
    os.environ["SECRET"] = "SECRET"
    process = sandbox.start(_ATTACKED, cpu_seconds=120, folders=(folder,))
    assert process.stdin is not None and process.stdout is not None

    def run(body: str) -> str:
        names = {"PORT": str(server.getsockname()[1]), "FOLDER": str(folder), "PARENT": str(os.getpid())}
        for name, value in names.items():
            body = body.replace(name, value)
        source = "def attack():\n    " + body.replace("\n", "\n    ")
        process.stdin.write(json.dumps(source).encode() + b"\n")
        process.stdin.flush()
        assert select.select([process.stdout], [], [], 60)[0], "the referee is stuck"
        line = process.stdout.readline()
        assert line, "the referee has ended"
        said: str = json.loads(line)
        return said

    yield run
    del os.environ["SECRET"]
    sandbox.end(process)


@pytest.mark.model
@pytest.mark.parametrize("name", ATTACKS)
def test_no_attack_succeeds(attacked: Any, name: str, folder: Path, server: socket.socket) -> None:
    said = attacked(ATTACKS[name])

    assert "escaped" not in said
    assert sorted(path.name for path in folder.iterdir()) == ["kept"]
    assert (folder / "kept").stat().st_mode & 0o777 != 0o777
    with pytest.raises(BlockingIOError):
        server.accept()
    assert not Path("/tmp/escaped").exists() and not Path("/tmp/link").is_symlink()


@pytest.mark.model
def test_an_attack_that_is_none_is_answered(attacked: Any) -> None:
    assert "42" in attacked("return 42")


@pytest.fixture(scope="module")
def session() -> Iterator[Session]:
    with Session(pairs=20, program=_UNCHECKED + PROGRAM) as session:
        yield session


def _judged(session: Session, before: str, after: str) -> RefusedError:
    pair = compared(
        f"{HEAD}def f(x: Tensor):\n    return x + 1\n", f"{HEAD}def f(x: Tensor):\n    return x + 2\n"
    )
    sides = [Side(f"def f(x):\n    {body}\n", {"torch": "torch"}) for body in (before, after)]
    with pytest.raises(RefusedError) as refused:
        session.judge(Pair("f", "f", *sides, pair.parameters))
    return refused.value


@pytest.mark.model
@pytest.mark.parametrize(
    "after",
    [
        "torch.allclose = torch.equal = lambda *a, **k: True\n    return x + 2",
        "torch.testing.assert_close = lambda *a, **k: None\n    return x + 2",
        "import sys\n    sys.modules['ptopt.prove.inside.child'].SEED = 3\n    torch.Tensor.__eq__ = lambda *a: True\n    return x + 2",
        "import builtins\n    builtins.all = builtins.any = lambda *a: True\n    return x + 2",
        "global kept\n    try: kept\n    except NameError: kept = x + 1\n    return kept",
    ],
)  # fmt: skip
def test_equality_cannot_be_faked(session: Session, after: str) -> None:
    assert _judged(session, "return x + 1", after).reason is Reason.DIFFERENT


@pytest.mark.model
@pytest.mark.parametrize(
    "after",
    [
        "import time\n    time.perf_counter = time.thread_time = time.process_time = lambda: 0.0\n    return x + 1",
        "import time\n    time.clock_gettime = lambda *a: 0.0\n    time.monotonic = lambda: 0.0\n    return x + 1",
        "import gc\n    return x + 1",
    ],
)  # fmt: skip
def test_speed_cannot_be_faked(session: Session, after: str) -> None:
    assert _judged(session, "return x + 1", after).reason is Reason.NOT_FASTER


@pytest.mark.model
def test_answers_that_are_none_are_refused(session: Session) -> None:
    forged = """
        import sys
        wire = sys.modules['ptopt.prove.inside.wire']
        whole = wire.packed
        wire.packed = lambda head, blobs=(): whole({'result': {'t': 'tensor', 'dtype': ['float32'], 'shape': -1}}, [b'x'])
        return x
    """
    assert (
        _judged(session, textwrap.dedent(forged).strip().replace("\n", "\n    "), "return x").reason
        is Reason.CRASHED
    )
    assert _judged(session, "return x + 1", "return x + 2").reason is Reason.DIFFERENT


@pytest.mark.model
def test_code_that_ends_its_process_is_refused_and_the_session_goes_on(session: Session) -> None:
    assert _judged(session, "import os\n    os._exit(0)", "return x").reason is Reason.CRASHED
    assert _judged(session, "while True: pass", "return x").reason is Reason.TOO_LONG
    assert _judged(session, "return x + 1", "return x + 2").reason is Reason.DIFFERENT


def test_without_a_filter_of_system_calls_nothing_is_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        sandbox, "missing", lambda: "libseccomp is not installed, or the kernel has no seccomp"
    )
    monkeypatch.setattr(sandbox, "start", lambda *_, **__: pytest.fail("something was started"))
    pair = compared(
        f"{HEAD}def f(x: Tensor):\n    return x + 1\n", f"{HEAD}def f(x: Tensor):\n    return x + 2\n"
    )
    with Session() as session, pytest.raises(RefusedError) as refused:
        session.judge(pair)
    assert refused.value.reason is Reason.NO_SANDBOX
