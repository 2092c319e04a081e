"""Traces and reports of errors, sent by real processes: what is one stays one, and no secret goes along."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from portal.dev.embedded.redis import Redis
from tests import builders
from tests.api.door import a_key
from tests.fakes.collectors import Collector, a_collector
from tests.fakes.scheduler_port import a_world, connected
from tests.fakes.slurmrestd import StandIn
from tests.integration.test_outbox_worker import eventually, worker
from tests.integration.web_process import WebProcess
from tests.owner import as_owner

pytestmark = pytest.mark.usefixtures("transactional_db")

SPAN = "00-{}-00f067aa0ba902b7-01"
THEIRS = "4bf92f3577b34da6a3ce929d0e0e4736"  # a trace that a program outside began


@pytest.fixture
def collector() -> Iterator[Collector]:
    with a_collector() as collector:
        yield collector


def ask(url: str, secret: str = "", method: str = "GET", **headers: str) -> int:
    sent = {"Authorization": f"Bearer {secret}"} if secret else {}
    request = urllib.request.Request(url, method=method, headers=sent | headers)
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code


def test_a_request_its_tasks_and_their_statements_are_one_trace(
    collector: Collector, database_url: str, tmp_path: Path
) -> None:
    key = a_key(builders.an_operator(), None)
    log = tmp_path / "worker.log"
    variables = {
        "OTEL_EXPORTER_OTLP_ENDPOINT": collector.endpoint,
        "OTEL_BSP_SCHEDULE_DELAY": "200",
        "LOG_LEVEL": "INFO",
    }
    with StandIn(44, world=a_world()) as slurm, Redis(tmp_path) as redis:
        connected(slurm)
        variables |= {"REDIS_URL": redis.url()}
        environ = os.environ | {
            "DJANGO_SETTINGS_MODULE": "portal.settings",
            "CLUSTERTAB_HOME": str(tmp_path),
            "DATABASE_URL": database_url,
            **variables,
        }
        web = WebProcess(database_url, tmp_path, WEB_CONCURRENCY="2", **variables)  # forked after loading
        web.collect()
        with web, worker(environ, log):
            header = {"traceparent": SPAN.format(THEIRS)}
            path = f"{web.url}/api/v1/clusters/gpu1/pulls"
            numbers = count(1)

            def pulled() -> bool:
                """The scheduler may have told a worker of the cluster before the effect did: then ask again."""
                if not chain(collector):
                    time.sleep(2)
                    one = {"Idempotency-Key": str(next(numbers))}
                    assert ask(path, key.secret, "POST", **one, **header) == 202
                return bool(chain(collector))

            assert ask(f"{web.url}/pay/do-not-show-this-key/") == 404
            eventually(pulled, log)
            eventually(lambda: any("/pay/" in span.name for span in collector.spans), log)

    request, effect, task = chain(collector)[0]
    assert [link.trace_id.hex() for link in request.links] == [THEIRS]
    assert request.parent_span_id == b""
    assert collector.services == {"clustertab"}
    for span, word in ((request, "INSERT"), (effect, "UPDATE"), (task, "SELECT")):
        below = {one.name: one for one in collector.below(span)}
        assert word in below
        statements = [one for one in below.values() if one.kind == Span.SPAN_KIND_CLIENT]
        assert [collector.below(one) for one in statements] == [[]] * len(statements)  # each is told of once
    lines = [line for line in web_lines(tmp_path) if line.get("path", "").endswith("/pulls")]
    assert request.trace_id.hex() in {line["trace_id"] for line in lines}
    for secret in (key.secret, key.secret[-12:], "do-not-show-this-key", "op@cluster.example"):
        assert secret.encode() not in collector.raw


def chain(collector: Collector) -> list[tuple[Span, Span, Span]]:
    """A request, the effect below it, and the task below that."""
    return [
        (request, effect, task)
        for request in collector.named("POST /api/v1/clusters/<str:name>/pulls")
        for effect in collector.below(request)
        if effect.name == "billing.tasks.pull_due"
        for task in collector.below(effect)
        if task.name == "billing.tasks.pull_usage"
    ]


def web_lines(home: Path) -> list[dict[str, str]]:
    lines = (home / "web.log").read_text().splitlines()
    return [json.loads(line) for line in lines if line.startswith("{")]


def test_an_unforeseen_error_is_reported_without_addresses_headers_and_variables(
    collector: Collector, database_url: str, tmp_path: Path
) -> None:
    key = a_key(builders.an_operator(), None)
    with WebProcess(database_url, tmp_path, SENTRY_DSN=collector.dsn) as web:
        with as_owner() as cursor:
            cursor.execute("ALTER TABLE clusters_cluster RENAME TO elsewhere")
        try:
            assert ask(f"{web.url}/api/v1/clusters?limit=17", key.secret) == 500
        finally:
            with as_owner() as cursor:
                cursor.execute("ALTER TABLE elsewhere RENAME TO clusters_cluster")
        eventually(lambda: bool(collector.errors), tmp_path / "web.log")
    report = collector.errors[0]
    (line,) = [line for line in web_lines(tmp_path) if line.get("path") == "/api/v1/clusters"]
    assert report["tags"]["request_id"] == line["request_id"]
    assert report["request"] == {"method": "GET"}
    assert "clusters_cluster" in report["exception"]["values"][-1]["value"]
    assert not {"user", "breadcrumbs", "extra", "contexts", "server_name"} & set(report)
    frames = report["exception"]["values"][-1]["stacktrace"]["frames"]
    assert frames
    assert not any("vars" in frame for frame in frames)
    for secret in (key.secret, key.secret[-12:], "limit=17", "op@cluster.example", database_url):
        assert secret.encode() not in collector.raw


def test_without_its_settings_nothing_of_it_is_loaded() -> None:
    """They hold some ten MiB in each process."""
    loads = "import django, sys; django.setup(); import redis"
    program = f"{loads}; print(*(name for name, module in sys.modules.items() if module))"
    environ = {name: value for name, value in os.environ.items() if name != "SENTRY_DSN"}
    done = subprocess.run(
        [sys.executable, "-c", program],
        env=environ | {"DJANGO_SETTINGS_MODULE": "portal.settings"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert not {"opentelemetry.sdk", "sentry_sdk", "google.protobuf"} & set(done.stdout.split())


def test_requests_of_all_processes_are_counted_in_one_place(database_url: str, tmp_path: Path) -> None:
    key = a_key(builders.an_operator(), None)
    with Redis(tmp_path) as redis:
        variables = {"REDIS_URL": redis.url(), "CLUSTERTAB_METRICS_TOKEN": "a-token-of-the-monitoring"}
        with (
            WebProcess(database_url, tmp_path, **variables) as one,
            WebProcess(database_url, tmp_path, **variables) as two,
        ):
            for web in (one, two):
                assert [ask(f"{web.url}/api/v1/me", key.secret), ask(f"{web.url}/api/v1/me")] == [200, 401]

            def has_line(line: str) -> bool:
                time.sleep(1)  # or the key would ask too often, and be refused
                ask(f"{one.url}/api/v1/me", key.secret)
                ask(f"{two.url}/api/v1/me", key.secret)
                request = urllib.request.Request(
                    f"{one.url}/metrics", headers={"Authorization": "Bearer a-token-of-the-monitoring"}
                )
                with urllib.request.urlopen(request, timeout=30) as answer:
                    return line in answer.read().decode().splitlines()

            eventually(
                lambda: has_line('clustertab_requests_total{kind="api",status="4xx"} 2.0'),
                tmp_path / "web.log",
            )
