"""Payments that came."""

from __future__ import annotations

from typing import Any

from django.http import HttpResponse
from rest_framework import serializers

from billing.models import Payment
from portal.api import parameters
from portal.api.fields import IdField, minor
from portal.api.views import TenantEndpoint


class PaymentSerializer(serializers.ModelSerializer[Payment]):
    """Money that was booked on an invoice; below zero, money that went back."""

    id = IdField("pay")
    tenant = serializers.CharField(source="tenant.slug")
    invoice = serializers.CharField(source="invoice.number")
    amount = serializers.SerializerMethodField()

    class Meta:
        model = Payment
        fields = ("id", "tenant", "invoice", "amount", "received_on", "reference")

    def get_amount(self, payment: Payment) -> dict[str, str]:
        return minor(payment.amount, payment.invoice.currency)


class Payments(TenantEndpoint):
    """What was paid, the newest first."""

    scope = "invoices:read"
    whole_tenant = True
    serializer = PaymentSerializer
    lists = True
    parameters = (
        parameters.TENANT,
        parameters.text("invoice", "Number of an invoice.", longest=40, example="INV-2026-0001"),
        parameters.day("received_from", "Received on this day or later."),
        parameters.day("received_to", "Received before this day."),
        *parameters.LISTS,
    )

    def get(self, request: Any) -> HttpResponse:
        del request
        rows, query = self.of_tenant(Payment.objects.select_related("tenant", "invoice")), self.query
        if query["invoice"]:
            rows = rows.filter(invoice__number__in=query["invoice"])
        if query["received_from"]:
            rows = rows.filter(received_on__gte=query["received_from"])
        if query["received_to"]:
            rows = rows.filter(received_on__lt=query["received_to"])
        return self.page(rows, order=("-received_on", "-pk"))
