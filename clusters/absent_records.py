"""Months whose records are in no table: what a batch says of them is compared with files first.

What is known there already changes nothing. As soon as one fact is news, the month is loaded back, and the batch is
merged as any other. Where its files cannot be read, it is refused and quarantined: nobody could tell what is new.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import date, datetime
from typing import Any, ClassVar, Final, Protocol

from django.db import connection, transaction
from django.utils.module_loading import import_string
from django.utils.translation import gettext_noop

from clusters import temp_tables
from clusters.connectors.base import BadRow, UsageFact
from clusters.partitions import of_partition
from clusters.validation import as_text
from portal.errors import CodedError
from portal.sql_files import Statements

sql = Statements(__file__, "absent_records.sql")
merging = Statements(__file__, "ledger.sql")

FOUND: Final = "usage_absent"
"""The temporary table of the records that were found."""


class MonthFilesError(Exception):
    """The files of a month cannot be read; the message is a sentence that says why. Nothing was changed."""


class RowsInFilesError(CodedError):
    """What is asked for needs rows that stand in files alone; the message says of which months."""

    sentences: ClassVar[Mapping[str, str]] = {
        "rows-in-files": gettext_noop(
            "The rows of {months} are only in the files of sealed months. The operator of the clusters can load them "
            "back."
        )
    }


class MonthFiles(Protocol):
    """What has the records of months that are in no table. Called inside the caller's transaction."""

    def hold(self, months: Collection[date]) -> Collection[date]:
        """Which of these are still absent: until the transaction ends, nobody else loads or drops those."""

    def find(self, cursor: Any, cluster_id: int, month: date) -> None:
        """Put the records of what is staged of the month into FOUND. Raises MonthFilesError."""

    def load(self, month: date) -> None:
        """Have all rows of the month in their tables again. Raises MonthFilesError."""

    def load_changed(self, account_ids: Sequence[int]) -> None:
        """Load each month in which usage of these accounts would be rated otherwise now. Raises MonthFilesError."""


_NAME: list[str] = []


def register(name: str) -> None:
    """Have the class of that dotted name read the files: what stores usage is below what seals it.

    Where no month is dropped nobody loads it.
    """
    _NAME[:] = [name]


def _month_files() -> MonthFiles:
    files: MonthFiles = import_string(_NAME[0])()
    return files


def load_changed(account_ids: Sequence[int]) -> None:
    """Load each month in which usage of these accounts would be rated otherwise now. Raises MonthFilesError.

    Until the caller's transaction ends nobody may change on what they are rated. One query where no month is dropped.
    """
    if list_all():
        _month_files().load_changed(account_ids)


@transaction.atomic
def load_periods(period_ids: Iterable[int]) -> None:
    """Load each month with usage in one of these billing periods. Raises MonthFilesError."""
    for month in list_of_periods(period_ids):
        _month_files().load(month)


def list_all() -> list[date]:
    """Months whose rows stand in files alone. One query."""
    return _dates("SELECT billing_dropped_months()", [])


def list_between(since: int, until: int) -> list[date]:
    """Months whose rows stand in files alone and whose runs held anything in [since, until), epoch seconds."""
    return _dates("SELECT billing_dropped_between(%s, %s)", [max(since, 0), until])


def list_of_periods(period_ids: Iterable[int]) -> list[date]:
    """Those with usage in one of these billing periods. One query."""
    return _dates("SELECT billing_dropped_of_periods(%s)", [list(period_ids)])


def refuse_between(since: int, until: int) -> None:
    """Raise RowsInFilesError where what held anything in [since, until) is not all in the tables. One query."""
    _refuse(list_between(since, until))


def refuse_periods(period_ids: Iterable[int]) -> None:
    """The same of what was used in these billing periods."""
    _refuse(list_of_periods(period_ids))


def refuse_record(record_id: int) -> None:
    """The same of one record. One query."""
    _refuse([one for one in list_all() if month_number(one) == record_id >> 40])


def refuse_keys(cluster_id: int, keys: Iterable[str]) -> None:
    """The same of the cluster's records with these source keys. One query."""
    _refuse(_dates(sql.MONTHS_OF_KEYS, {"keys": list(keys), "cluster": cluster_id}))


def month_number(month: date) -> int:
    """As the database's function of that name has it."""
    return (month.year - 1970) * 12 + month.month - 1


def _refuse(months: Sequence[date]) -> None:
    if months:
        raise RowsInFilesError("rows-in-files", months=months_text(months))


def months_text(months: Sequence[date]) -> str:
    """`2025-01, 2025-02`; of more than three the first and the last."""
    names = [f"{month:%Y-%m}" for month in months]
    return ", ".join(names) if len(names) <= 3 else f"{names[0]} … {names[-1]}"


def _dates(statement: str, values: list[Any] | dict[str, Any]) -> list[date]:
    with connection.cursor() as cursor:
        cursor.execute(statement, values)
        return [month for (month,) in cursor.fetchall()]


def settle(
    cursor: Any,
    *,
    cluster_id: int,
    months: Iterable[int],
    rounds: int,
    moment: datetime,
    marks: Sequence[int] | None,
) -> dict[str, tuple[str, str]]:
    """Take out of the stage what absent records say already, and load each month of which it says anything else.

    Returns by source key the month, and why it could not be read, of what has to be refused, which is out of the stage.
    """
    refused: dict[str, tuple[str, str]] = {}
    staged = set(months)
    absent = [month for month in list_all() if month_number(month) in staged]
    for month in sorted(_month_files().hold(absent)) if absent else ():
        values = {"cluster": cluster_id, "month": month_number(month), "moment": moment, "name": ""}
        values["marks"] = None if marks is None else list(marks)
        try:
            with transaction.atomic():
                temp_tables.prepare(cursor, "ABSENT")
                _month_files().find(cursor, cluster_id, month)
                cursor.execute(sql.SETTLE, values)
                if _has_news(cursor, rounds, values):
                    # A request's statements have seconds, which those of a month may exceed.
                    cursor.execute("SET LOCAL statement_timeout = 0")
                    _month_files().load(month)
                    continue
        except MonthFilesError as error:
            cursor.execute(sql.KEYS, values)
            refused |= {key: (f"{month:%Y-%m}", str(error)) for (key,) in cursor.fetchall()}
        cursor.execute(sql.LEAVE_OUT, values)
    return refused


def refusals(facts: Iterable[UsageFact], refused: dict[str, tuple[str, str]]) -> list[BadRow]:
    """The rows to quarantine instead of these facts."""
    return [
        BadRow(
            code="sealed-month",
            values={"month": month, "reason": reason},
            raw=as_text(fact),
            source_key=fact.source_key,
        )
        for fact in facts
        if (why := refused.get(fact.source_key)) is not None
        for month, reason in [why]
    ]


def _has_news(cursor: Any, rounds: int, values: dict[str, Any]) -> bool:
    """Whether any staged fact of the month is other than what was found, or of a record that was not."""
    if rounds > 1:
        cursor.execute(of_partition(merging.DROP_REPEATED_HISTORY, FOUND), values)
    for turn in range(1, rounds + 1):
        cursor.execute(merging.FORGET)
        cursor.execute(of_partition(merging.MATCH, FOUND), values | {"turn": turn})
        cursor.execute(merging.VERDICTS)
        if {verdict for verdict, _ in cursor.fetchall()} - {"same", "stale"}:
            return True
    return False
