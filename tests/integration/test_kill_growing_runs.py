"""Kill -9 while runs that go on are read: what is read again ends as if nothing had happened."""

from __future__ import annotations

import random
import time
from collections.abc import Collection
from pathlib import Path
from typing import Any

import pytest
from django.db import connection

from billing.models import RatedUsage
from billing.rating import ingest as usage_ingest
from clusters.connectors.base import Reading, UsageFact
from clusters.models import Pull, UsageRecord
from tests.builders import LONG_AGO, a_cluster, a_plan, a_tenant, at, ingest
from tests.builders import a_job as a_run
from tests.integration.operators import Operator
from tests.integration.test_race_for_the_same_rows import at_once
from tests.stories import prove

pytestmark = pytest.mark.usefixtures("transactional_db")

RUNS, SIGHTS, KILLS = 3_000, 5, 5
BEGUN = 1_711_800_000  # 2024-03-30 12:00: they run into April


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.long) for seed in range(1, 10))])
def test_runs_that_grow_while_their_reader_is_killed_are_rated_as_if_nothing_had_happened(
    seed: int, database_url: str, tmp_path: Path
) -> None:
    """Five kills a seed: in the ten of them fifty."""
    files = [sight(tmp_path / f"{number}.sacct", number) for number in range(SIGHTS)]
    plan = a_plan(
        prices=[("gpu-hour", {}, "1.37", LONG_AGO), ("cpu-core-hour", {}, "0.011", LONG_AGO)],
        charges=("gpu", "cpu"),
    )
    for name in ("calm", "storm"):
        cluster = a_cluster(name)
        for number in range(4):
            a_tenant(f"{name}-{number}", plan=plan, accounts=[(cluster, f"acc{number}")])
    dice = random.Random(seed)

    killed = 0
    with Operator(database_url) as op:
        for file in files:
            took = op.does("import_usage", "calm", file)
            killed += op.is_killed_doing(
                "import_usage", "storm", file, count=pulls, at=pulls() + 1, after=dice.uniform(0, took / 2)
            )
            op.does("import_usage", "storm", file)

    assert killed >= KILLS - 2
    assert UsageRecord.objects.filter(cluster__name="storm").count() == RUNS
    assert rated("storm") == rated("calm")
    assert not RatedUsage.objects.filter(reversal=True).exists()
    assert (
        RatedUsage.objects.filter(verdict="charged").count() == 2 * RUNS * 2 * 2
    )  # cluster, resource, month
    prove()


def test_two_that_read_the_same_runs_at_once_rate_them_as_one_after_the_other() -> None:
    cluster = a_cluster()
    a_tenant("vision-lab", plan=a_plan(), accounts=[(cluster, "vision")])

    def reads(parity: int) -> None:
        for minute in range(parity, 40, 2):
            runs = [
                a_run(job_id=str(n), started="2026-03-02 10:00", ended=None, state="RUNNING",
                      seen_until=f"2026-03-02 11:{minute:02}")
                for n in range(20)
            ]  # fmt: skip
            ingest(cluster, *runs)

    at_once(lambda: reads(0), lambda: reads(1))

    assert {(row.units, row.reversal) for row in RatedUsage.objects.all()} == {(99 * 60, False)}
    assert RatedUsage.objects.count() == 20
    prove()


def test_a_file_and_a_pull_of_the_same_runs_at_once_leave_what_one_after_the_other_does() -> None:
    plan = a_plan()
    clusters = {name: a_cluster(name) for name in ("calm", "storm")}
    for name, cluster in clusters.items():
        a_tenant(name, plan=plan, accounts=[(cluster, "vision")])

    def reads(name: str) -> None:
        ingest(clusters[name], *(known_at("2026-03-02 12:00", n, ended=()) for n in range(300)))

    def pulls_of(name: str) -> None:
        usage_ingest.ingest(
            cluster=clusters[name],
            rows=[known_at("2026-03-02 14:00", n, ended=range(0, 300, 2)) for n in range(300)],
            reading=Reading(),
            source="pull",
            moment=at("2026-03-02 14:05"),
            live=usage_ingest.Live(
                since=at("2026-03-02 10:00"),
                until=at("2026-03-02 14:00"),
                clock=lambda: int(at("2026-03-02 14:05").timestamp()),
                moves=False,
                ending=lambda: None,
            ),
        )

    reads("calm")
    pulls_of("calm")
    at_once(lambda: reads("storm"), lambda: pulls_of("storm"))

    assert rated("storm") == rated("calm")
    assert len(rated("calm")) == 300
    prove()


def known_at(moment: str, number: int, *, ended: Collection[int]) -> UsageFact:
    """What is known then of a run that began at 10:00; of those that have ended, at 13:00."""
    state = (
        {"ended": "2026-03-02 13:00"}
        if number in ended
        else {"ended": None, "seen_until": moment, "state": "RUNNING"}
    )
    return a_run(job_id=str(number), started="2026-03-02 10:00", **state)


def sight(path: Path, number: int) -> Path:
    """What sacct says of all runs, some hours later than the file before."""
    lines = ["JobIDRaw|JobID|User|Account|Partition|Submit|Start|End|ElapsedRaw|Suspended|State|AllocTRES"]
    for run in range(1, RUNS + 1):
        start = BEGUN + run
        elapsed = 40_000 + number * 30_000
        lines.append(
            f"{run}|{run}|user{run % 17}|acc{run % 4}|gpu|{_at(start)}|{_at(start)}|Unknown|{elapsed}|00:00:00|RUNNING"
            f"|cpu={1 + run % 8},mem=4G,gres/gpu=1,gres/gpu:a100=1"
        )
    path.write_text("\n".join(lines) + "\n")
    return path


def pulls() -> int:
    return Pull.objects.filter(cluster__name="storm").count()


def rated(cluster: str) -> list[Any]:
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT u.source_key, r.resource, r.service_from, r.service_to, r.price_id, r.units, r.generation,"
            " r.reversal FROM billing_ratedusage r JOIN clusters_usagerecord u ON u.id = r.record_id"
            " JOIN clusters_cluster c ON c.id = u.cluster_id WHERE c.name = %s ORDER BY 1, 2, 3",
            [cluster],
        )
        return list(cursor.fetchall())


def _at(second: int) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(second))
