"""What a source says now beside what the ledger has: the same of each run, as of the second that both have seen."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction

from clusters import absent_records
from clusters.connectors.base import UsageFact
from clusters.models import Cluster, UsageRecord


@dataclass(frozen=True, slots=True)
class RecordedUsage:
    """What a run held. `finish` is its end or, of one that `runs`, the second up to which it was seen."""

    job: str  # "job 4711 of vision"
    started: int | None
    finish: int | None
    runs: bool
    suspended: int
    gpus: Fraction
    quantity: int | None = None  # of a sum: how much of its meter's smallest parts

    @property
    def seconds(self) -> int:
        if self.started is None or self.finish is None:
            return 0
        return self.finish - self.started - self.suspended

    @property
    def amounts(self) -> tuple[int, Fraction, int | None]:
        return self.seconds, self.seconds * self.gpus, self.quantity


@dataclass(frozen=True, slots=True)
class Difference:
    """A run that the source and the ledger tell differently. `kept` is None where the ledger has no such run."""

    read: RecordedUsage
    recorded: RecordedUsage | None


def newest(facts: Iterable[UsageFact]) -> dict[str, RecordedUsage]:
    """By source key what its last closed row says, or its last row."""
    by_key: dict[str, RecordedUsage] = {}
    for fact in facts:
        before = by_key.get(fact.source_key)
        if before is None or before.runs or fact.ended is not None:
            by_key[fact.source_key] = _of_fact(fact)
    return by_key


def differences(cluster: Cluster, read: dict[str, RecordedUsage]) -> list[Difference]:
    """In the order of the source. Two queries. Raises RowsInFilesError where records of it are in no table."""
    absent_records.refuse_keys(cluster.pk, read)
    recorded = _recorded(cluster, list(read))
    return [
        Difference(usage, recorded.get(key))
        for key, usage in read.items()
        if not _agree(usage, recorded.get(key))
    ]


def _agree(read: RecordedUsage, recorded: RecordedUsage | None) -> bool:
    """Of a run that goes on in either, only what lies before the second that both have seen can be compared.

    The ledger follows a running job by the hour, and a file stands still: neither is wrong for having seen more.
    """
    if recorded is None:
        return False
    if read.started is None and read.runs:
        return True  # it waited, which says nothing of what came then
    if not read.runs and not recorded.runs:
        return read.amounts == recorded.amounts
    if (read.started, read.gpus) != (recorded.started, recorded.gpus):
        return False
    if not read.runs:
        return False  # the ledger does not know that it has ended
    return recorded.runs or (recorded.finish or 0) >= (read.finish or 0)


def _recorded(cluster: Cluster, keys: Sequence[str]) -> dict[str, RecordedUsage]:
    rows = UsageRecord.objects.filter(cluster=cluster, source_key__in=keys).select_related("account")
    return {
        row.source_key: RecordedUsage(
            _job(row.job_id or row.source_key, row.account.name, row.meter),
            row.started,
            row.ended if row.ended is not None else row.seen_until,
            row.ended is None,
            row.suspended,
            Fraction(row.gpus * row.share_num, row.share_den),
            row.quantity,
        )
        for row in rows
    }


def _of_fact(fact: UsageFact) -> RecordedUsage:
    return RecordedUsage(
        _job(fact.job_id or fact.source_key, fact.account, fact.meter),
        fact.started,
        fact.ended if fact.ended is not None else fact.seen_until,
        fact.ended is None,
        fact.suspended,
        Fraction(fact.gpus * fact.gpu_share[0], fact.gpu_share[1]),
        fact.quantity,
    )


def _job(job: str, account: str, meter: str) -> str:
    return f"{f'{meter} of ' if meter else ''}job {job} of {account or '(no account)'}"
