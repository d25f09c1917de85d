"""The manifest of the App: what it asks of GitHub, and where that is handed in."""

from __future__ import annotations

import json
from urllib.parse import quote, urlsplit

from ptopt.github.endpoint import Endpoint

# `issues` only because GitHub takes no manifest that subscribes to issue_comment without it.
PERMISSIONS = {
    "checks": "write",
    "contents": "write",
    "issues": "read",
    "metadata": "read",
    "pull_requests": "write",
    "security_events": "write",
}
# Those about the installation itself, and ping, come without a subscription.
EVENTS = ("issue_comment", "pull_request", "pull_request_review_comment", "pull_request_review_thread")


def manifest(public_url: str) -> str:
    """The manifest of an App whose deliveries go to the service at `public_url`; JSON."""
    host = urlsplit(public_url).hostname or "ptopt"
    return json.dumps(
        {
            "name": f"ptopt {host}"[:34],  # no more is allowed; whoever makes the App may change it
            "description": "Reviews pull requests for PyTorch performance.",
            "url": public_url,
            "hook_attributes": {"url": f"{public_url}/webhooks/github", "active": True},
            "redirect_url": f"{public_url}/setup/callback",
            "callback_urls": [f"{public_url}/dashboard/callback"],  # of a sign-in
            "public": False,
            "default_permissions": PERMISSIONS,
            "default_events": EVENTS,
        }
    )


def new_app_url(api_url: str, state: str, organization: str = "") -> str:
    """Where the manifest is posted to: the settings of whoever is signed in, or of an organisation."""
    owner = f"/organizations/{quote(organization, safe='')}" if organization else ""
    return f"{Endpoint.of(api_url).web}{owner}/settings/apps/new?state={quote(state, safe='')}"
