"""A late fact of one pod of a job: what pages say of its other pods, which stand in the file of a dropped month."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from billing.documents import evidence_usage
from billing.models import Invoice, RatedJob
from billing.rating import ingest as usage_ingest
from billing.sealed_months import drop
from clusters.connectors.base import Reading, UsageFact
from clusters.models import Cluster, UsageRecord
from portal.core.identifiers import write
from portal.core.tenants.models import Tenant, User
from portal.core.tenants.scope import tenant_scope
from tests.api.door import door
from tests.builders import a_job, a_person, at, ingest
from tests.sealed_march import MARCH, enter_march
from tests.stories import close, prove
from tests.web.test_dropped_months_pages import APRIL, content_of, without_note
from tests.web.test_dropped_months_read import a_lab, a_member, dropped, sealed

pytestmark = pytest.mark.django_db(transaction=True)  # what is shown of files goes as a transaction ends


@pytest.fixture(autouse=True)
def directory(settings: Any, tmp_path: Path) -> None:
    settings.CLUSTERTAB_SEALED_MONTHS = tmp_path / "sealed"


def a_pod(number: int, *, ended: str = "12:00", user: str = "ben", **fields: Any) -> UsageFact:
    """One of a training of 5 April."""
    return a_job(job_id=f"team/train-{number}", name="train", source_key=f"uid-{number}", user=user,
                 started="2026-04-05 10:00", ended=f"2026-04-05 {ended}", **fields)  # fmt: skip


@pytest.fixture
def ann() -> User:
    """Four pods of one job, and one of another of the same name space."""
    enter_march()
    other = a_job(job_id="team/other-0", name="other", source_key="other", user="ben",
                  started="2026-04-05 10:00", ended="2026-04-05 12:00")  # fmt: skip
    ingest(Cluster.objects.get(), *(a_pod(number) for number in range(4)), other, as_of="2026-05-02")
    sealed(MARCH, APRIL)
    return a_person(tenant=a_lab())


def late(*rows: UsageFact) -> Any:
    return usage_ingest.ingest(
        cluster=Cluster.objects.get(), rows=rows, reading=Reading(), source="late", moment=at("2031-07-01")
    ).stored


FACTS = {
    "longer": (a_pod(1, ended="13:00"), b"$18.00"),
    "of no second": (a_pod(1, ended="10:00"), b"$12.00"),
    "a fifth pod": (a_pod(4, ended="14:00"), b"$24.00"),
}


def said(person: User, path: str) -> bytes:
    """Without what is said of months that are in files: that energy is not shown, and which parts are not counted."""
    return re.sub(
        rb'<p class="alert" role="status">Parts of this job .*?</p> ',
        b"",
        without_note(content_of(person, path)),
    )


@pytest.mark.parametrize("name", FACTS)
def test_pages_of_the_job_and_of_each_pod_say_what_they_say_once_all_rows_are_back(
    ann: User, name: str
) -> None:
    fact, cost = FACTS[name]
    records = dict(RatedJob.objects.values_list("job_id", "record_id"))
    dropped(MARCH, APRIL)
    stored = late(fact)
    assert stored.new + stored.revised == 1
    prove()
    late_pod = UsageRecord.objects.get(source_key=fact.source_key).pk
    pods = [late_pod, records["team/train-0"], records["team/train-3"], records["team/other-0"]]
    paths = [
        *(f"/t/vision-lab/jobs/{record}/" for record in pods),
        "/t/vision-lab/jobs/?period=2026-04-01&totals=1",
        "/t/vision-lab/jobs/?from=2026-04-01&through=2026-04-30&totals=1",
        "/t/vision-lab/jobs/csv?period=2026-04-01",
    ]
    now = [said(ann, path) for path in paths]
    api = [door(ann, a_lab()).get(f"/jobs/{write('job', record)}").body for record in pods]
    for text in (*now[:3], *now[4:6]):
        assert cost in text
    for month in (MARCH, APRIL):
        drop.load_back(month=month)
    assert [said(ann, path) for path in paths] == now
    assert [door(ann, a_lab()).get(f"/jobs/{write('job', record)}").body for record in pods] == api


def test_a_member_sees_their_own_pods_alone(ann: User) -> None:
    Tenant.objects.filter(slug="vision-lab").update(members_see_own=True)
    kim = a_member("kim", a_lab())
    dropped(MARCH, APRIL)
    late(a_pod(1, ended="13:00", user="kim"))
    pod = UsageRecord.objects.get(source_key="uid-1").pk
    path = f"/t/vision-lab/jobs/{pod}/"
    text = said(kim, path)
    assert (b"$6.00" in text, b"train-0" in text) == (True, False)
    for month in (MARCH, APRIL):
        drop.load_back(month=month)
    assert said(kim, path) == text


def test_its_page_names_the_month_of_the_others_where_the_file_is_missing(ann: User, tmp_path: Path) -> None:
    dropped(MARCH, APRIL)
    late(FACTS["longer"][0])
    pod = UsageRecord.objects.get(source_key="uid-1").pk
    for file in (tmp_path / "sealed" / "2026-04").rglob("jobs.parquet"):
        file.unlink()
    text = content_of(ann, f"/t/vision-lab/jobs/{pod}/")
    assert b"Parts of this job of 2026-03, 2026-04, if there are any, are not counted" in text
    assert b"$6.00" in text


def test_documents_and_evidence_have_each_pod_once(ann: User) -> None:
    for name, on in (("2026-05", "2026-06-03"), ("2026-06", "2026-07-03")):
        ingest(Cluster.objects.get(), as_of=on)
        close(name, on=on)
    dropped(MARCH, APRIL)
    late(FACTS["longer"][0])
    ingest(Cluster.objects.get(), as_of="2026-08-02")
    close("2026-07", on="2026-08-03")
    prove()
    invoices = Invoice.objects.issued().filter(tenant=a_lab()).order_by("pk")
    paths = [f"/t/vision-lab/invoices/{one.number}/csv" for one in invoices]
    now = [content_of(ann, path) for path in paths]
    usage = [evidence(one) for one in invoices]
    assert now[-1].count(b"team/train-1") == 1
    for month in (MARCH, APRIL):
        drop.load_back(month=month)
    assert [content_of(ann, path) for path in paths] == now
    assert [evidence(one) for one in invoices] == usage


def evidence(invoice: Invoice) -> bytes:
    """What each job used, as a page reads it."""
    with tenant_scope(invoice.tenant):
        return b"".join(evidence_usage.usage(list(invoice.lines.order_by("position"))))
