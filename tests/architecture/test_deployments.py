"""docker-compose.yml, deploy/kubernetes and deploy/systemd start the same processes in the same way."""

from __future__ import annotations

import re
from typing import Any

import pytest

from portal.env import ROOT
from tests.architecture.deployments import (
    COMMON,
    KUBERNETES,
    SERVICES,
    UNITS,
    commands,
    container,
    environment,
    pods,
    render,
    written,
)
from tests.architecture.test_settings import DOCUMENTED

PROCESSES = sorted(name for name in SERVICES if name in {"web", "scheduler"} or name.startswith("worker-"))
PODS = pods(written("base", "overlays/small"))
OWNERS = {"migrate", "backup", "manage"}
"""What has the login that owns the tables."""


def seconds(text: str) -> int:
    return int(text.removesuffix("s"))


def names(template: dict[str, Any]) -> dict[str, str | None]:
    """What the container is given besides settings and secrets of all; None where a Secret has the value."""
    return {entry["name"]: entry.get("value") for entry in container(template).get("env", [])}


def test_all_three_have_the_same_processes() -> None:
    assert set(PODS) == {*PROCESSES, "postgres", "redis", *OWNERS}
    assert set(UNITS) == {f"{name}.service" for name in (*PROCESSES, "migrate", "backup")}


@pytest.mark.parametrize("name", [*PROCESSES, "migrate"])
def test_a_process_has_one_command(name: str) -> None:
    command = SERVICES[name]["command"]
    assert container(PODS[name])["command"] == command
    assert commands(UNITS[f"{name}.service"]) == [command]


@pytest.mark.parametrize("name", PROCESSES)
def test_a_process_has_as_long_to_end_everywhere(name: str) -> None:
    grace = seconds(SERVICES[name]["stop_grace_period"])
    assert PODS[name]["spec"]["terminationGracePeriodSeconds"] == grace
    assert UNITS[f"{name}.service"]["TimeoutStopSec"] == [str(grace)]


@pytest.mark.parametrize("name", PROCESSES)
def test_a_process_is_asked_for_its_health_in_the_same_way(name: str) -> None:
    check = SERVICES[name]["healthcheck"]["test"][1:]
    probes = container(PODS[name])
    if name == "web":  # which no slow database restarts
        assert probes["readinessProbe"]["exec"]["command"] == check
        check = [*check[:-1], "live"]
    for probe in ("startupProbe", "livenessProbe"):
        assert probes[probe]["exec"]["command"] == check


@pytest.mark.parametrize("name", PROCESSES)
def test_a_process_has_the_same_settings_of_its_own(name: str) -> None:
    """Those of all processes come from one ConfigMap and one file; `manage` of compose has no others."""
    common = SERVICES["manage"]["environment"]
    own = {key: value for key, value in names(PODS[name]).items() if value is not None}
    assert own == environment(UNITS[f"{name}.service"])
    for key, value in own.items():
        assert SERVICES[name]["environment"][key] in (value, f"${{{key}:-{value}}}")
        assert key not in common


@pytest.mark.parametrize("name", [*PROCESSES, *sorted(OWNERS)])
def test_only_what_migrates_and_backs_up_has_the_login_that_owns_the_tables(name: str) -> None:
    owns = name in OWNERS
    assert ("DATABASE_OWNER_URL" in names(PODS[name])) is owns
    if name in SERVICES:
        assert ("DATABASE_OWNER_URL" in SERVICES[name]["environment"]) is owns
    if f"{name}.service" in UNITS:
        assert ("/etc/clustertab/owner.env" in UNITS[f"{name}.service"].get("EnvironmentFile", [])) is owns


@pytest.mark.parametrize("name", ["postgres", "redis"])
def test_the_servers_of_one_node_are_those_of_compose(name: str) -> None:
    service, server = SERVICES[name], container(PODS[name])
    assert server["image"] == service["image"].partition("@")[0]
    assert (server.get("command") or server["args"]) == service["command"]
    for probe in ("readinessProbe", "livenessProbe"):
        assert server[probe]["exec"]["command"] == service["healthcheck"]["test"][1:]


