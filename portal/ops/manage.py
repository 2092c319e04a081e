"""`./run manage`: an operator command against a database that is named, or that `portal.dev.manage` has started.

What the command prints on standard output stays alone there; our own words go to standard error.
"""

from __future__ import annotations

import fcntl
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from portal import env
from portal.env_variables import SettingError
from portal.instance import full_disk
from portal.ops import connectivity
from portal.ops.connectivity import UnreachableError

# They look after the schema themselves, or need none.
WITHOUT_SCHEMA = {
    "check", "collectstatic", "compilemessages", "diffsettings", "help", "makemessages", "makemigrations",
    "migrate", "recover_database", "restore_database", "showmigrations", "sqlmigrate", "squashmigrations", "test",
    "version", "--help", "--version",
}  # fmt: skip


def main(arguments: list[str], *, embedded: bool = False) -> int:
    """Returns the exit code. An `embedded` database runs already, and is brought to this code's schema."""
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "portal.settings")
    try:
        if arguments[0] not in WITHOUT_SCHEMA:
            prepare(env.home_of(), embedded=embedded)
        return run(arguments)
    except (UnreachableError, SettingError) as error:
        sys.stderr.write(f"{error}\n")
        return 2
    except KeyboardInterrupt:
        return 130


def run(arguments: list[str]) -> int:
    from django.core.management import execute_from_command_line
    from django.db import OperationalError
    from psycopg.errors import DiskFull

    try:
        execute_from_command_line(["./run manage", *arguments])
    except OperationalError as error:
        if not isinstance(error.__cause__, DiskFull):
            raise
        sys.stderr.write(f"{full_disk(env.home_of())}\n")
        return 2
    except SystemExit as end:
        if isinstance(end.code, str):
            sys.stderr.write(f"{end.code}\n")
            return 1
        return end.code or 0
    return 0


def prepare(home: Path, *, embedded: bool) -> None:
    """Bring the embedded database to this code's schema; of two first commands at once, one does it.

    A database of the operator's own is not migrated unasked: SystemExit with a sentence where it is behind.
    """
    import django
    from django.conf import settings

    from portal.ops.schema import OtherSchemaError, current, pending_migrations, refuse_unmigrated

    django.setup()
    if not embedded:
        connectivity.database(settings.DATABASE_URL)
        refuse_unmigrated()
        return
    try:
        if not pending_migrations():
            current.append(True)
            return
        migrate(home, verbosity=0)
    except OtherSchemaError as refusal:
        sys.stderr.write(f"{refusal}\n")
        sys.exit(3)


def migrate(home: Path, *, verbosity: int) -> None:
    """Bring the database to this code's schema, if it is not there; of two processes at once, one does it.

    Raises OtherSchemaError.
    """
    from django.core.management import call_command

    from portal.ops.schema import pending_migrations

    with alone(home / "migrate.lock"):
        if pending_migrations():
            sys.stderr.write("Preparing the database ...\n")
            call_command("migrate", verbosity=verbosity, interactive=False, stdout=sys.stderr)


@contextmanager
def alone(path: Path) -> Iterator[None]:
    with path.open("ab") as guard:
        fcntl.flock(guard, fcntl.LOCK_EX)
        yield


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
