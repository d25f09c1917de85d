"""Where the project is published: the one place. `make docs` writes it into the README, `docs/` and `pyproject.toml`."""

from __future__ import annotations

REPOSITORY = "ptopt/ptopt"  # OWNER/NAME on GitHub
URL = f"https://github.com/{REPOSITORY}"
_PAGES = f"{URL}/blob/main/docs"


def rule_page(name: str) -> str:
    """The documentation page of one of ptopt's own rules."""
    return f"{_PAGES}/rules/{name}.md"
