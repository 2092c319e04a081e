"""Kill -9 at any moment of a pull, and two pulls at once: the records are those of one pull left in peace."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import pytest

from clusters.models import Cluster, Connection, Pull, UsageRecord
from tests.builders import a_plan, a_tenant
from tests.integration.operators import Operator
from tests.integration.slurm_gate import opened
from tests.integration.slurm_lab import Lab, until
from tests.integration.slurm_pulls import DAY, connected, ledger, moment, same, watermark
from tests.integration.test_kill_import_and_close import jobs, rated
from tests.stories import prove
from tests.tiers import LONG

pytestmark = pytest.mark.usefixtures("transactional_db")

FILL = 1_500  # jobs over the last thirty days, of which the pulls see a part
DAYS = 3
ENDED = 4  # the place of a job's end in `jobs`
KILLS = 50 if LONG else 5


@pytest.fixture
def busy_lab(slurm_lab: Lab) -> Iterator[Lab]:
    """A lab that has a month of jobs behind it."""
    slurm_lab.does("fill", FILL)
    yield slurm_lab
    slurm_lab.does("sql", stdin="DELETE FROM lab_job_table WHERE job_name LIKE 'fill-%'")


@pytest.mark.larger
def test_a_pull_that_is_killed_at_any_moment_ends_as_if_it_had_not_been(
    busy_lab: Lab, database_url: str
) -> None:
    """The cluster `calm` is pulled undisturbed, `storm` from the same Slurm is not."""
    plan, first = a_plan(), moment(busy_lab.began - DAYS * DAY)
    for name in ("calm", "storm"):
        cluster = connected(busy_lab, name, first_usage_from=first, look_back=2)
        a_tenant(f"{name}-00", plan=plan, accounts=[(cluster, "acme_research")])
        a_tenant(f"{name}-01", plan=plan, accounts=[(cluster, "globex")])
    storm = Cluster.objects.get(name="storm")
    dice = random.Random(KILLS)

    with Operator(database_url) as op:
        took = op.does("pull_usage", "calm")
        rows = UsageRecord.objects.filter(cluster__name="calm").count()
        assert rows > FILL * DAYS // 31
        killed = 0
        for kill in range(KILLS):  # each a little further on than the one before, the first before any row
            row_count = rows * kill // (KILLS + 1)
            killed += op.is_killed_doing(
                "pull_usage", "storm", count=stored_by_storm, at=row_count, after=dice.uniform(0, took / DAYS)
            )
            mark = watermark(storm)
            done = Pull.objects.filter(cluster=storm, outcome=Pull.Outcome.DONE).order_by("pk").last()
            assert mark == (done.as_of if done else None)
        assert killed >= KILLS // 2
        op.does("pull_usage", "storm")

    same(ledger(storm), ledger(Cluster.objects.get(name="calm")))
    assert of_ended_runs(rated("storm")) == of_ended_runs(rated("calm"))
    assert [job for job in jobs("storm") if job[ENDED]] == [job for job in jobs("calm") if job[ENDED]]
    assert not Pull.objects.filter(outcome=Pull.Outcome.RUNNING).exists()
    prove()


def test_of_two_pulls_at_once_one_does_it_and_a_dead_one_is_in_nobodys_way(
    slurm_lab: Lab, database_url: str
) -> None:
    connected(slurm_lab)
    with opened(slurm_lab.url) as gate, Operator(database_url) as one, Operator(database_url) as other:
        Connection.objects.update(base_url=gate.url)
        met = []

        def second_comes() -> None:
            other.begins("pull_usage", "lab")
            met.append(other.ends())

        gate.before(1, second_comes)
        one.begins("pull_usage", "lab")
        assert one.ends() == 0
        assert met == [1]  # it says that the cluster is being pulled already
        assert Pull.objects.get().outcome == Pull.Outcome.DONE

        request_count = gate.requests
        assert one.is_killed_doing("pull_usage", "lab", count=lambda: gate.requests, at=request_count + 1)
        until(lambda: gate.answered == gate.requests)
        other.does("pull_usage", "lab")  # the dead one's lock went with its connection

    pulls = list(Pull.objects.order_by("pk"))
    assert [one.outcome for one in pulls[1:]] == [Pull.Outcome.FAILED, Pull.Outcome.DONE]
    assert pulls[1].error
    assert not UsageRecord.objects.filter(ended__isnull=False).exclude(revision=1).exists()


def of_ended_runs(rows: list[Any]) -> list[Any]:
    """Without what still runs, which each pull saw running at a moment of its own."""
    running = set(UsageRecord.objects.filter(ended=None).values_list("source_key", flat=True))
    return [row for row in rows if row[0] not in running]


def stored_by_storm() -> int:
    return UsageRecord.objects.filter(cluster__name="storm").count()
