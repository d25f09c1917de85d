"""What is made of values.yaml is current, and each of its settings is one of the service."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr

from helm.generate import CHART, Value, files, read, settings
from service import settings_table
from service.settings import Settings
from tests.helm.rendering import Object, containers, of_kind, pod_templates


@pytest.mark.parametrize("name", files())
def test_generated_files_are_current(name: str) -> None:
    assert (CHART / name).read_text(encoding="utf-8") == files()[name], "run `make docs`"


def test_every_value_is_described() -> None:
    def missing(values: tuple[Value, ...]) -> list[str]:
        found = []
        for value in values:
            if not value.text and (value.inline or not value.values):
                found.append(".".join(value.path))
            if (
                not value.inline
                and value.schema != "settings"
                and value.name not in ("resources", "annotations", "nccl", "labels")
            ):
                found += missing(value.values)
        return found

    assert missing(read((CHART / "values.yaml").read_text(encoding="utf-8"))) == []


def test_each_setting_of_the_service_is_a_value_and_the_other_way_round() -> None:
    plain, secret = dict(settings(secret=False)), dict(settings(secret=True))
    assert plain.keys() | secret.keys() == Settings.model_fields.keys()
    assert not plain.keys() & secret.keys()
    hidden = {name for name, field in Settings.model_fields.items() if SecretStr in _parts(field.annotation)}
    assert secret.keys() == hidden | {"database_url", "broker_url"}
    assert all(about.get("type") or about.get("enum") for about in (*plain.values(), *secret.values()))


def _parts(annotation: Any) -> tuple[Any, ...]:
    return (annotation, *getattr(annotation, "__args__", ()))


def test_the_service_takes_what_the_chart_sets(
    values: Path | None, objects: list[Object], monkeypatch: pytest.MonkeyPatch
) -> None:
    """ConfigMap and variables of each container, read as the service reads them."""
    monkeypatch.setenv(
        "PTOPT_PRIVATE_KEY", "-----BEGIN RSA PRIVATE KEY-----\nAA==\n-----END RSA PRIVATE KEY-----\n"
    )
    maps = of_kind(objects, "ConfigMap")
    seen = 0
    for name, pod in pod_templates(objects):
        for container in containers(pod):
            given = {each["name"]: each.get("value", "1") for each in container.get("env", ())}
            for source in container.get("envFrom", ()):
                given |= maps[source["configMapRef"]["name"]]["data"]
            assert list(settings_table.unknown(given)) == [], name
            if "envFrom" in container:
                seen += 1
                found = _read(given, monkeypatch)
                assert found.proxies, name
                if name.endswith("-embedded"):
                    assert found.database_url == "sqlite:////data/ptopt.db"
                if values is not None and values.stem == "model-server":
                    assert found.model_server == "http://ptopt-model-server:8000"
                if values is not None and values.stem in ("embedded", "external", "keda"):
                    assert found.public_url == "https://ptopt.example.org"
    assert seen


def _read(given: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> Settings:
    """Settings of an environment; a key without an id is one of the Secret alone."""
    with monkeypatch.context() as patch:
        for name, value in given.items():
            patch.setenv(name, value)
        if "PTOPT_APP_ID" not in given:
            patch.delenv("PTOPT_PRIVATE_KEY")
        return Settings()


def test_secrets_are_read_from_the_mounted_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A volume of a Secret has its keys as files, behind links."""
    data = tmp_path / "..2026_01_01"
    data.mkdir()
    (tmp_path / "..data").symlink_to(data)
    for name in ("PTOPT_SECRET_KEY", "PTOPT_DATABASE_URL"):
        (data / name).write_text(f"sqlite:///{name}")
        (tmp_path / name).symlink_to(Path("..data", name))
    found = Settings(_secrets_dir=tmp_path)
    assert (
        found.secret_key is not None and found.secret_key.get_secret_value() == "sqlite:///PTOPT_SECRET_KEY"
    )
    assert found.database_url == "sqlite:///PTOPT_DATABASE_URL"
