"""Approval limits, and invoices held for approval: each is approved or refused with a reason."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, ClassVar
from zoneinfo import ZoneInfo

from django import forms
from django.contrib import admin, messages
from django.core.exceptions import ValidationError
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from billing.admin.amounts import money
from billing.admin.invoices import Why
from billing.catalog.price_words import number_text
from billing.invoicing import approvals
from billing.invoicing.approvals import ApprovalError
from billing.models import ApprovalLimit, ApprovalMetric, Decision, PendingApproval
from billing.rules.formatting import price_text
from billing.rules.money import is_currency
from portal.admin import ReadOnly, Recorded
from portal.core.audit import acting_as


class ApprovalLimitForm(forms.ModelForm[ApprovalLimit]):
    class Meta:
        model = ApprovalLimit
        fields = ("tenant", "metric", "currency", "limit")

    def clean(self) -> dict[str, Any]:
        cleaned_data: dict[str, Any] = super().clean() or {}
        currency = cleaned_data.get("currency", "")
        if cleaned_data.get("metric") == ApprovalMetric.TOTAL and not is_currency(currency):
            raise ValidationError({"currency": _("Choose a currency of ISO 4217, such as USD or EUR.")})
        if cleaned_data.get("metric") not in {ApprovalMetric.TOTAL, None} and currency:
            raise ValidationError({"currency": _("Only a total has a currency.")})
        return cleaned_data


@admin.register(ApprovalLimit)
class ApprovalLimitAdmin(Recorded[ApprovalLimit]):
    form = ApprovalLimitForm
    list_display = ("whose", "metric", "limit_text")
    list_filter = ("metric", "tenant")
    list_select_related = ("tenant",)
    ordering = ("tenant__slug", "metric", "currency")
    autocomplete_fields = ("tenant",)

    @admin.display(description=gettext_lazy("limit"), ordering="limit")
    def limit_text(self, bound: ApprovalLimit) -> str:
        return price_text(bound.limit, bound.currency) if bound.currency else number_text(bound.limit)

    @admin.display(description=gettext_lazy("tenant"), ordering="tenant__slug")
    def whose(self, bound: ApprovalLimit) -> str:
        return bound.tenant.name if bound.tenant else _("everyone")


@admin.register(PendingApproval)
class PendingApprovalAdmin(ReadOnly[PendingApproval]):
    """Each is approved or refused on its own; the next close issues what is approved."""

    total_text = money("total", "total")
    shown_as: ClassVar = {"total": "total_text"}
    action_form = Why
    actions = ("approve", "refuse")
    list_display = (
        "tenant",
        "month",
        "state",
        "total_text",
        "lines",
        "reason",
        "decided_by",
        "decision_reason",
        "decided_at",
    )
    list_filter = ("state", "tenant")
    list_select_related = ("tenant", "period")
    ordering = ("-period__start", "tenant__slug")

    @admin.display(ordering="period__start")
    def month(self, row: PendingApproval) -> str:
        return f"{row.period.start.astimezone(ZoneInfo(row.period.timezone)):%Y-%m}"

    @admin.action(description=gettext_lazy("Approve (reason required)"))
    def approve(self, request: HttpRequest, queryset: QuerySet[PendingApproval]) -> None:
        self._decide(request, queryset, Decision.APPROVED)

    @admin.action(description=gettext_lazy("Refuse (reason required)"))
    def refuse(self, request: HttpRequest, queryset: QuerySet[PendingApproval]) -> None:
        self._decide(request, queryset, Decision.REFUSED)

    def _decide(self, request: HttpRequest, queryset: QuerySet[PendingApproval], decision: Decision) -> None:
        why, by = request.POST.get("why", "").strip(), str(request.user)
        for row in queryset.select_related("period__tenant").order_by("pk"):
            try:
                with acting_as(by, why=why):
                    pending = approvals.decide_approval(
                        period=row.period,
                        decision=decision,
                        by=by,
                        reason=why,
                        moment=datetime.now(UTC).replace(microsecond=0),
                    )
                self.message_user(request, f"{pending}.", messages.SUCCESS)
            except ApprovalError as refusal:
                self.message_user(request, f"{row.tenant}: {refusal}", messages.ERROR)
