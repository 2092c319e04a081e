"""Pages and reports over a real standby: docs/how-to/replica.md."""

from __future__ import annotations

import copy
import json
import os
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import psycopg
import pytest
from django.core.cache import cache
from django.db import DEFAULT_DB_ALIAS, connection, connections
from django.test import Client

from billing.models import FocusFormat, RatedJob
from billing.reports import focus_exports, run_count_snapshots
from billing.sealed_months import drop
from clusters.models import Cluster
from portal import env as environment
from portal.api import keys
from portal.core import replica
from portal.core.audit.actor import NamingCursor
from portal.core.outbox import outbox
from portal.core.tenants.models import OperatorRole, Role, Tenant, User
from portal.dev.embedded.host import account, unprivileged
from portal.dev.embedded.postgres import binaries
from portal.ops import backups
from tests import builders, peers
from tests.collecting import a_scenario
from tests.hostile.test_filters_removed import a_house_that_pays, walk
from tests.integration.test_recovery_to_a_moment import Archiving, served_by
from tests.sealed_march import MARCH, NOW, enter_march, sealed
from tests.stories import close
from tests.web.house import a_house, signed_in
from tests.web.test_paid_on_a_page import INVOICE, clicks_pay, comes_back, pays, shown

pytestmark = pytest.mark.usefixtures("transactional_db")
PATIENCE = 60  # seconds
TENANT = "/operator/tenants/vision-lab/"


@dataclass
class Standby(Archiving):
    """A copy of `primary` that replays what it writes."""

    primary: Archiving = field(kw_only=True)

    def begin(self) -> None:
        self.base.mkdir(mode=0o700, parents=True)
        self.owner_password_file.write_text(peers.PASSWORD)
        words = ["--checkpoint=fast", "--wal-method=stream", "--no-sync", "-R", f"--pgdata={self.data}"]
        subprocess.run(
            [*unprivileged(), str(binaries() / "pg_basebackup"), f"--dbname={self.primary.owner_url()}", *words],
            check=True, capture_output=True, **account(),
        )  # fmt: skip

    def pause(self) -> None:
        """From here on it is late. Only a superuser may do that, who enters by a server's own user alone."""
        self._admin("SELECT pg_wal_replay_pause()")

    def resume(self) -> None:
        self._admin("SELECT pg_wal_replay_resume()")

    def set(self, name: str, value: str) -> None:
        (self.data / "postgresql.auto.conf").open("a").write(f"{name} = '{value}'\n")

    def promote(self) -> None:
        self._program("pg_ctl", ["promote", "--wait", f"--pgdata={self.data}"])

    def note_timeline(self) -> None:
        """As it does of itself after `checkpoint_timeout`."""
        self._admin("CHECKPOINT")

    def _admin(self, statement: str) -> None:
        with connections[replica.REPLICA].cursor() as cursor:
            cursor.execute(statement)


@dataclass
class Reads:
    """How many statements of pages the replica was sent."""

    count: int = 0

    def __call__(self, execute: Callable[..., Any], sql: Any, *call: Any) -> Any:
        self.count += "pg_last_wal_replay_lsn" not in str(sql)  # that looks how late it is
        return execute(sql, *call)


@pytest.fixture
def primary(tmp_path: Path) -> Iterator[Archiving]:
    if os.environ["DATABASE_URL"] != peers.POSTGRES.url():
        pytest.skip("needs the embedded PostgreSQL")
    cache.clear()  # of the places in another server's log up to which people of these numbers changed something
    server = Archiving(tmp_path / "primary")
    server.begin()
    pausing = (
        "GRANT EXECUTE ON FUNCTION pg_wal_replay_pause(), pg_wal_replay_resume() TO clustertab;"
        "GRANT pg_checkpoint TO clustertab;"
    )
    server._program(
        "postgres", ["--single", "-D", str(server.data), connection.settings_dict["NAME"]], pausing
    )
    with server, served_by(server):
        yield server


