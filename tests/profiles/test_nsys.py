"""Exports of Nsight Systems, with the tables and columns of its documented schema."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from ptopt.profiles.profile import Profile
from ptopt.profiles.reading import profile_of
from ptopt.profiles.trace import ProfileError
from ptopt.profiles.verdict import verdict

MAIN = (0x1_000000 * 77) + 77  # process and thread 77
SCHEMA = """
CREATE TABLE StringIds (id INTEGER PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE TARGET_INFO_GPU (id INT, name TEXT);
CREATE TABLE NVTX_EVENTS (start INT NOT NULL, end INT, eventType INT NOT NULL, text TEXT, globalTid INT, textId INT);
CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (start INT, end INT, globalTid INT, correlationId INT, nameId INT);
CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INT, end INT, deviceId INT, streamId INT, correlationId INT, globalPid INT, demangledName INT, shortName INT);
CREATE TABLE CUPTI_ACTIVITY_KIND_MEMCPY (start INT, end INT, deviceId INT, streamId INT, correlationId INT, globalPid INT, bytes INT, copyKind INT, srcKind INT, dstKind INT);
INSERT INTO TARGET_INFO_GPU VALUES (0, 'NVIDIA H100');
INSERT INTO StringIds VALUES (1, 'cudaLaunchKernel_v7000'), (2, 'sm90_xmma_gemm_bf16bf16'), (3, 'cudaStreamSynchronize_v3020'), (4, 'step 0'), (5, 'cudaMemcpyAsync');
"""


def export(path: Path) -> Path:
    us = 1000
    with sqlite3.connect(path) as link:
        link.executescript(SCHEMA)
        ranges = [
            (0, 100 * us, 59, None, MAIN, 4),
            (0, 30 * us, 59, "aten::addmm, seq = 12, op_id = 3", MAIN, None),
            (31 * us, 99 * us, 59, "Optimizer.step#SGD.step", MAIN, None),
            (0, None, 59, "never ended", MAIN, None),
            (5, 6, 34, "a mark", MAIN, None),
        ]
        link.executemany("INSERT INTO NVTX_EVENTS VALUES (?, ?, ?, ?, ?, ?)", ranges)
        calls = [
            (1 * us, 2 * us, MAIN, 8, 5),
            (10 * us, 12 * us, MAIN, 9, 1),
            (50 * us, 60 * us, MAIN, 10, 3),
        ]
        link.executemany("INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (?, ?, ?, ?, ?)", calls)
        kernel = (20 * us, 60 * us, 0, 7, 9, 77 << 24, 2, 2)
        link.execute("INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (?, ?, ?, ?, ?, ?, ?, ?)", kernel)
        copy = (5 * us, 15 * us, 0, 7, 8, 77 << 24, 4096, 1, 0, 2)
        link.execute("INSERT INTO CUPTI_ACTIVITY_KIND_MEMCPY VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", copy)
    link.close()
    return path


def test_kernels_copies_and_ranges_of_an_export(tmp_path: Path) -> None:
    found = profile_of(export(tmp_path / "a.sqlite"))
    assert isinstance(found, Profile)
    assert (found.origin, found.devices, found.steps) == ("Nsight Systems", ("NVIDIA H100",), 1)
    assert found.shares["forward"] == pytest.approx(0.4) and found.shares["copies"] == pytest.approx(0.1)
    assert found.shares["idle"] == pytest.approx(0.5)
    assert [row.what for row in found.copies] == ["Memcpy HtoD (Pageable -> Device)"]
    assert found.waits[0].what == "cudaStreamSynchronize"
    assert verdict(found).kind == "host"
    assert found.kernels is not None and found.kernels.tensor_cores == 1


def test_an_export_is_not_written_to(tmp_path: Path) -> None:
    path = export(tmp_path / "a b?.sqlite")
    before = path.read_bytes()
    path.chmod(0o400)
    assert isinstance(profile_of(path), Profile)
    assert path.read_bytes() == before and [p.name for p in tmp_path.iterdir()] == [path.name]


@pytest.mark.parametrize(
    "script",
    [
        "CREATE TABLE other (a)",
        "CREATE TABLE StringIds (id, value)",
        (
            "CREATE TABLE StringIds (id, value); CREATE TABLE NVTX_EVENTS (start, end, eventType, text, globalTid); "
            "INSERT INTO NVTX_EVENTS VALUES ('x', 'y', 59, 'z', 'w')"
        ),
        "CREATE TABLE StringIds (id, value); CREATE VIEW CUPTI_ACTIVITY_KIND_KERNEL AS SELECT 1 AS start",
    ],
)
def test_another_database_is_an_error(tmp_path: Path, script: str) -> None:
    path = tmp_path / "a.sqlite"
    with sqlite3.connect(path) as link:
        link.executescript(script)
    link.close()
    with pytest.raises(ProfileError, match=r"export|kernels"):
        profile_of(path)


def test_a_broken_database_is_an_error(tmp_path: Path) -> None:
    path = export(tmp_path / "a.sqlite")
    data = path.read_bytes()
    path.write_bytes(data[:100] + noise(len(data) - 100))
    with pytest.raises(ProfileError):
        profile_of(path)


def noise(length: int) -> bytes:
    return bytes((i * 37 + 11) % 251 for i in range(length))
