"""`migrate`: Django's own, and what stands beside the tables. A database of another baseline is refused."""

from __future__ import annotations

import sys
from typing import Any

from django.core.management.base import CommandError
from django.core.management.commands import migrate
from django.db import ProgrammingError, connection
from django.db.migrations.executor import MigrationExecutor
from psycopg.errors import InsufficientPrivilege

from portal.core.locks import Work, in_turn
from portal.ops import schema


class Command(migrate.Command):
    def handle(self, *args: Any, **options: Any) -> str | None:
        try:
            schema.refuse_other()
        except schema.OtherBaselineError as error:
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
        unfinished = schema.begin()
        options["skip_checks"] = (
            True  # they load every page: a fifth of the time, for what `./run check` has said
        )
        if unfinished and not (options["app_label"] or options["fake"] or options["fake_initial"]):
            self._migrate_libraries(options["verbosity"])
        answer = super().handle(*args, **options)
        if not unfinished:
            schema.admit()
        elif not options["app_label"]:  # whose tables are not all
            schema.complete()
        return answer

    def _migrate_libraries(self, verbosity: int) -> None:
        """Their tables before nearly all of ours: for each column that they alter, Django renders all models anew that
        lead to its table in the end, which takes a third of the time once there are ours.
        """
        self.verbosity = verbosity
        executor = MigrationExecutor(connection, self.migration_progress_callback)  # type: ignore[arg-type]  # Django's own
        leaves = executor.loader.graph.leaf_nodes()
        executor.migrate([leaf for leaf in leaves if leaf[0] not in schema.APPS])
