"""Writing usage: each fact once, a changed fact as a new revision, in set-based SQL.

Rows are copied into a staging table and merged from there, so that 10,000 rows cost a handful of
statements. All functions run inside the caller's transaction, which rates what was stored and
moves the watermark in the same commit.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from hashlib import sha256
from typing import Any

from django.db import connection

from clusters import absent_records, temp_tables
from clusters.connectors.base import BadRow, UsageFact
from clusters.models import Cluster, Pull
from clusters.partitions import of_partition
from clusters.utilisation import StoredHours
from portal.errors import storable
from portal.sql_files import Statements

sql = Statements(__file__, "ledger.sql")


@dataclass(frozen=True, slots=True)
class Stored:
    """What became of a batch; the records to rate stand in `usage_input` and `usage_touched`."""

    new: int = 0
    unchanged: int = 0
    revised: int = 0
    quarantined: int = 0
    utilisation: StoredHours = field(default_factory=StoredHours)  # hours of utilisation beside the rows
    refused: tuple[BadRow, ...] = ()  # of the quarantined, what stands in files that cannot be read

    def __add__(self, other: Stored) -> Stored:
        return Stored(
            self.new + other.new,
            self.unchanged + other.unchanged,
            self.revised + other.revised,
            self.quarantined + other.quarantined,
            self.utilisation + other.utilisation,
            (*self.refused, *other.refused),
        )

    @property
    def read(self) -> int:
        return self.new + self.unchanged + self.revised + self.quarantined


def lock(cluster: Cluster) -> None:
    """One writer per cluster at a time, until the transaction ends."""
    Cluster.objects.select_for_update(no_key=True).get(pk=cluster.pk)


def store(
    *,
    cluster: Cluster,
    facts: Sequence[UsageFact],
    bad: Sequence[BadRow],
    source: str,
    moment: datetime,
    marks: Sequence[int] | None = None,
) -> Stored:
    """Merge one batch. A fact known already changes nothing; a row that cannot be true is kept aside.

    An open fact never reopens a closed one, so snapshots may come in any order. Of several facts of one
    key each is a revision, unless the last of them is what is known: then all are. Facts must have passed
    `truth.refuse`. `marks` are seconds of the hour: with them a run that goes on is seen anew only past one.
    """
    with connection.cursor() as cursor:
        temp_tables.prepare(cursor, "LEDGER", "USAGE")
        rounds = _stage(cursor, facts, _accounts(cursor, cluster, {fact.account for fact in facts}))
        cursor.execute(sql.MONTHS, {"cluster": cluster.pk, "moment": moment})
        partitions: list[tuple[int, str]] = cursor.fetchall()
        refused = absent_records.settle(
            cursor,
            cluster_id=cluster.pk,
            partitions=dict(partitions),
            rounds=rounds,
            moment=moment,
            marks=marks,
        )
        refusals = absent_records.refusals(facts, refused)
        new = revised = 0
        if rounds > 1:
            _of_months(cursor, sql.DROP_REPEATED_HISTORY, partitions, {"cluster": cluster.pk})
        for turn in range(1, rounds + 1):
            added, changed = _merge(cursor, cluster, partitions, turn, moment, marks)
            new, revised = new + added, revised + changed
        _quarantine(cursor, cluster, [*bad, *refusals], source=source, moment=moment)
    return Stored(
        new,
        len(facts) - len(refusals) - new - revised,
        revised,
        len(bad) + len(refusals),
        refused=tuple(refusals),
    )


def finish(
    *, cluster: Cluster, pull: Pull, stored: Stored, steps: int, as_of: datetime | None, moment: datetime
) -> None:
    """Close the pull and move the watermark forward to `as_of`, in the transaction of its last rows."""
    record(pull=pull, stored=stored, steps=steps)
    Pull.objects.filter(pk=pull.pk).update(outcome=Pull.Outcome.DONE, ended_at=moment, as_of=as_of)
    if as_of is not None:
        with connection.cursor() as cursor:
            cursor.execute(sql.MOVE_WATERMARK, {"cluster": cluster.pk, "as_of": as_of})


def rename_users(names: Sequence[tuple[int, str]]) -> None:
    """Have these records, by id, name their users so; what is erased is no revision, and its revisions go with it."""
    values: dict[str, Any] = {"ids": [record for record, _ in names], "names": [name for _, name in names]}
    with connection.cursor() as cursor:
        cursor.execute(sql.RENAME, values)
        cursor.execute(sql.RENAME_REVISIONS, values)


def record(*, pull: Pull, stored: Stored, steps: int) -> None:
    """Write the pull's counts so far."""
    Pull.objects.filter(pk=pull.pk).update(
        read=stored.read,
        new=stored.new,
        unchanged=stored.unchanged,
        revised=stored.revised,
        quarantined=stored.quarantined,
        steps=steps,
        busy_read=stored.utilisation.read,
        busy_changed=stored.utilisation.changed,
    )


