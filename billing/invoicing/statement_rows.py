"""The rows that statements are made of: totals of usage, and lines of standing invoices."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from fractions import Fraction
from typing import Any, NamedTuple, TypeVar

from django.db.backends.utils import CursorWrapper

from billing.models import (
    BillingPeriod,
    InvoiceLine,
    InvoiceState,
    LineKind,
    PeriodTotal,
    Plan,
    PlanVersion,
    Price,
    Settles,
    Verdict,
)
from billing.models.plans import priced_meter
from billing.rules.meters import meter_of
from billing.rules.money import Money
from billing.rules.period import Period
from billing.rules.statement_lines import Billed, Key, LineKey, TermKey, TermKind
from portal.core.tenants.models import Project
from portal.prepared import instances, prepared_cursor


class UsageParties(NamedTuple):
    """Whose use it is, and who pays for it: mostly the same."""

    payer: int
    tenant: int


Touched = Mapping[UsageParties, Sequence[BillingPeriod]]
"""The periods of the tenant that are looked at."""


class Total(NamedTuple):
    """What a project used at a price in a period."""

    parties: UsageParties
    period: int
    project: int
    name: str
    own: int  # whose project it is
    price_id: int
    share_den: int
    units: Decimal


class IssuedLine(NamedTuple):
    """A line of an invoice that was issued and is not void."""

    parties: UsageParties
    period: int
    kind: str
    term: int | None
    project: int | None
    name: str
    meter: str
    unit: str
    price_id: int | None
    seconds_num: Decimal
    seconds_den: int
    amount: int
    unit_price: Decimal | None
    currency: str


R = TypeVar("R", Total, IssuedLine)


def load_totals(touched: Touched) -> list[Total]:
    """What is charged to invoices."""
    period_totals = PeriodTotal.objects.filter(
        tenant__in={parties.tenant for parties in touched},
        period__in=[period for periods in touched.values() for period in periods],
        verdict=Verdict.CHARGED,
        price_id__isnull=False,
    ).exclude(price_id__in=Price.objects.filter(version__plan__settles=Settles.WALLET).values("pk"))
    columns = (
        *(
            "payer",
            "tenant",
            "period",
            "project",
            "project__name",
            "project__tenant",
            "price_id",
            "share_den",
            "units",
        ),
    )
    return [
        Total(UsageParties(payer or tenant, tenant), *row)
        for payer, tenant, *row in period_totals.values_list(*columns)
    ]


def load_lines(touched: Touched) -> list[IssuedLine]:
    """What standing invoices hold of these periods, by use and by terms of plans.

    And for terms of all other periods of who is among them: what was billed for one that is gone is found, too. One
    query.
    """
    issued = InvoiceLine.objects.filter(
        tenant__in={parties.payer for parties in touched}, invoice__state=InvoiceState.ISSUED
    )
    of_periods = issued.filter(
        service_period__in={period.pk for periods in touched.values() for period in periods},
        kind__in=[LineKind.USAGE, *TermKind],
    )
    of_terms = issued.filter(
        service_period__tenant__in={parties.tenant for parties in touched}, kind__in=[*TermKind]
    )
    columns = (
        *(
            "id",
            "tenant",
            "service_period__tenant",
            "service_period",
            "kind",
            "term_id",
            "project_id",
            "project",
        ),
        *(
            "meter",
            "unit",
            "price_id",
            "seconds_num",
            "seconds_den",
            "amount",
            "unit_price",
            "invoice__currency",
        ),
    )
    rows = of_periods.values_list(*columns).union(of_terms.values_list(*columns)).order_by("id")
    return [IssuedLine(UsageParties(payer, tenant), *row) for _, payer, tenant, *row in rows]


def group_by_parties(entries: Iterable[R], touched: Touched) -> Mapping[UsageParties, list[R]]:
    """Of these periods alone: of a tenant for whom another pays, one of the two may look at fewer."""
    periods = {parties: {period.pk for period in own} for parties, own in touched.items()}
    groups: dict[UsageParties, list[R]] = defaultdict(list)
    for row in entries:
        if row.period in periods.get(row.parties, ()):
            groups[row.parties].append(row)
    return groups


def load_names(rows: Iterable[Total], issued_lines: Iterable[IssuedLine]) -> Mapping[int, dict[int, str]]:
    """By tenant the present names of its projects: of all where a line names one without totals."""
    project_names: dict[int, dict[int, str]] = defaultdict(dict)
    for row in rows:
        if row.own == row.parties.tenant:
            project_names[row.parties.tenant][row.project] = row.name
    lacking = {
        line.parties.tenant
        for line in issued_lines
        if line.project is not None and line.project not in project_names[line.parties.tenant]
    }
    if lacking:
        projects = Project.objects.filter(tenant__in=lacking).values_list("tenant", "pk", "name")
        for tenant, pk, name in projects:
            project_names[tenant][pk] = name
    return project_names


def load_prices(ids: Iterable[int | None]) -> dict[int, Price]:
    """By id, with their plans. One query, none without any."""
    price_ids = sorted({pk for pk in ids if pk is not None})
    if not price_ids:
        return {}
    with prepared_cursor() as cursor:
        cursor.execute(_PRICES, {"prices": price_ids})
        return {price.pk: price for price, *_ in priced(cursor)}


def priced(cursor: CursorWrapper) -> Iterator[tuple[Any, ...]]:
    """Of each row that begins with `c.*, v.*, p.*`, as of `_PRICES`, the price with its plan, and what follows."""
    for price, price.version, price.version.plan, *more in instances(cursor, Price, PlanVersion, Plan):
        yield price, *more


_PRICES = """
SELECT c.*, v.*, p.* FROM billing_price c JOIN billing_planversion v ON v.id = c.version_id
JOIN billing_plan p ON p.id = v.plan_id WHERE c.id = ANY (%(prices)s::bigint[])
"""


def sum_usage(
    rows: Iterable[Total], prices_by_id: Mapping[int, Price], periods: Mapping[int, Period]
) -> dict[LineKey, Fraction]:
    """Resource-seconds by key."""
    seconds: dict[LineKey, Fraction] = defaultdict(Fraction)
    for row in rows:
        meter = priced_meter(prices_by_id[row.price_id])
        key = LineKey(periods[row.period], row.name, meter, row.price_id)
        seconds[key] += Fraction(int(row.units), row.share_den)
    return seconds


def sum_billed(
    issued_lines: Iterable[IssuedLine], named: Mapping[int, str], periods: Mapping[int, Period]
) -> dict[Key, Billed]:
    """The lines by key, under the projects' present names."""
    billed_lines: dict[Key, Billed] = {}
    for line in issued_lines:
        key = _statement_key(line, named, periods[line.period])
        amount = Money.from_minor(line.amount, line.currency)
        before = billed_lines.get(key)
        billed_lines[key] = Billed(
            (before.resource_seconds if before else Fraction(0))
            + Fraction(int(line.seconds_num), line.seconds_den),
            before.amount + amount if before else amount,
            line.unit_price,
        )
    return billed_lines


def _statement_key(line: IssuedLine, named: Mapping[int, str], service: Period) -> Key:
    if line.kind != LineKind.USAGE:
        return TermKey(service, TermKind(line.kind), line.term or 0)
    name = named.get(line.project or 0, line.name)
    return LineKey(service, name, meter_of(line.meter, unit=line.unit), line.price_id or 0)
