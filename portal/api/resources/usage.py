"""Usage as a time series: what was used and what it cost, by day or month, in up to three groups."""

from __future__ import annotations

from typing import Any

from django.http import HttpResponse
from rest_framework import serializers

from billing.queries.usage_series import (
    MOST_ROWS,
    Bucket,
    Group,
    Grouping,
    Interval,
    TooManyRowsError,
    Used,
    usage_series,
)
from clusters import usage
from portal.api import parameters
from portal.api.answers import as_json
from portal.api.fields import MomentField
from portal.api.problems import bad_parameter
from portal.api.resources.jobs import ExactMoneyField, exact
from portal.api.views import TenantEndpoint
from portal.core.tenants.ownership import accounts_of
from portal.core.tenants.scope import acting_scope

MOST_DAYS = {Interval.DAY: 400, Interval.MONTH: 3_660}
FILTERS = (Grouping.PROJECT, Grouping.USER, Grouping.ACCOUNT, Grouping.CLUSTER, Grouping.GPU_MODEL)


class UsedSerializer(serializers.Serializer[Used]):
    """What was used, and what it costs."""

    gpu_seconds = serializers.SerializerMethodField(help_text="Charged or waived, exact.")
    cost = serializers.ListField(
        child=ExactMoneyField(), help_text="Before the rounding of invoice lines, one amount a currency."
    )
    depends_on_total = serializers.BooleanField(
        source="by_total",
        help_text="The cost is at the first unit's price; tiers or an allowance decide in the end.",
    )

    def get_gpu_seconds(self, used: Used) -> str:
        return exact(used.gpu_seconds)


class GroupSerializer(serializers.Serializer[Group]):
    """One group of a bucket."""

    group = serializers.DictField(
        child=serializers.CharField(), source="values", help_text="Its values of what is grouped by."
    )
    used = UsedSerializer()


class BucketSerializer(serializers.Serializer[Bucket]):
    """Days of the tenant's zone, `from` inclusive, `to` exclusive."""

    used = UsedSerializer(source="whole")
    groups = GroupSerializer(many=True, help_text="Those with use; they add up to the bucket.")

    def get_fields(self) -> dict[str, Any]:
        days = {"from": serializers.DateField(source="first"), "to": serializers.DateField(source="end")}
        return days | super().get_fields()


class UsageSerializer(serializers.Serializer[Any]):
    """The buckets in order, also those without use."""

    timezone = serializers.CharField(help_text="Of the days.")
    complete_through = MomentField(
        allow_null=True, help_text="What runs is counted up to here; null: a cluster was never read."
    )
    buckets = BucketSerializer(many=True)


class Usage(TenantEndpoint):
    """What the tenant used and what it cost, over time: days and months in the tenant's zone."""

    scope = "usage:read"
    serializer = UsageSerializer
    parameters = (
        parameters.TENANT,
        parameters.day("from", "First day.", required=True),
        parameters.day("to", "The day after the last one.", required=True),
        parameters.choice("interval", [*Interval], "Days or months.", many=False, default=Interval.DAY),
        parameters.choices("group_by", [*Grouping], "Up to three, such as project,gpu_model.", most=3),
        *(parameters.text(one, f"Only this {one.replace('_', ' ')}.") for one in FILTERS),
    )

    def get(self, request: Any) -> HttpResponse:
        del request
        tenant, query, interval = self.needed_tenant(), self.query, Interval(self.query["interval"])
        first, end = query["from"], query["to"]
        if first >= end:
            raise bad_parameter("from", "from is not before to.")
        if (end - first).days > MOST_DAYS[interval]:
            shorter = "or months with interval=month" if interval is Interval.DAY else "or several times"
            raise bad_parameter("to", f"Ask for at most {MOST_DAYS[interval]} days at once, {shorter}.")
        try:
            buckets = usage_series(
                tenant,
                first=first,
                end=end,
                interval=interval,
                grouping=[Grouping(name) for name in query["group_by"]],
                project=self.client.key.project_id,
                filters={one: query[one] for one in FILTERS},
            )
        except TooManyRowsError:
            sentence = (
                f"The answer has more than {MOST_ROWS} rows: ask for fewer days, longer ones or fewer groups."
            )
            raise bad_parameter("group_by", sentence) from None
        with acting_scope(tenant):
            moments = [mark.complete_through for mark in usage.marks(accounts_of(tenant, at=self.moment))]
        read = [moment for moment in moments if moment is not None]
        through = min(read) if read and len(read) == len(moments) else None
        answer = {"timezone": tenant.timezone, "complete_through": through, "buckets": buckets}
        return as_json(UsageSerializer(answer).data)
