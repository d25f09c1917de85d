"""Small repositories, audited."""

from __future__ import annotations

import textwrap
from collections.abc import Callable

import pytest

from ptopt.audit.run import audit_of
from ptopt.audit.values import Audit
from ptopt.change import whole_file
from ptopt.config import Config
from ptopt.project.facts import read_facts

Auditor = Callable[[dict[str, str]], Audit]


@pytest.fixture
def audited() -> Auditor:
    """The audit of files by path."""

    def run(files: dict[str, str]) -> Audit:
        data = {path: textwrap.dedent(text).encode() for path, text in files.items()}
        reviewable = [whole_file(path, text) for path, text in data.items() if path.endswith(".py")]
        return audit_of("repository", data, reviewable, Config(), read_facts(data))

    return run
