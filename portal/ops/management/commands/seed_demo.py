"""`seed_demo`: three clusters, four tenants and a year of usage and invoices to look at."""

from __future__ import annotations

import os
import sys
from datetime import UTC, datetime
from typing import Any

from django.conf import settings

from portal.core.audit import acting_as
from portal.dev.demo_data import seeding
from portal.ops.cli import Answer, OperatorCommand


class Command(OperatorCommand):
    help = "Fill an empty instance with demonstration data; a second time it changes nothing."

    def answer(self, **_: Any) -> Answer:
        if seeding.is_foreign():
            say("There is something else in this database already, so no demonstration data was added.")
            return Answer({"seeded": False, "logins": []}, "")
        if seeding.is_seeded():
            say("The demonstration data is there already.")
            return Answer({"seeded": False, "logins": _logins()}, "")
        with acting_as("seed_demo"):
            seeding.seed(moment=datetime.now(UTC).replace(microsecond=0), say=say)
        text = seeding.logins()
        keep(text)
        return Answer({"seeded": True, "logins": _logins()}, text)


def _logins() -> list[dict[str, str]]:
    return [{"email": email, "password": seeding.PASSWORD, "is": what} for email, what in seeding.LOGINS]


def keep(text: str) -> None:
    """Where `./run demo` finds it at every start; for its owner only."""
    handle = os.open(settings.ENV.home / "logins.txt", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(handle, "w") as file:
        file.write(f"{text}\n")


def say(sentence: str) -> None:
    sys.stderr.write(f"{sentence}\n")
    sys.stderr.flush()
