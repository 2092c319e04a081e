"""Jobs that do not use their GPUs, as waste rules found them: what they cost, and what was done."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.http import HttpResponse
from rest_framework import serializers

from billing.models import WasteClosed, WasteFinding, WasteState
from portal.api import cursors, parameters
from portal.api.fields import IdField, MomentField
from portal.api.views import TenantEndpoint
from portal.ops.waste import finding_data


class EstimateSerializer(serializers.Serializer[Any]):
    """An estimate, rounded: it is never added up with what is billed."""

    amount = serializers.CharField()
    currency = serializers.CharField()


class IdleJobSerializer(serializers.Serializer[Any]):
    """A job that met a waste rule."""

    id = IdField("wst")
    tenant = serializers.CharField()
    rule = serializers.CharField()
    cluster = serializers.CharField()
    account = serializers.CharField()
    user = serializers.CharField()
    job = serializers.CharField(help_text="As its scheduler numbers it.")
    job_name = serializers.CharField()
    gpus = serializers.IntegerField()
    gpu_model = serializers.CharField()
    state = serializers.ChoiceField(choices=WasteState.choices)
    closed_for = serializers.ChoiceField(
        choices=["", *WasteClosed.values], help_text="Why nothing more is done; empty: it is open."
    )
    began_at = MomentField()
    idle_since = MomentField()
    due_at = MomentField(allow_null=True, help_text="When it is, or would have been, ended.")
    ended_at = MomentField(allow_null=True, help_text="When the rule has ended it.")
    ran_until = MomentField(allow_null=True, help_text="Until when it was idle, or ran.")
    hour_cost = EstimateSerializer(allow_null=True, help_text="Null: no price is known.")
    idle_cost = EstimateSerializer(allow_null=True, help_text="Since `idle_since`.")
    saved_cost = EstimateSerializer(
        allow_null=True, help_text="By ending it, so far; of `watched` what it would have been."
    )
    error = serializers.CharField(help_text="Why it could not be ended yet: for operators.")


class IdleJobs(TenantEndpoint):
    """Running jobs that held GPUs without using them, as waste rules found them, the newest first."""

    of_everybody = True
    scope = "jobs:read"
    whole_tenant = True
    serializer = IdleJobSerializer
    lists = True
    parameters = (
        parameters.TENANT,
        parameters.choice("state", WasteState.values, "Which of them."),
        *parameters.LISTS,
    )

    def get(self, request: Any) -> HttpResponse:
        del request
        rows = self.of_tenant(WasteFinding.objects.select_related("tenant", "rule"))
        if states := self.query.get("state"):
            rows = rows.filter(state__in=states)
        return self.page(rows, order=("-pk",))

    def prepared(self, page: cursors.Page[Any]) -> Sequence[Any]:
        inner = self.client.tenant is None
        return [{"pk": row.pk} | finding_data(row, moment=self.moment, inner=inner) for row in page.rows]
