"""The PostgreSQL of this test process. Processes at the same time each take a slot, so none sees another's rows."""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import tempfile
from pathlib import Path

from portal.dev.embedded.host import private_directory
from portal.dev.embedded.postgres import Postgres
from portal.env import ROOT

SLOTS = 32
MEMORY = Path("/dev/shm")
ENOUGH_MEMORY = 3 << 30  # bytes; a container's default of 64 MiB would not hold a month of jobs
PASSWORD = "of-no-consequence-in-tests"  # the same in each slot, since all begin as copies of one database


def _claim() -> tuple[int, int]:
    """The first free slot and its open lock, which nobody closes: it is ours until this process and its keeper end."""
    directory = ROOT / "var" / "test"
    directory.mkdir(parents=True, exist_ok=True)
    for slot in range(SLOTS):
        lock = os.open(directory / f"slot-{slot}.lock", os.O_WRONLY | os.O_CREAT, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(lock)
            continue
        return slot, lock
    raise RuntimeError(f"{SLOTS} test runs are at work already.")


def _home(slot: int) -> Path:
    """In shared memory where there is enough of it, else under var/."""
    try:
        free = shutil.disk_usage(MEMORY).free
    except OSError:
        free = 0
    if free < ENOUGH_MEMORY or not os.access(MEMORY, os.W_OK):
        return ROOT / "var" / "test" / f"slot-{slot}"
    return MEMORY / f"clustertab-test-{os.geteuid()}-{_mark()}-{slot}"


def _mark() -> str:
    """Of this checkout among others."""
    return hashlib.sha256(os.fsencode(ROOT)).hexdigest()[:8]


SLOT, LOCK = _claim()
HOME = _home(SLOT)
# For tmp_path: runs that share a directory clear each other's leftovers away while they are at it.
TEMPORARY = Path(tempfile.gettempdir()) / f"clustertab-tests-{os.geteuid()}-{_mark()}-{SLOT}"
POSTGRES = Postgres(HOME, volatile=True)
private_directory(POSTGRES.base)
# Now, so that the address is complete before the server is needed.
POSTGRES.password_file.write_text(PASSWORD)
POSTGRES.owner_password_file.write_text(PASSWORD)


def address() -> str:
    """The server that a person chose by DATABASE_URL, else ours: not the one of the process that started us."""
    chosen = os.environ.get("DATABASE_URL", "")
    return chosen if chosen and PASSWORD not in chosen else POSTGRES.url()


def owner_address() -> str:
    """Of who owns its tables."""
    ours = address() == POSTGRES.url()
    return POSTGRES.owner_url() if ours else os.environ.get("DATABASE_OWNER_URL") or address()
