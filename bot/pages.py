"""The pages of `/setup`: plain HTML, no script, every value escaped. The templates are in `templates/`."""

from __future__ import annotations

import base64
import hashlib

from jinja2 import Environment, PackageLoader, StrictUndefined

from ptopt.github.app import NewApp
from service.settings import is_local

_TEMPLATES = Environment(
    loader=PackageLoader("bot"),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    keep_trailing_newline=True,
)
_STYLE = _TEMPLATES.get_template("style.css").render()
# The policy of the pages allows this one style.
STYLE_SHA256 = base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()


def start(
    *,
    action: str,
    manifest: str,
    token: str,
    organization: str,
    wrong: bool,
    public_url: str,
    stores: bool,
) -> str:
    """The button that posts the manifest to GitHub; `wrong` when the organisation is no possible name."""
    return _TEMPLATES.get_template("start.html").render(
        action=action,
        manifest=manifest,
        token=token,
        organization=organization,
        wrong=wrong,
        public_url=public_url,
        stores=stores,
        local=is_local(public_url),
        encrypted=public_url.startswith("https:"),
    )


def stored(slug: str, install: str) -> str:
    """The App is made, and its credentials are stored."""
    return _TEMPLATES.get_template("stored.html").render(slug=slug, install=install)


def closed() -> str:
    """What everybody sees who may not set up, for whatever reason."""
    return _TEMPLATES.get_template("closed.html").render()


def refused(detail: str) -> str:
    """Why the App was not set up."""
    return _TEMPLATES.get_template("refused.html").render(detail=detail)


def copy(app: NewApp, install: str) -> str:
    """The App is made, and its credentials are shown this once."""
    return _TEMPLATES.get_template("copy.html").render(
        app=app,
        install=install,
        rows=min(app.private_key.count("\n") + 1, 40),
    )
