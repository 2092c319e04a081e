"""Models that are billed by tokens: what they earned, beside the GPU-hours that served them and what those cost."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta
from fractions import Fraction
from typing import Any

from django.db import connection, transaction

from billing.models import OperatingCost
from billing.queries.costs import per_currency
from billing.reports import margin
from billing.reports.margin import MarginError
from billing.rules.money import Money
from billing.rules.period import shifted
from billing.sealed_months import all_tenants_rows
from clusters import sources, usage
from clusters.connectors.prometheus.token_options import DIMENSIONS, Direction, ServingPlace
from clusters.connectors.sums import dimensions_of
from clusters.models import DeclaredMeter
from portal.sql_files import Statements

sql = Statements(__file__, "served_models.sql")

HOUR = 3600
UNKNOWN = "unknown"
Served = dict[tuple[str, str, date], Fraction]
"""GPU-seconds by cluster, GPU model and UTC day."""


@dataclass(frozen=True, slots=True)
class ServedModel:
    """One model in a month. `tokens` by direction, of tenants; `revenue` at unit prices, a sum for each currency.

    `cost` is of the GPU-hours that its jobs held; None where no operating cost fits, or no jobs are known to serve it.
    """

    name: str
    tokens: dict[str, int]
    revenue: list[Money]
    is_placed: bool  # whether the jobs that serve it are named
    gpu_seconds: Fraction
    cost: Money | None

    @property
    def margin(self) -> Money | None:
        """Revenue − cost, where both are of one currency."""
        if self.cost is None:
            return None
        if not self.revenue:
            return Money(-self.cost.amount, self.cost.currency)
        return Money(self.revenue[0].amount - self.cost.amount, self.cost.currency)


@dataclass(slots=True)
class _Earned:
    tokens: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    amounts: list[Money] = field(default_factory=list)


@transaction.atomic
def of_month(month: tuple[int, int]) -> list[ServedModel]:
    """All models with tokens or serving jobs in that month of UTC, by name. Six queries in the tables.

    Raises RowsInFilesError.
    """
    first, end = date(*month, 1), date(*shifted(month, 1), 1)
    places = sources.serving_places()
    earned, served = _earned(first, end), _served(places, first, end)
    costs = list(OperatingCost.objects.select_related("cluster"))
    placed = {place.model for place in places}
    return [
        _model(name, earned.get(name, _Earned()), served.get(name, {}), costs, is_placed=name in placed)
        for name in sorted({*earned, *served})
    ]


def _earned(first: date, end: date) -> dict[str, _Earned]:
    meters = [row.name for row in DeclaredMeter.objects.filter(dimensions__contains=list(DIMENSIONS))]
    models: dict[str, _Earned] = defaultdict(_Earned)
    with connection.cursor() as cursor:
        cursor.execute(sql.TOKENS, {"first_day": first, "end": end, "meters": meters})
        for text, share_den, currency, units, amount in cursor.fetchall():
            dimensions = dimensions_of(text)
            model = models[dimensions.get("model", UNKNOWN)]
            model.tokens[dimensions.get("direction", "")] += int(units) // HOUR
            if currency is not None:
                model.amounts.append(Money(Fraction(amount) / (share_den * HOUR), currency))
    return models


def _served(places: Sequence[ServingPlace], first: date, end: date) -> dict[str, Served]:
    values: dict[str, Any] = {
        "models": [place.model for place in places],
        "clusters": [place.cluster for place in places],
        "accounts": [place.account for place in places],
        "names": [place.job for place in places],
        "since": _second(first),
        "until": _second(end),
    }
    models: dict[str, Served] = defaultdict(lambda: defaultdict(Fraction))
    if places:
        names = {place.cluster for place in places}
        clusters = [number for number, name in usage.cluster_names().items() if name in names]
        files = all_tenants_rows.cluster_usage(
            clusters, since=values["since"], until=values["until"], with_rated=False
        )
        with files, connection.cursor() as cursor:
            cursor.execute(sql.SERVED, values)
            for model, cluster, gpu_model, day, share_den, amount in cursor.fetchall():
                key = cluster, gpu_model, date(1970, 1, 1) + timedelta(days=day)
                models[model][key] += Fraction(int(amount), share_den)
    return models


def _model(
    name: str, earned: _Earned, served: Served, costs: Iterable[OperatingCost], *, is_placed: bool
) -> ServedModel:
    revenue = per_currency(earned.amounts)
    cost = _cost(served, revenue, list(costs)) if served else None  # a place without jobs is a wrong one
    tokens = {direction.value: earned.tokens.get(direction, 0) for direction in Direction}
    return ServedModel(name, tokens, revenue, is_placed, sum(served.values(), Fraction(0)), cost)


def _cost(served: Served, revenue: Sequence[Money], costs: Sequence[OperatingCost]) -> Money | None:
    """In the currency of the revenue, or of all costs where there is none."""
    currencies = {money.currency for money in revenue} or {row.currency for row in costs}
    if len(currencies) != 1:
        return None
    (currency,) = currencies
    total = Fraction(0)
    try:
        for (cluster, gpu_model, day), seconds in served.items():
            if seconds:
                fitting = margin.fitting(costs, cluster, currency)
                total += seconds / HOUR * margin.cost_on(fitting, gpu_model, day, currency)
    except MarginError:
        return None
    return Money(total, currency)


def _second(day: date) -> int:
    return int(datetime.combine(day, time(), UTC).timestamp())
