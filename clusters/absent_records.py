"""Months whose records are in no table: what a batch says of them is compared with files first.

What is known there already changes nothing. A record of which a fact is news comes back alone, with all that was rated
of it, and the batch is merged as any other: from then on its table says what is known of it. Where the files cannot be
read, what only they could tell of is refused and quarantined.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from datetime import date, datetime
from typing import IO, Any, ClassVar, Final, Protocol

import structlog
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
MOST: Final = 50_000
"""Jobs that a page or an answer of the API reads from files: some two seconds for 25,000."""
SEARCHED: Final = 1_000_000
"""Jobs in files that a search looks through, the newest months first."""

log = structlog.get_logger(__name__)


class MonthFilesError(Exception):
    """The files of a month cannot be read; the message is a sentence that says why. Nothing was changed."""


class NotShownError(Exception):
    """No tenant is in scope to read files for, nothing may be written, or there is more than a page reads."""


class RowsInFilesError(CodedError):
    """What is asked for needs rows that stand in files alone; the message says of which months."""

    sentences: ClassVar[Mapping[str, str]] = {
        "rows-in-files": gettext_noop(
            "The rows of {months} are only in the files of sealed months. The operator of the clusters can load them "
            "back."
        ),
        "unread-files": gettext_noop(
            "The rows of {months} are only in the files of sealed months, which cannot be read here now. Try again "
            "later, or ask the operator of the clusters."
        ),
    }


class MonthFiles(Protocol):
    """What has the records of months that are in no table. Called inside the caller's transaction."""

    def hold(self, months: Collection[date]) -> Collection[date]:
        """Which of these are still absent: until the transaction ends, nobody else loads or drops those."""

    def find(self, cursor: Any, cluster_id: int, month: date) -> None:
        """Put the records of what is staged of the month into FOUND. Raises MonthFilesError.

        What it starts for that goes on until `close`.
        """

    def close(self) -> None:
        """End what `find` has started."""

    def load(self, month: date) -> None:
        """Have all rows of the month in their tables again. Raises MonthFilesError."""

    def load_records(self, month: date, keys: Sequence[str]) -> None:
        """Have the records that were found with these keys in their tables, with all that was rated of them.

        Raises MonthFilesError.
        """

    def load_changed(self, account_ids: Sequence[int]) -> None:
        """Load each month in which usage of these accounts would be rated otherwise now. Raises MonthFilesError."""

    def show(self, months: Collection[date], *, most: int | None, with_hours: bool = False) -> None:
        """Have the rows that the tenant in scope has in the months stand beside those of the tables.

        Until the transaction ends; `with_hours` those of telemetry, too. Raises NotShownError, as where they are of
        more jobs than `most`, and MonthFilesError.
        """

    def show_records(self, months: Sequence[date], records: Sequence[int]) -> None:
        """The same of records of these months."""

    def show_record(self, month: date, record: int, part: tuple[str, str] | None) -> None:
        """The same of one record of the month, and of the other parts of its job in its month, with hours of telemetry.

        `part` has the namespace and the name of that job, where only its table tells.
        """

    def show_numbered(self, months: Sequence[date], number: str, *, among: int, most: int) -> list[date]:
        """The same of the `most` newest jobs of that number in the months, but for what they used.

        Returns the months that were looked at, as far as the tenant has `among` jobs in them.
        """

    def write_usage(
        self, months: Collection[date], rows: IO[bytes], *, since: int, until: int, most: int | None
    ) -> None:
        """Write the records of the tenant in scope that held something in [since, until) into a file. As `show`."""

    def refuse_unreadable(self, months: Collection[date]) -> None:
        """Raise what `show` of any number of jobs would; reads no rows."""


_NAME: list[str] = []


def register(name: str) -> None:
    """Have the class of that dotted name read the files: what stores usage is below what seals it.

    Where no month is dropped nobody loads it.
    """
    _NAME[:] = [name]


_OPENED: ContextVar[list[MonthFiles]] = ContextVar("opened")


@contextmanager
def batches() -> Iterator[None]:
    """What finds the records of one batch of the block goes on for the next: its start takes longer than a batch."""
    if _OPENED.get(None) is not None:
        yield
        return
    opened: list[MonthFiles] = []
    token = _OPENED.set(opened)
    try:
        yield
    finally:
        _OPENED.reset(token)
        for files in opened:
            files.close()


