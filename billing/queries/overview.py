"""A tenant's billing period, from the totals that rating keeps."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from math import lcm
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo

from billing.catalog import billing_periods
from billing.invoicing.statement_inputs import StatementInputs
from billing.models import BillingPeriod, Invoice, Resource, Verdict
from billing.queries import invoices, job_parts
from billing.queries.accrued_charges import Accrued
from billing.queries.costs import Tag, Tags, cost, per_currency, tag
from billing.queries.jobs import Job
from billing.queries.running_now import RunningNow, running_values, sum_running
from billing.rating.period_jobs import SHOWN
from billing.rules.forecast import LAST
from billing.rules.meters import SECONDS_PER_HOUR
from billing.rules.money import Money, split
from clusters import absent_records
from clusters.usage import Mark
from portal.core.tenants.models import Tenant
from portal.prepared import prepared_cursor
from portal.sql_files import Statements

sql = Statements(__file__, "overview.sql")

SERIES = 7  # projects that a chart tells apart; the others are one
DAY = timedelta(days=1)
DAYS_BEFORE = timedelta(days=LAST)  # by which a forecast may have to look back beyond the period


class Row(NamedTuple):
    """A total of a period."""

    period: int
    project: int
    name: str  # the project's
    gpu_model: str
    resource: str
    verdict: str
    price: int | None
    share_den: int
    units: Decimal
    title: str  # of a declared meter, or ""
    unit: str


class Key(NamedTuple):
    """What of a period's use is one row: a GPU model of a project, or one set of dimensions of a meter."""

    project: int
    name: str  # the project's
    gpu_model: str
    verdict: Verdict
    meter: str = ""  # how a declared one is called
    unit: str = ""


@dataclass(frozen=True, slots=True)
class Use:
    """What a project used of a GPU model or declared meter, with one verdict; `cost` is empty unless it is charged."""

    project: str
    gpu_model: str  # "" for jobs without a GPU, or where the source does not say; of a meter the dimensions
    verdict: Verdict
    gpu_seconds: Fraction
    cost: list[Money]  # rounded as invoice lines are
    meter: str = ""  # how a declared one is called
    unit: str = ""  # `million tokens`
    quantity: Fraction = Fraction(0)  # of the meter, in its unit

    @property
    def amount(self) -> Fraction:
        """In all currencies, to compare uses by."""
        return sum((amount.amount for amount in self.cost), Fraction(0))


@dataclass(frozen=True, slots=True)
class Day:
    """What all projects of one series used on a day; `project` is None for those without one of their own."""

    day: date
    project: int | None
    gpu_seconds: Fraction
    amount: Fraction  # in the period's currency


@dataclass(frozen=True, slots=True)
class Elapsed:
    """The first days of a period, as many as of the period that it is compared with."""

    gpu_seconds: Fraction
    amount: Fraction


@dataclass(frozen=True, slots=True, kw_only=True)
class Overview:
    """`currency` is "" where nothing is charged or, by mistake, in several currencies."""

    period: BillingPeriod
    first: date  # its days [first, end) in its own zone
    end: date
    currency: str
    spend: list[Money]
    gpu_seconds: Fraction
    uses: list[Use]  # by cost, then by GPU time, the largest first
    series: list[tuple[int, str]]  # projects by the same order
    days: list[Day]  # of the period, and of the DAYS_BEFORE it
    terms: list[tuple[str, Money]]  # what the plans charge, and take off, besides use
    before: Elapsed | None  # the same days of the period before, unless charged in another currency
    before_period: BillingPeriod | None
    started: int  # jobs
    running: RunningNow  # whatever the period
    top_jobs: list[Job]
    in_files: str  # months with jobs of the period that are not looked at; empty where there are none
    balances: list[tuple[str, int, int]]  # of wallets: unit, sum, how many
    open: invoices.Open  # of any period
    owed_back: invoices.OwedBack  # of any period
    documents: list[Invoice]  # the newest, with their balances


@dataclass(frozen=True, slots=True)
class Around:
    """A billing period that has begun, and its neighbours that have."""

    period: BillingPeriod
    before: BillingPeriod | None
    after: BillingPeriod | None
    inputs: StatementInputs  # of the tenant


