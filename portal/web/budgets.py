"""Budgets: a tenant's quotas with what is used of them, set by its owners; and those that are near or over."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from decimal import Decimal
from fractions import Fraction
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

from django.contrib import messages
from django.db.models import DecimalField, ExpressionWrapper, F
from django.db.models.functions import Greatest, NullIf
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import reverse
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from billing.limits.status import list_statuses
from billing.models import Quota, QuotaBlock, QuotaEnding, QuotaPeriod, QuotaSetBy
from billing.models.quota_terms import LONGEST_NAME
from billing.queries.reservations import Reservations, list_reservations
from billing.quotas import quotas, reservations, status
from billing.quotas.counters import UNSEEN
from billing.quotas.figures import FigureInputs
from billing.quotas.quotas import Setter
from billing.quotas.status import QuotaStatus, amount_text, counts_sentence, period_text, scope_text
from billing.quotas.terms import QuotaError
from billing.quotas.windows import load_calendars
from billing.rules import quotas as rules
from billing.rules.errors import RuleError
from billing.rules.formatting import localized
from billing.rules.money import rounded_text
from billing.rules.quotas import QuotaState
from clusters import blocks
from clusters.models import AccountBlock
from portal.core.tenants.access import Action
from portal.core.tenants.models import Tenant
from portal.core.tenants.scope import acting_scope
from portal.sentences import sentence
from portal.web import budget_form
from portal.web import format as say
from portal.web.access_decorators import TenantRequest, answer, operator_page, tenant_act, tenant_page
from portal.web.budget_acts import (
    Acts,
    carried_text,
    effect_text,
    list_holding_clusters,
    list_refusing_clusters,
    load_acts,
)
from portal.web.limits import LimitRow, limit_rows
from portal.web.page_frame import PageFrame

if TYPE_CHECKING:
    from django_stubs_ext import StrOrPromise

AVAILABLE = Greatest(F("amount") + F("carried"), Decimal(0))
"""Of a period, as `QuotaPeriod.available`."""
SHOWN = 200  # budgets on the operators' page
SHOWN_FAILURES = 20
ORIGINS: Mapping[str, StrOrPromise] = {
    QuotaSetBy.PLAN: gettext_lazy("From your plan"),
    QuotaSetBy.WALLET: gettext_lazy("From your wallets"),
}
BADGES = {QuotaState.OK: "ct-ok", QuotaState.NEAR: "ct-wait", QuotaState.OVER: "ct-late"}


@dataclass(frozen=True, kw_only=True)
class BudgetRow:
    """One budget as tables show it."""

    name: str
    scope: str
    period: str
    counts: str
    used: str
    amount: str
    carried: str  # of it, from the period before; "" for nothing
    left: str
    reserved: str  # of what is not used, for jobs that wait or run; "" for nothing
    reserved_percent: str
    left_percent: str  # with the two others 100 %; "" where nothing is reserved
    percent: str  # "" of a budget of nothing
    width: int  # of the bar, in percent
    forecast: str
    resets_at: datetime | None
    state: QuotaState
    badge: str
    state_label: str
    effect: str  # what it does while all is used
    acts: Sequence[str]  # what it does to accounts now, and what runs on, in sentences
    has_page: bool  # which shows it period by period
    origin: str  # what it comes and goes with, as the plan; "" of one that somebody has set
    loans: str = ""  # what it borrowed, or of a pool who did
    parts: str = ""  # budgets whose usage also counts in it
    tenant: str = ""
    as_of: datetime | None = None


@tenant_page(Action.READ_ALL, area="budgets")
def budgets(request: TenantRequest) -> HttpResponse:
    fields = budget_form.typed_in(request.GET)
    manages = Action.MANAGE in request.may
    moment = request.moment.replace(microsecond=0)
    preview, error, present = None, "", None
    with acting_scope(request.tenant):
        rows = list(quotas.list_quotas(request.tenant))
        if manages and request.GET.get("act") == "preview":
            try:
                preview = _preview(request.tenant, rows, fields, moment)
            except (QuotaError, RuleError, ValueError) as refusal:
                error = sentence(refusal)
        if preview is None:
            present = _present(request.tenant, rows, moment, reader_sets=manages)
    own = [row for row in rows if row.set_by not in ORIGINS]
    edited = next((row for row in own if row.name == request.GET.get("edit")), None)
    page = {
        "present": present,
        "count": len(rows),
        "manages": manages,
        "preview": preview,
        "error": error,
        **budget_form.form_of(
            budget_form.fields_of(
                budget_form.values_of(edited) if edited else fields,
                name=""
                if any(row.name == budget_form.FIRST_NAME for row in rows)
                else budget_form.FIRST_NAME,
            )
        ),
        "hidden": [(name, value) for name, value in fields.items() if value],
        "ending": next((row.name for row in own if manages and row.name == request.GET.get("end")), ""),
        "edited": edited.name if edited else fields["name"] if preview or error else "",
        "is_open": bool(preview or error or edited or not rows),
    }
    return answer(request, request.frame, page, whole="tenant/budgets.html")


@dataclass(frozen=True, kw_only=True)
class PresentBudgets:
    """How all of a tenant's budgets stand, what of them is reserved, and what it may hold at once."""

    rows: Sequence[BudgetRow]
    limits: Sequence[LimitRow]
    reservations: Reservations


