"""What an operator sees first: what waits for somebody, revenue, receivables by age, and what capacity earns."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from fractions import Fraction
from typing import Any

from django.db import connection
from django.db.models import Count, F, Q, Sum

from billing.models import UNDECIDED, Decision, Invoice, OperatingCost, TransferState
from billing.queries.costs import per_currency
from billing.reports import margin
from billing.reports.bills import Billed, billed
from billing.reports.margin import MarginError
from billing.rules.money import Money
from billing.rules.period import shifted
from clusters import capacity_days
from portal.sql_files import Statements

sql = Statements(__file__, "operator_home.sql")

HOUR = 3600
AGES = (30, 60, 90)
"""Last days of the first three ages of what is overdue; the fourth has no end."""


@dataclass(frozen=True, slots=True)
class Waiting:
    """How many of each wait for a person."""

    quarantined: int  # rows
    transfers: int
    disputes: int
    approvals: int
    differences: int
    reviews: int  # payments whose outcome is not known
    sign_ups: int
    departures: int
    damaged_months: int  # sealed, with files that are missing or changed


@dataclass(frozen=True, slots=True)
class Revenue:
    """Charges for usage at unit prices, before tax, allowances and fees: exact, of days of each tenant's zone."""

    currency: str
    this_month: Money  # so far
    same_days: Money  # of the month before
    last_month: Money


@dataclass(frozen=True, slots=True)
class Receivables:
    """What is left of issued invoices in one currency, by days since it was due; and what is owed back."""

    currency: str
    not_due: Money
    by_age: tuple[Money, ...]  # as AGES
    invoices: int
    owed_back: Money
    owed_back_invoices: int

    @property
    def total(self) -> Money:
        return sum(self.by_age, self.not_due)


@dataclass(frozen=True, slots=True)
class Earned:
    """One model of one cluster this month. margin = revenue − operating cost."""

    cluster: str
    gpu_model: str  # "": not known, or charges that are of no GPU
    used: Fraction  # GPU-seconds of tenants, charged or not
    capacity: Fraction  # GPU-seconds that nodes had, idle and down included; 0: not known
    revenue: Sequence[Money]
    cost: Money | None  # None: not entered for all of it, or several currencies

    @property
    def unused(self) -> Money | None:
        """What the GPUs cost while no tenant had them; None where the cost or the capacity is not known."""
        if self.cost is None or not self.capacity:
            return None
        return self.cost * (max(self.capacity - self.used, Fraction(0)) / self.capacity)

    @property
    def margin(self) -> Money | None:
        if self.cost is None:
            return None
        return sum(self.revenue, Money.zero(self.cost.currency)) - self.cost


def waiting() -> Waiting:
    """One query."""
    with connection.cursor() as cursor:
        cursor.execute(
            sql.WAITING,
            {
                "transfers": [TransferState.NEW, TransferState.WAITING],
                "disputes": [*UNDECIDED],
                "approval": Decision.WAITING,
            },
        )
        return Waiting(*cursor.fetchone())


def revenue(*, today: date) -> list[Revenue]:
    """Of the month of `today` and the one before, by currency. One query."""
    first = today.replace(day=1)
    values = {"first_day": first, "earlier": _month_before(first), "end": today + timedelta(days=1)}
    values["same_end"] = min(values["earlier"] + timedelta(days=today.day), first)
    sums: dict[str, list[Fraction]] = defaultdict(lambda: [Fraction(0)] * 3)
    with connection.cursor() as cursor:
        cursor.execute(sql.REVENUE, values)
        for currency, share_den, *amounts in cursor.fetchall():
            for place, amount in enumerate(amounts):
                sums[currency][place] += Fraction(amount or 0) / (share_den * HOUR)
    return [
        Revenue(currency, *(Money(amount, currency) for amount in sums[currency]))
        for currency in sorted(sums)
    ]


def receivables(*, today: date) -> list[Receivables]:
    """All issued invoices that are not settled, by currency. One query."""
    borders = [today, *(today - timedelta(days=days) for days in AGES)]
    ages = {
        f"age{place}": Sum("remainder__left", filter=_overdue(borders, place), default=0)
        for place in range(len(borders))
    }
    rows = (
        Invoice.objects.to_settle()
        .exclude(remainder__left=0)
        .order_by()
        .values("currency")
        .annotate(
            not_due=Sum(
                "remainder__left",
                filter=Q(remainder__left__gt=0) & (Q(due_on__gte=today) | Q(due_on=None)),
                default=0,
            ),
            invoices=Count("pk", filter=Q(remainder__left__gt=0)),
            back=Sum(-F("remainder__left"), filter=Q(remainder__left__lt=0), default=0),
            back_invoices=Count("pk", filter=Q(remainder__left__lt=0)),
            **ages,
        )
        .order_by("currency")
    )
    return [_receivables(row, len(borders)) for row in rows]


