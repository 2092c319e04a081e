"""What a tenant's statement says, read from the totals that rating keeps."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import NamedTuple, TypeVar

from django.db.models import Sum

from billing import calendar, coverage, standing
from billing.models import BillingPeriod, InvoiceLine, InvoiceState, PeriodTotal, Price, Verdict
from billing.rules import period as rules
from billing.rules.money import Money
from billing.rules.pricing import Meter, PerUnit
from billing.rules.statement import Billed, Line, LineKey, Owed, statement
from billing.standing import Rated
from portal.tenants.models import Project, Tenant

R = TypeVar("R", "_Total", "_Line")


@dataclass(frozen=True, slots=True)
class Statement:
    """The lines to bill at a period's end and how far into rated usage they reach.

    What the lines name by key stands beside them: all of their prices, projects and periods.
    """

    lines: list[Line]
    currency: str
    rated_through: int
    prices: Mapping[int, Price]
    projects: Mapping[str, int]
    periods: Mapping[rules.Period, BillingPeriod]


@dataclass(frozen=True, slots=True)
class Unpriced:
    """Charged usage that no price covers."""

    resource: str
    gpu_model: str
    resource_hours: Decimal  # rounded, to be read by people


class MixedCurrenciesError(Exception):
    """One invoice would hold two currencies."""


def unpriced(*, tenant: Tenant, period: BillingPeriod) -> list[Unpriced]:
    """Usage up to the period's end that blocks its close."""
    rows = (
        PeriodTotal.objects.filter(tenant=tenant, period__end__lte=period.end, verdict=Verdict.UNPRICED)
        .values("resource", "gpu_model", "share_den")
        .annotate(sum=Sum("units"))
        .filter(sum__gt=0)
        .order_by("resource", "gpu_model", "share_den")
    )
    return [
        Unpriced(
            row["resource"],
            row["gpu_model"],
            Decimal(Money.of(Fraction(int(row["sum"]), row["share_den"] * 3600), "USD").rounded().text),
        )
        for row in rows
    ]


def pending(*, tenant: Tenant, period: BillingPeriod) -> Statement:
    """All that is owed up to the period's end and not billed yet, corrections of earlier periods included.

    A pure function of the totals and of the lines already issued. Raises MixedCurrenciesError.
    """
    found = pending_each([period], standing.rated_up_to([period]))[tenant.pk]
    if isinstance(found, MixedCurrenciesError):
        raise found
    return found


def pending_each(
    periods: Sequence[BillingPeriod], rated: Mapping[int, Sequence[Rated]]
) -> dict[int, Statement | MixedCurrenciesError]:
    """As `pending`, by tenant, of whom each has one of the periods; `rated` is `standing.rated_up_to` of them.

    Six queries at most, however many they are.
    """
    reach = coverage.of_tenants(rated)
    news = {
        p.tenant_id: _with_news(p, rated.get(p.tenant_id, []), reach.get(p.tenant_id, [])) for p in periods
    }
    earlier = BillingPeriod.objects.in_bulk({pk for ids in news.values() for pk in ids})
    touched = {p.tenant_id: [*(earlier[pk] for pk in news[p.tenant_id]), p] for p in periods}
    rows = _totals(touched)
    lines = _lines(touched)
    names = _names(rows, lines)
    prices = _prices({row.price_id for row in rows} | {line.price_id for line in lines})
    own_rows, own_lines = _by_tenant(rows), _by_tenant(lines)
    return {
        period.tenant_id: _statement(
            period,
            touched[period.tenant_id],
            own_rows[period.tenant_id],
            own_lines[period.tenant_id],
            names[period.tenant_id],
            prices,
            max((each.newest for each in rated.get(period.tenant_id, [])), default=0),
        )
        for period in periods
    }


def _with_news(period: BillingPeriod, rated: Sequence[Rated], reach: coverage.Reach) -> list[int]:
    """The earlier periods that were rated differently since an invoice last covered them, in order."""
    return [
        each.period
        for each in sorted(rated, key=lambda each: each.start)
        if each.period != period.pk and each.newest > coverage.through(reach, each.end)
    ]


class _Total(NamedTuple):
    tenant: int
    period: int
    project: int
    name: str
    own: int  # whose project it is
    price_id: int
    share_den: int
    units: Decimal


class _Line(NamedTuple):
    tenant: int
    period: int
    project: int
    name: str
    meter: str
    price_id: int
    seconds_num: Decimal
    seconds_den: int
    amount: int
    unit_price: Decimal
    currency: str


