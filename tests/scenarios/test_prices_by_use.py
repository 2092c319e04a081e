"""Prices by how busy GPUs were: idle seconds free or dearer, unmeasured ones by a rule that the plan states."""

from __future__ import annotations

import random
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from django.db import transaction

from billing.catalog import plans
from billing.catalog.plans import PlanError
from billing.models import Invoice, RatedUsage
from billing.rating import engine
from billing.reports.reporting import of_cluster, of_tenant
from billing.reports.shapes import By
from billing.rules.hours import of_terms
from billing.rules.meters import PerUnit
from clusters.connectors.base import BusyHour, BusySource, UsageFact
from clusters.models import Account, Cluster
from portal.core.tenants.models import Tenant
from portal.core.tenants.scope import tenant_scope
from tests.builders import LONG_AGO, PriceRow, a_cluster, a_job, a_plan, a_seller, a_tenant, at, busy, ingest
from tests.evidence import agrees, bundle
from tests.stories import closed, hours, invoice_of, lines_of, printed, prove, seconds, total
from tests.tiers import whole_or

pytestmark = pytest.mark.django_db

ENGINE = "DCGM_FI_PROF_GR_ENGINE_ACTIVE"


def gpu(price: str, **where: str) -> PriceRow:
    return "gpu-hour", {key: [value] for key, value in where.items()}, price, LONG_AGO


def a_lab(*prices: PriceRow, **fields: Any) -> tuple[Cluster, Tenant]:
    a_seller()
    cluster = a_cluster(complete_through="2026-08-01")
    return cluster, a_tenant(plan=a_plan(prices=prices), accounts=[(cluster, "vision")], **fields)


def a_run(**fields: Any) -> list[UsageFact | BusyHour]:
    """Two GPUs for three hours: half busy in the first, all of the second, unmeasured in the third."""
    job = a_job(source_key="7@1", gpus=2, started="2026-03-02 10:00", ended="2026-03-02 13:00", **fields)
    return [
        job,
        busy("7@1", "2026-03-02 10:00", "3600", 7200),
        busy("7@1", "2026-03-02 11:00", "7200", 7200),
    ]


@pytest.mark.parametrize(
    ("prices", "lines"),
    [
        # Effective: idle seconds are free, those that nobody measured cost what busy ones do.
        (
            [gpu("2.00"), gpu("0", use="idle")],
            [("GPU time", "5", "10.00"), ("GPU time, while idle", "1", "0.00")],
        ),
        # Effective, and what nobody measured is free.
        (
            [gpu("0"), gpu("2.00", use="busy")],
            [("GPU time", "3", "0.00"), ("GPU time, while busy", "3", "6.00")],
        ),
        # Allocated, with a surcharge of a half on idle seconds.
        (
            [gpu("2.00"), gpu("3.00", use="idle")],
            [("GPU time", "5", "10.00"), ("GPU time, while idle", "1", "3.00")],
        ),
        # Allocated, with a rebate, and another for what was not measured.
        (
            [gpu("2.00"), gpu("1.00", use="idle"), gpu("1.80", use="unknown")],
            [
                ("GPU time", "3", "6.00"),
                ("GPU time, while idle", "1", "1.00"),
                ("GPU time, while not measured", "2", "3.60"),
            ],
        ),
    ],
)
def test_each_use_of_a_gpu_has_its_price_and_every_second_stands_on_a_line(
    prices: list[PriceRow], lines: list[tuple[str, str, str]], tmp_path: Path
) -> None:
    cluster, vision = a_lab(*prices)
    ingest(cluster, *a_run())

    closed("2026-03", vision)

    invoice = invoice_of(vision, "2026-03")
    assert [
        (line.description, *row[2:]) for line, row in zip(lines_of(invoice), printed(invoice), strict=True)
    ] == lines
    assert seconds(vision) == hours(6)
    assert prove()["billed"] == hours(6)
    agrees(bundle(invoice), tmp_path)


