"""What others use that a tenant pays for, day by day: what a forecast of its invoices carries on beside its own use."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from fractions import Fraction
from typing import Any
from zoneinfo import ZoneInfo

from django.db import connection

from billing.invoicing.charges import ChargeInputs
from billing.invoicing.statement_inputs import StatementInputs
from billing.invoicing.statements import Statement
from billing.models import Payer
from billing.queries.accrued_charges import Accrued, scaled
from billing.rules.forecast import LAST
from billing.rules.money import Money
from billing.rules.period import midnight
from portal.sql_files import Statements

sql = Statements(__file__, "third_party_charges.sql")

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


def load_going(
    inputs: StatementInputs, *, accrued: Accrued, moment: datetime
) -> tuple[list[Going], datetime | None]:
    """Each of whom the tenant pays for, by name; and how far all their clusters are read, and the tenant's own.

    None where one never was. One query.
    """
    others = [
        (other.user, other.charge_inputs, _zone(other))
        for other in accrued.others
        if other.user and other.charge_inputs
    ]
    users = {user.pk for user, *_ in others}
    paying: dict[int, list[Payer]] = defaultdict(list)
    for row in inputs.payers:
        if row.payer_id in inputs.tenants:
            paying[row.tenant_id].append(row)
    first = min((books.period.start.astimezone(zone).date() for _, books, zone in others), default=date.min)
    days, marks = _load_days_and_marks(
        inputs.tenants, users, since=first - timedelta(days=LAST), moment=moment
    )
    listed = [
        Going(
            user.name,
            books,
            zone,
            {day: amount for day, amount in days[user.pk].items() if _pays(paying[user.pk], day)},
            list(_within(paying[user.pk], books, zone)),
        )
        for user, books, zone in others
    ]
    watermarks = [mark for mark in marks if mark is not None]
    return listed, min(watermarks) if watermarks and len(watermarks) == len(marks) else None


def _zone(of: Statement) -> ZoneInfo:
    own = of.periods.get(of.charge_inputs.period) if of.charge_inputs else None
    return ZoneInfo(own.timezone) if own else of.user.zone if of.user else ZoneInfo("UTC")


def _load_days_and_marks(
    tenants: Iterable[int], users: Iterable[int], *, since: date, moment: datetime
) -> tuple[Mapping[int, Mapping[date, Fraction]], list[datetime | None]]:
    """By user and day what its use costs at the prices of first units; and how far each of their clusters is read."""
    amounts: dict[int, dict[date, Fraction]] = defaultdict(lambda: defaultdict(Fraction))
    marks: list[datetime | None] = []
    values: dict[str, Any] = {
        "users": list(users),
        "tenants": [*tenants, *users],
        "first_day": since,
        "moment": moment,
    }
    with connection.cursor() as cursor:
        cursor.execute(sql.DAYS_AND_MARKS, values)
        for user, day, share_den, amount, mark in cursor.fetchall():
            if user is None:
                marks.append(mark)
            else:
                amounts[user][day] += Fraction(amount) / (share_den * HOUR)
    return amounts, marks


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
