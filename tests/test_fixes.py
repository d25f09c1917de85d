from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from ptopt.change import ChangedFile, whole_file
from ptopt.config import Config
from ptopt.findings import Edit, Finding, Fix, Review, Safety, Span
from ptopt.fixes import FileChangedError, FixedFile, fix_file, suppress_file, write_fixed
from ptopt.project.facts import NO_FACTS
from ptopt.review import review_files

OPS = "import torch\n\n\ndef f(x):\n    return torch.log(torch.softmax(x, dim=-1))  # größer\n"


def review(file: ChangedFile) -> Review:
    return review_files([file], config=Config(), facts=NO_FACTS, limit_to_change=False)


@pytest.mark.parametrize(
    ("encoding", "head"),
    [("utf-8", ""), ("latin-1", "# coding: latin-1\n"), ("utf-8-sig", "")],
)
@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_encoding_and_newlines_stay(encoding: str, head: str, newline: str) -> None:
    before = (head + OPS).replace("\n", newline)
    result = fix_file(whole_file("f.py", before.encode(encoding)), review, unsafe=False)
    after = before.replace("torch.log(torch.softmax(x, dim=-1))", "torch.log_softmax(x, dim=-1)")
    assert result.after == after.encode(encoding)
    assert [finding.rule for finding in result.fixed] == ["PTO407"]
    assert result.left == ()


def test_a_file_that_is_not_python_is_left_alone() -> None:
    result = fix_file(whole_file("f.py", b"\xff\xfe torch softmax log("), review, unsafe=True)
    assert (result.before, result.fixed) == (result.after, ())


def test_a_file_that_changed_meanwhile_is_not_overwritten(tmp_path: Path) -> None:
    place = tmp_path / "f.py"
    place.write_text("new\n")
    with pytest.raises(FileChangedError, match=r"f\.py: changed while it was under review"):
        write_fixed(place, FixedFile("f.py", b"old\n", b"fixed\n", (), ()))
    assert [p.name for p in tmp_path.iterdir()] == ["f.py"]
    assert place.read_text() == "new\n"


def test_a_failed_write_leaves_no_litter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = tmp_path / "f.py"
    place.write_text("old\n")

    def refuse(*_: object) -> None:
        raise PermissionError("no")

    monkeypatch.setattr("ptopt.fixes.os.replace", refuse)
    with pytest.raises(PermissionError):
        write_fixed(place, FixedFile("f.py", b"old\n", b"fixed\n", (), ()))
    assert [p.name for p in tmp_path.iterdir()] == ["f.py"]
    assert place.read_text() == "old\n"


def test_the_line_behind_deleted_ones_is_known_as_itself() -> None:
    """`shown` names lines of the file as it was; a fix that deletes whole lines moves the next one up."""
    (found, *_) = review(whole_file("f.py", OPS.encode())).findings

    def reported(data: bytes, rule: str, old: bytes, new: str) -> list[Finding]:
        at = data.find(old)
        if at < 0:
            return []
        line = data.count(b"\n", 0, at) + 1
        fix = Fix(Safety.SAFE, (Edit(at, at + len(old), new),))
        return [dataclasses.replace(found, rule=rule, span=Span(line, line), fix=fix)]

    def two(file: ChangedFile) -> Review:
        data = file.head or b""
        rest = reported(data, "PTO101", b"gone\ngone\n", "") + reported(data, "PTO102", b"old\n", "new\n")
        return Review(findings=tuple(rest))

    file = whole_file("f.py", b"top\ngone\ngone\nold\nend\n")
    shown = frozenset({("PTO101", 2), ("PTO102", 4)})
    result = fix_file(file, two, unsafe=False, most_rounds=1, shown=lambda _: shown)
    assert result.after == b"top\nnew\nend\n"


def test_suppressions_in_configurations() -> None:
    text = b"per_device_train_batch_size: 8\r\ndataloader_num_workers: 0\r\n"
    result = suppress_file(whole_file("train.yaml", text), review, "tiny")
    assert result.after.split(b"\r\n")[1:3] == [
        b"# ptopt: ignore[loader-workers-off] tiny",
        b"dataloader_num_workers: 0",
    ]
    assert [finding.name for finding in result.fixed] == ["loader-workers-off"] and not result.left
    settings = whole_file("ds_config.json", b'{"zero_optimization": {"stage": 2, "overlap_comm": false}}')
    assert suppress_file(settings, review, "").after == settings.head  # JSON has no comments
