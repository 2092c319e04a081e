"""How each period was closed: when, although what was missing, and the sums as they stood."""

from __future__ import annotations

from zoneinfo import ZoneInfo

from django.contrib import admin
from django.utils.translation import gettext_lazy

from billing.models import CloseProof, MonthProof
from portal.admin import ReadOnly


@admin.register(CloseProof)
class CloseProofAdmin(ReadOnly[CloseProof]):
    list_display = ("tenant", "month", "closed_at", "accepted_incomplete")
    list_filter = (("accepted_incomplete", admin.EmptyFieldListFilter), "tenant")
    list_select_related = ("tenant", "period")
    fields = ("tenant", "month", "closed_at", "accepted_incomplete", "sums")
    search_fields = ("tenant__slug", "accepted_incomplete")
    ordering = ("-closed_at", "-pk")

    @admin.display(description=gettext_lazy("month"), ordering="period__start")
    def month(self, proof: CloseProof) -> str:
        """In which the period starts, in its zone."""
        return f"{proof.period.start.astimezone(ZoneInfo(proof.period.timezone)):%Y-%m}"


@admin.register(MonthProof)
class MonthProofAdmin(ReadOnly[MonthProof]):
    list_display = ("__str__", "computed_at", "records", "places")
    fields = ("month", "computed_at", "records", "last_id", "held", "terms", "broken")
    ordering = ("-month",)

    @admin.display(description=gettext_lazy("broken"))
    def places(self, proof: MonthProof) -> int:
        """How many places do not hold."""
        return len(proof.broken)
