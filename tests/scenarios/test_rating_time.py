"""Each second is rated in its own period, wherever the tenant's midnight lies."""

from __future__ import annotations

from datetime import date

import pytest

from billing.documents import build
from billing.models import BillingPeriod, DayTotal, Invoice, RatedUsage
from portal.core.tenants.models import Tenant
from tests.builders import LONG_AGO, a_cluster, a_job, a_plan, a_tenant, at, ingest, own
from tests.stories import close, closed, hours, invoice_of, printed, prove, seconds

pytestmark = pytest.mark.django_db


def test_case_001_a_job_that_ends_with_the_month_belongs_to_it_alone() -> None:
    cluster = a_cluster(complete_through="2026-06-01")
    vision = a_tenant(plan=a_plan(), accounts=[(cluster, "vision")])
    ingest(cluster, a_job(started="2026-03-31 22:00", ended="2026-04-01 00:00"))

    assert closed("2026-03", vision).total.text == "4.00"  # type: ignore[union-attr]
    assert closed("2026-04", vision).outcome == "nothing to bill"


def test_case_002_a_job_across_the_border_is_split_at_the_instant() -> None:
    cluster = a_cluster(complete_through="2026-06-01")
    vision = a_tenant(
        plan=a_plan(prices=[("gpu-hour", {}, "3600", LONG_AGO)]), accounts=[(cluster, "vision")]
    )
    ingest(cluster, a_job(started="2026-03-31 23:59:53", ended="2026-04-01 00:00:04"))

    assert closed("2026-03", vision).total.text == "7.00"  # type: ignore[union-attr]
    assert closed("2026-04", vision).total.text == "4.00"  # type: ignore[union-attr]
    assert prove()["billed"] == 11


def test_case_003_a_job_longer_than_a_month_is_billed_in_each_while_it_still_runs() -> None:
    cluster = a_cluster()
    vision = a_tenant(plan=a_plan(), accounts=[(cluster, "vision")])
    fields = {"source_key": "7@1", "started": "2026-03-31 00:00"}
    ingest(cluster, a_job(**fields, ended=None, seen_until="2026-04-02 00:00"))
    assert closed("2026-03", vision).total.text == "48.00"  # type: ignore[union-attr]
    ingest(cluster, a_job(**fields, ended=None, seen_until="2026-05-01 00:00"))
    assert closed("2026-04", vision).total.text == "1440.00"  # type: ignore[union-attr]
    ingest(cluster, a_job(**fields, ended="2026-05-01 10:00"), as_of="2026-06-01")
    assert closed("2026-05", vision).total.text == "20.00"  # type: ignore[union-attr]
    assert prove()["billed"] == hours(24 + 720 + 10)


@pytest.mark.parametrize(
    ("zone", "month", "count"),
    [
        ("America/Los_Angeles", "2026-03", 743),
        ("America/Los_Angeles", "2026-11", 721),
        ("Europe/Berlin", "2026-10", 745),
        ("Europe/Berlin", "2026-03", 743),
        ("UTC", "2026-03", 744),
    ],
)
def test_case_004_one_gpu_all_month_has_the_hours_that_passed(zone: str, month: str, count: int) -> None:
    cluster = a_cluster(complete_through="2027-02-01")
    vision = a_tenant(plan=a_plan(), timezone=zone, accounts=[(cluster, "vision")])
    ingest(cluster, a_job(started="2026-01-01", ended="2027-01-15"))
    for before in range(1, int(month[5:])):
        closed(f"2026-{before:02d}", vision)
    if zone != "UTC":
        closed("2025-12", vision)
        for before in range(1, int(month[5:])):
            closed(f"2026-{before:02d}", vision)

    assert closed(month, vision).outcome == "issued"
    assert [row[2] for row in printed(invoice_of(vision, month))] == [str(count)]
    prove()


def test_case_005_where_midnight_comes_twice_no_second_is_lost_or_doubled() -> None:
    """In Havana 1 November 2026 has two midnights; the month and its first day begin at the first."""
    cluster = a_cluster(complete_through="2027-02-01")
    plan = a_plan(prices=[("gpu-hour", {}, "1.00", LONG_AGO)])
    vision = a_tenant(plan=plan, timezone="America/Havana", accounts=[(cluster, "vision")])
    ingest(cluster, a_job(started="2026-10-31 04:00", ended="2026-11-03 05:00"))  # 24 h + 25 h + 24 h

    assert [(total.day, int(total.units)) for total in DayTotal.objects.order_by("day")] == [
        (date(2026, 10, 31), 24 * 3600),
        (date(2026, 11, 1), 25 * 3600),
        (date(2026, 11, 2), 24 * 3600),
    ]
    assert closed("2026-10", vision, on="2026-12-03").total.text == "24.00"  # type: ignore[union-attr]
    assert closed("2026-11", vision).total.text == "49.00"  # type: ignore[union-attr]
    prove()


