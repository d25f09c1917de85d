"""What a review does not do: counted, so that it cannot come back unseen."""

from __future__ import annotations

import ast
import textwrap
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from ptopt.audit import calling
from ptopt.audit.known import Value
from ptopt.audit.live import Live
from ptopt.audit.modules import Module, Modules
from ptopt.audit.scripts import training_scripts
from ptopt.audit.setup import Setup
from ptopt.audit.summaries import Summaries
from ptopt.audit.values import EntryPoint, State
from ptopt.change import whole_file
from ptopt.config import Config
from ptopt.findings import Review
from ptopt.project.around import Neighbours
from ptopt.project.facts import NO_FACTS
from ptopt.ranker.features import _BATCH, _GIVEN, _WIDTH
from ptopt.ranker.model import Head
from ptopt.review import review_files
from ptopt.rules import rules
from ptopt.rules.ops import _wasted
from ptopt.rules.ops._unread import are_read, unclear
from ptopt.source import programs
from ptopt.source.file import SourceFile
from ptopt.source.index import FUNCTIONS, FunctionNode
from ptopt.source.liveness import liveness
from ptopt.source.repository import Parsed, Repository

SURE: dict[str, Any] = {"min-confidence": 0.99}
PACKAGE = Path(__file__).parents[1] / "ptopt"
READ = """
    import torch

    class Net(torch.nn.Module):
        def forward(self, x):
            hidden = self.prepare_inputs(x)
            out = self.encoder(hidden)
            if self.training:
                return out.mean()
            return out
"""
UNREAD = """
    import torch

    class Net(torch.nn.Module):
        def forward(self, x):
            out = self.encoder(x)
            return x
"""
CALLED = """
    from transformers import pipeline

    def answer(request):
        for part in request:
            print(part)
        return load_somewhere(request)
"""


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Counter[str]]:
    calls: Counter[str] = Counter()

    def count(*places: tuple[Any, str]) -> Counter[str]:
        for holder, name in places:
            monkeypatch.setattr(holder, name, _noted(name, getattr(holder, name), calls))
        return calls

    return count


def _noted(name: str, call: Callable[..., Any], calls: Counter[str]) -> Callable[..., Any]:
    def noted(*args: Any, **how: Any) -> Any:
        calls[name] += 1
        return call(*args, **how)

    return noted


def review(code: str, around: dict[str, str] | None = None, **chosen: Any) -> Review:
    files = {path: text.encode() for path, text in (around or {}).items()}
    return review_files(
        [whole_file("net.py", textwrap.dedent(code).encode())],
        config=Config(**chosen),
        facts=NO_FACTS,
        limit_to_change=False,
        neighbours=Neighbours(lambda: files, files.get),
    )


def test_names_that_are_plainly_read_need_no_liveness(counted: Callable[..., Counter[str]]) -> None:
    calls = counted((_wasted, "liveness"))
    review(READ, select=["PTO489"])
    assert calls["liveness"] == 0
    review(UNREAD, select=["PTO489"])
    assert calls["liveness"] == 1


def test_no_other_file_is_parsed_for_results_that_are_read(counted: Callable[..., Counter[str]]) -> None:
    around = {"other.py": "def prepare_inputs(x):\n    return x\n"}
    calls = counted((Repository, "_parse"))
    review(READ, around, select=["PTO477", "PTO489"])
    assert calls["_parse"] == 0
    review(READ.replace("self.encoder(hidden)", "self.encoder(x)"), around, select=["PTO477", "PTO489"])
    assert calls["_parse"] == 1


def test_no_other_file_is_asked_how_often_a_function_runs_that_nothing_calls(
    counted: Callable[..., Counter[str]],
) -> None:
    around = {"app.py": "from net import answer\nfor x in y:\n    answer(x)\n"}
    calls = counted((Repository, "_parse"))
    review(CALLED, around, select=["PTO490"])
    assert calls["_parse"] == 0


def test_what_is_left_out_is_weighed_once_by_each_head(counted: Callable[..., Counter[str]]) -> None:
    code = """
        import torch

        def train(model, loader, optimizer):
            for x, y in loader:
                loss = model(x).sum()
                loss.backward()
                optimizer.step()
                print(loss.item())
    """
    calls = counted((Head, "probability"))
    found = review(code, select=["PTO101"], **SURE)
    assert found.left_out is not None and found.left_out.all_places == 1
    # What a comment asks for, and, as the hit is none, what it misses.
    assert calls["probability"] <= 4


def _functions() -> Iterator[tuple[SourceFile, ast.FunctionDef | ast.AsyncFunctionDef]]:
    examples = (
        text for rule in rules() for text in (*rule.VALID, *(invalid.code for invalid in rule.INVALID))
    )
    own = (path.read_text(encoding="utf-8") for path in sorted(PACKAGE.rglob("*.py")))
    for text in (*map(textwrap.dedent, examples), *own):
        try:
            file = SourceFile.parse("a.py", text.encode())
        except ValueError:
            continue
        for function in file.index.of_type(*FUNCTIONS):
            yield file, function


def test_where_a_glance_says_that_all_is_read_liveness_says_so() -> None:
    looked_at = Counter[bool]()
    for file, function in _functions():
        read = are_read(unclear(function, file).open, function, file)
        looked_at[read] += 1
        found = liveness(function, lambda expr: True) if read else None
        if found is None:
            continue
        for statement in found.after:
            if isinstance(statement, (ast.Assign, ast.AnnAssign)) and statement.value is not None:
                computes = any(isinstance(node, ast.Name) for node in ast.walk(statement.value))
                assert not (computes and found.is_unread(statement)), ast.unparse(function)
    assert looked_at[True] > 2 * looked_at[False] > 0


