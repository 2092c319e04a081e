"""Card charges and what follows them: attempts, gateway events, refunds, disputes, saved methods."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import ClassVar

from django.contrib import admin, messages
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from billing.admin.amounts import money
from billing.admin.invoices import Why
from billing.models import (
    BillingAccount,
    GatewayEvent,
    PaymentAttempt,
    PaymentDispute,
    PaymentRefund,
    SavedMethod,
)
from billing.payments import manual_review
from billing.payments.gateway_access import CollectionError
from billing.rules import gateway_amounts
from billing.rules.formatting import money_text
from portal.admin import ReadOnly, Recorded, portal_page
from portal.core.audit import acting_as
from portal.sentences import sentence


@admin.register(PaymentAttempt)
class AttemptAdmin(ReadOnly[PaymentAttempt]):
    """An attempt that needs review stays until an operator says what happened to it."""

    view_on_site = portal_page("invoice", "tenant.slug", "invoice.number")
    amount_text = money("amount", "amount")
    shown_as: ClassVar = {"amount": "amount_text", "fee": "fee_text"}
    action_form = Why
    actions = ("mark_not_paid",)
    list_display = (
        "invoice",
        "tenant",
        "state",
        "amount_text",
        "fee_text",
        "method",
        "code",
        "message",
        "created_at",
        "external_id",
    )
    list_filter = ("state", "tenant")
    list_select_related = ("invoice", "tenant", "method")
    search_fields = ("invoice__number", "external_id")
    ordering = ("-created_at",)

    @admin.display(description=gettext_lazy("fee"))
    def fee_text(self, row: PaymentAttempt) -> str:
        """In the settlement currency."""
        if row.fee is None:
            return "–"
        currency = row.fee_currency or row.currency
        return money_text(gateway_amounts.as_money(row.fee, currency).rounded())

    @admin.action(description=gettext_lazy("Mark as not paid (reason required)"))
    def mark_not_paid(self, request: HttpRequest, queryset: QuerySet[PaymentAttempt]) -> None:
        why = request.POST.get("why", "").strip()
        for row in queryset:
            try:
                with acting_as(str(request.user), why=why):
                    manual_review.mark_unpaid(attempt=row, reason=why)
            except CollectionError as refusal:
                self.message_user(request, sentence(refusal), messages.ERROR)
            else:
                self.message_user(
                    request, _("{invoice} can be paid again.").format(invoice=row.invoice), messages.SUCCESS
                )


@admin.register(GatewayEvent)
class EventAdmin(ReadOnly[GatewayEvent]):
    """While one needs review, its tenant is not charged."""

    action_form = Why
    actions = ("apply_again", "dealt_with")
    list_display = ("id", "type", "object_id", "state", "tenant_slug", "reason", "received_at", "applied_at")
    list_filter = ("state", "type")
    search_fields = ("id", "object_id")
    ordering = ("-received_at",)
    show_full_result_count = False

    @admin.action(description=gettext_lazy("Apply again"))
    def apply_again(self, request: HttpRequest, queryset: QuerySet[GatewayEvent]) -> None:
        for row in queryset:
            try:
                manual_review.retry_event(event=row)
            except CollectionError as refusal:
                self.message_user(request, sentence(refusal), messages.ERROR)
            else:
                self.message_user(
                    request,
                    _("{event} is applied again within a minute.").format(event=row),
                    messages.SUCCESS,
                )

    @admin.action(description=gettext_lazy("Mark as resolved (reason required)"))
    def dealt_with(self, request: HttpRequest, queryset: QuerySet[GatewayEvent]) -> None:
        why = request.POST.get("why", "").strip()
        for row in queryset:
            try:
                manual_review.settle_event(
                    event=row, who=str(request.user), reason=why, moment=datetime.now(UTC)
                )
            except CollectionError as refusal:
                self.message_user(request, sentence(refusal), messages.ERROR)


@admin.register(PaymentRefund)
class RefundAdmin(ReadOnly[PaymentRefund]):
    """A refund made at the gateway needs review until it has a credit note, or the balance is kept open."""

    amount_text = money("amount", "amount", currency="attempt.currency")
    shown_as: ClassVar = {"amount": "amount_text"}
    action_form = Why
    actions = ("stays_owed",)
    list_display = (
        "attempt",
        "credit_note",
        "state",
        "amount_text",
        "reason",
        "created_at",
        "requested_by",
        "resolution",
        "external_id",
    )
    list_filter = ("state", "tenant")
    list_select_related = ("attempt__invoice", "credit_note")
    ordering = ("-created_at",)

    @admin.action(description=gettext_lazy("Keep balance open (reason required)"))
    def stays_owed(self, request: HttpRequest, queryset: QuerySet[PaymentRefund]) -> None:
        who, why = str(request.user), request.POST.get("why", "").strip()
        for row in queryset:
            try:
                with acting_as(who, why=why):
                    manual_review.keep_refund_owed(refund=row, who=who, reason=why)
            except CollectionError as refusal:
                self.message_user(request, sentence(refusal), messages.ERROR)
            else:
                self.message_user(
                    request,
                    _("{invoice} is charged again.").format(invoice=row.attempt.invoice),
                    messages.SUCCESS,
                )


@admin.register(PaymentDispute)
class DisputeAdmin(ReadOnly[PaymentDispute]):
    amount_text = money("amount", "amount", currency="attempt.currency")
    shown_as: ClassVar = {"amount": "amount_text"}
    list_display = ("attempt", "state", "amount_text", "reason", "opened_at", "external_id")
    list_filter = ("state", "tenant")
    list_select_related = ("attempt__invoice",)
    ordering = ("-opened_at",)


@admin.register(SavedMethod)
class MethodAdmin(ReadOnly[SavedMethod]):
    list_display = ("tenant", "__str__", "state", "preferred", "exp_month", "exp_year", "added_at")
    list_filter = ("state", "tenant")
    list_select_related = ("tenant",)
    ordering = ("tenant__slug", "-added_at")


@admin.register(BillingAccount)
class AccountAdmin(Recorded[BillingAccount]):
    fields = ("tenant", "customer", "automatic")
    readonly_fields = ("tenant", "customer")
    list_display = ("tenant", "customer", "automatic")
    list_select_related = ("tenant",)

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: BillingAccount | None = None) -> bool:
        return False
