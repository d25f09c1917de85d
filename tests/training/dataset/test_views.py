from __future__ import annotations

import json
import random
import re
from collections import Counter
from dataclasses import replace

import pytest

from ptopt.model import prompt
from ptopt.model.region import ADVISE_TOKENS, JUDGE_TOKENS, Region, estimate, fit, regions_of, render
from ptopt.model.schema import parse
from ptopt.source.file import SourceFile
from training.dataset import rule_examples
from training.dataset.regions import regions
from training.dataset.rows import Positive, Sample
from training.dataset.synthesis import Origin, samples_of
from training.dataset.views import (
    _main_region,
    advise_example,
    explain_example,
    judge_examples,
    judge_regions,
    view_rows,
)

FILE = """\
import torch
from torch import nn
import torch.nn.functional as F


class Trainer:
    def fit(self, model, loader, optimizer):
        for step, (x, y) in enumerate(loader):
            loss = F.cross_entropy(model(x.cuda()), y.cuda())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()


class Net(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.inner = nn.Linear(width, width)

    def forward(self, x, y):
        position = torch.arange(x.size(1), device=x.device)
        return torch.log_softmax(self.inner(x), dim=-1) + position
"""


@pytest.fixture(scope="module")
def samples() -> list[Sample]:
    origin = Origin("demo", "MIT", "packages", "demo==1")
    made = [sample for region in regions("demo/a.py", FILE) for sample in samples_of(region, origin)]
    return [*made, *(s for i, s in enumerate(rule_examples.examples()) if i % 4 == 0)]


def sample(
    text: str, positives: tuple[Positive, ...] = (), negatives: tuple[str, ...] = (), context: str = ""
) -> Sample:
    return Sample(
        text=text, context=context, path="a/b.py", project="p", licence="MIT", source="s", provenance="p==1", kind="mutated",
        main_rule=positives[0].rule if positives else negatives[0], positives=positives, negatives=negatives,
    )  # fmt: skip


def in_order(made: list[Sample]) -> list[tuple[Sample, str, bool]]:
    """Sample, question and answer of every question."""
    return [
        (s, piece.rpartition("\n")[2].partition(":")[0].rpartition(", ")[2], answer)
        for s in made
        for question, answers in judge_examples(s)
        for piece, answer in zip(question.pieces, answers, strict=True)
    ]


def test_every_candidate_is_asked_once_and_answered_right(samples: list[Sample]) -> None:
    counts = Counter((s.hash, rule, answer) for s, rule, answer in in_order(samples))
    expected = Counter(
        (s.hash, rule, rule in {p.rule for p in s.positives})
        for s in samples
        for rule in (
            {s.main_rule} if s.kind == "mutated" else {p.rule for p in s.positives} | set(s.negatives)
        )
    )
    # All but those about a line that is too long to be shown.
    assert counts <= expected and sum(counts.values()) >= 0.97 * sum(expected.values())
    assert {answer for _, _, answer in counts} == {True, False}


def visible(region: Region) -> Region:
    """With the candidates alone whose lines are shown."""
    shown = {line.number for line in region.lines}
    return replace(region, candidates=tuple(c for c in region.candidates if shown & set(c.lines)))


def test_the_text_is_what_a_review_would_show(samples: list[Sample]) -> None:
    for one in samples:
        body = "".join(f"    {line}\n" if line else "\n" for line in one.text.split("\n")[:-1])
        in_class = one.context.rstrip().rpartition("\n")[2].startswith(("class ", "    "))
        text = one.context + (body if in_class else one.text)
        source = SourceFile.parse(one.path, text.encode())
        served = [
            question
            for shown in judge_regions(one)
            for region in regions_of(source, None, shown.candidates)
            if region.candidates
            for question in prompt.judge(visible(fit(replace(region, lines=shown.lines), JUDGE_TOKENS)))
        ]
        assert served == [question for question, _ in judge_examples(one)]


def test_the_order_of_questions_does_not_depend_on_the_answers() -> None:
    text = "def f(x, loss):\n    y = x.cpu()\n    z = loss.item()\n    print(loss)\n    return torch.cat([y, z])\n"
    rules = ["item-every-step", "cat-in-loop", "tensor-logged-every-step", "host-copy-every-step"]
    orders = set()
    for bad in rules:
        made = sample(text, (Positive(bad, 3, 3, ""),), tuple(r for r in rules if r != bad))
        orders.add(tuple(rule for _, rule, _ in in_order([made])))
    assert len(orders) == 1


def long(body: str, at: int, size: int = 300) -> str:
    lines = [f"    a{i} = model(b{i}).relu()" for i in range(size)]
    lines[at] = f"    {body}"
    return "def f(model, loss):\n" + "\n".join(lines) + "\n"


def test_a_cut_says_nothing_of_the_answer() -> None:
    """The same code, once with the finding and once without: the same lines are left."""
    draw = random.Random(0)
    for _ in range(20):
        at = draw.randrange(300)
        text = long("total += loss.item()", at)
        yes = sample(text, (Positive("item-every-step", at + 2, at + 2, ""),))
        no = sample(text, (), ("item-every-step",))
        ((asked_yes, said_yes),), ((asked_no, said_no),) = judge_examples(yes), judge_examples(no)
        assert asked_yes == asked_no
        assert (said_yes, said_no) == ((True,), (False,))
        assert "loss.item()" in asked_yes.pieces[0]
        assert "\n...\n" in asked_yes.pieces[0]


