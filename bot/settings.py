"""What an operator may set: `PTOPT_*` in the environment, or files named after the settings in a secrets folder.

`docs/settings.md` is generated from the descriptions here.
"""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, SecretStr
from pydantic_settings import BaseSettings, SettingsConfigDict


def _api_url(url: str) -> str:
    """The one place GitHub's address comes from; never a payload."""
    url = url.rstrip("/")
    if not url.startswith(("https://", "http://127.0.0.1:", "http://localhost:")):
        raise ValueError("GitHub is spoken to over https:// only")
    return url


class Settings(BaseSettings):
    """Settings of the web application, the workers and the beat."""

    model_config = SettingsConfigDict(
        env_prefix="PTOPT_",
        secrets_dir=[d for d in (os.environ.get("PTOPT_SECRETS_DIR", "/run/secrets"),) if Path(d).is_dir()],
        extra="ignore",
        frozen=True,
    )

    github_url: Annotated[str, AfterValidator(_api_url)] = Field(
        default="https://api.github.com",
        description="The REST API. GitHub Enterprise Server: `https://HOST/api/v3`.",
    )
    app_id: int | None = Field(
        default=None, ge=1, description="The App's id. Left out, the App that `/setup` made is used."
    )
    private_key: SecretStr | None = Field(default=None, description="The App's private key, PEM.")
    webhook_secret: SecretStr | None = Field(default=None, description="The App's webhook secret.")
    webhook_secret_previous: SecretStr | None = Field(
        default=None,
        description="The secret before it was rotated; deliveries signed with it are accepted too.",
    )
    secret_key: SecretStr | None = Field(
        default=None,
        description="Encrypts what `/setup` stores and keys the hashes of people. Any long random text.",
    )
    public_url: str = Field(
        default="http://localhost:8000",
        description="Where GitHub reaches this service; `/setup` tells it GitHub.",
    )
    setup_token: SecretStr | None = Field(
        default=None, description="Opens `/setup` (`/setup?token=…`). Left out, `/setup` is closed."
    )
    database_url: str = Field(
        default="sqlite:///ptopt.db",
        description="SQLAlchemy URL: `sqlite:///FILE`, or `postgresql+psycopg://USER:PASSWORD@HOST/NAME`.",
    )
    broker_url: str = Field(
        default="redis://localhost:6379/0", description="Celery's broker. The embedded service needs none."
    )
    debounce: float = Field(
        default=10.0,
        ge=0,
        description="Seconds to wait after a push for the next one before a review starts.",
    )
    lease: float = Field(
        default=60.0,
        gt=1,
        description="Seconds after which the job of a worker that went silent is run again.",
    )
    max_attempts: int = Field(default=3, ge=1, description="Crashes after which a job is dead.")
    sweep_every: float = Field(
        default=15.0, gt=0, description="Seconds between two looks for unfinished jobs."
    )
    redeliver_every: float = Field(
        default=600.0,
        gt=0,
        description="Seconds between two looks for deliveries that GitHub could not make.",
    )
    poll_every: float = Field(
        default=3600.0,
        gt=0,
        description="Seconds between two looks at the reactions to one pull request's comments.",
    )
    keep_days: int = Field(default=30, ge=4, description="Days that deliveries and finished jobs are kept.")
    commands_per_hour: int = Field(
        default=20, ge=1, description="Slash commands that one person may give in an hour."
    )
    seconds_between_writes: float = Field(
        default=1.0, ge=0, description="Pause between two writes to GitHub, which asks for one second."
    )
    log_level: Literal["DEBUG", "INFO", "WARNING", "ERROR"] = Field(
        default="INFO", description="What is logged."
    )
    log_format: Literal["json", "console"] = Field(default="json", description="How it is logged.")


@cache
def settings() -> Settings:
    """The settings of this process, read once."""
    return Settings()