def earned(*, moment: datetime) -> list[Earned]:
    """What each model of each cluster earned and cost this month in UTC, by cluster. Six queries."""
    today = moment.astimezone(UTC).date()
    first = today.replace(day=1)
    charged = _charged(first, today)
    since, until = int(datetime.combine(first, time(), UTC).timestamp()), int(moment.timestamp())
    had = capacity_days.by_day(since=since, until=until)
    costs = Costs(
        list(OperatingCost.objects.select_related("cluster")), billed(since=since, until=until), since, until
    )
    keys = sorted(charged.keys() | had.keys())
    return [_earned(key, *charged.get(key, (Fraction(0), [])), had, costs) for key in keys]


def _month_before(first: date) -> date:
    return date(*shifted((first.year, first.month), -1), 1)


def _overdue(borders: Sequence[date], place: int) -> Q:
    """`left` of invoices that were due before the border and not before the next one."""
    of = Q(remainder__left__gt=0, due_on__lt=borders[place])
    return of & Q(due_on__gte=borders[place + 1]) if place + 1 < len(borders) else of


def _receivables(row: Mapping[str, Any], ages: int) -> Receivables:
    currency = row["currency"]

    def money(minor: object) -> Money:
        return Money.from_minor(int(str(minor)), currency)

    return Receivables(
        currency,
        money(row["not_due"]),
        tuple(money(row[f"age{place}"]) for place in range(ages)),
        row["invoices"],
        money(row["back"]),
        row["back_invoices"],
    )


def _charged(first: date, last: date) -> dict[tuple[str, str], tuple[Fraction, list[Money]]]:
    """By cluster and model the GPU-seconds of tenants, and their charges by currency."""
    used: dict[tuple[str, str], Fraction] = defaultdict(Fraction)
    amounts: dict[tuple[str, str], list[Money]] = defaultdict(list)
    with connection.cursor() as cursor:
        cursor.execute(sql.CHARGED, {"first_day": first, "end": last + timedelta(days=1)})
        for cluster, model, share_den, gpu_units, currency, amount in cursor.fetchall():
            used[cluster, model] += Fraction(int(gpu_units), share_den)
            if currency is not None:
                amounts[cluster, model].append(Money(Fraction(amount) / (share_den * HOUR), currency))
    return {key: (used[key], per_currency(amounts[key])) for key in used}


@dataclass(frozen=True, slots=True)
class Costs:
    """What capacity costs to run in [since, until), epoch seconds: by rates, and by bills as far as they go."""

    rates: Sequence[OperatingCost]
    bills: Billed
    since: int
    until: int

    def currencies(self, cluster: str) -> set[str]:
        own = {one.currency for one in self.bills.charges if one.cluster == cluster}
        return own or {row.currency for row in self.rates}

    def of(
        self, key: tuple[str, str], had: Mapping[tuple[str, str], dict[date, Fraction]], currency: str
    ) -> Fraction:
        """The model's own bills, its part of those of the whole cluster by capacity, and rates where no bill goes.

        Raises MarginError.
        """
        cluster, model = key
        days = had.get(key, {})
        total = sum((sum(one.values()) for (name, _), one in had.items() if name == cluster), Fraction(0))
        part = Fraction(sum(days.values())) / total if total else Fraction(0)
        cost = Fraction(0)
        for of, weight in ((model, Fraction(1)), ("", part)) if model else (("", part),):
            charges = [one for one in self.bills.charges if (one.cluster, one.gpu_model) == (cluster, of)]
            cost += weight * margin.charged_by(charges, currency, since=self.since, until=self.until)
        rates = margin.fitting(self.rates, cluster, currency)
        for day, seconds in days.items():
            if not self.bills.covers(cluster, model, int(datetime.combine(day, time(), UTC).timestamp())):
                cost += seconds / HOUR * margin.cost_on(rates, model, day, currency)
        return cost


def _earned(
    key: tuple[str, str],
    used: Fraction,
    revenue: list[Money],
    had: Mapping[tuple[str, str], dict[date, Fraction]],
    costs: Costs,
) -> Earned:
    cluster, model = key
    days = had.get(key, {})
    currencies = {money.currency for money in revenue} or costs.currencies(cluster)
    cost = None
    if len(currencies) == 1 and days:
        (currency,) = currencies
        try:
            cost = Money(costs.of(key, had, currency), currency)
        except MarginError:
            cost = None
    return Earned(cluster, model, used, sum(days.values(), Fraction(0)), revenue, cost)
