"""Opening what somebody recorded: its first bytes say what it is, never its name."""

from __future__ import annotations

from pathlib import Path

from ptopt.profiles.analysis import analysed
from ptopt.profiles.chrome import read_chrome
from ptopt.profiles.frames import frame_of
from ptopt.profiles.lines import own_paths
from ptopt.profiles.nsys import read_nsys
from ptopt.profiles.profile import Profile
from ptopt.profiles.snapshot import Memory, read_snapshot
from ptopt.profiles.trace import ProfileError, Trace


def read_trace(path: Path) -> Trace | Memory:
    """The trace or the memory snapshot at `path`. Raises ProfileError, and OSError where it cannot be opened."""
    with path.open("rb") as file:
        start = file.peek(16)[:16]
        if start.startswith(b"SQLite format 3\0"):
            return read_nsys(path)
        if start.startswith(b"\x80"):
            return read_snapshot(file, path.name, path.stat().st_size)
        if start.startswith(b"\x1f\x8b") or start.lstrip(b"\xef\xbb\xbf \t\r\n")[:1] in (b"{", b"["):
            return read_chrome(file)
    raise ProfileError(
        "neither a trace of torch.profiler (JSON, gz), nor a memory snapshot, nor an SQLite export of Nsight Systems"
    )


def profile_of(path: Path, files: list[str] | None = None) -> Profile | Memory:
    """What the file at `path` says. `files` are paths of the user's code, so that its frames are known as such."""
    found = read_trace(path)
    if isinstance(found, Memory):
        return found
    frames = (frame_of(text) for text in found.names.texts)
    own = own_paths({frame.path for frame in frames if frame is not None}, files or ())
    return analysed(found, path.name, own)
