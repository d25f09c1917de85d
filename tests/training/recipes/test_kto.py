"""KTO from rows of feedback."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path

import pytest

pytest.importorskip("trl")
pytestmark = pytest.mark.model

from tests.training.recipes.conftest import a_sample, losses  # noqa: E402


def feedback(path: Path) -> Path:
    """Of judge prompts: the right answer was good, the wrong one bad; and a chat of each kind."""
    from training.dataset.views import judge_examples

    rows = []
    for number in range(12):
        sample = a_sample(number)
        about = dataclasses.replace(sample, negatives=() if sample.positives else sample.negatives)
        prompt, answers = judge_examples(about)[0]
        answer = "yes" if answers[0] else "no"
        rows.append({"prompt": prompt.pieces[0], "completion": answer, "label": number % 3 != 0})
    rows.append({"prompt": {"system": "s", "user": "u"}, "completion": "good words", "label": True})
    rows.append({"prompt": {"system": "s", "user": "u"}, "completion": "bad words", "label": False})
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def test_rows_are_the_ids_of_serving(tmp_path: Path, smollm2: Path) -> None:
    from transformers import AutoTokenizer

    from ptopt.model.backends.encoding import answer_ids, encode_judge
    from training.dataset.views import judge_examples
    from training.recipes.kto import feedback_rows

    tokenizer = AutoTokenizer.from_pretrained(smollm2)
    rows = feedback_rows(feedback(tmp_path / "rows.jsonl"), tokenizer, 1024)
    prompt, answers = judge_examples(dataclasses.replace(a_sample(0), negatives=()))[0]
    ids, marks = encode_judge(tokenizer, prompt)
    assert rows[0]["prompt_ids"] == ids[: marks[0] + 1]
    assert rows[0]["completion_ids"] == [answer_ids(tokenizer)[0 if answers[0] else 1]]
    assert rows[-1]["completion_ids"][-1] == tokenizer.eos_token_id


@pytest.mark.parametrize(
    "line",
    [
        '{"prompt": "x Answer", "completion": "maybe", "label": true}',
        '{"prompt": "x", "label": true}',
        "no JSON",
        "[1]",
    ],
)
def test_a_wrong_row_is_named(tmp_path: Path, smollm2: Path, line: str) -> None:
    from transformers import AutoTokenizer

    from training.recipes.kto import feedback_rows
    from training.recipes.settings import SettingsError

    path = feedback(tmp_path / "rows.jsonl")
    path.write_text(path.read_text() + line + "\n")
    with pytest.raises(SettingsError, match=r"rows\.jsonl:15: not a row of feedback"):
        feedback_rows(path, AutoTokenizer.from_pretrained(smollm2), 1024)


def test_rows_made_from_what_people_said(recipe: Callable[..., Path], tmp_path: Path, smollm2: Path) -> None:
    from click.testing import CliRunner
    from transformers import AutoTokenizer

    from ptopt.model.backends.encoding import answer_ids, encode_judge
    from tests.training.feedback_service import DOWN, MERGED, FeedbackService, code, judged_review
    from training.__main__ import main
    from training.recipes import kto, sft
    from training.recipes.settings import read

    service = FeedbackService(tmp_path)
    texts = {f"train_{n}.py": code(n) for n in range(4)}
    head = service.clone("acme/net", texts)
    prompts_seen = []
    for number, (path, text) in enumerate(texts.items()):
        finding, prompts = judged_review(path, text)
        prompts_seen += prompts
        said = MERGED if number % 2 else (*DOWN, f"person-{number}")
        service.comment(head, finding, said, pull=number)
    service.engine.dispose()
    rows = tmp_path / "feedback.jsonl"
    options = ["--database", service.url, "--clones", str(service.clones), "--out", str(rows)]
    done = CliRunner().invoke(main, ["feedback", "rows", *options])
    assert done.exit_code == 0, done.output

    tokenizer = AutoTokenizer.from_pretrained(smollm2)
    read_back = kto.feedback_rows(rows, tokenizer, 384)
    assert read_back["prompt_ids"] == [encode_judge(tokenizer, prompt)[0] for prompt in prompts_seen]
    assert read_back["completion_ids"] == [[answer_ids(tokenizer)[0]]] * 4
    assert read_back["label"] == [False, True, False, True]

    parent = sft.train(read(recipe("limits.steps=1")))
    changes = (f"model.adapter={parent}", f"data.folder={rows}", "batch.size=2", "batch.accumulation=1")
    adapter = kto.train(read(recipe(*changes, "limits.steps=2", "name=k")))
    assert adapter is not None
    assert len(losses(adapter.parent)) == 2


def test_feedback_that_only_says_yes_is_asked_both_ways() -> None:
    """What `feedback rows` writes: all completions are yes. With one answer alone the divergence says nothing."""
    from datasets import Dataset

    from training.recipes.kto import _with_another_answer, in_turns
    from training.recipes.settings import SettingsError

    yes, no = 7, 8
    said = [{"prompt_ids": [n], "completion_ids": [yes], "label": n % 3 == 0} for n in range(12)]
    rows = in_turns(Dataset.from_list(said), yes, no)
    assert rows["completion_ids"] == [[yes], [no]] * 6
    assert [
        label == (answer == [yes])
        for label, answer in zip(rows["label"], rows["completion_ids"], strict=True)
    ] == [row["label"] for row in said]  # a good yes is a bad no
    paired = rows.map(_with_another_answer, batched=True, batch_size=2)
    assert all(a != b for a, b in zip(paired["completion_ids"], paired["KL_completion_ids"], strict=True))

    chats = [{"prompt_ids": [n], "completion_ids": [1, 2], "label": True} for n in range(4)]
    with pytest.raises(SettingsError, match="all answers of the feedback are the same"):
        in_turns(Dataset.from_list(chats), yes, no)


def test_answers_that_were_good_become_likelier(recipe: Callable[..., Path], tmp_path: Path) -> None:
    from training.recipes import kto, sft
    from training.recipes.settings import read

    parent = sft.train(read(recipe("limits.steps=2")))
    assert parent is not None
    rows = feedback(tmp_path / "rows.jsonl")
    changes = (f"model.adapter={parent}", f"data.folder={rows}", "batch.size=4", "batch.accumulation=1")
    adapter = kto.train(read(recipe(*changes, "limits.steps=6", "optimizer.lr=0.005", "name=k")))
    assert adapter is not None
    seen = losses(adapter.parent)
    assert len(seen) == 6
    assert seen[0][1] == pytest.approx(0.5, abs=0.2)  # where it starts, it is its own reference
    assert min(loss for _, loss in seen[2:]) < seen[0][1]
    card = json.loads((adapter / "card.json").read_text())
    assert card["recipe"] == "kto" and len(card["parent"]) == 64
    assert sorted(p.name for p in adapter.iterdir()) == [
        "README.md", "adapter_config.json", "adapter_model.safetensors", "calibration.json", "card.json",
    ]  # fmt: skip
    assert (adapter / "adapter_model.safetensors").read_bytes() != (
        parent / "adapter_model.safetensors"
    ).read_bytes()