def test_case_005_a_price_of_a_day_with_two_midnights_holds_from_the_first_whatever_else_is_rated() -> None:
    """25 October 2026 in the Azores begins at 00:00 UTC and again at 01:00 UTC."""
    plan = a_plan(prices=[("gpu-hour", {}, "1.00", LONG_AGO)])
    a_plan(prices=[("gpu-hour", {}, "10.00", date(2026, 10, 25))], effective_from=date(2026, 10, 25))
    jobs = [
        a_job(started="2026-10-24 23:00", ended="2026-10-25 01:30"),
        a_job(started="2026-10-25 00:15", ended="2026-10-25 00:45"),
    ]
    for name, batches in {"together": [jobs], "apart": [jobs[:1], jobs[1:]]}.items():
        cluster = a_cluster(name, complete_through="2027-02-01")
        azores = a_tenant(name, plan=plan, timezone="Atlantic/Azores", accounts=[(cluster, "vision")])
        for batch in batches:
            ingest(cluster, *batch)
        assert closed("2026-10", azores).total.text == "21.00"  # type: ignore[union-attr]  # 1 + 15 + 5
    prove()


def test_case_006_an_anchor_on_the_31st_bills_from_last_day_to_last_day() -> None:
    cluster = a_cluster(complete_through="2026-08-01")
    vision = a_tenant(plan=a_plan(), anchor_day=31, accounts=[(cluster, "vision")])
    ingest(cluster, a_job(started="2026-01-31", ended="2026-05-01"))

    for month, count in {"2026-01": 28 * 24, "2026-02": 31 * 24, "2026-03": 30 * 24, "2026-04": 24}.items():
        assert closed(month, vision, on="2026-07-01").outcome == "issued"
        assert printed(invoice_of(vision, month)) == [(month, "vision", str(count), f"{2 * count}.00")]
    assert [
        f"{start:%m-%d}" for start in BillingPeriod.objects.order_by("start").values_list("start", flat=True)
    ][:4] == ["01-31", "02-28", "03-31", "04-30"]


@pytest.mark.parametrize(("year", "count"), [(2028, 696), (2027, 672)])
def test_case_007_february_has_29_days_in_a_leap_year(year: int, count: int) -> None:
    cluster = a_cluster(complete_through=f"{year}-06-01")
    vision = a_tenant(plan=a_plan(), accounts=[(cluster, "vision")])
    ingest(cluster, a_job(started=f"{year}-02-01", ended=f"{year}-03-01"))

    assert closed(f"{year}-02", vision).outcome == "issued"
    assert printed(invoice_of(vision, f"{year}-02"))[0][2] == str(count)


@pytest.mark.parametrize(
    ("zone", "midnight"), [("Asia/Kolkata", "2026-03-31 18:30"), ("Asia/Kathmandu", "2026-03-31 18:15")]
)
def test_case_008_zones_off_the_full_hour_bill_from_their_own_midnight(zone: str, midnight: str) -> None:
    cluster = a_cluster(complete_through="2026-06-01")
    vision = a_tenant(plan=a_plan(), timezone=zone, accounts=[(cluster, "vision")])
    ingest(cluster, a_job(started="2026-03-31 18:00", ended="2026-03-31 19:00"))

    closed("2026-03", vision)
    first = int((at(midnight) - at("2026-03-31 18:00")).total_seconds())
    assert prove()["billed"] == first
    closed("2026-04", vision, on="2026-06-01")
    assert prove()["billed"] == 3600
    assert BillingPeriod.objects.filter(start=at(midnight)).exists()


