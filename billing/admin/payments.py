"""Payments. None is ever changed: a mistake is reversed by a negative payment."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from django import forms
from django.contrib import admin
from django.contrib.admin.widgets import AdminDateWidget
from django.core.exceptions import ValidationError
from django.http import HttpRequest
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from billing.admin.amounts import money
from billing.models import DocumentKind, Invoice, InvoiceState, Payment
from billing.receivables import manual_payments
from billing.rules.formatting import money_text
from billing.rules.money import Money
from portal.admin import Recorded, portal_page
from portal.sentences import sentence


class NewPayment(forms.ModelForm[Payment]):
    invoice = forms.ModelChoiceField(
        Invoice.objects.filter(state=InvoiceState.ISSUED).exclude(kind=DocumentKind.CREDIT_NOTE)
    )
    paid = forms.CharField(
        label=gettext_lazy("Amount"),
        max_length=30,
        help_text=gettext_lazy(
            "In the invoice's currency, like 1250.00. An overpayment becomes the tenant's credit. A negative amount "
            "reverses a payment recorded by mistake."
        ),
    )
    received_on = forms.DateField(widget=AdminDateWidget)

    class Meta:
        model = Payment
        fields = ("invoice", "received_on", "reference")

    def clean(self) -> dict[str, Any]:
        cleaned_data: dict[str, Any] = super().clean() or {}
        if "invoice" in cleaned_data and "paid" in cleaned_data:
            try:
                cleaned_data["money"] = Money.of(
                    cleaned_data["paid"].strip(), cleaned_data["invoice"].currency
                )
                cleaned_data["money"].check_bookable()
            except ValueError as error:
                raise ValidationError({"paid": sentence(error)}) from error
        return cleaned_data


@admin.register(Payment)
class PaymentAdmin(Recorded[Payment]):
    """Bank transfers received. None is ever changed: a mistake is reversed by a negative one."""

    view_on_site = portal_page("invoice", "tenant.slug", "invoice.number")
    refusals = manual_payments.REFUSALS
    paid = money("amount", "amount", currency="invoice.currency")
    list_display = ("invoice", "tenant", "received_on", "paid", "reference", "recorded_by")
    list_filter = ("tenant",)
    list_select_related = ("invoice", "tenant")
    search_fields = ("reference", "invoice__number")
    date_hierarchy = "received_on"
    ordering = ("-received_on", "-pk")
    form = NewPayment
    autocomplete_fields = ("invoice",)

    def get_fields(self, request: HttpRequest, obj: Payment | None = None) -> tuple[str, ...]:
        return ("invoice", "paid", "received_on", "reference", *(("recorded_by",) if obj else ()))

    def get_readonly_fields(self, request: HttpRequest, obj: Payment | None = None) -> tuple[str, ...]:
        return ("paid",) if obj else ()

    def has_change_permission(self, request: HttpRequest, obj: Payment | None = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Payment | None = None) -> bool:
        return False

    def save_model(self, request: HttpRequest, obj: Payment, form: Any, change: bool) -> None:
        received = manual_payments.record_transfer(
            invoice=obj.invoice,
            amount=form.cleaned_data["money"],
            received_on=obj.received_on,
            reference=obj.reference,
            recorded_by=str(request.user),
            at=datetime.now(UTC),
        )
        obj.pk, obj.amount = received.payment.pk, received.payment.amount
        if received.to_credit.amount > 0:
            self.message_user(
                request,
                _("Overpaid by {amount}: added to the credit balance of {tenant}.").format(
                    amount=money_text(received.to_credit), tenant=obj.invoice.tenant
                ),
            )
