"""Rewrites that are right give the same results, and none that is wrong does.

Whether a right one is also faster is a measurement, which a busy machine spoils: `python -m benchmarks.prove` prints it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import pytest

from benchmarks.prove.__main__ import judged
from benchmarks.prove.rewrites import GOOD, WRONG, Rewrite
from ptopt.findings import Proof
from ptopt.prove.reasons import Reason, RefusedError
from ptopt.prove.session import Session

pytestmark = pytest.mark.model


@pytest.fixture(scope="module")
def session() -> Iterator[Session]:
    with Session(pairs=8, processes=1) as session:
        yield session


def _is_same(answer: Proof | RefusedError) -> bool:
    return isinstance(answer, Proof) or answer.reason is Reason.NOT_FASTER


def test_the_sets_are_whole() -> None:
    assert len(GOOD) == len({(r.parameters, r.before) for r in GOOD}) == 60
    assert len(WRONG) == len({(r.parameters, r.before, r.after) for r in WRONG}) == 60
    assert min(Counter(r.kind for r in WRONG).values()) >= 6 and len({r.kind for r in WRONG}) == 8


@pytest.mark.slow
def test_right_rewrites_give_the_same_results(session: Session) -> None:
    answers = [judged(session, rewrite) for rewrite in GOOD]
    refused = [f"{r.after}: {a}" for r, a in zip(GOOD, answers, strict=True) if not _is_same(a)]
    # One gives a result that is not contiguous any more; comparing may take too long where the machine is very busy.
    assert len(refused) <= 3, "\n".join(refused)
    assert all(proof.inputs >= 8 for proof in answers if isinstance(proof, Proof))


def test_no_wrong_rewrite_is_proved(session: Session) -> None:
    answers = [judged(session, rewrite) for rewrite in WRONG]
    missed = [
        f"{rewrite.kind}: {rewrite.after}: {answer}"
        for rewrite, answer in zip(WRONG, answers, strict=True)
        if not isinstance(answer, RefusedError) or answer.reason is not Reason.DIFFERENT
    ]
    assert not missed, "\n".join(missed)


def test_long_lists_of_numbers_are_compared(session: Session) -> None:
    before = "return [v.item() for v in x]"
    right = Rewrite('x: Float[Tensor, "n"]', before, "return x.tolist()")
    twice = Rewrite('x: Float[Tensor, "n"]', "y = x.tolist()\nreturn x.tolist()", "return x.tolist()")
    assert _is_same(judged(session, right)) and _is_same(judged(session, twice))
    for after in (
        "return x.tolist()[::-1]",
        "return [v + 1e-3 for v in x.tolist()]",
        "return x.int().tolist()",
    ):
        found = judged(session, Rewrite('x: Float[Tensor, "n"]', before, after))
        assert isinstance(found, RefusedError) and found.reason is Reason.DIFFERENT, after


def test_values_whose_exponentials_underflow_are_tried(session: Session) -> None:
    logarithm = Rewrite(
        'x: Float[Tensor, "n d"]',
        "return torch.log(torch.softmax(x, dim=-1))",
        "return F.log_softmax(x, dim=-1)",
    )
    found = judged(session, logarithm)
    assert isinstance(found, RefusedError) and found.reason is Reason.DIFFERENT and "apart" in str(found)
