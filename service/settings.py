"""What an operator may set: `PTOPT_*` in the environment, or files named after the settings in a secrets folder.

`docs/settings.md` is generated from the descriptions here.
"""

from __future__ import annotations

import ipaddress
import os
import re
from pathlib import Path
from typing import Annotated, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field, SecretStr, model_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from ptopt.github.endpoint import Endpoint
from ptopt.ranker.model import from_file


def _api_url(url: str) -> str:
    """The one place GitHub's address comes from; never a payload."""
    Endpoint.of(url)
    return url.rstrip("/")


def _public_url(url: str) -> str:
    if not re.fullmatch(r"https?://[A-Za-z0-9.:\[\]-]+(?:/[\w./-]*)?", url):
        raise ValueError("expected a URL such as https://ptopt.example.org, without a query")
    return url.rstrip("/")


def is_local(url: str) -> bool:
    """Whether the host of a URL is this machine."""
    host = urlsplit(url).hostname or ""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:  # a name
        return host == "localhost" or host.endswith(".localhost")


def _networks(text: str) -> str:
    for network in filter(None, map(str.strip, text.split(","))):
        ipaddress.ip_network(network)  # raises ValueError
    return text


def _server_url(url: str | None) -> str | None:
    return url if url is None else _public_url(url)


def _some(secret: SecretStr | None) -> SecretStr | None:
    """An empty file or variable is no secret: everybody could sign with that."""
    return secret if secret and secret.get_secret_value().strip() else None


def _pem(secret: SecretStr | None) -> SecretStr | None:
    if _some(secret) is None or secret is None:
        return None
    # Many ways of setting a variable cannot hold a line break.
    text = secret.get_secret_value().replace("\\n", "\n")
    if not text.lstrip().startswith("-----BEGIN "):
        raise ValueError("not a private key: it must begin with -----BEGIN RSA PRIVATE KEY-----")
    return SecretStr(text)


def _weights(path: Path | None) -> Path | None:
    """The ranker reads the variable itself, in children too; a file that it cannot use is an error at the start."""
    if path is not None:
        from_file(path)
    return path


Secret = Annotated[SecretStr | None, AfterValidator(_some)]


