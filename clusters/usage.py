"""The reading door: everything above reads usage through here, and nothing else reads the tables.

Set-based readers get usage as the session-local table `usage_input`, one row per record that may
have held something: plain columns, `finish` being the end or, while it runs, the second up to
which a pull proved it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from fractions import Fraction
from itertools import groupby, pairwise
from typing import IO, Any

from django.db import connection
from django.db.models import Count, Q
from msgspec import structs

from clusters import temp_tables
from clusters.connectors.base import UsageFact
from clusters.models import Account, Cluster, UsageRecord
from portal.sql_files import Statements

sql = Statements(__file__, "usage.sql")

SLICE = 10_000  # records rated in one transaction
ALL_IDS = (0, 2**63 - 1)


def load_touched() -> int:
    """Complete `usage_input` by the records that the ledger changed in this transaction; returns how many it holds.

    Those that it added stand there already.
    """
    with connection.cursor() as cursor:
        cursor.execute("SELECT EXISTS (TABLE usage_touched)")
        if cursor.fetchone()[0]:
            cursor.execute(sql.LOAD_TOUCHED)
        return _loaded(cursor)


def load_utilised() -> int:
    """Fill `usage_input` with the records whose hours `utilisation` changed in this transaction; returns how many."""
    with connection.cursor() as cursor:
        temp_tables.prepare(cursor, "USAGE")
        cursor.execute(sql.LOAD_UTILISED)
        return _loaded(cursor)


def load_all(account_ids: Sequence[int], *, most: int = SLICE) -> int | None:
    """Fill `usage_input` with all records of the accounts and return how many; None, and it is empty, where more.

    A correction of one tenant reads its records once, instead of once more to count them out into slices.
    """
    with connection.cursor() as cursor:
        temp_tables.prepare(cursor, "USAGE")
        cursor.execute(sql.LOAD_FEW, {"accounts": list(account_ids), "most": most + 1})
        if cursor.rowcount > most:
            temp_tables.empty(cursor, "USAGE")
            return None
        return _loaded(cursor)


def slices(
    account_ids: Sequence[int], *, size: int = SLICE, within: tuple[int, int] = ALL_IDS
) -> list[tuple[int, int]]:
    """Id ranges (after, last] with `size` records of the accounts each, in order, that make up the one `within`."""
    after, last = within
    with connection.cursor() as cursor:
        cursor.execute(
            sql.BORDERS, {"accounts": list(account_ids), "size": size, "after": after, "last": last}
        )
        borders = [int(border) for (border,) in cursor.fetchall()]
    return list(pairwise([after, *borders, last]))


def find_border(account_ids: Sequence[int], *, after: int, size: int = SLICE) -> int | None:
    """The id of the last of the accounts' next `size` records behind an id; None where these are all. One query."""
    with connection.cursor() as cursor:
        cursor.execute(sql.BORDER, {"accounts": list(account_ids), "after": after, "before_last": size - 1})
        rows = cursor.fetchall()
    return int(rows[0][0]) if len(rows) > 1 else None


def load_slice(after: int, last: int, account_ids: Sequence[int]) -> int:
    """Fill `usage_input` with the accounts' records whose ids lie in (after, last]; returns how many."""
    with connection.cursor() as cursor:
        temp_tables.prepare(cursor, "USAGE")
        cursor.execute(sql.LOAD_SLICE, {"after": after, "last": last, "accounts": list(account_ids)})
        return _loaded(cursor)


def load_records(record_ids: Sequence[int]) -> int:
    """Fill `usage_input` with these records; returns how many."""
    with connection.cursor() as cursor:
        temp_tables.prepare(cursor, "USAGE")
        cursor.execute(sql.LOAD_RECORDS, {"records": list(record_ids)})
        return _loaded(cursor)


def load_window(after: int, last: int, account_ids: Sequence[int], *, since: int, until: int) -> int:
    """As `load_slice`, of records only that held something during [since, until), in epoch seconds.

    Those in `usage_filed` are among them.
    """
    values: dict[str, Any] = {
        "after": after,
        "last": last,
        "accounts": list(account_ids),
        "since": since,
        "until": until,
    }
    with connection.cursor() as cursor:
        temp_tables.prepare(cursor, "USAGE")
        cursor.execute(sql.LOAD_WINDOW, values)
        return _loaded(cursor)


def load_supposed(account_id: int, run: UsageFact) -> None:
    """Have `usage_input` hold one run that never was, as the last record there can be; nothing without the account."""
    with connection.cursor() as cursor:
        temp_tables.prepare(cursor, "USAGE")
        cursor.execute(sql.SUPPOSE, supposed_values(account_id, run))


