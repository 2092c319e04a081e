"""What made most of the difference to the month before, as an overview shows it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from urllib.parse import urlencode

from django.http import QueryDict
from django.urls import reverse
from django.utils.translation import gettext as _

from billing.queries.spend_change import SpendChange, explain_change
from billing.queries.usage_series import Grouping, TooManyRowsError
from portal.web.access_decorators import TenantRequest
from portal.web.cost_explorer import TOO_MANY, signed, signed_percent
from portal.web.cost_selection import CostSelection, days_text
from portal.web.day_ranges import Compared
from portal.web.spend_change import reasons

SHOWN = 3  # reasons that stand alone


@dataclass(frozen=True, kw_only=True)
class WhatChanged:
    """`changes` is empty where `why` says that nothing can be compared."""

    href: str  # the page with all reasons
    range: str
    earlier_range: str
    changes: Sequence[Mapping[str, object]] = ()  # by currency
    by_total: bool = False
    why: str = ""


def what_changed(request: TenantRequest, *, first: date, last: date) -> WhatChanged:
    """Of the usage of these days, and the same of the month before. In the scope of acting, one query.

    Fees and discounts are left out: of months that are open they take the queries of a close each. Volume is one reason
    here: counting its runs takes one more query.
    """
    days = {"from": first.isoformat(), "through": last.isoformat(), "compare": str(Compared.MONTH)}
    selection = CostSelection.of(
        QueryDict(urlencode(days)), today=request.today, by=(Grouping.USER, Grouping.GPU_MODEL)
    )
    changes, why = [], ""
    try:
        changes = explain_change(request.tenant, selection.cost_query, others=False, most_runs=0)
    except TooManyRowsError:
        why = _(TOO_MANY)
    compared = changes if any(change.earlier.amount for change in changes) else []
    if not compared and not why:
        why = _("There are no charges of {earlier} to compare with.").format(
            earlier=days_text(selection.earlier)
        )
    return WhatChanged(
        href=reverse("spend_change", args=[request.tenant.slug]) + selection.query(),
        range=days_text(selection.later),
        earlier_range=days_text(selection.earlier),
        changes=[_change(request, selection, change) for change in compared],
        by_total=any(change.by_total for change in compared),
        why=why,
    )


def _change(request: TenantRequest, selection: CostSelection, change: SpendChange) -> Mapping[str, object]:
    slug = request.tenant.slug
    return {
        "difference": signed([change.difference]),
        "percent": signed_percent(change.difference.amount, change.earlier.amount)
        if change.earlier.amount
        else "",
        "reasons": reasons(
            selection, change, lambda days, values: selection.jobs(slug, days, values, {}), most=SHOWN
        ),
    }