def _opened() -> MonthFiles:
    """The same one in all of `batches`, where alone it may be asked for."""
    opened = _OPENED.get()
    if not opened:
        opened.append(_month_files())
    return opened[0]


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
def load_months(months: Iterable[date]) -> None:
    """Load each of these. Raises MonthFilesError, and has loaded none then."""
    for month in months:
        _month_files().load(month)


def list_all() -> list[date]:
    """Months whose rows stand in files alone. One query."""
    return _dates("SELECT billing_dropped_months()", [])


def list_own() -> list[date]:
    """Those of which the tenant in scope has jobs. One query."""
    return _dates(sql.OWN_MONTHS, [])


def list_between(since: int, until: int) -> list[date]:
    """Months whose rows stand in files alone and whose runs held anything in [since, until), epoch seconds."""
    return _dates("SELECT billing_dropped_between(%s, %s)", [max(since, 0), until])


def list_between_any(spans: Iterable[tuple[int, int]]) -> list[date]:
    """The same of any of these, the earliest first. One query."""
    since, until = zip(*spans, strict=True)
    return _dates(
        sql.MONTHS_BETWEEN_ANY, {"since": [max(second, 0) for second in since], "until": list(until)}
    )


def list_of_periods(period_ids: Iterable[int]) -> list[date]:
    """Those with jobs in one of these billing periods. One query."""
    return _dates("SELECT billing_dropped_of_periods(%s)", [list(period_ids)])


def list_of_rows(spans: Iterable[tuple[int, int, int]]) -> list[date]:
    """Those whose files have rated usage of a billing period with a number in (after, through], of any of these
    (period, after, through). One query.
    """
    periods, afters, throughs = zip(*spans, strict=True) if (spans := list(spans)) else ((), (), ())
    return _dates("SELECT billing_dropped_of_rows(%s, %s, %s)", [list(periods), list(afters), list(throughs)])


def refuse_keys(cluster_id: int, keys: Iterable[str]) -> None:
    """Raise RowsInFilesError where records of the cluster with these source keys are in no table. One query."""
    refuse(_dates(sql.MONTHS_OF_KEYS, {"keys": list(keys), "cluster": cluster_id}))


def show(months: Sequence[date], *, most: int | None = MOST, with_hours: bool = False) -> None:
    """Have the rows of these absent months stand beside those of the tables until the transaction ends.

    Those of the tenant in whose scope it is, in whatever statement follows; not those of more jobs than `most`.
    `with_hours` those of telemetry, too. Raises RowsInFilesError where they cannot be read.
    """
    if months:
        with reading(months) as files:
            files.show(months, most=most, with_hours=with_hours)


def write_usage(months: Sequence[date], rows: IO[bytes], *, since: int, until: int, most: int | None) -> None:
    """Write what the tenant in scope has in these absent months and held something in [since, until) into a file.

    As `usage.load_filed` takes it. Nothing of it stays shown. Raises RowsInFilesError where `show` would.
    """
    with reading(months) as files:
        files.write_usage(months, rows, since=since, until=until, most=most)


def show_record(month: date, record_id: int, *, part_of: str = "") -> None:
    """The same of one record of this absent month, where it is the tenant's, and of the other parts of its job in it.

    With hours. `part_of` is that job, NAMESPACE/NAME, of a record that is in its table.
    """
    namespace, _, name = part_of.partition("/")
    with reading([month]) as files:
        files.show_record(month, record_id, (namespace, name) if part_of else None)


def show_records(record_ids: Sequence[int]) -> None:
    """The same of some records, as far as they are the tenant's. One query where no month is dropped."""
    absent = {month_number(month): month for month in list_all()}
    if records := [record for record in record_ids if record >> 40 in absent]:
        months = sorted({absent[record >> 40] for record in records})
        with reading(months) as files:
            files.show_records(months, records)


def show_numbered(number: str, *, most: int) -> list[date]:
    """The same of the tenant's `most` newest jobs of that number in them, with tasks and steps of it.

    What they used is not shown. Returns the months that were not looked at: those before SEARCHED jobs, or all where
    none can be read now. One query where the tenant has no job in files.
    """
    months = list_own()[::-1]
    looked_at: Collection[date] = ()
    if months:
        with suppress(RowsInFilesError), reading(months) as files:
            looked_at = files.show_numbered(months, number, among=SEARCHED, most=most)
    return sorted(set(months).difference(looked_at))


