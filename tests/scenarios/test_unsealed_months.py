"""Rows that were lost since a month was sealed come back, whatever else of it has changed meanwhile."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from django.db import transaction

from billing.documents import job_users
from billing.models import JobUser
from billing.sealed_months import unseal
from billing.sealed_months.rows_sql import KINDS
from clusters.models import Cluster, UsageRecord
from portal.core.tenants.models import Tenant
from tests.builders import a_cluster, a_job, a_plan, a_tenant, ingest, own
from tests.owner import as_owner
from tests.sealed_march import MARCH, enter_march, rows, sealed
from tests.stories import close

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def directory(settings: Any, tmp_path: Path) -> None:
    settings.CLUSTERTAB_SEALED_MONTHS = tmp_path / "sealed"


@pytest.fixture
def books() -> None:
    enter_march()


def lose(job: str) -> None:
    """What there is of one job is gone."""
    record = UsageRecord.objects.get(job_id=job).pk
    with as_owner() as owner:
        for kind in KINDS:
            if kind.name != "revisions":
                owner.execute(f"ALTER TABLE {kind.table} DISABLE TRIGGER USER")
                owner.execute(f"DELETE FROM {kind.table} WHERE {kind.record} = %s", [record])
                owner.execute(f"ALTER TABLE {kind.table} ENABLE TRIGGER USER")


@pytest.mark.sample
def test_a_lost_job_comes_back_though_another_was_corrected_since(books: None) -> None:
    sealed()
    late = a_job(
        job_id="2", user="eva", account="speech", started="2026-03-31 20:00", ended="2026-04-01 05:00"
    )
    ingest(Cluster.objects.get(), late, as_of="2026-04-03")
    before = rows()
    lose("4")
    lose("1")
    assert unseal.unseal_month(month=MARCH) == {"records": 2, "revisions": 0, "jobs": 2, "rated": 3}
    assert rows() == before


def test_a_lost_job_comes_back_though_one_of_two_tenants_of_another_erased_its_name() -> None:
    cluster = a_cluster(complete_through="2026-04-02")
    vision = a_tenant(plan=a_plan(), accounts=[(cluster, "vision")])
    speech = a_tenant("speech-lab", plan=a_plan("speech"))
    own(speech, cluster, "vision", since="2026-03-02 11:00")
    ingest(
        cluster,
        a_job(job_id="1", started="2026-03-02 10:00", ended="2026-03-02 12:00"),
        a_job(job_id="2", user="ann", started="2026-03-02 12:00", ended="2026-03-02 13:00"),
        as_of="2026-04-02",
    )
    close("2026-03", vision, speech, on="2026-04-03")
    sealed()
    with transaction.atomic():
        job_users.erase_users(Tenant.objects.select_for_update().get(pk=vision.pk), names=["ben"])
    assert UsageRecord.objects.get(job_id="1").user == "ben"
    before = rows()
    lose("2")
    assert unseal.unseal_month(month=MARCH)["jobs"] == 1
    assert rows() == before


def test_a_lost_job_comes_back_though_one_of_nobody_was_assigned_since(books: None) -> None:
    sealed()
    vision = Tenant.objects.get(slug="vision-lab")
    own(vision, Cluster.objects.get(), "nobody")
    JobUser.objects.create(tenant=vision, name="zoë")
    before = rows()
    lose("1")
    assert unseal.unseal_month(month=MARCH)["records"] == 1
    assert rows() == before


def test_a_job_that_is_another_tenants_since_is_not_loaded_again(books: None) -> None:
    sealed()
    own(Tenant.objects.get(slug="speech-lab"), Cluster.objects.get(), "vision", since="2026-03-01 00:00")
    before = rows()
    assert sum(unseal.unseal_month(month=MARCH).values()) == 0
    assert rows() == before
