"""`set_subscription EMAIL`: which notices of tenants an operator is mailed as well, and when."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from django.core.management.base import CommandParser

from billing.models import OPERATOR_TOPICS
from billing.notifications.hours import NotificationError, read_hours
from billing.notifications.subscriptions import set_subscription
from portal.core.tenants.models import User
from portal.ops.cli import Answer, OperatorCommand, RefusedError

ALL = "all"


class Command(OperatorCommand):
    help = "Say which notices of tenants an operator is mailed as well, and when; what is left out is as by default."
    refusals = (NotificationError,)

    def arguments(self, parser: CommandParser) -> None:
        parser.add_argument("email", metavar="EMAIL")
        parser.add_argument(
            "--topic",
            action="append",
            default=[],
            choices=[ALL, *OPERATOR_TOPICS],
            help="a kind of notice; several times. None: nothing is mailed",
        )
        parser.add_argument(
            "--tenant", action="append", default=[], metavar="SLUG", help="several times; none: all tenants"
        )
        parser.add_argument("--at-once", action="store_true", help="instead of one digest a day")
        parser.add_argument("--digest-at", default="08:00", metavar="HH:MM")
        parser.add_argument("--quiet-from", default="", metavar="HH:MM")
        parser.add_argument("--quiet-until", default="", metavar="HH:MM")
        parser.add_argument("--zone", default="", help="time zone of these hours; default UTC")

    def answer(self, **options: Any) -> Answer:
        hours = read_hours(
            digest_at=options["digest_at"],
            quiet_from=options["quiet_from"],
            quiet_until=options["quiet_until"],
            timezone=options["zone"],
        )
        user = User.objects.filter(email=options["email"].strip().lower()).first()
        if user is None:
            raise RefusedError(f"Nobody here has the address {options['email']}.")
        topics = OPERATOR_TOPICS if ALL in options["topic"] else options["topic"]
        row = set_subscription(
            user=user,
            topics=topics,
            tenants=options["tenant"],
            digest=not options["at_once"],
            hours=hours,
            moment=datetime.now(UTC),
        )
        when = f"in a digest at {row.digest_at:%H:%M}" if row.digest else "at once"
        tenants = ", ".join(row.tenants) or "all tenants"
        text = (
            f"{user.email} is mailed {', '.join(row.topics)} of {tenants}, {when}."
            if row.topics
            else f"{user.email} is mailed no notices of tenants."
        )
        data = {"email": user.email, "topics": row.topics, "tenants": row.tenants, "digest": row.digest}
        return Answer(data, text)
