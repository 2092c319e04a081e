"""The server is killed, and recovered to a minute from a base backup and its archived WAL: docs/how-to/backup.md."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings
from django.db import connection, transaction

from billing.models import Difference, Invoice, PaymentAttempt
from billing.reconciliation import reconciliation_run
from clusters.models import UsageRecord
from portal.core.outbox import outbox
from portal.core.outbox.models import OutboxMessage
from portal.core.tenants.models import Tenant
from portal.dev.embedded.host import account, unprivileged
from portal.dev.embedded.postgres import Postgres, binaries
from portal.env import ROOT
from portal.ops import backups
from tests import databases, peers
from tests.builders import a_cluster, a_job, ingest
from tests.collecting import Scenario, a_scenario, more_labs
from tests.integration.slurm_lab import until

pytestmark = pytest.mark.usefixtures("transactional_db")
PATIENCE = 120  # seconds


@dataclass
class Archiving(Postgres):
    """A server with the configuration of deploy/postgres/archive.conf, below a home of its own."""

    archive: Path | None = None
    conf: Path = field(default=ROOT / "deploy" / "postgres" / "archive.conf")

    def begin(self) -> None:
        """From the migrated database that tests are copies of."""
        self.base.mkdir(mode=0o700, parents=True)
        for file in (self.password_file, self.owner_password_file):
            file.write_text(peers.PASSWORD)
        databases.copy_tree(databases.TEMPLATES / databases.schema(), self.data)
        self._program(
            "postgres",
            ["--single", "-D", str(self.data), "postgres"],
            "ALTER ROLE clustertab_owner REPLICATION",
        )
        with (self.data / "pg_hba.conf").open("a") as hba:
            hba.write("local replication all scram-sha-256\n")
        if self.archive is not None:
            self.archive.mkdir()
            text = (
                self.conf.read_text()
                .replace("/archive", str(self.archive))
                .replace("timeout = 60", "timeout = 1")
            )
            (self.data / "postgresql.conf").open("a").write(text)
        if "user" in account():
            for path in (self.base, *([self.archive] if self.archive else [])):
                subprocess.run(["chown", "-R", str(account()["user"]), str(path)], check=True)

    def command(self) -> list[str]:
        return [*super().command(), "-c", "fsync=off"]  # what is killed is the server, not the machine

    def kill(self) -> None:
        """As a machine that loses its power does: nobody says goodbye."""
        connection.close()
        self._sweep()

    def base_backup(self, directory: Path) -> Path:
        place = f"--dbname={self.owner_url()}"
        words = ["--checkpoint=fast", "--wal-method=none", "--no-sync", f"--pgdata={directory}"]
        subprocess.run(
            [*unprivileged(), str(binaries() / "pg_basebackup"), place, *words],
            check=True, capture_output=True, **account(),
        )  # fmt: skip
        return directory


@contextmanager
def served_by(server: Postgres) -> Iterator[None]:
    """From here on the database is that server's."""
    present = connection.settings_dict["HOST"]
    connection.close()
    connection.settings_dict["HOST"] = str(server.run)
    try:
        yield
    finally:
        connection.close()
        connection.settings_dict["HOST"] = present


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Archiving]:
    if os.environ["DATABASE_URL"] != peers.POSTGRES.url():
        pytest.skip("needs the embedded PostgreSQL")
    server = Archiving(tmp_path / "live", archive=tmp_path / "archive")
    server.begin()
    with server, served_by(server):
        yield server


def now() -> datetime:
    """By the database, to the second: recovery stops at the first commit after it."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT clock_timestamp()")
        (value,) = cursor.fetchone()
    return datetime.fromtimestamp(int(value.timestamp()), UTC)


def next_second() -> datetime:
    """What is committed until now lies before it, and what comes lies after it."""
    moment = now() + timedelta(seconds=1)
    until(lambda: now() > moment)
    return moment


def wait_for_archive() -> None:
    """Until all that is committed is archived, as it is within a minute where `archive_timeout` is 60."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_walfile_name(pg_current_wal_lsn())")
        (name,) = cursor.fetchone()
        # A segment without a change is not archived for having become old.
        cursor.execute("SELECT pg_logical_emit_message(true, 'tests', 'a change')")

        def is_archived() -> bool:
            cursor.execute("SELECT last_archived_wal >= %s FROM pg_stat_archiver", [name])
            return bool(cursor.fetchone()[0])

        until(is_archived, seconds=PATIENCE)


