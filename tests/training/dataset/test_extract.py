from __future__ import annotations

import pytest

from ptopt.rules.base import SURE
from tests.training.sources.fakes import FAST, SLOW
from training.dataset.extract import samples, samples_of_document
from training.dataset.synthesis import review
from training.sources.base import Block, Document
from training.sources.changes import changed_functions


def document(*blocks: Block, train: bool = True, licence: str = "MIT") -> Document:
    return Document(
        "commits",
        "acme/net@1",
        "https://x/1",
        "acme/net",
        "",
        blocks,
        licence,
        train,
        "2026-01-01T00:00:00+00:00",
        "acme/net@1",
    )


def pair(before: str = SLOW, after: str = FAST) -> tuple[Block, ...]:
    (change,) = changed_functions("src/train.py", before.encode(), after.encode())
    return change.blocks(1, "https://x/1")


def file_of(sample) -> str:
    assert "class " not in sample.context
    return sample.context + sample.text


def test_a_pair_gives_the_slow_form_and_a_hard_negative():
    slow, fast = samples_of_document(document(*pair()))
    (positive,) = slow.positives
    lines = slow.text.split("\n")
    assert slow.kind == "pair" and slow.main_rule == positive.rule == "item-every-step"
    assert "loss.item()" in lines[positive.start - 1]
    assert (slow.before, slow.after) == (slow.text, fast.text)
    assert (fast.kind, fast.positives, fast.negatives[0]) == ("corrected", (), "item-every-step")
    assert slow.group == fast.group
    assert (slow.licence, slow.project, slow.source, slow.provenance) == (
        "MIT",
        "acme/net",
        "commits",
        "https://x/1",
    )


def test_the_replacement_makes_the_fast_form():
    slow, fast = samples_of_document(document(*pair()))
    (positive,) = slow.positives
    lines = slow.text.split("\n")
    lines[positive.fix_start - 1 : positive.fix_end] = positive.replacement.split("\n")
    assert "\n".join(lines) == fast.text


def test_what_is_said_of_a_sample_is_what_the_rules_say_of_its_text():
    for sample in samples_of_document(document(*pair())):
        names = {f.name for f in review(sample.path, file_of(sample)) if f.confidence >= SURE}
        assert names == {p.rule for p in sample.positives}


def test_a_pair_that_the_rule_does_not_agree_with_gives_nothing():
    before, after = pair()
    silent = [Block(FAST, "before", 1, rules=("item-every-step",)), Block(FAST + "x = 1\n", "after", 1)]
    assert list(samples_of_document(document(*silent))) == []
    assert list(samples_of_document(document(before))) == []
    assert list(samples_of_document(document(Block("def (", "before", 1), after))) == []


def test_a_taught_pair_and_its_look_alike():
    tuned = Block(
        "def f(x):\n    y = x + 1\n    z = y * 2\n    return z.item()\n", "tuned", rules=("item-every-step",)
    )
    blocks = (Block(SLOW, "slow", 1, rules=("item-every-step",)), Block(FAST, "fast", 1), tuned)
    kinds = [sample.kind for sample in samples_of_document(document(*blocks))]
    assert sorted(kinds) == ["corrected", "look-alike", "taught"]


def test_a_question_is_corrected_by_the_answer_that_resembles_it():
    far = "import torch\n\nprint(torch.cuda.is_available())\nprint(torch.__version__)\n"
    thread = document(
        Block(SLOW, "question", url="https://x/q", author="ada", licence="CC-BY-SA-4.0"),
        Block(far, "answer"),
        Block(FAST, "answer", author="grace"),
        train=False,
        licence="CC-BY-SA-4.0",
    )
    (sample,) = samples_of_document(thread)
    assert (sample.kind, sample.after, sample.attributes["author"]) == ("organic", FAST, "ada")
    assert sample.licence == "CC-BY-SA-4.0" and sample.provenance == "https://x/q"
    assert sample.positives[0].replacement is not None
    assert list(samples([thread])) == [] and len(list(samples([thread], only_trainable=False))) == 1


def test_a_question_without_such_an_answer_keeps_its_finding():
    (sample,) = samples_of_document(document(Block(SLOW, "question"), Block("x = 1\n" * 5, "answer")))
    assert sample.after is None and sample.positives[0].replacement is None


def test_a_snippet_without_imports_gets_them():
    body = SLOW.replace("import torch\nfrom torch import nn\n\n\n", "")
    (sample,) = samples_of_document(document(Block(body, "page")))
    assert sample.context.startswith("import ") and sample.text == body
    assert "loss.item()" in sample.text.split("\n")[sample.positives[0].start - 1]


@pytest.mark.parametrize(
    "code", ["def f(:\n" * 5, "\t\n" * 9, "x\n", "x = 1\n" * 500, ">>> x\n1\n" * 5, "\x00\n" * 5]
)
def test_code_that_is_none(code):
    assert (
        list(
            samples_of_document(
                document(*(Block(code, role) for role in ("question", "answer", "page", "tuned")))
            )
        )
        == []
    )


def test_a_method_keeps_its_class():
    def method(code: str) -> str:
        head, _, body = code.partition("def train(")
        indented = "".join(
            f"    {line}\n" if line else "\n" for line in ("def train(self, " + body).rstrip("\n").split("\n")
        )
        return (
            f"{head}class Trainer(nn.Module):\n    def __init__(self):\n        super().__init__()\n        self.n = 1\n{'        self.k = 2' + chr(10)}"
            + "        x = 1\n" * 90
            + f"\n{indented}"
        )

    found = list(samples_of_document(document(*pair(method(SLOW), method(FAST)))))
    assert [sample.kind for sample in found] == ["pair", "corrected"]
    assert found[0].context.endswith("class Trainer(nn.Module):\n") and found[0].text.startswith(
        "def train(self, "
    )


def test_files_of_packages_go_the_way_of_all_files():
    found = list(samples_of_document(document(Block(FAST, "file", path="net/train.py"))))
    assert found and {sample.kind for sample in found} >= {"mutated"}
    assert all(sample.provenance == "acme/net@1:net/train.py::train" for sample in found)
