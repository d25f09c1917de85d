"""Small repositories, audited."""

from __future__ import annotations

import textwrap
from collections.abc import Callable

import pytest

from ptopt.audit.run import audit_of
from ptopt.audit.values import Audit
from ptopt.config import Config
from ptopt.project.facts import read_facts

Auditor = Callable[[dict[str, str]], Audit]


@pytest.fixture
def audited() -> Auditor:
    """The audit of files by path."""

    def run(files: dict[str, str]) -> Audit:
        data = {path: textwrap.dedent(text).encode() for path, text in files.items()}
        return audit_of("repository", data, Config(), read_facts(data))

    return run
