"""The hourly close and the first rating of a tenant make its billing periods at once: none is missing between them."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from itertools import pairwise

import pytest
from django.db import connection, transaction

from billing.catalog import billing_periods, tenant_lock
from billing.invoicing import close_schedules
from billing.models import BillingPeriod
from portal.core.tenants.models import Tenant
from tests.builders import a_cluster, a_job, a_plan, a_tenant, at, ingest, own
from tests.integration.test_race_for_a_refund import wait_until_blocked
from tests.integration.test_race_for_the_same_rows import at_once
from tests.stories import hours, prove

pytestmark = pytest.mark.usefixtures("transactional_db")

PATIENCE = 30  # seconds


def test_what_one_made_while_the_other_looked_leaves_no_hole_in_which_usage_is_billed_to_nobody(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cluster = a_cluster(complete_through="2026-06-01")
    lab = a_tenant("vision", plan=a_plan())
    looked, made = threading.Event(), threading.Event()
    reaches = billing_periods._reaches

    def slowly(tenants: Iterable[Tenant]) -> dict[int, tuple[datetime, datetime]]:
        """Between what the close of April has read and what it makes, rating makes January."""
        reach = reaches(tenants)
        if threading.current_thread().name == "close":
            looked.set()
            assert made.wait(PATIENCE)
        return reach

    monkeypatch.setattr(billing_periods, "_reaches", slowly)

    def closes() -> None:
        threading.current_thread().name = "close"
        billing_periods.ensure_spans([(lab, at("2026-04-20"), at("2026-04-21"))])

    def rates() -> None:
        assert looked.wait(PATIENCE)
        ingest(cluster, a_job(started="2026-01-10 00:00", ended="2026-01-10 01:00"))
        own(lab, cluster, "vision")
        made.set()

    at_once(closes, rates)
    for month in ("02", "03", "04"):
        ingest(cluster, a_job(started=f"2026-{month}-10 00:00", ended=f"2026-{month}-10 01:00"))

    periods = list(BillingPeriod.objects.filter(tenant=lab).order_by("start"))
    assert [before.end == after.start for before, after in pairwise(periods)] == [True] * 3
    assert prove()["pending"] == hours(4)


def test_where_a_month_begins_nobody_waits_until_the_last_tenant_has_its_period(database_url: str) -> None:
    """The last of many labs is rated for long; the hourly close waits for it alone, and others are rated meanwhile."""
    plan, april = a_plan(), at("2026-04-01 00:10")
    labs = [a_tenant(f"lab-{n:02}", plan=plan) for n in range(billing_periods.TOGETHER + 1)]
    close_schedules.set_schedule(tenant=None, preview_day=None, issue_day=5, since=april.date())

    def closes() -> None:
        try:
            close_schedules.request_due_runs(moment=april)
        finally:
            connection.close()

    with ThreadPoolExecutor(1) as pool:
        with transaction.atomic():
            tenant_lock.lock(labs[-1])
            result = pool.submit(closes)
            wait_until_blocked(result, database_url)
            for lab in labs[:-1]:
                assert (
                    Tenant.objects.select_for_update(no_key=True, nowait=True).get(pk=lab.pk).periods.count()
                    == 1
                )
        result.result(PATIENCE)
    assert [lab.periods.count() for lab in labs] == [1] * len(labs)
