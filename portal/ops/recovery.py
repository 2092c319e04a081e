"""Recovery to a moment: a base backup and the archived WAL, replayed by a server of its own in a directory of its own.

Whatever the backup's configuration says, this server listens on a private socket alone and archives nothing, so that
neither the live database nor its archive is touched.
"""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote

import psycopg

from portal.instance import postgres_programs
from portal.ops import wal_archive
from portal.ops.backups import BackupError, last_line
from portal.ops.processes import die_with_parent

WAIT = 0.1  # seconds between two looks at the server
INSTALLED = Path("/usr/lib/postgresql")  # where Debian puts the server's programs, by version
PORT = "5432"  # part of the socket's name
SETTINGS = {  # given on the command line, they win over the backup's postgresql.auto.conf
    "listen_addresses": "",
    "port": PORT,
    "unix_socket_permissions": "0700",
    "archive_mode": "off",
    "hot_standby": "off",  # nobody reads before it is done; nor are the first server's limits needed then
    "primary_conninfo": "",
    "recovery_min_apply_delay": "0",
    "recovery_target": "",
    "recovery_target_name": "",
    "recovery_target_lsn": "",
    "recovery_target_xid": "",
    "recovery_end_command": "",
    "archive_cleanup_command": "",
    "shared_preload_libraries": "",
    "session_preload_libraries": "",
    "ssl": "off",
    "max_connections": "20",
    "max_locks_per_transaction": "512",  # a statement over all months of a table locks each, with its indexes
    "dynamic_shared_memory_type": "mmap",
    "log_destination": "stderr",
    "logging_collector": "off",
    "log_min_error_statement": "panic",  # statements carry people's data
    "log_timezone": "UTC",
    "timezone": "UTC",
}


@dataclass
class Recovered:
    """A server that has replayed all that was wanted. `seconds`: what each step took, in order."""

    url: str  # which only who runs the server can use
    archive: wal_archive.WalArchive
    last_change: datetime | None = None
    seconds: dict[str, float] = field(default_factory=dict)

    @contextmanager
    def timed(self, step: str) -> Iterator[None]:
        began = time.monotonic()
        yield
        self.seconds[step] = time.monotonic() - began


@contextmanager
def recovered(
    base: Path, archive: Path, directory: Path, *, at: datetime | None, login: str, database: str
) -> Iterator[Recovered]:
    """Make `directory` the server's data as of that moment, or of the end of the archive, and serve it meanwhile.

    `login` may open `database` there without a password, by a socket that only we can use. The server has stopped
    afterwards, and the directory is as a server of its own would leave it. Raises BackupError.
    """
    _check(base, archive, directory)
    wal = wal_archive.examine(archive, base=base)
    if wal.flaw and at is None:
        raise BackupError(f"{wal.flaw} Find it, or recover to a moment before it with --at.")
    with tempfile.TemporaryDirectory(prefix="clustertab-recovery-") as socket:
        place = f"{quote(database, safe='')}?host={quote(socket, safe='')}"
        done = Recovered(f"postgresql://{quote(login, safe='')}@:{PORT}/{place}", wal)
        with done.timed("copy"):
            _copy(base, directory)
        os.chown(socket, _account(base).get("user", -1), -1)
        with done.timed("replay"):
            try:
                server = _start(directory, archive, Path(socket), done.url, at)
            except BackupError as error:
                raise BackupError(f"{error} {wal.flaw}".strip()) from error
        try:
            done.last_change = _last_change(done.url)
            yield done
        finally:
            server.send_signal(signal.SIGINT)  # a fast shutdown, with its checkpoint
            server.wait()


def _check(base: Path, archive: Path, directory: Path) -> None:
    if not (base / "backup_label").is_file():
        raise BackupError(f"{base} is no base backup: make one with `pg_basebackup --pgdata={base}`.")
    if not archive.is_dir():
        raise BackupError(f"There is no directory {archive}.")
    if any((base / "pg_tblspc").iterdir()):
        raise BackupError(
            f"{base} has tablespaces, which lie in directories of the live server: recover it by hand."
        )
    if directory.exists() and (not directory.is_dir() or any(directory.iterdir())):
        running = (directory / "postmaster.pid").exists()
        stop = f" Stop its server first: pg_ctl stop -D {directory}." if running else ""
        raise BackupError(f"{directory} is not empty, and nothing was changed: name another directory.{stop}")
    if os.geteuid() == 0 and base.stat().st_uid == 0:
        raise BackupError("PostgreSQL does not run as root: do this as the user who made the base backup.")


def _copy(base: Path, directory: Path) -> None:
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        done = subprocess.run(
            ["cp", "-a", "--reflink=auto", f"{base}/.", str(directory)], capture_output=True, text=True
        )
        if done.returncode:
            raise BackupError(f"{base} cannot be copied: {last_line(done.stderr)}")
        directory.chmod(0o700)
        (directory / "standby.signal").unlink(missing_ok=True)  # it would wait for more for ever
        mark = directory / "recovery.signal"
        mark.touch(mode=0o600)
        for path in (directory, mark):
            os.chown(path, _account(base).get("user", -1), -1)
    except OSError as error:
        raise BackupError(f"{directory} cannot be written: {error.strerror}.") from error


