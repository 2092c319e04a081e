"""Which runs stood on quota that their Kueue queue had borrowed: the latest to begin, an estimate.

No series tells it. Kueue's gauges tell how many GPUs a queue held above its nominal quota, and the ledger which pods
held them; of those the ones that began last are taken first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise

from django.db.models import F, Q
from django.db.models.functions import Coalesce

from clusters.connectors.prometheus import Preset
from clusters.connectors.prometheus.client import TIMEOUT, PrometheusClient
from clusters.connectors.prometheus.option_parsing import options_from
from clusters.connectors.prometheus.quotas import QuotaExcess, above_quota
from clusters.messages import SENTENCES
from clusters.models import Cluster, ClusterKind, Connection, UsageRecord
from clusters.sources import endpoint, prometheus_login
from portal.errors import CodedError

RESOURCE = "/nvidia_com_gpu"  # how the keys of runs end whose devices the gauges count


class BorrowingError(CodedError):
    """It cannot be told; the message says what to do."""

    sentences = SENTENCES


@dataclass(frozen=True, slots=True)
class QueueRun:
    """Devices of one run of a queue in [started, finish), epoch seconds; `share` is what one is of a whole GPU."""

    record: int
    queue: str
    started: int
    finish: int
    gpus: int
    share: Fraction


@dataclass(frozen=True, slots=True)
class Borrowed:
    """So many devices of a run stood on borrowed quota in [since, until)."""

    run: QueueRun
    since: int
    until: int
    gpus: int


@dataclass(frozen=True, slots=True)
class Borrowing:
    """What queues borrowed in a period: by the gauges, and the runs to which it was put down.

    Where the gauges count more than the runs held, as between a workload's admission and its pods' begin, the rest is
    nobody's.
    """

    above: Sequence[QuotaExcess]
    runs: Sequence[Borrowed]


def of_cluster(cluster: Cluster, *, since: int, until: int, clock: Callable[[], int]) -> Borrowing:
    """Of [since, until), epoch seconds. Asks the cluster's Prometheus; one query of the ledger. Changes nothing.

    Raises BorrowingError where it is no cluster of Kueue, ConnectorError where its Prometheus does not tell.
    """
    connection = Connection.objects.filter(cluster=cluster, cluster__kind=ClusterKind.PROMETHEUS).first()
    if connection is None:
        raise BorrowingError("no-prometheus", cluster=cluster.name)
    options = options_from(connection.options)
    if options.preset is not Preset.KUEUE:
        raise BorrowingError("not-kueue", cluster=cluster.name)
    reached = endpoint(connection, timeout=TIMEOUT)
    login = prometheus_login(connection)
    with PrometheusClient(reached, login, clock=clock, parameters=options.parameters) as client:
        above = above_quota(client, options, since=since, until=until)
    return Borrowing(above, list(latest_first(_queue_runs(cluster, since, until), above)))


def _queue_runs(cluster: Cluster, since: int, until: int) -> list[QueueRun]:
    runs = (
        UsageRecord.objects.filter(
            cluster=cluster, source_key__endswith=RESOURCE, gpus__gt=0, started__lt=until
        )
        .exclude(queue="")
        .annotate(finish=Coalesce("ended", "seen_until"))
        .filter(Q(finish__gt=since), finish__gt=F("started"))
        .values_list("pk", "queue", "started", "finish", "gpus", "share_num", "share_den")
    )
    return [
        QueueRun(pk, queue, started or 0, finish, gpus, Fraction(num, den))
        for pk, queue, started, finish, gpus, num, den in runs
    ]


def latest_first(runs: Iterable[QueueRun], above: Iterable[QuotaExcess]) -> Iterator[Borrowed]:
    """Put what each queue held above its quota down to its runs, those that began last first.

    Of runs that began in one second, the one that was recorded last comes first.
    """
    by_queue: dict[str, list[QueueRun]] = {}
    for run in sorted(runs, key=lambda run: (-run.started, -run.record)):
        by_queue.setdefault(run.queue, []).append(run)
    for part in above:
        if part.gpus:
            those = [
                run
                for run in by_queue.get(part.queue, ())
                if run.started < part.until and run.finish > part.since
            ]
            yield from _of_part(those, part)


def _of_part(runs: Sequence[QueueRun], part: QuotaExcess) -> Iterator[Borrowed]:
    """Cut where a run begins or ends, for there the next one has its turn."""
    instants = {part.since, part.until}
    instants |= {at for run in runs for at in (run.started, run.finish) if part.since < at < part.until}
    borders = sorted(instants)
    for since, until in pairwise(borders):
        left = part.gpus
        for run in runs:
            if left and run.started <= since and run.finish >= until:
                gpus = min(run.gpus, left)
                left -= gpus
                yield Borrowed(run, since, until, gpus)
