"""Overdue invoices, with what dunning does of each."""

from __future__ import annotations

from datetime import date
from typing import Any

from django.http import HttpResponse
from rest_framework import serializers

from billing.dunning import overdue_invoices
from billing.dunning.overdue_invoices import OverdueInvoice
from portal.api import identifiers, parameters
from portal.api.answers import as_json
from portal.api.fields import minor
from portal.api.resources.operators.endpoint import OperatorEndpoint


class OverdueSerializer(serializers.Serializer[Any]):
    """An invoice that was not paid on the day it was due."""

    invoice = serializers.CharField(source="number")
    tenant = serializers.CharField(source="slug")
    due_on = serializers.DateField()
    days = serializers.IntegerField(help_text="Since it was due.")
    due = serializers.SerializerMethodField()
    reminders = serializers.IntegerField(help_text="The last reminder that was written.")
    suspended = serializers.BooleanField(help_text="Whether the tenant's new jobs do not start.")
    under_way = serializers.BooleanField(help_text="Whether a payment of it is.")
    pause_reason = serializers.CharField(help_text="Why nothing is done; empty: dunning goes on.")

    def get_due(self, row: OverdueInvoice) -> dict[str, str]:
        return minor(row.left, row.currency)


def _place(text: str) -> tuple[date, int]:
    day, _, name = text.partition("_")
    return parameters.parse_day(day), identifiers.read("inv", name)


class Receivables(OperatorEndpoint):
    """Overdue invoices, the longest due first. `after` names the last invoice of the page before."""

    serializer = OverdueSerializer
    lists = True
    parameters = (
        parameters.LIMIT,
        parameters.Parameter(
            "after",
            _place,
            {"type": "string", "pattern": r"^\d{4}-\d\d-\d\d_inv_[0-9a-z]{13}$"},
            "`next` of the page before.",
        ),
    )

    def get(self, request: Any) -> HttpResponse:
        del request
        limit = self.query["limit"]
        rows = overdue_invoices.list_overdue_page(
            moment=self.moment, after=self.query["after"], limit=limit + 1
        )
        last = rows[limit - 1] if len(rows) > limit else None
        following = f"{last.due_on}_{identifiers.write('inv', last.pk)}" if last else None
        return as_json({"data": OverdueSerializer(rows[:limit], many=True).data, "next": following})
