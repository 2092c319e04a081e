"""Closes of months with what became of each tenant, and invoices that wait for approval."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from zoneinfo import ZoneInfo

from django.http import HttpResponse
from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from billing.invoicing import approvals, close_runs
from billing.invoicing.approvals import ApprovalError
from billing.invoicing.close_runs import RunError
from billing.models import CloseKind, CloseRun, Decision, PendingApproval
from portal.api import identifiers, parameters
from portal.api.answers import as_json
from portal.api.bodies import Body
from portal.api.cursors import Page
from portal.api.fields import IdField, MinorField, MomentField, MoneyField
from portal.api.problems import bad_request
from portal.api.resources.operators.endpoint import TENANT, OperatorEndpoint, WritingEndpoint
from portal.api.resources.operators.operations import OperationSerializer, of_close
from portal.core.outbox import outbox

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


class NewClose(Body):
    month = serializers.CharField(max_length=7, help_text="In which the periods start, such as 2026-03.")
    kind = serializers.ChoiceField(
        choices=[*CloseKind.values], help_text="`preview` does everything and keeps nothing of it."
    )
    accept_incomplete = serializers.CharField(
        required=False, default="", allow_blank=True, max_length=500,
        help_text="Why it bills although usage may be missing.",
    )  # fmt: skip


class Closes(OperatorEndpoint):
    """Closes and previews of months, the newest first. POST asks for one of all tenants: an operation."""

    write_scope = "closes:write"
    serializer = CloseSerializer
    created_serializer = OperationSerializer
    request_serializer = NewClose
    success = 202
    needs_idempotency = True
    refusals = (RunError,)
    lists = True
    parameters = (
        MONTH,
        parameters.choice("kind", [*CloseKind.values], "Preview or issue."),
        *parameters.LISTS,
    )

    def get(self, request: Any) -> HttpResponse:
        del request
        return self.page(self.narrowed(CloseRun.objects.all(), month="month", kind="kind"), order=("-pk",))

    def post(self, request: Any) -> HttpResponse:
        del request
        values = self.body()
        run = close_runs.request_run(
            month=values["month"],
            kind=CloseKind(values["kind"]),
            by=self.client.name,
            moment=self.moment.replace(microsecond=0),
            accept_incomplete=values["accept_incomplete"],
        )
        outbox.add("billing.tasks.closes_due")
        return as_json(of_close(run), status=202)


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


class NewDecision(Body):
    decision = serializers.ChoiceField(choices=[Decision.APPROVED.value, Decision.REFUSED.value])
    why = serializers.CharField(max_length=500, allow_blank=True, help_text="Kept with the decision.")
    total = MoneyField(required=False, help_text="As you looked at it: others by now, nothing is decided.")
    lines = serializers.IntegerField(required=False, min_value=0, max_value=10**9, help_text="With `total`.")


class Decisions(WritingEndpoint):
    """Approve or refuse an invoice that a close holds. The next close issues what is approved."""

    write_scope = "closes:write"
    serializer = ApprovalSerializer
    request_serializer = NewDecision
    needs_idempotency = True
    refusals = (ApprovalError,)

    def post(self, request: Any, name: str) -> HttpResponse:
        del request
        rows = PendingApproval.objects.select_related("tenant", "period__tenant")
        row, values = rows.get(pk=identifiers.read("app", name)), self.body()
        seen = None
        if ("total" in values) != ("lines" in values):
            raise bad_request("Send total and lines together.", ("/total", "Send total and lines together."))
        if "total" in values:
            seen = values["total"].minor, values["lines"]
        with self.by(values["why"]):
            decided = approvals.decide_approval(
                period=row.period,
                decision=Decision(values["decision"]),
                by=self.client.name,
                reason=values["why"],
                moment=self.moment.replace(microsecond=0),
                seen=seen,
            )
        return self.one(decided, status=201)
