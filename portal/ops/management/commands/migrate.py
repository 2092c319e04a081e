"""`migrate`: Django's own, and what stands beside the tables. A database of another baseline is refused."""

from __future__ import annotations

import sys
from typing import Any

from django.core.management.base import CommandError
from django.core.management.commands import migrate
from django.db import ProgrammingError
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
        answer = super().handle(*args, **options)
        if not unfinished:
            schema.admit()
        elif not options["app_label"]:  # whose tables are not all
            schema.complete()
        return answer