@pytest.fixture
def standby(primary: Archiving, tmp_path: Path) -> Iterator[Standby]:
    server = Standby(tmp_path / "standby", primary=primary)
    server.begin()
    with server, read_from(server):
        yield server


@contextmanager
def read_from(server: Archiving) -> Iterator[None]:
    """As with DATABASE_REPLICA_URL."""
    url = backups.with_name(server.url(), connection.settings_dict["NAME"])
    secret = connection.settings_dict["PASSWORD"]
    config = copy.deepcopy(connections.settings[DEFAULT_DB_ALIAS]) | environment.replica(url, pool=0)
    config |= {"PASSWORD": secret, "CONN_HEALTH_CHECKS": True}
    config["OPTIONS"] |= {"cursor_factory": NamingCursor, "prepare_threshold": 0}
    connections.settings[replica.REPLICA] = config
    wrapper = connections[replica.REPLICA]

    def ensure_connection() -> None:
        """Django's, without the guard that allows a test the databases which were there when it began."""
        if wrapper.connection is None:
            with wrapper.wrap_database_errors:
                wrapper.connect()

    wrapper.ensure_connection = ensure_connection  # type: ignore[method-assign]
    replica.watch.forget()
    try:
        yield
    finally:
        connections[replica.REPLICA].close()
        del connections[replica.REPLICA]
        del connections.settings[replica.REPLICA]


@contextmanager
def reads() -> Iterator[Reads]:
    tally = Reads()
    with connections[replica.REPLICA].execute_wrapper(tally):
        yield tally


def until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end, replica.watch.look()
        time.sleep(0.05)


def replayed() -> None:
    """Until the replica has all of it, and this process knows."""
    until(lambda: replica.watch.look().lag == 0)


def comes_from_replica(client: Client, path: str) -> tuple[str, bool]:
    with reads() as tally:
        answer = client.get(path)
        assert answer.status_code == 200, (path, answer.status_code)
        body = b"".join(answer) if answer.streaming else answer.content
    return body.decode(), tally.count > 0


def sue() -> User:
    person = builders.a_person("sue@portal.example")
    person.operator_role = OperatorRole.SUPPORT
    person.save()
    return person


def test_pages_reports_and_downloads_are_read_from_the_replica_and_say_the_same(standby: Standby) -> None:
    house = a_house()
    secret = keys.make(
        maker=house.ann,
        tenant=house.vision,
        name="report",
        scopes=["usage:read"],
        moment=builders.at("2026-04-01"),
    ).secret
    replayed()
    ann, op = signed_in(house.ann), signed_in(house.op)
    for client, path in (
        (ann, "/t/vision-lab/"),
        (ann, "/t/vision-lab/jobs/"),
        (ann, f"/t/vision-lab/invoices/{house.invoice.number}/"),
        (ann, "/t/vision-lab/jobs/csv"),
        (op, "/operator/"),
        (op, TENANT),
    ):
        body, from_replica = comes_from_replica(client, path)
        assert from_replica, path
        assert "vision" in body.lower() or "17" in body, path
    api = Client(headers={"Authorization": f"Bearer {secret}"})
    body, from_replica = comes_from_replica(api, "/api/v1/usage?from=2026-03-01&to=2026-04-01")
    assert from_replica
    assert json.loads(body)["buckets"]


def test_who_changed_something_sees_it_at_once_and_others_when_it_is_replayed(standby: Standby) -> None:
    house, other = a_house(), sue()
    replayed()
    op, client = signed_in(house.op), signed_in(other)
    standby.pause()
    assert op.post(TENANT, {"act": "add", "text": "called them"}).status_code == 302
    body, from_replica = comes_from_replica(op, TENANT)
    assert ("called them" in body, from_replica) == (True, False)
    body, from_replica = comes_from_replica(client, TENANT)
    assert ("called them" in body, from_replica) == (False, True)
    standby.resume()
    replayed()
    for person in (op, client):
        body, from_replica = comes_from_replica(person, TENANT)
        assert ("called them" in body, from_replica) == (True, True)


