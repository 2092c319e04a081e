"""Pages and the API say in a sentence which rows stand in files: never a wrong number, never less without a word."""

from __future__ import annotations

import re
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from django.db import connection

from billing.documents import issued
from billing.models import Invoice, RatedJob, SealedFile
from billing.sealed_months import drop, seal, shown_rows
from clusters.absent_records import MOST
from clusters.models import Cluster
from portal.core.identifiers import write
from portal.core.tenants.models import Membership, Role, Tenant, User
from portal.core.tenants.scope import tenant_scope
from tests.api.door import door
from tests.builders import a_job, a_person, an_operator, ingest
from tests.hostile.filters import filters_removed
from tests.scenarios.real import run
from tests.sealed_march import MARCH, NOW, enter_march, sealed
from tests.stories import close
from tests.web.house import page, signed_in

pytestmark = pytest.mark.django_db(transaction=True)  # what is shown of files goes as a transaction ends

APRIL = date(2026, 4, 1)
LIST = "/t/vision-lab/jobs/"
UNREAD = "The rows of 2026-03 are only in the files of sealed months, which cannot be read here now."
SENTENCE = "The rows of 2026-03 are only in the files of sealed months."
LEFT_OUT = "Jobs of 2026-03 are not listed: they are only in the files of sealed months."


@pytest.fixture(autouse=True)
def directory(settings: Any, tmp_path: Path) -> None:
    settings.CLUSTERTAB_SEALED_MONTHS = tmp_path / "sealed"


@pytest.fixture
def record() -> int:
    """A job of March, which is sealed and may be dropped; of May there are jobs in their tables."""
    enter_march()
    may = a_job(job_id="9", user="ben", started="2026-05-05 10:00", ended="2026-05-05 11:00")
    ingest(Cluster.objects.get(), may, as_of="2026-05-06")
    close("2026-04", on="2026-05-03")
    sealed()
    return int(RatedJob.objects.get(job_id="1").record_id)


def dropped() -> None:
    drop.drop_month(month=MARCH, moment=NOW, all_processes_replaced=True)


@pytest.fixture
def ann(record: int) -> User:
    return a_person(tenant=Tenant.objects.get(slug="vision-lab"))


def refusal(person: User, path: str) -> str:
    response = signed_in(person).get(path)
    assert response.status_code == 409, (path, response.status_code)
    return response.content.decode()


def content_of(person: User, path: str) -> bytes:
    """What a page or file says, without what is another each time."""
    response: Any = signed_in(person).get(path)
    assert response.status_code == 200, (path, response.status_code)
    content = b"".join(response.streaming_content) if response.streaming else response.content
    return b" ".join(re.sub(rb'nonce="[^"]*"|name="csrfmiddlewaretoken" value="[^"]*"', b"", content).split())


def without_note(text: bytes) -> bytes:
    """Of a job that is read from files."""
    return re.sub(rb'<p class="alert" role="status">The energy of this job, .*?</p> ', b"", text)


def paths_of_march(record: int) -> list[str]:
    invoice = f"/t/vision-lab/invoices/{Invoice.objects.get(tenant__slug='vision-lab', period_start__month=3).number}"
    return [
        f"{LIST}{record}/",
        f"{LIST}?period=2026-03-01",
        f"{LIST}?period=2026-03-01&sort=cost&totals=1",
        f"{LIST}?period=2026-03-01&sort=gpu-hours&user=ben",
        f"{LIST}?from=2026-03-01&through=2026-05-31",
        *(f"{LIST}?from=2026-03-01&through=2026-03-31&state={word}" for word in ("COMPLETED", "Completed")),
        f"{LIST}csv?period=2026-03-01",
        f"{invoice}/lines/1/",
        f"{invoice}/lines/1/csv",
        f"{invoice}/csv",
        "/t/vision-lab/exports/focus?period=2026-03",
        "/t/vision-lab/exports/focus?period=2026-03&format=parquet",
    ]


@pytest.mark.sample
def test_pages_and_files_say_of_a_dropped_month_what_they_said_before(ann: User, record: int) -> None:
    paths = paths_of_march(record)
    before = {path: content_of(ann, path) for path in paths}
    assert b">1</a>" in before[f"{LIST}?period=2026-03-01"]
    assert [b">1</a>" in before[path] for path in paths if "state=" in path] == [True, False]
    dropped()
    for path in paths:
        assert without_note(content_of(ann, path)) == before[path], path
    assert b"are not shown: rows of its months" in content_of(ann, paths[0])
    with connection.cursor() as cursor:
        cursor.execute("SELECT to_regclass('pg_temp.billing_ratedjob')")
        assert cursor.fetchone() == (None,)