def _present(tenant: Tenant, rows: Sequence[Quota], moment: datetime, *, reader_sets: bool) -> PresentBudgets:
    listed = list_reservations(tenant, moment=moment, unseen=UNSEEN)
    statuses = status.load_statuses(
        rows, moment=moment, inputs=FigureInputs(with_relatives=True, standing=listed.progress)
    )
    over = [one.quota for one in statuses if one.state is QuotaState.OVER]
    acts = load_acts(rows, over=over, moment=moment, reader_sets=reader_sets)
    parts = _names_of_parts(rows)
    return PresentBudgets(
        rows=[
            replace(_row(one, acts, tenant.zone), parts=", ".join(parts[one.quota.pk])) for one in statuses
        ],
        limits=limit_rows(list_statuses(tenant, moment=moment), inner=False),
        reservations=listed,
    )


@tenant_act(Action.MANAGE)
def change_budget(request: HttpRequest, tenant: Tenant) -> HttpResponse:
    """Save or end one; what is refused says why, and nothing is kept."""
    moment, name = (
        datetime.now(UTC).replace(microsecond=0),
        request.POST.get("name", "").replace("\0", "")[:LONGEST_NAME],
    )
    try:
        if request.POST.get("act") == "end":
            if quotas.end_quota(tenant=tenant, name=name, by=Setter.OWNER, moment=moment):
                messages.success(request, _("Budget %(name)s is ended.") % {"name": name})
        else:
            fields = budget_form.typed_in(request.POST)
            row = budget_form.entry_of(fields).write(tenant, by=Setter.OWNER, moment=moment)
            messages.success(request, _("Budget %(name)s is saved.") % {"name": row.name})
    except (QuotaError, RuleError, ValueError) as refusal:
        messages.error(request, sentence(refusal))
    return redirect(reverse("budgets", args=[tenant.slug]))


@operator_page("operator_budgets")
def operator_budgets(request: HttpRequest, frame: PageFrame) -> HttpResponse:
    """Those of all tenants that are used most, as they were last looked at."""
    moment = datetime.now(UTC)
    periods = QuotaPeriod.objects.filter(quota__ended_at=None).exclude(end__lte=moment)
    most = periods.annotate(
        ratio=ExpressionWrapper(F("used") / NullIf(AVAILABLE, Decimal(0)), DecimalField())
    ).filter(used__gt=0)
    listed = most.select_related("quota__tenant", "quota__project").order_by(
        F("ratio").desc(nulls_first=True), "pk"
    )
    shown = list(listed[:SHOWN])
    acts = load_acts([period.quota for period in shown], over=(), moment=moment)
    reserved = _load_reserved(shown, moment)
    rows = [_stored_row(period, acts, reserved.get(period.quota_id, Fraction(0))) for period in shown]
    failed = QuotaBlock.objects.filter(ended_at=None).exclude(error="").select_related("account__cluster")
    endings = QuotaEnding.objects.filter(closed_at=None).exclude(error="").select_related("account__cluster")
    page = {
        "rows": [row for row in rows if row.state is not QuotaState.OK],
        "failures": [
            *failed.order_by("pk")[:SHOWN_FAILURES],
            *endings.order_by("pk")[:SHOWN_FAILURES],
        ],
        "changed": [
            f"{block}: {change}"
            for block in AccountBlock.objects.filter(ended_at=None)
            .exclude(changed={})
            .select_related("cluster")
            .order_by("pk")[:SHOWN_FAILURES]
            for change in blocks.list_changes(block)
        ],
        "others": periods.count() - sum(row.state is not QuotaState.OK for row in rows),
        "moment": moment,
    }
    return answer(request, frame, page, whole="operator/budgets.html")


def _preview(
    tenant: Tenant, rows: Sequence[Quota], fields: Mapping[str, str], moment: datetime
) -> dict[str, Any]:
    """How the budget would stand, saved now. `rows` are all that the tenant has."""
    entry = budget_form.entry_of(fields)
    quota, before = quotas.suppose_quota(
        tenant=tenant, name=entry.name, terms=entry.terms(tenant), by=Setter.OWNER, moment=moment, rows=rows
    )
    pools = {quota.borrows_from_id, quota.pk if quota.lends else None} - {None}
    relatives = [
        row for row in rows if row.pk != quota.pk and (row.pk in pools or row.borrows_from_id in pools)
    ]
    one, *_ = status.load_statuses(
        [quota, *relatives], moment=moment, inputs=FigureInputs(with_relatives=True)
    )
    passed = rules.reached(one.figure.used, amount=one.amount, thresholds=quota.thresholds)
    return {
        "row": _row(one, Acts(), tenant.zone),
        "is_new": before is None,
        "before": amount_text(before.amount, before.unit) if before and before.amount != quota.amount else "",
        "passed": ", ".join(level.text for level in passed),
        "used_up": one.state is QuotaState.OVER,
        "refusing": list_refusing_clusters(quota, moment),
        "holding": list_holding_clusters(quota, moment),
        "unused": status.list_unused(quota),
        "parents": [parent.name for parent in quotas.parents_of(quota, rows)],
    }


