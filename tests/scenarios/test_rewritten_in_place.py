"""Runs that go on are written again at each sight: within their pages, so that no index grows with them."""

from __future__ import annotations

import pytest
from django.db import connection

from tests.builders import LATER, a_cluster, a_job, a_plan, a_tenant, at, ingest

pytestmark = pytest.mark.usefixtures(
    "transactional_db"
)  # what was committed alone can be cleaned out of a page

RUNS, SIGHTS = 400, 12
TABLES = ("clusters_usagerecord", "billing_ratedjob", "billing_ratedusage")


@pytest.mark.peers  # takes long
@pytest.mark.parametrize(("month", "file_before"), [("2019-05", False), ("2019-06", True)])
def test_four_of_five_rewrites_of_open_runs_stay_in_their_page(month: str, file_before: bool) -> None:
    cluster = a_cluster()
    a_tenant("vision-lab", plan=a_plan(), accounts=[(cluster, "vision")])
    if file_before:
        ended = {"started": f"{month}-02 10:00", "ended": f"{month}-02 11:00"}
        ingest(cluster, *(a_job(job_id=f"ended-{n}", **ended) for n in range(RUNS)))
        assert not any("fillfactor" in options for options in _options(month)), (
            "such a month's pages are full"
        )

    counts = [_updates()]
    for sight in range(1 + SIGHTS):
        seen = int(at(f"{month}-02 11:00").timestamp()) + sight * 3600
        runs = ({"job_id": str(n), "started": f"{month}-02 10:00", "seen_until": seen} for n in range(RUNS))
        ingest(cluster, *(a_job(**run, ended=None, state="RUNNING") for run in runs))
    counts.append(_updates())

    for table in TABLES:
        every, within = (after - was for was, after in zip(*(count[table] for count in counts), strict=True))
        assert every == RUNS * SIGHTS, table
        assert within >= 0.8 * every, f"{table}: {within / every:.0%}"


def test_tables_of_a_month_are_cleaned_after_so_many_rows() -> None:
    cluster = a_cluster()
    a_tenant("vision-lab", plan=a_plan(), accounts=[(cluster, "vision")])
    ingest(cluster, a_job(job_id="1"))
    ingest(cluster, a_job(job_id="1", gpus=2))
    options = [*_options("2026-03"), *_options(f"{LATER:%Y-%m}", "clusters_usagerevision")]
    assert len(options) == 4
    for chosen in options:
        assert {name for name in chosen if name.endswith("scale_factor") and chosen[name] != "0"} == set()
        assert 0 < int(chosen["autovacuum_vacuum_threshold"]) <= 20_000


def _options(month: str, *tables: str) -> list[dict[str, str]]:
    """How that month's tables are kept."""
    names = [f"{table}_{month.replace('-', '_')}" for table in tables or TABLES]
    with connection.cursor() as cursor:
        cursor.execute("SELECT reloptions FROM pg_class WHERE relname = ANY (%s)", [names])
        return [dict(option.split("=") for option in options) for (options,) in cursor.fetchall()]


def _updates() -> dict[str, tuple[int, int]]:
    """By table how many rows were rewritten, and how many of them in their page."""
    counts = {}
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_stat_force_next_flush()")
        for table in TABLES:
            cursor.execute(
                "SELECT coalesce(sum(n_tup_upd), 0)::int, coalesce(sum(n_tup_hot_upd), 0)::int"
                " FROM pg_stat_user_tables WHERE relname LIKE %s",
                [f"{table}\\_20%"],
            )
            counts[table] = cursor.fetchone()
    return counts
