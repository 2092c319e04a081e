"""docker-compose.yml is one that Compose would take, and a careful one.

compose_spec.json is the schema of the Compose specification, unchanged, as shipped with
docker-compose 1.29.2 under the Apache License 2.0.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from portal.env import ROOT

COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
SCHEMA = json.loads((Path(__file__).parent / "compose_spec.json").read_text())


def test_it_follows_the_compose_specification() -> None:
    jsonschema.Draft7Validator(SCHEMA).validate(COMPOSE)


def test_the_schema_refuses_what_compose_would_refuse() -> None:
    broken = {"services": {"web": {"image": "clustertab", "healthchek": {}}}}
    with pytest.raises(jsonschema.ValidationError, match="healthchek"):
        jsonschema.Draft7Validator(SCHEMA).validate(broken)


def test_it_has_the_five_that_run_and_the_migrations_before_them() -> None:
    assert set(SERVICES) == {"web", "worker", "scheduler", "postgres", "redis", "migrate"}


@pytest.mark.parametrize("name", SERVICES)
def test_each_service_is_confined(name: str) -> None:
    service = SERVICES[name]
    assert service["user"] not in {"root", "0", "0:0"}
    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]


@pytest.mark.parametrize("name", sorted(set(SERVICES) - {"migrate"}))
def test_each_service_that_stays_up_has_a_health_check(name: str) -> None:
    assert SERVICES[name]["healthcheck"]["test"][0] == "CMD"
    assert SERVICES[name]["restart"] == "unless-stopped"


@pytest.mark.parametrize("name", ["web", "worker", "scheduler"])
def test_nothing_starts_before_the_migrations_have_run(name: str) -> None:
    assert SERVICES[name]["depends_on"]["migrate"] == {"condition": "service_completed_successfully"}


def test_no_secret_is_written_down_or_passed_as_an_argument() -> None:
    for service in SERVICES.values():
        assert "PASSWORD" not in json.dumps(service.get("command", []))
        for name, value in service.get("environment", {}).items():
            if any(word in name for word in ("PASSWORD", "SECRET", "DATABASE_URL")):
                optional = name.startswith("STRIPE_")  # without them nothing is collected by card
                assert (f"${{{name}:-}}" if optional else ":?set it in .env}") in value, name


def test_the_image_is_built_from_the_locked_requirements_and_not_run_as_root() -> None:
    lines = (ROOT / "deploy" / "Dockerfile").read_text().splitlines()
    assert any("--require-hashes" in line and "requirements.txt" in line for line in lines)
    assert [line for line in lines if line.startswith("USER ")] == ["USER 10001:10001"]
