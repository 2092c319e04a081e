"""What an owner decides about the plan: another public one from the next billing period on, or to leave."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from django.http import HttpResponse
from rest_framework import serializers

from billing.catalog.plans import PlanError
from billing.models import Departure, Subscription
from billing.sign_up import departures, plan_changes
from billing.sign_up.last_period import compare_last_period
from billing.sign_up.plan_changes import PlanChoice, PlanPreview
from billing.sign_up.policy import SignUpError
from portal.api import parameters
from portal.api.bodies import Body
from portal.api.entry_fields import as_data, body_of
from portal.api.fields import DayField, MomentField, MoneyField, day, moment, money
from portal.api.problems import not_found
from portal.api.views import TenantEndpoint
from portal.config_file.export import plan_entry
from portal.config_file.plan_entries import PlanEntry
from portal.core.tenants.models import Tenant
from portal.sentences import sentence


class PlannedChangeSerializer(serializers.ModelSerializer[Subscription]):
    """The plan that follows the present one."""

    plan = serializers.CharField(source="plan.name")
    since = MomentField()

    class Meta:
        model = Subscription
        fields = ("plan", "since")


class PlanChoicesSerializer(serializers.Serializer[Any]):
    """What the tenant is on, and what it may choose."""

    plan = serializers.CharField(allow_null=True, help_text="The present one, where it is public.")
    begins_at = MomentField(allow_null=True, help_text="The next billing period, with which a change begins.")
    ends_on = serializers.DateField(allow_null=True, help_text="Where the operator ends the plan.")
    planned = PlannedChangeSerializer(allow_null=True)
    offered = serializers.ListField(child=serializers.CharField(), help_text="Other plans, by name.")
    reason = serializers.CharField(help_text="Why there is no choice; empty where there is one.")


class PlanTerms(body_of(PlanEntry)):  # type: ignore[misc]  # its fields are those of the file
    """What a plan costs on the day of the change. The fields are those of `[[plan]]`."""


class LastPeriodSerializer(serializers.Serializer[Any]):
    """The last billing period that is over, before tax, at the prices that both plans had then."""

    period_start = MomentField(allow_null=True)
    period_end = MomentField(allow_null=True)
    present_cost = serializers.ListField(child=MoneyField(), help_text="What it cost; one per currency.")
    offered_cost = serializers.ListField(child=MoneyField(), help_text="What it would have cost.")
    reason = serializers.CharField(help_text="Why nothing is compared; empty where it is.")


class PlanPreviewSerializer(serializers.Serializer[Any]):
    """A plan that is offered, beside the present one."""

    plan = serializers.CharField()
    begins_at = MomentField(help_text="The next billing period, with which the change begins.")
    seen = serializers.CharField(help_text="Sent with the change: it is refused if another one would come.")
    present_terms = PlanTerms(allow_null=True)
    offered_terms = PlanTerms()
    last_period = LastPeriodSerializer()


class PlanChangeFields(Body):
    plan = serializers.CharField(max_length=50, help_text="One that is offered.")
    seen = serializers.CharField(
        max_length=50, required=False, help_text="Of the preview: nothing else is done than it showed."
    )


class DepartureFields(Body):
    leaves_on = DayField(help_text="The first day without service, in the tenant's zone.")
    reason = serializers.CharField(
        max_length=departures.LONGEST_REASON, required=False, allow_blank=True, help_text="For the operator."
    )


class OwnDepartureSerializer(serializers.ModelSerializer[Departure]):
    """The operator is asked to let the tenant leave. Nothing ends before they do so."""

    asked_at = MomentField()

    class Meta:
        model = Departure
        fields = ("leaves_on", "reason", "asked_by", "asked_at")


class OwnerEndpoint(TenantEndpoint):
    """Of an owner's key alone: operators set plans under `/tenants`."""

    scope = "subscription:write"
    whole_tenant = True
    acts = True
    refusals = (SignUpError, PlanError)
    write_parameters = (parameters.DRY_RUN,)

    def locked(self) -> Tenant:
        """The tenant, whose plan nobody else decides about until the transaction ends."""
        tenant = self.needed_tenant()
        plan_changes.lock(tenant)
        return tenant


