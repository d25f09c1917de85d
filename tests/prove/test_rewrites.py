"""The bars: most rewrites that are right are proved, and none that is wrong."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import pytest

from ptopt.findings import Proof
from ptopt.prove.extract import compared
from ptopt.prove.reasons import Reason, RefusedError
from ptopt.prove.session import Session
from tests.prove.rewrites import GOOD, WRONG, Rewrite

pytestmark = pytest.mark.model


@pytest.fixture(scope="module")
def session() -> Iterator[Session]:
    with Session(pairs=8, processes=2) as session:
        yield session


def _judged(session: Session, rewrite: Rewrite) -> Proof | RefusedError:
    try:
        return session.judge(compared(rewrite.source(rewrite.before), rewrite.source(rewrite.after)))
    except RefusedError as error:
        return error


def test_the_sets_are_whole() -> None:
    assert len(GOOD) == len({(r.parameters, r.before) for r in GOOD}) == 60
    assert len(WRONG) == len({(r.parameters, r.before, r.after) for r in WRONG}) == 60
    assert min(Counter(r.kind for r in WRONG).values()) >= 6 and len({r.kind for r in WRONG}) == 8


@pytest.mark.slow
def test_four_of_five_right_rewrites_are_proved(session: Session) -> None:
    answers = [_judged(session, rewrite) for rewrite in GOOD]
    proofs = [answer for answer in answers if isinstance(answer, Proof)]
    refused = [f"{r.after}: {a}" for r, a in zip(GOOD, answers, strict=True) if not isinstance(a, Proof)]
    assert len(proofs) >= 48, "\n".join(refused)
    assert all(proof.inputs >= 8 and 1.02 <= proof.low <= proof.high for proof in proofs)


def test_no_wrong_rewrite_is_proved(session: Session) -> None:
    answers = [_judged(session, rewrite) for rewrite in WRONG]
    missed = [
        f"{rewrite.kind}: {rewrite.after}: {answer}"
        for rewrite, answer in zip(WRONG, answers, strict=True)
        if not isinstance(answer, RefusedError) or answer.reason is not Reason.DIFFERENT
    ]
    assert not missed, "\n".join(missed)


def test_long_lists_of_numbers_are_compared_and_timed(session: Session) -> None:
    before = "return [v.item() for v in x]"
    right = Rewrite('x: Float[Tensor, "n"]', before, "return x.tolist()")
    twice = Rewrite('x: Float[Tensor, "n"]', "y = x.tolist()\nreturn x.tolist()", "return x.tolist()")
    assert isinstance(_judged(session, right), Proof) and isinstance(_judged(session, twice), Proof)
    for after in (
        "return x.tolist()[::-1]",
        "return [v + 1e-3 for v in x.tolist()]",
        "return x.int().tolist()",
    ):
        found = _judged(session, Rewrite('x: Float[Tensor, "n"]', before, after))
        assert isinstance(found, RefusedError) and found.reason is Reason.DIFFERENT, after


def test_values_whose_exponentials_underflow_are_tried(session: Session) -> None:
    logarithm = Rewrite(
        'x: Float[Tensor, "n d"]',
        "return torch.log(torch.softmax(x, dim=-1))",
        "return F.log_softmax(x, dim=-1)",
    )
    found = _judged(session, logarithm)
    assert isinstance(found, RefusedError) and found.reason is Reason.DIFFERENT and "apart" in str(found)
