"""What is read from the files of dropped months is what it was before, however jobs ended up where they are."""

from __future__ import annotations

import re
from pathlib import Path
from threading import Timer
from typing import Any

import pytest
from django.db import connection, transaction

from billing.documents import issued
from billing.models import Evidence, Invoice, RatedJob
from billing.queries import job_parts, jobs, line_usage
from billing.rating import engine
from billing.sealed_months import drop, load, parquet, seal, shown_rows
from billing.tasks import render_document
from clusters import absent_records
from clusters.models import Account, Cluster
from portal.core.identifiers import write
from portal.core.tenants import ownership
from portal.core.tenants.models import Membership, Role, Tenant, User
from portal.core.tenants.scope import tenant_scope
from tests.api.door import door
from tests.builders import a_job, a_person, a_plan, a_tenant, at, ingest, own
from tests.scenarios.real import run
from tests.sealed_march import MARCH, NOW, enter_march
from tests.stories import close
from tests.web.house import signed_in
from tests.web.test_dropped_months_pages import APRIL, LIST, UNREAD, content_of, refusal, without_note

pytestmark = pytest.mark.django_db(transaction=True)  # what is shown of files goes as a transaction ends


@pytest.fixture(autouse=True)
def directory(settings: Any, tmp_path: Path) -> None:
    settings.CLUSTERTAB_SEALED_MONTHS = tmp_path / "sealed"


def a_lab(slug: str = "vision-lab") -> Tenant:
    return Tenant.objects.get(slug=slug)


def a_member(name: str, tenant: Tenant) -> User:
    person = a_person(f"{name}@{tenant.slug}.example", tenant, role=Role.MEMBER)
    Membership.objects.filter(user=person).update(scheduler_users=[name])
    return person


def sealed(*months: Any) -> None:
    may = a_job(job_id="9", user="ben", started="2026-05-05 10:00", ended="2026-05-05 11:00")
    ingest(Cluster.objects.get(), may, as_of="2026-05-06")
    close("2026-04", on="2026-05-03")
    for month in months or (MARCH,):
        seal.seal_month(month=month, moment=NOW, quiet_months=12)


def dropped(*months: Any) -> None:
    for month in months or (MARCH,):
        drop.drop_month(month=month, moment=NOW, all_processes_replaced=True)


@pytest.mark.parametrize("own_alone", [False, True])
def test_a_job_that_ran_into_a_month_that_is_not_dropped_costs_a_member_what_it_cost(own_alone: bool) -> None:
    enter_march()
    sealed()
    speech = a_lab("speech-lab")
    Tenant.objects.filter(pk=speech.pk).update(members_see_own=own_alone)
    eve = a_member("eve", speech)
    paths = [
        f"/t/speech-lab/jobs/{RatedJob.objects.get(job_id='2').record_id}/",
        "/t/speech-lab/jobs/?period=2026-03-01",
    ]
    before = [content_of(eve, path) for path in paths]
    assert b"$16.00" in before[0]  # eight hours, of which four are in April
    dropped()
    assert [without_note(content_of(eve, path)) for path in paths] == before


def test_the_largest_jobs_of_a_line_which_are_kept_are_named_as_before() -> None:
    enter_march()
    sealed()
    ann = a_person(tenant=a_lab())
    invoice = Invoice.objects.get(tenant=a_lab(), period_start__month=3)
    with transaction.atomic():
        line_usage.keep(invoice)
    path = f"/t/vision-lab/invoices/{invoice.number}/lines/1/"
    before = content_of(ann, path)
    dropped()
    assert content_of(ann, path) == before
    assert b"another tenant" not in before
    render_document(
        invoice_id=invoice.pk
    )  # which failed after that, once, and loads the month back for its evidence
    assert Evidence.objects.filter(invoice=invoice).exists()


