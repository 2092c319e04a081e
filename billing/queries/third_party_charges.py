"""What others use that a tenant pays for, day by day: what a forecast of its invoices carries on beside its own use."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from fractions import Fraction
from zoneinfo import ZoneInfo

from django.db.models import Q

from billing.invoicing.charges import ChargeInputs
from billing.invoicing.statements import Statement
from billing.models import DayTotal, Payer
from billing.queries.accrued_charges import Accrued, scaled
from billing.rules.forecast import LAST
from billing.rules.money import Money
from billing.rules.period import midnight
from clusters import usage
from portal.core.tenants.models import Ownership, Tenant

HOUR = 3600


@dataclass(frozen=True, slots=True)
class Going:
    """The use of one whom the tenant pays for, in the period of the user's that the tenant's next invoice holds."""

    user: str
    books: ChargeInputs
    zone: ZoneInfo
    days: Mapping[date, Fraction]  # at the prices of first units; those alone on which the tenant pays
    paid: Sequence[tuple[datetime, datetime]]  # when it pays, within the period

    def rest(self, through: datetime) -> Fraction:
        """How many days are still to come for which the tenant pays."""
        seconds = (
            int((end - max(start, through)).total_seconds()) for start, end in self.paid if end > through
        )
        return Fraction(sum(seconds), 24 * HOUR)

    def of_use(self, factor: Fraction) -> list[Money]:
        """What the period comes to with so many times its use: see `Accrued.of_use`."""
        return scaled(self.books, factor)


def going(*, tenant: Tenant, accrued: Accrued) -> list[Going]:
    """Each of whom the tenant pays for, by name. Two queries, however many they are; none where it is nobody."""
    others = [
        (other.user, other.charge_inputs, _zone(other))
        for other in accrued.others
        if other.user and other.charge_inputs
    ]
    if not others:
        return []
    users = {user.pk for user, *_ in others}
    paying: dict[int, list[Payer]] = defaultdict(list)
    for row in Payer.objects.filter(payer=tenant, tenant__in=users).order_by("since"):
        paying[row.tenant_id].append(row)
    first = min(books.period.start.astimezone(zone).date() for _, books, zone in others)
    days = _days(users, since=first - timedelta(days=LAST))
    return [
        Going(
            user.name,
            books,
            zone,
            {day: amount for day, amount in days[user.pk].items() if _pays(paying[user.pk], day)},
            list(_within(paying[user.pk], books, zone)),
        )
        for user, books, zone in others
    ]


def read_through(*, tenant: Tenant, accrued: Accrued, moment: datetime) -> datetime | None:
    """How far all clusters are read of the tenant and of whom it pays for; None where one never was. One query."""
    tenants = [tenant.pk, *(other.user.pk for other in accrued.others if other.user)]
    owned = Ownership.objects.filter(Q(until=None) | Q(until__gt=moment), tenant__in=tenants)
    marks = [mark.complete_through for mark in usage.marks(owned.values_list("account", flat=True))]
    watermarks = [mark for mark in marks if mark is not None]
    return min(watermarks) if watermarks and len(watermarks) == len(marks) else None


def _zone(of: Statement) -> ZoneInfo:
    own = of.periods.get(of.charge_inputs.period) if of.charge_inputs else None
    return ZoneInfo(own.timezone) if own else of.user.zone if of.user else ZoneInfo("UTC")


def _days(users: Iterable[int], *, since: date) -> Mapping[int, Mapping[date, Fraction]]:
    """By user and day what its use costs at the prices of first units."""
    amounts: dict[int, dict[date, Fraction]] = defaultdict(lambda: defaultdict(Fraction))
    rows = DayTotal.objects.filter(tenant__in=users, day__gte=since)
    for user, day, share_den, amount in rows.costs("tenant", "day"):
        amounts[user][day] += Fraction(amount) / (share_den * HOUR)
    return amounts


def _pays(rows: Iterable[Payer], day: date) -> bool:
    return any(row.since <= day and (row.until is None or day < row.until) for row in rows)


def _within(
    rows: Iterable[Payer], books: ChargeInputs, zone: ZoneInfo
) -> Iterable[tuple[datetime, datetime]]:
    for row in rows:
        start = max(books.period.start, midnight(row.since, zone=zone))
        end = books.period.end if row.until is None else min(books.period.end, midnight(row.until, zone=zone))
        if start < end:
            yield start, end
