"""What the records of one UTC month add to the proof: the only part of it that costs by the number of jobs.

A record is of the month that its number says, for ever. Its rated rows are of the same month here, wherever they lie.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import date
from fractions import Fraction
from typing import TypeAlias

from django.db.backends.utils import CursorWrapper

from billing.models import MonthProof
from billing.proof.sums import Sums, seconds_text
from clusters import usage
from portal.sql_files import Statements

sql = Statements(__file__, "records.sql")

SLICE = 50_000  # records looked at in one statement

RATED = "every job is rated for whom it was, in full"
ORPHANS = "every usage record has its account and cluster"
OWNERS = "every job has its tenant and project"

Key: TypeAlias = tuple[date, int, str, str]
"""Service month, number of the cluster, resource, part of the sum."""

Held: TypeAlias = dict[Key, Fraction]
"""Exact resource-seconds."""


@dataclass(slots=True)
class MonthRecords:
    """What was recomputed of the records of a month; its partial sums are in `prove_sum`."""

    month: date
    census: usage.Census
    held: Held = field(default_factory=lambda: defaultdict(Fraction))
    first_second: int | None = None
    last_second: int | None = None
    accounts: set[int] = field(default_factory=set)
    unknown: int = 0  # rated rows that belong to no record
    unclosed: list[str] = field(default_factory=list)  # where its own sums do not close
    broken: dict[str, list[str]] = field(default_factory=lambda: {RATED: [], ORPHANS: [], OWNERS: []})

    @property
    def holds(self) -> bool:
        return not self.unknown and not self.unclosed and not any(self.broken.values())

    def reach(self, first: int | None, last: int | None, accounts: list[int] | None) -> None:
        """Widen what its runs span, in epoch seconds, and add the numbers of their accounts."""
        firsts, lasts = (self.first_second, first), (self.last_second, last)
        self.first_second = min((second for second in firsts if second is not None), default=None)
        self.last_second = max((second for second in lasts if second is not None), default=None)
        self.accounts.update(accounts or ())


def recompute(
    cursor: CursorWrapper,
    month: date,
    within: tuple[int, int],
    *,
    before: MonthProof | None,
    progress: Callable[[int], None] | None = None,
    late: bool = False,
) -> MonthRecords:
    """Prove the records of a month, whose numbers are `within`, and add its partial sums to `prove_sum`.

    `late`: others of the month stand in files, and what is rated of those may be in tables.
    """
    after, last = within
    result = MonthRecords(month, usage.census(within, through=before.last_id if before else 0))
    accounts = usage.account_ids()
    slices = usage.slices(accounts, size=SLICE, within=within) if result.census.records else []
    for first, end in slices:
        count = usage.load_slice(first, end, accounts)
        for key, value in held(cursor).items():
            result.held[key] += value
        cursor.execute(sql.REACH)
        result.reach(*cursor.fetchone())
        values: dict[str, date | int] = {"month": month, "after": first, "last": end}
        cursor.execute(sql.RATED, values)
        result.broken[RATED] += _texts(cursor, sql.JOBS, values)
        if progress is not None:
            progress(count)
    values = {"month": month, "after": after, "last": last}
    if not late:
        cursor.execute(sql.UNKNOWN_RATED, values)
        result.unknown = int(cursor.fetchone()[0])
    if result.unknown:
        cursor.execute(sql.RATED_OF_NOBODY, values)
    result.unclosed += _unclosed(cursor, result)
    cursor.execute(sql.JOBS_OF_NOBODY, values)
    result.broken[OWNERS] += [text for (text,) in cursor.fetchall()]
    result.broken[ORPHANS] += usage.orphans(within)
    return result


def held(cursor: CursorWrapper) -> Held:
    """What the records of `usage_input` held, and whose it was, as parts of the sum."""
    sums: Held = defaultdict(Fraction)
    cursor.execute(sql.HELD)
    for service, cluster, resource, part, num, den in cursor.fetchall():
        sums[service, cluster, resource, part] += Fraction(int(num), den)
    return sums


def rated_sums(cursor: CursorWrapper, *, month: date | None = None) -> Held:
    """What `prove_sum` has of the records of a month, or of all, as parts of the sum."""
    sums: Held = defaultdict(Fraction)
    cursor.execute(sql.SUMS, {"month": month})
    for service, cluster, resource, part, num, den in cursor.fetchall():
        sums[service, cluster, resource, part] += Fraction(int(num), den)
    return sums


def sums_of(*parts: Held, service: date | None = None) -> dict[tuple[int, str], Sums]:
    """By cluster and resource the sums of a service month, or of all time."""
    sums: dict[tuple[int, str], Sums] = defaultdict(Sums)
    for held in parts:
        for (month, cluster, resource, part), value in held.items():
            if service is None or month == service:
                sums[cluster, resource].add(part, value)
    return sums


def _unclosed(cursor: CursorWrapper, result: MonthRecords) -> list[str]:
    sums = sums_of(result.held, rated_sums(cursor, month=result.month))
    names = usage.cluster_names()
    texts = [
        f"{names.get(cluster, cluster)}, {resource}: {seconds_text(row.difference)} s allocated are in no other sum"
        for (cluster, resource), row in sorted(sums.items())
        if row.difference
    ]
    return texts + ([unknown_text(result.unknown)] if result.unknown else [])


def unknown_text(rows: int) -> str:
    """What is said of rated rows without a record."""
    return f"{rows:,} rated rows belong to no job that is known"


def as_data(held: Held) -> list[list[str | int]]:
    """As it is kept with the proof of a month: without what is nothing."""
    return [
        [f"{service:%Y-%m-%d}", cluster, resource, part, seconds_text(value)]
        for (service, cluster, resource, part), value in sorted(held.items())
        if value
    ]


def of_proof(proof: MonthProof) -> Held:
    """What `as_data` wrote."""
    return {
        (date.fromisoformat(service), cluster, resource, part): Fraction(value)
        for service, cluster, resource, part, value in proof.held
    }


def _texts(cursor: CursorWrapper, statement: str, values: Mapping[str, date | int]) -> list[str]:
    cursor.execute(statement, values)
    return [str(row[0]) for row in cursor.fetchmany(10)]
