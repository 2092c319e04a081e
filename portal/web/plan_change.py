"""What an owner decides about the plan: another public one from the next billing period on, or to leave."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import reverse
from django.utils.translation import gettext as _

from billing.catalog.plans import PlanError
from billing.models import Departure
from billing.queries.costs import per_currency
from billing.sign_up import departures, plan_changes
from billing.sign_up.last_period import compare_last_period
from billing.sign_up.plan_changes import PlanChoice, PlanPreview
from billing.sign_up.policy import SignUpError
from portal.core.tenants.access import Action
from portal.core.tenants.models import Tenant
from portal.core.tenants.scope import acting_scope
from portal.sentences import sentence
from portal.web import form_input
from portal.web import format as say
from portal.web.access_decorators import TenantRequest, answer, tenant_act, tenant_page
from portal.web.cost_explorer import signed
from portal.web.payment import person_of
from portal.web.plan_difference import Compared, compared


@dataclass(frozen=True, kw_only=True)
class LastPeriodCost:
    """What the last period cost by the present plan, and would have by the other one; `reason` says why neither."""

    period: str
    now: str = ""
    offered: str = ""
    change: str = ""
    reason: str = ""


@dataclass(frozen=True, kw_only=True)
class PlanChangePage:
    """`preview` compares the chosen plan with the present one, as both are on the day of the change."""

    choice: PlanChoice | None  # None: the plan was agreed with the operator, or there is none
    planned: str  # the plan that follows; "" for none
    planned_public: bool
    begins: date | None  # the first day of the next period, in the tenant's zone
    chosen: str  # of the plan that is previewed; "" for none
    preview: Compared | None
    last: LastPeriodCost | None
    seen: str  # what the preview was of, so that another one is not confirmed
    departure: Departure | None
    typed: Mapping[str, str]  # into the form that asks to leave, where it was refused
    tomorrow: date


@tenant_page(Action.MANAGE, area="plan")
def plan_change(request: TenantRequest) -> HttpResponse:
    chosen = request.GET.get("plan", "")
    with acting_scope(request.tenant):
        choice = plan_changes.load_choice(request.tenant, moment=request.moment)
        departure = departures.departure_of(request.tenant)
        preview = _preview(request.tenant, chosen, request.moment) if choice and chosen else None
        differences = compared(preview.before, preview.after) if preview else None
        last = _last_period(request, preview) if preview else None
    planned = choice.planned if choice else None
    page = PlanChangePage(
        choice=choice,
        planned=planned.plan.name if planned else "",
        planned_public=planned is not None and planned.plan.public,
        begins=choice.begins.astimezone(request.zone).date() if choice else None,
        chosen=chosen if preview else "",
        preview=differences,
        last=last,
        seen=preview.seen if preview else "",
        departure=departure,
        typed=form_input.last(request, reverse("choose_plan", args=[request.tenant.slug])),
        tomorrow=request.today + timedelta(days=1),
    )
    return answer(request, request.frame, page, whole="tenant/plan_change.html")


@tenant_act(Action.MANAGE, proof=True)
def choose_plan(request: HttpRequest, tenant: Tenant) -> HttpResponse:
    """What the pressed button says; a refusal is told on the page that follows."""
    act, moment = request.POST.get("act", ""), datetime.now(UTC).replace(microsecond=0)
    try:
        if act == "change":
            _change(request, tenant, moment)
        elif act == "stay":
            plan_changes.withdraw_change(tenant=tenant, moment=moment)
            messages.success(request, _("You stay on your plan."))
        elif act == "leave":
            _leave(request, tenant, moment)
        elif act == "remain":
            departures.withdraw(tenant=tenant, moment=moment)
            messages.success(request, _("You stay. The operator is not asked any more."))
    except (SignUpError, PlanError) as refusal:
        if act == "leave":
            form_input.keep(request, "leaves_on", "reason")
        messages.error(request, sentence(refusal))
    return redirect("plan_change", tenant.slug)


def _preview(tenant: Tenant, name: str, moment: datetime) -> PlanPreview | None:
    """None where the plan is not offered."""
    try:
        return plan_changes.load_preview(tenant, plan=name, moment=moment)
    except SignUpError:
        return None


def _last_period(request: TenantRequest, preview: PlanPreview) -> LastPeriodCost:
    if getattr(request, "support_view", None) is not None:  # it writes, and takes it back
        return LastPeriodCost(period="", reason=_("Its cost is not computed while an operator looks."))
    last = compare_last_period(tenant=request.tenant, plan=preview.after.plan, moment=request.moment)
    period = say.period(last.period) if last.period else ""
    if last.reason is not None:
        return LastPeriodCost(period=period, reason=sentence(last.reason))
    change = per_currency([*last.offered, *(-amount for amount in last.now)])
    return LastPeriodCost(
        period=period, now=say.sums(last.now), offered=say.sums(last.offered), change=signed(change)
    )


def _change(request: HttpRequest, tenant: Tenant, moment: datetime) -> None:
    row = plan_changes.change_plan(
        tenant=tenant,
        plan=request.POST.get("plan", ""),
        seen=request.POST.get("seen") or "nothing",
        moment=moment,
    )
    day = say.day(row.since.astimezone(tenant.zone).date())
    messages.success(request, _("You are on plan %(plan)s from %(day)s on.") % {"plan": row.plan, "day": day})


def _leave(request: HttpRequest, tenant: Tenant, moment: datetime) -> None:
    try:
        on = date.fromisoformat(request.POST.get("leaves_on", ""))
    except ValueError:
        on = date.min
    row = departures.ask_to_leave(
        tenant=tenant,
        leaves_on=on,
        reason=request.POST.get("reason", ""),
        by=person_of(request),
        moment=moment,
    )
    messages.success(
        request, _("The operator is asked to let you leave on %(day)s.") % {"day": say.day(row.leaves_on)}
    )
