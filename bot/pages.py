"""The pages of `/setup`: plain HTML, no script, every value escaped."""

from __future__ import annotations

import base64
import hashlib
from html import escape
from urllib.parse import urlsplit

_STYLE = """
:root { color-scheme: light dark; }
body { font: 1.1rem/1.6 system-ui, sans-serif; max-width: 42rem; margin: 2rem auto; padding: 0 1rem; }
h1 { line-height: 1.2; }
code { overflow-wrap: anywhere; }
button, input { font: inherit; padding: .4rem .8rem; margin: .2rem 0; }
input { max-width: 100%; box-sizing: border-box; }
textarea { font: .9rem/1.4 ui-monospace, monospace; width: 100%; box-sizing: border-box; }
label { display: block; margin-top: 1rem; }
[role=alert] { border-left: .3rem solid #c00; padding-left: .8rem; }
"""
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
    owner = f"the organisation {organization}" if organization and not wrong else "your personal account"
    error = (
        '<p role="alert" id="organization-error">An organisation\'s name has letters, digits and hyphens only.</p>'
        if wrong
        else ""
    )
    described = ' aria-invalid="true" aria-describedby="organization-error"' if wrong else ""
    after = (
        "Its credentials are stored in the database of this service, encrypted."
        if stores
        else "PTOPT_SECRET_KEY is not set: its credentials are shown once, for you to copy, and not stored."
    )
    alert = ' role="alert"' if (urlsplit(public_url).hostname or "") in ("localhost", "127.0.0.1") else ""
    return _page(
        "Set up ptopt",
        f"""
<p>This makes a GitHub App for this service under {escape(owner)}. GitHub asks you for its name, and makes nothing
before you confirm. {after}</p>
<p{alert}>GitHub will send its deliveries to <code>{escape(public_url)}/webhooks/github</code>. If it cannot reach that
address, set <code>PTOPT_PUBLIC_URL</code> and start the service again first.</p>
<form action="{escape(action)}" method="post">
<input type="hidden" name="manifest" value="{escape(manifest)}">
<button type="submit">Make the GitHub App</button>
</form>
<h2>For an organisation</h2>
{error}
<form action="" method="get">
<input type="hidden" name="token" value="{escape(token)}">
<label for="organization">Name of the organisation</label>
<input id="organization" name="organization" value="{escape(organization)}" maxlength="100"{described}>
<button type="submit">Use this organisation</button>
</form>
<h2>What it may do</h2>
<ul>
<li><strong>Pull requests, write:</strong> reviews and answers to slash commands.</li>
<li><strong>Contents, write:</strong> reads the changed files; <code>/ptopt fix</code> commits. Without that command,
read is enough: change it in the settings of the App.</li>
<li><strong>Checks and security events, write:</strong> check runs and code scanning, where a repository switches them
on.</li>
<li><strong>Issues, read:</strong> GitHub wants it for comments in the conversation of a pull request.</li>
<li><strong>Metadata, read:</strong> every App has it.</li>
</ul>""",
    )


def stored(slug: str, install: str) -> str:
    """The App is made, and its credentials are stored."""
    return _page(
        "The GitHub App is made",
        f"""
<p>The credentials of <strong>{escape(slug)}</strong> are stored, encrypted, and in force: nothing has to be started
again. This page is closed from now on.</p>
<ol>
<li><a href="{escape(install)}">Install the App</a> on the repositories that it is to review.</li>
<li>Open a pull request that changes PyTorch code, or write <code>/ptopt review</code> under one.</li>
</ol>""",
    )


def copy(app_id: int, private_key: str, webhook_secret: str, install: str) -> str:
    """The App is made, and its credentials are shown this once."""
    settings = f"PTOPT_APP_ID={app_id}\nPTOPT_WEBHOOK_SECRET={webhook_secret}\n"
    rows = private_key.count("\n") + 1
    return _page(
        "The GitHub App is made",
        f"""
<p role="alert">Copy these now: they are not stored, and not shown again.</p>
<label for="settings">Settings</label>
<textarea id="settings" rows="3" readonly>{escape(settings)}</textarea>
<label for="key">PTOPT_PRIVATE_KEY</label>
<textarea id="key" rows="{min(rows, 40)}" readonly>{escape(private_key)}</textarea>
<ol>
<li>Start the service again with these settings, and without PTOPT_SETUP_TOKEN.</li>
<li><a href="{escape(install)}">Install the App</a> on the repositories that it is to review.</li>
</ol>""",
    )


def _page(title: str, body: str) -> str:
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<style>{_STYLE}</style>
</head>
<body>
<main>
<h1>{title}</h1>{body}
</main>
</body>
</html>
"""