class PlanChoices(OwnerEndpoint):
    """Which public plans the owner may change to."""

    serializer = PlanChoicesSerializer

    def get(self, request: Any) -> HttpResponse:
        del request
        return self.one(plan_changes.load_choice(self.needed_tenant(), moment=self.moment))

    def representation(self, row: Any, **context: Any) -> Any:
        del context
        choice: PlanChoice | None = row
        if choice is None:
            reason = sentence(SignUpError("plan-change-negotiated"))
            return {
                "plan": None,
                "begins_at": None,
                "ends_on": None,
                "planned": None,
                "offered": [],
                "reason": reason,
            }
        ends = choice.ends is not None
        return {
            "plan": choice.present.name,
            "begins_at": moment(choice.begins),
            "ends_on": day(choice.ends),
            "planned": PlannedChangeSerializer(choice.planned).data if choice.planned else None,
            "offered": [plan.name for plan in choice.plans],
            "reason": sentence(SignUpError("plan-change-ending", day=choice.ends)) if ends else "",
        }


class OnePlanChoice(OwnerEndpoint):
    """What another plan would cost, beside the present one."""

    serializer = PlanPreviewSerializer

    def get(self, request: Any, name: str) -> HttpResponse:
        del request
        try:
            preview = plan_changes.load_preview(self.needed_tenant(), plan=name, moment=self.moment)
        except SignUpError as refusal:
            raise not_found() from refusal
        return self.one(preview)

    def representation(self, row: Any, **context: Any) -> Any:
        del context
        preview: PlanPreview = row
        last = compare_last_period(tenant=self.needed_tenant(), plan=preview.after.plan, moment=self.moment)
        return {
            "plan": preview.after.plan.name,
            "begins_at": moment(preview.choice.begins),
            "seen": preview.seen,
            "present_terms": as_data(plan_entry(preview.before)) if preview.before else None,
            "offered_terms": as_data(plan_entry(preview.after)),
            "last_period": {
                "period_start": moment(last.period.start) if last.period else None,
                "period_end": moment(last.period.end) if last.period else None,
                "present_cost": [money(amount) for amount in last.now],
                "offered_cost": [money(amount) for amount in last.offered],
                "reason": sentence(last.reason) if last.reason else "",
            },
        }


class OwnerDecision(OwnerEndpoint):
    """What an owner decided and is still to come: one of a kind, or none."""

    def decision(self, tenant: Tenant) -> Any:
        """None where there is none."""
        raise NotImplementedError

    def decide(self, tenant: Tenant, moment: datetime) -> Any:
        """As the body says, in place of what was decided before."""
        raise NotImplementedError

    def take_back(self, tenant: Tenant, moment: datetime) -> None:
        raise NotImplementedError

    def get(self, request: Any) -> HttpResponse:
        del request
        return self.one(self.existing(self.needed_tenant()))

    def put(self, request: Any) -> HttpResponse:
        del request
        tenant = self.locked()
        row = self.decision(tenant)
        if row is None:
            self.match_new()
        else:
            self.match(row)
        return self.one(self.decide(tenant, self.moment.replace(microsecond=0)))

    def delete(self, request: Any) -> HttpResponse:
        del request
        tenant = self.locked()
        self.match(self.existing(tenant))
        self.take_back(tenant, self.moment.replace(microsecond=0))
        return HttpResponse(status=204)

    def existing(self, tenant: Tenant) -> Any:
        row = self.decision(tenant)
        if row is None:
            raise not_found()
        return row


class PlanChange(OwnerDecision):
    """The change that is planned. PUT plans one in its place, DELETE stays on the present plan."""

    serializer = PlannedChangeSerializer
    request_serializer = PlanChangeFields

    def decision(self, tenant: Tenant) -> Subscription | None:
        choice = plan_changes.load_choice(tenant, moment=self.moment)
        return choice.planned if choice else None

    def decide(self, tenant: Tenant, moment: datetime) -> Subscription:
        return plan_changes.change_plan(tenant=tenant, moment=moment, **self.body())

    def take_back(self, tenant: Tenant, moment: datetime) -> None:
        plan_changes.withdraw_change(tenant=tenant, moment=moment)


class OwnDeparture(OwnerDecision):
    """That the tenant asks to leave. PUT asks, or changes the day; DELETE takes it back."""

    serializer = OwnDepartureSerializer
    request_serializer = DepartureFields

    def decision(self, tenant: Tenant) -> Departure | None:
        return departures.departure_of(tenant)

    def decide(self, tenant: Tenant, moment: datetime) -> Departure:
        values = {"reason": "", **self.body()}
        return departures.ask_to_leave(tenant=tenant, by=self.client.name, moment=moment, **values)

    def take_back(self, tenant: Tenant, moment: datetime) -> None:
        departures.withdraw(tenant=tenant, moment=moment)
