"""Which price a second has: the most specific one that selects it, never one that was made up."""

from __future__ import annotations

from datetime import date

import pytest
from django.db import IntegrityError, transaction

from billing.models import DailyUsage, PeriodTotal, Price, RatedUsage
from billing.proof import checks
from billing.rating import engine
from tests.builders import LONG_AGO, PriceRow, a_cluster, a_job, a_plan, a_tenant, ingest
from tests.stories import closed, hours, invoice_of, printed, prove, seconds, total

pytestmark = pytest.mark.django_db


def gpu(price: str, **where: str) -> PriceRow:
    return "gpu-hour", {key: value.split() for key, value in where.items()}, price, LONG_AGO


@pytest.mark.parametrize(
    ("job", "amount"),
    [
        ({}, "1.00"),
        ({"gpu_model": "h100"}, "4.00"),
        ({"gpu_model": "h200"}, "4.00"),
        ({"queue": "spot"}, "0.50"),
        ({"qos": "high"}, "6.00"),
        ({"priority_class": "batch"}, "0.25"),
        ({"mig_profile": "1g.5gb"}, "0.20"),
        ({"state": "NODE_FAIL"}, "0.00"),
        ({"gpu_model": "h100", "queue": "spot"}, "1.50"),  # two selectors beat one
        ({"gpu_model": "h100", "qos": "high"}, "4.00"),  # of two that are as specific, the first
        ({"gpu_model": "h100", "queue": "spot", "state": "NODE_FAIL"}, "1.50"),
        ({"queue": "Spot"}, "1.00"),  # as the scheduler writes it
    ],
)
def test_the_most_specific_price_holds(job: dict[str, str], amount: str) -> None:
    cluster = a_cluster(complete_through="2026-06-01")
    plan = a_plan(
        prices=[
            gpu("1.00"),
            gpu("4.00", gpu_model="h100 h200"),
            gpu("0.50", queue="spot"),
            gpu("6.00", qos="high"),
            gpu("0.25", priority_class="batch"),
            gpu("0.20", mig_profile="1g.5gb"),
            gpu("0.00", state="NODE_FAIL"),
            gpu("1.50", gpu_model="h100", queue="spot"),
        ]
    )
    vision = a_tenant(plan=plan, accounts=[(cluster, "vision")])
    ingest(cluster, a_job(**job))

    assert closed("2026-03", vision).total.text == amount  # type: ignore[union-attr]


def test_a_price_may_hold_on_one_cluster_only() -> None:
    cheap, dear = (
        a_cluster("cheap", complete_through="2026-06-01"),
        a_cluster("dear", complete_through="2026-06-01"),
    )
    plan = a_plan(prices=[gpu("9.00", cluster="dear"), gpu("1.00")])
    vision = a_tenant(plan=plan, accounts=[(cheap, "vision"), (dear, "vision")])
    ingest(cheap, a_job())
    ingest(dear, a_job())

    closed("2026-03", vision)
    assert sorted(row[3] for row in printed(invoice_of(vision, "2026-03"))) == ["1.00", "9.00"]


def test_an_outcome_price_comes_by_correction_once_the_run_has_ended() -> None:
    cluster = a_cluster()
    plan = a_plan(prices=[gpu("2.00"), gpu("0.00", state="NODE_FAIL")])
    vision = a_tenant(plan=plan, accounts=[(cluster, "vision")])
    fields = {"source_key": "7@1", "started": "2026-03-31 22:00"}
    ingest(cluster, a_job(**fields, ended=None, seen_until="2026-04-01 00:00", state="RUNNING"))
    ingest(cluster, a_job(started="2026-04-02 10:00", ended="2026-04-02 15:00"))
    assert closed("2026-03", vision).total.text == "4.00"  # type: ignore[union-attr]

    ingest(cluster, a_job(**fields, ended="2026-04-01 03:00", state="NODE_FAIL"), as_of="2026-05-01")

    assert closed("2026-04", vision).total.text == "6.00"  # type: ignore[union-attr]  # 5 h × 2.00 − 4.00
    assert printed(invoice_of(vision, "2026-04")) == [
        ("2026-04", "vision", "5", "10.00"),
        ("2026-04", "vision", "3", "0.00"),
        ("2026-03", "vision", "-2", "-4.00"),
        ("2026-03", "vision", "2", "0.00"),
    ]
    prove()


