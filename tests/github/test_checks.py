from __future__ import annotations

import dataclasses

from ptopt.findings import NotReviewed, Severity, Span
from ptopt.github.checks import check_run
from tests.github.reviews import HOSTILE, SOURCE, finding, reviewed
from tests.github.test_comment import assert_inert

HEAD = "a" * 40
ITEM = finding(SOURCE, "total += loss.item()", "total += loss.detach()")


def test_findings_are_annotations() -> None:
    run = check_run(HEAD, reviewed(ITEM, dataclasses.replace(ITEM, severity=Severity.LOW, span=Span(1, 2))))
    assert (run.head_sha, run.conclusion, run.title) == (HEAD, "neutral", "2 performance findings in 1 file")
    first, second = run.annotations
    assert (first.path, first.start_line, first.end_line, first.level) == ("train.py", 10, 10, "warning")
    assert first.title == "PTO101 item-every-step"
    assert first.message.startswith("`loss.item()` makes Python wait for the GPU.\nWrong if: ")
    assert (second.start_line, second.end_line, second.level) == (1, 2, "notice")


def test_silence_is_success() -> None:
    assert check_run(HEAD, reviewed()).conclusion == "success"
    assert check_run(HEAD, reviewed(files_reviewed=0)).conclusion == "success"
    assert check_run(HEAD, reviewed(over_limit=(ITEM,))).conclusion == "neutral"


def test_looking_at_nothing_is_no_success() -> None:
    blind = reviewed(files_reviewed=0, not_reviewed=(NotReviewed("train.py", "does not parse"),))
    assert check_run(HEAD, blind).conclusion == "neutral"


def test_the_same_review_has_the_same_id() -> None:
    run = check_run(HEAD, reviewed(ITEM))
    assert run == check_run(HEAD, reviewed(ITEM))
    assert run.external_id != check_run(HEAD, reviewed()).external_id
    assert run.external_id != check_run("b" * 40, reviewed(ITEM)).external_id


def test_hostile_texts() -> None:
    item = dataclasses.replace(ITEM, name=HOSTILE * 100, message=HOSTILE * 1000, path=HOSTILE)
    run = check_run(HEAD, reviewed(item, not_reviewed=(NotReviewed(HOSTILE, HOSTILE),)))
    assert_inert(run.summary)
    (annotation,) = run.annotations
    assert len(annotation.title) <= 255
    assert len(annotation.message.encode()) < 64_000
    assert annotation.title.isprintable()
