"""Something late is told of a dropped month: its record comes back alone, as if nothing was ever dropped."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from django.db import transaction

from billing.catalog import plans
from billing.documents import evidence_usage, job_users
from billing.models import (
    Invoice,
    MonthProof,
    PeriodJobs,
    PeriodTopJob,
    PeriodTotal,
    Plan,
    PlanVersion,
    ProofMark,
    RatedJob,
    RatedUsage,
    SealedMonth,
)
from billing.proof import checks
from billing.queries import job_parts
from billing.rating import engine
from billing.rating import ingest as usage_ingest
from billing.rules.tiers import Graduated, Tier
from billing.sealed_months import drop, seal, unseal
from billing.sealed_months.errors import SealError
from billing.tasks import render_document
from clusters.absent_records import RowsInFilesError
from clusters.connectors.base import Reading, Row, UsageFact
from clusters.models import Account, Cluster, Quarantined, UsageRecord
from portal.core.tenants import ownership
from portal.core.tenants.models import Tenant
from portal.core.tenants.scope import tenant_scope
from tests.builders import a_job, a_tenant, at, ingest
from tests.owner import as_owner
from tests.sealed_march import MARCH, NOW, enter_march, rows
from tests.stories import close, printed, prove

pytestmark = pytest.mark.django_db

APRIL = date(2026, 4, 1)
FIRST = {"job_id": "1", "user": "ben", "gpus": 4, "name": 'train\n"one", two', "started": "2026-03-02 10:00"}
KNOWN = a_job(ended="2026-03-02 12:30", **FIRST)
LONGER = a_job(ended="2026-03-02 14:30", **FIRST)
CROSSING = {"job_id": "2", "user": "eve", "account": "speech", "started": "2026-03-31 20:00"}
NOBODYS = {"job_id": "3", "source_key": "pod/without/month", "user": "zoë", "account": "nobody",
           "started": "2026-03-02 10:00"}  # fmt: skip
NEW = a_job(job_id="7", started="2026-03-05 10:00", ended="2026-03-05 11:00")
CHANGED = {
    "longer": LONGER,
    "shorter": a_job(ended="2026-03-02 10:30", **FIRST),
    "of no second": a_job(ended="2026-03-02 10:00", **FIRST),
    "renamed": a_job(ended="2026-03-02 12:30", **{**FIRST, "name": "other"}),
    "of another user": a_job(ended="2026-03-02 12:30", **{**FIRST, "user": "kim"}),
    "moved to another tenant": a_job(ended="2026-03-02 12:30", account="speech", **FIRST),
    "moved to nobody": a_job(ended="2026-03-02 12:30", account="nobody", **FIRST),
    "longer in April": a_job(ended="2026-04-01 05:00", **CROSSING),
    "in March alone": a_job(ended="2026-03-31 22:00", **CROSSING),
    "into May": a_job(ended="2026-05-01 01:00", **CROSSING),
    "of nobody": a_job(ended="2026-03-02 11:30", **NOBODYS),
    "assigned": a_job(ended="2026-03-02 11:00", **{**NOBODYS, "account": "vision"}),
}
OTHERS = [
    a_job(job_id=f"m{n}", started=f"2026-03-{3 + n % 20:02d} 10:00", ended=f"2026-03-{3 + n % 20:02d} 11:{n:02d}")
    for n in range(30)
]  # fmt: skip


@pytest.fixture(autouse=True)
def directory(settings: Any, tmp_path: Path) -> Path:
    settings.CLUSTERTAB_SEALED_MONTHS = tmp_path / "sealed"
    return tmp_path / "sealed"


@pytest.fixture
def books() -> None:
    """March and April, which share a job, and all of them is billed."""
    enter_march()
    own = a_job(job_id="5", user="ben", started="2026-04-05 10:00", ended="2026-04-05 11:00")
    ingest(Cluster.objects.get(), own, as_of="2026-06-02")
    close("2026-04", on="2026-05-03")
    close("2026-05", on="2026-06-03")


def dropped(*months: date) -> None:
    for month in months:
        seal.seal_month(month=month, moment=NOW, quiet_months=12)
    for month in months:
        drop.drop_month(month=month, moment=NOW, all_processes_replaced=True)


def late(*rows: Row) -> Any:
    return usage_ingest.ingest(
        cluster=Cluster.objects.get(), rows=rows, reading=Reading(), source="late", moment=at("2031-07-01")
    ).stored


def away() -> list[date]:
    return [row.month for row in SealedMonth.objects.dropped().order_by("month")]


def told(value: Any) -> str:
    """A row, without the numbers that say only when it was written, and in which attempt."""
    return str({key: value[key] for key in sorted(value) if key not in {"id", "record_id", "last_rated_id"}})


def books_now() -> dict[str, Any]:
    """All that is kept of usage and documents, once its rows are in their tables."""
    jobs = {job.record_id: job.job_id for job in RatedJob.objects.all()}
    invoices = Invoice.objects.issued().order_by("pk")
    return {
        **{name: sorted(map(told, content)) for name, content in rows().items()},
        "totals": sorted(map(told, PeriodTotal.objects.values())),
        "started": sorted(PeriodJobs.objects.exclude(started=0).values_list("tenant", "period", "price_id", "started")),
        "largest": sorted(
            (row.tenant_id, row.period_id, jobs[row.record_id]) for row in PeriodTopJob.objects.all()
        ),
        "documents": [(str(one.tenant), one.number, one.total, printed(one)) for one in invoices],
    }  # fmt: skip


def story(facts: tuple[Row, ...], *months: date, back: Callable[[date], Any] = lambda month: None) -> Any:
    """What an import of all March with late facts comes to, with these months dropped, and `back` again at the end."""
    with transaction.atomic():
        mark = transaction.savepoint()
        dropped(*months)
        stored = late(KNOWN, *facts)
        sums = prove()
        assert away() == list(months)
        again = (
            late(KNOWN, *facts)
            if KNOWN.source_key not in {getattr(f, "source_key", "") for f in facts}
            else None
        )
        assert again is None or (again.new, again.revised) == (0, 0)
        ingest(Cluster.objects.get(), as_of="2026-07-02")
        close("2026-06", on="2026-07-03")
        prove()
        assert away() == list(months)
        for month in months:
            back(month)
        result = (stored.new, stored.revised, stored.quarantined, sums, prove(), books_now())
        transaction.savepoint_rollback(mark)
    return result


@pytest.mark.parametrize("name", CHANGED)
def test_a_late_record_is_corrected_as_if_nothing_was_ever_dropped(books: None, name: str) -> None:
    whole = story((CHANGED[name],))
    assert story((CHANGED[name],), MARCH, back=lambda month: drop.load_back(month=month)) == whole
    both = story((CHANGED[name],), MARCH, APRIL, back=lambda month: drop.load_back(month=month))
    assert both == whole


@pytest.mark.parametrize("facts", [(NEW,), (LONGER, NEW, CHANGED["longer in April"], CHANGED["of nobody"])])
def test_late_records_of_all_kinds_come_back_with_unsealing(books: None, facts: tuple[Row, ...]) -> None:
    whole = story(facts)
    assert story(facts, MARCH, APRIL, back=lambda month: unseal.unseal_month(month=month)) == whole


@pytest.mark.sample
def test_no_other_row_comes_back_and_a_record_that_is_back_is_asked_no_file(
    books: None, directory: Path
) -> None:
    dropped(MARCH, APRIL)
    assert late(LONGER).revised == 1
    assert list(UsageRecord.objects.values_list("job_id", flat=True)) == ["1"]
    assert list(RatedJob.objects.values_list("job_id", flat=True)) == ["1"]
    assert {row.record_id for row in RatedUsage.objects.all()} == {UsageRecord.objects.get().pk}
    assert MonthProof.objects.get(month=MARCH).records == 3
    proof = checks.prove(moment=NOW)
    assert (proof.holds, ProofMark.objects.count()) == (True, 0)
    (directory / "2026-03" / "records.parquet").unlink()
    stored = late(KNOWN, a_job(ended="2026-04-01 05:00", **CROSSING), NEW)
    assert (stored.new, stored.revised, stored.quarantined) == (0, 1, 2)
    assert Quarantined.objects.filter(resolved_at=None).count() == 2


def test_a_late_record_that_changes_its_owner_again_is_rated_without_the_files(books: None) -> None:
    dropped(MARCH, APRIL)
    assert late(a_job(ended="2026-03-02 12:30", account="new", **FIRST)).revised == 1
    third = a_tenant("third-lab")
    account = Account.objects.get(name="new")
    ownership.assign(account=account, tenant=third, since=at("2026-03-01"))
    engine.rate_accounts([account.pk])
    assert RatedJob.objects.get().tenant == third
    prove()
    assert away() == [MARCH, APRIL]


def test_a_month_whose_owners_changed_since_comes_back_whole_with_a_late_fact(books: None) -> None:
    dropped(MARCH)
    account = Account.objects.get(name="nobody")
    ownership.assign(account=account, tenant=Tenant.objects.get(slug="speech-lab"), since=at("2026-03-01"))
    assert late(LONGER).revised == 1
    assert away() == []
    engine.rate_accounts([account.pk])
    prove()


def test_months_of_which_late_records_used_something_wait_for_these(books: None) -> None:
    dropped(MARCH, APRIL)
    drop.load_back(month=APRIL)
    late(CHANGED["longer in April"])
    unseal.unseal_month(month=APRIL)
    with pytest.raises(SealError, match="Late records of 2026-03 used something in it"):
        seal.seal_month(month=APRIL, moment=at("2035-01-01"), quiet_months=12)
    drop.load_back(month=MARCH)
    prove()
    ingest(Cluster.objects.get(), as_of="2026-07-02")
    close("2026-06", on="2026-07-03")
    unseal.unseal_month(month=MARCH)
    for month in (MARCH, APRIL):
        seal.seal_month(month=month, moment=at("2035-01-01"), quiet_months=12)
    for month in (MARCH, APRIL):
        drop.drop_month(month=month, moment=at("2035-01-01"), all_processes_replaced=True)
    prove()
    assert not RatedUsage.objects.exists()


def test_a_month_next_to_one_with_late_records_is_sealed_and_dropped_anew(books: None) -> None:
    dropped(MARCH, APRIL)
    assert (
        late(a_job(job_id="8", account="speech", started="2026-03-05 10:00", ended="2026-03-05 12:00")).new
        == 1
    )
    unseal.unseal_month(month=APRIL)
    ingest(Cluster.objects.get(), as_of="2026-07-02")
    close("2026-06", on="2026-07-03")
    seal.seal_month(month=APRIL, moment=at("2035-01-01"), quiet_months=12)
    drop.drop_month(month=APRIL, moment=at("2035-01-01"), all_processes_replaced=True)
    prove()
    assert away() == [MARCH, APRIL]
    assert list(UsageRecord.objects.values_list("job_id", flat=True)) == ["8"]


def ending(jobs: Sequence[int], hour: str) -> list[UsageFact]:
    """Some of OTHERS, which end at another hour of their day."""
    days = [(job, f"2026-03-{3 + job % 20:02d}") for job in jobs]
    return [
        a_job(job_id=f"m{job}", user="ben", started=f"{day} 10:00", ended=f"{day} {hour}")
        for job, day in days
    ]


@pytest.mark.parametrize(
    ("jobs", "ended", "stays"),
    [
        ([29], "18:00", True),
        ([0], "18:00", True),
        ([0], "10:30", True),
        ([29], "10:30", True),
        (range(24, 30), "10:30", False),
    ],
    ids=[
        "a large job grows",
        "a small one becomes the largest",
        "a small one shrinks",
        "a large one shrinks",
        "most of the large ones shrink",
    ],
)
def test_the_most_expensive_jobs_of_a_period_are_those_of_a_site_where_nothing_was_dropped(
    jobs: Sequence[int], ended: str, stays: bool
) -> None:
    enter_march()
    ingest(Cluster.objects.get(), *OTHERS, as_of="2026-05-02")
    close("2026-04", on="2026-05-03")
    lab = Tenant.objects.get(slug="vision-lab")
    period = lab.periods.get(start__month=3)
    facts = ending(jobs, ended)

    def largest(*months: date) -> list[str]:
        with transaction.atomic():
            mark = transaction.savepoint()
            dropped(*months)
            assert late(*facts).revised == len(facts)
            assert away() == (list(months) if stays else [])
            prove()
            for month in away():
                drop.load_back(month=month)
            prove()
            top = job_parts.top_jobs(lab, period, limit=8)
            transaction.savepoint_rollback(mark)
        return [f"{one.number} {one.cost}" for one in top]

    assert largest(MARCH) == largest()


def test_a_late_record_is_billed_by_the_tiers_of_its_period(books: None) -> None:
    tiers = Graduated((Tier(Decimal(9), Decimal(3)), Tier(None, Decimal("2.5"))))
    lab = Tenant.objects.get(slug="vision-lab")
    version = PlanVersion.objects.create(
        plan=Plan.objects.get(name="standard"), effective_from=date(2026, 1, 1), charges=["gpu"]
    )
    plans.set_price(version=version, meter="gpu-hour", where={}, model=tiers, valid_from=date(2026, 1, 1))
    engine.rate_tenants([lab])
    ingest(Cluster.objects.get(), as_of="2026-07-02")
    close("2026-06", on="2026-07-03")
    whole = story((LONGER, NEW))
    assert story((LONGER, NEW), MARCH, APRIL, back=lambda month: drop.load_back(month=month)) == whole


def test_a_file_that_is_missing_stops_no_import_for_the_order_of_the_most_expensive_jobs(
    directory: Path,
) -> None:
    enter_march()
    ingest(Cluster.objects.get(), *OTHERS, as_of="2026-05-02")
    close("2026-04", on="2026-05-03")
    dropped(MARCH)
    jobs = range(24, 30)
    assert late(*ending(jobs, "18:00")).revised == len(jobs)
    assert away() == [MARCH]
    for file in (directory / "2026-03").rglob("rated.parquet"):
        file.unlink()
    new = a_job(job_id="99", user="ben", started="2026-05-05 10:00", ended="2026-05-05 11:00")
    stored = late(new, *ending(jobs, "10:30"))
    assert (stored.new, stored.revised, stored.quarantined) == (1, len(jobs), 0)
    assert away() == [MARCH]


def test_a_user_of_a_late_record_is_not_inactive_while_later_jobs_may_be_in_files(books: None) -> None:
    when = {"started": "2026-04-20 10:00", "ended": "2026-04-20 11:00"}
    later = a_job(job_id="77", user="eve", account="speech", **when)
    ingest(Cluster.objects.get(), later, as_of="2026-06-02")
    close("2026-05", on="2026-06-03")
    dropped(MARCH, APRIL)
    late(CHANGED["longer in April"])
    assert RatedJob.objects.get().user == "eve"
    assert not job_users.list_inactive(at("2026-04-10"))


def test_a_late_record_comes_back_where_the_tables_of_its_month_were_detached(books: None) -> None:
    dropped(MARCH)
    with as_owner() as cursor:
        for table in ("billing_ratedjob", "clusters_usagerecord"):
            cursor.execute(f"ALTER TABLE {table} DETACH PARTITION {table}_2026_03")
    assert late(LONGER).revised == 1
    prove()


@pytest.mark.parametrize("fact", [LONGER, NEW])
def test_the_document_that_bills_a_late_record_is_rendered_without_the_month(books: None, fact: Row) -> None:
    def render() -> list[Any]:
        """Of each document its number and the usage in its evidence."""
        issued = Invoice.objects.issued().select_related("tenant").order_by("pk")
        for invoice in issued:
            render_document(invoice_id=invoice.pk)
        return [(invoice.number, _evidence(invoice)) for invoice in issued]

    def story(drop_it: Callable[[], Any]) -> list[Any]:
        with transaction.atomic():
            mark = transaction.savepoint()
            drop_it()
            months = away()
            late(fact)
            ingest(Cluster.objects.get(), as_of="2026-07-02")
            close("2026-06", on="2026-07-03")
            documents = render()
            assert away() == months
            prove()
            if months:  # nobody reads evidence of nobody's rows
                with pytest.raises(RowsInFilesError):
                    list(evidence_usage.usage(list(Invoice.objects.issued()[0].lines.all())))
            transaction.savepoint_rollback(mark)
        return documents

    render()
    assert story(lambda: dropped(MARCH, APRIL)) == story(lambda: None)


def _evidence(invoice: Invoice) -> list[tuple[bytes, ...]]:
    """What each job used, as a page reads it, without the record's number; nothing stays shown."""
    with transaction.atomic():
        with tenant_scope(invoice.tenant):
            usage = b"".join(evidence_usage.usage(list(invoice.lines.order_by("position"))))
        transaction.set_rollback(True)
    return [(line, used) for line, _record, used in (row.split(b",", 2) for row in usage.splitlines())]
