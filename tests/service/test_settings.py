from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from pydantic import ValidationError

from service import settings_table
from service.settings import Settings

ROOT = Path(__file__).parents[2]
PEM = "-----BEGIN RSA PRIVATE KEY-----\nAA==\n-----END RSA PRIVATE KEY-----\n"

LONG = "0123456789abcdef" * 4


def bot(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return python("bot", *arguments, **environment)


def python(module: str, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    clean = {name: value for name, value in os.environ.items() if not name.startswith("PTOPT_")}
    return subprocess.run(
        [sys.executable, "-m", module, *arguments],
        cwd=ROOT,
        env=clean | environment,
        capture_output=True,
        text=True,
        check=False,
    )


def test_the_page_is_current() -> None:
    page = (ROOT / "docs" / "settings.md").read_text(encoding="utf-8")
    assert page == settings_table.markdown(), "run `python -m service settings --docs > docs/settings.md`"


def test_every_setting_is_described() -> None:
    assert all(field.description for field in Settings.model_fields.values())


@pytest.mark.slow
def test_what_is_wrong_is_said_without_values() -> None:
    result = bot(
        PTOPT_DEBOUNCE="hunter2",
        PTOPT_APP_ID="0",
        PTOPT_PRIVATE_KEY="hunter2",
        PTOPT_GITHUB_URL="http://git.example.org/api/v3",
        PTOPT_PUBLIC_URL="ptopt.example.org",
        PTOPT_WEBHOK_SECRET="hunter2",
    )
    assert result.returncode == 1
    assert "hunter2" not in result.stderr + result.stdout
    for name in ("DEBOUNCE", "APP_ID", "PRIVATE_KEY", "GITHUB_URL", "PUBLIC_URL"):
        assert f"PTOPT_{name}: " in result.stderr
    assert "Did you mean PTOPT_WEBHOOK_SECRET?" in result.stderr
    assert "Traceback" not in result.stderr


@pytest.mark.slow
@pytest.mark.parametrize(
    ("environment", "says"),
    [
        ({"PTOPT_APP_ID": "3"}, "set both PTOPT_APP_ID and PTOPT_PRIVATE_KEY"),
        ({"PTOPT_APP_ID": "3", "PTOPT_PRIVATE_KEY": PEM}, "PTOPT_WEBHOOK_SECRET"),
        ({"PTOPT_DATABASE_URL": "mysql://root:hunter2@db/x"}, "PTOPT_DATABASE_URL"),
        ({"PTOPT_DATABASE_URL": "nonsense"}, "PTOPT_DATABASE_URL"),
    ],
)
def test_the_service_does_not_start_with(environment: dict[str, str], says: str) -> None:
    result = bot(**environment)
    assert result.returncode == 1
    assert says in result.stderr
    assert "hunter2" not in result.stderr
    assert "Traceback" not in result.stderr


@pytest.mark.slow
@pytest.mark.parametrize(
    "module",
    [("bot",), ("embedded",), ("worker.scheduler",), ("service", "jobs"), ("service", "check")],
)
def test_a_wrong_url_is_told_in_one_line(module: tuple[str, ...]) -> None:
    result = python(*module, PTOPT_DATABASE_URL="nonsense")
    assert result.returncode == 1
    assert "not a database URL" in result.stderr
    assert result.stderr.count("\n") == 1


@pytest.mark.slow
def test_a_worker_does_not_start_with_wrong_settings() -> None:
    result = python("celery", "-A", "worker", "worker", PTOPT_APP_ID="x")
    assert result.returncode == 1
    assert result.stderr.startswith("Error: PTOPT_APP_ID: ") and result.stderr.count("\n") == 1


@pytest.mark.slow
def test_the_service_does_not_start_without_the_schema(tmp_path: Path) -> None:
    result = bot(PTOPT_DATABASE_URL=f"sqlite:///{tmp_path}/new.db")
    assert result.returncode == 1
    assert "python -m service upgrade" in result.stderr
    assert not list(tmp_path.iterdir()), "a look at a database must not make one"


@pytest.mark.slow
def test_settings_that_are_complete() -> None:
    result = python(
        "service", "settings", PTOPT_SETUP_TOKEN=LONG, PTOPT_SECRET_KEY=LONG, PTOPT_PUBLIC_URL="https://a.org"
    )
    assert (result.returncode, result.stdout) == (0, "The settings are valid.\n")


def test_nothing_set_says_what_is_missing() -> None:
    result = python("service", "settings", PTOPT_DEBOUNCE="5")
    assert result.returncode == 1
    for name in (
        "PTOPT_SETUP_TOKEN",
        "PTOPT_SECRET_KEY",
        "PTOPT_PUBLIC_URL",
        "PTOPT_APP_ID",
        "PTOPT_WEBHOOK_SECRET",
    ):
        assert name in result.stderr


@pytest.mark.parametrize(
    ("given", "note"),
    [
        ({"secret_key": LONG}, "the App that /setup stored is used"),
        ({"setup_token": LONG, "secret_key": LONG}, "PTOPT_PUBLIC_URL is not set"),
        ({"setup_token": LONG, "public_url": "https://a.org"}, "PTOPT_SECRET_KEY is not set"),
        ({"app_id": "3", "private_key": PEM, "webhook_secret": LONG}, "PTOPT_CLIENT_ID is not set"),
    ],
)
def test_what_may_be_missing(given: dict[str, str], note: str) -> None:
    (found,) = settings_table.incomplete(Settings(**given))
    assert note in found


@pytest.mark.parametrize(
    ("url", "noted"),
    [
        ("http://ptopt.example.org", True),
        ("http://localhost.example.org", True),
        ("http://10.0.0.3:8000", True),
        ("https://ptopt.example.org", False),
        ("http://localhost:8000", False),
        ("http://127.0.0.1:8000", False),
        ("http://[::1]:8000", False),
    ],
)
@pytest.mark.parametrize(
    "app",
    [
        {"setup_token": LONG, "secret_key": LONG},
        {"app_id": "3", "private_key": PEM, "webhook_secret": LONG, "client_id": "a", "client_secret": LONG},
    ],
    ids=["from-setup", "by-hand"],
)
def test_an_address_that_is_not_https_is_named(app: dict[str, str], url: str, noted: bool) -> None:
    notes = list(settings_table.incomplete(Settings(**app, public_url=url)))
    assert [note.split(":")[0] for note in notes] == ["PTOPT_PUBLIC_URL is not https"] * noted


@pytest.mark.parametrize("name", ["webhook_secret", "secret_key", "setup_token"])
def test_a_secret_that_can_be_guessed_is_named(name: str) -> None:
    notes = [
        note for note in settings_table.incomplete(Settings(**{name: "abc"})) if "can be guessed" in note
    ]
    assert notes and notes[0].startswith(f"PTOPT_{name.upper()} ") and "abc" not in notes[0]


def test_an_empty_secret_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PTOPT_WEBHOOK_SECRET", "")
    monkeypatch.setenv("PTOPT_SETUP_TOKEN", " \n")
    assert Settings().webhook_secret is None
    assert Settings().setup_token is None
    assert Settings(webhook_secret_previous="").webhook_secret_previous is None


def test_secrets_from_files(tmp_path: Path) -> None:
    (tmp_path / "ptopt_webhook_secret").write_text("from a file\n")
    (tmp_path / "ptopt_private_key").write_text(PEM)
    (tmp_path / "ptopt_app_id").write_text("3\n")
    code = (
        "from service.settings import Settings; s = Settings(); "
        "print(s.app_id, s.webhook_secret.get_secret_value(), s.private_key.get_secret_value().count(chr(10)), s)"
    )
    environment = dict(os.environ, PTOPT_SECRETS_DIR=str(tmp_path))
    result = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, env=environment, capture_output=True, text=True, check=True
    )
    assert result.stdout.startswith("3 from a file 2 ")
    assert "AA==" not in result.stdout


def test_a_private_key_in_one_line() -> None:
    key = Settings(app_id=3, private_key=PEM.replace("\n", "\\n")).private_key
    assert key is not None
    assert key.get_secret_value() == PEM
    with pytest.raises(ValidationError) as error:
        Settings(app_id=3, private_key="hunter2")
    assert "hunter2" not in str(error.value)


def test_names_that_kubernetes_sets_are_no_mistakes() -> None:
    names = (
        "PTOPT_PORT",
        "PTOPT_SERVICE_HOST",
        "PTOPT_SERVICE_PORT_HTTP",
        "PTOPT_PORT_8000_TCP_ADDR",
        "PTOPT_WEB_PORT",
    )
    environment = dict.fromkeys(names, "x") | {"PTOPT_SECRETS_DIR": "x", "PATH": "x", "PTOPT_LOG_LEVL": "x"}
    assert list(settings_table.unknown(environment)) == [("PTOPT_LOG_LEVL", "PTOPT_LOG_LEVEL")]
