"""`make demo-setup`: all of docs/install-app.md in a browser, on the pages of a fake GitHub, until Ctrl-C."""

from __future__ import annotations

import secrets
import shlex
import sys
from pathlib import Path

import click

from examples.service.running import TITLE, database, repository, service, workplace

_OWNER = "octocat"
# They may write, too: what one person thinks makes no rule quiet.
_OTHERS = ("ada", "grace", "barbara", "radia")
_BRANCH = "mixup"
_POLL = 2  # seconds between two looks for reactions, of which GitHub sends nothing


def rehearse(port: int, github_port: int) -> None:
    with workplace(github_port) as (folder, github):
        repo, changed = repository(github, folder, _OWNER, installed=False)
        for login in _OTHERS:
            repo.permission(login, "write")
        repo.commit(_BRANCH, changed, TITLE)
        github.person = _OWNER
        token = secrets.token_urlsafe(16)
        settings = {"PTOPT_SETUP_TOKEN": token, "PTOPT_POLL_EVERY": str(_POLL)}
        with service(github, folder, port, **settings) as running:
            url = running.url
            jobs = f"PTOPT_DATABASE_URL={shlex.quote(database(folder))} {_python()} -m service jobs"
            click.echo(
                f"""\
The service runs at {url}, a fake GitHub at {github.html}.
You are signed in to GitHub as {_OWNER}.

1. Create the App and install it:  {url}/setup?token={token}
2. Open a pull request:            {github.html}/{repo.full_name}
   The review is on its page after some seconds. Answer it: 👍, 👎, "Commit suggestion", /ptopt status.
   At its top you can act as somebody else: /ptopt feedback bad of four people makes a rule quiet.
3. See what the service did:       {url}/dashboard
   or in another terminal, here:   {jobs}

Ctrl-C stops both and removes what they stored."""
            )
            sys.stdout.flush()
            running.wait()


def _python() -> str:
    """This interpreter, as it is called from here."""
    running = Path(sys.executable)
    here = Path.cwd()
    return shlex.quote(str(running.relative_to(here) if running.is_relative_to(here) else running))