def test_a_tokenizer_counts_the_room_and_changes_nothing_of_what_is_served() -> None:
    p = Positive("item-every-step", 152, 152, "Slow. Wait.", "", 152, 152, "    total += loss")
    one = sample(long("total += loss.item()", 150), (p,), ("cat-in-loop",))

    def few(text: str) -> int:
        return len(text) // 9  # what a tokenizer makes of it is less than the estimate, always

    for code in (60, JUDGE_TOKENS, 600):
        served = [question for r in judge_regions(one) for question in prompt.judge(fit(r, code))]
        assert [question for question, _ in judge_examples(one, 10_000, few, code)] == served
    assert advise_example(one, 10_000, few) == advise_example(one) is not None
    assert explain_example(one, 10_000, few) == explain_example(one) is not None


def test_prompts_keep_to_the_room_they_have() -> None:
    text = long("loss.backward(retain_graph=True)", 100)
    p = Positive(
        "graph-retained", 102, 102, "The graph is kept. Drop it.", "", 102, 102, "    loss.backward()"
    )
    made = sample(text, (p,), ("item-every-step", "cat-in-loop"))
    for room in (200, 400, 800):
        for question, _ in judge_examples(made, room):
            assert estimate("".join(question.pieces)) <= min(room, JUDGE_TOKENS + 200)
        for example in (advise_example(made, room), explain_example(made, room)):
            assert example is not None or room == 200
            if example is not None:
                assert estimate(example[0].system + example[0].user + example[1]) <= room
    assert judge_examples(made, 60) == []
    assert advise_example(made, 60) is None
    (question, _), *_ = judge_examples(made, 700, len, 600)
    assert 500 < len("".join(question.pieces)) <= 700


def test_advice_mends_the_code(samples: list[Sample]) -> None:
    seen = 0
    for one in samples:
        example = advise_example(one)
        if example is None or one.kind != "mutated" or one.text.startswith("class") or len(one.positives) > 1:
            continue
        chat, said = example
        (finding,) = json.loads(said)["findings"]
        assert re.search(rf"^{finding['start_line']}\+? ", chat.user, re.M)
        lines = one.text.split("\n")
        new = finding["replacement"].split("\n") if finding["replacement"] else []
        lines[finding["start_line"] - 1 : finding["end_line"]] = new
        assert "\n".join(lines) == one.after
        seen += 1
    assert seen > 10


def test_advice_in_a_class_counts_from_its_method() -> None:
    text = (
        "class Net(nn.Module):\n"
        "    def __init__(self):\n"
        "        self.a = 1\n\n"
        "    def forward(self, x):\n"
        "        y = F.softmax(x, dim=-1).log()\n"
        "        return y\n"
    )
    p = Positive(
        "log-of-softmax", 6, 6, "It runs two kernels (line 6), see line 3. One is enough.", "", 6, 6,
        "        y = F.log_softmax(x, dim=-1)",
    )  # fmt: skip
    made = sample(text, (p,), context="import torch.nn.functional as F\nfrom torch import nn\n\n")
    example = advise_example(made)
    assert example is not None
    chat, said = example
    assert "Code of Net.forward:\n1 def forward(self, x):\n2     y = F.softmax" in chat.user
    assert json.loads(said)["findings"] == [
        {
            "rule": "log-of-softmax",
            "start_line": 2,
            "end_line": 2,
            "replacement": "    y = F.log_softmax(x, dim=-1)",
            "reason": "It runs two kernels (line 2), see another line.",
        }
    ]
    explained = explain_example(made)
    assert explained is not None
    assert "Finding in line 2, log-of-softmax" in explained[0].user
    assert explained[1] == (
        "It runs two kernels (line 2), see another line. Write `y = F.log_softmax(x, dim=-1)` in place of line 2."
    )


def test_answers_conform_to_the_schema_that_is_enforced(samples: list[Sample]) -> None:
    counts = Counter[bool]()
    for one in samples:
        example = advise_example(one)
        if example is None:
            continue
        chat, said = example
        findings = json.loads(said)["findings"]
        shown = _main_region(one)
        assert shown is not None and render(fit(shown, ADVISE_TOKENS)) in chat.user
        assert len(parse(said, shown)) == len(findings)
        assert bool(findings) == bool(one.positives)
        counts[bool(findings)] += 1
    assert min(counts.values()) > 10


def test_a_problem_without_a_replacement_is_not_called_nothing() -> None:
    made = sample(
        "def f(x, loss):\n    return loss.item()\n", (Positive("item-every-step", 2, 2, "It waits."),)
    )
    assert advise_example(made) is None
    explained = explain_example(made)
    assert explained is not None
    assert explained[1] == "It waits."


def test_code_without_a_problem_has_nothing_to_advise_or_explain() -> None:
    made = sample("def f(x, loss):\n    return loss.item()\n", (), ("item-every-step",))
    example = advise_example(made)
    assert example is not None
    assert example[1] == '{"findings": []}'
    assert explain_example(made) is None


def test_rows_tell_the_same(samples: list[Sample]) -> None:
    one = next(s for s in samples if s.kind == "mutated" and s.main_rule == "graph-retained")
    rows = {row["metadata"]["view"]: row for row in view_rows(one)}
    assert set(rows) == {"judge", "advise", "explain"}
    assert len(re.findall(r" Answer$", rows["judge"]["input"], re.M)) == len(
        rows["judge"]["output"].split("\n")
    )
    (finding,) = json.loads(rows["advise"]["output"])["findings"]
    assert "loss.backward()" in finding["replacement"]
    assert finding["rule"] == "graph-retained"
    assert rows["explain"]["output"].count(". ") <= 2
    assert all(row["metadata"]["hash"] == one.hash for row in rows.values())


def test_what_does_not_parse_has_no_views() -> None:
    made = sample("def f(:\n", (), ("item-every-step",))
    assert list(view_rows(made)) == []
