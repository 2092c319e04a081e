"""March and April are dropped, and a job of March ran into April: either comes back without the other."""

from __future__ import annotations

import json
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from django.db import DatabaseError, connection, transaction

from billing.models import RatedJob, RatedUsage, SealedMonth
from billing.proof import checks
from billing.rating import engine
from billing.rating import ingest as usage_ingest
from billing.sealed_months import drop, seal, unseal
from clusters.connectors.base import Reading, Row
from clusters.models import Account, Cluster, UsageRecord
from portal.core.tenants import ownership
from portal.core.tenants.models import Tenant
from tests.builders import a_job, at, ingest
from tests.sealed_march import MARCH, NOW, enter_march, rows, sealed
from tests.stories import close, prove

pytestmark = pytest.mark.django_db

APRIL = date(2026, 4, 1)
OF_APRIL = {"job_id": "5", "account": "speech", "started": "2026-04-05 10:00"}


@pytest.fixture(autouse=True)
def directory(settings: Any, tmp_path: Path) -> Path:
    settings.CLUSTERTAB_SEALED_MONTHS = tmp_path / "sealed"
    return tmp_path / "sealed"


@pytest.fixture
def sums() -> dict[str, Any]:
    """What was proved before both months were dropped."""
    enter_march()
    ingest(Cluster.objects.get(), as_of="2026-05-02")
    close("2026-04", on="2026-05-03")
    ingest(Cluster.objects.get(), a_job(ended="2026-04-05 11:00", **OF_APRIL), as_of="2026-06-02")
    close("2026-05", on="2026-06-03")
    sums = prove()
    sealed()
    seal.seal_month(month=APRIL, moment=NOW, quiet_months=12)
    for month in (MARCH, APRIL):
        drop.drop_month(month=month, moment=NOW, all_processes_replaced=True)
    return sums


def late(*rows: Row) -> Any:
    return usage_ingest.ingest(
        cluster=Cluster.objects.get(), rows=rows, reading=Reading(), source="late", moment=at("2031-07-01")
    ).stored


def dropped() -> list[date]:
    return [row.month for row in SealedMonth.objects.exclude(dropped_at=None).order_by("month")]


def test_april_comes_back_with_what_jobs_of_march_used_in_it(sums: dict[str, Any]) -> None:
    assert drop.load_back(month=APRIL) == {"records": 1, "revisions": 0, "jobs": 1, "rated": 2}
    assert dropped() == [MARCH]
    assert prove() == sums
    assert checks.prove(full=True).holds
    assert set(RatedUsage.objects.values_list("service_month", flat=True)) == {APRIL}
    assert drop.drop_month(month=APRIL, moment=NOW, all_processes_replaced=True).dropped_at == NOW
    assert not RatedUsage.objects.exists()
    for month in (APRIL, MARCH):
        drop.load_back(month=month)
    assert (UsageRecord.objects.count(), RatedJob.objects.count(), RatedUsage.objects.count()) == (5, 4, 6)
    assert prove() == sums


def test_april_is_unsealed_while_march_stays_dropped(sums: dict[str, Any]) -> None:
    assert unseal.unseal_month(month=APRIL)["rated"] == 2
    assert dropped() == [MARCH]
    assert prove() == sums


def test_late_usage_of_april_is_billed_while_march_stays_dropped(sums: dict[str, Any]) -> None:
    drop.load_back(month=APRIL)
    assert late(a_job(ended="2026-04-05 12:00", **OF_APRIL)).revised == 1
    assert dropped() == [MARCH]
    assert prove() != sums
    assert checks.prove(full=True).holds


def test_april_changes_its_owner_while_march_stays_dropped(sums: dict[str, Any]) -> None:
    account, vision = Account.objects.get(name="speech"), Tenant.objects.exclude(slug="speech-lab").get()
    ownership.assign(account=account, tenant=vision, since=at("2026-04-05"))
    engine.rate_accounts([account.pk])
    assert dropped() == [MARCH]
    assert RatedJob.objects.get(job_id="5", gpu_units__gt=0).tenant == vision
    prove()


def test_a_row_of_march_and_of_april_is_refused_while_both_are_dropped(sums: dict[str, Any]) -> None:
    drop.load_back(month=APRIL)
    (row,) = [row for row in rows()["rated"] if row["record_id"] >> 40 == (2026 - 1970) * 12 + 2]
    drop.drop_month(month=APRIL, moment=NOW, all_processes_replaced=True)
    with (
        pytest.raises(DatabaseError, match="The rows of 2026-03 stand in the files"),
        transaction.atomic(),
        connection.cursor() as cursor,
    ):
        cursor.execute(
            "INSERT INTO billing_ratedusage SELECT (jsonb_populate_record(NULL::billing_ratedusage, %s)).*",
            [json.dumps(row)],
        )
