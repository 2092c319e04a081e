"""Quotas and what was told of them, to be looked at: pages, commands and files set them."""

from __future__ import annotations

from django.contrib import admin

from billing.models import Quota, QuotaCrossing, QuotaPeriod
from portal.admin import ReadOnly


@admin.register(Quota)
class QuotaAdmin(ReadOnly[Quota]):
    list_display = ("name", "tenant", "measure", "amount", "unit", "every", "cap", "created_at", "ended_at")
    list_filter = ("measure", "every", "tenant")
    list_select_related = ("tenant",)
    search_fields = ("name", "tenant__slug", "user", "account")
    ordering = ("tenant__slug", "name", "-created_at")


@admin.register(QuotaPeriod)
class QuotaPeriodAdmin(ReadOnly[QuotaPeriod]):
    list_display = ("quota", "start", "end", "amount", "used", "forecast", "as_of", "evaluated_at")
    list_filter = ("tenant",)
    list_select_related = ("quota__tenant",)
    ordering = ("-start", "pk")


@admin.register(QuotaCrossing)
class QuotaCrossingAdmin(ReadOnly[QuotaCrossing]):
    list_display = ("quota", "threshold", "watched", "used", "amount", "at", "silent", "cleared_at", "notice")
    list_filter = ("watched", "tenant")
    list_select_related = ("quota__tenant", "notice__tenant")
    ordering = ("-at", "-pk")