def around(
    tenant: Tenant, *, moment: datetime, day: date | None = None, supposing: bool = False
) -> Around | None:
    """The period whose first day, in its own zone, is `day`, or the newest that has begun. One query.

    In an `acting_scope`, as of the inputs that come with it. `supposing`: periods since the last one that is kept, in
    which nothing was used yet, are there as well.
    """
    inputs = StatementInputs(frozenset([tenant.pk]))
    begun = [period for period in inputs.calendars[tenant.pk] if period.start <= moment]
    lacking: list[BillingPeriod] = []
    if supposing and begun and begun[-1].end <= moment:
        span = tenant, begun[-1].end, moment + timedelta(seconds=1)
        lacking = billing_periods.missing_periods([span], inputs.calendars)
        begun += lacking
    place = next(
        (place for place in reversed(range(len(begun))) if day in {None, days_of(begun[place])[0]}), None
    )
    if place is None:
        return None
    before, after = begun[place - 1] if place else None, begun[place + 1] if place + 1 < len(begun) else None
    if begun[place] in lacking:  # else a period that is kept is the last one, whose close bills what waits
        inputs = inputs.with_periods(lacking)
    return Around(begun[place], before, after, inputs)


def overview(
    tenant: Tenant,
    period: BillingPeriod,
    before: BillingPeriod | None,
    *,
    today: date,
    accrued: Accrued | None = None,
    newest: int = 0,
    marks: Sequence[Mark] = (),
) -> Overview:
    """Seven queries. `today` is a day of the period's zone: later ones are not compared with.

    `accrued`: what the period has come to by its statement, where prices of single units do not tell it all. `newest`:
    so many documents are read, too. `marks`: how far the clusters are read of which running jobs are counted.
    """
    first, end = days_of(period)
    running = today < end
    rows, prices = load_totals(tenant, [p for p in (period, before) if p])
    own = [row for row in rows if row.period == period.pk]
    currencies = _currencies(own, prices)
    currency = currencies.pop() if len(currencies) == 1 else ""
    uses, series = uses_of(own, prices, accrued)
    terms = accrued.terms if accrued else []
    begun = days_of(before)[0] if before else first
    days = _days(tenant, min(begun, first - DAYS_BEFORE), end, [pk for pk, _ in series])
    elapsed_end = min(begun + (min(end, today + DAY) - first), first) if running else first
    comparable = before and _currencies([r for r in rows if r.period == before.pk], prices) <= {currency}
    to_pay, owed_back, documents = invoices.outstanding(tenant, newest=newest)
    started, balances, now = _figures(tenant, period, marks)
    return Overview(
        period=period,
        first=first,
        end=end,
        currency=currency,
        spend=per_currency(
            [*(amount for use in uses for amount in use.cost), *(amount for _, amount in terms)]
        ),
        gpu_seconds=sum((use.gpu_seconds for use in uses), Fraction(0)),
        uses=uses,
        series=series,
        days=[day for day in days if day.day >= (first - DAYS_BEFORE if running else first)],
        terms=terms,
        before=_elapsed(day for day in days if begun <= day.day < elapsed_end) if comparable else None,
        before_period=before,
        started=started,
        running=now,
        top_jobs=job_parts.top_jobs(tenant, period, limit=SHOWN),
        in_files=_in_files(period),
        balances=balances,
        open=to_pay,
        owed_back=owed_back,
        documents=documents,
    )


def _in_files(period: BillingPeriod) -> str:
    """One query, and none of a period that is open: all that share a period with a dropped month are closed."""
    if period.closed_at is None:
        return ""
    return absent_records.months_text(absent_records.list_of_periods([period.pk]))


def days_of(period: BillingPeriod) -> tuple[date, date]:
    """Its days [first, end) in its own zone."""
    zone = ZoneInfo(period.timezone)
    return period.start.astimezone(zone).date(), period.end.astimezone(zone).date()


def load_totals(tenant: Tenant, periods: list[BillingPeriod]) -> tuple[list[Row], Tags]:
    """The totals of these periods, and the prices that they were rated by."""
    rows, prices = [], dict[int, Tag]()
    with prepared_cursor() as cursor:
        cursor.execute(sql.TOTALS, {"tenant": tenant.pk, "periods": [period.pk for period in periods]})
        for columns in cursor.fetchall():
            row = Row(*columns[:PRICED])
            rows.append(row)
            if row.price is not None and row.price not in prices and columns[PRICED] is not None:
                prices[row.price] = tag(*columns[PRICED:])
    return rows, prices


def _currencies(rows: Sequence[Row], prices: Tags) -> set[str]:
    return {prices[row.price].currency for row in rows if row.price is not None and row.price in prices}


