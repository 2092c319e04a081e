"""What a provider's bill says a rented cluster costs: imported, replaced by its next delivery, read for the margin."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

from django.db import connection, transaction

from billing.models import CostImport
from billing.reports.bill_rows import BillError, BillFile, BillRow
from clusters import temp_tables
from clusters.models import Cluster
from portal.core import locks
from portal.excerpt import quoted
from portal.sql_files import Statements

sql = Statements(__file__, "bills.sql")

LONGEST_MODEL = 200


@dataclass(frozen=True, slots=True)
class Bill:
    """What one bill has for the cluster: `charges` in all, of which so many are new; `gone` are no longer in it."""

    provider: str
    account: str
    period: date
    currency: str
    amount: Decimal
    charges: int
    new: int
    gone: int

    @property
    def amount_text(self) -> str:
        """All its decimals, without zeros at the end."""
        whole, _, part = f"{self.amount:f}".partition(".")
        return f"{whole}.{part.rstrip('0')}".rstrip(".")

    def as_data(self) -> dict[str, Any]:
        """For programs: the amount as text, the period by its first day."""
        return {
            **dataclasses.asdict(self),
            "period": self.period.isoformat(),
            "amount": self.amount_text,
        }


@dataclass(frozen=True, slots=True)
class Imported:
    """`taxes` and `others`: rows that were left out, as taxes and by the selection."""

    bills: Sequence[Bill]
    taxes: int
    others: int


def parse_selection(texts: Iterable[str]) -> dict[str, str]:
    """`SubAccountId=123`, one each. Raises BillError."""
    chosen: dict[str, str] = {}
    for text in texts:
        column, equals, value = text.partition("=")
        if not (column.strip() and equals) or not text.isprintable() or column.strip() in chosen:
            raise BillError(
                f"{quoted(text)} is not Column=Value, such as SubAccountId=123, with each column once."
            )
        chosen[column.strip()] = value.strip()
    return chosen


@transaction.atomic
def import_bills(
    *,
    cluster: Cluster,
    files: Iterable[Path],
    gpu_model: str = "",
    selection: Mapping[str, str] | None = None,
    moment: datetime,
    keep: bool,
) -> Imported:
    """Have what these files say be the cluster's costs, or those of one GPU model of it; all files or none.

    Files of one delivery come together: what an earlier delivery of the same bill said for the same selection, and
    this one does not say, goes. Imported again, only its moment changes. Without `keep` all is undone: a preview.
    Raises BillError, also where another import counts one of the charges already.
    """
    if len(gpu_model) > LONGEST_MODEL or not gpu_model.isprintable():
        raise BillError("That is no name of a GPU model that a scheduler gives.")
    chosen = dict(sorted((selection or {}).items()))
    sources = [BillFile(path, chosen) for path in files]
    scope: dict[str, Any] = {
        "cluster": cluster.pk,
        "gpu_model": gpu_model,
        "selection": "\n".join(f"{column}={value}" for column, value in chosen.items()),
    }
    with connection.cursor() as cursor:
        temp_tables.prepare(cursor, "BILL")
        with cursor.copy(sql.COPY_BILL) as copy:
            for row in _rows(sources):
                copy.write_row(
                    (
                        row.provider,
                        row.account,
                        row.period,
                        row.currency,
                        row.digest,
                        row.since,
                        row.until,
                        row.amount,
                    )
                )
        cursor.execute(sql.ANALYZE_BILL)
        cursor.execute(sql.NUMBER_ROWS)
        cursor.execute(sql.ANALYZE_ROWS)
        locks.hold(locks.Work.IMPORTING_BILLS)  # whatever the cluster: a charge is of one of them
        cursor.execute(sql.GROUPS, scope)
        groups = cursor.fetchall()
        if not groups:
            raise BillError("The files have no charge but taxes that the selection takes.")
        _refuse(groups)
        names = "\n".join(source.path.name for source in sources)
        bills = [_write(cursor, scope, group, names, moment) for group in groups]
    if not keep:
        transaction.set_rollback(True)
    return Imported(bills, sum(source.taxes for source in sources), sum(source.others for source in sources))


def _rows(sources: Iterable[BillFile]) -> Iterator[BillRow]:
    for source in sources:
        yield from source.rows()


def _refuse(groups: Iterable[Sequence[Any]]) -> None:
    wrong = []
    for provider, account, period, currencies, _, count, new, own, other in groups:
        bill = f"The bill of {provider}, account {account or 'without a name'}, from {period}"
        if len(currencies) > 1:
            wrong.append(
                f"{bill} is in {' and '.join(currencies)}: amounts are not converted. Select one currency."
            )
        if new + own < count:
            wrong.append(
                f"{bill}: charges that are counted for {other} already: {count - new - own}. Select rows so that "
                "each is of one cluster and model."
            )
    if wrong:
        raise BillError(*wrong)


def _write(cursor: Any, scope: dict[str, Any], group: Sequence[Any], names: str, moment: datetime) -> Bill:
    provider, account, period, (currency,), amount, charges, new, *_ = group
    values = {"amount": amount, "charges": charges, "currency": currency}
    key = {"provider": provider, "billing_account": account, "billing_period": period}
    row = CostImport.objects.filter(
        cluster=scope["cluster"], gpu_model=scope["gpu_model"], selection=scope["selection"], **key
    ).first() or CostImport(
        cluster_id=scope["cluster"], gpu_model=scope["gpu_model"], selection=scope["selection"], **key
    )
    row.files, row.imported_at = names, moment  # also of a delivery that is the same: the bill goes so far
    for name, value in values.items():
        setattr(row, name, value)
    row.save()
    places = {"source": row.pk, "provider": provider, "account": account, "period": period}
    cursor.execute(sql.DROP_CHARGES, places)
    gone = cursor.rowcount
    cursor.execute(sql.ADD_CHARGES, places)
    return Bill(provider, account, period, currency, amount, charges, new, gone)


@dataclass(frozen=True, slots=True)
class Charges:
    """What bills say in [since, until), epoch seconds; of other times in part. `gpu_model` "": of the whole cluster."""

    cluster: str
    gpu_model: str
    provider: str
    currency: str
    since: int
    until: int
    amount: Decimal

    def within(self, since: int, until: int) -> Fraction:
        """What of it lies in [since, until), by time: exact."""
        seconds = max(min(self.until, until) - max(self.since, since), 0)
        return Fraction(self.amount) * seconds / (self.until - self.since)


@dataclass(frozen=True, slots=True)
class Billed:
    """All that bills say of a time, and from when to when whose costs are by them."""

    charges: Sequence[Charges]
    spans: Sequence[tuple[str, str, int, int]]  # cluster, model, since, until

    def covers(self, cluster: str, model: str, second: int) -> bool:
        """Whether the model's costs are told by a bill then: its own, or one of the whole cluster."""
        return any(
            name == cluster and of in ("", model) and since <= second < until
            for name, of, since, until in self.spans
        )

    def borders(self, cluster: str) -> set[int]:
        return {at for name, _, since, until in self.spans if name == cluster for at in (since, until)}


def billed(*, since: int, until: int, cluster: Cluster | None = None) -> Billed:
    """What was imported for a cluster, or for all. Two queries."""
    values = {"since": since, "until": until, "cluster": cluster.pk if cluster else None}
    with connection.cursor() as cursor:
        cursor.execute(sql.CHARGES, values)
        charges = [Charges(*row) for row in cursor.fetchall()]
        cursor.execute(sql.BILLED, {"cluster": values["cluster"]})
        return Billed(charges, cursor.fetchall())
