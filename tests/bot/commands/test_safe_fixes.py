from __future__ import annotations

import json

from bot.commands.safe_fixes import safe_fixes
from ptopt.change import ChangedFile, Hunk, Status, whole_file
from ptopt.config import Config
from ptopt.findings import Finding
from ptopt.project.facts import NO_FACTS
from ptopt.review import review_files

CODE = b"""\
import torch


def train(model, loader, optimizer, total):
    for batch in loader:
        a = torch.zeros(8).to(batch.device)
        loss = model(batch, a).mean()
        loss.backward()
        optimizer.step()
        total += loss.item()

        b = torch.ones(8).to(batch.device)
        a = torch.zeros(8).to(batch.device)
        c = torch.full((8,), 1.0).to(batch.device)
"""


def findings(head: bytes = CODE) -> list[Finding]:
    review = review_files(
        [whole_file("train.py", head)],
        config=Config(),
        facts=NO_FACTS,
        limit_to_change=False,
        one_per_cause=False,
    )
    return sorted(review.findings, key=Finding.sort_key)


def changed(*lines: int) -> ChangedFile:
    hunks = tuple(Hunk(line, 1) for line in lines)
    return ChangedFile("train.py", None, Status.MODIFIED, hunks, frozenset(lines), CODE)


def fixed_lines(file: ChangedFile, *wanted: Finding) -> dict[int, bytes]:
    after = safe_fixes(file, {f.fingerprint for f in wanted}, Config(), NO_FACTS).file.after
    pairs = zip(CODE.split(b"\n"), after.split(b"\n"), strict=True)
    return {number: new.strip() for number, (old, new) in enumerate(pairs, 1) if old != new}


def at(line: int) -> Finding:
    return next(f for f in findings() if f.span.start == line)


def test_the_code_has_what_the_tests_need() -> None:
    found = [(f.span.start, f.name, str(f.fix.safety) if f.fix else "") for f in findings()]
    assert found == [
        (6, "factory-then-move", "safe"),
        (10, "item-every-step", "unsafe"),
        (12, "factory-then-move", "safe"),
        (13, "factory-then-move", "safe"),
        (14, "factory-then-move", "safe"),
    ]


def test_only_the_wanted_finding_is_fixed() -> None:
    assert fixed_lines(changed(12), at(12)) == {12: b"b = torch.ones(8, device=batch.device)"}


def test_of_equal_lines_the_wanted_one_is_fixed() -> None:
    fixed = b"a = torch.zeros(8, device=batch.device)"
    assert fixed_lines(changed(13), at(13)) == {13: fixed}
    assert fixed_lines(changed(6), at(6)) == {6: fixed}
    assert fixed_lines(changed(6, 13), at(6), at(13)) == {6: fixed, 13: fixed}


def test_the_places_listed_in_the_comment_are_fixed_with_it() -> None:
    assert set(fixed_lines(changed(6, 12, 13), at(6))) == {6, 12, 13}, "14 was there before the pull request"


def test_what_is_left_has_a_reason() -> None:
    item, gone = at(10), "0" * 32
    result = safe_fixes(
        changed(*range(1, 15)), {item.fingerprint, gone, at(12).fingerprint}, Config(), NO_FACTS
    )
    assert result.left.keys() == {item.fingerprint, gone}
    assert result.left[gone] == "it is no longer found"
    assert result.left[item.fingerprint].startswith("its fix assumes that ")


def test_a_rule_that_is_switched_off_is_not_fixed() -> None:
    config = Config.model_validate({"ignore": ["factory-then-move"]})
    result = safe_fixes(changed(12), {at(12).fingerprint}, config, NO_FACTS)
    assert result.file.after == CODE
    assert result.left == {at(12).fingerprint: "it is no longer found"}


def test_crlf_stays() -> None:
    head = CODE.replace(b"\n", b"\r\n")
    wanted = next(f for f in findings(head) if f.span.start == 12)
    after = safe_fixes(whole_file("train.py", head), {wanted.fingerprint}, Config(), NO_FACTS).file.after
    assert after.count(b"\r\n") == after.count(b"\n") == head.count(b"\n")


def test_a_notebook_is_not_committed() -> None:
    cell = {"cell_type": "code", "metadata": {}, "source": CODE.decode().splitlines(keepends=True)}
    head = json.dumps({"cells": [cell], "metadata": {}, "nbformat": 4}, indent=1).encode()
    file = whole_file("train.ipynb", head)
    review = review_files([file], config=Config(), facts=NO_FACTS, limit_to_change=False)
    wanted = next(f for f in review.findings if f.name == "factory-then-move")
    result = safe_fixes(file, {wanted.fingerprint}, Config(), NO_FACTS)
    assert result.file.after == head
    assert result.left == {wanted.fingerprint: "it is in a notebook; run `ptopt fix` on the file"}