def uses_of(
    rows: Sequence[Row], prices: Tags, accrued: Accrued | None
) -> tuple[list[Use], list[tuple[int, str]]]:
    hours: dict[Key, Fraction] = defaultdict(Fraction)
    quantities: dict[Key, Fraction] = defaultdict(Fraction)
    lines: dict[tuple[str, int], dict[Key, Fraction]] = defaultdict(lambda: defaultdict(Fraction))
    for row in rows:
        key = Key(row.project, row.name, row.gpu_model, Verdict(row.verdict), row.title, row.unit)
        seconds = Fraction(int(row.units), row.share_den)
        if row.resource == Resource.GPU:
            hours[key] += seconds
        elif row.title:
            quantities[key] += seconds / SECONDS_PER_HOUR
        elif key.verdict != Verdict.CHARGED:
            hours[key] += 0  # it shows, without a GPU-hour
        if row.price is not None and row.price in prices:
            lines[row.name, row.price][key] += seconds
    costs = _costs(lines, prices, accrued)
    seen = hours.keys() | costs.keys() | quantities.keys()
    shown = {(key.project, key.gpu_model) for key in seen if key.verdict != Verdict.WAIVED}
    uses = {
        key: Use(*key[1:4], hours[key], per_currency(costs[key]), *key[4:], quantities[key])
        for key in seen
        # CPU and memory next to a charged GPU are waived without a word; a waived GPU is shown.
        if key.verdict != Verdict.WAIVED or hours[key] or (key.project, key.gpu_model) not in shown
    }
    ordered = sorted(uses, key=lambda key: (*_weight([uses[key]]), key.name, key.meter, key.gpu_model))
    by_project: dict[tuple[int, str], list[Use]] = defaultdict(list)
    for key in ordered:
        by_project[key[0], key[1]].append(uses[key])
    largest = sorted(by_project, key=lambda project: (*_weight(by_project[project]), project[1]))
    return [uses[key] for key in ordered], largest[:SERIES]


def _costs(
    lines: Mapping[tuple[str, int], Mapping[Key, Fraction]], prices: Tags, accrued: Accrued | None
) -> dict[Key, list[Money]]:
    """Rounded once per project and price, as the invoice's lines are, so that a page adds up to the invoice.

    Where one price covers several GPU models, its rounded amount is shared by their use.
    """
    costs: dict[Key, list[Money]] = defaultdict(list)
    for name, used in lines.items():
        line = accrued.use.get(name) if accrued else None
        if line is None:
            line = cost(prices[name[1]], sum(used.values(), Fraction(0))).rounded()
        unit = lcm(*(seconds.denominator for seconds in used.values()))
        weights = [int(seconds * unit) for seconds in used.values()]
        shares = split(line, weights if any(weights) else [1] * len(weights))
        for key, share in zip(used, shares, strict=True):
            costs[key].append(share)
    return costs


def _weight(uses: Iterable[Use]) -> tuple[Fraction, Fraction]:
    """Sorts the costly first, then the busy."""
    uses = list(uses)
    return (
        -sum((use.amount for use in uses), Fraction(0)),
        -sum((use.gpu_seconds for use in uses), Fraction(0)),
    )


def _days(tenant: Tenant, first: date, end: date, projects: list[int]) -> list[Day]:
    """What was used on each day of [first, end), apart for each of these projects."""
    with prepared_cursor() as cursor:
        cursor.execute(sql.DAYS, {"tenant": tenant.pk, "first_day": first, "end": end, "projects": projects})
        rows = cursor.fetchall()
    sums: dict[tuple[date, int | None], list[Fraction]] = defaultdict(lambda: [Fraction(0), Fraction(0)])
    for day, series, share_den, gpu, amount in rows:
        entry = sums[day, series]
        entry[0] += Fraction(int(gpu or 0), share_den)
        entry[1] += _amount(amount, share_den)
    return [Day(day, project, gpu, amount) for (day, project), (gpu, amount) in sums.items()]


def _figures(
    tenant: Tenant, period: BillingPeriod, marks: Sequence[Mark]
) -> tuple[int, list[tuple[str, int, int]], RunningNow]:
    """How many jobs started, the balances of wallets, and what runs now."""
    values = {"tenant": tenant.pk, "period": period.pk, **running_values(marks)}
    with prepared_cursor() as cursor:
        cursor.execute(sql.FIGURES, values)
        rows = cursor.fetchall()
    balances = [(unit, balance, count) for _, unit, balance, count, *_ in rows if unit is not None]
    return rows[0][0], balances, sum_running(row[4:] for row in rows if row[4] is not None)


def _elapsed(days: Iterable[Day]) -> Elapsed:
    days = list(days)
    return Elapsed(
        sum((day.gpu_seconds for day in days), Fraction(0)), sum((day.amount for day in days), Fraction(0))
    )


PRICED = len(Row._fields)


def _amount(amount: Any, share_den: int) -> Fraction:
    """Totals keep Σ units × share_num × unit price, undivided."""
    numerator, denominator = (amount or Decimal(0)).as_integer_ratio()
    return Fraction(numerator, denominator * share_den * 3600)