def test_the_processes_run_from_the_image_of_compose() -> None:
    for name in (*PROCESSES, *OWNERS):
        assert container(PODS[name])["image"] == SERVICES["web"]["image"]
        spec = PODS[name]["spec"]["securityContext"]
        assert f"{spec['runAsUser']}:{spec['runAsGroup']}" == SERVICES["web"]["user"]


READERS = {name for name in PROCESSES if name != "scheduler"}
"""What may need rows of a month that was dropped."""


def test_whoever_may_need_a_dropped_month_reaches_its_files_everywhere() -> None:
    volume = "sealed-months:/sealed-months"
    assert {name for name in SERVICES if volume in SERVICES[name].get("volumes", [])} == {*READERS, "manage"}
    mounted = {"name": "sealed-months", "mountPath": "/sealed-months"}
    rendered = pods(render("sealed-months"))
    having = {name for name in rendered if mounted in container(rendered[name])["volumeMounts"]}
    assert having == {*READERS, "manage", "backup"}
    for name in having:
        assert {
            "name": "sealed-months",
            "persistentVolumeClaim": {"claimName": "sealed-months"},
        } in rendered[name]["spec"]["volumes"]
    (settings,) = [item for item in render("sealed-months") if item["kind"] == "ConfigMap"]
    assert settings["data"]["SEALED_MONTHS_DIRECTORY"] == "/sealed-months"


def test_with_a_bucket_each_pod_has_a_cache_of_its_own() -> None:
    manifests = render("sealed-months-bucket")
    mounted = {"name": "sealed-months", "mountPath": "/sealed-months"}
    rendered = pods(manifests)
    having = {name for name in rendered if mounted in container(rendered[name])["volumeMounts"]}
    assert having == {*READERS, "manage", "backup"}
    for name in having:
        cache = {"name": "sealed-months", "emptyDir": {"sizeLimit": "20Gi"}}
        assert cache in rendered[name]["spec"]["volumes"]
    (settings,) = [item for item in manifests if item["kind"] == "ConfigMap"]
    assert settings["data"]["SEALED_MONTHS_DIRECTORY"] == "/sealed-months"
    assert settings["data"]["SEALED_MONTHS_BUCKET"].startswith("s3://")


def test_a_new_volume_belongs_to_the_user_of_the_image() -> None:
    user = SERVICES["web"]["user"].partition(":")[0]
    words = f"install --directory --owner {user} --group {user} --mode 0700 /sealed-months"
    assert words in (ROOT / "deploy" / "Dockerfile").read_text()


def test_both_back_up_as_the_guide_says() -> None:
    """A dump, and the look whether it can be restored."""
    guide = re.findall(
        r"^\./run manage (\w+_database \S+.*)$",
        (ROOT / "docs/how-to/backup.md").read_text(),
        re.MULTILINE,
    )[:2]
    (shell, option, script) = container(PODS["backup"])["command"]
    assert (shell, option) == ("sh", "-c")
    steps = [f"python manage.py {line}" for line in guide]
    assert script.replace("/backups/", "") == " && ".join(steps)
    units = [" ".join(words) for words in commands(UNITS["backup.service"])]
    assert [line.replace("/var/lib/clustertab/", "") for line in units] == steps


def test_every_setting_that_is_named_exists_and_is_no_secret() -> None:
    files = sorted(KUBERNETES.rglob("settings.env"))
    assert len(files) == 4
    lines = [line for path in files for line in path.read_text().splitlines() if line and line[0] != "#"]
    settings = {line.partition("=")[0] for line in lines}
    given = {name for template in PODS.values() for name in names(template)}
    given |= {name for values in (*UNITS.values(), COMMON) for name in environment(values)}
    assert settings | given - {"PYTHONUNBUFFERED"} <= DOCUMENTED
    secret = re.compile("SECRET|PASSWORD|TOKEN|(DATABASE|OWNER|REDIS|EMAIL)_URL")
    assert [name for name in settings if secret.search(name)] == []
    assert "DATABASE_POOL" not in settings  # a pool must not be carried over the forks of a worker