def test_case_040_seven_slices_for_an_hour_are_exactly_one_gpu_hour() -> None:
    cluster = a_cluster(complete_through="2026-06-01")
    vision = a_tenant(plan=a_plan(), accounts=[(cluster, "vision")])
    slices = {"gpu_share": (1, 7), "mig_profile": "1g.5gb"}
    ingest(cluster, *[a_job(**slices) for _ in range(7)])

    assert seconds(vision) == hours(1)
    closed("2026-03", vision)
    assert printed(invoice_of(vision, "2026-03")) == [("2026-03", "vision", "1", "2.00")]


def test_case_040_slices_of_different_sizes_add_up_as_fractions() -> None:
    cluster = a_cluster(complete_through="2026-06-01")
    vision = a_tenant(plan=a_plan(prices=[gpu("0.84")]), accounts=[(cluster, "vision")])
    ingest(
        cluster,
        a_job(gpus=3, gpu_share=(1, 7)),
        a_job(gpu_share=(1, 4)),
        a_job(gpu_share=(3, 7)),
        a_job(gpus=2),
    )

    closed("2026-03", vision)
    assert printed(invoice_of(vision, "2026-03")) == [("2026-03", "vision", "87/28", "2.61")]
    assert prove()["billed"] * 28 == hours(87)


@pytest.mark.parametrize(("length", "amount"), [(37, "2055.56"), (8, "444.44")])
def test_case_029_a_hundred_thousand_short_jobs_are_rounded_once(length: int, amount: str) -> None:
    """10,000 arrays of ten GPUs stand for them: the same GPU-seconds in a tenth of the rows."""
    cluster = a_cluster(complete_through="2026-06-01")
    vision = a_tenant(plan=a_plan(), accounts=[(cluster, "vision")])
    end = f"2026-03-02 10:00:{length:02d}"
    ingest(cluster, *[a_job(gpus=10, ended=end, submitted="2026-03-02 09:00") for _ in range(10_000)])

    assert closed("2026-03", vision).total.text == amount  # type: ignore[union-attr]


def test_case_030_the_tax_is_on_the_sum_of_the_lines_and_all_adds_up() -> None:
    cluster = a_cluster(complete_through="2026-06-01")
    vision = a_tenant(
        plan=a_plan(prices=[gpu("0.33")]), tax_rate=20, accounts=[(cluster, name) for name in ("a", "b", "c")]
    )
    ingest(cluster, *[a_job(account=name) for name in ("a", "b", "c")])

    closed("2026-03", vision)

    invoice = invoice_of(vision, "2026-03")
    assert [row[3] for row in printed(invoice)] == ["0.33", "0.33", "0.33"]
    assert (invoice.subtotal, invoice.tax, invoice.total) == (99, 20, 119)  # 21 if it were taxed line by line


def test_case_041_a_gpu_type_without_a_price_blocks_its_tenant_and_no_other() -> None:
    cluster = a_cluster(complete_through="2026-06-01")
    plan = a_plan(prices=[gpu("2.00", gpu_model="a100")])
    vision = a_tenant("vision-lab", plan=plan, accounts=[(cluster, "vision")])
    audio = a_tenant("audio-lab", plan=plan, accounts=[(cluster, "audio")])
    ingest(cluster, a_job(gpu_model="h300"), a_job(), a_job(account="audio"))

    blocked = closed("2026-03", vision)
    assert (blocked.outcome, blocked.number) == ("blocked", "")
    assert blocked.reason == (
        "No price covers 1.00 GPU-hours on h300: give the tenant a plan, or its plan a price, and close again."
    )
    assert closed("2026-03", audio).number == "INV-2026-0001"
    assert prove()["pending"] == hours(2)

    a_plan(
        prices=[gpu("2.00", gpu_model="a100"), gpu("5.00", gpu_model="h300")], effective_from=date(2026, 3, 1)
    )
    engine.rate_tenants([vision])
    assert closed("2026-03", vision).total.text == "7.00"  # type: ignore[union-attr]
    assert total(invoice_of(vision, "2026-03")) == "7.00"


def test_case_042_the_database_refuses_a_negative_price() -> None:
    with pytest.raises(IntegrityError, match="price_is_not_negative"), transaction.atomic():
        a_plan(prices=[gpu("-0.01")])


