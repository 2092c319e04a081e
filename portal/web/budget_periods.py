"""A budget period by period: what each used of its amount, and of a pool what each project had of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from fractions import Fraction

from django.http import Http404, HttpResponse
from django.utils.translation import gettext as _

from billing.models import Quota
from billing.quotas import quotas
from billing.quotas.past_periods import MOST, PastPeriod, load_lent, load_status_and_past
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
    borrowed: str  # of what is used, what its pool lent; "" for nothing


@tenant_page(Action.READ_ALL, area="budgets")
def budget_periods(request: TenantRequest, budget: str) -> HttpResponse:
    moment = request.moment.replace(microsecond=0)
    with acting_scope(request.tenant):
        quota = quotas.list_quotas(request.tenant).filter(name=budget, wallet=None).first()
        if quota is None:
            raise Http404("no such budget")
        now, past = load_status_and_past(quota, moment=moment)
    present = _label(now.figure.window.start, now.figure.window.end, request)
    is_over = now.state is rules.QuotaState.OVER
    state = _("Running: used up") if is_over else _("Running")
    rows = [_row(quota, present, now.figure.used, now.amount, now.figure.loans, state, is_over)]
    rows += [_past_row(one, request) for one in past]
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


def _past_row(one: PastPeriod, request: TenantRequest) -> PeriodRow:
    label = _label(one.period.start, one.period.end, request)
    state = _("Used up") if one.is_used_up else _("Within budget")
    return _row(one.period.quota, label, one.used, one.amount, one.loans, state, one.is_used_up)


def _row(
    quota: Quota,
    label: str,
    used: Fraction,
    amount: Fraction,
    loans: Sequence[Loan],
    state_label: str,
    is_over: bool,
) -> PeriodRow:
    percent = rules.share(used, amount)
    return PeriodRow(
        label,
        amount_text(used, quota.unit),
        amount_text(amount, quota.unit),
        "" if percent is None else say.percent(percent, Fraction(100)),
        state_label,
        "ct-late" if is_over else "ct-ok",
        [(loan.project, amount_text(loan.used, quota.unit)) for loan in loans],
        _borrowed_text(quota, used - amount),
    )


def _borrowed_text(quota: Quota, excess: Fraction) -> str:
    if quota.borrows_from is None or excess <= 0:
        return ""
    amount = amount_text(excess, quota.unit)
    return _("{amount} of it from {pool}").format(amount=amount, pool=quota.borrows_from.name)


@dataclass(frozen=True, slots=True)
class LentRow:
    """What one pool lent in one of its periods."""

    pool: str
    label: str
    lent: str
    loans: Sequence[tuple[str, str]]  # project and amount


def list_lent(request: TenantRequest, *, since: datetime, until: datetime) -> list[LentRow]:
    """Of the tenant's pools, in their periods that ended with the service period of an invoice."""
    with acting_scope(request.tenant):
        listed = load_lent(request.tenant, since=since, until=until, moment=request.moment)
    return [
        LentRow(
            one.period.quota.name,
            _label(one.period.start, one.period.end, request),
            amount_text(one.used, one.period.quota.unit),
            [
                (loan.project, amount_text(loan.used, one.period.quota.unit))
                for loan in one.loans
                if loan.used
            ],
        )
        for one in listed
    ]
