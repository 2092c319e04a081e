"""Invoices, with their lines, taxes and payments. Closing a period issues them; none is entered here."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from fractions import Fraction
from typing import Any
from zoneinfo import ZoneInfo

from django import forms
from django.contrib import admin, messages
from django.contrib.admin.helpers import ActionForm
from django.db import transaction
from django.db.models import QuerySet
from django.http import HttpRequest
from django.template.response import TemplateResponse
from django.urls import reverse
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString, mark_safe
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from billing.admin import confirmation
from billing.admin.amounts import money, money_of
from billing.catalog import billing_periods
from billing.catalog.line_descriptions import detail
from billing.documents import vat_ids
from billing.invoicing import credit_note_previews, credit_notes, voids
from billing.models import (
    Invoice,
    InvoiceLine,
    InvoiceTax,
    Payment,
    Seller,
    TaxRate,
    Voiding,
)
from billing.payments import checkout_sessions, refunds
from billing.receivables import write_offs
from billing.rules.formatting import price_text
from billing.rules.meters import plural
from billing.rules.money import decimal_text
from billing.rules.period import Period, label
from portal.admin import ReadOnly, ReadOnlyInline, Recorded, portal_page
from portal.core.audit import acting_as
from portal.sentences import sentence

TITLES = {"vat_id": "VAT ID", "iban": "IBAN", "bic": "BIC"}


def _lines(frozen: dict[str, Any]) -> SafeString:
    """What was copied onto the invoice, a line each, the name first: `VAT ID: DE123456789`."""
    names = sorted((name for name in frozen if frozen[name]), key=lambda name: (name != "name", name))
    rows = [
        (TITLES.get(name, name.replace("_", " ").capitalize()), ", ".join(str(frozen[name]).splitlines()))
        for name in names
    ]
    return format_html_join(mark_safe("<br>"), "{}: {}", rows) or mark_safe("–")


class SellerForm(forms.ModelForm[Seller]):
    """Refuses an impossible VAT ID."""

    def clean(self) -> dict[str, Any] | None:
        cleaned_data = super().clean() or self.cleaned_data
        if wrong := vat_ids.problem(cleaned_data.get("vat_id", ""), cleaned_data.get("country", "")):
            raise forms.ValidationError(_("The VAT ID {problem}").format(problem=wrong))
        return cleaned_data


@admin.register(Seller)
class SellerAdmin(Recorded[Seller]):
    form = SellerForm
    list_display = ("name", "code", "vat_id", "invoice_prefix")
    ordering = ("pk",)

    def has_delete_permission(self, request: HttpRequest, obj: Seller | None = None) -> bool:
        return False


@admin.register(TaxRate)
class TaxRateAdmin(Recorded[TaxRate]):
    """Issued invoices keep their rate."""

    list_display = ("country", "region", "category", "rate", "since")
    list_filter = ("country", "category")
    ordering = ("country", "region", "category", "since")


class LineInline(ReadOnlyInline):
    model = InvoiceLine
    show_change_link = False
    fields = ("position", "project", "description", "quantity", "price", "net")
    readonly_fields = ("quantity", "price", "net")
    net = money("amount", "net", currency="invoice.currency")

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        return super().get_queryset(request).select_related("invoice").order_by("position")

    def quantity(self, line: InvoiceLine) -> str:
        hours = Fraction(int(line.seconds_num), line.seconds_den * 3600)
        return f"{decimal_text(hours, 6)} {plural(line.unit)}" if line.unit and hours else "–"

    @admin.display(description=gettext_lazy("unit price"))
    def price(self, line: InvoiceLine) -> str:
        currency = line.invoice.currency
        if line.unit_price is None:
            return detail(line, currency) or "–"
        return price_text(line.unit_price, currency)


class TaxInline(ReadOnlyInline):
    model = InvoiceTax
    show_change_link = False
    fields = ("category", "rate", "net_text", "tax_text", "reason")
    readonly_fields = ("net_text", "tax_text")
    verbose_name_plural = gettext_lazy("taxes")
    net_text = money("net", "net", currency="invoice.currency")
    tax_text = money("tax", "tax", currency="invoice.currency")

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        return super().get_queryset(request).select_related("invoice").order_by("-rate", "category")


class PaymentInline(ReadOnlyInline):
    model = Payment
    fields = ("received_on", "paid", "reference", "recorded_by")
    readonly_fields = ("paid",)
    paid = money("amount", "amount", currency="invoice.currency")

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        return super().get_queryset(request).select_related("invoice").order_by("received_on", "pk")


class Why(ActionForm):
    why = forms.CharField(label=gettext_lazy("Reason"), required=False, max_length=500)


@admin.register(Invoice)
class InvoiceAdmin(ReadOnly[Invoice]):
    """Documents never change: they are credited or voided, with a reason."""

    view_on_site = portal_page("invoice", "tenant.slug", "number")
    gross = money("total", "total")
    net = money("subtotal", "subtotal")
    vat = money("tax", "tax")
    action_form = Why
    actions = ("credit_in_full", "make_void", "refund_to_card", "write_off", "reverse_write_off")
    list_display = (
        "__str__",
        "tenant",
        "gross",
        "state",
        "service_period",
        "issued_on",
        "due_on",
        "kind",
        "pdf",
    )
    list_filter = ("state", "kind", "tenant")
    list_select_related = ("tenant",)
    search_fields = ("number", "tenant__slug", "tenant__name")
    date_hierarchy = "issued_on"  # a civil day: a period of Berlin begins in the month before by UTC
    ordering = ("-period_start", "-pk")
    inlines = (LineInline, TaxInline, PaymentInline)
    fields = (
        *(
            "tenant",
            "kind",
            "original",
            "replaces",
            "state",
            "why",
            "number",
            "pdf",
            ("service_period", "timezone"),
            ("issued_on", "due_on"),
        ),
        *("net", "rate", "vat", "gross", "from_seller", "to_buyer", "terms_text"),
    )
    readonly_fields = (
        "why",
        "pdf",
        "service_period",
        "net",
        "rate",
        "vat",
        "gross",
        "from_seller",
        "to_buyer",
        "terms_text",
    )

    @admin.action(description=gettext_lazy("Issue credit note…"))
    def credit_in_full(self, request: HttpRequest, queryset: QuerySet[Invoice]) -> TemplateResponse | None:
        now, by = datetime.now(UTC), str(request.user)

        def credit(invoice: Invoice, why: str) -> str:
            today = billing_periods.day_of(now, invoice.period)
            note = credit_notes.issue_credit_note(invoice=invoice, reason=why, by=by, on=today, moment=now)
            return _("{invoice} is credited by {note}.").format(invoice=invoice, note=note)

        def effect(invoice: Invoice) -> str:
            on = billing_periods.day_of(now, invoice.period)
            return credit_note_previews.preview_credit(invoice=invoice, on=on, moment=now).sentence

        return self._confirmed(request, queryset, credit, title=_("Issue credit notes"), effect=effect)

    @admin.action(description=gettext_lazy("Void invoice…"))
    def make_void(self, request: HttpRequest, queryset: QuerySet[Invoice]) -> TemplateResponse | None:
        def void(invoice: Invoice, why: str) -> str:
            now, by = datetime.now(UTC), str(request.user)
            checkout_sessions.withdraw_pages(invoice=invoice, moment=now)
            voids.void_invoice(
                invoice=invoice, reason=why, by=by, on=billing_periods.day_of(now, invoice.period), moment=now
            )
            return _("{invoice} is void. Close its period again to issue another.").format(invoice=invoice)

        return self._confirmed(
            request, queryset, void, title=_("Void invoices"), effect=voids.describe_effect
        )

    @admin.action(description=gettext_lazy("Refund credit note to card…"))
    def refund_to_card(self, request: HttpRequest, queryset: QuerySet[Invoice]) -> TemplateResponse | None:
        def refund(note: Invoice, why: str) -> str:
            del why
            rows = refunds.prepare_refunds(credit_note=note, who=str(request.user), moment=datetime.now(UTC))
            return _("{amount} of {note} is refunded within a minute.").format(
                amount=money_of(sum(row.amount for row in rows), note.currency), note=note
            )

        def effect(note: Invoice) -> str:
            with transaction.atomic():
                rows = refunds.prepare_refunds(credit_note=note, who="preview", moment=datetime.now(UTC))
                transaction.set_rollback(True)
            return _("{amount} of {note} will be refunded to the card of {tenant}.").format(
                amount=money_of(sum(row.amount for row in rows), note.currency), note=note, tenant=note.tenant
            )

        return self._confirmed(request, queryset, refund, title=_("Refund to cards"), effect=effect)

    @admin.action(description=gettext_lazy("Write off…"))
    def write_off(self, request: HttpRequest, queryset: QuerySet[Invoice]) -> TemplateResponse | None:
        def write_off(invoice: Invoice, why: str) -> str:
            today = billing_periods.day_of(datetime.now(UTC), invoice.period)
            row = write_offs.write_off_invoice(invoice=invoice, reason=why, by=str(request.user), on=today)
            return _("{amount} of {invoice} written off.").format(
                amount=money_of(row.amount, invoice.currency), invoice=invoice
            )

        def effect(invoice: Invoice) -> str:
            today = billing_periods.day_of(datetime.now(UTC), invoice.period)
            return write_offs.describe_effect(invoice, on=today)

        return self._confirmed(request, queryset, write_off, title=_("Write off"), effect=effect)

    @admin.action(description=gettext_lazy("Reverse write-off…"))
    def reverse_write_off(self, request: HttpRequest, queryset: QuerySet[Invoice]) -> TemplateResponse | None:
        def reverse(invoice: Invoice, why: str) -> str:
            write_offs.reverse_write_off(
                invoice=invoice, reason=why, by=str(request.user), moment=datetime.now(UTC)
            )
            return _("{invoice} is due again.").format(invoice=invoice)

        return self._confirmed(
            request,
            queryset,
            reverse,
            title=_("Reverse write-offs"),
            effect=write_offs.describe_reversal,
        )

    def _confirmed(
        self,
        request: HttpRequest,
        queryset: QuerySet[Invoice],
        do: Callable[[Invoice, str], str],
        *,
        title: str,
        effect: Callable[[Invoice], str],
    ) -> TemplateResponse | None:
        """Asks first; once confirmed, one by one, the newest first, each done or refused alone."""
        if not confirmation.is_confirmed(request):
            return confirmation.page(request, self.admin_site, queryset, title=title, effect=effect)
        why = request.POST.get("why", "").strip()
        for invoice in queryset.select_related("period").order_by("-pk"):
            try:
                with acting_as(str(request.user), why=why):
                    self.message_user(request, do(invoice, why), messages.SUCCESS)
            except confirmation.REFUSALS as refusal:
                self.message_user(request, sentence(refusal), messages.ERROR)
        return None

    @admin.display(description=gettext_lazy("reason"))
    def why(self, invoice: Invoice) -> str:
        voided = Voiding.objects.filter(invoice=invoice).first()
        if voided is not None:
            return f"{voided.reason} ({voided.by}, {voided.on})"
        return invoice.reason or "–"

    @admin.display(ordering="period_start")
    def service_period(self, invoice: Invoice) -> str:
        of = Period(invoice.period_start.astimezone(UTC), invoice.period_end.astimezone(UTC))
        return label(of, ZoneInfo(invoice.timezone))

    @admin.display(description=gettext_lazy("seller"))
    def from_seller(self, invoice: Invoice) -> SafeString:
        return _lines(invoice.seller)

    @admin.display(description=gettext_lazy("buyer"))
    def to_buyer(self, invoice: Invoice) -> SafeString:
        return _lines(invoice.buyer)

    @admin.display(description=gettext_lazy("terms"))
    def terms_text(self, invoice: Invoice) -> SafeString:
        return _lines(invoice.terms)

    @admin.display(description=gettext_lazy("tax rate"))
    def rate(self, invoice: Invoice) -> str:
        return f"{invoice.tax_name} {invoice.tax_rate.normalize():f} %"

    @admin.display(description="PDF")
    def pdf(self, invoice: Invoice) -> str:
        if invoice.number is None:
            return "–"
        return format_html(
            '<a href="{}">{}</a>', reverse("invoice_pdf", args=[invoice.tenant.slug, invoice.number]), "PDF"
        )
