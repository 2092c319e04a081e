"""Pages of a dropped month with a late record say what they say once all rows are back: each job once."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from django.db import connection

from billing.models import RatedJob, RatedUsage, SealedMonth
from billing.rating import ingest as usage_ingest
from billing.sealed_months import drop
from clusters import absent_records
from clusters.connectors.base import Reading
from clusters.models import Cluster, UsageRecord
from portal.core.tenants.models import Tenant
from portal.core.tenants.scope import tenant_scope
from tests.builders import a_job, a_person, at, ingest
from tests.scenarios.test_late_records import APRIL, CHANGED, FIRST, LONGER, NEW
from tests.sealed_march import MARCH, enter_march
from tests.stories import prove
from tests.web.test_dropped_months_pages import UNREAD, content_of, refusal, without_note
from tests.web.test_dropped_months_read import a_lab, a_member, dropped, sealed

pytestmark = pytest.mark.django_db(transaction=True)  # what is shown of files goes as a transaction ends


@pytest.fixture(autouse=True)
def directory(settings: Any, tmp_path: Path) -> None:
    settings.CLUSTERTAB_SEALED_MONTHS = tmp_path / "sealed"


def late(*rows: Any) -> Any:
    return usage_ingest.ingest(
        cluster=Cluster.objects.get(), rows=rows, reading=Reading(), source="late", moment=at("2031-07-01")
    ).stored


@pytest.mark.parametrize("name", ["longer", "moved to another tenant", "of another user", "longer in April"])
def test_pages_show_a_late_record_once_and_to_whom_it_belongs(name: str) -> None:
    enter_march()
    april = a_job(
        job_id="5", account="speech", user="eve", started="2026-04-05 10:00", ended="2026-04-05 11:00"
    )
    ingest(Cluster.objects.get(), april, as_of="2026-05-02")
    sealed(MARCH, APRIL)
    vision, speech = a_lab(), a_lab("speech-lab")
    Tenant.objects.filter(pk=vision.pk).update(members_see_own=True)
    records = {job.job_id: job.record_id for job in RatedJob.objects.all()}
    ann, eve = a_person(tenant=vision), a_person("eve@speech.example", speech)
    ben, kim = a_member("ben", vision), a_member("kim", vision)
    dropped(MARCH, APRIL)
    assert late(CHANGED[name]).revised == 1
    asked = [
        (person, f"/t/{lab}/{page}")
        for person, lab in (
            (ann, "vision-lab"),
            (ben, "vision-lab"),
            (kim, "vision-lab"),
            (eve, "speech-lab"),
        )
        for page in (
            "jobs/?period=2026-03-01&totals=1",
            "jobs/?from=2026-04-01&through=2026-04-30&totals=1",
            "jobs/csv?period=2026-03-01",
        )
    ]
    job, owner, lab = ("2", eve, "speech-lab") if name == "longer in April" else ("1", ann, "vision-lab")
    asked.append(
        (eve, f"/t/speech-lab/jobs/{records['1']}/")
        if "moved" in name
        else (owner, f"/t/{lab}/jobs/{records[job]}/")
    )
    now = [without_note(content_of(*one)) for one in asked]
    assert UsageRecord.objects.exclude(job_id="9").count() == 1  # that of May was always there
    for month in (MARCH, APRIL):
        drop.load_back(month=month)
    assert [content_of(*one) for one in asked] == now


def test_who_reads_a_month_sees_each_row_once_while_one_of_its_records_comes_back() -> None:
    enter_march()
    sealed()
    jobs, rated = RatedJob.objects.filter(tenant__slug="vision-lab"), RatedUsage.objects.all()
    dropped(MARCH)

    def import_late() -> None:
        late(a_job(ended="2026-03-02 12:30", **{**FIRST, "name": "renamed"}))
        connection.close()

    with tenant_scope(a_lab()):
        absent_records.show([MARCH])
        own = jobs.count(), sum(rated.values_list("units", flat=True))
        with ThreadPoolExecutor(1) as somebody:
            somebody.submit(import_late).result()
        assert (jobs.count(), sum(rated.values_list("units", flat=True))) == own
        assert jobs.filter(name="renamed").count() == 1
    assert SealedMonth.objects.get(month=MARCH).dropped_at is not None
    prove()


def test_two_imports_of_the_same_late_facts_at_once_store_them_once() -> None:
    enter_march()
    sealed()
    dropped(MARCH)

    def import_late(number: int) -> tuple[int, int]:
        stored = late(LONGER, NEW)
        connection.close()
        return stored.new, stored.revised

    with ThreadPoolExecutor(2) as both:
        assert sorted(both.map(import_late, range(2))) == [(0, 0), (1, 1)]
    assert sorted(UsageRecord.objects.filter(pk__lt=(675 << 40)).values_list("job_id", flat=True)) == [
        "1",
        "7",
    ]
    assert SealedMonth.objects.get(month=MARCH).dropped_at is not None
    prove()


def test_a_download_whose_draft_corrects_a_dropped_month_is_refused_before_it_begins(
    tmp_path: Path,
) -> None:
    enter_march()
    sealed()
    ann = a_person(tenant=a_lab())
    dropped()
    assert late(LONGER).revised == 1
    draft = "/t/vision-lab/exports/focus?period=2026-05"
    assert b"2026-03-02T" in content_of(ann, draft)  # when the job of March began
    for file in (tmp_path / "sealed").rglob("jobs.parquet"):
        file.unlink()
    assert UNREAD in refusal(ann, draft)
