"""Tenants that ask to leave, and their end of service."""

from __future__ import annotations

from typing import Any

from django.http import HttpResponse
from rest_framework import serializers

from billing.catalog.plans import PlanError
from billing.models import Departure
from billing.sign_up import departures, plan_changes
from billing.sign_up.policy import SignUpError
from portal.api import identifiers, parameters
from portal.api.bodies import Body
from portal.api.fields import IdField, MomentField
from portal.api.resources.operators.endpoint import TENANT, OperatorEndpoint, WritingEndpoint
from portal.core.tenants.ownership import OwnershipConflictError


class DepartureSerializer(serializers.ModelSerializer[Departure]):
    """An owner asks that the tenant leaves. It is open until it was taken back, or carried out."""

    id = IdField("dep")
    tenant = serializers.CharField(source="tenant.slug")
    asked_at = MomentField()
    withdrawn_at = MomentField(allow_null=True)
    ended_at = MomentField(allow_null=True, help_text="When accounts and plan were ended.")

    class Meta:
        model = Departure
        fields = (
            *("id", "tenant", "leaves_on", "reason", "asked_by", "asked_at", "withdrawn_at", "ended_at"),
        )


def departure_named(name: str) -> Departure:
    row: Departure = Departure.objects.select_related("tenant").get(pk=identifiers.read("dep", name))
    return row


class Departures(OperatorEndpoint):
    """All who asked to leave, the newest first."""

    serializer = DepartureSerializer
    lists = True
    parameters = (
        TENANT,
        parameters.flag("open", "Only those that nobody took back or carried out."),
        *parameters.LISTS,
    )

    def get(self, request: Any) -> HttpResponse:
        del request
        rows = departures.open_departures() if self.query["open"] else Departure.objects.all()
        rows = self.narrowed(rows.order_by().select_related("tenant"), tenant="tenant__slug")
        return self.page(rows, order=("-pk",))


class OneDeparture(OperatorEndpoint):
    """One of them."""

    serializer = DepartureSerializer

    def get(self, request: Any, name: str) -> HttpResponse:
        del request
        return self.one(departure_named(name))


class NewServiceEnd(Body):
    reason = serializers.CharField(
        max_length=200, required=False, allow_blank=True, help_text="For the history."
    )


class DepartureEndings(WritingEndpoint):
    """End the accounts and the plan of a tenant that asked to leave, now. The next close bills the rest."""

    write_scope = "tenants:write"
    serializer = DepartureSerializer
    request_serializer = NewServiceEnd
    needs_idempotency = True
    refusals = (SignUpError, PlanError, OwnershipConflictError)

    def post(self, request: Any, name: str) -> HttpResponse:
        del request
        plan_changes.lock(departure_named(name).tenant)
        row = departure_named(name)
        if row.withdrawn_at or row.ended_at:  # another one may be open, and is not meant
            raise SignUpError("departure-none", tenant=row.tenant)
        with self.by(self.body().get("reason", "")):
            departures.carry_out(tenant=row.tenant, moment=self.moment.replace(microsecond=0))
        return self.one(departure_named(name), status=201)