def test_parts_in_other_dropped_months_are_named_as_not_counted() -> None:
    enter_march()
    pods = [
        a_job(job_id=f"team/train-{number}", name="train", source_key=f"a/train-{number}",
              started=f"2026-0{month}-05 10:00", ended=f"2026-0{month}-05 12:00")
        for number, month in enumerate((4, 4, 5))
    ]  # fmt: skip
    others = [
        a_job(job_id=f"team/other-{number}", name=f"other-{number}", source_key=f"b/{number}",
              started="2026-04-06 10:00", ended="2026-04-06 11:00")
        for number in range(20)
    ]  # fmt: skip
    ingest(Cluster.objects.get(), *pods, *others, as_of="2026-05-06")
    sealed(MARCH, APRIL)
    ann = a_person(tenant=a_lab())
    records = [RatedJob.objects.get(job_id=f"team/train-{number}").record_id for number in range(3)]
    before = content_of(ann, f"{LIST}{records[0]}/")
    dropped(MARCH, APRIL)
    note = b"Parts of this job of 2026-03, if there are any, are not counted"
    april = content_of(ann, f"{LIST}{records[0]}/")
    assert note in april
    assert april.count(b"train-1") == before.count(b"train-1")
    assert b"Parts of this job of 2026-03, 2026-04" in content_of(ann, f"{LIST}{records[2]}/")
    answer = door(ann, a_lab()).get(f"/jobs/{write('job', records[2])}")
    assert answer.headers["X-Months-In-Files"] == "2026-03, 2026-04"
    with tenant_scope(a_lab()):
        absent_records.show_record(APRIL, records[0])
        assert RatedJob.objects.filter(tenant=a_lab()).count() == 4  # that of May is in its table
    longer = a_job(job_id="team/train-0", name="train", source_key="a/train-0",
                   started="2026-04-05 10:00", ended="2026-04-05 13:00")  # fmt: skip
    ingest(Cluster.objects.get(), longer, as_of="2026-05-07")
    assert note in content_of(
        ann, f"{LIST}{records[0]}/"
    )  # it is back alone, and the others are read from the file


def test_jobs_that_have_no_rated_usage_are_listed_as_before() -> None:
    enter_march()
    cluster = Cluster.objects.get()
    cores = a_tenant("cpu-lab", plan=a_plan("cpus"), accounts=[(cluster, "cpu")])
    work = {"gpus": 0, "cpu_milli": 4_000, "memory_mib": 1_024}
    late = {"submitted": "2026-03-30 10:00", "started": "2026-04-04 10:00", "ended": "2026-04-04 11:00"}
    ingest(
        cluster,
        a_job(job_id="c1", account="cpu", user="joe", **work),
        a_job(job_id="c2", account="cpu", user="joe", **work, **late),
        as_of="2026-04-06",
    )
    close("2026-03", cores, on="2026-04-07")
    sealed()
    joe = a_person("joe@cpu.example", cores)
    paths = ["/t/cpu-lab/jobs/?period=2026-03-01", "/t/cpu-lab/jobs/?period=2026-04-01"]
    before = [content_of(joe, path) for path in paths]
    assert (b">c1</a>" in before[0], b">c2</a>" in before[1]) == (True, True)
    dropped()
    assert [content_of(joe, path) for path in paths] == before
    assert b"Jobs of 2026-03 are not listed" in content_of(joe, "/t/cpu-lab/jobs/")
    assert "2026-03" in refusal(joe, "/t/cpu-lab/jobs/csv")
    other = a_person("new@new.example", a_tenant("new-lab", plan=a_plan("new")))
    assert b"are not listed" not in content_of(other, "/t/new-lab/jobs/")


