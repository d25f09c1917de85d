"""`/ptopt config`: what is configured, and where."""

from __future__ import annotations

from bot.commands.base import Answer, Call, Command, Who, nothing
from ptopt.github.base_config import settings_of
from ptopt.github.config_comment import listed
from ptopt.report.settings import as_toml
from ptopt.report.text import code_fence, code_span

_MOST = 6_000  # characters of the listing


def run(call: Call, _: None) -> Answer:
    config, problems = settings_of(call.github, call.pull)
    if problems:
        source = (
            f"The configuration of the base branch has errors:\n\n{listed(problems)}\n\nThe defaults apply."
        )
    elif not config.origin:
        source = "No configuration file; the defaults apply."
    elif "/" in config.origin:
        source = f"From {code_span(config.origin)}."
    else:
        source = f"From {code_span(config.origin)} of {code_span(call.pull.base_ref)}, the base branch."
    listing = as_toml(config).removesuffix("\n")
    if len(listing) > _MOST:
        listing = f"{listing[:_MOST].rpartition(chr(10))[0]}\n# and more"
    return Answer(f"{source}\n\n{code_fence(listing, 'toml')}")


COMMAND: Command[None] = Command(
    name="config",
    arguments="",
    summary="show the effective configuration and its source",
    details=(
        "The configuration of the base branch applies: `.ptopt.toml`, else the `[tool.ptopt]` table of `pyproject.toml`, else "
        "`.ptopt.toml` of the owner's `.github` repository. Comments cannot change it."
    ),
    who=Who.AUTHOR_OR_TRIAGE,
    examples=(("/ptopt config", "show every setting"),),
    parse=nothing,
    run=run,
)