def test_who_paid_sees_it_paid_when_they_come_back(standby: Standby) -> None:
    with a_scenario(now=datetime.now(UTC).replace(microsecond=0)) as scenario:
        ann = signed_in(builders.a_person("ann@vision.example", scenario.lab, Role.OWNER))
        carla = signed_in(builders.a_person("carla@vision.example", scenario.lab, Role.BILLING))
        replayed()
        clicks_pay(ann)
        pays(scenario)
        until(lambda: comes_from_replica(ann, INVOICE)[1])
        standby.pause()
        comes_back(ann)
        paid = "INV-2026-0001 Paid"
        assert (paid in shown(ann), paid in shown(carla)) == (True, False)
        standby.resume()
        until(lambda: comes_from_replica(ann, INVOICE)[1])
        assert paid in shown(carla)


def test_what_is_not_there_yet_is_looked_for_on_the_primary(standby: Standby) -> None:
    house = a_house(close=False)
    replayed()
    standby.pause()
    builders.a_tenant("new-lab")
    op = signed_in(house.op)
    assert "new-lab" in comes_from_replica(op, "/operator/tenants/new-lab/")[0]
    month = date(2026, 3, 1)
    focus_exports.request_export(month=month, kind=FocusFormat.CSV, by="op", moment=datetime.now(UTC))
    export = focus_exports.perform_next(clock=lambda: datetime.now(UTC))
    assert export is not None
    file, from_replica = comes_from_replica(op, f"/operator/exports/focus/{export.pk}/file")
    assert ("tenants/vision-lab" in file, from_replica) == (True, True)
    standby.resume()


def test_many_runs_are_requested_from_the_primary_and_read_from_the_replica(
    standby: Standby, monkeypatch: pytest.MonkeyPatch
) -> None:
    house = a_house()
    monkeypatch.setattr(run_count_snapshots, "LARGE", 0)
    secret = keys.make(
        maker=house.ann,
        tenant=house.vision,
        name="report",
        scopes=["usage:read"],
        moment=builders.at("2026-04-01"),
    ).secret
    replayed()
    change, ann = "/t/vision-lab/costs/change/?from=2026-03-01&through=2026-03-31", signed_in(house.ann)
    assert "Until they are counted" in ann.get(change).text
    outbox.drain()
    replayed()
    body, from_replica = comes_from_replica(ann, change)
    assert ("Number of runs" in body, from_replica) == (True, True)
    api = Client(headers={"Authorization": f"Bearer {secret}"})
    months = "earlier_from=2026-02-01&earlier_to=2026-03-01&from=2026-03-01&to=2026-04-01"
    body, from_replica = comes_from_replica(api, f"/api/v1/usage/change?{months}&all_runs=true")
    assert ('"runs_counted":true' in body.replace(" ", ""), from_replica) == (True, True)


def test_a_job_that_stands_in_files_alone_is_read_by_the_primary_and_the_replica_goes_on(
    standby: Standby, settings: Any, tmp_path: Path
) -> None:
    settings.CLUSTERTAB_SEALED_MONTHS = tmp_path / "sealed"
    enter_march()
    builders.ingest(Cluster.objects.get(), as_of="2026-05-02")
    close("2026-04", on="2026-05-03")
    record = RatedJob.objects.get(job_id="1").record_id
    sealed()
    drop.drop_month(month=MARCH, moment=NOW, all_processes_replaced=True)
    ann = signed_in(builders.a_person("ann@vision.example", Tenant.objects.get(slug="vision-lab")))
    replayed()
    for path in (f"jobs/{record}/", "jobs/?period=2026-03-01", "jobs/csv?period=2026-03-01"):
        assert "train" in comes_from_replica(ann, f"/t/vision-lab/{path}")[0]
    assert comes_from_replica(ann, "/t/vision-lab/jobs/")[1]


