"""The proofs of months: which stand, what has to be recomputed, and one a night in turn.

A proof of a month stands until something is written that it was computed from. Rows say so by marks, which triggers set
in the transaction that writes; owners, plans and the tables that are attached by a digest, which is compared each time;
documents and wallets by the rated rows that they cover. What none of these tells, a change behind the program's back,
the night finds.
"""

from __future__ import annotations

import hashlib
import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from fractions import Fraction

from django.db import connection
from django.db.backends.utils import CursorWrapper

from billing.models import MonthProof
from billing.proof import late, records
from billing.proof.names import named
from billing.proof.records import MonthRecords
from billing.proof.sums import seconds_text
from billing.rating import reratings
from clusters import temp_tables, usage
from portal.core.locks import Work, in_turn
from portal.core.one_sight import one_sight
from portal.sql_files import Statements

sql = Statements(__file__, "months.sql")
SUMMARIES = Statements(__file__, "kept.sql").by_name

NEVER = datetime.min.replace(tzinfo=UTC)

SYNC = timedelta(days=1)
"""Longer than a sync takes: what it writes says when it began."""

CODE = hashlib.sha256("\n".join([*records.sql.by_name.values(), *SUMMARIES.values()]).encode()).hexdigest()[
    :12
]
"""What other statements proved does not stand."""


@dataclass(frozen=True, slots=True)
class Months:
    """All months that have records, proofs or marks, by their numbers of records; the `due` ones do not stand."""

    ids: Mapping[date, tuple[int, int]]
    proofs: Mapping[date, MonthProof]
    due: Sequence[date]
    attached: frozenset[date] = frozenset()
    dropped: Sequence[date] = ()  # whose rows stand in files alone: their proofs stand as the files do
    other_terms: Sequence[
        date
    ] = ()  # of those, where owners, plans or what is billed are others than as they were proved

    @property
    def valid(self) -> list[date]:
        """Those whose proof is as good as a new one."""
        return sorted(set(self.proofs) - set(self.due))


def alone(moment: datetime | None) -> AbstractContextManager[None]:
    """Proofs that are kept are made one after the other: each keeps what its own snapshot showed."""
    return in_turn(Work.PROVING) if moment is not None else nullcontext()


def survey(cursor: CursorWrapper, *, full: bool) -> Months:
    """Fill the working tables of a proof, and find out which months have to be recomputed: all where `full`."""
    temp_tables.prepare(cursor, "PROVE")
    for statement in (records.sql.CHARGED_TIME, records.sql.COVERED, sql.MARKS):
        cursor.execute(statement)
    proofs = {proof.month: proof for proof in MonthProof.objects.order_by("month")}
    attached = set(usage.months(proved=proofs))
    marked = _months(cursor, "SELECT DISTINCT month FROM prove_mark")
    every = attached | set(proofs) | marked
    if full:
        every |= _months(cursor, sql.RATED_MONTHS)
    dropped = _months(cursor, "SELECT billing_dropped_months()") & set(proofs)
    due = (every if full else every - _valid(cursor, proofs, attached, marked)) - dropped
    other_terms = _other_terms(cursor, [proofs[month] for month in sorted(dropped)])
    return Months(usage.ids_of(every), proofs, sorted(due), frozenset(attached), sorted(dropped), other_terms)


def _other_terms(cursor: CursorWrapper, dropped: Sequence[MonthProof]) -> list[date]:
    if not dropped:
        return []
    half_covered = _months(cursor, sql.HALF_COVERED)
    now = _terms(cursor, dropped)
    return [
        proof.month
        for proof in dropped
        if proof.month in half_covered
        or _owners_and_plans(proof.terms) != _owners_and_plans(now[proof.month])
    ]


def _owners_and_plans(terms: str) -> list[str]:
    """Of the terms of a dropped month what still counts.

    What statements proved it is no matter, as others could not be asked again. Nor is which tables were attached: they
    are empty, and each restore makes them anew.
    """
    return terms.split(" ")[1:3]


def _valid(
    cursor: CursorWrapper, proofs: Mapping[date, MonthProof], attached: set[date], marked: set[date]
) -> set[date]:
    terms = _terms(cursor, proofs.values())
    half_covered = _months(cursor, sql.HALF_COVERED)
    return {
        month
        for month, proof in proofs.items()
        if proof.terms == terms[month] and (month in attached or not proof.records)
    } - (marked | half_covered)


