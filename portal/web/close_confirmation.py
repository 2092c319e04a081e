"""The question before invoices are issued: how many, and what they come to."""

from __future__ import annotations

from urllib.parse import urlencode
from zoneinfo import ZoneInfo

from billing.invoicing import close_runs
from billing.invoicing.close_results import Outcome
from billing.models import CloseKind, CloseRun
from billing.rules.money import Money
from portal.core.tenants.models import Tenant
from portal.web import format as say
from portal.web.shapes import IssueConfirmation


def address(month: str, why: str) -> str:
    """Of the page that asks."""
    return "?" + urlencode({"month": month, "confirm": "yes"} | ({"why": why} if why else {}))


def _is_of_some(run: CloseRun) -> bool:
    return run.scheduled and run.total < Tenant.objects.count()


def question(run: CloseRun | None, name: str, why: str) -> IssueConfirmation:
    """By the last preview of the month; where there is none since it was issued, neither is known.

    Nor is it by one of the schedule's that was of some tenants alone: all are issued.
    """
    if run is None or run.kind != CloseKind.PREVIEW or run.ended_at is None or _is_of_some(run):
        return IssueConfirmation(
            sentence=f"Issue the invoices of {name}? How many and how much is not known: preview the month first to "
            "see it.",
            button=f"Issue {name}",
            why=why,
        )
    ready = [
        tally
        for tally in close_runs.count_outcomes(run)
        if tally.outcome in {Outcome.ISSUED, Outcome.CORRECTED}
    ]
    amounts: dict[str, Money] = {}
    for tally in ready:
        if tally.currency:
            amount = Money.from_minor(tally.total, tally.currency)
            amounts[tally.currency] = amounts.get(tally.currency, Money.zero(tally.currency)) + amount
    tenants = sum(tally.tenants for tally in ready)
    at = f"the preview of {say.moment(run.ended_at, ZoneInfo('UTC'))} (UTC)"
    if not tenants:
        return IssueConfirmation(
            sentence=f"No tenant was ready in {at}. Issue what has become ready in {name} since?",
            button=f"Issue {name}",
            why=why,
        )
    count = say.counted(tenants, "tenant")
    come_to = f": {say.sums(list(amounts.values()))}" if amounts else ""
    return IssueConfirmation(
        sentence=f"Issue the invoices of {name} to {count}{come_to}? These are the figures of {at}; what "
        "changed since is billed as it is now.",
        button=f"Issue {name}",
        why=why,
    )
