"""A real vLLM server on this machine, for the time of a test."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import httpx

from tests.worker.processes import free_port

STARTS_WITHIN = 400.0  # seconds; half a minute on a quiet machine


def environment() -> dict[str, str]:
    """What vLLM needs on a CPU that it shares."""
    return os.environ | {
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",
        "VLLM_ALLOW_RUNTIME_LORA_UPDATING": "1",
        "VLLM_NO_USAGE_STATS": "1",
        "OMP_NUM_THREADS": "1",
        "OMP_WAIT_POLICY": "PASSIVE",
        "HF_HUB_OFFLINE": "1",
        "CUDA_VISIBLE_DEVICES": "",
    }


class VLLMServer:
    """`model` served on a free port, ready for adapters. The log is in `folder`."""

    def __init__(self, model: Path, folder: Path) -> None:
        port = free_port()
        self.url = f"http://127.0.0.1:{port}"
        self._log = folder / "vllm.log"
        command = [
            sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--model", str(model),
            "--served-model-name", "base", "--host", "127.0.0.1", "--port", str(port), "--enforce-eager",
            "--max-model-len", "2048", "--max-num-seqs", "8", "--enable-lora", "--max-lora-rank", "16",
            "--max-loras", "2", "--max-cpu-loras", "4",
            "--structured-outputs-config", '{"backend": "xgrammar", "disable_any_whitespace": true}',
        ]  # fmt: skip
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                command, env=environment(), stdout=log, stderr=log, cwd=folder, start_new_session=True
            )

    def wait(self) -> None:
        until = time.monotonic() + STARTS_WITHIN
        while time.monotonic() < until:
            if self._process.poll() is not None:
                raise AssertionError(
                    f"vLLM ended with {self._process.returncode}:\n{self._log.read_text()[-4000:]}"
                )
            try:
                if httpx.get(f"{self.url}/health", timeout=2).is_success:
                    return
            except httpx.TransportError:
                pass
            time.sleep(0.5)
        raise AssertionError(f"vLLM did not start:\n{self._log.read_text()[-4000:]}")

    def kill(self) -> None:
        """SIGKILL to the server and the processes it started."""
        try:
            os.killpg(self._process.pid, signal.SIGKILL)
        except ProcessLookupError:
            return
        self._process.wait(30)
