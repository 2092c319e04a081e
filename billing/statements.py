"""What a tenant's statement says, read from the totals that rating keeps."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction

from django.db.models import Max, Sum

from billing import calendar, coverage
from billing.models import BillingPeriod, InvoiceLine, InvoiceState, PeriodTotal, Price, Verdict
from billing.models.plans import SELECTORS
from billing.rules import period as rules
from billing.rules.money import Money
from billing.rules.pricing import Meter, PerUnit
from billing.rules.statement import Billed, Line, LineKey, Owed, statement
from portal.tenants.models import Project, Tenant


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
    touched, through = _periods_with_news(tenant, period)
    rows = list(
        PeriodTotal.objects.filter(tenant=tenant, period__in=touched, verdict=Verdict.CHARGED).select_related(
            "period", "project"
        )
    )
    names = {row.project_id: row.project.name for row in rows if row.project.tenant_id == tenant.pk}
    billed = _billed(tenant, touched, names)
    prices = _prices(
        {row.price_id for row in rows if row.price_id is not None} | {key.price_id for key in billed}
    )
    owed = _owed(rows, prices)
    currencies = {prices[key.price_id].version.plan.currency for key in owed} | {
        amount.amount.currency for amount in billed.values()
    }
    if len(currencies) > 1:
        raise MixedCurrenciesError(
            f"Usage up to the end of this period is priced in {' and '.join(sorted(currencies))}; "
            f"an invoice has one currency: change plans of another currency at a period border only."
        )
    currency = next(iter(currencies), "")
    lines = (
        statement(owed=owed, billed=billed, period=calendar.as_rule(period), currency=currency)
        if currency
        else []
    )
    return Statement(
        lines,
        currency,
        through,
        prices,
        {name: pk for pk, name in names.items()},
        {calendar.as_rule(each): each for each in touched},
    )


def _periods_with_news(tenant: Tenant, period: BillingPeriod) -> tuple[list[BillingPeriod], int]:
    """The period and the earlier ones that were rated differently since an invoice last covered them.

    And the newest rated row in any of them, 0 where there is none.
    """
    reach = coverage.of_tenant(tenant)
    newest = list(
        PeriodTotal.objects.filter(tenant=tenant, period__end__lte=period.end)
        .values_list("period", "period__end")
        .annotate(newest=Max("last_rated_id"))
        .order_by("period")
    )
    through = max((last for _, _, last in newest), default=0)
    ids = {pk for pk, end, last in newest if last > coverage.through(reach, end)} - {period.pk}
    earlier = list(BillingPeriod.objects.filter(pk__in=ids).order_by("start")) if ids else []
    return [*earlier, period], through


def _prices(ids: Iterable[int]) -> dict[int, Price]:
    return {p.pk: p for p in Price.objects.filter(pk__in=list(ids)).select_related("version__plan")}


def _owed(rows: list[PeriodTotal], prices: dict[int, Price]) -> dict[LineKey, Owed]:
    seconds: dict[LineKey, Fraction] = defaultdict(Fraction)
    for row in rows:
        if row.price_id is None:
            continue
        key = LineKey(
            calendar.as_rule(row.period), row.project.name, Meter(prices[row.price_id].meter), row.price_id
        )
        seconds[key] += Fraction(int(row.units), row.share_den)
    return {
        key: Owed(total, PerUnit(prices[key.price_id].unit_price)) for key, total in seconds.items() if total
    }


def _billed(tenant: Tenant, touched: list[BillingPeriod], names: dict[int, str]) -> dict[LineKey, Billed]:
    """What standing invoices hold of these periods, under the projects' present names.

    `names` gains those of projects that it lacks.
    """
    lines = InvoiceLine.objects.filter(
        tenant=tenant, service_period__in=touched, invoice__state=InvoiceState.ISSUED
    ).select_related("service_period", "invoice")
    found = list(lines.order_by("pk"))
    if any(line.project_id not in names for line in found):
        names |= dict(Project.objects.filter(tenant=tenant).values_list("pk", "name"))
    billed: dict[LineKey, Billed] = {}
    for line in found:
        key = LineKey(
            calendar.as_rule(line.service_period),
            names.get(line.project_id, line.project),
            Meter(line.meter),
            line.price_id,
        )
        amount = Money.from_minor(line.amount, line.invoice.currency)
        before = billed.get(key)
        billed[key] = Billed(
            (before.resource_seconds if before else Fraction(0))
            + Fraction(int(line.seconds_num), line.seconds_den),
            before.amount + amount if before else amount,
            line.unit_price,
        )
    return billed


def describe(price: Price) -> str:
    """What an invoice calls a price: the meter, then what it selects."""
    words = [Meter(price.meter).label]
    named = dict(zip(SELECTORS, _selected(price), strict=True))
    if named["gpu_model"]:
        words[0] = f"{words[0]}, {_list(named['gpu_model'])}"
    labels = {"qos": "QOS", "queue": "queue", "mig_profile": "slices"}
    words += [
        f"{labels.get(what, what.replace('_', ' '))} {_list(values)}"
        for what, values in named.items()
        if values and what != "gpu_model"
    ]
    return ", ".join(words)


def _selected(price: Price) -> tuple[list[str], ...]:
    return (
        price.clusters,
        price.queues,
        price.qoses,
        price.priority_classes,
        price.gpu_models,
        price.mig_profiles,
        price.states,
    )


def _list(values: list[str]) -> str:
    return " / ".join(values)