def test_utilisation_that_comes_after_the_invoice_is_a_correction_of_its_month() -> None:
    cluster, vision = a_lab(gpu("2.00"), gpu("0", use="idle"))
    run = a_run()
    ingest(cluster, run[0])
    closed("2026-03", vision)
    march = invoice_of(vision, "2026-03")
    assert printed(march) == [("2026-03", "vision", "6", "12.00")]

    ingest(cluster, *run[1:])
    ingest(cluster, a_job(started="2026-04-02 10:00", ended="2026-04-02 15:00"))
    closed("2026-04", vision)

    assert printed(invoice_of(vision, "2026-04")) == [
        ("2026-04", "vision", "5", "10.00"),
        ("2026-03", "vision", "-1", "-2.00"),
        ("2026-03", "vision", "1", "0.00"),
    ]
    ingest(cluster, busy("7@1", "2026-03-02 10:00", "7200", 7200))  # told anew: it was not idle after all
    ingest(cluster, busy("7@1", "2026-03-02 10:00", "7200", 7200))
    closed("2026-05", vision)
    assert [row[2:] for row in printed(invoice_of(vision, "2026-05"))] == [("1", "2.00"), ("-1", "0.00")]
    march.refresh_from_db()
    assert total(march) == "12.00"
    prove()


def test_busy_seconds_count_whole_by_the_hour_wherever_the_run_is_cut() -> None:
    """Of 1800.9 busy seconds in the hour across the month's end 1800 count; its halves add up to that."""
    cluster, vision = a_lab(
        gpu("3600"), gpu("0", use="idle"), timezone="Asia/Kathmandu"
    )  # midnight is at 18:15
    ingest(
        cluster,
        a_job(source_key="7@1", started="2026-03-31 18:00", ended="2026-03-31 19:00"),
        busy("7@1", "2026-03-31 18:00", "1800.9"),
    )

    for month in ("2026-03", "2026-04"):
        closed(month, vision)

    assert [row[2:] for row in printed(invoice_of(vision, "2026-03"))] == [("1/8", "450.00"), ("1/8", "0.00")]
    assert [row[2:] for row in printed(invoice_of(vision, "2026-04"))] == [
        ("3/8", "1350.00"),
        ("3/8", "0.00"),
    ]
    assert prove()["billed"] == hours(1)


def test_slices_suspension_and_hours_of_the_week_go_with_use(tmp_path: Path) -> None:
    """A slice of 1/7, suspended for half of its run; nights at half price, idle seconds free at any hour."""
    cluster, vision = a_lab(gpu("2.00"))
    plan = vision.subscriptions.get().plan
    version = plan.versions.get()
    for price, where, days in (
        ("1.00", {}, ["22:00", "06:00"]),
        ("0", {"use": ["idle"]}, ["00:00", "24:00"]),
    ):
        plans.set_price(
            version=version,
            meter="gpu-hour",
            where=where,
            hours=of_terms(
                {"zone": "tenant", "windows": [{"days": "mon-sun", "from": days[0], "to": days[1]}]}
            ),
            model=PerUnit(Decimal(price)),
            valid_from=LONG_AGO,
        )
    ingest(
        cluster,
        a_job(
            source_key="7@1",
            started="2026-03-02 21:00",
            ended="2026-03-02 23:00",
            suspended=3600,
            gpus=2,
            gpu_share=(1, 7),
        ),
        busy("7@1", "2026-03-02 21:00", "900", 3600),
        busy("7@1", "2026-03-02 22:00", "1800", 1800),
    )

    closed("2026-03", vision)

    agrees(bundle(invoice_of(vision, "2026-03")), tmp_path)
    assert sorted(row[2:] for row in printed(invoice_of(vision, "2026-03"))) == [
        ("1/28", "0.07"),  # busy by day: 900 seconds of a seventh
        ("1/7", "0.14"),  # by night, half of it busy and half of it unknown
        ("3/28", "0.00"),  # idle by day: the other 2,700
    ]
    prove()