def _accounts(cursor: Any, cluster: Cluster, names: set[str]) -> dict[str, int]:
    """The ids of the accounts with these names, made where they are missing; none goes before the transaction ends."""
    values: dict[str, Any] = {"cluster": cluster.pk, "names": list(names)}
    cursor.execute(sql.HOLD_ACCOUNTS, values)
    ids: dict[str, int] = dict(cursor.fetchall())
    if ids.keys() != names:
        cursor.execute(sql.ADD_ACCOUNTS, values)
        cursor.execute(sql.HOLD_ACCOUNTS, values)
        ids = dict(cursor.fetchall())
    return ids


def _stage(cursor: Any, facts: Sequence[UsageFact], accounts: Mapping[str, int]) -> int:
    """Copy the facts, of equal ones in a row the first; returns the most that one key stands for then."""
    seen: dict[str, tuple[int, UsageFact]] = {}
    most = 0
    lines: list[str] = []
    for fact in facts:
        turn, before = seen.get(fact.source_key, _NEVER)
        if turn and fact == before:
            continue
        turn += 1
        if turn > most:
            most = turn
        seen[fact.source_key] = turn, fact
        lines.append(_line(turn, accounts[fact.account], fact))
    with cursor.copy(sql.COPY_STAGE) as copy:
        copy.write("".join(lines).encode())
    cursor.execute(sql.ANALYZE_STAGE)
    return most


_NEVER: tuple[int, UsageFact | None] = (0, None)
_ESCAPES = str.maketrans({"\\": "\\\\", "\t": "\\t", "\n": "\\n", "\r": "\\r"})
_NULL = "\\N"


def _line(turn: int, account: int, fact: UsageFact) -> str:
    """A line of COPY's text format, in the order of `COPY_STAGE`."""
    fields = (
        fact.source_key, fact.job_id, fact.name, fact.user, fact.queue, fact.qos, fact.priority_class,
        fact.gpu_model, fact.mig_profile, fact.node_list, fact.requested, fact.state, fact.exit_code,
    )  # fmt: skip
    texts = "\t".join(fields)
    if "\\" in texts or "\n" in texts or "\r" in texts or texts.count("\t") >= len(fields):
        texts = "\t".join(text.translate(_ESCAPES) for text in fields)
    num, den = fact.gpu_share
    limit, submitted, eligible = fact.time_limit, fact.submitted, fact.eligible
    started, ended = fact.started, fact.ended
    seen = None if ended is not None else fact.seen_until
    return (
        f"{account}\t{texts}\t{turn}\t{fact.gpus}\t{num}\t{den}\t{fact.cpu_milli}\t{fact.memory_mib}\t{fact.nodes}"
        f"\t{_NULL if limit is None else limit}\t{_NULL if submitted is None else submitted}"
        f"\t{_NULL if eligible is None else eligible}\t{_NULL if started is None else started}"
        f"\t{_NULL if ended is None else ended}\t{_NULL if seen is None else seen}\t{fact.suspended}"
        f"\t{fact.gpu_memory_mib}\t{fact.billing}\t{fact.meter}\t{_NULL if fact.quantity is None else fact.quantity}\n"
    )


def _merge(
    cursor: Any,
    cluster: Cluster,
    partitions: Sequence[tuple[int, str]],
    turn: int,
    moment: datetime,
    marks: Sequence[int] | None,
) -> tuple[int, int]:
    values = {
        "cluster": cluster.pk,
        "name": cluster.name,
        "turn": turn,
        "moment": moment,
        "marks": None if marks is None else list(marks),
    }
    cursor.execute(sql.FORGET)
    _of_months(cursor, sql.MATCH, partitions, values)
    cursor.execute(sql.VERDICTS)
    verdicts = dict(cursor.fetchall())
    new, revised = verdicts.get("new", 0), verdicts.get("revised", 0)
    if verdicts.keys() - {"same", "stale"}:
        cursor.execute(sql.ANALYZE_MATCH)
    if new:
        cursor.execute(sql.INSERT_NEW, values)
    if revised:
        cursor.execute(sql.ENSURE_MONTH, values)
        cursor.execute(sql.KEEP_OLD, values)
    if verdicts.keys() & {"revised", "described", "seen"}:
        cursor.execute(sql.REWRITE, values)
    if new or revised:
        cursor.execute(sql.RESOLVE_QUARANTINE, values)
    return new, revised


def _of_months(
    cursor: Any, statement: str, partitions: Sequence[tuple[int, str]], values: dict[str, Any]
) -> None:
    """Send the statement for each month, with its partition of the records in the whole table's place."""
    for month, partition in partitions:
        cursor.execute(of_partition(statement, partition), values | {"month": month})


def _quarantine(
    cursor: Any, cluster: Cluster, bad: Sequence[BadRow], *, source: str, moment: datetime
) -> None:
    rows = {
        sha256(row.raw.encode("utf-8", "backslashreplace")).hexdigest(): row for row in bad
    }  # a row twice in one statement cannot be upserted
    cursor.execute(
        sql.QUARANTINE,
        {
            "cluster": cluster.pk,
            "source": source,
            "moment": moment,
            "digests": list(rows),
            "codes": [row.code for row in rows.values()],
            "values": [json.dumps(storable(row.values)) for row in rows.values()],
            "raws": [row.raw.replace("\x00", "\\x00") for row in rows.values()],
            "keys": [row.source_key for row in rows.values()],
            "lines": [row.line for row in rows.values()],
        },
    )
