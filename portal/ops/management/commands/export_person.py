"""`export_person WHO FILE`: all that stands under a person's name, for that person."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import structlog
from django.core.management.base import CommandParser

from portal.core.tenants.models import User
from portal.excerpt import quoted
from portal.ops import person_data
from portal.ops.cli import Answer, BadInputError, OperatorCommand, RefusedError
from portal.ops.lookups import the_tenant

log = structlog.get_logger("portal.ops")


class Command(OperatorCommand):
    help = "Write all that stands under a person's name into a ZIP file, without secrets and others' data."

    def arguments(self, parser: CommandParser) -> None:
        parser.add_argument("who", metavar="WHO", help="e-mail address, or a user name of the scheduler")
        parser.add_argument("file", metavar="FILE", type=Path)
        parser.add_argument("--tenant", metavar="SLUG", default="", help="whose jobs the user name is of")

    def answer(self, *, who: str, file: Path, tenant: str, **_: Any) -> Answer:
        if tenant:
            parts, person = _of_name(who, tenant), f"{who} of {tenant}"
        else:
            parts, person = _of_email(who)
        try:
            counts = person_data.write(parts, file)
        except OSError as error:
            raise RefusedError(f"{file} cannot be written: {error.strerror}.") from error
        log.info("a person's data was exported", by=f"uid {os.getuid()}", person=person, rows=counts)
        text = ", ".join(f"{count:,} {name.replace('_', ' ')}" for name, count in counts.items() if count)
        return Answer({"file": str(file), "rows": counts}, f"{file}: {text}.")


def _of_email(who: str) -> tuple[list[person_data.Section], str]:
    """What stands under the account, and its key, which logs may say."""
    person = User.objects.filter(email=who.strip().lower()).first()
    if person is None:
        raise BadInputError(f"Nobody has an account as {quoted(who)}; of a user name, add --tenant.")
    return person_data.of_person(person), f"account {person.pk}"


def _of_name(who: str, slug: str) -> list[person_data.Section]:
    tenant = the_tenant(slug)
    parts = person_data.of_names({tenant.pk: [who]})
    if not any(section.rows.exists() for section in parts if section.name != person_data.NOT_HERE):
        raise BadInputError(f"{tenant.slug} has nothing under the user name {quoted(who)}.")
    return parts
