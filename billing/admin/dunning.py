"""Dunning: policies, e-mails, suspensions, pauses and write-offs."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, ClassVar

from django import forms
from django.contrib import admin, messages
from django.core.exceptions import ValidationError
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from billing.admin.amounts import money
from billing.emails import delivery
from billing.emails.delivery import NoticeError
from billing.models import (
    DunningPause,
    DunningPolicy,
    Notice,
    NoticeDelivery,
    OperatorDelivery,
    SuspendedAccount,
    Suspension,
    WriteOff,
)
from billing.receivables import dunning_policies
from portal.admin import ReadOnly, Recorded, portal_page
from portal.sentences import sentence


class PolicyForm(forms.ModelForm[DunningPolicy]):
    class Meta:
        model = DunningPolicy
        fields = (
            "tenant",
            "since",
            *(
                "emails",
                "receipts",
                "payment_links",
                "retries",
                "reminders",
                "past_due",
                "suspend",
                "announce",
                "write_off",
            ),
        )

    def clean(self) -> dict[str, Any]:
        cleaned_data: dict[str, Any] = super().clean() or {}
        if self.errors:
            return cleaned_data
        row = DunningPolicy(
            pk=self.instance.pk, **{name: cleaned_data.get(name) for name in self.Meta.fields}
        )
        for name in ("retries", "reminders"):  # an empty field says nothing; none at all is said in a file
            if not cleaned_data.get(name):
                cleaned_data[name] = None
                setattr(row, name, None)
        if wrong := dunning_policies.find_problem(row):
            raise ValidationError(wrong)
        return cleaned_data


@admin.register(DunningPolicy)
class PolicyAdmin(Recorded[DunningPolicy]):
    """Versions with their first day; an invoice goes by the one that held on the day it was due."""

    form = PolicyForm
    list_display = ("whose", "since", "emails", "reminders", "retries", "past_due", "suspend", "write_off")
    list_filter = ("tenant",)
    list_select_related = ("tenant",)
    ordering = ("tenant__slug", "-since")
    autocomplete_fields = ("tenant",)

    @admin.display(description=gettext_lazy("tenant"), ordering="tenant__slug")
    def whose(self, row: DunningPolicy) -> str:
        return row.tenant.name if row.tenant else _("everyone")


@admin.register(Notice)
class NoticeAdmin(ReadOnly[Notice]):
    """Every e-mail as it was sent, or drafted where EMAIL_URL is not set.

    One that may have arrived is never sent again automatically.
    """

    actions = ("send_again",)
    list_display = (
        "created_at",
        "kind",
        "step",
        "tenant",
        "invoice",
        "state",
        "addressed",
        "sent_at",
        "reason",
    )
    list_filter = ("state", "kind", "tenant")
    list_select_related = ("tenant", "invoice")
    search_fields = ("invoice__number", "subject")
    ordering = ("-created_at", "-pk")
    fields = ("tenant", "invoice", "kind", "state", "reason", "addressed", "sent_at", "subject", "shown")
    readonly_fields = ("addressed", "shown")

    @admin.display(description=gettext_lazy("to"))
    def addressed(self, row: Notice) -> str:
        return ", ".join(row.to) or "–"

    @admin.display(description=gettext_lazy("text"))
    def shown(self, row: Notice) -> str:
        return row.text or _("Drafted when it is sent.")

    @admin.action(description=gettext_lazy("Send again: failed, draft or unconfirmed"))
    def send_again(self, request: HttpRequest, queryset: QuerySet[Notice]) -> None:
        _send_again(self, request, queryset)


class DeliveryAdmin(ReadOnly[Any]):
    """What waited for one person: sent, or dropped with the reason."""

    actions = ("send_again",)
    list_display = ("created_at", "notice", "user", "waits_for", "not_before", "state", "subject", "reason")
    list_filter = ("state", "waits_for")
    list_select_related = ("notice__tenant", "notice__invoice", "user")
    ordering = ("-pk",)

    @admin.action(description=gettext_lazy("Send again: failed, draft or unconfirmed"))
    def send_again(self, request: HttpRequest, queryset: QuerySet[Any]) -> None:
        _send_again(self, request, queryset)


admin.site.register(NoticeDelivery, DeliveryAdmin)
admin.site.register(OperatorDelivery, DeliveryAdmin)


def _send_again(page: ReadOnly[Any], request: HttpRequest, queryset: QuerySet[Any]) -> None:
    for row in queryset:
        try:
            delivery.resend_notice(notice=row, moment=datetime.now(UTC))
        except NoticeError as refusal:
            page.message_user(request, sentence(refusal), messages.ERROR)
        else:
            page.message_user(
                request, _("{email} is sent within a minute.").format(email=row), messages.SUCCESS
            )


@admin.register(Suspension)
class SuspensionAdmin(ReadOnly[Suspension]):
    list_display = ("tenant", "invoice", "began_at", "ended_at", "end_reason")
    list_filter = (("ended_at", admin.EmptyFieldListFilter), "tenant")
    list_select_related = ("tenant", "invoice")
    ordering = ("-began_at",)


@admin.register(SuspendedAccount)
class SuspendedAccountAdmin(ReadOnly[SuspendedAccount]):
    """An account that could not be blocked yet has the error, and is retried."""

    list_display = ("account", "tenant", "state", "error", "tries", "next_at")
    list_filter = ("state", "tenant")
    list_select_related = ("account__cluster", "tenant")
    ordering = ("-pk",)


@admin.register(DunningPause)
class PauseAdmin(ReadOnly[DunningPause]):
    list_display = ("tenant", "invoice", "until", "reason", "by", "since", "ended_at", "ended_by")
    list_filter = (("ended_at", admin.EmptyFieldListFilter), "tenant")
    list_select_related = ("tenant", "invoice")
    ordering = ("-since",)


@admin.register(WriteOff)
class WriteOffAdmin(ReadOnly[WriteOff]):
    """Invoices are written off in their own list; later payments reduce the write-off automatically."""

    view_on_site = portal_page("invoice", "tenant.slug", "invoice.number")
    amount_text = money("amount", "amount", currency="invoice.currency")
    shown_as: ClassVar = {"amount": "amount_text"}
    list_display = (
        "invoice",
        "tenant",
        "amount_text",
        "on",
        "reason",
        "by",
        "undone_at",
        "undone_by",
        "undo_reason",
    )
    list_filter = (("undone_at", admin.EmptyFieldListFilter), "tenant")
    list_select_related = ("invoice", "tenant")
    search_fields = ("invoice__number",)
    ordering = ("-on", "-pk")