def _terms(cursor: CursorWrapper, months: Iterable[MonthProof | MonthRecords]) -> dict[date, str]:
    """By month the digest of what it is computed with beside its rows."""
    spans = [
        {
            "month": f"{month.month:%Y-%m-%d}",
            "first": month.first_second,
            "last": month.last_second,
            "accounts": sorted(month.accounts),
        }
        for month in months
    ]
    cursor.execute(sql.TERMS, {"months": json.dumps(spans)})
    return {month: f"{CODE} {digest}" for month, digest in cursor.fetchall()}


def recompute(
    cursor: CursorWrapper, months: Months, progress: Callable[[int], None] | None = None
) -> dict[date, MonthRecords]:
    """Prove the records of the months that are due; `prove_sum` then has the partial sums of all that are known."""
    if valid := months.valid:
        cursor.execute(sql.LOAD, {"months": valid})
    results = {
        month: records.recompute(
            cursor, month, months.ids[month], before=months.proofs.get(month), progress=progress
        )
        for month in months.due
    }
    cursor.execute("ANALYZE prove_sum")
    return results


def check_summaries(
    cursor: CursorWrapper, months: Sequence[date], *, whole: bool = False
) -> dict[str, list[str]]:
    """By name what does not hold of the days, jobs and periods that are kept: of these UTC months, or the `whole`."""
    cursor.execute("TRUNCATE prove_period")
    dropped = _months(cursor, "SELECT billing_dropped_months()")
    if whole and dropped:  # then by periods: some of those cannot be compared with rows
        whole, months = False, sorted(_months(cursor, sql.KEPT_MONTHS) | set(months))
    if not whole:
        cursor.execute(sql.PERIODS, {"months": list(months)})
    if dropped:
        cursor.execute(sql.PERIODS_IN_FILES)
    services = sorted(_months(cursor, sql.SERVICES))
    values: dict[str, bool | list[date]] = {"whole": whole, "months": list(months), "services": services}
    broken = {}
    for name, statement in SUMMARIES.items():
        cursor.execute(statement, values)
        broken[name] = [str(text) for (text,) in cursor.fetchmany(10)]
    return broken


def keep(
    cursor: CursorWrapper,
    months: Months,
    results: Mapping[date, MonthRecords],
    broken: Mapping[str, list[str]],
    *,
    moment: datetime,
) -> None:
    """Keep the proofs of these months as of now. Where something is broken beside the records, each says what of it.

    A month of which nothing is broken stands, whatever another one of the same run is.
    """
    if not results and not months.dropped:
        return
    terms = _terms(cursor, results.values())
    for month, result in results.items():
        findings = check_summaries(cursor, [month]) if any(broken.values()) else {}
        texts = [text for texts in (*result.broken.values(), *findings.values()) for text in texts]
        texts += result.unclosed
        before = months.proofs.get(month)
        lost = _lost(before, result) if before else []
        gone = before is not None and result.census.through < before.records
        stands = result.holds and not any(findings.values()) and not gone
        values = {
            "computed_at": moment,
            "broken": named(texts[:10]) + lost,
            "terms": terms[month] if stands else "",
        }
        if not gone:  # else the next proof compares with the same, until the rows are as they were
            values |= {
                "records": result.census.records,
                "last_id": result.census.last_id or 0,
                "first_second": result.first_second,
                "last_second": result.last_second,
                "accounts": sorted(result.accounts),
                "held": records.as_data(result.held),
            }
        MonthProof.objects.update_or_create(month=month, defaults=values)
    cursor.execute(sql.KEEP, {"months": list(results)})
    # Of a dropped month nothing waits for it: its late records are proved each time.
    cursor.execute(sql.FORGET_MARKS, {"months": [*results, *months.dropped]})


def prove_due(*, moment: datetime) -> None:
    """Recompute the months to which something was written since they were proved, and keep their proofs.

    Invoices, wallets and what else `prove` compares over all time takes longer than to seal a month, which begins here.
    """
    with alone(moment), one_sight() as cursor:
        every = survey(cursor, full=False)
        results = recompute(cursor, every)
        findings = check_summaries(cursor, every.due) if every.due else {}
        keep(cursor, every, results, findings, moment=moment)


