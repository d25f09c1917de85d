"""Questions that other files of the repository answer."""

from __future__ import annotations

import ast
import textwrap

import pytest

from ptopt.project.facts import read_facts
from ptopt.source import searchable
from ptopt.source.file import SourceFile
from ptopt.source.frequency import Often
from ptopt.source.repository import Parsed, Repository
from ptopt.source.searchable import Searchable
from ptopt.source.searchable import identifiers_of as _identifiers

HELPER = b"""
import torch

def summarise_batch(model, batch):
    return model(batch.images)
"""


def parsed(callers: dict[str, str], path: str = "lib/helpers.py", text: bytes = HELPER) -> SourceFile:
    around = {name: textwrap.dedent(code).encode() for name, code in callers.items()}
    return SourceFile.parse(path, text, repository=Repository(around))


def body(file: SourceFile) -> ast.stmt:
    return file.calls.functions[0].body[0]


UNDER_NO_GRAD = """
    import torch
    from lib.helpers import summarise_batch

    @torch.no_grad()
    def report(model, loader):
        for batch in loader:
            print(summarise_batch(model, batch).shape)
"""
IN_TRAINING = """
    from lib.helpers import summarise_batch

    def train(model, loader, optimizer):
        for batch in loader:
            loss = summarise_batch(model, batch).mean()
            loss.backward()
            optimizer.step()
"""


def test_a_caller_in_another_file_turns_autograd_off() -> None:
    file = parsed({"report.py": UNDER_NO_GRAD})
    assert file.context.grad_off(body(file))
    assert file.frequencies.of(body(file)).often is Often.EVALUATION


def test_one_caller_that_records_is_enough() -> None:
    file = parsed({"report.py": UNDER_NO_GRAD, "train.py": IN_TRAINING})
    assert not file.context.grad_off(body(file))
    assert file.frequencies.of(body(file)).often is Often.STEP
    assert "train.py" in file.frequencies.of(body(file)).reason


def test_without_other_files_nothing_is_known() -> None:
    file = parsed({})
    assert not file.context.grad_off(body(file))
    assert file.frequencies.of(body(file)).often is Often.UNKNOWN


def test_a_file_that_does_not_import_the_module_is_no_caller() -> None:
    code = UNDER_NO_GRAD.replace("from lib.helpers import", "from other.tools import")
    assert not parsed({"report.py": code}).context.grad_off(body(parsed({})))
    file = parsed({"report.py": code})
    assert not file.context.grad_off(body(file))


def test_a_file_with_a_function_of_that_name_calls_its_own() -> None:
    code = UNDER_NO_GRAD + "\n    def summarise_batch(model, batch):\n        return batch\n"
    file = parsed({"report.py": code})
    assert not file.context.grad_off(body(file))


def test_names_that_every_class_has_are_not_followed() -> None:
    text = b"class A:\n    def update(self, x):\n        return x\n"
    file = parsed(
        {"report.py": "import helpers\nimport torch\nwith torch.no_grad():\n    a.update(1)\n"}, text=text
    )
    assert file.repository.callers(file, file.calls.functions[0]) == ()


def test_files_that_do_not_parse_are_passed_over() -> None:
    file = parsed({"broken.py": "import helpers\nsummarise_batch(\n", "report.py": UNDER_NO_GRAD})
    assert file.context.grad_off(body(file))


def test_few_files_are_parsed() -> None:
    many = {
        f"caller{i}.py": "import helpers\nx = lambda: summarise_batch\n# summarise_batch(\n"
        for i in range(60)
    }
    file = parsed(many)
    file.context.grad_off(body(file))
    assert len(file.repository._asked) == 12


def test_what_one_file_asks_does_not_depend_on_another() -> None:
    shared, report = Parsed(most=12), textwrap.dedent(UNDER_NO_GRAD).encode()
    for _ in range(2):  # the second one finds the trees that the first one made
        file = SourceFile.parse(
            "lib/helpers.py", HELPER, repository=Repository({"report.py": report}, shared)
        )
        assert file.context.grad_off(body(file))
    none_left = Repository({"report.py": report}, Parsed(most=0))
    file = SourceFile.parse("lib/helpers.py", HELPER, repository=none_left)
    assert not file.context.grad_off(body(file))


def test_a_file_that_imports_its_own_module_of_that_name_calls_another_function() -> None:
    report = {"other/report.py": UNDER_NO_GRAD}
    file = parsed(report)
    assert file.context.grad_off(body(file))
    file = parsed({**report, "other/helpers.py": "def summarise_batch(): ..."})
    assert not file.context.grad_off(body(file))


def _first_call(file: SourceFile, name: str) -> ast.Call:
    return file.calls_named(name)[0]


USER = b"import lib.helpers\nout = lib.helpers.summarise_batch(model, batch)\n"


def test_the_only_definition_of_a_name() -> None:
    file = parsed({"lib/helpers.py": HELPER.decode()}, "use.py", USER)
    found = file.definition_of(_first_call(file, "summarise_batch"))
    assert found is not None
    assert (found[0].path, found[1].name) == ("lib/helpers.py", "summarise_batch")