def supposed_values(account_id: int, run: UsageFact) -> dict[str, Any]:
    """The placeholders of SUPPOSE."""
    num, den = run.gpu_share
    return structs.asdict(run) | {"account": account_id, "share_num": num, "share_den": den}


def slices_of_window(
    account_ids: Sequence[int], *, since: int, until: int, size: int = SLICE
) -> list[tuple[int, int]]:
    """As `slices`, of the records that `load_window` loads."""
    values: dict[str, Any] = {"accounts": list(account_ids), "size": size, "since": since, "until": until}
    with connection.cursor() as cursor:
        cursor.execute(sql.BORDERS_OF_WINDOW, values)
        borders = [int(last) for (last,) in cursor.fetchall()]
    return list(pairwise([0, *borders, 2**63 - 1]))


def count_window(account_ids: Sequence[int], *, since: int, until: int) -> int:
    """How many records `load_window` loads from the tables."""
    with connection.cursor() as cursor:
        cursor.execute(sql.COUNT_WINDOW, {"accounts": list(account_ids), "since": since, "until": until})
        return int(cursor.fetchone()[0])


def empty_filed() -> None:
    """Have `usage_filed` be there and hold nothing. One query or two."""
    with connection.cursor() as cursor:
        temp_tables.prepare(cursor, "USAGE", "FILED")


def load_filed(rows: IO[bytes]) -> None:
    """Have `usage_filed` hold these records, too, as `absent_records.write_usage` writes them."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT")  # enters the scope of acting for a tenant: COPY itself does not
        with cursor.copy("COPY usage_filed FROM STDIN") as copy:
            while piece := rows.read(1 << 20):
                copy.write(piece)
        cursor.execute("ANALYZE usage_filed (record_id)")


def _loaded(cursor: Any) -> int:
    cursor.execute("SELECT count(*) FROM usage_input")
    (count,) = cursor.fetchone()
    if count:
        cursor.execute(sql.ANALYZE_INPUT)
    return int(count)


def account_ids() -> list[int]:
    """All accounts that any scheduler ever named."""
    return list(Account.objects.order_by("pk").values_list("pk", flat=True))


def months(*, proved: Collection[date]) -> dict[date, tuple[int, int]]:
    """The id range (after, last] of each UTC month that has records, or had them when it was `proved`.

    A detached month is not among them.
    """
    with connection.cursor() as cursor:
        cursor.execute(sql.MONTHS, {"proved": list(proved)})
        return {month: (after, last) for month, after, last in cursor.fetchall()}


def ids_of(months: Collection[date]) -> dict[date, tuple[int, int]]:
    """The id range (after, last] that records of each of these UTC months have, attached or not."""
    with connection.cursor() as cursor:
        cursor.execute(sql.IDS, {"months": list(months)})
        return {month: (after, last) for month, after, last in cursor.fetchall()}


def cluster_names() -> dict[int, str]:
    """By number the name of each cluster."""
    return dict(Cluster.objects.values_list("pk", "name"))


@dataclass(frozen=True, slots=True)
class Census:
    """What a range of records holds: how many `through` a number and in all, the newest id, the newest write."""

    through: int
    records: int
    last_id: int | None
    last_seen: datetime | None


def census(within: tuple[int, int], *, through: int) -> Census:
    """Count the records of an id range (after, last], and of those the ones with ids up to `through`."""
    after, last = within
    with connection.cursor() as cursor:
        cursor.execute(sql.CENSUS, {"after": after, "last": last, "through": through})
        return Census(*cursor.fetchone())


def orphans(within: tuple[int, int]) -> list[str]:
    """Up to ten records of an id range without their account or its cluster: no foreign key watches over them."""
    after, last = within
    with connection.cursor() as cursor:
        cursor.execute(sql.ORPHANS, {"most": 10, "after": after, "last": last})
        return [text for (text,) in cursor.fetchall()]


def job_names(record_ids: Iterable[int]) -> dict[int, tuple[str, str]]:
    """By record its job id, as people write it, and cluster/account. One query."""
    rows = UsageRecord.objects.filter(pk__in=list(record_ids)).values_list(
        "pk", "job_id", "source_key", "cluster__name", "account__name"
    )
    return {pk: (job or key, f"{cluster}/{account}") for pk, job, key, cluster, account in rows}


def quarantined_rows() -> dict[str, int]:
    """Rows kept aside and not settled, per cluster name; clusters without any included."""
    open_rows = Count("quarantine", filter=Q(quarantine__resolved_at__isnull=True))
    return {c.name: c.rows for c in Cluster.objects.annotate(rows=open_rows).order_by("name")}


def stored_sums(cluster: Cluster, *, prefix: str, begin: int, end: int) -> list[UsageFact]:
    """The cluster's sums above 0 that began in [begin, end) and whose key has the prefix, in the order of their keys.

    One query.
    """
    records = UsageRecord.objects.filter(
        cluster=cluster, source_key__startswith=prefix, started__gte=begin, started__lt=end, quantity__gt=0
    ).select_related("account")
    return [
        UsageFact(
            one.source_key,
            one.account.name,
            one.user,
            one.job_id,
            gpu_model=one.gpu_model,
            gpu_share=(one.share_num, one.share_den),
            started=one.started,
            ended=one.ended,
            meter=one.meter,
            quantity=one.quantity,
        )
        for one in records.order_by("source_key")
    ]


def zones(account_ids: Iterable[int]) -> dict[int, str]:
    """By account the time zone of its cluster. One query."""
    accounts = Account.objects.filter(pk__in=list(account_ids))
    return dict(accounts.values_list("pk", "cluster__timezone"))


def watermarks(account_ids: Iterable[int]) -> dict[int, tuple[str, datetime | None]]:
    """By account its cluster's name and the moment up to which that has been read; None: never."""
    rows = Account.objects.filter(pk__in=list(account_ids)).values_list(
        "pk", "cluster__name", "cluster__complete_through"
    )
    return {pk: (name, through) for pk, name, through in rows}