def refuse_unreadable(months: Sequence[date]) -> None:
    """Raise RowsInFilesError where `show` of any number of jobs would: before a file is sent. Reads no rows."""
    if months:
        with reading(months) as files:
            files.refuse_unreadable(months)


@contextmanager
def reading(months: Sequence[date]) -> Iterator[MonthFiles]:
    """What reads their files; why it cannot is a RowsInFilesError that names them."""
    try:
        yield _month_files()
    except NotShownError as error:
        raise RowsInFilesError("rows-in-files", months=months_text(months)) from error
    except MonthFilesError as error:
        log.warning("files of sealed months not read", months=months_text(months), reason=str(error))
        raise RowsInFilesError("unread-files", months=months_text(months)) from error


def month_number(month: date) -> int:
    """As the database's function of that name has it."""
    return (month.year - 1970) * 12 + month.month - 1


def refuse(months: Sequence[date], code: str = "rows-in-files") -> None:
    """Raise RowsInFilesError of that code, as a worker met it, where there are such months."""
    if months:
        raise RowsInFilesError(code, months=months_text(months))


def months_text(months: Sequence[date]) -> str:
    """`2025-01, 2025-02`; of more than three the first and the last."""
    names = [f"{month:%Y-%m}" for month in months]
    return ", ".join(names) if len(names) <= 3 else f"{names[0]} … {names[-1]}"


def _dates(statement: str, values: list[Any] | dict[str, Any]) -> list[date]:
    with connection.cursor() as cursor:
        cursor.execute(statement, values)
        return [month for (month,) in cursor.fetchall()]


@batches()
def settle(
    cursor: Any,
    *,
    cluster_id: int,
    partitions: Mapping[int, str],
    rounds: int,
    moment: datetime,
    marks: Sequence[int] | None,
) -> dict[str, tuple[str, str]]:
    """Take out of the stage what absent records say already, and load each of which it says anything else.

    `partitions` has the tables of records by the numbers of the months that are staged.

    Returns by source key the month, and why it could not be read, of what has to be refused, which is out of the stage.
    """
    refused: dict[str, tuple[str, str]] = {}
    absent = [month for month in list_all() if month_number(month) in partitions]
    for month in sorted(_month_files().hold(absent)) if absent else ():
        values = {"cluster": cluster_id, "month": month_number(month), "moment": moment, "name": ""}
        values["marks"] = None if marks is None else list(marks)
        temp_tables.prepare(cursor, "ABSENT")
        cursor.execute(of_partition(sql.LATE, partitions[month_number(month)]), values)
        try:
            with transaction.atomic():
                _opened().find(cursor, cluster_id, month)
                cursor.execute(sql.SETTLE, values)
                news = _news(cursor, rounds, values)
                if news:
                    # A request's statements have seconds, which those of a month may exceed.
                    cursor.execute("SET LOCAL statement_timeout = 0")
                    _month_files().load_records(month, news)
                cursor.execute(sql.LEAVE_OUT_KNOWN, values | {"news": news})
        except MonthFilesError as error:
            cursor.execute(sql.KEYS, values)
            keys = [key for (key,) in cursor.fetchall()]
            refused |= {key: (f"{month:%Y-%m}", str(error)) for key in keys}
            cursor.execute(sql.LEAVE_OUT, values | {"keys": keys})
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


def _news(cursor: Any, rounds: int, values: dict[str, Any]) -> list[str]:
    """The keys of records that were found, of which any staged fact of the month says something else."""
    if rounds > 1:
        cursor.execute(of_partition(merging.DROP_REPEATED_HISTORY, FOUND), values)
    keys: set[str] = set()
    for turn in range(1, rounds + 1):
        cursor.execute(merging.FORGET)
        cursor.execute(of_partition(merging.MATCH, FOUND), values | {"turn": turn})
        cursor.execute(sql.NEWS)
        keys.update(key for (key,) in cursor.fetchall())
    cursor.execute(merging.FORGET)
    return sorted(keys)
