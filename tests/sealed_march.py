"""A month of two tenants and of nobody that may be sealed, for stories of sealed months."""

from __future__ import annotations

import json
from datetime import date
from typing import Any

from billing.models import SealedMonth
from billing.sealed_months import seal
from billing.sealed_months.rows_sql import KINDS
from clusters.models import Cluster
from portal.core.tenants.models import Tenant, User
from tests.builders import a_cluster, a_job, a_person, a_plan, a_tenant, at, ingest
from tests.owner import as_owner
from tests.scenarios.reports import worked
from tests.stories import close

MARCH = date(2026, 3, 1)
NOW = at("2031-06-01 02:00")  # stories import in 2030


def enter_march() -> None:
    """Jobs of two tenants and of nobody, in March, one named in two lines, one corrected, one of no second."""
    cluster = a_cluster(complete_through="2026-04-02")
    vision = a_tenant(plan=a_plan(), accounts=[(cluster, "vision")])
    speech = a_tenant("speech-lab", plan=a_plan("speech"), accounts=[(cluster, "speech")])
    march = {"started": "2026-03-02 10:00", "ended": "2026-03-02 11:00"}
    first = a_job(job_id="1", user="ben", gpus=4, name='train\n"one", two', **march)
    ingest(cluster, first, as_of="2026-03-03")
    ingest(
        cluster,
        a_job(job_id="1", user="ben", gpus=4, name='train\n"one", two', started="2026-03-02 10:00",
              ended="2026-03-02 12:30"),
        a_job(job_id="2", user="eve", account="speech", started="2026-03-31 20:00", ended="2026-04-01 04:00"),
        a_job(job_id="3", source_key="pod/without/month", user="zoë", account="nobody", **march),
        a_job(job_id="4", user="ben", state="CANCELLED", started="2026-03-04 10:00",
              ended="2026-03-04 10:00"),
        as_of="2026-04-02",
    )  # fmt: skip
    close("2026-03", vision, speech, on="2026-04-03")


def rows() -> dict[str, list[Any]]:
    """Every row of the month's four tables, whole."""
    with as_owner() as cursor:
        content = {}
        for kind in KINDS:
            cursor.execute(f"SELECT to_jsonb(t)::text FROM {kind.table} t ORDER BY to_jsonb(t)::text")
            content[kind.name] = [json.loads(row) for (row,) in cursor.fetchall()]
        return content


def sealed() -> SealedMonth:
    return seal.seal_month(month=MARCH, moment=NOW, quiet_months=12)


def enter_march_and_may() -> User:
    """Ann, of a tenant with jobs of March, which is sealed, and of May, among them arrays. Telemetry covered some."""
    enter_march()
    cluster = Cluster.objects.get()
    tasks = {"user": "mia", "name": "sweep", "gpus": 2}
    march = {"started": "2026-03-06 10:00", "ended": "2026-03-06 12:00"}
    may = {"started": "2026-05-05 10:00", "ended": "2026-05-05 13:00"}
    ingest(
        cluster,
        *(a_job(job_id=f"70_{number}", **tasks, **march) for number in range(3)),
        *(a_job(job_id=f"90_{number}", **tasks, **may) for number in range(5)),
        a_job(job_id="9", user="ben", **may),
        as_of="2026-05-06",
    )
    for hour, busy in (("10:00", "9000"), ("11:00", "0"), ("12:00", "0")):
        worked("1", f"2026-03-02 {hour}", busy, covered=4 * 3600 if hour != "12:00" else 4 * 1800)
    worked("70_1", "2026-03-06 10:00", "0", covered=7200)
    worked("90_1", "2026-05-05 11:00", "1800")
    worked("2", "2026-03-31 23:00", "1800")
    worked("2", "2026-04-01 00:00", "3600")
    close("2026-04", on="2026-05-03")
    sealed()
    return a_person(tenant=Tenant.objects.get(slug="vision-lab"))