@dataclass(frozen=True, slots=True)
class Mark:
    """How far a cluster has been read; `complete_through` is None where it never was."""

    cluster: str
    complete_through: datetime | None


def marks(accounts: Iterable[int]) -> list[Mark]:
    """The clusters of these accounts, by name; the accounts may be a query of their ids. One query."""
    clusters = Cluster.objects.filter(accounts__in=accounts).order_by("name").distinct()
    return [Mark(*row) for row in clusters.values_list("name", "complete_through")]


@dataclass(frozen=True, slots=True)
class Unclaimed:
    """What an account held outside the claims on it, in exact resource-seconds."""

    cluster: str
    account: str
    account_id: int
    jobs: int
    gpu_seconds: Fraction
    cpu_seconds: Fraction
    first: datetime  # start of the first such job or sum
    last: datetime  # end of the last one
    quantities: Mapping[str, Fraction]  # by declared meter, in its unit


def unclaimed(claims: Sequence[tuple[int, int | None, int | None]], *, begun: int = 0) -> list[Unclaimed]:
    """What accounts held outside all claims (account id, since, until as epoch seconds, None: open).

    Claims on one account do not overlap. A second is unclaimed exactly if it is in no claim, also
    within one job. Of jobs that started at `begun` or later: an index finds those. One query.
    """
    whole = [
        account for account, since, until in claims if (since is None or since <= begun) and until is None
    ]
    parts = [claim for claim in claims if claim[0] not in set(whole)]
    with connection.cursor() as cursor:
        cursor.execute(
            sql.UNCLAIMED,
            {
                "whole": whole,
                "begun": begun,
                "accounts": [account for account, _, _ in parts],
                "since": [0 if since is None else since for _, since, _ in parts],
                "until": [2**62 if until is None else until for _, _, until in parts],
            },
        )
        rows = cursor.fetchall()
    return [_sum(list(parts)) for _, parts in groupby(rows, key=lambda row: row[2])]


def _sum(rows: list[tuple[Any, ...]]) -> Unclaimed:
    """One account's rows, one for each denominator of a share and meter, as one."""
    quantities: dict[str, Fraction] = {}
    for row in rows:
        if row[9]:
            quantities[row[9]] = quantities.get(row[9], Fraction(0)) + Fraction(int(row[10]), row[4])
    cluster, account, account_id = rows[0][:3]
    return Unclaimed(
        cluster,
        account,
        account_id,
        sum(row[3] for row in rows),
        sum((Fraction(int(row[5]), row[4]) for row in rows), Fraction(0)),
        sum((Fraction(int(row[6]), 1000) for row in rows), Fraction(0)),
        datetime.fromtimestamp(min(row[7] for row in rows), UTC),
        datetime.fromtimestamp(max(row[8] for row in rows), UTC),
        quantities,
    )