@pytest.mark.parametrize("how", ["moved", "zeroed", "half"])
def test_documents_of_usage_that_was_taken_back_say_what_they_said(how: str) -> None:
    enter_march()
    lab, speech, cluster = a_lab(), a_lab("speech-lab"), Cluster.objects.get()
    first = Invoice.objects.get(tenant=lab, period_start__month=3)
    issued.keep(first, moment=NOW)
    account = Account.objects.get(name="vision")
    if how == "zeroed":
        ingest(
            cluster,
            a_job(job_id="1", user="ben", gpus=4, started="2026-03-02 10:00", ended="2026-03-02 10:00"),
            as_of="2026-05-01",
        )
    else:
        ownership.assign(
            account=account, tenant=speech, since=at("2026-03-01" if how == "moved" else "2026-03-02 11:00")
        )
        engine.rate_accounts([account.pk])
    own(lab, cluster, "vision2")
    ingest(
        cluster,
        a_job(job_id="55", account="vision2", gpus=32, started="2026-04-05 10:00", ended="2026-04-05 20:00"),
        as_of="2026-05-02",
    )
    close("2026-04", on="2026-05-03")
    people = {"vision-lab": a_person(tenant=lab), "speech-lab": a_person("eve@speech.example", speech)}
    invoices = list(Invoice.objects.exclude(number=None).select_related("tenant"))
    paths = [(people[one.tenant.slug], f"/t/{one.tenant.slug}/invoices/{one.number}/csv") for one in invoices]
    paths += [
        (person, f"/t/{slug}/{path}")
        for slug, person in people.items()
        for path in (
            "exports/focus?period=2026-03",
            "exports/focus?period=2026-04",
            "jobs/?period=2026-03-01",
        )
    ]
    paths.append((people["vision-lab"], f"/t/vision-lab/invoices/{first.number}/evidence"))
    before = [content_of(*path) for path in paths]
    explained = [run("explain_invoice", str(one.number)) for one in invoices]
    seal.seal_month(month=MARCH, moment=NOW, quiet_months=12)
    dropped()
    for path, text in zip(paths, before, strict=True):
        assert content_of(*path) == text, path
    assert [run("explain_invoice", str(one.number)) for one in invoices] == explained


def test_months_that_come_back_one_by_one_change_no_page() -> None:
    enter_march()
    april = a_job(
        job_id="56", account="speech", user="eve", started="2026-04-05 10:00", ended="2026-04-05 20:00"
    )
    ingest(Cluster.objects.get(), april, as_of="2026-05-02")
    sealed(MARCH, APRIL)
    eve = a_person("eve@speech.example", a_lab("speech-lab"))
    paths = [
        f"/t/speech-lab/jobs/{RatedJob.objects.get(job_id='2').record_id}/",
        "/t/speech-lab/jobs/?period=2026-03-01",
        "/t/speech-lab/jobs/?from=2026-04-01&through=2026-04-30&totals=1",
        "/t/speech-lab/exports/focus?period=2026-04",
    ]
    before = [content_of(eve, path) for path in paths]
    dropped(MARCH, APRIL)
    for back in (MARCH, APRIL):
        drop.load_back(month=back)
        assert [without_note(content_of(eve, path)) for path in paths] == before
        dropped(back)


def failing(lab: Tenant) -> None:
    with tenant_scope(lab):
        absent_records.show([MARCH])
        raise ZeroDivisionError


def test_statements_that_a_session_has_prepared_mean_the_tables_before_and_after() -> None:
    enter_march()
    sealed()
    lab = a_lab()

    def costs() -> Any:
        rows = RatedJob.objects.runs().filter(tenant=lab).order_by("record_id").select_related("project")
        march = lab.periods.get(start__month=3)
        return [(job.number, job.cost) for job in jobs.costed(lab, list(rows))], [
            job.number for job in job_parts.top_jobs(lab, march, limit=9)
        ]

    with tenant_scope(lab):
        (whole, *_) = [costs() for _ in range(12)]
    dropped()
    for _ in range(2):
        with tenant_scope(lab):
            less = [costs() for _ in range(8)][-1]
            absent_records.show([MARCH])
            assert [costs() for _ in range(8)] == [whole] * 8
        with pytest.raises(ZeroDivisionError):
            failing(lab)
        with tenant_scope(lab):
            assert costs() == less
    assert less != whole


def test_a_download_that_is_closed_half_way_leaves_nothing_behind() -> None:
    enter_march()
    sealed()
    ann = a_person(tenant=a_lab())
    dropped()
    response: Any = signed_in(ann).get(f"{LIST}csv?period=2026-03-01")
    next(iter(response.streaming_content))
    response.close()
    with connection.cursor() as cursor:
        cursor.execute("SELECT to_regclass('pg_temp.shown_job'), current_setting('role')")
        assert cursor.fetchone() == (None, "none")


