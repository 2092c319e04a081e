"""`migrate`: Django's own, and what stands beside the tables. A database that these programs do not fit is refused.

Pages and workers of the release before go on meanwhile: no statement waits for a table longer than PATIENCE, since
later sessions would queue behind it.
"""

from __future__ import annotations

import sys
import time
from typing import Any

from django.core.management.base import CommandError
from django.core.management.commands import migrate
from django.db import OperationalError, ProgrammingError, connection
from django.db.migrations.executor import MigrationExecutor
from psycopg.errors import DeadlockDetected, InsufficientPrivilege, LockNotAvailable

from portal.core.locks import Work, in_turn
from portal.ops import schema

PATIENCE = "2s"
TRIES = 30
PAUSE = 2  # seconds between two tries, in which pages and workers go on
HELD = (
    "Another session holds a table that this upgrade changes, for more than a minute by now. What was done stays, and "
    "pages and workers go on as before: run migrate again. SELECT pid, query, now() - xact_start FROM pg_stat_activity "
    "WHERE state <> 'idle' ORDER BY xact_start shows who holds it."
)


class Command(migrate.Command):
    def handle(self, *args: Any, **options: Any) -> str | None:
        try:
            schema.refuse_other()
        except schema.OtherSchemaError as error:
            raise CommandError(str(error)) from error
        try:
            return self._as_owner(*args, **options)
        except ProgrammingError as error:
            if not isinstance(error.__cause__, InsufficientPrivilege):
                raise
            raise CommandError(
                f"The login that migrates has to own the database and may create roles: name it by DATABASE_OWNER_URL, "
                f"as docs/how-to/install.md says ({error.__cause__.diag.message_primary})."
            ) from error

    def _as_owner(self, *args: Any, **options: Any) -> str | None:
        with schema.as_owner():
            if options["plan"] or options["check_unapplied"]:
                answer = super().handle(*args, **options)
                if options["check_unapplied"] and not schema.is_complete():
                    self.stderr.write(f"Not made yet: {schema.NOT_TABLES}. Run the command migrate.")
                    sys.exit(1)
                return answer
            with in_turn(Work.MIGRATING):  # two hosts of a deployment may start at once
                return self._migrate(*args, **options)

    def _migrate(self, *args: Any, **options: Any) -> str | None:
        upgrades = schema.begin().complete
        options["skip_checks"] = (
            True  # they load every page: a fifth of the time, for what `./run check` has said
        )
        if upgrades:
            return self._upgrade(*args, **options)
        if not (options["app_label"] or options["fake"] or options["fake_initial"]):
            self._migrate_libraries(options["verbosity"])
        answer = super().handle(*args, **options)
        if not options["app_label"]:  # whose tables are not all
            schema.complete()
        return answer

    def _upgrade(self, *args: Any, **options: Any) -> str | None:
        """Each migration is a transaction: one that found a table held is tried again, those before it stay."""
        for tries_left in reversed(range(TRIES)):
            try:
                with connection.cursor() as cursor:
                    cursor.execute("SELECT set_config('lock_timeout', %s, false)", [PATIENCE])
                answer = super().handle(*args, **options)
                schema.admit()
                if not options["app_label"]:
                    schema.raise_level()
                return answer
            except OperationalError as error:
                if not isinstance(error.__cause__, LockNotAvailable | DeadlockDetected):
                    raise
                if not tries_left:
                    raise CommandError(HELD) from error
            time.sleep(PAUSE)
        return None

    def _migrate_libraries(self, verbosity: int) -> None:
        """Their tables before nearly all of ours: for each column that they alter, Django renders all models anew that
        lead to its table in the end, which takes a third of the time once there are ours.
        """
        self.verbosity = verbosity
        executor = MigrationExecutor(connection, self.migration_progress_callback)  # type: ignore[arg-type]  # Django's own
        leaves = executor.loader.graph.leaf_nodes()
        executor.migrate([leaf for leaf in leaves if leaf[0] not in schema.APPS])
