"""Usage as a time series: what was used and what it cost, by hour, day or month, in up to three groups."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date, datetime
from typing import Any

from django.http import HttpResponse
from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from billing.catalog import meters
from billing.models import PeriodTotal
from billing.queries.usage_series import (
    MOST_ROWS,
    Bucket,
    DetachedError,
    Group,
    Grouping,
    Interval,
    Quantity,
    TooManyRowsError,
    Used,
    usage_series,
)
from billing.rules.meters import Meter
from clusters import usage
from portal.api import parameters
from portal.api.answers import as_json
from portal.api.fields import MomentField
from portal.api.problems import bad_parameter
from portal.api.resources.jobs import ExactMoneyField, exact
from portal.api.views import TenantEndpoint
from portal.core.tenants.models import Tenant
from portal.core.tenants.ownership import accounts_of
from portal.core.tenants.scope import acting_scope
from portal.excerpt import quoted

MOST_DAYS = {Interval.HOUR: 31, Interval.DAY: 400, Interval.MONTH: 3_660}
LONGER = {Interval.HOUR: "interval=day", Interval.DAY: "interval=month"}
FILTERS = (Grouping.PROJECT, Grouping.USER, Grouping.ACCOUNT, Grouping.CLUSTER, Grouping.GPU_MODEL)
RESOURCES: Mapping[str, str] = {meter.value: meter.resource for meter in Meter}
"""By the name that prices and lines have, what usage of it is kept and grouped by."""


class QuantitySerializer(serializers.Serializer[Quantity]):
    """What was charged of a declared meter."""

    meter = serializers.CharField()
    quantity = serializers.SerializerMethodField(help_text="Units, exact.")
    unit = serializers.CharField(help_text="As it is read behind the number.")

    def get_quantity(self, row: Quantity) -> str:
        return exact(row.units)


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

    quantities = QuantitySerializer(many=True, help_text="Of declared meters.")

    def get_gpu_seconds(self, used: Used) -> str:
        return exact(used.gpu_seconds)


class GroupSerializer(serializers.Serializer[Group]):
    """One group of a bucket."""

    group = serializers.DictField(
        child=serializers.CharField(), source="values", help_text="Its values of what is grouped by."
    )
    used = UsedSerializer()


@extend_schema_field({"anyOf": [{"type": "string", "format": one} for one in ("date", "date-time")]})
class BorderField(MomentField):
    """A day; of hours an instant."""

    def to_representation(self, value: date) -> str | None:
        return super().to_representation(value) if isinstance(value, datetime) else value.isoformat()


class BucketSerializer(serializers.Serializer[Bucket]):
    """Days of the tenant's zone, or times of its hours; `from` inclusive, `to` exclusive."""

    used = UsedSerializer(source="whole")
    groups = GroupSerializer(many=True, help_text="Those with use; they add up to the bucket.")

    def get_fields(self) -> dict[str, Any]:
        borders = {"from": BorderField(source="first"), "to": BorderField(source="end")}
        return borders | super().get_fields()


class UsageSerializer(serializers.Serializer[Any]):
    """The buckets in order, also those without use."""

    timezone = serializers.CharField(help_text="Of the days.")
    complete_through = MomentField(
        allow_null=True, help_text="What runs is counted up to here; null: a cluster was never read."
    )
    buckets = BucketSerializer(many=True)


class Usage(TenantEndpoint):
    """What the tenant used and what it cost, over time: hours, days and months in the tenant's zone."""

    scope = "usage:read"
    is_report = True
    in_files = True
    serializer = UsageSerializer
    parameters = (
        parameters.TENANT,
        parameters.day("from", "First day.", required=True),
        parameters.day("to", "The day after the last one.", required=True),
        parameters.choice(
            "interval", [*Interval], "Hours, days or months.", many=False, default=Interval.DAY
        ),
        parameters.choices("group_by", [*Grouping], "Up to three, such as project,gpu_model.", most=3),
        *(parameters.text(one, f"Only this {one.replace('_', ' ')}.") for one in FILTERS),
        parameters.text(
            Grouping.METER,
            f"Only this meter: {', '.join(RESOURCES)} or a declared one. The shorter names that group_by=meter answers "
            f"are taken, too.",
            example="gpu-hour",
        ),
    )

    def get(self, request: Any) -> HttpResponse:
        del request
        tenant, query, interval = self.needed_tenant(), self.query, Interval(self.query["interval"])
        first, end = query["from"], query["to"]
        if first >= end:
            raise bad_parameter("from", "from is not before to.")
        if (end - first).days > MOST_DAYS[interval]:
            shorter = (
                "or several times"
                if interval is Interval.MONTH
                else f"or longer ones with {LONGER[interval]}"
            )
            raise bad_parameter("to", f"Ask for at most {MOST_DAYS[interval]} days at once, {shorter}.")
        try:
            buckets = usage_series(
                tenant,
                first=first,
                end=end,
                interval=interval,
                grouping=[Grouping(name) for name in query["group_by"]],
                project=self.client.key.project_id,
                filters={one: query[one] for one in FILTERS} | {Grouping.METER: _resources(tenant, query)},
            )
        except TooManyRowsError:
            sentence = (
                f"The answer has more than {MOST_ROWS} rows: ask for fewer days, longer ones or fewer groups."
            )
            raise bad_parameter("group_by", sentence) from None
        except DetachedError:
            sentence = "Hours of a month that was detached are not known: ask for days."
            raise bad_parameter("interval", sentence) from None
        with acting_scope(tenant):
            through = read_through(tenant, self.moment)
        answer = {"timezone": tenant.timezone, "complete_through": through, "buckets": buckets}
        return as_json(UsageSerializer(answer).data)


def _resources(tenant: Tenant, query: Mapping[str, Any]) -> list[str]:
    """Of which meters usage is asked for. Raises ProblemError 400 for what is none; it names those the tenant used."""
    chosen = [RESOURCES.get(name, name) for name in query[Grouping.METER]]
    if {*chosen} <= {*RESOURCES.values()}:
        return chosen
    with acting_scope(tenant):
        unknown = {*chosen} - {*RESOURCES.values(), *meters.names()}
        if not unknown:
            return chosen
        used = PeriodTotal.objects.filter(tenant=tenant).exclude(resource__in=RESOURCES.values())
        own = used.order_by("resource").values_list("resource", flat=True).distinct()
        names = ", ".join([*RESOURCES, *own])
    raise bad_parameter(Grouping.METER, f"There is no meter {quoted(min(unknown))}; known are: {names}.")


def read_through(tenant: Tenant, moment: datetime) -> datetime | None:
    """Up to which all clusters of the tenant have been read; None where one never was. In the scope of acting."""
    moments = [mark.complete_through for mark in usage.marks(accounts_of(tenant, at=moment))]
    read = [mark for mark in moments if mark is not None]
    return min(read) if read and len(read) == len(moments) else None
