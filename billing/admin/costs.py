"""Operating costs of GPUs."""

from __future__ import annotations

from django.contrib import admin
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from billing.admin.amounts import price
from billing.models import OperatingCost
from portal.admin import Recorded


@admin.register(OperatingCost)
class OperatingCostAdmin(Recorded[OperatingCost]):
    per_hour = price("amount", "per GPU-hour")

    list_display = ("of_model", "where", "per_hour", "valid_from")
    list_filter = ("gpu_model", "cluster")
    list_select_related = ("cluster",)
    ordering = ("gpu_model", "cluster__name", "currency", "valid_from")

    @admin.display(description=gettext_lazy("GPU model"), ordering="gpu_model")
    def of_model(self, cost: OperatingCost) -> str:
        return cost.gpu_model or _("every model")

    @admin.display(description=gettext_lazy("cluster"), ordering="cluster__name")
    def where(self, cost: OperatingCost) -> str:
        return cost.cluster.name if cost.cluster else _("every cluster")
