"""Two schedulers and two workers at once, killed at any moment: each period is asked for, issued and told of once."""

from __future__ import annotations

import random
from datetime import UTC, date, datetime

import pytest

from billing.invoicing import close_runs, close_schedules
from billing.models import CloseReport, CloseRun, Invoice, ScheduledClose
from tests.builders import a_cluster, a_job, a_plan, a_tenant, ingest
from tests.integration.operators import Operator
from tests.stories import prove

pytestmark = pytest.mark.usefixtures("transactional_db")

TENANTS = 12
KILLS = close_runs.ATTEMPTS - 1  # one more over the same tenants, and the run is given up
SCHEDULER = "task", "billing.tasks.schedule_closes"
WORKER = "task", "tests.integration.test_kill_schedule.perform"


def perform() -> None:
    """What a worker does of all that was asked for, the earliest month first."""
    for run in CloseRun.objects.unfinished().order_by("month"):
        close_runs.perform_run(run.pk, clock=lambda: datetime.now(UTC).replace(microsecond=0))


def test_a_schedule_that_is_killed_at_any_moment_issues_and_tells_once(database_url: str) -> None:
    cluster, plan = a_cluster(complete_through="2026-06-01"), a_plan()
    for number in range(TENANTS):
        a_tenant(f"lab-{number}", plan=plan, accounts=[(cluster, f"a{number}")])
    ingest(cluster, *(a_job(source_key=f"{number}@1", account=f"a{number}") for number in range(TENANTS)))
    close_schedules.set_schedule(tenant=None, preview_day=None, issue_day=1, since=date(2026, 3, 1))
    dice, killed = random.Random(12), 0
    with Operator(database_url) as op, Operator(database_url) as oda:
        for command in (SCHEDULER, WORKER):
            for _ in range(KILLS):
                killed += op.is_killed_doing(*command, count=lambda: 0, at=0, after=dice.uniform(0, 0.2))
            for person in (op, oda):
                person.begins(*command)
            assert [person.ends() for person in (op, oda)] == [0, 0]
        op.does(*SCHEDULER)
        op.does(*WORKER)
    assert killed >= KILLS // 2
    rows = ScheduledClose.objects.select_related("period", "run")
    assert all(f"{row.period.start:%Y-%m}" == row.run.month for row in rows)
    months = {row.run.month for row in rows}
    assert len(rows) == TENANTS * len(months)
    assert CloseRun.objects.count() == CloseReport.objects.count() == len(months)
    assert not CloseRun.objects.unfinished().exists()
    numbered = Invoice.objects.filter(number__isnull=False)
    assert sorted(numbered.values_list("tenant__slug", flat=True)) == sorted(
        f"lab-{number}" for number in range(TENANTS)
    )
    prove()
