"""The history of changes: who changed what, when, through what and why."""

from __future__ import annotations

from typing import Any

from django.http import HttpResponse
from rest_framework import serializers

from portal.api import parameters
from portal.api.fields import IdField, MomentField
from portal.api.problems import bad_parameter
from portal.api.resources.operators.endpoint import TENANT, OperatorEndpoint
from portal.core.audit.history import changes
from portal.core.audit.models import AuditEntry, Operation, as_exact_json
from portal.core.tenants.models import Tenant


class Columns(serializers.JSONField):
    """Columns by name; amounts with all their digits, as strings."""

    def to_representation(self, value: Any) -> Any:
        return as_exact_json(value)


class ChangeSerializer(serializers.ModelSerializer[AuditEntry]):
    """What a statement did to one row. It has no secret and no personal data."""

    id = IdField("chg")
    at = MomentField()
    row = serializers.CharField(source="key", help_text="The row's number.")
    before = Columns(allow_null=True, help_text="Columns that changed, or all of a row that is gone.")
    after = Columns(allow_null=True, help_text="Columns that changed, or all of a new row.")

    class Meta:
        model = AuditEntry
        fields = ("id", "at", "table", "row", "operation", "before", "after", "who", "through", "why")


class History(OperatorEndpoint):
    """Changes of all that is tracked, the newest first."""

    scope = "audit:read"
    serializer = ChangeSerializer
    lists = True
    parameters = (
        TENANT,
        parameters.text("table", "Name of a table.", longest=60, example="billing_invoice"),
        parameters.text("row", "Number of a row, with `table`.", longest=100),
        parameters.choice("operation", [*Operation.values], "What was done."),
        *parameters.LISTS,
    )

    def get(self, request: Any) -> HttpResponse:
        del request
        if self.query["row"] and not self.query["table"]:
            raise bad_parameter("row", "row goes with table: numbers are of one table.")
        slugs = self.query["tenant"]
        owners = list(Tenant.objects.filter(slug__in=slugs).values_list("pk", flat=True)) if slugs else None
        rows = changes(
            tenants=owners,
            tables=self.query["table"] or (),
            keys=self.query["row"] or (),
            operations=self.query["operation"] or (),
        )
        return self.page(rows, order=("-pk",))
