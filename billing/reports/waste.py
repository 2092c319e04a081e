"""What was held and not used, by why: GPU-hours and money that could be given back, and the jobs behind each finding.

Unknown is not idle: only hours that telemetry covered count. An hour of a run is *idle* if its devices worked less than
1 % of it. Each covered second is in one finding at most, so findings never add up to more than the waste.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal
from enum import StrEnum
from fractions import Fraction
from typing import Any, Final

from django.db import connection, transaction

from billing.catalog import plans
from billing.queries.costs import Tags, tags
from billing.reports.shapes import ZERO, Split
from billing.sealed_months import all_tenants_rows
from clusters import absent_records
from clusters.models import Cluster
from portal.core.tenants.models import Tenant
from portal.sql_files import Statements

sql = Statements(__file__, "waste.sql")

HOUR = 3600
DAY = 24 * HOUR
MONTH: Final = 730 * HOUR  # seconds; the month of 730 hours that cloud prices are quoted by
SMALL: Final = Decimal("0.3")
"""Part of one GPU that a run needs at most, in its busiest hour, for a less powerful model to be suggested."""


Cheaper = Mapping[int, tuple[Decimal, Sequence[str]]]
"""By price of a GPU model the next lower unit price of another model, and which models."""

Rows = Sequence[Sequence[Any]]
"""What the statement answered. Numbers may be decimal texts, as JSON has them."""


class Kind(StrEnum):
    """Why GPU-hours were held and not used."""

    ZERO_USE = "zero-use"  # the run never worked
    IDLE_TAIL = "idle-tail"  # it worked, and did nothing in its last two hours or more
    IDLE_BETWEEN = "idle-between"  # idle before and between work, and short tails
    TOO_MANY_GPUS = "too-many-gpus"  # its busiest hour would have filled fewer
    TOO_LARGE_MODEL = (
        "too-large-model"  # its busiest hour filled SMALL of one, and a cheaper model has a price
    )
    TIME_LIMIT = "time-limit"  # four times what it ran, or more: costs nothing, delays others
    WAITED = "idle-while-waiting"  # of a cluster: GPUs stood idle while jobs waited for them


@dataclass(frozen=True, slots=True)
class Finding:
    """GPU-seconds that could be given back, and by currency their money in the period. Without money: `TIME_LIMIT`."""

    kind: Kind
    seconds: Fraction
    money: Mapping[str, Fraction]
    jobs: int

    def a_month(self, length: int) -> Mapping[str, Fraction]:
        """What the money of a period of so many seconds comes to in a month of 730 hours."""
        return {code: amount * MONTH / length for code, amount in self.money.items()}


@dataclass(slots=True)
class ModelUse:
    """What runs held of one GPU model, in GPU-seconds, and what is charged of it by currency."""

    allocated: Fraction = ZERO
    covered: Fraction = ZERO
    effective: Fraction = ZERO
    zero: Fraction = ZERO  # of the waste, that in idle hours
    charged: dict[str, Fraction] = field(default_factory=lambda: defaultdict(Fraction))  # GPU-seconds
    money: dict[str, Fraction] = field(default_factory=lambda: defaultdict(Fraction))

    @property
    def low(self) -> Fraction:
        """The waste in hours in which devices worked a part."""
        return self.covered - self.effective - self.zero

    @property
    def unknown(self) -> Fraction:
        return self.allocated - self.covered

    def average_price(self, currency: str) -> Fraction | None:
        """Of a GPU-second that was charged; None where none was."""
        seconds = self.charged.get(currency, ZERO)
        return self.money[currency] / seconds if seconds else None


@dataclass(frozen=True, slots=True)
class WastefulJob:
    """One run, with what could be given back of it."""

    record: int
    seconds: Fraction
    money: Mapping[str, Fraction]


@dataclass(frozen=True, slots=True)
class Waste:
    """What was held and not used in [since, until), epoch seconds: findings by money, the most first."""

    since: int
    until: int
    findings: Sequence[Finding]
    models: Mapping[str, ModelUse]
    zero: Mapping[str, Fraction]  # money by currency of the waste in idle hours
    jobs: Sequence[WastefulJob] = ()  # of the kind that was asked for

    @property
    def length(self) -> int:
        return self.until - self.since

    @property
    def seconds(self) -> Split:
        return Split(
            *(
                sum((getattr(use, name) for use in self.models.values()), ZERO)
                for name in ("allocated", "effective", "covered")
            )
        )

    @property
    def zero_seconds(self) -> Fraction:
        return sum((use.zero for use in self.models.values()), ZERO)


@dataclass(frozen=True, slots=True)
class WasteQuery:
    """What is asked of usage in [since, until), epoch seconds: findings, and so many jobs of each of `kinds`.

    `by_use` is what `plans.by_use` says, which a page asks once.
    """

    since: int
    until: int
    cheaper: Cheaper
    kinds: Sequence[Kind]
    jobs: int
    by_use: bool


def of_cluster(cluster: Cluster, *, since: int, until: int, kind: Kind | None = None, jobs: int = 0) -> Waste:
    """Everybody's use of a cluster; with a kind its most expensive jobs. Four queries in the tables."""
    query = WasteQuery(since, until, cheaper_models(None), [kind] if kind else [], jobs, plans.by_use())
    with transaction.atomic(), all_tenants_rows.cluster_usage([cluster.pk], since=since, until=until):
        rows = rows_of_cluster(cluster, query)
    return waste_of_rows(rows, since=since, until=until, cheaper=query.cheaper, kind=kind)


