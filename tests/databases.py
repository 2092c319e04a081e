"""The test database: a copy of one that was migrated once.

The copy that all others are copied from is kept under `var/test/template`, by a hash of what makes a schema. It is
made beside its place and renamed, under a lock that the kernel gives back however its holder ends: half of one is
never used.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from django.conf import settings
from django.db import connection, connections
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.backends.base.creation import TEST_DATABASE_PREFIX
from django.test.utils import setup_databases

from portal.dev.embedded.postgres import Postgres
from portal.env import ROOT
from portal.instance import OWNER, ROLE
from portal.ops.schema import as_owner

TEMPLATES = ROOT / "var" / "test" / "template"
SOURCES = ("billing", "clusters", "portal")
APART = ROOT / "portal" / "web"  # no table comes from there
SUFFIXES = {".py", ".sql"}

NUMBERS = """
SELECT setval(format('%I.%I', schemaname, sequencename)::regclass,
              10000 * row_number() OVER (ORDER BY schemaname, sequencename))
  FROM pg_sequences WHERE max_value > 100000000
"""
# That nearly every story is in: else each would make its partitions, which costs as much as a small story.
MONTHS = """
SELECT billing_ensure_month(month), billing_ensure_jobs(number), clusters_ensure_records(number)
  FROM unnest('{2026-03-01}'::date[]) AS month, month_number(extract(epoch FROM month)::bigint) AS number
"""
# Triggers that forbid a DELETE and foreign keys are for the application; only a superuser may lend this right. A test
# that breaks a law of the schema does so as the owner of the tables (tests.owner), and says so.
LENT = f"""\
GRANT SET ON PARAMETER session_replication_role TO {ROLE};
GRANT {OWNER} TO {ROLE} WITH INHERIT FALSE;
"""


def migrate() -> list[tuple[BaseDatabaseWrapper, str, bool]]:
    """Each table counts from a number of its own, so that the id of one is never by chance that of another.

    The month that nearly all stories are in has its partitions.
    """
    with as_owner():
        created = setup_databases(verbosity=0, interactive=False)
        with connection.cursor() as cursor:
            cursor.execute(NUMBERS)
            cursor.execute(MONTHS)
    return created


def start(postgres: Postgres) -> None:
    """Start the server with a migrated database, and have Django use it; the migrations run once for a schema."""
    with postgres.locked():
        postgres.stop()  # what a run left that was killed here
        shutil.rmtree(postgres.data, ignore_errors=True)
    name = f"{TEST_DATABASE_PREFIX}{connection.settings_dict['NAME']}"
    template = TEMPLATES / schema()
    with _locked(fcntl.LOCK_SH):
        if template.exists():
            copy_tree(template, postgres.data)
    if not postgres.data.exists():
        with _locked(fcntl.LOCK_EX):
            if not template.exists():
                _make(template, postgres)
            if not postgres.data.exists():
                copy_tree(template, postgres.data)
    settings.DATABASES["default"]["NAME"] = connection.settings_dict["NAME"] = name
    postgres.__enter__()


def schema() -> str:
    """A hash of all that tables, triggers and their first rows are made of."""
    digest = hashlib.sha256()
    paths = [ROOT / "requirements-dev.txt", Path(__file__)]
    for folder in SOURCES:
        paths += (path for path in (ROOT / folder).rglob("*") if path.suffix in SUFFIXES)
    for path in sorted(paths):
        if not path.is_relative_to(APART):
            digest.update(str(path.relative_to(ROOT)).encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()[:16]


def _make(template: Path, postgres: Postgres) -> None:
    """Migrate in the server's own place, and keep a copy; copies of other schemas and halves of one go."""
    with postgres:
        migrate()
        connections.close_all()
    postgres._program("postgres", ["--single", "-D", str(postgres.data), "postgres"], LENT)
    for old in TEMPLATES.iterdir():
        if old.is_dir():
            shutil.rmtree(old)
    part = template.with_suffix(".part")
    copy_tree(postgres.data, part)
    os.sync()  # the server itself waits for no disk
    part.rename(template)


def copy_tree(source: Path, target: Path) -> None:
    subprocess.run(["cp", "-a", "--reflink=auto", str(source), str(target)], check=True)


@contextmanager
def _locked(kind: int) -> Iterator[None]:
    TEMPLATES.mkdir(parents=True, exist_ok=True)
    with (TEMPLATES / "lock").open("ab") as lock:
        fcntl.flock(lock, kind)
        yield
