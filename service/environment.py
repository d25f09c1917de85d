"""The settings as a process reads them when it starts: each that is wrong is named, and no value is shown."""

from __future__ import annotations

import click
from pydantic import ValidationError

from service import settings_table
from service.settings import Settings


def read_settings() -> Settings:
    """The settings; ends the process with a sentence about each that is wrong. Values are not shown."""
    for name, likely in settings_table.unknown():
        hint = f" Did you mean {likely}?" if likely else ""
        click.echo(f"There is no setting {name}, it is ignored.{hint}", err=True)
    try:
        return Settings()
    except ValidationError as error:
        lines = []
        for item in error.errors(include_url=False, include_input=False):
            name = f"PTOPT_{item['loc'][0]}: ".upper() if item["loc"] else ""
            lines.append(name + item["msg"].removeprefix("Value error, "))
        raise click.ClickException("\n".join(lines)) from None


def read_web_settings() -> Settings:
    """`read_settings` of a process that takes deliveries."""
    values = read_settings()
    if values.app_id is not None and values.webhook_secret is None:
        raise click.ClickException(
            "PTOPT_APP_ID is set without PTOPT_WEBHOOK_SECRET: deliveries could not be verified"
        )
    return values
