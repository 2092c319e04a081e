"""Quotas and what was told of them, to be looked at: pages, commands and files set them."""

from __future__ import annotations

from operator import attrgetter
from typing import ClassVar

from django.contrib import admin
from django.db.models import Model
from django.urls import reverse

from billing.admin.amounts import NOTHING
from billing.models import Quota, QuotaCrossing, QuotaPeriod
from billing.quotas.status import amount_text
from portal.admin import Display, ReadOnly


def counted(column: str, *, unit: str = "quota.unit") -> Display:
    """A method of an admin class: so much of what a quota counts; `unit` is the path to its unit from the row."""

    @admin.display(description=column.replace("_", " "), ordering=column)
    def show(_: object, row: Model) -> str:
        value = getattr(row, column)
        return NOTHING if value is None else amount_text(value, attrgetter(unit)(row))

    return show


@admin.register(Quota)
class QuotaAdmin(ReadOnly[Quota]):
    amount_text = counted("amount", unit="unit")
    cap_text = counted("cap", unit="unit")
    shown_as: ClassVar = {"amount": "amount_text", "cap": "cap_text"}

    list_display = ("name", "tenant", "measure", "amount_text", "every", "cap_text", "created_at", "ended_at")
    list_filter = ("measure", "every", "tenant")
    list_select_related = ("tenant",)
    search_fields = ("name", "tenant__slug", "user", "account")
    ordering = ("tenant__slug", "name", "-created_at")

    def view_on_site(self, quota: Quota) -> str:
        """One that is over, or counts a wallet's debt, has no page of its own."""
        slug = quota.tenant.slug
        if quota.ended_at is None and quota.wallet_id is None:
            return reverse("budget_periods", args=[slug, quota.name])
        return reverse("budgets", args=[slug])


@admin.register(QuotaPeriod)
class QuotaPeriodAdmin(ReadOnly[QuotaPeriod]):
    amount_text = counted("amount")
    carried_text = counted("carried")
    borrowable_text = counted("borrowable")
    used_text = counted("used")
    counted_on_text = counted("counted_on")
    forecast_text = counted("forecast")
    shown_as: ClassVar = {
        name: f"{name}_text" for name in ("amount", "carried", "borrowable", "used", "counted_on", "forecast")
    }

    list_display = (
        *("quota", "start", "end", "amount_text", "used_text", "forecast_text", "as_of", "evaluated_at"),
    )
    list_filter = ("tenant",)
    list_select_related = ("quota__tenant",)
    ordering = ("-start", "pk")


@admin.register(QuotaCrossing)
class QuotaCrossingAdmin(ReadOnly[QuotaCrossing]):
    used_text = counted("used")
    amount_text = counted("amount")
    shown_as: ClassVar = {"used": "used_text", "amount": "amount_text"}

    list_display = (
        *(
            "quota",
            "threshold",
            "watched",
            "used_text",
            "amount_text",
            "at",
            "silent",
            "cleared_at",
            "notice",
        ),
    )
    list_filter = ("watched", "tenant")
    list_select_related = ("quota__tenant", "notice__tenant")
    ordering = ("-at", "-pk")
