"""A month that is closed after later ones takes nothing from them that is still to be billed."""

from __future__ import annotations

import pytest

from billing.proof import checks
from tests import builders, stories

pytestmark = pytest.mark.django_db


def test_late_usage_of_october_survives_the_late_close_of_september() -> None:
    cluster = builders.a_cluster()
    lab = builders.a_tenant(plan=builders.a_plan(), accounts=[(cluster, "vision")])

    def an_hour(day: str) -> None:
        job = builders.a_job(started=f"{day} 10:00", ended=f"{day} 11:00")
        builders.ingest(cluster, job, as_of="2027-01-02")

    an_hour("2026-10-05")
    an_hour("2026-11-05")
    stories.close("2026-10")
    stories.close("2026-11")

    an_hour("2026-10-06")  # late, rated before …
    an_hour("2026-09-05")  # … this, which is closed first
    stories.close("2026-09")
    assert stories.invoice_of(lab, "2026-09").total == 200
    an_hour("2026-12-05")
    stories.close("2026-12")

    december = stories.invoice_of(lab, "2026-12")
    lines = [(line.service_period.start.month, line.amount) for line in december.lines.order_by("position")]
    assert lines == [(12, 200), (10, 200)]
    assert checks.prove().holds
