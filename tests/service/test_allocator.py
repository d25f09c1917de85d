from __future__ import annotations

import platform
import subprocess
import sys

import pytest

# Threads read texts and keep a little of each, as a server does that has looked at large files.
PROGRAM = """
import sys, threading
from service.allocator import return_freed_memory

if sys.argv[1] == "returned":
    return_freed_memory()
kept = []

def read():
    texts = []
    for _ in range(200):
        texts.append(bytes(100_000))
        kept.append(bytes(1_000))

threads = [threading.Thread(target=read) for _ in range(8)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
pages = int(open("/proc/self/statm").read().split()[1])
print(pages * 4096)
"""


def _resident(how: str) -> int:
    out = subprocess.run([sys.executable, "-c", PROGRAM, how], capture_output=True, text=True, check=True)
    return int(out.stdout)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="other C libraries have no such setting")
def test_what_threads_have_freed_is_not_kept() -> None:
    # How much is kept depends on how many of them read at the same time.
    assert _resident("kept") - _resident("returned") > 8_000_000
