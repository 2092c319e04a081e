"""Jobs that never ran, of a dropped month: told again, or late, each is one job on every page."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from billing.models import InvoiceLine, RatedJob, SealedMonth
from billing.rating import ingest as usage_ingest
from billing.sealed_months import drop
from clusters.connectors.base import Reading, UsageFact
from clusters.models import Cluster, Quarantined, UsageRecord
from portal.core.tenants.models import User
from tests.builders import a_job, a_person, at, ingest
from tests.sealed_march import MARCH, enter_march
from tests.stories import close, prove
from tests.web.house import signed_in
from tests.web.test_dropped_months_pages import APRIL, content_of, without_note
from tests.web.test_dropped_months_read import a_lab, dropped, sealed

pytestmark = pytest.mark.django_db(transaction=True)  # what is shown of files goes as a transaction ends


def never_ran(number: str, *, submitted: str, ended: str, **fields: Any) -> UsageFact:
    """As schedulers tell of it: it begins in the second in which it ends."""
    named = {"job_id": number, "user": "ben", "state": "CANCELLED", **fields}
    return a_job(
        submitted=f"2026-{submitted} 10:00",
        started=f"2026-{ended} 10:00",
        ended=f"2026-{ended} 10:00",
        **named,
    )


WAITED = never_ran("20", submitted="03-20", ended="03-21")
INTO_APRIL = never_ran("21", submitted="03-30", ended="04-02")
OF_SPEECH = never_ran("22", submitted="03-20", ended="03-21", account="speech")
OF_NOBODY = never_ran("23", submitted="03-20", ended="03-21", account="nobody")
POD = never_ran("team/pod", submitted="03-20", ended="03-21", source_key="uid-of-a-pod")
ALL = (WAITED, INTO_APRIL, OF_SPEECH, OF_NOBODY, POD)
LATE = {
    "still waiting": a_job(job_id="32", user="ben", submitted="2026-03-20 10:00", started=None, ended=None,
                           state="PENDING"),
    "in March": never_ran("30", submitted="03-20", ended="03-21"),
    "into April": never_ran("31", submitted="03-30", ended="04-02"),
    "a pod": never_ran("team/late", submitted="03-20", ended="03-21", source_key="uid-of-a-late-pod"),
    "ended otherwise": never_ran("20", submitted="03-20", ended="03-22", state="TIMEOUT"),
    "ended in April": never_ran("20", submitted="03-20", ended="04-02"),
    "ended later": never_ran("21", submitted="03-30", ended="04-20"),
    "ran in March after all": a_job(job_id="20", user="ben", submitted="2026-03-20 10:00",
                                    started="2026-03-21 10:00", ended="2026-03-21 12:00"),
    "ran in April after all": a_job(job_id="21", user="ben", submitted="2026-03-30 10:00",
                                    started="2026-04-02 10:00", ended="2026-04-02 12:00"),
    "a pod ran after all": a_job(job_id="team/pod", source_key="uid-of-a-pod", user="ben",
                                 submitted="2026-03-20 10:00", started="2026-03-21 10:00", ended="2026-03-21 12:00"),
}  # fmt: skip


@pytest.fixture(autouse=True)
def directory(settings: Any, tmp_path: Path) -> None:
    settings.CLUSTERTAB_SEALED_MONTHS = tmp_path / "sealed"


@pytest.fixture
def ann() -> User:
    enter_march()
    april = a_job(job_id="5", user="ben", started="2026-04-05 10:00", ended="2026-04-05 11:00")
    ingest(Cluster.objects.get(), april, *ALL, as_of="2026-05-02")
    sealed(MARCH, APRIL)
    return a_person(tenant=a_lab())


def late(*rows: Any) -> Any:
    return usage_ingest.ingest(
        cluster=Cluster.objects.get(), rows=rows, reading=Reading(), source="late", moment=at("2031-07-01")
    ).stored


def pages(person: User) -> dict[str, bytes]:
    paths = [
        "/t/vision-lab/jobs/?period=2026-03-01&totals=1",
        "/t/vision-lab/jobs/?from=2026-03-01&through=2026-04-30&totals=1",
        "/t/vision-lab/jobs/csv?period=2026-03-01",
        "/t/vision-lab/jobs/csv?from=2026-03-01&through=2026-04-30",
        "/t/vision-lab/jobs/?period=2026-04-01&totals=1",
        "/t/vision-lab/jobs/csv?period=2026-04-01",
    ]
    found = signed_in(person).get("/t/vision-lab/search/?q=20").headers["Location"]
    return {path: content_of(person, path) for path in paths} | {"search": found.encode()}


@pytest.mark.parametrize("months", [(MARCH,), (MARCH, APRIL)], ids=["March", "March and April"])
def test_told_again_it_changes_nothing_and_brings_nothing_back(ann: User, months: Any) -> None:
    before = pages(ann)
    dropped(*months)
    prove()
    records = UsageRecord.objects.count()
    for _ in range(2):
        stored = late(*ALL)
        assert (stored.new, stored.revised, stored.quarantined) == (0, 0, 0)
    assert UsageRecord.objects.count() == records
    assert list(SealedMonth.objects.dropped().values_list("month", flat=True).order_by("month")) == list(
        months
    )
    assert pages(ann) == before
    prove()


def test_an_older_sight_of_it_still_waiting_changes_nothing(ann: User) -> None:
    dropped(MARCH, APRIL)
    records = UsageRecord.objects.count()
    waiting = a_job(
        job_id="20", user="ben", submitted="2026-03-20 10:00", started=None, ended=None, state="PENDING"
    )
    stored = late(waiting)
    assert (stored.new, stored.revised, stored.quarantined) == (0, 0, 0)
    assert UsageRecord.objects.count() == records


@pytest.mark.parametrize(
    ("name", "months"),
    [(name, (MARCH, APRIL)) for name in LATE] + [(name, (MARCH,)) for name in LATE if "April" in name],
    ids=lambda value: value if isinstance(value, str) else "and ".join(f"{month:%B }" for month in value),
)
def test_told_late_it_comes_alone_and_is_one_job_on_each_page(ann: User, name: str, months: Any) -> None:
    dropped(*months)
    records = UsageRecord.objects.count()
    stored = late(LATE[name])
    assert stored.new + stored.revised == 1
    again = late(LATE[name], *(one for one in ALL if one.source_key != LATE[name].source_key))
    assert (again.new, again.revised, Quarantined.objects.count()) == (0, 0, 0)
    assert UsageRecord.objects.count() == records + 1
    assert list(SealedMonth.objects.dropped().values_list("month", flat=True).order_by("month")) == list(
        months
    )
    prove()
    record = UsageRecord.objects.get(source_key=LATE[name].source_key).pk
    now = pages(ann)
    days = "period=2026-03-01" if LATE[name].started is None else "from=2026-03-01&through=2026-04-30"
    csv = now[f"/t/vision-lab/jobs/csv?{days}"]
    number = LATE[name].job_id.encode()
    assert csv.count(b" " + number + b",") == 1, csv
    detail = without_note(content_of(ann, f"/t/vision-lab/jobs/{record}/"))
    for month in months:
        drop.load_back(month=month)
    assert pages(ann) == now
    assert content_of(ann, f"/t/vision-lab/jobs/{record}/") == detail
    assert RatedJob.objects.filter(record_id=record).count() == 1
    prove()


def test_it_is_listed_in_the_month_in_which_it_was_cancelled_be_it_in_its_first_second() -> None:
    enter_march()
    april = a_job(job_id="5", user="ben", started="2026-04-05 10:00", ended="2026-04-05 11:00")
    at_midnight = a_job(job_id="24", user="ben", state="CANCELLED", submitted="2026-04-30 10:00",
                        started="2026-05-01 00:00", ended="2026-05-01 00:00")  # fmt: skip
    ingest(Cluster.objects.get(), april, at_midnight, as_of="2026-05-02")
    sealed(MARCH, APRIL)
    ann = a_person(tenant=a_lab())
    paths = [f"/t/vision-lab/jobs/csv?period=2026-0{month}-01" for month in (4, 5)]
    before = [content_of(ann, path) for path in paths]
    assert [text.count(b" 24,") for text in before] == [0, 1]
    dropped(MARCH, APRIL)
    prove()
    assert [content_of(ann, path) for path in paths] == before


def test_it_is_billed_once_where_it_ran_after_all(ann: User) -> None:
    dropped(MARCH, APRIL)
    late(LATE["ran in March after all"])
    ingest(Cluster.objects.get(), as_of="2026-07-02")
    for month, on in (("2026-05", "2026-06-03"), ("2026-06", "2026-07-03")):
        close(month, on=on)
    prove()
    lines = InvoiceLine.objects.filter(
        invoice__state="issued", invoice__tenant=a_lab(), service_period__start__month=3
    )
    assert sum(line.seconds_num for line in lines) == (4 * 9000 + 7200) * lines[0].seconds_den
