"""What an owner decides about the plan: another public one from the next billing period on, or to leave."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.utils.translation import gettext as _

from billing.catalog.plans import PlanError
from billing.models import Departure
from billing.sign_up import departures, plan_changes
from billing.sign_up.plan_changes import PlanChoice
from billing.sign_up.policy import SignUpError
from portal.core.tenants.access import Action
from portal.core.tenants.models import Tenant
from portal.core.tenants.scope import acting_scope
from portal.sentences import sentence
from portal.web import format as say
from portal.web.access_decorators import TenantRequest, answer, tenant_act, tenant_page
from portal.web.payment import person_of
from portal.web.plan_difference import Compared, compared


@dataclass(frozen=True, kw_only=True)
class PlanChangePage:
    """`preview` compares the chosen plan with the present one, as both are on the day of the change."""

    choice: PlanChoice | None  # None: the plan was agreed with the operator, or there is none
    planned: str  # the plan that follows; "" for none
    planned_public: bool
    begins: date | None  # the first day of the next period, in the tenant's zone
    chosen: str  # of the plan that is previewed; "" for none
    preview: Compared | None
    seen: str  # what the preview was of, so that another one is not confirmed
    departure: Departure | None
    tomorrow: date


@tenant_page(Action.MANAGE, area="plan")
def plan_change(request: TenantRequest) -> HttpResponse:
    chosen = request.GET.get("plan", "")
    with acting_scope(request.tenant):
        choice = plan_changes.load_choice(request.tenant, moment=request.moment)
        departure = departures.departure_of(request.tenant)
        preview, seen = _preview(request.tenant, choice, chosen)
    planned = choice.planned if choice else None
    page = PlanChangePage(
        choice=choice,
        planned=planned.plan.name if planned else "",
        planned_public=planned is not None and planned.plan.public,
        begins=choice.begins.astimezone(request.zone).date() if choice else None,
        chosen=chosen if preview else "",
        preview=preview,
        seen=seen,
        departure=departure,
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
        messages.error(request, sentence(refusal))
    return redirect("plan_change", tenant.slug)


def _preview(tenant: Tenant, choice: PlanChoice | None, name: str) -> tuple[Compared | None, str]:
    plan = next((row for row in choice.plans if row.name == name), None) if choice else None
    if choice is None or plan is None:
        return None, ""
    before = plan_changes.version_at(choice.present, tenant, moment=choice.begins)
    after = plan_changes.version_at(plan, tenant, moment=choice.begins)
    if after is None:
        return None, ""
    return compared(before, after), _seen(choice.begins, after.pk)


def _seen(begins: datetime, version: int) -> str:
    return f"{begins:%Y-%m-%dT%H:%M:%SZ}.{version}"


def _change(request: HttpRequest, tenant: Tenant, moment: datetime) -> None:
    name = request.POST.get("plan", "")
    _compared, seen = _preview(tenant, plan_changes.load_choice(tenant, moment=moment), name)
    if seen and seen != request.POST.get("seen"):
        messages.error(request, _("It changed since the preview, so nothing was done. Look at it again."))
        return
    row = plan_changes.change_plan(tenant=tenant, plan=name, moment=moment)
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