def test_case_009_a_change_of_zone_counts_from_the_next_period_without_gap_or_overlap() -> None:
    cluster = a_cluster(complete_through="2026-08-01")
    vision = a_tenant(plan=a_plan(), accounts=[(cluster, "vision")])
    march = a_job(started="2026-03-01", ended="2026-03-20", source_key="1@1")
    ingest(cluster, march)
    vision.timezone = "America/Los_Angeles"
    vision.save()
    ingest(cluster, a_job(started="2026-03-31", ended="2026-06-01"))

    for month, count in {"2026-03": 20 * 24, "2026-04": 30 * 24 + 7, "2026-05": 31 * 24 - 7}.items():
        assert closed(month, vision, on="2026-07-01").outcome == "issued", month
        invoice = invoice_of(vision, month) if month != "2026-04" else vision.invoices.latest("pk")
        assert printed(invoice)[0][2] == str(count)
        assert invoice.timezone == ("UTC" if month == "2026-03" else "America/Los_Angeles")
        assert (
            "From this period on, days and periods are those of America/Los_Angeles" in notes(invoice)
        ) == (month == "2026-04")
    borders = list(BillingPeriod.objects.order_by("start").values_list("start", "end"))
    assert [end for _, end in borders[:-1]] == [start for start, _ in borders[1:]]
    assert prove()["billed"] == hours(19 * 24 + 62 * 24)


def notes(invoice: Invoice) -> str:
    return build.document_of(invoice).notes


def test_case_009_a_change_of_anchor_leaves_no_period_that_cannot_be_closed() -> None:
    cluster = a_cluster(complete_through="2026-08-01")
    vision = a_tenant(plan=a_plan(), accounts=[(cluster, "vision")])
    ingest(cluster, a_job(started="2026-03-01", ended="2026-04-01"))
    Tenant.objects.update(anchor_day=15)
    vision.refresh_from_db()
    ingest(cluster, a_job(started="2026-04-01", ended="2026-06-15"))

    for month in ("2026-03", "2026-04", "2026-05"):  # April has two periods, and one close does both
        assert closed(month, vision, on="2026-07-01").outcome == "issued"
    starts = [f"{invoice.period_start:%m-%d}" for invoice in vision.invoices.order_by("pk")]
    assert starts == ["03-01", "04-01", "04-15", "05-15"]
    assert prove()["pending"] == 0


def test_suspended_seconds_are_shared_out_over_a_month_border_without_losing_one() -> None:
    cluster = a_cluster(complete_through="2026-06-01")
    plan = a_plan(prices=[("gpu-hour", {}, "3600", LONG_AGO)])
    tenants = {
        zone: a_tenant(zone.lower().replace("/", "-"), plan=plan, timezone=zone)
        for zone in ("UTC", "Asia/Tokyo")
    }
    for zone, tenant in tenants.items():
        own(tenant, cluster, zone)
        ingest(
            cluster,
            a_job(account=zone, started="2026-03-31 14:00", ended="2026-04-01 10:00", suspended=7, gpus=3),
        )
        for month in ("2026-03", "2026-04"):
            close(month, tenant, on="2026-06-01")
        assert seconds(tenant) == 3 * (20 * 3600 - 7)
    # floor(36,000 × 71,993 / 72,000) = 35,996 of 71,993 s lie before midnight in UTC, 3,599 in Tokyo (15:00 UTC).
    assert printed(invoice_of(tenants["UTC"], "2026-03"))[0][3] == f"{3 * 35_996}.00"
    assert printed(invoice_of(tenants["UTC"], "2026-04"))[0][3] == f"{3 * 35_997}.00"
    assert printed(invoice_of(tenants["Asia/Tokyo"], "2026-03"))[0][3] == f"{3 * 3_599}.00"
    assert prove()["billed"] == 2 * 3 * 71_993


def test_borders_of_utc_months_and_of_the_tenants_months_both_cut() -> None:
    cluster = a_cluster()
    a_tenant(plan=a_plan(), timezone="America/Los_Angeles", accounts=[(cluster, "vision")])
    ingest(
        cluster,
        a_job(started="2026-04-01 06:00", ended="2026-04-01 08:00"),
        a_job(started="2026-03-31 23:00", ended="2026-04-01 01:00"),
    )

    cuts = RatedUsage.objects.order_by("service_from").values_list("service_month", "service_from", "units")
    assert [
        (f"{month:%m}", f"{since - int(at('2026-04-01').timestamp())}", units) for month, since, units in cuts
    ] == [
        ("03", "-3600", 3600),
        ("04", "0", 3600),
        ("04", "21600", 3600),
        ("04", "25200", 3600),
    ]
    assert len(set(RatedUsage.objects.values_list("period_id", flat=True))) == 2
    prove()
