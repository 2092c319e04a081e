"""Closes of months with what became of each tenant, and invoices that wait for approval."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from zoneinfo import ZoneInfo

from django.http import HttpResponse
from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from billing.models import CloseKind, CloseRun, Decision, PendingApproval
from portal.api import identifiers, parameters
from portal.api.cursors import Page
from portal.api.fields import IdField, MinorField, MomentField, MoneyField
from portal.api.resources.operators.endpoint import TENANT, OperatorEndpoint

MONTH = parameters.text("month", "In which the periods start.", longest=7, example="2026-03")


class CloseSerializer(serializers.ModelSerializer[CloseRun]):
    """A close of a month for all tenants, or its preview."""

    id = IdField("close")
    requested_at = MomentField()
    started_at = MomentField(allow_null=True)
    ended_at = MomentField(allow_null=True, help_text="Null: it is under way.")

    class Meta:
        model = CloseRun
        fields = (
            *("id", "month", "kind", "scheduled", "requested_by", "requested_at", "accept_incomplete"),
            *("total", "done", "started_at", "ended_at", "error"),
        )


class Closes(OperatorEndpoint):
    """Closes and previews of months, the newest first."""

    serializer = CloseSerializer
    lists = True
    parameters = (
        MONTH,
        parameters.choice("kind", [*CloseKind.values], "Preview or issue."),
        *parameters.LISTS,
    )

    def get(self, request: Any) -> HttpResponse:
        del request
        return self.page(self.narrowed(CloseRun.objects.all(), month="month", kind="kind"), order=("-pk",))


class OneClose(OperatorEndpoint):
    """One close or preview, by its id."""

    serializer = CloseSerializer

    def get(self, request: Any, name: str) -> HttpResponse:
        del request
        return self.one(CloseRun.objects.get(pk=identifiers.read("close", name)))


class BlockSerializer(serializers.Serializer[Any]):
    code = serializers.CharField()
    sentence = serializers.CharField(help_text="What blocks, and what to do.")


class DocumentSerializer(serializers.Serializer[Any]):
    """What stands beside the invoice of the period, such as a credit note."""

    kind = serializers.CharField()
    number = serializers.CharField(allow_null=True)
    total = serializers.SerializerMethodField()
    original = serializers.CharField(allow_null=True)

    @extend_schema_field(MoneyField())
    def get_total(self, row: Mapping[str, Any]) -> Mapping[str, str] | None:
        return _amount(row)


class CloseResultSerializer(serializers.Serializer[Any]):
    """What became of one tenant; of a preview, what would. The fields are those of `close_period --json`."""

    tenant = serializers.CharField()
    outcome = serializers.CharField()
    number = serializers.CharField(allow_null=True)
    total = serializers.SerializerMethodField(help_text="With tax.")
    reason = serializers.CharField(allow_null=True)
    note = serializers.CharField(allow_null=True)
    blocks = BlockSerializer(many=True)
    change = serializers.JSONField(allow_null=True, help_text="Against the invoice before; amounts as text.")
    related_documents = DocumentSerializer(many=True)

    @extend_schema_field(MoneyField(allow_null=True))
    def get_total(self, row: Mapping[str, Any]) -> Mapping[str, str] | None:
        return _amount(row)


def _amount(row: Mapping[str, Any]) -> Mapping[str, str] | None:
    if row["total"] is None:
        return None
    return {"amount": row["total"], "currency": row["currency"]}


class CloseResults(OperatorEndpoint):
    """What became of each tenant in a close, as `close_period --json` prints it."""

    serializer = CloseResultSerializer
    lists = True
    parameters = (TENANT, parameters.text("outcome", "What became of it.", longest=20), *parameters.LISTS)

    def get(self, request: Any, name: str) -> HttpResponse:
        del request
        run = CloseRun.objects.get(pk=identifiers.read("close", name))
        rows = self.narrowed(run.results.all(), tenant="tenant__slug", outcome="outcome")
        return self.page(rows, order=("pk",))

    def prepared(self, page: Page[Any]) -> Sequence[Any]:
        return [row.details for row in page.rows]


class ApprovalSerializer(serializers.ModelSerializer[PendingApproval]):
    """An invoice that a close holds, since it is beyond a limit. The fields are those of `approve_invoice --json`."""

    id = IdField("app")
    tenant = serializers.CharField(source="tenant.slug")
    month = serializers.SerializerMethodField(help_text="In which its period starts.")
    total = MinorField("total", help_text="With tax.")
    since = MomentField()
    by = serializers.CharField(source="decided_by", help_text="Who decided; empty: nobody yet.")
    why = serializers.CharField(source="decision_reason")
    decided_at = MomentField(allow_null=True)

    class Meta:
        model = PendingApproval
        fields = (
            *("id", "tenant", "month", "state", "reason", "total", "lines", "since", "by", "why"),
            "decided_at",
        )

    def get_month(self, row: PendingApproval) -> str:
        return f"{row.period.start.astimezone(ZoneInfo(row.period.timezone)):%Y-%m}"


class Approvals(OperatorEndpoint):
    """Invoices that were held for approval, the newest period first."""

    serializer = ApprovalSerializer
    lists = True
    parameters = (
        TENANT,
        parameters.choice("state", [*Decision.values], "Whether it waits, or how it was decided."),
        *parameters.LISTS,
    )

    def rows(self) -> Any:
        return PendingApproval.objects.select_related("tenant", "period")

    def get(self, request: Any) -> HttpResponse:
        del request
        return self.page(self.narrowed(self.rows(), tenant="tenant__slug", state="state"), order=("-pk",))