def rows_of_cluster(cluster: Cluster, query: WasteQuery) -> Rows:
    """As `rows_of_tenant`, of everybody's use of a cluster."""
    return _load(sql.WASTE, query, cluster=cluster.pk)


def of_tenant(
    tenant: Tenant, *, since: int, until: int, cheaper: Cheaper, kind: Kind | None = None, jobs: int = 0
) -> Waste:
    """What a tenant held of all clusters. Runs inside its scope; `cheaper` is read outside of it. Three queries."""
    absent_records.show(absent_records.list_between(since, until), with_hours=True)
    query = WasteQuery(since, until, cheaper, [kind] if kind else [], jobs, plans.by_use())
    return waste_of_rows(rows_of_tenant(tenant, query), since=since, until=until, cheaper=cheaper, kind=kind)


def rows_of_tenant(tenant: Tenant, query: WasteQuery) -> Rows:
    """What the statement answers: GPU-seconds by price, and jobs of each kind. One query.

    The caller has months shown whose rows are in files.
    """
    return _load(_OWN, query, tenant=tenant.pk)


def waste_of_rows(rows: Rows, *, since: int, until: int, cheaper: Cheaper, kind: Kind | None = None) -> Waste:
    """The waste that rows of the statement make at the prices of now, with their jobs of one kind. One query.

    A price that has no cheaper model any more is in no finding of one.
    """
    return _Sums(tags(row[4] for row in rows), cheaper, kind).read(rows, since, until)


def cheaper_models(tenant: Tenant | None) -> Cheaper:
    """By price of a GPU model, the next lower unit price of another model for the same usage, and which models.

    One query. Tenants' pages may not read prices of usage that they do not have: for them it runs in an acting scope.
    """
    with connection.cursor() as cursor:
        cursor.execute(sql.CHEAPER, {"tenant": tenant.pk if tenant else None})
        return {price: (unit_price, models) for price, unit_price, models in cursor.fetchall()}


def end_of_use(until: int, complete_through: datetime | None, since: int) -> int:
    """The end of a period as far as its use can be known, so that days to come do not thin a month's money.

    A day at least: an hour says little about a month.
    """
    if complete_through is None:
        return until
    return min(until, max(int(complete_through.timestamp()), since + DAY))


def ranked(findings: Sequence[Finding]) -> list[Finding]:
    """By money, the most first, then by GPU-hours; what has no money comes last."""
    return sorted(
        findings, key=lambda one: (not one.money, -max(one.money.values(), default=ZERO), -one.seconds)
    )


_OWN = (
    sql.WASTE.replace("report_pieces(%(cluster)s, %(tenant)s,", "report_own_pieces(%(tenant)s,")
    .replace(
        "SELECT * FROM clusters_utilisationhour v\n"
        "        WHERE v.record_id = s.record_id AND v.hour < s.until AND v.hour > s.since - 3600",
        "SELECT * FROM billing_ownhour v\n"
        "        WHERE v.record_id = s.record_id AND v.hour < s.until AND v.hour > s.since - 3600 OFFSET 0",
    )
    .replace(
        "FROM clusters_usagerecord v WHERE v.id = p.record_id",
        "FROM billing_ownrun v WHERE v.record_id = p.record_id OFFSET 0",
    )
)
"""The same by the tenant's own views. Each run is looked up by itself, since such a view is otherwise made in full."""


