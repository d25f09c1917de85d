"""The outer sandbox: how a process of ours is started that will handle code of strangers.

bubblewrap where it works: a file system of what Python needs, read-only, no network, no other process in sight. Always: an
empty environment, limits, a process group that is killed as one. What runs the code confines itself further, by
seccomp (`inside/confine.py`); without that, nothing is run.
"""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import os
import resource
import shutil
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

_ENVIRONMENT = {
    "PATH": "/usr/bin:/bin", "HOME": "/tmp", "LANG": "C.UTF-8", "PYTHONDONTWRITEBYTECODE": "1",  # noqa: S108 - a tmpfs of its own
    "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": "",
    # Memory that is freed is used again: pages that the kernel has to clear anew are most of the noise of times.
    "MALLOC_MMAP_THRESHOLD_": str(1 << 30), "MALLOC_TRIM_THRESHOLD_": str(1 << 34), "MALLOC_TOP_PAD_": str(1 << 26),
}  # fmt: skip
_SYSTEM = ("/usr", "/lib", "/lib64", "/lib32", "/bin", "/sbin", "/etc/ld.so.cache", "/etc/alternatives")
_MEMORY = 16 << 30
_SPEED_OF_PROCESSOR = "/sys/devices/system/cpu"


def missing() -> str:
    """What is missing to run code here, in words; "" when nothing is."""
    if not sys.platform.startswith("linux"):
        return "it needs Linux"
    if importlib.util.find_spec("torch") is None:
        return "torch is not installed"
    from ptopt.prove.inside.confine import available

    return "" if available() else "libseccomp is not installed, or the kernel has no seccomp"


def start(
    program: str,
    *,
    cpu_seconds: int,
    folders: Sequence[Path] = (),
    work: Path | None = None,
    stderr: int = subprocess.DEVNULL,
) -> subprocess.Popen[bytes]:
    """Start Python code of ours in the outer sandbox, with pipes, and the packages of this interpreter.

    `folders` may be read, too; it starts in `work`, the one folder that it may write. End it with `end`.
    """
    return subprocess.Popen(
        [*_bubblewrap(tuple(folders), work), sys.executable, "-I", "-W", "ignore", "-c", _PATH + program],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=stderr, env=_ENVIRONMENT, cwd=work or "/",
        start_new_session=True, close_fds=True, preexec_fn=functools.partial(_limit, cpu_seconds),
    )  # fmt: skip


def end(process: subprocess.Popen[bytes]) -> None:
    """Kill the process and all that it has started."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    for stream in (process.stdin, process.stdout, process.stderr):
        if stream is not None:
            with contextlib.suppress(BrokenPipeError):
                stream.close()


def _limit(cpu_seconds: int) -> None:
    for what, limit in (
        (resource.RLIMIT_CPU, cpu_seconds),
        (resource.RLIMIT_AS, _MEMORY),
        (resource.RLIMIT_FSIZE, 1 << 20),
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_NOFILE, 256),
    ):
        hard = resource.getrlimit(what)[1]
        bound = limit if hard == resource.RLIM_INFINITY else min(limit, hard)
        resource.setrlimit(what, (bound, bound))


def _packages() -> list[str]:
    """The folders that modules are found in, in the order of this interpreter; ptopt's own first."""
    root = str(Path(__file__).resolve().parents[2])
    return [root, *(path for path in sys.path if path and os.path.isdir(path) and path != root)]


_PATH = f"import sys; sys.path[:] = [*dict.fromkeys([*{_packages()!r}, *sys.path])]\n"


def _bubblewrap(folders: tuple[Path, ...], work: Path | None) -> tuple[str, ...]:
    """The command that the program runs under; empty where bubblewrap is missing or may not make namespaces."""
    program = shutil.which("bwrap")
    if program is None:
        return ()
    ours = str(Path(__file__).resolve().parents[1])
    read = [*_SYSTEM, sys.prefix, sys.base_prefix, ours, *(p for p in _packages()[1:] if "site-packages" in p),
            *map(str, folders), _SPEED_OF_PROCESSOR]  # fmt: skip
    command = [
        program, "--unshare-all", "--die-with-parent", "--new-session", "--cap-drop", "ALL", "--proc", "/proc", "--dev", "/dev",
        "--size", str(16 << 20), "--tmpfs", "/tmp",  # noqa: S108 - of its own
    ]  # fmt: skip
    for path in dict.fromkeys(read):
        command += ["--ro-bind-try", path, path]
    if work is not None:
        command += ["--bind", str(work), str(work), "--chdir", str(work)]
    command += ["--remount-ro", "/"]
    works = subprocess.run(
        [*command, "true"], capture_output=True, check=False, stdin=subprocess.DEVNULL, env=_ENVIRONMENT
    )
    return tuple(command) if works.returncode == 0 else ()
