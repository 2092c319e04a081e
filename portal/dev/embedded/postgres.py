"""PostgreSQL 18 under the instance's home: no TCP, a private socket, a password of its own.

Only the server's programs come from the installed package; how it runs is decided here.
"""

from __future__ import annotations

import os
import secrets
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from portal import instance
from portal.dev.embedded.host import EmbeddedError, account, is_full, unprivileged
from portal.dev.embedded.peer import Peer

# Neither is a superuser. The owner of the tables migrates: it may create databases (for tests) and the roles that row
# security needs. Everything else runs as the other login, to which it grants them.
ROLES = """\
CREATE ROLE {owner} LOGIN NOSUPERUSER CREATEDB CREATEROLE PASSWORD '{owner_password}';
CREATE ROLE {role} LOGIN NOSUPERUSER PASSWORD '{password}';
CREATE DATABASE {database} OWNER {owner};
"""

SETTINGS = {
    "listen_addresses": "",
    "unix_socket_permissions": "0700",
    "max_connections": "60",
    "shared_buffers": "128MB",
    "max_wal_size": "2GB",
    "max_locks_per_transaction": "512",  # a statement over all months of a table locks each, with its indexes
    "dynamic_shared_memory_type": "mmap",  # a container's /dev/shm is often too small for parallel queries
    "log_min_messages": "warning",
    "log_min_error_statement": "panic",  # statements carry people's data
    "log_checkpoints": "off",
    "timezone": "UTC",
    "log_timezone": "UTC",
}
# For databases that are thrown away: nothing waits for a disk.
VOLATILE = {
    "fsync": "off",
    "synchronous_commit": "off",
    "full_page_writes": "off",
    "wal_level": "minimal",
    "max_wal_senders": "0",
}


@dataclass
class Postgres(Peer):
    """`volatile` gives up durability for speed; for tests only."""

    volatile: bool = False

    def __post_init__(self) -> None:
        self.name, self.program, self.socket_name = "postgres", ("postgres",), instance.POSTGRES_SOCKET

    @property
    def password_file(self) -> Path:
        return instance.password_file(self.base)

    @property
    def owner_password_file(self) -> Path:
        return instance.password_file(self.base, owner=True)

    def url(self) -> str:
        return instance.database_url(self.home)

    def owner_url(self) -> str:
        """The same for the login that owns the tables."""
        return instance.database_url(self.home, owner=True)

    def main_process(self) -> int | None:
        """The postmaster; its backends may outlive it for a moment."""
        try:
            pid = int((self.data / "postmaster.pid").read_text().split("\n", 1)[0])
        except (OSError, ValueError):
            return None
        return pid if pid in self.processes() else None

    def prepare(self) -> None:
        """Create the cluster beside its place and rename: either all of it is there or nothing."""
        (self.data / "postmaster.pid").unlink(missing_ok=True)  # no process of it lives, we have looked
        if self.data.exists():
            self._refuse_other_version()
            return
        for left in self.base.glob("data.new*"):
            shutil.rmtree(left)
        temp_path = self.base / f"data.new.{os.getpid()}"
        passwords = {
            "password": _password(self.password_file),
            "owner_password": _password(self.owner_password_file),
        }
        self._program("initdb", self._initdb_options(temp_path))
        # The superuser has no password, so it cannot sign in: it enters by `postgres --single` alone.
        (temp_path / "pg_hba.conf").write_text("local all all scram-sha-256\n")
        single = ["--single", "-D", str(temp_path), "-c", "log_min_error_statement=panic", "postgres"]
        names = {"role": instance.ROLE, "owner": instance.OWNER, "database": instance.DATABASE}
        sql = ROLES.format(**names, **passwords)
        self._program("postgres", single, sql)
        temp_path.rename(self.data)

    def command(self) -> list[str]:
        options = SETTINGS | (VOLATILE if self.volatile else {}) | {"unix_socket_directories": str(self.run)}
        return [
            str(binaries() / "postgres"),
            "-D",
            str(self.data),
            *(part for name, value in options.items() for part in ("-c", f"{name}={value}")),
        ]

    def ready(self) -> bool:
        if not self.socket.exists():
            return False
        probe = [str(binaries() / "pg_isready"), "-q", "-t", "3", "-h", str(self.run)]
        return subprocess.run(probe, capture_output=True).returncode == 0

    def _initdb_options(self, directory: Path) -> list[str]:
        options = [
            "--username=postgres",
            "--auth=trust",  # until pg_hba.conf is replaced, before any server runs
            "--encoding=UTF8",
            "--locale-provider=builtin",
            "--builtin-locale=C.UTF-8",
            "--locale=C",
            f"--pgdata={directory}",
        ]
        return [*options, "--no-sync", "--no-data-checksums"] if self.volatile else options

    def _program(self, name: str, options: list[str], text: str = "") -> None:
        """Run one of PostgreSQL's programs to its end; secrets go through pipes, never through arguments."""
        done = subprocess.run(
            [*unprivileged(), str(binaries() / name), *options],
            input=text,
            capture_output=True,
            text=True,
            cwd=self.base,
            **account(),
        )
        if done.returncode != 0 or "ERROR:" in done.stderr or "FATAL:" in done.stderr:
            output = f"{done.stdout}\n{done.stderr}"
            if is_full(self.base, output):
                raise EmbeddedError(instance.full_disk(self.base))
            telling = [line for line in output.splitlines() if "rror:" in line or "FATAL:" in line]
            reason = (telling or [output])[0]
            raise EmbeddedError(f"The embedded postgres cannot be set up in {self.base}: {reason.strip()}")

    def _refuse_other_version(self) -> None:
        there = (self.data / "PG_VERSION").read_text().strip()
        if there != instance.VERSION:
            raise EmbeddedError(
                f"{self.data} was made by PostgreSQL {there}, and {instance.VERSION} is installed: "
                "dump it with the old programs, or start from an empty CLUSTERTAB_HOME."
            )


def _password(path: Path) -> str:
    """The password in the file, made when first asked for. The caller holds the lock or is alone."""
    if not path.exists():
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(handle, "w") as file:
            file.write(secrets.token_hex(24))
    return path.read_text().strip()


def binaries() -> Path:
    directory = instance.postgres_programs()
    if directory is None:
        raise EmbeddedError("The embedded PostgreSQL is not installed; set DATABASE_URL, or call ./run.")
    return directory