def test_a_replica_that_is_late_or_away_is_not_read_and_a_metric_says_so(
    standby: Standby, settings: Any
) -> None:
    from tests.scenarios.test_metrics import read

    house = a_house()
    replayed()
    ann = signed_in(house.ann)
    metrics = read("2026-04-20")
    assert (metrics["clustertab_replica_up"], metrics["clustertab_replica_lag_seconds"]) == ({(): 1}, {(): 0})

    settings.DATABASE_REPLICA_MAX_LAG = 3
    standby.pause()
    builders.a_tenant("new-lab")
    until(lambda: replica.watch.look().lag > 3)
    assert not comes_from_replica(ann, "/t/vision-lab/")[1]
    metrics = read("2026-04-20")
    assert metrics["clustertab_replica_up"] == {(): 1}
    assert metrics["clustertab_replica_lag_seconds"][()] > 3
    standby.resume()
    replayed()
    until(lambda: comes_from_replica(ann, "/t/vision-lab/")[1])

    standby._sweep()  # as a machine that loses its power
    comes_from_replica(ann, "/t/vision-lab/")  # answers at once, and the next one does not even try
    assert not comes_from_replica(ann, "/t/vision-lab/")[1]
    metrics = read("2026-04-20")
    assert metrics["clustertab_replica_up"] == {(): 0}
    assert metrics["clustertab_replica_lag_seconds"] == {(): float("inf")}
    standby.ensure()
    replayed()
    until(lambda: comes_from_replica(ann, "/t/vision-lab/")[1])


def test_what_is_no_standby_is_not_read(primary: Archiving) -> None:
    house = a_house(close=False)
    with read_from(primary):
        assert "no standby" in replica.watch.look().trouble
        assert not comes_from_replica(signed_in(house.op), TENANT)[1]


@pytest.mark.parametrize("alias", [DEFAULT_DB_ALIAS, replica.REPLICA])
def test_a_clock_that_is_slow_does_not_hide_that_it_is_late(
    standby: Standby, settings: Any, alias: str
) -> None:
    as_owner(
        standby.primary,
        """
        CREATE SCHEMA slow;
        CREATE FUNCTION slow.clock_timestamp() RETURNS timestamptz VOLATILE
            RETURN pg_catalog.clock_timestamp() - interval '1 hour';
        GRANT USAGE ON SCHEMA slow TO clustertab
        """,
    )
    replayed()
    with connections[alias].cursor() as cursor:
        cursor.execute("SET search_path = slow, pg_catalog, public")
    standby.pause()
    builders.a_tenant("new-lab")
    until(lambda: replica.watch.look().lag > 3)
    standby.resume()
    replayed()


def test_what_a_migration_adds_is_read_from_the_primary_until_it_is_replayed(standby: Standby) -> None:
    replayed()
    standby.pause()
    as_owner(standby.primary, "CREATE VIEW added AS SELECT 17 AS answer; GRANT SELECT ON added TO clustertab")

    def work() -> int:
        with connections[DEFAULT_DB_ALIAS].cursor() as cursor:
            cursor.execute("SELECT answer FROM added")
            return int(cursor.fetchone()[0])

    with reads() as tally:
        assert replica.read(work, person=0) == 17
    assert tally.count == 1
    standby.resume()


def as_owner(server: Archiving, statements: str) -> None:
    """As a migration does."""
    with psycopg.connect(backups.with_name(server.owner_url(), connection.settings_dict["NAME"])) as owner:
        owner.execute(statements)


def test_without_filters_a_stranger_finds_and_changes_nothing_over_the_replica(standby: Standby) -> None:
    house, link = a_house_that_pays()
    replayed()
    remember, replica.remember_change = replica.remember_change, lambda person: None
    try:  # else what she posts has her read the primary
        with reads() as tally:
            walk(house, link, {"eve": house.eve}, DEFAULT_DB_ALIAS, replica.REPLICA)
    finally:
        replica.remember_change = remember
    assert tally.count > 50
