"""Service credits: jobs whose GPU or node failed, with the evidence, and what is credited for them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.http import HttpResponse
from rest_framework import serializers

from billing.models import CreditedPart, CreditState, ServiceCredit
from portal.api import cursors, parameters
from portal.api.fields import IdField, MomentField
from portal.api.views import TenantEndpoint
from portal.ops.service_credits import credit_data


class CreditAmountSerializer(serializers.Serializer[Any]):
    """Before tax, as the line of the invoice has it."""

    amount = serializers.CharField()
    currency = serializers.CharField()


class ServiceCreditSerializer(serializers.Serializer[Any]):
    """A job whose hardware failed."""

    id = IdField("svc")
    tenant = serializers.CharField()
    rule = serializers.CharField(help_text="For operators.")
    cluster = serializers.CharField()
    user = serializers.CharField()
    job = serializers.CharField(help_text="As its scheduler numbers it.")
    job_name = serializers.CharField()
    cause = serializers.CharField(help_text='"XID 79", "ECC_DBE", or the state in which the job ended.')
    gpu = serializers.CharField(help_text="UUID of the GPU; empty: the state is the evidence.")
    node = serializers.CharField()
    failed_at = MomentField()
    ended_at = MomentField()
    part = serializers.ChoiceField(choices=CreditedPart.choices)
    percent = serializers.IntegerField(help_text="Of what the part was billed.")
    state = serializers.ChoiceField(choices=CreditState.choices)
    amount = CreditAmountSerializer(allow_null=True, help_text="Null: not known before it is invoiced.")
    removed = serializers.BooleanField(help_text="The operator took the line off the invoice again.")
    error = serializers.CharField(help_text="Why a person has to decide: for operators.")


class ServiceCredits(TenantEndpoint):
    """Jobs whose GPU or node failed and that rules of the operator credit, the newest first."""

    of_everybody = True
    scope = "jobs:read"
    whole_tenant = True
    serializer = ServiceCreditSerializer
    lists = True
    parameters = (
        parameters.TENANT,
        parameters.choice("state", CreditState.values, "Which of them."),
        *parameters.LISTS,
    )

    def get(self, request: Any) -> HttpResponse:
        del request
        rows = self.of_tenant(ServiceCredit.objects.select_related("tenant"))
        if self.client.tenant is None:
            rows = rows.select_related("failure_rule")
        else:
            rows = rows.exclude(state=CreditState.WATCHED)  # only the operator's to see
        if states := self.query.get("state"):
            rows = rows.filter(state__in=states)
        return self.page(rows, order=("-pk",))

    def prepared(self, page: cursors.Page[Any]) -> Sequence[Any]:
        inner = self.client.tenant is None
        return [{"pk": row.pk} | credit_data(row, inner=inner) for row in page.rows]
