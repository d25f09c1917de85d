"""`/setup` as a person goes through it: in a real browser, on the pages of the fake GitHub."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from fake_github import FakeGitHub
from service.credentials import load
from service.settings import Settings
from tests.bot.conftest import Serve, sign
from tests.browser import needs_chromium
from tests.worker.processes import free_port

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytestmark = [pytest.mark.slow, needs_chromium]
TOKEN = "a setup token"
KEY = "a long random text that is the secret key"


def settings(github: FakeGitHub, **more: Any) -> dict[str, Any]:
    port = free_port()
    return {
        "port": port,
        "public_url": f"http://127.0.0.1:{port}",
        "github_url": github.url,
        "setup_token": TOKEN,
        "webhook_secret": None,
        **more,
    }


def test_from_the_page_to_the_installation(serve: Serve, page: Page) -> None:
    with FakeGitHub() as github:
        values = settings(github, secret_key=KEY)
        with serve(**values) as served:
            page.goto(f"{values['public_url']}/setup?token={TOKEN}")
            page.get_by_role("button", name="Create the GitHub App").click()
            page.get_by_label("GitHub App name").fill("Our ptopt")
            page.get_by_role("button", name="Create GitHub App for octocat").click()
            page.get_by_role("heading", name="GitHub App created").wait_for()
            assert "PRIVATE KEY" not in page.content()
            stored = load(served.engine, Settings(secret_key=KEY))
            assert stored is not None
            assert (stored.slug, stored.app_id) == ("our-ptopt", github.app.id)
            page.get_by_role("link", name="Install the App").click()
            page.get_by_role("button", name="Install on octocat").click()
            page.get_by_role("heading", name="Our ptopt is installed").wait_for()
            signature = sign(b"{}", stored.webhook_secret)
            assert served.deliver("ping", {}, X_Hub_Signature_256=signature).status_code in (202, 503)
            page.goto(f"{values['public_url']}/dashboard")
            page.get_by_role("link", name="Sign in with GitHub").click()
            page.get_by_role("button", name="Authorize Our ptopt as octocat").click()
            page.get_by_role("heading", name="Reviews").wait_for()
        assert [each.account.login for each in github.installations.values()] == ["octocat"]


def test_for_an_organisation_without_a_secret_key(serve: Serve, page: Page) -> None:
    with FakeGitHub() as github:
        values = settings(github)
        with serve(**values):
            page.goto(f"{values['public_url']}/setup?token={TOKEN}")
            page.get_by_label("Name of the organisation").fill("no such / name")
            page.get_by_role("button", name="Use this organisation").click()
            assert "letters, digits and hyphens only" in page.get_by_role("alert").all_inner_texts()[-1]
            page.get_by_label("Name of the organisation").fill("acme-corp")
            page.get_by_role("button", name="Use this organisation").click()
            page.get_by_role("button", name="Create the GitHub App").click()
            page.get_by_role("button", name="Create GitHub App for acme-corp").click()
            page.get_by_role("heading", name="GitHub App created").wait_for()
            shown = page.get_by_label("Settings").input_value()
            assert f"PTOPT_APP_ID={github.app.id}\n" in shown
            assert (
                page.get_by_label("PTOPT_PRIVATE_KEY").input_value().strip() == github.app.private_key.strip()
            )
