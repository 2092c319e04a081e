"""Events: what happened to a tenant's invoices, payments and wallets, and to what the operators run."""

from __future__ import annotations

from typing import Any

from django.http import HttpResponse
from rest_framework import serializers

from portal.api import identifiers, parameters
from portal.api.fields import IdField, MomentField
from portal.api.parameters import Parameter
from portal.api.problems import ProblemError
from portal.api.views import TenantEndpoint
from portal.core.events.bodies import body_of
from portal.core.events.models import Event, EventType


class SubjectSerializer(serializers.Serializer[Event]):
    """The object that it happened to: ask for the rest."""

    id = serializers.CharField(help_text="Id of the object.")
    object = serializers.CharField()
    state = serializers.CharField(help_text="Of the object, when it happened.")
    tenant = serializers.CharField(
        source="tenant.slug", default=None, allow_null=True, help_text="Null: the operators'."
    )


class EventSerializer(serializers.ModelSerializer[Event]):
    """One event, as webhooks send it too."""

    id = IdField("evt", source="number", help_text="`webhook-id` of its deliveries.")
    type = serializers.ChoiceField(choices=EventType.choices)
    timestamp = MomentField(source="at")
    sequence = serializers.IntegerField(help_text="Counts the tenant's events, without a gap.")

    class Meta:
        model = Event
        fields = ("id", "type", "timestamp", "sequence")

    def get_fields(self) -> dict[str, Any]:
        return {**super().get_fields(), "data": SubjectSerializer(source="*")}  # serializers have a `data`

    def to_representation(self, event: Event) -> dict[str, Any]:
        return body_of(event)


def _number(text: str) -> int:
    try:
        return identifiers.read("evt", text)
    except ProblemError:
        raise ValueError("write the id of an event, as events have it.") from None


AFTER = Parameter(
    "after",
    _number,
    {"type": "string", "pattern": "^evt_[0-9a-z]{13}$"},
    "Id of an event: those behind it, also when it is not kept any more.",
    example="evt_3v7ctp5qk2m8r",
)


class Events(TenantEndpoint):
    """What happened, in the order of commits, of the last 90 days. Go on with the id of the last one as `after`."""

    scope = "invoices:read"
    whole_tenant = True
    serializer = EventSerializer
    lists = True
    parameters = (
        parameters.TENANT,
        AFTER,
        parameters.choice("type", EventType.values, "Which events."),
        *parameters.LISTS,
    )

    def get(self, request: Any) -> HttpResponse:
        del request
        rows = self.of_tenant(Event.objects.numbered().select_related("tenant"))
        if self.query["after"] is not None:
            rows = rows.filter(number__gt=self.query["after"])
        if self.query["type"]:
            rows = rows.filter(type__in=self.query["type"])
        return self.page(rows, order=("number",))
