"""What GPUs cost to run."""

from __future__ import annotations

from django.contrib import admin

from billing.models import OperatingCost
from portal.admin import Recorded


@admin.register(OperatingCost)
class OperatingCostAdmin(Recorded[OperatingCost]):
    list_display = ("of_model", "where", "amount", "currency", "valid_from")
    list_filter = ("gpu_model", "cluster")
    list_select_related = ("cluster",)
    ordering = ("gpu_model", "cluster__name", "currency", "valid_from")

    @admin.display(description="GPU model", ordering="gpu_model")
    def of_model(self, cost: OperatingCost) -> str:
        return cost.gpu_model or "every model"

    @admin.display(description="cluster", ordering="cluster__name")
    def where(self, cost: OperatingCost) -> str:
        return cost.cluster.name if cost.cluster else "every cluster"
