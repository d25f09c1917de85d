"""A review with a model, where the command line names one."""

from __future__ import annotations

import contextlib
import functools
import gc
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import click

from ptopt.cli.options import ModelChoice

if TYPE_CHECKING:
    from ptopt.audit.run import SecondReader
    from ptopt.change import ChangedFile
    from ptopt.config import Config
    from ptopt.findings import NotReviewed, Review
    from ptopt.model.advisor import Advisor
    from ptopt.project.around import Neighbours
    from ptopt.project.facts import ProjectFacts

_ANSWER_SECONDS = 300.0  # for one table: a large model reads 40,000 tokens and writes on each row


def review_with(
    model: ModelChoice, files: Iterable[ChangedFile | NotReviewed], *, config: Config, facts: ProjectFacts,
    limit_to_change: bool, around: Mapping[str, bytes] = MappingProxyType({}),
    neighbours: Neighbours | None = None, baseline: frozenset[str] = frozenset(),
) -> Review:  # fmt: skip
    """The review, reweighed by a model where one is named. A server that cannot be reached does not stop the review."""
    from ptopt.cli.workers import inspect_in_processes
    from ptopt.review import review_files

    review = functools.partial(
        review_files, files, config=config, facts=facts, limit_to_change=limit_to_change, around=around,
        neighbours=neighbours, baseline=baseline, inspect=None if limit_to_change else inspect_in_processes,
    )  # fmt: skip
    if model.name is None:
        return review()
    from ptopt.model.interface import ModelUnavailableError

    # A server that hangs while the adapter is loaded into it holds the review up, too.
    hurry = model.server is not None and model.seconds < 20
    try:
        advisor = _opened(model, {"timeout": model.seconds} if hurry else {})
    except ModelUnavailableError as error:
        if model.server is None:
            raise click.ClickException(str(error)) from None
        return _without(model.name, str(error), review())
    try:
        if advisor.calibration.silent:
            click.echo(
                "ptopt: warning: the model has no calibration that enables it; reviewing with the rules alone.",
                err=True,
            )
        return review(advisor=advisor)
    finally:
        advisor.close()


def audit_reader(model: ModelChoice, most: int) -> AbstractContextManager[SecondReader | None]:
    """Who checks an audit, where the command line names a model; `most`: scripts. A server that cannot be reached leaves a note."""
    if model.name is None:
        return contextlib.nullcontext()
    from ptopt.model.interface import ModelUnavailableError

    try:
        advisor = _opened(model, {"timeout": min(model.seconds, _ANSWER_SECONDS)})
    except ModelUnavailableError as error:
        raise click.ClickException(str(error)) from None
    return _reader(advisor, most)


@contextlib.contextmanager
def _reader(advisor: Advisor, most: int) -> Iterator[SecondReader]:
    from ptopt.model_audit import ModelReader

    try:
        yield ModelReader(advisor, most)
    finally:
        advisor.close()


def _opened(model: ModelChoice, settings: Mapping[str, Any]) -> Advisor:
    """Raises ModelUnavailableError, and what click shows where a package is missing."""
    gc.enable()  # cycles that hold tensors are too large to keep until the command ends
    try:
        from ptopt.model.backends.open import open_advisor

        return open_advisor(str(model.name), server=model.server, seconds=model.seconds, **settings)
    except ImportError as error:
        from ptopt.address import install

        extra = "model" if model.server is None else "model-client"
        raise click.ClickException(
            f"--model needs {error.name or 'a package that is not installed'}: {install(extra)}"
        ) from None


def _without(name: str, note: str, review: Review) -> Review:
    import dataclasses

    from ptopt.findings import ModelRecord
    from ptopt.model.prompt import PROMPT_VERSION
    from ptopt.model.schema import SCHEMA_VERSION

    return dataclasses.replace(review, model=ModelRecord(name, "", PROMPT_VERSION, SCHEMA_VERSION, note=note))
