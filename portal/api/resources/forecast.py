"""What the running period will come to: the figure of the overview."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.http import HttpResponse
from rest_framework import serializers

from billing.catalog import billing_periods
from billing.models import BillingPeriod
from billing.queries import overview as reading
from billing.queries.accrued_charges import accrued
from billing.queries.costs import per_currency
from billing.queries.overview import Overview
from billing.queries.period_forecast import PeriodForecast, paid_for, period_forecast
from billing.rules.money import Money
from portal.api import parameters
from portal.api.fields import MomentField, MoneyField
from portal.api.resources.usage import read_through
from portal.api.views import TenantEndpoint
from portal.core.tenants.models import Tenant
from portal.core.tenants.scope import acting_scope

REASONS: Mapping[str, str] = {
    "no-period": "no billing period runs",
    "never-read": "a cluster of the tenant was never read, or not since the period began",
    "nothing-charged": "nothing is charged yet, or in several currencies",
    "too-few-days": "fewer than three whole days of use are known",
}


class RunningPeriodSerializer(serializers.Serializer[BillingPeriod]):
    """Half-open: `from` belongs to it, `to` to what follows."""

    timezone = serializers.CharField(help_text="IANA zone in which the borders were chosen.")

    def get_fields(self) -> dict[str, Any]:
        borders = {"from": MomentField(source="start"), "to": MomentField(source="end")}
        return borders | super().get_fields()


class ForecastSerializer(serializers.Serializer[Any]):
    """Before tax, with tiers, allowances, fees, commitment and discounts, as its invoice will be."""

    period = RunningPeriodSerializer(allow_null=True)
    complete_through = MomentField(allow_null=True, help_text="Up to here usage is known.")
    spend = serializers.ListField(child=MoneyField(), help_text="To date, one amount per currency.")
    expected = MoneyField(allow_null=True, help_text="What the period will come to; null: see `reason`.")
    low = MoneyField(allow_null=True, help_text="With `high`, the likely range; null under seven whole days.")
    high = MoneyField(allow_null=True)
    paid_for_others = MoneyField(
        allow_null=True, help_text="Of `expected`: others' use that the tenant pays."
    )
    whole_days = serializers.IntegerField(help_text="Of the last seven, those that the pace is taken of.")
    reason = serializers.ChoiceField(
        choices=[*REASONS],
        allow_null=True,
        help_text="Why nothing is forecast: "
        + "; ".join(f"`{code}`: {why}" for code, why in REASONS.items())
        + ".",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What `ForecastSerializer` writes."""

    period: BillingPeriod | None = None
    complete_through: datetime | None = None
    spend: list[Money]
    expected: Money | None = None
    low: Money | None = None
    high: Money | None = None
    paid_for_others: Money | None = None
    whole_days: int = 0
    reason: str | None = None


class Forecast(TenantEndpoint):
    """What the running billing period has come to and will come to: the figures of the overview."""

    of_everybody = True
    scope = "usage:read"
    whole_tenant = True
    serializer = ForecastSerializer
    parameters = (parameters.TENANT,)

    def get(self, request: Any) -> HttpResponse:
        del request
        return self.one(_answer(self.needed_tenant(), self.moment))


def _answer(tenant: Tenant, moment: datetime) -> Answer:
    with acting_scope(tenant):
        around = reading.around(tenant, moment=moment)
        if around is None or around.period.end <= moment:
            return Answer(spend=[], reason="no-period")
        period = around.period
        through = read_through(tenant, moment)
        charges = accrued(tenant=tenant, period=period, inputs=around.inputs)
        others, through = paid_for(around, charges, through=through, moment=moment)
    today = billing_periods.day_of(moment, period)
    summary = reading.overview(tenant, period, around.before, today=today, accrued=charges)
    forecast = period_forecast(summary, charges, others, through)
    spend = per_currency([*summary.spend, *(row.amount for row in (charges.paid if charges else ()))])
    if forecast is None or not forecast.has_pace:
        reason = "too-few-days" if forecast else _missing(summary, through)
        days = forecast.whole_days if forecast else 0
        return Answer(period=period, complete_through=through, spend=spend, whole_days=days, reason=reason)
    return _expected(period, spend, forecast)


def _expected(period: BillingPeriod, spend: list[Money], forecast: PeriodForecast) -> Answer:
    low, expected, high = forecast.ends
    return Answer(
        period=period,
        complete_through=forecast.through,
        spend=spend,
        expected=expected,
        low=low if forecast.has_range else None,
        high=high if forecast.has_range else None,
        paid_for_others=forecast.paid_for_others,
        whole_days=forecast.whole_days,
    )


def _missing(summary: Overview, through: datetime | None) -> str:
    period = summary.period
    return "nothing-charged" if through and period.start < through < period.end else "never-read"
