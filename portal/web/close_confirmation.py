"""The question before invoices are issued: how many, and their total."""

from __future__ import annotations

from collections.abc import Iterable
from urllib.parse import urlencode

from django.utils.translation import gettext as _

from billing.invoicing import close_runs
from billing.invoicing.close_results import Outcome
from billing.invoicing.close_runs import Tally, list_billable
from billing.models import CloseKind, CloseRun
from billing.rules.money import Money
from portal.web import format as say
from portal.web.templatetags.clustertab import moment


def address(month: str, why: str) -> str:
    """Of the page that asks."""
    return "?" + urlencode({"month": month, "confirm": "yes"} | ({"why": why} if why else {}))


def sums(tallies: Iterable[Tally]) -> list[Money]:
    """What they come to, one amount for each currency; none of zero."""
    totals: dict[str, Money] = {}
    for tally in tallies:
        if tally.currency and tally.total:
            amount = Money.from_minor(tally.total, tally.currency)
            totals[tally.currency] = totals.get(tally.currency, Money.zero(tally.currency)) + amount
    return list(totals.values())


def _is_of_some(run: CloseRun) -> bool:
    return run.scheduled and run.total < list_billable().count()


def question(run: CloseRun | None, name: str) -> str:
    """By the last preview of the month; where there is none since it was issued, no figure is known.

    Nor is one by a scheduled preview of some tenants alone: all are issued.
    """
    if run is None or run.kind != CloseKind.PREVIEW or run.ended_at is None or _is_of_some(run):
        return _(
            "Issue the invoices of {month}? To see how many and how much, preview the month first."
        ).format(month=name)
    ready = [
        tally
        for tally in close_runs.count_outcomes(run)
        if tally.outcome in {Outcome.ISSUED, Outcome.CORRECTED}
    ]
    tenants, amounts, at = sum(tally.tenants for tally in ready), sums(ready), moment(run.ended_at)
    if not tenants:
        return _(
            "No tenant was ready in the preview of {at} (UTC). Issue what is ready in {month} now?"
        ).format(at=at, month=name)
    return _(
        "Issue the invoices of {month} to {tenants}{total}? Figures are from the preview of {at} (UTC); later changes "
        "are included."
    ).format(
        month=name,
        tenants=say.counted(tenants, "tenant"),
        total=f": {say.sums(amounts)}" if amounts else "",
        at=at,
    )
