"""Where the project is published, and which commit the snippets pin: the one place.

`make docs` writes both into the README, `docs/` and `pyproject.toml`.
"""

from __future__ import annotations

REPOSITORY = "ptopt/ptopt"  # OWNER/NAME on GitHub
REVISION = "0" * 40  # a commit, because a tag can be moved; zeros as long as there is no release
URL = f"https://github.com/{REPOSITORY}"
_PAGES = f"{URL}/blob/main/docs"


def install(extra: str) -> str:
    """The command that installs ptopt with an extra. It is not on PyPI, where the name may be a stranger's."""
    return f"pip install 'ptopt[{extra}] @ git+{URL}'"


RANKING_PAGE = f"{_PAGES}/ranking.md"  # how comments are chosen


def rule_page(name: str) -> str:
    """The documentation page of one of ptopt's own rules."""
    return f"{_PAGES}/rules/{name}.md"


def absolute(page: str) -> str:
    """The text of a rule's page with whole addresses in place of its links to other pages."""
    return page.replace("](../", f"]({_PAGES}/")