def test_the_evidence_of_an_invoice_is_made_of_the_files_and_is_what_was_signed(
    ann: User, record: int, tmp_path: Path
) -> None:
    invoice = Invoice.objects.get(tenant__slug="vision-lab", period_start__month=3)
    issued.keep(invoice, moment=NOW)
    path = f"/t/vision-lab/invoices/{invoice.number}/evidence"
    before = content_of(ann, path)
    dropped()
    assert content_of(ann, path) == before
    run("export_evidence", str(invoice.number), str(tmp_path / "evidence.zip"))
    assert (tmp_path / "evidence.zip").read_bytes() == signed_in(ann).get(path).getvalue()
    explained = run("explain_invoice", str(invoice.number))
    drop.load_back(month=MARCH)
    assert run("explain_invoice", str(invoice.number)) == explained


def test_a_member_who_sees_their_own_usage_alone_sees_it_and_no_more_in_files(record: int) -> None:
    lab = Tenant.objects.get(slug="vision-lab")
    Tenant.objects.filter(pk=lab.pk).update(members_see_own=True)
    people = [a_person(f"{name}@vision.example", lab, role=Role.MEMBER) for name in ("ben", "mia")]
    for person, name in zip(people, ("ben", "mia"), strict=True):
        Membership.objects.filter(user=person).update(scheduler_users=[name])
    ben, mia = people
    page_of_it, period = f"{LIST}{record}/", f"{LIST}?period=2026-03-01"
    before = content_of(ben, page_of_it), content_of(ben, period)
    dropped()
    assert (without_note(content_of(ben, page_of_it)), content_of(ben, period)) == before
    assert b">1</a>" in before[1]
    assert signed_in(mia).get(page_of_it).status_code == 404
    assert b"No job matches." in content_of(mia, period)


def test_a_job_that_ran_into_a_month_that_is_dropped_too_costs_what_it_cost() -> None:
    enter_march()
    speech, cluster = Tenant.objects.get(slug="speech-lab"), Cluster.objects.get()
    april = {
        "started": "2026-04-05 10:00",
        "ended": "2026-04-05 11:00",
        "cpu_milli": 4_000,
        "memory_mib": 8_192,
    }
    ingest(cluster, a_job(job_id="7", account="speech", **april), as_of="2026-05-02")
    close("2026-04", on="2026-05-03")
    eve = a_person("eve@speech.example", speech)
    paths = [
        f"/t/speech-lab/jobs/{RatedJob.objects.get(job_id='2').record_id}/",
        f"/t/speech-lab/jobs/{RatedJob.objects.get(job_id='7').record_id}/",
        "/t/speech-lab/jobs/?period=2026-04-01&sort=cost&totals=1",
        "/t/speech-lab/jobs/?from=2026-04-01&through=2026-04-30",
    ]
    before = [content_of(eve, path) for path in paths]
    assert b"8.00" in before[0]
    assert before[1].count(b"not charged by this plan") == 2  # cores and memory
    for month in (MARCH, APRIL):
        seal.seal_month(month=month, moment=NOW, quiet_months=12)
    for month in (MARCH, APRIL):
        drop.drop_month(month=month, moment=NOW, all_processes_replaced=True)
    assert [without_note(content_of(eve, path)) for path in paths] == before