def prove_next(*, moment: datetime) -> MonthProof | None:
    """Prove the past month whose turn was the longest ago; None where one had its turn since midnight UTC, or there is
    none. Of a dropped month the late records have turns: others are in its files alone.

    What `prove` recomputes meanwhile, as the present month each day, takes no turn. While usage waits to be rated again
    no sum need close. Killed, it has stored nothing, and the next call does it.
    """
    with alone(moment):
        if reratings.count_changes():
            return None
        proofs = {proof.month: proof for proof in MonthProof.objects.defer("held", "accounts")}
        if any(proof.night == moment.date() for proof in proofs.values()):
            return None
        with connection.cursor() as cursor:
            in_files = _months(cursor, "SELECT billing_dropped_months()").difference(late.list_noted(cursor))
        past = [
            month
            for month in usage.months(proved=proofs)
            if (month.year, month.month) < (moment.year, moment.month) and month not in in_files
        ]
        if not past:
            return None
        month = min(past, key=lambda month: (_turn(proofs.get(month)), month))
        return _prove(month, moment=moment, night=moment.date())


def _turn(proof: MonthProof | None) -> datetime:
    """When the month was proved last: the late records of a dropped one in which night."""
    if proof is None:
        return NEVER
    night = datetime.combine(proof.night, time.min, UTC) if proof.night else NEVER
    return max(proof.computed_at, night)


def prove_month(month: date, *, moment: datetime) -> MonthProof:
    """Recompute the whole runs of the month's records and what is kept of it, and compare with its last proof.

    Of a month whose rows were dropped this is its last proof, with what is wrong with its late records: `prove`
    compares its files with what was sealed.
    """
    with alone(moment):
        return _prove(month, moment=moment)


def _prove(month: date, *, moment: datetime, night: date | None = None) -> MonthProof:
    with one_sight() as cursor:
        every = survey(cursor, full=False)
        if month in every.dropped:
            lost = late.list_lost(cursor, every.attached & {month})
            late.keep([every.proofs[month]], late.recompute(cursor, [month]), lost)
        else:
            one = Months(usage.ids_of([month]), every.proofs, [month])
            result = records.recompute(cursor, month, one.ids[month], before=every.proofs.get(month))
            keep(cursor, one, {month: result}, check_summaries(cursor, [month]), moment=moment)
        if night is not None:
            MonthProof.objects.filter(month=month).update(night=night)
    return MonthProof.objects.get(month=month)


def as_data(recomputed: Iterable[date]) -> list[dict[str, object]]:
    """Each month's last proof, for programs: the newest month first. Some were `recomputed` just now."""
    now = set(recomputed)
    return [
        {
            "month": f"{proof.month:%Y-%m}",
            "computed_at": proof.computed_at.isoformat(),
            "recomputed": proof.month in now,
            "records": proof.records,
            "holds": not proof.broken,
            "broken": proof.broken,
        }
        for proof in MonthProof.objects.order_by("-month")
    ]


def list_lost(months: Months, results: Mapping[date, MonthRecords]) -> list[str]:
    """Of months that were recomputed, records that are gone or others than they were proved to be, behind our back.

    A month that was detached is away as a whole, and said to be by its rated rows.
    """
    return [
        f"{month:%Y-%m}: {text}"
        for month, result in results.items()
        if month in months.attached and month in months.proofs
        for text in _lost(months.proofs[month], result)
    ]


def _lost(before: MonthProof, result: MonthRecords) -> list[str]:
    """What no sync can have done since the last proof: records are never deleted, and a change says when it was."""
    census = result.census
    if census.through < before.records:
        return [f"{before.records - census.through:,} of {before.records:,} usage records are gone"]
    unchanged = census.last_id == before.last_id and (census.last_seen or NEVER) < before.computed_at - SYNC
    if not unchanged:
        return []
    was, now = _allocated(records.of_proof(before)), _allocated(result.held)
    names = usage.cluster_names()
    return [
        f"{names.get(cluster, cluster)} {resource}: {seconds_text(was[cluster, resource])} s were allocated, "
        f"now {seconds_text(now[cluster, resource])} s, and no sync wrote that"
        for cluster, resource in sorted({*was, *now})
        if was[cluster, resource] != now[cluster, resource]
    ]


def _allocated(held: records.Held) -> dict[tuple[int, str], Fraction]:
    """What was allocated, by cluster and resource."""
    sums: dict[tuple[int, str], Fraction] = defaultdict(Fraction)
    for (_, cluster, resource, part), value in held.items():
        if part == "allocated":
            sums[cluster, resource] += value
    return sums


def _months(cursor: CursorWrapper, statement: str) -> set[date]:
    cursor.execute(statement)
    return {month for (month,) in cursor.fetchall()}
