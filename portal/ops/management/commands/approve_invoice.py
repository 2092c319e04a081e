"""`approve_invoice TENANT YYYY-MM --why REASON`: decide what is held for approval; without a tenant, list it."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, ClassVar
from zoneinfo import ZoneInfo

from django.core.management.base import CommandParser
from django.db.models import F

from billing.catalog import billing_periods
from billing.invoicing import approvals
from billing.models import BillingPeriod, Decision, PendingApproval
from billing.rules.money import Money
from billing.rules.period import parse_month
from portal.core.audit import acting_as
from portal.ops.cli import Answer, BadInputError, OperatorCommand
from portal.ops.lookups import the_tenant
from portal.sentences import sentence


class Command(OperatorCommand):
    help = "Approve or refuse an invoice that a close holds. Without a tenant: list what is held."
    refusals: ClassVar[tuple[type[Exception], ...]] = (approvals.ApprovalError,)

    def arguments(self, parser: CommandParser) -> None:
        parser.add_argument("tenant", metavar="TENANT", nargs="?", help="its slug")
        parser.add_argument("month", metavar="YYYY-MM", nargs="?", help="in which its period starts")
        parser.add_argument("--why", metavar="REASON", default="", help="kept with the decision")
        parser.add_argument("--refuse", action="store_true", help="refuse it instead")

    def answer(self, **options: Any) -> Answer:
        if options["tenant"] is None:
            return _listed()
        if options["month"] is None:
            raise BadInputError("Say of which month, such as 2026-03.")
        period = _period(options["tenant"], options["month"])
        with acting_as("approve_invoice", why=options["why"]):
            row = approvals.decide_approval(
                period=period,
                decision=Decision.REFUSED if options["refuse"] else Decision.APPROVED,
                by="approve_invoice",
                reason=options["why"],
                moment=datetime.now(UTC).replace(microsecond=0),
            )
        text = f"{row.tenant.slug}, {_month(row)}: {approvals.format_total(row)} {row.state}."
        if row.state == Decision.APPROVED:
            text += f" `close_period {_month(row)} --tenant {row.tenant.slug}` issues it."
        return Answer(_data(row), text)


def _period(slug: str, month: str) -> BillingPeriod:
    tenant = the_tenant(slug)
    try:
        year, number = parse_month(month)
    except ValueError as error:
        raise BadInputError(sentence(error)) from error
    pending_approvals = PendingApproval.objects.filter(tenant=tenant).select_related("period__tenant")
    # Of several periods that begin in one month, the one that is open waits.
    for row in pending_approvals.order_by(F("period__closed_at").asc(nulls_first=True), "period__start"):
        if _month(row) == month:
            return row.period
    period = billing_periods.starting_in(tenant=tenant, year=year, month=number)
    if period is None:
        raise BadInputError(f"No period of {slug} starts in {month}.")
    return period


def _listed() -> Answer:
    rows = PendingApproval.objects.exclude(state=Decision.APPROVED).select_related("tenant", "period")
    pending_approvals = list(rows.order_by("period__start", "tenant__slug"))
    lines = [
        f"{row.tenant.slug}, {_month(row)}: {approvals.format_total(row)}, {row.state}. {row.reason}"
        for row in pending_approvals
    ]
    return Answer(
        {"pending": [_data(row) for row in pending_approvals]},
        "\n".join(lines) or "Nothing is held for approval.",
    )


def _month(row: PendingApproval) -> str:
    return f"{row.period.start.astimezone(ZoneInfo(row.period.timezone)):%Y-%m}"


def _data(row: PendingApproval) -> dict[str, Any]:
    return {
        "tenant": row.tenant.slug,
        "month": _month(row),
        "state": row.state,
        "reason": row.reason,
        "currency": row.currency,
        "total": Money.from_minor(row.total, row.currency).text,
        "lines": row.lines,
        "since": row.since,
        "by": row.decided_by or None,
        "why": row.decision_reason or None,
        "decided_at": row.decided_at,
    }