@pytest.mark.swept
def test_any_order_and_batching_of_runs_and_their_hours_ends_in_the_same_rows() -> None:
    cluster, vision = a_lab(gpu("2.00"), gpu("0.30", use="idle"), gpu("1.10", use="busy", queue="batch"))
    dice = random.Random(11)
    rows: list[UsageFact | BusyHour] = []
    for number in range(whole_or(4, 8)):
        start, length = dice.randint(0, 20), dice.randint(1, 30)
        began = int(at("2026-03-30 05:00").timestamp()) + start * 1800 + dice.randint(0, 999)
        ended = began + length * 1800 + dice.randint(0, 999)
        rows.append(
            a_job(
                source_key=f"{number}@1", gpus=dice.choice([1, 4]), queue=dice.choice(["batch", "day"]),
                started=began, ended=ended, submitted=began, suspended=dice.choice([0, 0, 777]),
            )
        )  # fmt: skip
    results = []
    for size in (1, 3, 100):
        point = transaction.savepoint()
        jobs = list(rows)
        dice.shuffle(jobs)
        busy_hours: list[UsageFact | BusyHour] = [
            BusyHour(
                job.source_key, hour, Decimal(hour * 7919 % 3_600_000_000) / 10**6, 3600, BusySource.DEVICE, ENGINE
            )
            for job in sorted(jobs, key=lambda job: job.source_key)
            if isinstance(job, UsageFact)
            for hour in range((job.started or 0) // 3600 * 3600, job.ended or 0, 3600)
            if hour % 7
        ]  # fmt: skip
        dice.shuffle(busy_hours)
        for facts in (jobs, busy_hours):
            for place in range(0, len(facts), size):
                ingest(cluster, *facts[place : place + size])
        count = RatedUsage.objects.count()
        engine.rate_accounts(list(Account.objects.values_list("pk", flat=True)))
        assert RatedUsage.objects.count() == count
        for month in ("2026-03", "2026-04"):
            closed(month, vision)
        prove()
        results.append(
            [
                printed(invoice)
                for invoice in Invoice.objects.filter(tenant=vision, state="issued").order_by("period_start")
            ]
        )
        transaction.savepoint_rollback(point)

    assert results[0]
    assert results[0] == results[1] == results[2]


@pytest.mark.parametrize("by", [By.TENANT, By.POD, By.MODEL])
def test_a_report_tells_how_busy_a_run_was_once_whatever_its_seconds_cost(by: By) -> None:
    cluster, vision = a_lab(gpu("2.00"), gpu("0.50", use="idle"))
    ingest(cluster, *a_run())
    since, until = (int(at(day).timestamp()) for day in ("2026-03-01", "2026-04-01"))

    with tenant_scope(vision):
        own = of_tenant(vision, by=by, since=since, until=until)
    for report in (of_cluster(cluster, by=by, since=since, until=until), own):
        gpu_seconds = report.seconds
        assert (gpu_seconds.allocated, gpu_seconds.effective, gpu_seconds.waste, gpu_seconds.unknown) == (
            hours(6), hours(3), hours(1), hours(2),
        )  # fmt: skip
        (row,) = report.rows
        assert row.money is not None
        assert row.money.allocated == Fraction("10.50")


def test_where_no_price_depends_on_use_no_row_is_told_apart() -> None:
    cluster, vision = a_lab(gpu("2.00"))
    ingest(cluster, *a_run())
    rows = RatedUsage.objects.count()
    ingest(cluster, busy("7@1", "2026-03-02 12:00", "1", 7200))

    assert RatedUsage.objects.filter(tenant_id=vision.pk, resource="gpu").count() == 1
    assert RatedUsage.objects.count() == rows


@pytest.mark.parametrize(("meter", "use"), [("cpu-core-hour", "idle"), ("gpu-hour", "lazy")])
def test_use_is_of_gpus_and_has_three_words(meter: str, use: str) -> None:
    version = a_plan(prices=[]).versions.get()

    with pytest.raises(PlanError, match="A price by use is of gpu-hour, and selects busy, idle, unknown"):
        plans.set_price(
            version=version, meter=meter, where={"use": [use]}, model=PerUnit(Decimal(1)), valid_from=LONG_AGO
        )
