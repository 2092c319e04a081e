"""What a job takes on the disk, over all tables, where a plan charges GPUs."""

from __future__ import annotations

from collections.abc import Iterator

from django.db import connection

from bench import instance, intake, jobs, world
from bench.meter import measure
from bench.result import Figure, Result
from bench.scale import Scale
from portal.core.tenants.models import Tenant

NAME, RUN = "bytes", "bench_run"
ACCOUNTS, DAYS = 40, 45
MOST = 1_100  # bytes a job

# Every table with its indexes and what is stored apart; those of months together.
SIZES = """
SELECT regexp_replace(relname, '_20[0-9]{2}_[0-9]{2}$', ''), sum(pg_total_relation_size(oid))::bigint
FROM pg_class WHERE relkind = 'r' AND relnamespace = 'public'::regnamespace AND relname !~ '^bench_' GROUP BY 1
"""


def works(scale: Scale, postmaster: int, names: set[str]) -> Iterator[Result]:
    """A file of jobs as `import_usage` stores it; nothing of it changes afterwards."""
    if NAME not in names:
        return
    count = scale.of(200_000)
    file = instance.HOME / "bytes.sacct"
    file.write_text("".join(jobs.sacct_lines(jobs.jobs(count, accounts=ACCOUNTS, days=DAYS))))
    instance.copy(instance.EMPTY, RUN)
    world.build(ACCOUNTS)
    empty = sizes()
    cost = measure(lambda: intake.ingest_file(file), postmaster)
    took = {table: (size - empty.get(table, 0)) / count for table, size in sizes().items()}
    largest = sorted(took, key=lambda table: -took[table])[:5]
    yield Result(
        NAME, "bytes a job over all tables, GPUs charged", count, "jobs", cost, cost,
        figures=(
            Figure("bytes a job", sum(took.values()), MOST),
            *(Figure(f"  of these {table}", took[table]) for table in largest),
            Figure("rows a job of daily usage", rows("billing_dailyusage") / count),
        ),
    )  # fmt: skip
    instance.drop(RUN)


def sizes() -> dict[str, int]:
    """Bytes of each table, without those of the bench."""
    with connection.cursor() as cursor:
        cursor.execute("VACUUM ANALYZE")
        cursor.execute(SIZES)
        return dict(cursor.fetchall())


def rows(table: str, tenant: Tenant | None = None) -> int:
    """Of all tenants, or of one."""
    with connection.cursor() as cursor:
        of = f"WHERE tenant_id = {tenant.pk}" if tenant is not None else ""
        cursor.execute(f"SELECT count(*) FROM {table} {of}")
        return int(cursor.fetchone()[0])
