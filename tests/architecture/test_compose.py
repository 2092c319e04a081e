"""docker-compose.yml is one that Compose would take, and a careful one.

compose_spec.json is the schema of the Compose specification, unchanged, as shipped with
docker-compose 1.29.2 under the Apache License 2.0.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from portal.dev.demo import children
from portal.env import ROOT
from portal.ops import backups
from portal.queues import KINDS, QUEUE_OF
from portal.schedule import SCHEDULE
from tests.architecture.test_settings import DOCUMENTED

COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
SCHEMA = json.loads((Path(__file__).parent / "compose_spec.json").read_text())


def test_it_follows_the_compose_specification() -> None:
    jsonschema.Draft7Validator(SCHEMA).validate(COMPOSE)


def test_the_schema_refuses_what_compose_would_refuse() -> None:
    broken = {"services": {"web": {"image": "clustertab", "healthchek": {}}}}
    with pytest.raises(jsonschema.ValidationError, match="healthchek"):
        jsonschema.Draft7Validator(SCHEMA).validate(broken)


WORKERS = sorted(name for name in SERVICES if name.startswith("worker-"))


def test_it_has_all_that_runs_and_the_migrations_before_it() -> None:
    assert set(SERVICES) - set(WORKERS) == {"web", "scheduler", "postgres", "redis", "migrate", "manage"}
    assert {name.removeprefix("worker-") for name in WORKERS} == {
        "collect",
        "documents",
        "mail",
        "pull",
        "rate",
        "webhooks",
    }


def queues_of(command: list[str] | tuple[str, ...]) -> list[str]:
    return command[command.index("--queues") + 1].split(",")


def test_every_queue_has_a_worker_and_what_takes_long_one_of_its_own() -> None:
    worker_queues = {name: queues_of(SERVICES[name]["command"]) for name in WORKERS}
    assert {queue for queues in worker_queues.values() for queue in queues} == set(KINDS)
    assert (worker_queues["worker-pull"], worker_queues["worker-rate"]) == (["pull"], ["rate"])
    assert worker_queues["worker-webhooks"] == ["webhooks"]
    demo = [queues_of(options) for options in children.WORKERS.values()]
    assert sorted(queue for queues in demo for queue in queues) == sorted(KINDS)
    assert sorted(["pull", "rate"]) in [sorted(queues) for queues in demo]


def test_a_large_file_or_sync_leaves_most_places_to_other_clusters() -> None:
    """It has one place until its end: of two, half would be left."""
    command = SERVICES["worker-pull"]["command"]
    assert int(command[command.index("--concurrency") + 1]) >= 3


def test_each_worker_is_asked_for_its_own_health() -> None:
    for name in WORKERS:
        service, kind = SERVICES[name], name.removeprefix("worker-")
        # Several of a kind have different names.
        assert service["command"][-2:] == ["--hostname", f"{kind}@%h"]
        assert service["healthcheck"]["test"][-2:] == ["worker", kind]


def test_every_task_has_a_queue() -> None:
    from portal.celery import app

    app.loader.import_default_modules()
    ours = {name for name in app.tasks if name.split(".")[0] in {"billing", "clusters", "portal"}}
    assert ours == set(QUEUE_OF)
    assert {entry["task"] for entry in SCHEDULE.values()} <= ours


@pytest.mark.parametrize("name", SERVICES)
def test_each_service_is_confined(name: str) -> None:
    service = SERVICES[name]
    assert service["user"] not in {"root", "0", "0:0"}
    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]


@pytest.mark.parametrize("name", sorted(set(SERVICES) - {"migrate", "manage"}))
def test_each_service_that_stays_up_has_a_health_check(name: str) -> None:
    assert SERVICES[name]["healthcheck"]["test"][0] == "CMD"
    assert SERVICES[name]["restart"] == "unless-stopped"


@pytest.mark.parametrize("name", ["web", "scheduler", *WORKERS])
def test_nothing_starts_before_the_migrations_have_run(name: str) -> None:
    assert SERVICES[name]["depends_on"]["migrate"] == {"condition": "service_completed_successfully"}


def test_no_secret_is_written_down_or_passed_as_an_argument() -> None:
    for service in SERVICES.values():
        assert "PASSWORD" not in json.dumps(service.get("command", []))
        for name, value in service.get("environment", {}).items():
            if any(word in name for word in ("PASSWORD", "SECRET", "DATABASE_URL")):
                # Without them nothing is collected by card, and a bucket is asked as whoever the machine is.
                optional = name.startswith(("STRIPE_", "AWS_"))
                assert (f"${{{name}:-}}" if optional else ":?set it in .env}") in value, name


DOCKERFILE = (ROOT / "deploy" / "Dockerfile").read_text().splitlines()


def test_the_image_is_built_from_the_locked_requirements_and_not_run_as_root() -> None:
    assert any("--require-hashes" in line and line.endswith("-r requirements.txt") for line in DOCKERFILE)
    locks = {
        name
        for line in DOCKERFILE
        if line[0:1] != "#"
        for name in re.findall(r"requirements[\w-]*\.txt", line)
    }
    assert locks == {"requirements.txt", "requirements-uv.txt"}
    assert [line for line in DOCKERFILE if line.startswith("USER ")] == ["USER 10001:10001"]


def test_the_image_leaves_out_what_only_the_demo_and_developers_need() -> None:
    left_out = set((ROOT / ".dockerignore").read_text().split())
    for name in ("tests", "bench", "portal/dev"):
        assert name in left_out
        assert (ROOT / name).is_dir()


def test_base_images_have_an_exact_version() -> None:
    bases = [line.split()[1] for line in DOCKERFILE if line.startswith("FROM ")]
    bases += [SERVICES[name]["image"] for name in ("postgres", "redis")]
    exact = re.compile(
        r"(python:3\.\d+\.\d+-slim|postgres:\d+\.\d+|redis:\d+\.\d+\.\d+)-[a-z]+(@sha256:[0-9a-f]{64})?"
    )
    assert [base for base in bases if not exact.fullmatch(base)] == []


IN_THE_IMAGE = {"CLUSTERTAB_HOME", "STATIC_ROOT", "BIND"}
NOT_PASSED_ON = {
    "DEBUG": "shows source code to visitors",
    "CLUSTERTAB_LONG": "for tests",
}


def test_every_setting_can_be_given_to_the_containers() -> None:
    passed = {name for service in SERVICES.values() for name in service.get("environment", {})}
    image = {name for line in DOCKERFILE for name in re.findall(r"^(?:ENV| {4}) *([A-Z_]+)=", line)}
    published = {"PORT"} if "${PORT:-8000}" in SERVICES["web"]["ports"][0] else set()
    assert image >= IN_THE_IMAGE
    assert DOCUMENTED - NOT_PASSED_ON.keys() == (passed | IN_THE_IMAGE | published) & DOCUMENTED


def test_only_the_web_has_a_pool_of_connections() -> None:
    """Which must not be carried over the forks of a worker."""
    assert SERVICES["web"]["environment"]["DATABASE_POOL"] == "${DATABASE_POOL:-8}"
    for service in SERVICES.values():
        for name in service.get("environment", {}):
            assert name != "DATABASE_POOL" or service is SERVICES["web"], "workers must have no pool"


def test_backups_find_their_programs_and_variables_in_the_containers_too() -> None:
    """What they call is in the image, of the server's version; what they read of the environment is passed on."""
    code = Path(backups.__file__).read_text()
    called = set(re.findall(r'_program\("(\w+)"', code))
    assert called == set(backups.PROGRAMS) == {"pg_dump", "pg_restore"}
    (server,) = re.findall(r"^postgres:(\d+)\.", SERVICES["postgres"]["image"])
    assert any(f"postgresql-client-{server}" in line for line in DOCKERFILE)
    assert f"postgresql-client-{server}" in code
    assert set(backups.VARIABLES) <= DOCUMENTED
    manage = SERVICES["manage"]
    assert set(backups.VARIABLES) <= set(manage["environment"])
    assert manage["entrypoint"] == ["python", "manage.py"]
    assert "./backups:/backups" in manage["volumes"]
    assert set(manage["depends_on"]) == {"postgres"}  # a database is restored before it is migrated
    command = (Path(backups.__file__).parent / "management" / "commands" / "backup_database.py").read_text()
    named = set(
        re.findall(r"\b(?:CLUSTERTAB_SECRET_KEYS|STRIPE_ACCOUNT_LABEL|SECRET_KEY|DATABASE_URL)\b", command)
    )
    assert named | {"DATABASE_OWNER_URL"} == set(backups.VARIABLES)  # which restoring alone uses


def test_the_guide_backs_up_alike_with_and_without_containers() -> None:
    text = (ROOT / "docs" / "how-to/backup.md").read_text()
    shells = {
        prefix: re.findall(rf"^{re.escape(prefix)} ((?:backup|restore)_database \S+.*)$", text, re.MULTILINE)
        for prefix in ("./run manage", "docker compose run --rm manage")
    }
    here, there = (list(commands) for commands in shells.values())
    assert here
    assert [line.replace("/backups/", "") for line in there] == here
