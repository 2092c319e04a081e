"""The reports' door: what runs held in a span, and what nodes had to give."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import lcm

from django.db import connection
from django.db.models import Min, Q
from django.db.models.functions import Coalesce

from clusters import declared_nodes
from clusters.models import CapacityInterval, CapacityState, Cluster
from portal.sql_files import Statements

sql = Statements(__file__, "usage_reports.sql")


def allocated(cluster: Cluster, *, since: int, until: int) -> dict[str, Fraction]:
    """GPU-seconds by model that the ledger holds of [since, until), epoch seconds. One query.

    Its callers have dropped months shown, as of what else is read here.
    """
    seconds: dict[str, Fraction] = defaultdict(Fraction)
    with connection.cursor() as cursor:
        cursor.execute(sql.ALLOCATED, {"cluster": cluster.pk, "since": since, "until": until})
        for model, den, units in cursor.fetchall():
            seconds[model] += Fraction(int(units), den)
    return seconds


@dataclass(frozen=True, slots=True)
class Span:
    """GPUs of one model that a node had in one state in [since, until), epoch seconds."""

    gpu_model: str
    gpus: int
    state: CapacityState
    since: int
    until: int


@dataclass(frozen=True, slots=True)
class Had:
    """What nodes had in [since, until): the part of a period that was looked at, or declared."""

    since: int
    until: int
    spans: Sequence[Span]

    @property
    def seconds(self) -> Mapping[tuple[str, CapacityState], int]:
        """GPU-seconds by model and state."""
        seconds: dict[tuple[str, CapacityState], int] = defaultdict(int)
        for span in self.spans:
            seconds[span.gpu_model, span.state] += span.gpus * (span.until - span.since)
        return seconds


def had(cluster: Cluster, *, since: int, until: int) -> Had | None:
    """Of what nodes had in [since, until), epoch seconds, what is known; None where nothing is. Three queries.

    Known from the first look at the nodes to the watermark: what lasts still is taken to last until there. Before the
    first look it is what the operator declared.
    """
    intervals = CapacityInterval.objects.filter(cluster=cluster)
    first = intervals.aggregate(first=Min("since"))["first"]
    through = cluster.complete_through
    looked = declared_nodes.END if first is None else first
    spoken = [row for row in declared_nodes.intervals(cluster) if row[3] < looked]
    begins = [row[3] for row in spoken] + ([first] if first is not None else [])
    if not begins or through is None:
        return None
    span = max(min(begins), since), min(int(through.timestamp()), until)
    if span[0] >= span[1]:
        return None
    rows = intervals.filter(Q(until__isnull=True) | Q(until__gt=span[0]), since__lt=span[1]).values_list(
        "gpu_model", "gpus", "state", "since", Coalesce("until", span[1])
    )
    spans = [
        Span(model, gpus, CapacityState(state), max(begin, span[0]), min(end, span[1]))
        for model, gpus, state, begin, end in (*rows, *((*row[:4], min(row[4], looked)) for row in spoken))
        if begin < span[1] and end > span[0]
    ]
    return Had(*span, spans)


def idle_while_waiting(cluster: Cluster, had: Had) -> dict[str, Fraction]:
    """GPU-seconds by model in which GPUs that were up stood idle while a job waited for that model. Two queries.

    A job waits from when it could have begun, or was submitted, until it begins; one that never did, until it was
    withdrawn. One whose model is not known waits for any. What was suspended counts as held here.
    """
    up = [span for span in had.spans if span.state is CapacityState.UP]
    values = {"cluster": cluster.pk, "since": had.since, "until": had.until}
    with connection.cursor() as cursor:
        cursor.execute(sql.SHARES, values)
        parts = lcm(*(int(den) for (den,) in cursor.fetchall()))
        cursor.execute(
            sql.IDLE_WHILE_WAITING,
            {
                **values,
                "parts": parts,
                "models": [span.gpu_model for span in up],
                "gpus": [span.gpus for span in up],
                "begins": [span.since for span in up],
                "ends": [span.until for span in up],
            },
        )
        return {model: Fraction(int(units), parts) for model, units in cursor.fetchall()}


@dataclass(frozen=True, slots=True)
class WaitingJob:
    """A job that waited for GPUs, and for how many seconds of a span."""

    record: int
    job_id: str
    account: str
    user: str
    gpu_model: str
    gpus: int
    seconds: int


def waiting_jobs(
    cluster: Cluster, *, models: Sequence[str], since: int, until: int, most: int
) -> tuple[int, list[WaitingJob]]:
    """How many waited for one of the models in [since, until), and those with most GPU-seconds of it. One query."""
    span = {"since": since, "until": until, "most": most}
    with connection.cursor() as cursor:
        cursor.execute(sql.WAITING_JOBS, {"cluster": cluster.pk, "models": [*models], **span})
        rows = cursor.fetchall()
    return (rows[0][0] if rows else 0), [WaitingJob(*row[1:]) for row in rows]