def test_two_definitions_of_a_name_tell_nothing() -> None:
    file = parsed({"a.py": HELPER.decode(), "b.py": HELPER.decode()}, "use.py", USER)
    assert file.definition_of(_first_call(file, "summarise_batch")) is None


def test_a_definition_whose_text_does_not_matter_is_not_parsed() -> None:
    shared = Parsed()
    text = b"from helpers import summarise_batch\n\nsummarise_batch(1, 2)\n"
    file = SourceFile.parse("use.py", text, repository=Repository({"helpers.py": HELPER}, shared))
    call = _first_call(file, "summarise_batch")
    asked: list[bytes] = []

    def loads(text: Searchable, name: bytes) -> bool:
        asked.append(name)
        return any(b"load" in function for function in text.functions(name))

    assert file.definition_of(call, loads) is None
    assert file.definition_of(call, loads) is None
    assert asked == [b"summarise_batch"]
    assert not shared._trees
    assert file.definition_of(call) is not None, "others may want it"


def test_a_definition_in_the_file_itself_comes_first() -> None:
    text = HELPER + b"\nsummarise_batch(1, 2)\n"
    file = parsed({"a.py": HELPER.decode()}, "use.py", text)
    found = file.definition_of(_first_call(file, "summarise_batch"))
    assert found is not None and found[0] is file


def test_mentions_in_other_files_alone_count() -> None:
    file = parsed({"report.py": UNDER_NO_GRAD})
    assert file.repository.mentions(b"summarise_batch", besides="lib/helpers.py")
    assert not file.repository.mentions(b"summarise_batch", besides="report.py")


def test_a_method_is_found_where_a_runner_calls_it() -> None:
    task = b"class Task:\n    def valid_epoch(self, model):\n        return model(1)\n"
    runner = """
        class Runner:
            def run(self):
                self.task.valid_epoch(self.model)
        """
    file = parsed({"runner.py": runner}, "tasks/retrieval.py", task)
    method = file.calls.functions[0]
    assert file.repository.callers(file, method) == (), "it imports nothing of the task"
    assert [(other.path, call.lineno) for other, call in file.repository.dispatches(file, method)] == [
        ("runner.py", 4)
    ]


def test_the_words_of_a_text_that_changed_are_its_new_ones() -> None:
    shared = Parsed()
    assert b"load_all" in shared.text("a.py", b"def load_all(y): pass\n").defined
    assert b"other" in shared.text("a.py", b"def other(): pass\n").defined


def test_a_text_is_split_into_words_once_for_all_files_that_ask(monkeypatch: pytest.MonkeyPatch) -> None:
    split: list[bytes] = []
    monkeypatch.setattr(searchable, "identifiers_of", lambda data: split.append(data) or _identifiers(data))
    shared = Parsed()
    around = {"report.py": b"x = 1\n", "other.py": b"y = 2\n"}
    for path in ("a.py", "b.py", "c.py"):
        near = Repository({name: bytes(bytearray(data)) for name, data in around.items()}, shared)
        file = SourceFile.parse(path, HELPER, repository=near)
        assert not file.context.grad_off(body(file))
        assert not near.mentions(b"summarise_batch")
    assert sorted(split) == sorted(around.values())


def test_a_file_that_a_question_led_to_is_not_parsed_again_for_its_own_review() -> None:
    shared, data = Parsed(), textwrap.dedent(UNDER_NO_GRAD).encode()
    asked = shared("report.py", data)
    assert asked is not None
    facts, around = read_facts({"requirements.txt": b"torch==2.5"}), Repository({"lib/helpers.py": HELPER})
    reviewed = shared.reviewed("report.py", data, facts, around)
    assert (reviewed.tree, reviewed.index) == (asked.tree, asked.index)
    assert (reviewed.facts, reviewed.repository) == (facts, around)
    assert asked.facts is not facts  # others go on to see it without

    changed = shared.reviewed("report.py", data + b"\n", facts, around)
    assert changed.tree is not asked.tree


METER = b"""
class MetricLogger:
    def update(self, **kwargs):
        for name, value in kwargs.items():
            if isinstance(value, torch.Tensor):
                value = value.item()
            self.values[name] = value
"""


def test_a_method_with_a_common_name_is_called_on_an_object_of_its_class() -> None:
    step = """
        from lib.meters import MetricLogger

        def train(model, loader, optimizer):
            meters, known = MetricLogger(), {}
            for batch in loader:
                loss = model(batch).mean()
                known.update(loss=loss)
                meters.update(loss=loss)
                loss.backward()
                optimizer.step()
    """
    file = parsed({"train.py": step}, "lib/meters.py", METER)
    (called,) = file.repository.callers(file, file.calls.functions[0])
    assert called[1].lineno == 9
    loop = next(file.index.of_type(ast.For))
    found = file.frequencies.of(loop.body[0])
    assert found.trains
    assert found.reason == (
        "in each iteration of the loop at line 4, which runs on every step of the loop at line 6 of train.py, at line 9 there"
    )
    other = parsed({"train.py": step.replace("MetricLogger()", "Other()")}, "lib/meters.py", METER)
    assert other.repository.callers(other, other.calls.functions[0]) == ()
