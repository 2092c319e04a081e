"""`close_period YYYY-MM`: issue the invoices of a month."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any
from zoneinfo import ZoneInfo

from django.core.management.base import CommandParser

from billing.invoicing import close_summary, month_close
from billing.invoicing.close_results import STUCK, Outcome
from billing.invoicing.close_runs import list_billable
from billing.invoicing.month_close import TenantClose
from billing.notifications import issue_notices
from billing.rules.money import Money
from billing.rules.period import parse_month
from portal.core.audit import acting_as
from portal.core.tenants.models import Tenant
from portal.ops.cli import Answer, BadInputError, OperatorCommand, Progress, moment
from portal.sentences import sentence


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
        parser.add_argument(
            "--notify",
            action="store_true",
            help="e-mail the documents even if they are dated more than 35 days ago",
        )
        parser.add_argument("--dry-run", action="store_true", help="do everything, keep nothing")
        parser.add_argument("--yes", action="store_true", help="do not ask for confirmation")

    def answer(self, **options: Any) -> Answer:
        try:
            year, month = parse_month(options["month"])
        except ValueError as error:
            raise BadInputError(sentence(error)) from error
        now = datetime.now(UTC).replace(microsecond=0)
        at = moment(options["as_of"], ZoneInfo("UTC")) if options["as_of"] else now
        if not 2000 <= year <= at.year:
            raise BadInputError(f"{options['month']} is no month that can be closed.")
        tenants = _tenants(options["tenant"])
        if at > now:
            raise BadInputError("--as-of lies in the future; a period is closed after it has ended.")
        if not options["dry_run"] and self.asks(yes=options["yes"]):
            self.confirm(
                _question(options["month"], _closed(tenants, year, month, at, options, preview=True))
            )
        closed = _closed(tenants, year, month, at, options, preview=options["dry_run"])
        if options["notify"] and not options["dry_run"]:
            issue_notices.resend_documents(numbers=_numbers(closed), moment=now)
        return _answer(options["month"], closed, previewed=options["dry_run"])


def _closed(
    tenants: list[Tenant], year: int, month: int, at: datetime, options: Mapping[str, Any], *, preview: bool
) -> list[TenantClose]:
    why = options["accept_incomplete"]
    with (
        acting_as("close_period", why=why),
        Progress("Tenants previewed" if preview else "Tenants closed", total=len(tenants)) as progress,
    ):
        return list(
            month_close.close_month(
                tenants=tenants,
                year=year,
                month=month,
                moment=at,
                accept_incomplete=why,
                preview=preview,
                progress=lambda _: progress.add(1),
                now=datetime.now(UTC),
            )
        )


def _numbers(closed: list[TenantClose]) -> list[str]:
    """Of all documents of the month, also of those that were issued before: what was left out is e-mailed too."""
    return [
        number
        for one in closed
        for number in (one.number, *(other.number for other in one.related_documents))
        if number
    ]


def _question(month: str, previewed: list[TenantClose]) -> str:
    """How many tenants have documents, and what they come to by currency."""
    done = {Outcome.ISSUED, Outcome.CORRECTED}
    # Of one that is stuck another period of the month may stand beside.
    ready = [
        one for one in previewed if one.outcome in done or (one.outcome in STUCK and one.related_documents)
    ]
    amounts: dict[str, Money] = {}
    for one in ready:
        for total in (
            one.total if one.outcome in done else None,
            *(other.total for other in one.related_documents),
        ):
            if total is None:
                continue
            amounts[total.currency] = amounts.get(total.currency, Money.zero(total.currency)) + total
    come_to = (
        ", ".join(f"{amount.text} {currency}" for currency, amount in sorted(amounts.items())) or "nothing"
    )
    stuck = sum(one.outcome in STUCK for one in previewed)
    blocked = f" {stuck} blocked or waiting and skipped." if stuck else ""
    return f"{month}: {len(ready)} of {len(previewed)} tenants have invoices, {come_to} in all.{blocked} Issue them?"


def _tenants(slugs: list[str] | None) -> list[Tenant]:
    if not slugs:
        return list(list_billable().order_by("slug"))
    matches = list(Tenant.objects.filter(slug__in=slugs).order_by("slug"))
    missing = sorted(set(slugs) - {tenant.slug for tenant in matches})
    if missing:
        raise BadInputError(f"There is no tenant {', '.join(map(repr, missing))}.")
    return matches


def _answer(month: str, closed: list[TenantClose], *, previewed: bool) -> Answer:
    data = {
        "month": month,
        "dry_run": previewed,
        "tenants": [close_summary.to_json(one, previewed=previewed) for one in closed],
    }
    head = f"Preview of {month}: nothing was kept." if previewed else f"Close of {month}:"
    lines = [head, *close_summary.to_lines(closed, previewed=previewed)]
    return Answer(data, "\n".join(lines), 1 if any(one.outcome in STUCK for one in closed) else 0)
