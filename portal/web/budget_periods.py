"""A budget period by period: what each used of its amount, and of a pool what each project had of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from fractions import Fraction

from django.http import Http404, HttpResponse
from django.utils.translation import gettext as _

from billing.models import Quota
from billing.quotas import quotas, status
from billing.quotas.past_periods import MOST, load_past_periods
from billing.quotas.pools import Loan
from billing.quotas.status import amount_text, counts_sentence, period_text, scope_text
from billing.rules import quotas as rules
from portal.core.tenants.access import Action
from portal.core.tenants.scope import acting_scope
from portal.web import format as say
from portal.web.access_decorators import TenantRequest, answer, tenant_page


@dataclass(frozen=True, slots=True)
class PeriodRow:
    """One period as the page shows it."""

    label: str
    used: str
    amount: str
    percent: str  # "" of a budget of nothing
    state_label: str
    badge: str
    loans: Sequence[tuple[str, str]]  # project and amount


@tenant_page(Action.READ_ALL, area="budgets")
def budget_periods(request: TenantRequest, budget: str) -> HttpResponse:
    moment = request.moment.replace(microsecond=0)
    with acting_scope(request.tenant):
        quota = quotas.list_quotas(request.tenant).filter(name=budget, wallet=None).first()
        if quota is None:
            raise Http404("no such budget")
        (now,) = status.load_statuses([quota], moment=moment)
        past = load_past_periods(quota, moment=moment)
    present = _label(now.figure.window.start, now.figure.window.end, request)
    rows = [_row(quota, present, now.figure.used, now.amount, now.figure.loans, ended=False)]
    rows += [
        _row(quota, _label(one.period.start, one.period.end, request), one.used, one.amount, one.loans)
        for one in past
    ]
    page = {
        "name": quota.name,
        "scope": scope_text(quota),
        "period": period_text(quota),
        "counts": counts_sentence(quota),
        "rows": rows,
        "lends": quota.lends,
        "has_periods": now.resets_at is not None,
        "most": MOST if len(past) == MOST else 0,
    }
    return answer(request, request.frame, page, whole="tenant/budget_periods.html")


def _label(start: datetime, end: datetime | None, request: TenantRequest) -> str:
    return say.span(start, end or start, request.tenant.timezone)


def _row(
    quota: Quota, label: str, used: Fraction, amount: Fraction, loans: Sequence[Loan], *, ended: bool = True
) -> PeriodRow:
    percent = rules.share(used, amount)
    is_over = used >= amount
    if ended:
        state_label = _("Used up") if is_over else _("Within budget")
    else:
        state_label = _("Running: used up") if is_over else _("Running")
    return PeriodRow(
        label,
        amount_text(used, quota.unit),
        amount_text(amount, quota.unit),
        "" if percent is None else say.percent(percent, Fraction(100)),
        state_label,
        "ct-late" if is_over else "ct-ok",
        [(loan.project, amount_text(loan.used, quota.unit)) for loan in loans],
    )
