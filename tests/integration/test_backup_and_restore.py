"""A backup is restored into a second instance and proved, by the commands of docs/how-to/backup.md."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
import yaml
from cryptography.fernet import Fernet
from django.db import connection

from billing.models import Invoice
from portal.core.vault import seal
from portal.dev.embedded.postgres import binaries
from portal.env import ROOT
from portal.instance import VERSION
from portal.ops import backups
from tests.schedulers import a_connection
from tests.web.house import a_house

pytestmark = pytest.mark.usefixtures("transactional_db")

PREFIXES = {
    "without containers": ["-m", "portal.ops.manage"],
    "in a container": [
        word
        for word in yaml.safe_load((ROOT / "docker-compose.yml").read_text())["services"]["manage"][
            "entrypoint"
        ]
        if word != "python"
    ],
}


class Shell:
    """Op's, in a directory of its own; `prefix` is what stands before each command."""

    def __init__(self, database_url: str, home: Path, keys: str) -> None:
        self.file = home / "clustertab.dump"
        self.prefix = PREFIXES["without containers"]
        self.environ = os.environ | {
            "PATH": f"{binaries()}:{os.environ['PATH']}",
            "DJANGO_SETTINGS_MODULE": "portal.settings",
            "CLUSTERTAB_HOME": str(home),
            "DATABASE_URL": database_url,
            "CLUSTERTAB_SECRET_KEYS": keys,
            "SECRET_KEY": "of no consequence in tests",
        }

    def does(self, *command: object) -> tuple[int, str]:
        """Its exit code, and what it said."""
        done = subprocess.run(
            [sys.executable, *self.prefix, *map(str, command)],
            env=self.environ, cwd=ROOT, capture_output=True, text=True, timeout=300,
        )  # fmt: skip
        assert "Traceback" not in done.stderr, done.stderr
        return done.returncode, done.stdout + done.stderr


@pytest.fixture
def op(database_url: str, tmp_path: Path, settings: object) -> Shell:
    """A closed March, and a cluster with a token."""
    with connection.cursor() as cursor:
        cursor.execute("SHOW server_version")
        if cursor.fetchone()[0].split(".")[0] != VERSION:
            pytest.skip("needs the embedded PostgreSQL: pg_dump writes what only its own version reads")
    keys = ",".join(settings.CLUSTERTAB_SECRET_KEYS)  # type: ignore[attr-defined]
    house = a_house()
    house.cluster.kind = "slurm"
    house.cluster.save()
    a_connection(house.cluster, token=seal("a token"))
    return Shell(database_url, tmp_path, keys)


@pytest.fixture
def second(database_url: str) -> Iterator[str]:
    """An empty database of a second instance."""
    owner = backups.with_name(os.environ["DATABASE_OWNER_URL"], backups.name_of(database_url))
    with backups.scratch_database(owner) as name:
        yield backups.with_name(database_url, name)


def databases(url: str) -> set[str]:
    with psycopg.connect(url) as database:
        return {name for (name,) in database.execute("SELECT datname FROM pg_database")}


PROOFS = {"billing_monthproof", "billing_monthsum", "billing_proofmark"}


def counts(url: str) -> dict[str, int]:
    """Rows of every table, but for what proving keeps, which a restore does anew."""
    with psycopg.connect(url) as database:
        names = database.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'public'").fetchall()
        row_counts = {}
        for (name,) in names:
            (row_counts[name],) = database.execute(f'SELECT count(*) FROM "{name}"').fetchone() or (0,)
    return {name: count for name, count in row_counts.items() if name not in PROOFS}


@pytest.mark.parametrize("where", ["without containers", "in a container"])
def test_a_backup_is_previewed_and_restored_and_everything_is_there(
    op: Shell, second: str, database_url: str, where: str
) -> None:
    op.prefix = PREFIXES[where]
    code, output = op.does("backup_database", op.file)
    assert code == 0, output
    key = op.environ["CLUSTERTAB_SECRET_KEYS"].split(",")[0]
    assert f"CLUSTERTAB_SECRET_KEYS ({backups.fingerprint(key)}" in output
    assert key not in output
    assert oct(op.file.stat().st_mode)[-3:] == "600"

    before = databases(database_url)
    code, output = op.does("restore_database", op.file, "--preview")
    assert code == 0, output
    assert re.search(r"Every sum closes\. [34] stored secrets can be read\.", output), output
    assert databases(database_url) == before

    there, here = second, counts(database_url)
    op.environ["DATABASE_URL"] = there
    code, output = op.does("restore_database", op.file)
    assert code == 0, output
    assert counts(there) == here
    assert here["billing_invoice"] == Invoice.objects.count() > 0
    code, output = op.does("restore_database", op.file)
    assert code == 1
    assert re.search(
        r"is not empty \(\d+ tables\), and nothing was changed: restore into a new one\.", output
    )
    assert op.does("show_invoices")[0] == 0  # the second instance works


def test_what_a_preview_that_was_killed_has_left_is_dropped_by_the_next(
    op: Shell, second: str, database_url: str
) -> None:
    assert op.does("backup_database", op.file)[0] == 0
    before = databases(database_url)
    assert backups.name_of(second) in before  # of a preview that is at work
    owner = backups.with_name(os.environ["DATABASE_OWNER_URL"], backups.name_of(database_url))
    script = (
        "import os, sys; from portal.ops import backups\n"
        "with backups.scratch_database(sys.argv[1]): os.kill(os.getpid(), 9)"
    )
    killed = subprocess.run([sys.executable, "-c", script, owner], env=op.environ, cwd=ROOT, check=False)
    assert killed.returncode == -9
    assert len(databases(database_url) - before) == 1
    assert op.does("restore_database", op.file, "--preview")[0] == 0
    assert databases(database_url) == before


def test_what_cannot_be_restored_is_a_sentence(op: Shell, tmp_path: Path) -> None:
    assert op.does("backup_database", op.file)[0] == 0
    whole = op.file.read_bytes()
    for content, sentence in (
        (b"no dump", "pg_restore failed"),
        (whole[: len(whole) // 2], "pg_restore failed"),
    ):
        torn = tmp_path / "torn.dump"
        torn.write_bytes(content)
        code, output = op.does("restore_database", torn, "--preview")
        assert (code, sentence in output) == (1, True), output
    code, output = op.does("restore_database", tmp_path / "none.dump", "--preview")
    assert (code, "There is no file" in output) == (1, True)
    code, output = op.does("backup_database", "/nowhere/clustertab.dump")
    assert (code, "cannot be written: No such file or directory" in output) == (1, True)
    op.environ["CLUSTERTAB_SECRET_KEYS"] = Fernet.generate_key().decode()
    code, output = op.does("restore_database", op.file, "--preview")
    assert (code, "none of CLUSTERTAB_SECRET_KEYS is the key that encrypted it" in output) == (1, True), (
        output
    )
