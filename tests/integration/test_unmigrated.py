"""A schema that is not of this version: nothing begins to bill, and each process says why and what to do."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import psycopg
import pytest
from django.core.management import CommandError, call_command
from django.db.migrations.recorder import MigrationRecorder

from portal.dev.embedded.postgres import Postgres
from portal.env import ROOT
from portal.ops import schema
from portal.ops.schema import OtherSchemaError, pending_migrations
from portal.schema.levels import CURRENT
from tests.owner import as_owner

PATIENCE = 400  # seconds
CELERY = [sys.executable, "-m", "portal.celery_command"]
MIGRATE = [sys.executable, "manage.py", "migrate", "-v0"]
IMPATIENT = """
from django.core.management import execute_from_command_line
from portal.ops.management.commands import migrate
migrate.TRIES, migrate.PAUSE = 2, 0
execute_from_command_line(["manage.py", "migrate", "-v0"])
"""
PROCESSES = {
    "web": [sys.executable, "-m", "gunicorn", "--config", "deploy/gunicorn.conf.py"],
    "worker": [*CELERY, "worker"],
    "scheduler": [*CELERY, "beat"],
    "close_period": [sys.executable, "manage.py", "close_period", "2026-03"],
    "pull_usage": [sys.executable, "manage.py", "pull_usage", "lab", "--json"],
}


@pytest.mark.django_db
@pytest.mark.parametrize("name", PROCESSES)
def test_case_092_nothing_begins_over_a_schema_of_another_version(name: str, tmp_path: Path) -> None:
    environ = os.environ | {
        "DJANGO_SETTINGS_MODULE": "portal.settings",
        "CLUSTERTAB_HOME": str(tmp_path),
        "DATABASE_URL": os.environ["DATABASE_URL"],  # not the test database: nothing was ever migrated there
        "REDIS_URL": f"unix://{tmp_path}/none.sock",
        "PORT": "0",
    }
    done = subprocess.run(
        PROCESSES[name], env=environ, cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE
    )
    assert done.returncode == 3
    assert "migrations have not run" in done.stderr
    assert "run the command migrate." in done.stderr
    assert "Traceback" not in done.stderr
    assert not done.stdout or name == "scheduler"  # which greets


@pytest.mark.django_db
def test_case_092_a_single_migration_that_has_not_run_is_named() -> None:
    assert pending_migrations() == []
    newest = MigrationRecorder.Migration.objects.filter(app="billing").latest("name")
    with as_owner():
        newest.delete()
    assert pending_migrations() == [f"billing.{newest.name}"]


@pytest.mark.django_db
def test_case_092_tables_without_what_stands_beside_them_are_not_current() -> None:
    """As a first start leaves them that was killed between the two."""
    mark(complete=False)
    assert pending_migrations() == ["what stands beside the tables"]


@pytest.mark.django_db
def test_a_database_of_another_schema_is_refused_by_whatever_asks_for_it() -> None:
    mark(digest="0123456789abcdef")
    with pytest.raises(OtherSchemaError):
        pending_migrations()
    for form in ([], ["billing"], ["--plan"], ["--check"], ["billing", "--check"]):
        with pytest.raises(CommandError, match="start afresh with an empty database"):
            call_command("migrate", *form, verbosity=0)
    with as_owner() as cursor:
        cursor.execute("DROP TABLE schema_level")  # as all were that were made before there was a mark
    with pytest.raises(CommandError, match="start afresh with an empty database"):
        call_command("migrate", verbosity=0)


@pytest.mark.django_db
def test_programs_run_over_a_later_schema_as_long_as_that_says_so() -> None:
    mark(level=CURRENT.number + 2, programs_from=CURRENT.number, digest="0123456789abcdef")
    assert pending_migrations() == []
    mark(programs_from=CURRENT.number + 1)
    with pytest.raises(OtherSchemaError, match="upgraded by a newer release"):
        pending_migrations()
    with pytest.raises(CommandError, match="upgraded by a newer release"):
        call_command("migrate", verbosity=0)


@pytest.mark.django_db
def test_a_database_of_an_earlier_level_waits_for_migrate() -> None:
    mark(level=CURRENT.number - 1, programs_from=0, digest="0123456789abcdef")
    assert pending_migrations() == ["what stands beside the tables"]


@pytest.mark.django_db
def test_programs_that_dropped_months_shut_out_stay_so_after_the_next_upgrade() -> None:
    mark(level=CURRENT.number - 1, programs_from=CURRENT.programs_from + 1)
    with as_owner() as cursor:
        schema.raise_level()
        cursor.execute("SELECT level, programs_from FROM schema_level")
        assert cursor.fetchone() == (CURRENT.number, CURRENT.programs_from + 1)


def test_an_upgrade_waits_for_no_table_longer_than_a_page_may(tmp_path: Path) -> None:
    """Whoever holds one is named by the statement that the sentence says; what came before stays."""
    with Postgres(tmp_path, volatile=True) as server:
        environ = environment_of(server, tmp_path)
        subprocess.run(MIGRATE, env=environ, cwd=ROOT, check=True, capture_output=True)
        with psycopg.connect(server.owner_url()) as holder:
            holder.execute("UPDATE schema_level SET level = level - 1, programs_from = 0")
            holder.commit()
            holder.execute("LOCK TABLE schema_level IN EXCLUSIVE MODE")
            impatient = [sys.executable, "-c", IMPATIENT]
            refused = subprocess.run(
                impatient, env=environ, cwd=ROOT, capture_output=True, text=True, check=False
            )
            assert refused.returncode == 1
            assert "Another session holds a table that this upgrade changes" in refused.stderr
            assert "Traceback" not in refused.stderr
        subprocess.run(MIGRATE, env=environ, cwd=ROOT, check=True, capture_output=True)


@pytest.mark.parametrize(
    "killed_after",
    ["some tables", *(pytest.param(step, marks=pytest.mark.long) for step in ("the mark", "all tables"))],
)
def test_a_first_start_that_was_killed_is_finished_by_the_next(killed_after: str, tmp_path: Path) -> None:
    with Postgres(tmp_path, volatile=True) as server:
        steps = {"the mark": None, "some tables": "clusters", "all tables": "billing"}
        script = "import django; django.setup(); from portal.ops import schema\n"
        if application := steps[killed_after]:
            script += (
                f"from django.core.management import call_command; call_command('migrate', '{application}')"
            )
        else:
            script += "with schema.as_owner(): schema.begin()"
        environ = environment_of(server, tmp_path)
        subprocess.run([sys.executable, "-c", script], env=environ, cwd=ROOT, check=True, capture_output=True)
        checked = subprocess.run(
            [*MIGRATE, "--check"], env=environ, cwd=ROOT, capture_output=True, text=True, check=False
        )
        assert (checked.returncode, "Traceback" in checked.stderr) == (1, False)
        for form in ([], [], ["--check"]):
            subprocess.run([*MIGRATE, *form], env=environ, cwd=ROOT, check=True, capture_output=True)
        with psycopg.connect(server.url()) as reader:
            laws = "SELECT count(*) FROM pg_trigger WHERE tgname LIKE 'audit_%' OR tgname LIKE 'pgtrigger_%'"
            assert reader.execute("SELECT complete FROM schema_level").fetchall() == [(True,)]
            assert (reader.execute(laws).fetchone() or (0,))[0] > 100


def test_two_migrations_at_once_make_one_schema(tmp_path: Path) -> None:
    """As two hosts of a deployment do that start together over a database of its own."""
    with Postgres(tmp_path, volatile=True) as server:
        environ = environment_of(server, tmp_path)
        both = [
            subprocess.Popen(MIGRATE, env=environ, cwd=ROOT, stderr=subprocess.PIPE, text=True)
            for _ in range(2)
        ]
        ends = [(process.communicate(timeout=PATIENCE)[1], process.returncode) for process in both]
        assert ends == [("", 0), ("", 0)]
        with psycopg.connect(server.url()) as reader:
            assert reader.execute("SELECT complete FROM schema_level").fetchall() == [(True,)]


def test_another_login_is_let_in_by_the_next_migration(tmp_path: Path) -> None:
    """As after a restore on a server whose logins are called otherwise."""
    with Postgres(tmp_path, volatile=True) as server:
        environ = environment_of(server, tmp_path)
        subprocess.run(MIGRATE, env=environ, cwd=ROOT, check=True, capture_output=True)
        with psycopg.connect(server.owner_url()) as owner:
            owner.execute("CREATE ROLE tab LOGIN PASSWORD 'of tab'")
        environ["DATABASE_URL"] = (
            server.url()
            .replace("//clustertab:", "//tab:")
            .replace(server.password_file.read_text().strip(), "of%20tab")
        )
        subprocess.run(MIGRATE, env=environ, cwd=ROOT, check=True, capture_output=True)
        with psycopg.connect(environ["DATABASE_URL"]) as tab:
            assert tab.execute("SELECT count(*) FROM billing_invoice").fetchone() == (0,)
            tab.execute("SET ROLE clustertab_portal")


def environment_of(server: Postgres, home: Path) -> dict[str, str]:
    return os.environ | {
        "DJANGO_SETTINGS_MODULE": "portal.settings",
        "CLUSTERTAB_HOME": str(home),
        "DATABASE_URL": server.url(),
        "DATABASE_OWNER_URL": server.owner_url(),
    }


def mark(**columns: str | int) -> None:
    """Change what the database says of its schema."""
    with as_owner() as cursor:
        for column, value in columns.items():
            cursor.execute(f"UPDATE schema_level SET {column} = %s", [value])
