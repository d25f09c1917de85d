from __future__ import annotations

import os
import pickle
from pathlib import Path
from typing import Any

import pytest

from ptopt.profiles.reading import profile_of
from ptopt.profiles.snapshot import Memory
from ptopt.profiles.trace import ProfileError

MB = 1 << 20


def frames(line: int) -> list[dict[str, Any]]:
    return [
        {"filename": "??", "line": 0, "name": "THPVariable_new"},
        {"filename": "/x/site-packages/torch/nn/functional.py", "line": 9, "name": "linear"},
        {"filename": "/home/me/train.py", "line": line, "name": "forward"},
        {"filename": "/home/me/main.py", "line": 2, "name": "<module>"},
    ]


def block(address: int, size: int, state: str, line: int = 0) -> dict[str, Any]:
    stack = frames(line) if line else []
    return {"address": address, "size": size, "requested_size": size, "state": state, "frames": stack}


def snapshot(history: list[dict[str, Any]]) -> dict[str, Any]:
    blocks = [
        block(0, 2 * MB, "active_allocated", 5), block(2 * MB, MB, "inactive"), block(3 * MB, MB, "active_allocated", 7),
        block(4 * MB, 4 * MB, "inactive"),
    ]  # fmt: skip
    segment = {"device": 0, "address": 0, "total_size": 8 * MB, "stream": 0, "blocks": blocks}
    return {"segments": [segment], "device_traces": [history]}


def write(path: Path, value: object, protocol: int = 4) -> Path:
    path.write_bytes(pickle.dumps(value, protocol))
    return path


def read(path: Path) -> Memory:
    found = profile_of(path)
    assert isinstance(found, Memory)
    return found


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_what_is_in_use_and_by_which_line(tmp_path: Path, protocol: int) -> None:
    memory = read(write(tmp_path / "m.pickle", snapshot([]), protocol))
    assert (memory.reserved, memory.allocated, memory.free_in_segments) == (8 * MB, 3 * MB, 5 * MB)
    assert memory.peak is None and memory.fragmented == pytest.approx(1 / 8)
    lines = [(h.place.frame.path, h.place.frame.line, h.bytes) for h in memory.holders if h.place is not None]
    assert lines == [("/home/me/train.py", 5, 2 * MB), ("/home/me/train.py", 7, MB)]


def test_the_peak_of_the_history_and_what_held_it(tmp_path: Path) -> None:
    def entry(action: str, address: int, size: int, line: int) -> dict[str, Any]:
        return {"action": action, "addr": address, "size": size, "stream": 0, "frames": frames(line)}

    history = [
        entry("alloc", 0, 2 * MB, 5),
        entry("alloc", 4 * MB, 3 * MB, 9),
        {"action": "segment_alloc", "addr": 0, "size": 8 * MB, "stream": 0, "frames": []},
        {"action": "oom", "size": 99 * MB, "stream": 0, "device_free": 3, "frames": []},
        entry("free_requested", 4 * MB, 3 * MB, 11),
        entry("free_completed", 4 * MB, 3 * MB, 11),
        entry("alloc", 3 * MB, MB, 7),
    ]
    memory = read(write(tmp_path / "m.pickle", snapshot(history)))
    assert memory.peak == 5 * MB and memory.failures == 1
    held = {h.place.frame.line: h.bytes for h in memory.holders if h.place is not None}
    assert held == {9: 3 * MB, 5: 2 * MB}


class Runs:
    def __init__(self, where: Path) -> None:
        self.where = where

    def __reduce__(self) -> tuple[Any, ...]:
        return (os.mkdir, (str(self.where),))


def test_a_pickle_that_runs_code_is_refused_and_runs_nothing(tmp_path: Path) -> None:
    made = tmp_path / "made"
    for protocol in range(2, 6):
        path = write(tmp_path / "m.pickle", {"segments": [Runs(made)]}, protocol)
        with pytest.raises(ProfileError, match="names"):
            profile_of(path)
    assert not made.exists()


@pytest.mark.parametrize(
    "data",
    [
        b"\x80\x04", b"\x80\x04.", b"\x80\x04N.", b"\x80\x04}.", b"\x80\x04K\x01.", pickle.dumps({"segments": [3]}),
        pickle.dumps({"segments": [{"total_size": "x", "blocks": []}]}), pickle.dumps({"segments": [], "device_traces": [[{}]]}),
        b"\x80\x04\x82\x01.",  # a name of the extension registry
        b"\x80\x04\x8e\xff\xff\xff\xff\xff\xff\xff\x7f",  # bytes that claim to be 8 EB
        b"\x80\x05\x96\xff\xff\xff\xff\xff\xff\xff\x7f",  # likewise a bytearray
        b"\x80\x04Pid\n.",  # something outside
        b"\x80\x04" + b"]" * 100_000 + b"a" * 99_999 + b".",
    ],
)  # fmt: skip
def test_what_is_no_snapshot_is_an_error(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "m.pickle"
    path.write_bytes(data)
    with pytest.raises(ProfileError, match="snapshot"):
        profile_of(path)