def test_numbers_of_a_file_stand_on_the_lines_that_are_searched() -> None:
    for path in sorted(PACKAGE.rglob("*.py")):
        text = (
            path.read_text(encoding="utf-8")
            + "\nhidden_dim: int = 512\nparser.add('--batch-size', default = 8)\n"
        )
        lines = "\n".join(line for line in text.split("\n") if _GIVEN.search(line))
        assert _WIDTH.findall(lines) == _WIDTH.findall(text) != []
        assert _BATCH.findall(lines) == _BATCH.findall(text) != []


def test_rules_on_loops_and_stores_see_few_assignments() -> None:
    code = b"import torch\na = f(x)\nfor y in z:\n    b = g(y)\n    c.append(b)\nd = [y]\ne['k'] = 1\n"
    file = SourceFile.parse("a.py", code)
    by_name = {rule.name: rule for rule in rules()}
    seen = {
        name: [ast.unparse(node) for node in by_name[name].candidates(file)]
        for name in ("computed-for-report", "result-stored-with-graph", "results-pile-up")
    }
    assert seen == {
        "computed-for-report": ["b = g(y)"],
        "result-stored-with-graph": ["c.append(b)", "e['k'] = 1"],
        "results-pile-up": ["c.append(b)"],
    }


def test_an_audit_looks_through_what_runs_once_for_all_names() -> None:
    looked_at: Counter[int] = Counter()

    class Units(list[Any]):
        def __getitem__(self, place: Any) -> Any:
            looked_at[place] += 1
            return super().__getitem__(place)

    text = b"def one():\n    step()\ndef two():\n    stop()\none()\ntwo()\n"
    modules = Modules({"a.py": text})
    start = modules.parse("a.py")
    assert start is not None
    live = Live(modules, start, Summaries(modules))
    live._units = Units(live._units)
    assert [ast.unparse(call) for _, call in live.calls_of(frozenset({"step"}))] == ["step()"]
    looked_at.clear()
    assert [ast.unparse(call) for _, call in live.calls_of(frozenset({"stop"}))] == ["stop()"]
    assert list(live.calls_of(frozenset({"backward"}))) == []
    assert looked_at.total() == 1


TRAINS = """
import torch

def train(model, optimizer, tokenizer, texts):
    for text in texts:
        batch = tokenizer(text, padding="max_length")
        optimizer.zero_grad()
        loss = model(batch).loss
        loss.backward()
        optimizer.step()
"""


def audited(files: dict[str, str]) -> tuple[EntryPoint, ...]:
    return training_scripts({path: text.encode() for path, text in files.items()}, NO_FACTS).entries


def test_a_row_does_not_ask_of_more_places_than_it_lists(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: Counter[type] = Counter()
    runs = Setup.runs

    def counted(self: Setup, module: Module, node: ast.AST) -> Value:
        asked[type(node)] += 1
        return runs(self, module, node)

    monkeypatch.setattr(Setup, "runs", counted)
    line = '    tokenizer(text, padding="max_length")\n    Convolution(3, padding=1)\n'
    text = TRAINS + "\ndef more(tokenizer, text):\n" + 50 * line + "\nmore(tokenizer, '')\ntrain(*made())\n"
    (entry,) = audited({"train.py": text})
    row = next(measure for measure in entry.measures if measure.key == "padding")
    assert (row.state, len(row.evidence)) == (State.OFF, 4)
    assert asked[ast.keyword] == 4


def test_an_audit_looks_for_the_callers_of_a_function_once(monkeypatch: pytest.MonkeyPatch) -> None:
    looked_at: Counter[str] = Counter()
    named_at = calling._callers

    def counted(live: Live, function: FunctionNode, module: Module) -> Iterator[calling.Caller]:
        looked_at[function.name] += 1
        return named_at(live, function, module)

    monkeypatch.setattr(calling, "_callers", counted)
    text = TRAINS.replace("texts):", "texts, amp, workers):").replace(
        "        optimizer.zero_grad()",
        "        torch.utils.data.DataLoader(texts, num_workers=workers)\n        torch.autocast('cuda', enabled=amp)",
    )
    audited({"train.py": text + "\ntrain(*made(), amp=True, workers=4)\n"})
    assert looked_at["train"] == 1


def test_the_imports_of_a_module_are_parsed_once_for_all_files_of_a_review(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    files = {f"net/part{n}.py": b"import torch\nfrom util import misc\n" for n in range(5)}
    files |= {"util/misc.py": b"from torch._six import inf\n", "main.py": b"import util.misc\n"}
    parsed: Counter[str] = Counter()
    statements = programs._statements

    def counted(data: bytes, *having: frozenset[bytes]) -> Iterator[ast.stmt]:
        parsed[data.decode()] += 1
        return statements(data, *having)

    monkeypatch.setattr(programs, "_statements", counted)
    shared = Parsed()
    for path in [path for path in files if path.startswith("net/")]:
        file = SourceFile.parse(path, files[path], repository=Repository(files, shared))
        assert file.facts.excludes("torch", "2.0")
    assert parsed["import util.misc\n"] == 1
    assert parsed["from torch._six import inf\n"] == 2  # for what it bounds, and for what it needs
