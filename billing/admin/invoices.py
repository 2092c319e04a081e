"""Invoices and what was paid. Invoices are made by closing a period, never by hand."""

from __future__ import annotations

from datetime import UTC
from fractions import Fraction
from typing import Any
from zoneinfo import ZoneInfo

from django import forms
from django.contrib import admin
from django.contrib.admin.widgets import AdminDateWidget
from django.core.exceptions import ValidationError
from django.db.models import QuerySet
from django.http import HttpRequest
from django.urls import reverse
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString, mark_safe

from billing import collection
from billing.collection import PaymentError
from billing.documents.format import plain_price
from billing.models import Invoice, InvoiceLine, InvoiceState, Payment, Seller
from billing.rules.money import Money, decimal_text
from billing.rules.period import Period, label
from portal.admin import ReadOnly, ReadOnlyInline, Recorded

TITLES = {"vat_id": "VAT id", "iban": "IBAN", "bic": "BIC"}


def _text(minor: int, currency: str) -> str:
    return f"{Money.from_minor(minor, currency).text} {currency}"


def _lines(frozen: dict[str, Any]) -> SafeString:
    """What was copied onto the invoice, a line each, the name first: `VAT id: DE123456789`."""
    names = sorted((name for name in frozen if frozen[name]), key=lambda name: (name != "name", name))
    told = [
        (TITLES.get(name, name.replace("_", " ").capitalize()), ", ".join(str(frozen[name]).splitlines()))
        for name in names
    ]
    return format_html_join(mark_safe("<br>"), "{}: {}", told) or mark_safe("–")


@admin.register(Seller)
class SellerAdmin(Recorded[Seller]):
    list_display = ("name", "code", "vat_id", "invoice_prefix")
    ordering = ("pk",)

    def has_delete_permission(self, request: HttpRequest, obj: Seller | None = None) -> bool:
        return False


class LineInline(ReadOnlyInline):
    model = InvoiceLine
    show_change_link = False
    fields = ("position", "project", "description", "quantity", "price", "net")
    readonly_fields = ("quantity", "price", "net")

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        return super().get_queryset(request).select_related("invoice").order_by("position")

    def quantity(self, line: InvoiceLine) -> str:
        hours = Fraction(int(line.seconds_num), line.seconds_den * 3600)
        return f"{decimal_text(hours, 6)} {line.unit}s"

    @admin.display(description="unit price")
    def price(self, line: InvoiceLine) -> str:
        currency = line.invoice.currency
        return f"{plain_price(line.unit_price, currency)} {currency}"

    def net(self, line: InvoiceLine) -> str:
        return _text(line.amount, line.invoice.currency)


class PaymentInline(ReadOnlyInline):
    model = Payment
    fields = ("received_on", "paid", "reference", "recorded_by")
    readonly_fields = ("paid",)

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        return super().get_queryset(request).select_related("invoice").order_by("received_on", "pk")

    def paid(self, payment: Payment) -> str:
        return _text(payment.amount, payment.invoice.currency)


@admin.register(Invoice)
class InvoiceAdmin(ReadOnly[Invoice]):
    list_display = ("__str__", "tenant", "state", "service_period", "issued_on", "due_on", "gross", "pdf")
    list_filter = ("state", "tenant")
    list_select_related = ("tenant",)
    search_fields = ("number", "tenant__slug", "tenant__name")
    date_hierarchy = "period_start"
    ordering = ("-period_start", "-pk")
    inlines = (LineInline, PaymentInline)
    fields = (
        *("tenant", "state", "number", "pdf", ("service_period", "timezone"), ("issued_on", "due_on")),
        *("net", "rate", "vat", "gross", "from_seller", "to_buyer", "agreed"),
    )
    readonly_fields = (
        "pdf",
        "service_period",
        "net",
        "rate",
        "vat",
        "gross",
        "from_seller",
        "to_buyer",
        "agreed",
    )

    @admin.display(ordering="period_start")
    def service_period(self, invoice: Invoice) -> str:
        of = Period(invoice.period_start.astimezone(UTC), invoice.period_end.astimezone(UTC))
        return label(of, ZoneInfo(invoice.timezone))

    @admin.display(description="seller")
    def from_seller(self, invoice: Invoice) -> SafeString:
        return _lines(invoice.seller)

    @admin.display(description="buyer")
    def to_buyer(self, invoice: Invoice) -> SafeString:
        return _lines(invoice.buyer)

    @admin.display(description="terms")
    def agreed(self, invoice: Invoice) -> SafeString:
        return _lines(invoice.terms)

    @admin.display(description="tax rate")
    def rate(self, invoice: Invoice) -> str:
        return f"{invoice.tax_name} {invoice.tax_rate.normalize():f} %"

    @admin.display(description="total", ordering="total")
    def gross(self, invoice: Invoice) -> str:
        return _text(invoice.total, invoice.currency)

    @admin.display(description="subtotal")
    def net(self, invoice: Invoice) -> str:
        return _text(invoice.subtotal, invoice.currency)

    @admin.display(description="tax")
    def vat(self, invoice: Invoice) -> str:
        return _text(invoice.tax, invoice.currency)

    @admin.display(description="PDF")
    def pdf(self, invoice: Invoice) -> str:
        if invoice.number is None:
            return "–"
        return format_html(
            '<a href="{}">{}</a>', reverse("invoice_pdf", args=[invoice.tenant.slug, invoice.number]), "PDF"
        )


class NewPayment(forms.ModelForm[Payment]):
    invoice = forms.ModelChoiceField(Invoice.objects.filter(state=InvoiceState.ISSUED))
    paid = forms.CharField(
        label="Amount",
        max_length=30,
        help_text="In the invoice's currency, like 1250.00; below zero takes a payment back that was recorded "
        "by mistake.",
    )
    received_on = forms.DateField(widget=AdminDateWidget)

    class Meta:
        model = Payment
        fields = ("invoice", "received_on", "reference")

    def clean(self) -> dict[str, Any]:
        told: dict[str, Any] = super().clean() or {}
        if "invoice" in told and "paid" in told:
            try:
                told["money"] = Money.of(told["paid"].strip(), told["invoice"].currency)
                told["money"].minor  # noqa: B018 - refuses what is no whole number of cents
            except ValueError as error:
                raise ValidationError({"paid": str(error)}) from error
        return told


@admin.register(Payment)
class PaymentAdmin(Recorded[Payment]):
    """Bank transfers that arrived. None is ever changed: a mistake is taken back by a negative one."""

    refusals = (PaymentError,)
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

    @admin.display(description="amount", ordering="amount")
    def paid(self, payment: Payment) -> str:
        return _text(payment.amount, payment.invoice.currency)

    def save_model(self, request: HttpRequest, obj: Payment, form: Any, change: bool) -> None:
        kept = collection.record_payment(
            invoice=obj.invoice,
            amount=form.cleaned_data["money"],
            received_on=obj.received_on,
            reference=obj.reference,
            recorded_by=str(request.user),
        )
        obj.pk, obj.amount = kept.pk, kept.amount