def test_two_prices_for_the_same_usage_at_one_time_are_refused() -> None:
    plan = a_plan(prices=[gpu("1.00", queue="spot")])
    price = Price.objects.get()
    price.pk, price.valid_from, price.unit_price = None, date(2026, 3, 1), 2
    with pytest.raises(IntegrityError, match="one_price_per_selection_at_a_time"), transaction.atomic():
        price.save()
    assert plan.versions.count() == 1


def test_what_a_plan_does_not_charge_is_waived_and_still_counted() -> None:
    cluster = a_cluster(complete_through="2026-06-01")
    a_tenant(plan=a_plan(), accounts=[(cluster, "vision")])
    ingest(cluster, a_job(cpu_milli=16_000, memory_mib=65_536))

    assert {row.resource for row in RatedUsage.objects.all()} == {"gpu"}  # what costs nothing is no row
    sums = checks.prove().sums
    assert sums["gpu1", "cpu"].parts["waived"] == hours(16)
    assert sums["gpu1", "memory"].parts["waived"] == hours(64)
    assert prove()["pending"] == hours(1)


def test_cores_and_memory_are_charged_by_their_own_meters() -> None:
    cluster = a_cluster(complete_through="2026-06-01")
    prices = [
        gpu("2.00"),
        ("cpu-core-hour", {}, "0.03", LONG_AGO),
        ("memory-gib-hour", {}, "0.005", LONG_AGO),
    ]
    vision = a_tenant(
        plan=a_plan(prices=prices, charges=("gpu", "cpu", "memory")), accounts=[(cluster, "vision")]
    )
    ingest(cluster, a_job(cpu_milli=2_500, memory_mib=1536), a_job(gpus=0, cpu_milli=500))

    closed("2026-03", vision)
    assert sorted(row[2:] for row in printed(invoice_of(vision, "2026-03"))) == [
        ("1", "2.00"),
        ("3", "0.09"),
        ("3/2", "0.01"),
    ]
    prove()


def test_rated_twice_or_in_pieces_nothing_is_written_anew() -> None:
    cluster = a_cluster()
    vision = a_tenant(
        plan=a_plan(), timezone="Asia/Tokyo", accounts=[(cluster, "vision"), (cluster, "audio")]
    )
    ingest(
        cluster,
        a_job(started="2026-02-27 10:00", ended="2026-04-02 11:00", suspended=77, gpus=3, gpu_share=(2, 7)),
        a_job(account="audio", cpu_milli=1000),
        a_job(started=None, ended=None, submitted="2026-03-01", state="PENDING"),
    )
    rated = list(RatedUsage.objects.order_by("id").values())
    totals = list(PeriodTotal.objects.order_by("pk").values())

    engine.rate_tenants([vision])
    engine.rate_accounts([account.pk for account in cluster.accounts.all()])

    assert list(RatedUsage.objects.order_by("id").values()) == rated
    assert list(PeriodTotal.objects.order_by("pk").values()) == totals


def test_a_job_said_to_be_somebody_elses_moves_from_one_total_to_the_other() -> None:
    cluster = a_cluster(complete_through="2026-06-01")
    vision = a_tenant(plan=a_plan(), accounts=[(cluster, "vision")])
    ingest(cluster, a_job(source_key="7@1", user="ben", gpu_model="a100"))
    closed("2026-03", vision)

    ingest(cluster, a_job(source_key="7@1", user="eve", gpu_model="h100"))

    assert {row.series.user: row.units for row in DailyUsage.objects.select_related("series")} == {
        "ben": 0,
        "eve": 3600,
    }
    assert {row.gpu_model: int(row.units) for row in PeriodTotal.objects.all()} == {"a100": 0, "h100": 3600}
    assert closed("2026-04", vision).outcome == "nothing to bill"  # the same seconds at the same price
    prove()


def test_a_price_ended_and_not_ended_after_all_ends_where_it_began() -> None:
    cluster = a_cluster(complete_through="2026-06-01")
    vision = a_tenant(plan=a_plan(), accounts=[(cluster, "vision")])
    ingest(cluster, a_job(started="2026-03-31 20:00", ended="2026-04-01 04:00"))

    for ends_on in (date(2026, 4, 1), None, date(2026, 4, 1), None):
        Price.objects.update(valid_until=ends_on)
        engine.rate_tenants([vision])
        prove()

    assert closed("2026-03", vision).total.text == "8.00"  # type: ignore[union-attr]
    assert closed("2026-04", vision).total.text == "8.00"  # type: ignore[union-attr]
