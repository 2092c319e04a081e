"""Plans with their versions, as a file for `apply` has them."""

from __future__ import annotations

from typing import Any

from django.http import HttpResponse
from rest_framework import serializers

from billing.catalog import plans
from billing.models import Plan, PlanVersion
from portal.api import parameters
from portal.api.cursors import Page
from portal.api.entry_fields import as_data, body_of
from portal.api.resources.operators.endpoint import OperatorEndpoint
from portal.config_file.export import plan_entry
from portal.config_file.plan_entries import PlanEntry


class PlanSerializer(serializers.ModelSerializer[Plan]):
    """A plan; what it costs is in its versions."""

    versions = serializers.SerializerMethodField(help_text="The days on which its versions begin.")

    class Meta:
        model = Plan
        fields = ("name", "currency", "settles", "versions")

    def get_versions(self, plan: Plan) -> list[str]:
        return sorted(str(version.effective_from) for version in plan.versions.all())


class Plans(OperatorEndpoint):
    """All plans, by name."""

    serializer = PlanSerializer
    lists = True
    parameters = parameters.LISTS

    def get(self, request: Any) -> HttpResponse:
        del request
        return self.page(Plan.objects.prefetch_related("versions"), order=("name",))


class OnePlan(OperatorEndpoint):
    """One plan, by its name."""

    serializer = PlanSerializer

    def get(self, request: Any, name: str) -> HttpResponse:
        del request
        return self.one(Plan.objects.prefetch_related("versions").get(name=name))


class VersionSerializer(body_of(PlanEntry)):  # type: ignore[misc]  # its fields are those of the file
    """A version of a plan: what usage costs from its first day on. The fields are those of `[[plan]]`."""

    published = serializers.BooleanField(
        read_only=True, help_text="Usage was rated by it, or a line billed: it stays as it is."
    )


def version_data(version: PlanVersion) -> dict[str, Any]:
    """As the file has it, and whether it may still be replaced."""
    return as_data(plan_entry(version)) | {"published": plans.billed(version)}


class Versions(OperatorEndpoint):
    """The versions of a plan with their prices, the oldest first."""

    serializer = VersionSerializer
    lists = True
    parameters = parameters.LISTS

    def get(self, request: Any, name: str) -> HttpResponse:
        del request
        rows = PlanVersion.objects.filter(plan=Plan.objects.get(name=name)).select_related("plan")
        return self.page(rows, order=("effective_from", "pk"))

    def representations(self, rows: Any, **context: Any) -> Any:
        del context
        return [version_data(version) for version in rows]

    def prepared(self, page: Page[Any]) -> Any:
        return page.rows
