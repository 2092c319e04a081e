"""A year of pods that never end: what they leave in the ledger, and how often their rows stay in their pages."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from django.db import connection

from bench import closing, instance, jobs, sizes, world
from bench.meter import measure
from bench.result import Figure, Result
from bench.scale import Scale
from billing.rating import ingest
from clusters.connectors.base import Reading, UsageFact
from clusters.models import Cluster

RUN = "bench_run"
PODS, MANY_PODS, MOST_ROWS = 500, 5_000, 6_000_000
PODS_PER_TENANT = 5
BORDERS = [datetime(2025 + month // 12, month % 12 + 1, 1, tzinfo=UTC) for month in range(13)]
SIGHTS = (BORDERS[-1] - BORDERS[0]).days * 2
HOT = 0.8
GROWING = ("clusters_usagerecord", "billing_ratedjob", "billing_ratedusage")

REWRITES = """
SELECT sum(n_tup_upd)::bigint, sum(n_tup_hot_upd)::bigint FROM pg_stat_user_tables WHERE relname LIKE %s
"""


def year(scale: Scale, postmaster: int) -> Result:
    """Seen twice a day; each month is closed while they run."""
    pods = scale.of(PODS)
    instance.copy(instance.EMPTY, RUN)
    cluster = world.build(-(-pods // PODS_PER_TENANT), borders=BORDERS)
    cost = measure(lambda: _run(cluster, pods), postmaster)
    rated = sizes.rows("billing_ratedusage")
    result = Result(
        "pods", f"a year of {pods} pods that never end, seen twice a day", pods * SIGHTS, "sights", cost, cost,
        figures=(
            Figure(f"rated rows of {MANY_PODS:,} such pods, computed", rated / pods * MANY_PODS, MOST_ROWS),
            *(Figure(f"rewrites of {table} within their page", _hot(table), HOT, rises=True) for table in GROWING),
        ),
    )  # fmt: skip
    instance.drop(RUN)
    return result


def _run(cluster: Cluster, pods: int) -> None:
    start = int(BORDERS[0].timestamp())
    months = iter(BORDERS[1:])
    border = next(months)
    for sight in range(1, SIGHTS + 1):
        seen = BORDERS[0] + timedelta(hours=12 * sight)
        ingest.ingest(
            cluster=cluster,
            rows=[_pod(number, start, int(seen.timestamp())) for number in range(pods)],
            reading=Reading(),
            source="pods",
            moment=seen,
            as_of=seen,
        )
        if seen >= border:
            closing.everybody((border - timedelta(days=1)).year, (border - timedelta(days=1)).month)
            border = next(months, BORDERS[-1] + timedelta(days=9))


def _pod(number: int, start: int, seen: int) -> UsageFact:
    return UsageFact(
        source_key=f"pod-{number:05d}",
        job_id=f"pod-{number}",
        account=jobs.account_name(number // PODS_PER_TENANT),
        user=f"user{number % 50}",
        gpus=1 + number % 8,
        gpu_model="h100",
        cpu_milli=8_000,
        memory_mib=65_536,
        nodes=1,
        state="Running",
        submitted=start,
        started=start,
        seen_until=seen,
    )


def _hot(table: str) -> float:
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_stat_force_next_flush()")
        cursor.execute(REWRITES, [f"{table}\\_20%"])
        every, within = cursor.fetchone()
    return within / every if every else 1.0