@pytest.mark.parametrize("most", [0, 50_000])
def test_a_download_is_the_same_however_many_jobs_pass_at_once(
    most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    enter_march()
    april = a_job(job_id="4", started="2026-04-10 10:00", ended="2026-04-10 11:00")
    ingest(Cluster.objects.get(), april, as_of="2026-04-20")
    sealed(MARCH, APRIL)
    ann, path = a_person(tenant=a_lab()), "/t/vision-lab/jobs/csv?from=2026-03-01&through=2026-04-30"
    before = content_of(ann, path)
    dropped(MARCH, APRIL)
    monkeypatch.setattr(shown_rows, "MOST", most)
    copied, copy = [], load.copy_further

    def copied_further(cursor: Any, rows: Path) -> str:
        copied.append(rows)
        return copy(cursor, rows)

    monkeypatch.setattr(load, "copy_further", copied_further)
    assert content_of(ann, path) == before
    assert b"2026-03-02T" in before
    assert b"2026-04-10T" in before
    assert len(copied) == (1 if most else 6)


def test_a_search_that_reads_no_file_keeps_no_page_from_reading_one(monkeypatch: pytest.MonkeyPatch) -> None:
    enter_march()
    sealed()
    jobs_of_march = RatedJob.objects.filter(tenant=a_lab(), started__lt=at("2026-04-01").timestamp()).count()
    dropped()
    monkeypatch.setattr(absent_records, "SEARCHED", 0)
    with tenant_scope(a_lab()):
        assert absent_records.show_numbered("1", most=5) == [MARCH]
        absent_records.show([MARCH])
        assert jobs_shown() == jobs_of_march > 0


def jobs_shown() -> int:
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM billing_ratedjob WHERE started < 1775001600")
        return int(cursor.fetchone()[0])


def test_few_wait_for_files_and_who_has_no_job_in_them_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    enter_march()
    sealed()
    ann, other = (
        a_person(tenant=a_lab()),
        a_person("new@new.example", a_tenant("new-lab", plan=a_plan("new"))),
    )
    dropped()
    monkeypatch.setattr(shown_rows, "PATIENCE", 0)
    with shown_rows._ONE_AT_A_TIME:
        assert UNREAD in refusal(ann, f"{LIST}?period=2026-03-01")
    for _ in range(3):
        shown_rows._WAITING.acquire()
    assert UNREAD in refusal(ann, f"{LIST}csv?period=2026-03-01")  # before anything is sent
    Timer(0.5, shown_rows._WAITING.release, [3]).start()
    with tenant_scope(a_lab()):
        absent_records.show([MARCH], most=None)  # of a file that has begun, which waits
        assert RatedJob.objects.filter(tenant=a_lab()).exists()
    programs: list[Any] = []
    monkeypatch.setattr(parquet, "program", programs.append)
    listed = content_of(other, "/t/new-lab/jobs/?from=2026-03-01&through=2026-03-31")
    assert (re.search(rb"No job", listed) is not None, programs) == (True, [])


@pytest.mark.parametrize("table", ["billing_ratedjob", "billing_ratedusage"])
def test_rows_that_are_shown_are_looked_up_by_their_number(table: str) -> None:
    """Or each of many jobs behind a line would be looked for among all of them."""
    enter_march()
    sealed()
    dropped()
    with tenant_scope(a_lab()), connection.cursor() as cursor:
        absent_records.show([MARCH])
        for way in ("seqscan", "hashjoin", "mergejoin", "material"):  # which are better for few rows
            cursor.execute(f"SET LOCAL enable_{way} = off")
        cursor.execute(
            f"EXPLAIN SELECT * FROM unnest('{{1,2}}'::bigint[]) n LEFT JOIN {table} r ON r.record_id = n"
        )
        plan = "\n".join(line for (line,) in cursor.fetchall())
    assert re.search(r"Index Scan .* on shown_\w+.*\n *Index Cond: .*record_id = n\.n", plan), plan
