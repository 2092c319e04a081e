"""Rows that were lost since a month was sealed come back as they were, whatever else of it has changed meanwhile."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import duckdb
import pytest
from django.db import transaction

from billing.documents import job_users
from billing.models import JobUser
from billing.sealed_months import drop, rows_sql, unseal
from billing.sealed_months.rows_sql import KINDS
from clusters.models import Cluster, UsageRecord
from portal.core.tenants.models import Tenant
from tests.builders import a_cluster, a_job, a_plan, a_tenant, at, ingest, own
from tests.owner import as_owner
from tests.sealed_march import MARCH, NOW, enter_march, rows, sealed
from tests.stories import close, prove

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def directory(settings: Any, tmp_path: Path) -> Path:
    settings.CLUSTERTAB_SEALED_MONTHS = tmp_path / "sealed"
    return tmp_path / "sealed"


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


def filed_jobs(directory: Path) -> dict[str, tuple[int | None, int | None]]:
    """By number, when each job is shown and its GPU units, as its file has them."""
    sealed()
    files = [str(path) for path in directory.rglob("jobs.parquet")]
    filed = duckdb.execute("SELECT job_id, shown_at, gpu_units FROM read_parquet($1)", [files])
    return {job: (shown_at, units) for job, shown_at, units in filed.fetchall()}


def test_a_file_has_neither_when_a_job_is_shown_nor_its_units_where_its_other_columns_say_it(
    books: None, directory: Path
) -> None:
    assert filed_jobs(directory) == {"1": (None, None), "2": (None, None), "4": (None, None)}


def test_of_a_job_of_two_tenants_each_ones_file_has_its_own_units(directory: Path) -> None:
    cluster = a_cluster(complete_through="2026-04-02")
    vision, speech = a_tenant(plan=a_plan()), a_tenant("speech-lab", plan=a_plan("speech"))
    own(vision, cluster, "vision", until="2026-03-02 11:00")
    own(speech, cluster, "vision", since="2026-03-02 11:00")
    ran = a_job(job_id="1", gpus=2, started="2026-03-02 10:00", ended="2026-03-02 13:00")
    ingest(cluster, ran, as_of="2026-04-02")
    close("2026-03", vision, speech, on="2026-04-03")
    before = rows()
    sealed()
    files = [str(path) for path in directory.rglob("jobs.parquet")]
    filed = duckdb.execute("SELECT shown_at, gpu_units FROM read_parquet($1) ORDER BY tenant_id", [files])
    assert filed.fetchall() == [(None, 2 * 3_600), (None, 2 * 7_200)]
    lose("1")
    assert unseal.unseal_month(month=MARCH)["jobs"] == 2
    assert rows() == before


@pytest.mark.parametrize("is_dropped", [False, True])
def test_older_files_have_both_and_are_read_alike(
    books: None, directory: Path, monkeypatch: pytest.MonkeyPatch, is_dropped: bool
) -> None:
    ingest(Cluster.objects.get(), as_of="2026-05-02")
    close("2026-04", on="2026-05-03")
    sums, before = prove(), rows()
    with monkeypatch.context() as patched:
        patched.setitem(rows_sql._OUT, rows_sql.IMPLIED, '{t}."{c}"')
        assert filed_jobs(directory)["1"] == (int(at("2026-03-02 10:00").timestamp()), 4 * 9_000)
    if is_dropped:
        drop.drop_month(month=MARCH, moment=NOW, all_processes_replaced=True)
        assert prove() == sums
        drop.load_back(month=MARCH)
    else:
        lose("1")
        unseal.unseal_month(month=MARCH)
    assert rows() == before
    assert prove() == sums