def _load(
    statement: str, query: WasteQuery, *, cluster: int | None = None, tenant: int | None = None
) -> Rows:
    values = {
        "cluster": cluster,
        "tenant": tenant,
        "since": query.since,
        "until": query.until,
        "by_use": query.by_use,
        "dear": list(query.cheaper),
        "less": [unit_price for unit_price, _ in query.cheaper.values()],
        "small": SMALL,
        "kinds": [kind.value for kind in query.kinds],
        "jobs": query.jobs,
    }
    with connection.cursor() as cursor:
        cursor.execute("SELECT set_config('work_mem', '64MB', true)")
        cursor.execute(statement, values)
        return list(cursor.fetchall())


class _Sums:
    """The rows of the statement, added up."""

    def __init__(self, prices: Tags, cheaper: Cheaper, kind: Kind | None) -> None:
        self.prices, self.cheaper, self.kind = prices, cheaper, kind
        self.models: dict[str, ModelUse] = defaultdict(ModelUse)
        self.zero: dict[str, Fraction] = defaultdict(Fraction)
        self.seconds: dict[str, Fraction] = defaultdict(Fraction)
        self.money: dict[str, dict[str, Fraction]] = defaultdict(lambda: defaultdict(Fraction))
        self.counts: dict[str, int] = {}
        self.jobs: dict[int, list[tuple[Fraction, str | None, Fraction]]] = defaultdict(list)

    def read(self, rows: Sequence[Any], since: int, until: int) -> Waste:
        for part, key, model, currency, price, den, *numbers in rows:
            a, b, c = (Fraction(number or 0) / den for number in numbers)
            if (
                part in {"found", "job"}
                and Kind.TOO_LARGE_MODEL in {key, model}
                and price not in self.cheaper
            ):
                continue
            match part:
                case "held":
                    self._allocated(model, currency, price, a)
                case "covered":
                    self._covered(model, currency, price, a, b, c)
                case "found":
                    self.seconds[key] += a
                    if price is not None:
                        self.money[key][currency] += a * self._rate(price, less=key == Kind.TOO_LARGE_MODEL)
                case "jobs":
                    self.counts[key] = int(a)
                case "job" if model == self.kind:
                    rate = (
                        ZERO if price is None else self._rate(price, less=self.kind is Kind.TOO_LARGE_MODEL)
                    )
                    self.jobs[int(key)].append((a, None if price is None else currency, a * rate))
        findings = [
            Finding(Kind(kind), seconds, dict(self.money[kind]), self.counts[kind])
            for kind, seconds in self.seconds.items()
        ]
        jobs = [_job(record, parts) for record, parts in self.jobs.items()]
        jobs.sort(key=lambda job: (-max(job.money.values(), default=ZERO), -job.seconds, job.record))
        return Waste(since, until, ranked(findings), dict(self.models), dict(self.zero), jobs)

    def _allocated(self, model: str, currency: str | None, price: int | None, seconds: Fraction) -> None:
        use = self.models[model]
        use.allocated += seconds
        if currency is not None and price is not None:
            use.charged[currency] += seconds
            use.money[currency] += seconds * self._rate(price)

    def _covered(
        self,
        model: str,
        currency: str | None,
        price: int | None,
        covered: Fraction,
        worked: Fraction,
        zero: Fraction,
    ) -> None:
        use = self.models[model]
        use.covered, use.effective, use.zero = use.covered + covered, use.effective + worked, use.zero + zero
        if currency is not None and price is not None:
            self.zero[currency] += zero * self._rate(price)

    def _rate(self, price: int, *, less: bool = False) -> Fraction:
        """Of a GPU-second; `less` what a cheaper model costs."""
        unit_price = Fraction(self.prices[price].unit_price)
        return (unit_price - Fraction(self.cheaper[price][0]) if less else unit_price) / HOUR


def _job(record: int, parts: Sequence[tuple[Fraction, str | None, Fraction]]) -> WastefulJob:
    money: dict[str, Fraction] = defaultdict(Fraction)
    for _, currency, amount in parts:
        if currency is not None:
            money[currency] += amount
    return WastefulJob(record, sum((seconds for seconds, _, _ in parts), ZERO), dict(money))