def _names_of_parts(rows: Sequence[Quota]) -> Mapping[int, list[str]]:
    """By quota the names of those that count a part of what it counts."""
    parts: dict[int, list[str]] = defaultdict(list)
    for row in rows:
        for parent in quotas.parents_of(row, rows):
            parts[parent.pk].append(row.name)
    return parts


def _row(one: QuotaStatus, acts: Acts, zone: ZoneInfo) -> BudgetRow:
    quota, figure, percent = one.quota, one.figure, one.percent
    return BudgetRow(
        **_common(quota, one.state, percent, one.amount, figure.carried),
        acts=acts.sentences(quota, zone),
        used=one.text(figure.used),
        left=one.text(one.left),
        loans=_loans_text(one),
        **_reserved(one.quota, figure.reserved, one.amount, percent),
        forecast="" if figure.forecast is None else one.text(figure.forecast),
        resets_at=one.resets_at,
        as_of=figure.as_of,
    )


def _loans_text(one: QuotaStatus) -> str:
    """Of a pool what each project has of it; of one that borrows what it has, and what is left there."""
    if one.quota.borrows_from is not None:
        figure = one.figure
        held = max(figure.used + figure.reserved - one.amount, Fraction(0))
        free = figure.borrowable - figure.promised - held
        return _("{borrowed} borrowed from {pool}, {free} left there").format(
            borrowed=one.text(one.borrows),
            pool=one.quota.borrows_from.name,
            free=one.text(max(free, Fraction(0))),
        )
    return ", ".join(f"{loan.project}: {one.text(loan.used)}" for loan in one.figure.loans)


def _stored_row(period: QuotaPeriod, acts: Acts, reserved: Fraction) -> BudgetRow:
    quota, used, amount = period.quota, Fraction(period.used), Fraction(period.available)
    limit = Fraction(period.limit)
    overdrawn = period.carried < 0 and not amount
    state = rules.state(used, amount=amount, limit=limit, thresholds=quota.thresholds, overdrawn=overdrawn)
    return BudgetRow(
        **_common(quota, state, rules.share(used, amount), amount, Fraction(period.carried)),
        acts=acts.sentences(quota, quota.tenant.zone),
        used=amount_text(used, quota.unit),
        left=amount_text(limit - used - reserved, quota.unit),
        **_reserved(quota, reserved, amount, rules.share(used, amount)),
        forecast="" if period.forecast is None else amount_text(period.forecast, quota.unit),
        resets_at=period.end,
        tenant=quota.tenant.slug,
        as_of=period.evaluated_at,
    )


def _common(
    quota: Quota,
    state: QuotaState,
    percent: Fraction | None,
    amount: Fraction,
    carried: Fraction,
) -> dict[str, Any]:
    labels = {
        QuotaState.OK: _("Within budget"),
        QuotaState.NEAR: _("Threshold reached"),
        QuotaState.OVER: _("Used up"),
    }
    return {
        "name": quota.name,
        "scope": scope_text(quota),
        "period": period_text(quota),
        "counts": counts_sentence(quota),
        "amount": amount_text(amount, quota.unit),
        "carried": carried_text(quota, carried),
        "percent": "" if percent is None else say.percent(percent, Fraction(100)),
        "width": 100 if percent is None else int(min(max(percent, Fraction(0)), Fraction(100))),
        "state": state,
        "badge": BADGES[state],
        "state_label": labels[state],
        "effect": effect_text(quota),
        "has_page": quota.wallet_id is None,
        "origin": str(ORIGINS.get(quota.set_by, "")),
    }


def _reserved(quota: Quota, reserved: Fraction, amount: Fraction, used: Fraction | None) -> dict[str, Any]:
    """Used, reserved and left are together 100 %, as they are rounded; where nothing can be borrowed beside it."""
    part = rules.share(reserved, amount) if quota.borrows_from_id is None else None
    if not reserved or part is None or used is None:
        text = amount_text(reserved, quota.unit) if reserved else ""
        return {"reserved": text, "reserved_percent": "", "left_percent": ""}
    reserved_text, used_text = rounded_text(part, 1), rounded_text(used, 1)
    left = rounded_text(100 - Fraction(reserved_text) - Fraction(used_text), 1)
    return {
        "reserved": amount_text(reserved, quota.unit),
        "reserved_percent": f"{localized(reserved_text)} %",
        "left_percent": f"{localized(left)} %",
    }


def _load_reserved(periods: Sequence[QuotaPeriod], moment: datetime) -> Mapping[int, Fraction]:
    """By quota, of its present period."""
    rows = [period.quota for period in periods]
    calendars = load_calendars(rows)
    windows = {row.pk: calendars[row.tenant_id].window(row, moment) for row in rows}
    return reservations.load_reserved(rows, windows, moment=moment)
