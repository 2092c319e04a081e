"""Ben's jobs run for days while Op's cluster is polled: each hour is rated once, and a month's end to the second."""

from __future__ import annotations

from typing import Any

import pytest

from billing.models import InvoiceLine, RatedUsage
from clusters.connectors.base import Row
from clusters.models import UsageRecord, UsageRevision
from tests.builders import a_job, a_plan, a_tenant, ingest
from tests.schedulers import Scheduler, a_connection
from tests.stories import closed, hours, invoice_of, prove, seconds

pytestmark = pytest.mark.django_db


def running(until: str, **fields: object) -> list[Row]:
    values: dict[str, Any] = {
        "job_id": "7",
        "started": "2026-03-02 10:00",
        "ended": None,
        "state": "RUNNING",
        **fields,
    }
    return [a_job(seen_until=until, **values)]


def test_twelve_passes_of_an_hour_rate_a_running_job_once() -> None:
    cluster = a_connection().cluster
    vision = a_tenant(plan=a_plan(), accounts=[(cluster, "vision")])
    slurm = Scheduler()
    for minute in range(5, 60, 5):
        slurm.rows = running(f"2026-03-02 10:{minute:02}")
        slurm.pulled(cluster, f"2026-03-02 10:{minute:02}")
    assert seconds(vision) == 5 * 60  # as the first pass saw it
    assert RatedUsage.objects.filter(resource="gpu").count() == 1

    slurm.rows = running("2026-03-02 11:02")
    slurm.pulled(cluster, "2026-03-02 11:02")
    assert seconds(vision) == 62 * 60

    slurm.rows = [a_job(job_id="7", started="2026-03-02 10:00", ended="2026-03-02 11:37")]
    slurm.pulled(cluster, "2026-03-02 11:40")
    assert seconds(vision) == 97 * 60  # its end is never waited for
    prove()


@pytest.mark.parametrize(
    ("zone", "border", "after"),
    [
        ("UTC", "2026-04-01 00:00", "2026-04-01 00:03"),
        ("Asia/Kolkata", "2026-03-31 18:30", "2026-03-31 18:33"),
        ("Asia/Kathmandu", "2026-03-31 18:15", "2026-03-31 18:18"),
    ],
)
def test_a_month_is_billed_to_its_last_second_in_every_zone(zone: str, border: str, after: str) -> None:
    cluster = a_connection().cluster
    vision = a_tenant(plan=a_plan(), timezone=zone, accounts=[(cluster, "vision")])
    slurm = Scheduler()
    for moment in ("2026-03-31 18:02", "2026-03-31 18:10", after):
        slurm.rows = running(moment, started="2026-03-31 12:00")
        slurm.pulled(cluster, moment)
    closed("2026-03", vision, on=after)
    line = InvoiceLine.objects.get(invoice=invoice_of(vision, "2026-03"))
    whole = {"2026-04-01 00:00": 12 * 60, "2026-03-31 18:30": 390, "2026-03-31 18:15": 375}[border]
    assert line.seconds_num == whole * 60
    prove()


def test_a_suspended_job_writes_no_history_while_it_stands_still() -> None:
    cluster = a_connection().cluster
    vision = a_tenant(plan=a_plan(), accounts=[(cluster, "vision")])
    slurm = Scheduler()
    for minute in range(10, 60, 10):  # it stopped at 10:10
        slurm.rows = running(f"2026-03-02 10:{minute:02}", state="SUSPENDED", suspended=(minute - 10) * 60)
        slurm.pulled(cluster, f"2026-03-02 10:{minute:02}")
    slurm.rows = running("2026-03-02 12:10", state="SUSPENDED", suspended=hours(2))
    slurm.pulled(cluster, "2026-03-02 12:10")
    assert not UsageRevision.objects.exists()
    assert UsageRecord.objects.get().suspended == hours(2)
    assert seconds(vision) == 10 * 60
    prove()


def test_a_file_that_saw_a_job_later_is_believed_at_once() -> None:
    cluster = a_connection().cluster
    vision = a_tenant(plan=a_plan(), accounts=[(cluster, "vision")])
    for minute in (5, 10):
        ingest(cluster, *running(f"2026-03-02 10:{minute:02}"))
        assert seconds(vision) == minute * 60
