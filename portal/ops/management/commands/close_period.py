"""`close_period YYYY-MM`: issue the invoices of a month."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any
from zoneinfo import ZoneInfo

from django.core.management.base import CommandParser

from billing import closing, telling
from billing.closing import Closed
from billing.rules.period import parse_month
from portal.audit import acting_as
from portal.ops.cli import Answer, BadInputError, OperatorCommand, Progress, moment
from portal.tenants.models import Tenant


class Command(OperatorCommand):
    help = "Issue the invoices of the period that starts in a month, in each tenant's zone."

    def arguments(self, parser: CommandParser) -> None:
        parser.add_argument("month", metavar="YYYY-MM")
        parser.add_argument(
            "--tenant", metavar="SLUG", action="append", help="only this tenant; may be repeated"
        )
        parser.add_argument(
            "--as-of", metavar="T", help="the moment of the close, which dates the invoices; now"
        )
        parser.add_argument(
            "--accept-incomplete", metavar="REASON", default="", help="bill although usage may be missing"
        )
        parser.add_argument("--dry-run", action="store_true", help="do everything, keep nothing")

    def answer(self, **options: Any) -> Answer:
        try:
            year, month = parse_month(options["month"])
        except ValueError as error:
            raise BadInputError(str(error)) from error
        now = datetime.now(UTC).replace(microsecond=0)
        at = moment(options["as_of"], ZoneInfo("UTC")) if options["as_of"] else now
        if not 2000 <= year <= at.year:
            raise BadInputError(f"{options['month']} is no month that can be closed.")
        tenants = _tenants(options["tenant"])
        if at > now:
            raise BadInputError("--as-of lies in the future; a period is closed after it has ended.")
        with (
            acting_as("close_period", why=options["accept_incomplete"]),
            Progress("Tenants closed", total=len(tenants)) as progress,
        ):
            closed = list(
                closing.close(
                    tenants=tenants,
                    year=year,
                    month=month,
                    moment=at,
                    accept_incomplete=options["accept_incomplete"],
                    rehearse=options["dry_run"],
                    progress=lambda _: progress.add(1),
                )
            )
        return _answer(options["month"], closed, rehearsed=options["dry_run"])


def _tenants(slugs: list[str] | None) -> list[Tenant]:
    tenants = Tenant.objects.order_by("slug")
    if not slugs:
        return list(tenants)
    found = list(tenants.filter(slug__in=slugs))
    missing = sorted(set(slugs) - {tenant.slug for tenant in found})
    if missing:
        raise BadInputError(f"There is no tenant {', '.join(map(repr, missing))}.")
    return found


def _answer(month: str, closed: list[Closed], *, rehearsed: bool) -> Answer:
    data = {
        "month": month,
        "dry_run": rehearsed,
        "tenants": [telling.data(one, rehearsed=rehearsed) for one in closed],
    }
    head = f"Rehearsal of {month}: nothing was kept." if rehearsed else f"Close of {month}:"
    lines = [head, *telling.lines(closed, rehearsed=rehearsed)]
    return Answer(data, "\n".join(lines), 1 if any(one.outcome in telling.STUCK for one in closed) else 0)
