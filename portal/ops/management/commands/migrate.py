"""`migrate`: Django's own, and what stands beside the tables. A database of another baseline is refused."""

from __future__ import annotations

from typing import Any

from django.core.management.base import CommandError
from django.core.management.commands import migrate

from portal.ops import schema


class Command(migrate.Command):
    def handle(self, *args: Any, **options: Any) -> str | None:
        if options["plan"] or options["check_unapplied"] or options["app_label"]:
            return super().handle(*args, **options)
        try:
            unfinished = schema.begin()
        except schema.OtherBaselineError as error:
            raise CommandError(str(error)) from error
        options["skip_checks"] = (
            True  # they load every page: a fifth of the time, for what `./run check` has said
        )
        answer = super().handle(*args, **options)
        if unfinished:
            schema.complete()
        return answer