def recover(server: Archiving, base: Path, *options: object) -> tuple[int, dict[str, Any], str]:
    """Its code, its answer, its standard error."""
    process = begun(server, base, *options)
    answer, stderr = process.communicate(timeout=600)
    assert "Traceback" not in stderr, stderr
    return process.returncode, json.loads(answer or "{}"), stderr


def begun(server: Archiving, base: Path, *options: object) -> subprocess.Popen[str]:
    """The command, as somebody calls it who owns the base backup."""
    environ = os.environ | {
        "DJANGO_SETTINGS_MODULE": "portal.settings",
        "CLUSTERTAB_HOME": str(server.home),
        "DATABASE_URL": backups.with_name(server.url(), connection.settings_dict["NAME"]),
        "CLUSTERTAB_SECRET_KEYS": ",".join(settings.CLUSTERTAB_SECRET_KEYS),
        "STRIPE_SECRET_KEY": settings.STRIPE_SECRET_KEY or "",
        "STRIPE_MODE": "test",
        "STRIPE_API_BASE": settings.STRIPE_API_BASE or "",
    }
    words = ["-m", "portal.ops.manage", "recover_database", base, server.archive, *options, "--json"]
    return subprocess.Popen(
        [*unprivileged(), sys.executable, *map(str, words)],
        env=environ, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


def states() -> dict[str, str]:
    return dict(PaymentAttempt.objects.values_list("tenant__slug", "state"))


def test_what_was_charged_after_the_moment_is_found_at_stripe_and_charged_once(
    server: Archiving, tmp_path: Path
) -> None:
    # What is young is not compared yet.
    earlier = datetime.now(UTC).replace(microsecond=0) - timedelta(hours=3)
    with a_scenario(now=earlier) as scenario:
        scenario.save_card()
        base = server.base_backup(tmp_path / "base")
        scenario.collect()
        with transaction.atomic():
            outbox.add("tests.integration.effects.nothing")
        moment = next_second()
        more_labs(scenario, ["lab-01"])
        scenario.collect()
        assert scenario.charged == [400, 400]
        wait_for_archive()
        server.kill()

        second = Archiving(tmp_path / "second")
        second.base.mkdir(mode=0o700, parents=True)
        for name in ("password", "password.owner"):
            shutil.copy(server.base / name, second.base / name)
        code, answer, error = recover(
            server, base, "--into", second.data, "--at", moment.isoformat(), "--reconcile"
        )
        assert "holds" in answer, error
        assert answer["holds"], answer
        assert answer["last_change"] <= moment.isoformat()
        assert {row["kind"] for row in answer["differences"]} == {"missing-here"}
        assert code == 1  # what is missing here is for people to look at
        assert list(answer["steps"]) == ["copy", "replay", "prove"]
        with second, served_by(second):
            _everybody_is_charged_once(scenario)


def _everybody_is_charged_once(scenario: Scenario) -> None:
    """What was recovered has the first charge and not the second, which is found once its invoice is there again."""
    assert states() == {"vision-lab": "succeeded"}
    assert not Tenant.objects.filter(slug="lab-01").exists()
    assert OutboxMessage.objects.undone().exists()
    outbox.drain()
    assert not OutboxMessage.objects.undone().exists()
    more_labs(scenario, ["lab-01"])
    for _ in range(3):
        scenario.collect()
        reconciliation_run.run(gateway=scenario.gateway, moment=scenario.now, by="op")
    assert scenario.charged == [400, 400]
    assert states() == {"vision-lab": "succeeded", "lab-01": "succeeded"}
    assert Invoice.objects.issued().count() == 2
    assert not Difference.objects.filter(resolved_at=None).exists()
    assert scenario.stripe.violations == []


def test_a_drill_leaves_nothing_and_says_what_is_wrong_with_an_archive(
    server: Archiving, tmp_path: Path
) -> None:
    base, spare = server.base_backup(tmp_path / "base"), tmp_path / "spare"
    cluster = a_cluster()
    for number in range(4):
        ingest(cluster, a_job(job_id=f"job-{number}"))
        wait_for_archive()
    drill = ("--into", spare, "--preview")
    code, answer, error = recover(server, base, *drill)
    assert code == 0, (answer, error)
    assert not spare.exists()
    assert float(answer["rpo_seconds"]) < PATIENCE
    assert float(answer["rto_seconds"]) > 0
    code, answer, _ = recover(server, base, *drill, "--at", (now() + timedelta(days=1)).isoformat())
    assert (code, "The archive does not reach" in answer["error"]) == (1, True), answer
    assert server.archive is not None
    segments = sorted(path for path in server.archive.iterdir() if len(path.name) == 24)
    gone = segments[1]
    whole = gone.read_bytes()
    gone.write_bytes(whole[: len(whole) // 2])
    code, answer, _ = recover(server, base, *drill)
    assert (code, f"WAL segment {gone.name} is cut short" in answer["error"]) == (1, True), answer
    gone.unlink()
    code, answer, _ = recover(server, base, *drill)
    assert (code, f"WAL segment {gone.name} is missing" in answer["error"]) == (1, True), answer
    spare.mkdir()
    (spare / "somebody's").touch()
    code, answer, _ = recover(server, base, *drill)
    assert (code, "is not empty, and nothing was changed" in answer["error"]) == (1, True), answer
    code, answer, _ = recover(server, spare, "--into", tmp_path / "other")
    assert (code, "is no base backup" in answer["error"]) == (1, True), answer
    assert UsageRecord.objects.count() == 4  # the live database goes on


def test_a_drill_of_a_standby_with_settings_of_its_own_ends_and_leaves_nothing_behind_a_link(
    server: Archiving, tmp_path: Path
) -> None:
    base, spare, link = server.base_backup(tmp_path / "base"), tmp_path / "spare", tmp_path / "link"
    ingest(a_cluster(), a_job(job_id="job-1"))
    wait_for_archive()
    (base / "standby.signal").touch()
    with (base / "postgresql.auto.conf").open("a") as file:
        file.write("port = 5999\nrecovery_min_apply_delay = '1h'\nrecovery_target = 'immediate'\n")
    link.symlink_to(spare)
    code, answer, error = recover(server, base, "--into", link, "--preview")
    assert code == 0, (answer, error)
    assert answer["last_change"] is not None
    assert (answer["kept"], spare.exists()) == (False, False)
    with (base / "postgresql.auto.conf").open("a") as file:
        file.write("local_preload_libraries = 'absent'\n")  # which refuses every connection
    code, answer, _ = recover(server, base, "--into", spare, "--preview")
    assert (code, "The recovered server refuses us" in answer["error"]) == (1, True), answer
    assert not spare.exists()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGKILL])
def test_a_drill_that_is_killed_leaves_no_server_and_no_copy(
    server: Archiving, tmp_path: Path, number: signal.Signals
) -> None:
    base, spare = server.base_backup(tmp_path / "base"), tmp_path / "spare"
    wait_for_archive()
    drill = begun(server, base, "--into", spare, "--preview")
    lock = spare / "postmaster.pid"
    until(lambda: drill.poll() is not None or (lock.exists() and lock.read_text()), seconds=PATIENCE)
    assert drill.poll() is None
    running = Path("/proc") / lock.read_text().split()[0]
    words = (running / "cmdline").read_text().split("\0")
    (socket,) = [word.partition("=")[2] for word in words if word.startswith("unix_socket_directories=")]
    drill.send_signal(number)
    drill.communicate(timeout=PATIENCE)
    if number == signal.SIGKILL:
        until(lambda: not running.exists(), seconds=PATIENCE)
    assert not running.exists()
    assert (spare.exists(), Path(socket).exists()) == (number == signal.SIGKILL,) * 2
    shutil.rmtree(socket, ignore_errors=True)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(3))
def test_a_server_that_is_killed_while_it_archives_leaves_an_archive_without_a_gap(
    server: Archiving, tmp_path: Path, seed: int
) -> None:
    chance, cluster = random.Random(seed), a_cluster()
    base = server.base_backup(tmp_path / "base")
    for turn in range(6):
        jobs = [a_job(job_id=f"job-{turn}-{number}", user=f"user-{number}") for number in range(5_000)]
        ingest(cluster, *jobs)
        time.sleep(chance.random())  # segments are being copied meanwhile
        server.kill()
        server.ensure()
    wait_for_archive()
    server.kill()
    code, answer, error = recover(server, base, "--into", tmp_path / "spare")
    assert code == 0, (answer, error)
    second = Archiving(tmp_path / "second")
    second.base.mkdir(mode=0o700, parents=True)
    (tmp_path / "spare").rename(second.data)
    with second, served_by(second):
        assert UsageRecord.objects.count() == 30_000