def _start(
    directory: Path, archive: Path, socket: Path, url: str, at: datetime | None
) -> subprocess.Popen[bytes]:
    """The server, once it has replayed what is wanted and takes writes. Raises BackupError with what its log says."""
    log, empty, hba = (socket / name for name in ("log", "empty.conf", "hba.conf"))
    empty.touch()
    hba.write_text("local all all trust\n")  # of the socket's directory, which is ours alone
    source = shlex.quote(str(archive.resolve())).replace("%", "%%")
    options = SETTINGS | {
        "config_file": str(empty),
        "hba_file": str(hba),
        "unix_socket_directories": str(socket),
        "restore_command": f'cp {source}/%f "%p"',
        "recovery_target_action": "promote",
        "recovery_target_timeline": "latest",
        "recovery_target_time": "" if at is None else at.astimezone(UTC).isoformat(sep=" "),
    }
    words = [part for name, value in options.items() for part in ("-c", f"{name}={value}")]
    with log.open("wb") as output:
        server = subprocess.Popen(
            [str(_programs(directory) / "postgres"), "-D", str(directory), *words],
            stdout=output, stderr=output, cwd=directory, start_new_session=True, **_account(directory),
            preexec_fn=die_with_parent,  # noqa: PLW1509 - this process has one thread
        )  # fmt: skip
    try:
        while _ask(url, "SELECT pg_is_in_recovery()", is_ready=_is_ready(server, directory)) != (False,):
            if server.poll() is not None:
                raise BackupError(_failure(log.read_text(errors="replace"), at))
            time.sleep(WAIT)
    except BaseException:
        if server.poll() is None:
            server.send_signal(signal.SIGINT)
            server.wait()
        raise
    return server


def _is_ready(server: subprocess.Popen[bytes], directory: Path) -> bool:
    """Whether it says so in its file, of which a base backup may hold an older server's: recovery is over then."""
    try:
        words = (directory / "postmaster.pid").read_text().split()
    except FileNotFoundError:
        return False
    return words[:1] == [str(server.pid)] and words[-1] == "ready"


def _failure(log: str, at: datetime | None) -> str:
    lines = log.splitlines()
    if at is not None and "recovery ended before configured recovery target was reached" in log:
        mark = "last completed transaction was at log time "
        last = next((line.partition(mark)[2] for line in reversed(lines) if mark in line), "")
        until = f"the last change before that is of {last}" if last else "it has no change"
        return f"The archive does not reach {at:%Y-%m-%d %H:%M:%S} UTC: {until}."
    fatal = [line.partition("FATAL:")[2].strip() for line in lines if "FATAL:" in line]
    reasons = [reason for reason in fatal if not reason.startswith("the database system is")]  # said to us
    return f"The database cannot be recovered: {(reasons or [last_line(log)])[-1]}."


def _last_change(url: str) -> datetime | None:
    """When the last transaction that was replayed committed; None where none was."""
    row = _ask(url, "SELECT pg_last_xact_replay_timestamp()", is_ready=True)
    return row[0].astimezone(UTC) if row and row[0] else None


def _ask(url: str, statement: str, *, is_ready: bool) -> tuple[Any, ...] | None:
    """Of the server; None while it does not answer. Raises BackupError where a server that is ready does not."""
    try:
        with psycopg.connect(url) as connection:
            return connection.execute(statement.encode()).fetchone()
    except psycopg.OperationalError as error:
        if "does not exist" in str(error):  # of the role or the database
            raise BackupError(f"DATABASE_URL is not of this backup: {last_line(str(error))}.") from error
        if is_ready:
            raise BackupError(f"The recovered server refuses us: {last_line(str(error))}.") from error
        return None


def _account(path: Path) -> dict[str, Any]:
    """As root, the server runs as the owner of what it reads, as subprocess wants to be told."""
    owner = path.stat()
    if os.geteuid() != 0:
        return {}
    return {"user": owner.st_uid, "group": owner.st_gid, "extra_groups": []}


def _programs(base: Path) -> Path:
    """The directory of the server's programs of the backup's version: Debian's, on the PATH, or the embedded ones."""
    version = (base / "PG_VERSION").read_text().strip()
    on_path = shutil.which("postgres")
    places = (INSTALLED / version / "bin", Path(on_path).parent if on_path else None, postgres_programs())
    for place in places:
        if place is not None and (place / "postgres").is_file():
            words = [str(place / "postgres"), "--version"]
            version_text = subprocess.run(words, capture_output=True, text=True).stdout
            if f"(PostgreSQL) {version}." in version_text:
                return place
    raise BackupError(
        f"The server of PostgreSQL {version} is not installed here: do this where postgresql-{version} is."
    )
