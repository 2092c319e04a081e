"""Manual lines: added with who and why, removed before they are billed, never changed."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from django import forms
from django.contrib import admin
from django.core.exceptions import ValidationError
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils.translation import gettext_lazy

from billing.admin.amounts import money
from billing.invoicing import manual_lines
from billing.invoicing.manual_lines import ManualLineError
from billing.models import InvoiceLine, LineKind, ManualLine
from billing.rules.money import Money
from portal.admin import Recorded
from portal.sentences import sentence


class NewLine(forms.ModelForm[ManualLine]):
    net = forms.CharField(
        label=gettext_lazy("Amount"),
        max_length=30,
        help_text=gettext_lazy("Before tax, like 50.00. A negative amount is a credit."),
    )

    class Meta:
        model = ManualLine
        fields = ("tenant", "description", "currency", "reason")

    def clean(self) -> dict[str, Any]:
        cleaned_data: dict[str, Any] = super().clean() or {}
        if "net" in cleaned_data and "currency" in cleaned_data:
            try:
                cleaned_data["money"] = Money.of(cleaned_data["net"].strip(), cleaned_data["currency"])
                cleaned_data["money"].check_bookable()
            except ValueError as error:
                raise ValidationError({"net": sentence(error)}) from error
        return cleaned_data


@admin.register(ManualLine)
class ManualLineAdmin(Recorded[ManualLine]):
    refusals = (ManualLineError,)
    net_amount = money("amount", "amount")
    form = NewLine
    list_display = ("description", "tenant", "net_amount", "added_on", "by", "billed_on")
    list_filter = ("tenant",)
    list_select_related = ("tenant",)
    search_fields = ("description", "reason", "tenant__slug")
    ordering = ("-pk",)
    autocomplete_fields = ("tenant",)

    def get_fields(self, request: HttpRequest, obj: ManualLine | None = None) -> tuple[str, ...]:
        if obj is None:
            return ("tenant", "description", "net", "currency", "reason")
        return ("tenant", "description", "net_amount", "reason", "by", "added_on", "billed_on")

    def get_readonly_fields(self, request: HttpRequest, obj: ManualLine | None = None) -> tuple[str, ...]:
        return self.get_fields(request, obj) if obj else ()

    def has_change_permission(self, request: HttpRequest, obj: ManualLine | None = None) -> bool:
        return False

    @admin.display(description=gettext_lazy("invoice"))
    def billed_on(self, line: ManualLine) -> str:
        invoice_lines = InvoiceLine.objects.filter(
            kind=LineKind.MANUAL, term_id=line.pk, invoice__number__isnull=False
        ).order_by("-pk")
        on = invoice_lines.values_list("invoice__number", flat=True).first()
        return on or "–"

    def save_model(self, request: HttpRequest, obj: ManualLine, form: Any, change: bool) -> None:
        line = manual_lines.add_manual_line(
            tenant=obj.tenant,
            description=obj.description,
            net=form.cleaned_data["money"],
            reason=obj.reason,
            by=str(request.user),
            on=datetime.now(UTC).date(),
        )
        obj.pk, obj.amount = line.pk, line.amount

    def delete_model(self, request: HttpRequest, obj: ManualLine) -> None:
        manual_lines.remove_manual_line(line=obj)

    def delete_queryset(self, request: HttpRequest, queryset: QuerySet[ManualLine]) -> None:
        for line in queryset.select_related("tenant").order_by("pk"):
            manual_lines.remove_manual_line(line=line)
