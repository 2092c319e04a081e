"""Two at once: imports, closes, payments and changes of terms that meet end as if one had come after the other."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import date
from pathlib import Path
from threading import Barrier
from typing import TypeVar

import psycopg
import pytest
from django.db import connection, transaction

from billing.models import Invoice, InvoiceSeries, Payment, Price, RatedUsage
from billing.rating import engine
from billing.receivables import settlement
from billing.rules.money import Money
from clusters.connectors.base import UsageFact
from clusters.models import Pull, UsageRecord, UsageRevision
from tests.builders import a_cluster, a_job, a_plan, a_tenant, ingest, own
from tests.integration.operators import Operator, accounting
from tests.stories import closed, prove, seconds

pytestmark = pytest.mark.usefixtures("transactional_db")

PATIENCE = 60  # seconds
T = TypeVar("T")


def at_once(*works: Callable[[], T]) -> list[T]:
    """Do all of them at the same time, each over a connection of its own; their answers in order."""
    start = Barrier(len(works))

    def do(work: Callable[[], T]) -> T:
        try:
            connection.ensure_connection()
            start.wait(PATIENCE)
            return work()
        finally:
            connection.close()

    with ThreadPoolExecutor(len(works)) as pool:
        return [future.result(PATIENCE) for future in [pool.submit(do, work) for work in works]]


def test_two_processes_that_import_the_same_file_store_each_row_once(
    database_url: str, tmp_path: Path
) -> None:
    file = accounting(tmp_path / "march.sacct", rows=12_000, accounts=8)
    cluster, plan = a_cluster(), a_plan()
    for number in range(8):
        a_tenant(f"t{number}", plan=plan, accounts=[(cluster, f"acc{number:02d}")])

    with Operator(database_url) as one, Operator(database_url) as other:
        one.begins("import_usage", "gpu1", file)
        other.begins("import_usage", "gpu1", file)
        assert (one.ends(), other.ends()) == (0, 0)

    assert UsageRecord.objects.count() == 12_000
    assert not UsageRevision.objects.exists()
    assert sum(Pull.objects.values_list("new", flat=True)) == 12_000
    assert sum(Pull.objects.values_list("unchanged", flat=True)) == 12_000
    assert not RatedUsage.objects.exclude(generation=1).exists()
    prove()


def test_the_first_usage_of_a_month_waits_for_no_backup_and_keeps_no_page_waiting(database_url: str) -> None:
    cluster = a_cluster()
    a_tenant("vision-lab", plan=a_plan(), accounts=[(cluster, "vision")])
    with psycopg.connect(database_url) as backup, psycopg.connect(database_url) as page:
        backup.execute("LOCK TABLE billing_ratedusage, clusters_usagerevision IN ACCESS SHARE MODE")
        with transaction.atomic():
            with connection.cursor() as cursor:
                cursor.execute("SET LOCAL lock_timeout = '3s'")
            for hour in ("12:00", "13:00"):  # the second is a revision
                job = a_job(job_id="17", started="2021-05-02 10:00", ended=f"2021-05-02 {hour}")
                ingest(cluster, job, as_of="2021-05-20")
            page.execute("SET lock_timeout = '3s'")
            assert page.execute("SELECT count(*) FROM billing_ratedusage").fetchone() == (0,)
    assert (RatedUsage.objects.exists(), UsageRevision.objects.count()) == (True, 1)
    prove()


def test_imports_of_two_clusters_into_months_that_are_new_to_both_do_not_wait_for_each_other_for_ever() -> (
    None
):
    plan, clusters = a_plan(), [a_cluster("gpu1"), a_cluster("gpu2")]
    tenants = [a_tenant(f"of-{c.name}", plan=plan, accounts=[(c, "vision")]) for c in clusters]
    months = [f"{year}-{month:02d}" for year in range(2018, 2023) for month in range(1, 13)]

    def used_in(month: str) -> UsageFact:
        return a_job(started=f"{month}-02", ended=f"{month}-03")

    def all_in_one() -> None:
        ingest(clusters[0], *map(used_in, months))

    def one_by_one_backwards() -> None:
        for month in reversed(months):
            ingest(clusters[1], used_in(month))

    at_once(all_in_one, one_by_one_backwards)

    assert [seconds(tenant) for tenant in tenants] == [60 * 86_400, 60 * 86_400]
    prove()


def test_terms_and_owners_that_change_during_an_import_hold_for_all_of_it() -> None:
    cluster, plan = a_cluster(), a_plan()
    vision, audio = (
        a_tenant("vision-lab", plan=plan, accounts=[(cluster, "vision")]),
        a_tenant("audio-lab", plan=plan),
    )
    jobs = [a_job(ended=None, seen_until="2026-03-02 11:00") for _ in range(300)]
    price = Price.objects.get()

    def imports() -> None:
        for minute in range(1, 8):
            changed = [a_job(source_key=job.source_key, gpus=minute) for job in jobs]
            ingest(cluster, *changed[minute * 40 :], *changed[: minute * 40])

    def assigns() -> None:
        own(audio, cluster, "vision", since="2026-03-02 10:30")

    def prices() -> None:
        Price.objects.filter(pk=price.pk).update(valid_until=date(2026, 3, 2))
        Price.objects.create(
            version=price.version,
            meter="gpu-hour",
            resource="gpu",
            position=1,
            unit_price=9,
            valid_from=date(2026, 3, 2),
        )
        engine.rate_tenants([vision, audio])

    at_once(imports, assigns, prices)

    written = RatedUsage.objects.count()
    engine.rate_tenants([vision, audio])
    assert RatedUsage.objects.count() == written  # nothing was rated by what stood before
    assert (seconds(vision), seconds(audio)) == (300 * 7 * 1800, 300 * 7 * 1800)
    prove()


def test_case_055_fifty_invoices_issued_at_once_are_numbered_1_to_50() -> None:
    cluster, plan = a_cluster(complete_through="2026-06-01"), a_plan()
    tenants = [a_tenant(f"t{n}", plan=plan, accounts=[(cluster, f"a{n}")]) for n in range(50)]
    ingest(cluster, *[a_job(account=f"a{n}") for n in range(50)])

    results = at_once(*[lambda tenant=tenant: closed("2026-03", tenant) for tenant in tenants])

    assert sorted(one.number for one in results) == [f"INV-2026-{n:04d}" for n in range(1, 51)]
    assert InvoiceSeries.objects.get().last_number == 50
    prove()


def test_case_010_two_closes_of_one_month_at_once_are_one_invoice() -> None:
    cluster = a_cluster(complete_through="2026-06-01")
    vision = a_tenant(plan=a_plan(), accounts=[(cluster, "vision")])
    ingest(cluster, a_job())

    results = at_once(*[lambda: closed("2026-03", vision)] * 4)

    assert sorted(one.outcome for one in results) == ["already issued"] * 3 + ["issued"]
    assert {one.number for one in results} == {"INV-2026-0001"}
    assert Invoice.objects.count() == 1


def test_a_transfer_that_two_record_at_once_is_one_payment() -> None:
    cluster = a_cluster(complete_through="2026-06-01")
    vision = a_tenant(plan=a_plan(), accounts=[(cluster, "vision")])
    ingest(cluster, a_job())
    closed("2026-03", vision)
    invoice = Invoice.objects.get()

    def record() -> int:
        return settlement.record_payment(
            invoice=invoice,
            amount=Money.of("1.00", "USD"),
            received_on=date(2026, 4, 9),
            reference="A1",
            recorded_by="op",
        ).pk

    works: Sequence[Callable[[], int]] = [record] * 4
    assert len(set(at_once(*works))) == 1
    assert Payment.objects.count() == 1


def test_a_close_during_an_import_bills_each_second_now_or_next_month() -> None:
    cluster = a_cluster(complete_through="2026-06-01")
    vision = a_tenant(plan=a_plan(), accounts=[(cluster, "vision")])
    ingest(cluster, a_job())

    def imports() -> None:
        for _ in range(6):
            ingest(cluster, *[a_job() for _ in range(50)])

    def closes() -> None:
        assert closed("2026-03", vision).outcome == "issued"

    at_once(imports, closes)

    prove()
    ingest(cluster, a_job(started="2026-04-02 10:00", ended="2026-04-02 11:00"))
    closed("2026-04", vision)
    assert prove()["billed"] == 302 * 3600
