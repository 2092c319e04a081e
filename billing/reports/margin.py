"""What is left of what use is charged after what capacity costs to run."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, date, datetime, time
from fractions import Fraction
from itertools import pairwise

from billing.models import CostImport, OperatingCost
from billing.reports.bills import Charges, billed
from billing.reports.messages import SENTENCES
from billing.reports.shapes import ZERO, Report
from clusters.models import Cluster
from portal.errors import CodedError

HOUR = 3600


class MarginError(CodedError):
    """The margin cannot be told; the message says why."""

    sentences = SENTENCES


@dataclass(frozen=True, slots=True)
class Margin:
    """margin = revenue − operating_cost, in major units of the currency, exact."""

    currency: str
    revenue: Fraction
    operating_cost: Fraction

    @property
    def margin(self) -> Fraction:
        return self.revenue - self.operating_cost


def margin(report: Report, *, operating_cost: Fraction) -> Margin:
    """`operating_cost` is of one GPU-hour of capacity, idle or not, in the currency that everything is charged in.

    Raises MarginError where that is not one currency, or where the capacity of the whole period is not known.
    """
    currency, revenue = _revenue(report)
    if report.capacity is None:
        raise MarginError("no-capacity")
    return Margin(currency, revenue, operating_cost * report.capacity.whole.total / HOUR)


def by_models(report: Report, cluster: Cluster) -> Margin:
    """As `margin`, by what each model costs to run on each UTC day, as it was entered for the cluster or for all.

    A model's own cost wins over that of every model, then the cluster's over that of every cluster. As far as a bill
    that was imported goes, it tells the cost instead. Raises MarginError too where a model that nodes had is without a
    cost in the currency: it never costs nothing by accident.
    """
    currency, revenue = _revenue(report)
    costs = fitting(OperatingCost.objects.select_related("cluster"), cluster.name, currency)
    bills = billed(since=report.since, until=report.until, cluster=cluster)
    borders = {_second(row) for row in costs} | bills.borders(cluster.name)
    ends = sorted({report.since, report.until, *(at for at in borders if report.since < at < report.until)})
    cost = charged_by(bills.charges, currency, since=report.since, until=report.until)
    if report.capacity is None:
        raise MarginError("no-capacity")
    for since, until in pairwise(ends):
        day = datetime.fromtimestamp(since, UTC).date()
        for gpu_model, seconds in sorted(report.capacity.within(since, until).items()):
            if not bills.covers(cluster.name, gpu_model, since):
                cost += Fraction(seconds, HOUR) * cost_on(costs, gpu_model, day, currency)
    return Margin(currency, revenue, cost)


def known(cluster: Cluster) -> bool:
    """Whether any cost was entered or imported that can be the cluster's."""
    return (
        OperatingCost.objects.filter(cluster=cluster).exists()
        or OperatingCost.objects.filter(cluster=None).exists()
        or CostImport.objects.filter(cluster=cluster).exists()
    )


def charged_by(charges: Iterable[Charges], currency: str, *, since: int, until: int) -> Fraction:
    """What bills say of [since, until). Raises MarginError where one is in another currency: nothing is converted."""
    cost = ZERO
    for one in charges:
        if one.currency != currency:
            raise MarginError(
                "bill-in-other-currency",
                provider=one.provider,
                cluster=one.cluster,
                currency=one.currency,
                ours=currency,
            )
        cost += one.within(since, until)
    return cost


def fitting(rows: Iterable[OperatingCost], cluster: str, currency: str) -> list[OperatingCost]:
    """Those that can be the cluster's in this currency, the ones that win first."""
    own = [
        row
        for row in rows
        if row.currency == currency and (row.cluster is None or row.cluster.name == cluster)
    ]
    return sorted(
        own, key=lambda row: (bool(row.gpu_model), row.cluster_id is not None, row.valid_from), reverse=True
    )


def cost_on(costs: Iterable[OperatingCost], model: str, day: date, currency: str) -> Fraction:
    """Of a GPU-hour of the model's capacity on a UTC day, by costs in the order of `fitting`. Raises MarginError."""
    for row in costs:
        if row.gpu_model in ("", model) and row.valid_from <= day:
            return Fraction(row.amount)
    code = "no-operating-cost" if model else "no-operating-cost-of-unnamed-model"
    raise MarginError(code, currency=currency, model=model, day=day)


def _second(row: OperatingCost) -> int:
    return int(datetime.combine(row.valid_from, time(), UTC).timestamp())


def _revenue(report: Report) -> tuple[str, Fraction]:
    """What everything is charged, in its one currency; capacity has to be known for all of the period."""
    if not report.money:
        raise MarginError("nothing-charged")
    if len(report.money) > 1:
        raise MarginError("several-currencies", currencies=" and ".join(report.money))
    capacity = report.capacity
    if capacity is None or (capacity.since, capacity.until) != (report.since, report.until):
        raise MarginError("no-capacity")
    ((currency, money),) = report.money.items()
    return currency, money.allocated + report.other[currency]