@pytest.mark.sample
def test_eve_sees_nothing_of_others_whatever_file_the_door_is_given(
    record: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    speech, lab = Tenant.objects.get(slug="speech-lab"), Tenant.objects.get(slug="vision-lab")
    eve = a_person("eve@speech.example", speech)
    dropped()
    for number in (record, record + 77):
        assert signed_in(eve).get(f"/t/speech-lab/jobs/{number}/").status_code == 404
    assert signed_in(eve).get(f"{LIST}{record}/").status_code == 404
    assert b">2</a>" in content_of(eve, "/t/speech-lab/jobs/?period=2026-03-01")
    files = list(SealedFile.objects.select_related("month").filter(tenant=lab)) + list(
        SealedFile.objects.select_related("month").filter(tenant=None)
    )
    monkeypatch.setattr(shown_rows, "_files", lambda *_: files)
    assert signed_in(eve).get(f"/t/speech-lab/jobs/{record}/").status_code == 404
    assert b"No job matches." in content_of(eve, "/t/speech-lab/jobs/?period=2026-03-01")
    with tenant_scope(speech):
        shown_rows.show([MARCH], most=None)
        for table in ("shown_job", "shown_rated", "shown_run"):
            with connection.cursor() as cursor:
                cursor.execute(f"ALTER TABLE {table} NO FORCE ROW LEVEL SECURITY")  # which would hide them
                cursor.execute(f"SELECT count(*) FROM {table}")
                assert cursor.fetchone() == (0,)


def test_with_every_filter_by_tenant_forgotten_eve_finds_nothing_of_others_in_the_files(record: int) -> None:
    eve = a_person("eve@speech.example", Tenant.objects.get(slug="speech-lab"))
    number = Invoice.objects.get(tenant__slug="vision-lab", period_start__month=3).number
    dropped()
    with filters_removed() as removed:
        for path in (
            "jobs/?period=2026-03-01",
            "jobs/?from=2026-03-01&through=2026-05-31&sort=cost",
            "jobs/csv?period=2026-03-01",
            "exports/focus?period=2026-03",
        ):
            text = content_of(eve, f"/t/speech-lab/{path}")
            assert b"train" not in text, path
            assert b"ben" not in text, path
        for path in (f"jobs/{record}/", f"invoices/{number}/lines/1/csv", f"invoices/{number}/evidence"):
            assert signed_in(eve).get(f"/t/speech-lab/{path}").status_code == 404, path
    assert removed.count > 10


@pytest.mark.sample
def test_a_missing_file_is_a_sentence_on_the_pages_that_need_it_alone(
    ann: User, record: int, tmp_path: Path
) -> None:
    dropped()
    (tmp_path / "sealed" / "2026-03" / f"tenant-{ann.memberships.get().tenant_id}" / "jobs.parquet").unlink()
    for path in paths_of_march(record):
        assert UNREAD in refusal(ann, path), path
    assert ">9</a>" in page(ann, LIST)


def test_more_jobs_than_a_page_reads_are_a_sentence_and_a_file_has_them(ann: User, record: int) -> None:
    csv = f"{LIST}csv?period=2026-03-01"
    before = content_of(ann, csv)
    dropped()
    SealedFile.objects.filter(kind="jobs").update(rows=MOST + 1)
    assert SENTENCE in refusal(ann, f"{LIST}?period=2026-03-01")
    assert content_of(ann, csv) == before
    assert signed_in(ann).get(f"{LIST}{record}/").status_code == 200


def test_a_german_reader_is_told_in_german(ann: User, record: int) -> None:
    User.objects.filter(pk=ann.pk).update(language="de")
    dropped()
    assert (
        "Zeilen seiner Monate stehen nur noch in den Dateien versiegelter Monate."
        in content_of(ann, f"{LIST}{record}/").decode()
    )
    SealedFile.objects.filter(kind="jobs").update(rows=MOST + 1)
    assert "Die Zeilen aus 2026-03 stehen nur noch" in refusal(ann, f"{LIST}?period=2026-03-01")


def test_an_operator_who_looks_at_a_tenant_makes_no_table(record: int) -> None:
    dropped()
    client = signed_in(an_operator())
    client.post("/operator/tenants/vision-lab/look/", {"reason": "ticket 4711"})
    response = client.get(f"{LIST}?period=2026-03-01")
    assert (response.status_code, SENTENCE in response.content.decode()) == (409, True)


def test_a_list_of_all_jobs_says_which_are_not_in_it(ann: User) -> None:
    dropped()
    text = page(ann, LIST)
    assert LEFT_OUT in text
    assert ">9</a>" in text
    assert LEFT_OUT not in page(ann, LIST + "?from=2026-05-01&through=2026-05-31")
    assert SENTENCE in refusal(ann, f"{LIST}csv")


def test_the_export_of_another_month_is_whole(ann: User) -> None:
    dropped()
    assert content_of(ann, "/t/vision-lab/exports/focus?period=2026-05").startswith(b"BilledCost,")


def test_the_overview_of_its_period_has_every_sum_and_says_what_it_does_not_list(ann: User) -> None:
    dropped()
    text = page(ann, "/t/vision-lab/?period=2026-03-01")
    assert LEFT_OUT in text
    assert "$20.00" in text or "20.00" in text


def test_operators_see_that_unassigned_usage_is_not_all(record: int) -> None:
    dropped()
    assert "Usage of 2026-03 is not listed" in page(an_operator(), "/operator/unassigned/")


def test_programs_are_told_the_same(ann: User, record: int) -> None:
    api = door(ann, Tenant.objects.get(slug="vision-lab"))
    of_march, one = "/jobs?from=2026-03-01T00:00:00Z", f"/jobs/{write('job', record)}"
    before = [api.get(path).body for path in (of_march, one)]
    assert [job["job_id"] for job in before[0]["data"]] == ["9", "4", "1"]
    dropped()
    assert [api.get(path).body for path in (of_march, one)] == before
    answer = api.get("/jobs")
    assert [job["job_id"] for job in answer.body["data"]] == ["9"]
    assert answer.headers["X-Months-In-Files"] == "2026-03"
    assert "X-Months-In-Files" not in api.get("/jobs?from=2026-05-01T00:00:00Z").headers
    SealedFile.objects.filter(kind="jobs").update(rows=MOST + 1)
    refused = api.get(of_march)
    assert (refused.status, refused.body["code"]) == (409, "rows-in-files")
    assert SENTENCE in refused.body["detail"]
