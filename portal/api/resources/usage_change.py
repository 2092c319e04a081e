"""Why spending changed between two ranges of days: the reasons of the page *Why did it change?*."""

from __future__ import annotations

from typing import Any

from django.http import HttpResponse
from rest_framework import serializers

from billing.queries.cost_explorer import FILTERS, CostQuery, Days
from billing.queries.run_counts import MOST_ON_REQUEST, MOST_RUNS, RunsBusyError
from billing.queries.spend_change import OtherCharge, Part, PartKind, SpendChange, explain_with_runs
from billing.queries.usage_series import Grouping, TooManyRowsError
from portal.api import parameters
from portal.api.answers import as_json
from portal.api.fields import DayField, MomentField, MoneyField
from portal.api.problems import bad_parameter
from portal.api.resources.jobs import exact, tell_of_files
from portal.api.resources.usage import read_through
from portal.api.views import TenantEndpoint
from portal.core.tenants.scope import acting_scope, tenant_scope

MOST_DAYS = 1_830


class ReasonSerializer(serializers.Serializer[Part]):
    """One reason. Of what is no usage the group, meter, unit and quantities are empty."""

    part = serializers.ChoiceField(choices=[*map(str, PartKind)], source="kind")
    group = serializers.SerializerMethodField(help_text="Its values of what is grouped by.")
    meter = serializers.CharField(source="resource")
    unit = serializers.CharField()
    earlier = serializers.SerializerMethodField(help_text="Units in the earlier days, exact.")
    later = serializers.SerializerMethodField(help_text="Units in the later days, exact.")
    amount = MoneyField(help_text="Rounded so that all parts add up to the difference.")
    runs = serializers.SerializerMethodField(
        help_text="Of the number and the length of runs: how many jobs ran in the earlier and the later days."
    )
    array = serializers.SerializerMethodField(
        help_text="The user and name of the job arrays that most of these runs are tasks of; null: of none."
    )
    price_since = DayField(
        allow_null=True, help_text="Of a price: the first day of the one that changed most."
    )

    def get_group(self, part: Part) -> dict[str, str]:
        return dict(zip(map(str, self.context["by"]), part.values, strict=False))

    def get_runs(self, part: Part) -> dict[str, int] | None:
        return {"earlier": part.runs.runs.earlier, "later": part.runs.runs.later} if part.runs else None

    def get_array(self, part: Part) -> dict[str, Any] | None:
        array = part.runs.array if part.runs else None
        return {"user": array.user, "name": array.name, "tasks": array.tasks} if array else None

    def get_earlier(self, part: Part) -> str:
        return exact(part.earlier)

    def get_later(self, part: Part) -> str:
        return exact(part.later)


class OtherChargeSerializer(serializers.Serializer[OtherCharge]):
    """What is charged besides use."""

    kind = serializers.CharField(help_text="Of a line; empty: a term that is not billed yet.")
    name = serializers.CharField(help_text="Of such a term.")
    earlier = MoneyField()
    later = MoneyField()


class SpendChangeSerializer(serializers.Serializer[SpendChange]):
    """Of one currency."""

    currency = serializers.CharField(source="earlier.currency")
    earlier = MoneyField()
    later = MoneyField()
    difference = MoneyField()
    depends_on_total = serializers.BooleanField(
        source="by_total",
        help_text="Use is at the first unit's price; tiers or an allowance decide in the end.",
    )
    runs_counted = serializers.BooleanField(
        help_text="Else number and length of runs are one part, `volume`: there were too many, or files were not read."
    )
    parts = ReasonSerializer(many=True, help_text="The largest first.")
    others = OtherChargeSerializer(many=True, help_text="What the part `other` is made of.")


class UsageChangeSerializer(serializers.Serializer[Any]):
    """By currency; none where neither range has charges."""

    timezone = serializers.CharField(help_text="Of the days.")
    complete_through = MomentField(
        allow_null=True, help_text="What runs is counted up to here; null: a cluster was never read."
    )
    by_currency = SpendChangeSerializer(many=True)


class UsageChange(TenantEndpoint):
    """Why spending changed between two ranges of days: runs, their length, price, mix, and what is no usage.

    The parts add up. `runs` is their number; `volume` is of what has no runs, such as tokens, and of all where runs are
    not counted.

    What is no usage needs `invoices:read` as well, and a key of the whole tenant.
    """

    of_everybody = True
    scope = "usage:read"
    longest_query = "60s"
    refusals = (RunsBusyError,)
    is_report = True
    serializer = UsageChangeSerializer
    parameters = (
        parameters.TENANT,
        parameters.day("earlier_from", "First of the earlier days.", required=True),
        parameters.day("earlier_to", "The day after the last of them.", required=True),
        parameters.day("from", "First of the later days.", required=True),
        parameters.day("to", "The day after the last of them.", required=True),
        parameters.choices("group_by", [*map(str, FILTERS)], "Up to two, such as user,gpu_model.", most=2),
        parameters.flag(
            "all_runs",
            f"Count up to {MOST_ON_REQUEST:,} runs, which takes seconds; else up to {MOST_RUNS:,}.",
        ),
    )

    def get(self, request: Any) -> HttpResponse:
        del request
        tenant, key = self.needed_tenant(), self.client.key
        by = tuple(Grouping(name) for name in self.query["group_by"])
        filters = {Grouping.PROJECT: key.project.name} if key.project is not None else {}
        query = CostQuery(self._days(""), self._days("earlier_"), by, filters)
        others = not filters and bool({"invoices:read", "ops:read"} & self.client.scopes)
        try:
            with tenant_scope(tenant):
                most_runs = MOST_ON_REQUEST if self.query["all_runs"] else MOST_RUNS
                changes, uncounted = explain_with_runs(tenant, query, others=others, most_runs=most_runs)
        except TooManyRowsError:
            raise bad_parameter(
                "group_by", "There are too many groups: ask for fewer days or groups."
            ) from None
        with acting_scope(tenant):
            complete_through = read_through(tenant, self.moment)
        answer = {
            "timezone": tenant.timezone,
            "complete_through": complete_through,
            "by_currency": changes,
        }
        response = as_json(UsageChangeSerializer(answer, context={"by": by}).data)
        tell_of_files(response, uncounted if changes else "")
        return response

    def _days(self, prefix: str) -> Days:
        first, end = self.query[f"{prefix}from"], self.query[f"{prefix}to"]
        if first >= end:
            raise bad_parameter(f"{prefix}from", f"{prefix}from is not before {prefix}to.")
        if (end - first).days > MOST_DAYS:
            raise bad_parameter(
                f"{prefix}to",
                f"{prefix}from and {prefix}to are more than {MOST_DAYS} days apart: ask for fewer.",
            )
        return Days(first, end)
