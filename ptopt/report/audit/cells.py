"""The places of an audit that lie in notebooks, by cell and line: the lines of the file are those of its JSON."""

from __future__ import annotations

import dataclasses
from typing import Any, TypeVar, cast

from ptopt.audit.values import Audit, Place, Weighed
from ptopt.findings import Review
from ptopt.report.text import where, with_cells

_T = TypeVar("_T")


def in_cells(audit: Audit) -> Audit:
    """The audit with the cell of each place that lies in one."""
    if not audit.cells:
        return audit
    review = Review((), cells=audit.cells)
    audit = _renamed(audit, review)
    return dataclasses.replace(audit, findings=tuple(_named(each, review) for each in audit.findings))


def _named(weighed: Weighed, review: Review) -> Weighed:
    finding = weighed.finding
    message = with_cells(review, finding.path, finding.message)
    return dataclasses.replace(
        weighed,
        finding=dataclasses.replace(finding, message=message),
        at=where(review, finding.path, finding.span),
    )


def _renamed(value: _T, review: Review) -> _T:
    """The same value, with the cell in each place in it."""
    if isinstance(value, Place):
        cell = review.cells.get(value.path, {}).get(value.line)
        return dataclasses.replace(value, cell=cell)
    if isinstance(value, tuple):
        return cast("_T", tuple(_renamed(each, review) for each in value))
    if dataclasses.is_dataclass(value) and type(value).__module__ == Place.__module__:
        changes = {
            field.name: _renamed(old, review)
            for field in dataclasses.fields(value)
            if isinstance(old := getattr(value, field.name), tuple) or dataclasses.is_dataclass(old)
        }
        return cast("_T", dataclasses.replace(cast("Any", value), **changes))
    return value