class Settings(BaseSettings):
    """Settings of the web application, the workers and the scheduler."""

    model_config = SettingsConfigDict(
        env_prefix="PTOPT_",
        secrets_dir=[d for d in (os.environ.get("PTOPT_SECRETS_DIR", "/run/secrets"),) if Path(d).is_dir()],
        env_ignore_empty=True,
        extra="ignore",
        frozen=True,
        hide_input_in_errors=True,
    )

    github_url: Annotated[str, AfterValidator(_api_url)] = Field(
        default="https://api.github.com",
        description="The REST API. GitHub Enterprise Server: `https://HOST/api/v3`.",
    )
    app_id: int | None = Field(
        default=None, ge=1, description="The App's id. Unset: the App that `/setup` created."
    )
    private_key: Annotated[SecretStr | None, AfterValidator(_pem)] = Field(
        default=None, description="The App's private key, PEM."
    )
    webhook_secret: Secret = Field(default=None, description="The App's webhook secret.")
    webhook_secret_previous: Secret = Field(
        default=None,
        description="The previous secret during a rotation; deliveries signed with it are accepted too.",
    )
    client_id: str | None = Field(
        default=None,
        description="The App's client id, with which people sign in to the dashboard. Unset: that of the App that `/setup` created.",
    )
    client_secret: Secret = Field(default=None, description="A client secret of the App.")
    secret_key: Secret = Field(
        default=None,
        description="Encrypts what `/setup` stores and the sessions of the dashboard, and keys the hashes of people. "
        "Any long random string.",
    )
    public_url: Annotated[str, AfterValidator(_public_url)] = Field(
        default="http://localhost:8000",
        description="The public URL of this service, https; `/setup` registers it with GitHub.",
    )
    proxies: Annotated[str, AfterValidator(_networks)] = Field(
        default="127.0.0.1,::1",
        description="Addresses or networks of the reverse proxies, comma-separated. Any other address may hold "
        "64 connections and send 2 bodies above 128 KiB at a time; a proxy limits its clients itself.",
    )
    setup_token: Secret = Field(
        default=None, description="Enables `/setup` (`/setup?token=…`). Unset: `/setup` is disabled."
    )
    dashboard: bool = Field(
        default=True, description="Serves `/dashboard`. People sign in with GitHub; see dashboard.md."
    )
    database_url: str = Field(
        default="sqlite:///ptopt.db",
        description="SQLAlchemy URL: `sqlite:///FILE`, or `postgresql+psycopg://USER:PASSWORD@HOST/NAME`.",
    )
    broker_url: str = Field(
        default="redis://localhost:6379/0", description="The Celery broker. Not used by the embedded service."
    )
    debounce: float = Field(
        default=10.0,
        ge=0,
        description="Seconds without a further push before a review starts.",
    )
    reviews_at_once: int = Field(
        default=16,
        ge=1,
        description="Pull requests that the embedded service reviews concurrently; jobs that a worker runs concurrently.",
    )
    jobs_per_installation: int = Field(
        default=7,
        ge=1,
        description="Jobs of one kind that one installation may have running or dispatched. "
        "Less than all workers do at the same time, so that it never holds all of them.",
    )
    lease: float = Field(
        default=60.0,
        gt=1,
        description="Seconds after which the job of an unresponsive worker is run again.",
    )
    max_attempts: int = Field(default=3, ge=1, description="Consecutive failures after which a job is dead.")
    review_seconds: float = Field(
        default=60.0,
        gt=0,
        description="Time limit, in seconds, for the analysis of one pull request's files; they are skipped after it.",
    )
    review_memory: int = Field(
        default=2_000, ge=500, description="Memory limit of the analysis, in megabytes of address space."
    )
    sweep_every: float = Field(
        default=15.0, gt=0, description="Interval of the sweep for unfinished jobs, in seconds."
    )
    redeliver_every: float = Field(
        default=600.0,
        gt=0,
        description="Interval of the check for failed deliveries, in seconds.",
    )
    poll_every: float = Field(
        default=3600.0,
        gt=0,
        description="Shortest interval at which one pull request is polled for reactions and hidden comments, in seconds; "
        "it grows to a day while nothing happens.",
    )
    keep_days: int = Field(
        default=30, ge=4, description="Retention of deliveries and finished jobs, in days."
    )
    max_files: int = Field(
        default=1_000,
        ge=1,
        description="Pull requests that change more files are not reviewed, even if `max-files` of a repository is higher.",
    )
    max_lines: int = Field(
        default=50_000,
        ge=1,
        description="Pull requests that change more lines are not reviewed, even if `max-lines` of a repository is higher.",
    )
    stranger_max_files: int = Field(
        default=100,
        ge=1,
        description="The same limit for pull requests of people without write access.",
    )
    stranger_max_lines: int = Field(
        default=10_000,
        ge=1,
        description="The same limit for pull requests of people without write access.",
    )
    commands_per_hour: int = Field(default=20, ge=1, description="Slash commands per person and hour.")
    stranger_commands_per_pull: int = Field(
        default=10,
        ge=1,
        description="Slash commands per hour and pull request of one person without write access.",
    )
    seconds_between_writes: float = Field(
        default=1.0,
        ge=0,
        description="Pause between two writes to GitHub, in seconds; GitHub recommends one.",
    )
    model: str = Field(
        default="",
        description="The model for reviews: the folder of a model or an adapter, `package:NAME`, a name on the model hub, "
        "or the file of a general model that the server runs. Unset, and without a registry: rules only.",
    )
    model_registry: Path | None = Field(
        default=None,
        description="The folder of `python -m training registry`. Its champion is used instead of `PTOPT_MODEL`; "
        "a promotion needs no restart.",
    )
    model_challenger_share: float = Field(
        default=0.1,
        ge=0,
        le=1,
        description="Share of the repositories that use the registry's challenger, if there is one.",
    )
    model_server: Annotated[str | None, AfterValidator(_server_url)] = Field(
        default=None,
        description="The OpenAI-compatible server that runs the model, such as `http://vllm:8000/v1`. "
        "Unset: the worker runs it.",
    )
    model_engine: Literal["transformers", "vllm"] = Field(
        default="transformers", description="What runs a model in the worker. `vllm` needs a GPU."
    )
    model_api_key: Secret = Field(default=None, description="The API key of that server, if it needs one.")
    model_seconds: float = Field(
        default=30.0,
        gt=0,
        description="Time limit of the model in one review, in seconds, loading included.",
    )
    model_threads: int | None = Field(
        default=None,
        ge=1,
        description="CPU threads of a model that the worker runs. Unset: torch's default.",
    )
    ranker_weights: Annotated[Path | None, AfterValidator(_weights)] = Field(
        default=None,
        description="Weights from `python -m training ranker`, in place of the built-in ones. "
        "Read from the environment only. A version that a retraining made takes precedence.",
    )
    ranker_canary_share: float = Field(
        default=0.1,
        ge=0,
        le=1,
        description="Share of the repositories that try a new version of the ranker before all others get it.",
    )
    retrain_labels: int = Field(
        default=200,
        ge=1,
        description="Comments of repositories with `learn = true` that people answered since the last retraining, after "
        "which the ranker is trained again.",
    )
    retrain_days: int = Field(
        default=30,
        ge=1,
        description="Days after the last retraining when it is trained again, if there was any answer since.",
    )
    retrain_folder: Path = Field(
        default=Path("retraining"),
        description="Folder of the retrainings: datasets and cards. Shared by the workers of the queue `training`.",
    )
    retrain_private: str = Field(
        default="",
        description="Private repositories whose feedback may be learned from, as `OWNER/NAME`, comma-separated. They must "
        "set `learn = true`, too.",
    )
    retrain_adapter: str = Field(
        default="",
        description="Recipe of `training sft`, such as `configs/smollm2-cpu.yaml`: retrainings train the adapter again, "
        "too. Needs `PTOPT_MODEL_REGISTRY` and `PTOPT_RETRAIN_CLONES`. Unset: the ranker alone.",
    )
    retrain_clones: Path | None = Field(
        default=None,
        description="Folder of git clones, as `OWNER/NAME` or `OWNER+NAME`, that the adapter's code is read from.",
    )
    heartbeat_file: Path | None = Field(
        default=None,
        description="A file that a worker or the scheduler touches while it works; for liveness probes. Unset: none.",
    )
    log_level: Literal["DEBUG", "INFO", "WARNING", "ERROR"] = Field(default="INFO", description="Log level.")
    log_format: Literal["json", "console"] = Field(default="json", description="Log format.")

    @model_validator(mode="after")
    def _complete(self) -> Settings:
        if (self.app_id is None) != (self.private_key is None):
            raise ValueError("set both PTOPT_APP_ID and PTOPT_PRIVATE_KEY, or neither")
        if (self.client_id is None) != (self.client_secret is None):
            raise ValueError("set both PTOPT_CLIENT_ID and PTOPT_CLIENT_SECRET, or neither")
        if self.model and self.model_registry is not None:
            raise ValueError("set either PTOPT_MODEL or PTOPT_MODEL_REGISTRY, not both")
        if self.retrain_adapter and (self.model_registry is None or self.retrain_clones is None):
            raise ValueError("PTOPT_RETRAIN_ADAPTER needs PTOPT_MODEL_REGISTRY and PTOPT_RETRAIN_CLONES")
        return self
