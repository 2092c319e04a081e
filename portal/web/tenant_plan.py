"""The plan of a tenant changed by an operator, from a day of its zone on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from django.http import HttpRequest, HttpResponse
from django.utils.translation import gettext as _

from billing.catalog import subscriptions
from billing.catalog.plans import PlanError
from billing.models import Plan
from billing.rules.period import midnight
from portal.core.outbox import outbox
from portal.core.tenants.access import Right
from portal.core.tenants.models import Tenant
from portal.web import acts
from portal.web import format as say
from portal.web.access_decorators import operator_page
from portal.web.acts import ActError, Field, Preview, Values
from portal.web.form_input import Option
from portal.web.page_frame import PageFrame
from portal.web.templatetags.clustertab import moment as moment_text
from portal.web.tenant_acts import tenant_act_of, tenant_of


@operator_page("tenants", acts=Right.TENANTS)
def change_plan(request: HttpRequest, frame: PageFrame, *, tenant: str) -> HttpResponse:
    """Usage from then on is rated again."""
    row = tenant_of(tenant)
    form = _PlanForm(row, {plan.name: plan for plan in Plan.objects.order_by("name")})
    act = tenant_act_of(
        row,
        _("Change the plan of {tenant}"),
        _("Change plan"),
        Right.TENANTS,
        form.fields(datetime.now(UTC)),
        form.preview,
        form.carry_out,
        (PlanError,),
    )
    return acts.conduct(request, frame, act)


@dataclass(frozen=True, slots=True)
class _PlanForm:
    tenant: Tenant
    plans: Mapping[str, Plan]

    def fields(self, now: datetime) -> list[Field]:
        hint = _("A day of {zone}. The currency changes at the start of a billing period only.")
        return [
            Field(
                name="plan",
                label=_("Plan"),
                kind="select",
                required=True,
                options=[Option(value=name, label=name) for name in self.plans],
            ),
            Field(
                name="since",
                label=_("From"),
                kind="date",
                required=True,
                value=f"{now.astimezone(self.tenant.zone).date()}",
                hint=hint.format(zone=self.tenant.timezone),
            ),
            Field(name="why", label=_("Reason"), hint=_("Kept in the history.")),
        ]

    def since(self, values: Values) -> datetime:
        return midnight(acts.day(values["since"]), zone=self.tenant.zone)

    def subscribe(self, values: Values) -> Plan:
        plan = self.plans.get(values["plan"])
        if plan is None:
            raise ActError(_("Choose a plan."))
        subscriptions.subscribe(tenant=self.tenant, plan=plan, since=self.since(values))
        return plan

    def preview(self, values: Values) -> Preview:
        name, since = self.tenant.name, self.since(values)
        rows = self.tenant.subscriptions.filter(since__lte=since).exclude(until__lte=since)
        before = rows.values_list("plan__name", flat=True).first() or ""
        acts.undone(lambda: self.subscribe(values))
        if before == values["plan"]:
            text = _("{tenant} is on {plan} then already.").format(tenant=name, plan=before)
            return Preview([text], possible=False)
        text = _("{tenant} is on {plan} from {day} on ({zone}), instead of {before}.").format(
            tenant=name,
            plan=values["plan"],
            day=say.day(acts.day(values["since"])),
            zone=self.tenant.timezone,
            before=before or _("no plan"),
        )
        rated = _(
            "Its usage from then on is rated again. What was invoiced stays; the next close bills or credits "
            "the difference."
        )
        return Preview([text, rated])

    def carry_out(self, values: Values) -> str:
        plan = self.subscribe(values)
        outbox.add("billing.tasks.rate_tenants", tenant_ids=[self.tenant.pk])
        since = moment_text(self.since(values), self.tenant.zone)
        return _("{tenant} is on {plan} from {since}.").format(
            tenant=self.tenant.name, plan=plan.name, since=since
        )
