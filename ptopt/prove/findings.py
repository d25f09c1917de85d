"""The findings of a review with what came of running their fixes."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from types import MappingProxyType

from ptopt.findings import Finding, Proof, Review
from ptopt.prove.extract import pair_of
from ptopt.prove.given import Given
from ptopt.prove.reasons import Reason, RefusedError
from ptopt.prove.session import Session


def proved(review: Review, session: Session, given: Given = MappingProxyType({})) -> Review:
    """The review whose findings say whether their fixes are proved, and why not."""
    sources: Mapping[str, str] = review.sources or {}
    findings = tuple(
        dataclasses.replace(finding, proof=proof_of(finding, sources.get(finding.path), session, given))
        for finding in review.findings
    )
    return dataclasses.replace(review, findings=findings)


def proof_of(finding: Finding, text: str | None, session: Session, given: Given) -> Proof:
    """What came of running the fix of a finding in the file `text`; None where that is not at hand."""
    try:
        if finding.fix is not None and text is None:
            raise RefusedError(Reason.NOT_ONE_FUNCTION, "the code is not at hand")
        return session.judge(pair_of(finding, text or "", given))
    except RefusedError as error:
        return Proof(refused=error.reason.value, why=str(error))