def _totals(touched: Mapping[int, Sequence[BillingPeriod]]) -> list[_Total]:
    found = PeriodTotal.objects.filter(
        tenant__in=touched,
        period__in=[period for periods in touched.values() for period in periods],
        verdict=Verdict.CHARGED,
        price_id__isnull=False,
    )
    columns = (
        "tenant",
        "period",
        "project",
        "project__name",
        "project__tenant",
        "price_id",
        "share_den",
        "units",
    )
    return [_Total(*row) for row in found.values_list(*columns)]


def _lines(touched: Mapping[int, Sequence[BillingPeriod]]) -> list[_Line]:
    """What standing invoices hold of these periods."""
    found = InvoiceLine.objects.filter(
        tenant__in=touched,
        service_period__in=[period for periods in touched.values() for period in periods],
        invoice__state=InvoiceState.ISSUED,
    ).order_by("pk")
    columns = (
        *("tenant", "service_period", "project_id", "project", "meter", "price_id"),
        *("seconds_num", "seconds_den", "amount", "unit_price", "invoice__currency"),
    )
    return [_Line(*row) for row in found.values_list(*columns)]


def _names(rows: Iterable[_Total], lines: Iterable[_Line]) -> Mapping[int, dict[int, str]]:
    """By tenant the present names of its projects: of all where a line names one without totals."""
    names: dict[int, dict[int, str]] = defaultdict(dict)
    for row in rows:
        if row.own == row.tenant:
            names[row.tenant][row.project] = row.name
    if lacking := {line.tenant for line in lines if line.project not in names[line.tenant]}:
        found = Project.objects.filter(tenant__in=lacking).values_list("tenant", "pk", "name")
        for tenant, pk, name in found:
            names[tenant][pk] = name
    return names


def _by_tenant(rows: Iterable[R]) -> Mapping[int, list[R]]:
    found: dict[int, list[R]] = defaultdict(list)
    for row in rows:
        found[row.tenant].append(row)
    return found


def _statement(
    period: BillingPeriod,
    touched: Sequence[BillingPeriod],
    rows: Sequence[_Total],
    lines: Sequence[_Line],
    names: Mapping[int, str],
    prices: dict[int, Price],
    through: int,
) -> Statement | MixedCurrenciesError:
    rules_of = {each.pk: calendar.as_rule(each) for each in touched}
    owed = _owed(rows, prices, rules_of)
    billed = _billed(lines, names, rules_of)
    currencies = {prices[key.price_id].version.plan.currency for key in owed} | {
        amount.amount.currency for amount in billed.values()
    }
    if len(currencies) > 1:
        return MixedCurrenciesError(
            f"Usage up to the end of this period is priced in {' and '.join(sorted(currencies))}; "
            f"an invoice has one currency: change plans of another currency at a period border only."
        )
    currency = next(iter(currencies), "")
    return Statement(
        statement(owed=owed, billed=billed, period=rules_of[period.pk], currency=currency)
        if currency
        else [],
        currency,
        through,
        prices,
        {name: pk for pk, name in names.items()},
        {rules_of[each.pk]: each for each in touched},
    )


def _prices(ids: Iterable[int]) -> dict[int, Price]:
    return {p.pk: p for p in Price.objects.filter(pk__in=list(ids)).select_related("version__plan")}


def _owed(
    rows: Iterable[_Total], prices: Mapping[int, Price], periods: Mapping[int, rules.Period]
) -> dict[LineKey, Owed]:
    seconds: dict[LineKey, Fraction] = defaultdict(Fraction)
    for row in rows:
        meter = Meter(prices[row.price_id].meter)
        key = LineKey(periods[row.period], row.name, meter, row.price_id)
        seconds[key] += Fraction(int(row.units), row.share_den)
    return {
        key: Owed(total, PerUnit(prices[key.price_id].unit_price)) for key, total in seconds.items() if total
    }


def _billed(
    lines: Iterable[_Line], names: Mapping[int, str], periods: Mapping[int, rules.Period]
) -> dict[LineKey, Billed]:
    """The lines under the projects' present names."""
    billed: dict[LineKey, Billed] = {}
    for line in lines:
        name = names.get(line.project, line.name)
        key = LineKey(periods[line.period], name, Meter(line.meter), line.price_id)
        amount = Money.from_minor(line.amount, line.currency)
        before = billed.get(key)
        billed[key] = Billed(
            (before.resource_seconds if before else Fraction(0))
            + Fraction(int(line.seconds_num), line.seconds_den),
            before.amount + amount if before else amount,
            line.unit_price,
        )
    return billed
