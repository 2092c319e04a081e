"""Prices for hours of the week: nights and weekends cost something else, to the second."""

from __future__ import annotations

import random
from decimal import Decimal
from typing import Any

import pytest
from django.db import transaction

from billing.catalog import plans
from billing.models import DayTotal, Plan, Price, RatedUsage
from billing.rating import engine
from billing.rules import hours as clock
from billing.rules.meters import PerUnit
from clusters.models import Account
from tests.builders import LONG_AGO, a_cluster, a_job, a_plan, a_seller, a_tenant, ingest
from tests.configuring_terms import apply, refused
from tests.evidence import bundle, rows_of
from tests.scenarios.real import run
from tests.stories import closed, hours, invoice_of, lines_of, printed, prove, seconds, total

pytestmark = pytest.mark.django_db

NIGHTS = {"days": "mon-sun", "from": "22:00", "to": "06:00"}
WEEKENDS = {"days": "sat-sun"}


def a_plan_with(*prices: tuple[str, dict[str, Any], dict[str, list[str]]], **fields: Any) -> Plan:
    """Beside 2.00 at any hour, prices as (unit price, one window, where)."""
    plan = a_plan(**fields)
    for unit_price, window, where in prices:
        add(plan, unit_price, window, where)
    return plan


def add(plan: Plan, unit_price: str, *windows: Any, zone: str = "tenant", **options: Any) -> Price:
    where: dict[str, list[str]] = {}
    spans = [window for window in windows if window is not None]
    if spans and "days" not in spans[-1] and "from" not in spans[-1] and "to" not in spans[-1]:
        where = spans.pop()
    return plans.set_price(
        version=plan.versions.get(),
        meter=options.pop("meter", "gpu-hour"),
        where=where,
        hours=clock.of_terms({"zone": zone, "windows": spans}),
        model=PerUnit(Decimal(unit_price)),
        valid_from=LONG_AGO,
        **options,
    )


def cuts() -> list[tuple[str, str, str]]:
    """(resource, hours held, price) of the rated rows that stand, in order of time."""
    prices = {price.pk: f"{price.unit_price:.2f}" for price in Price.objects.all()}
    rows = RatedUsage.objects.order_by("resource", "service_from", "id")
    return [
        (row.resource, f"{row.units / 3600:g}", prices.get(row.price_id, "") if row.price_id else "")
        for row in rows
    ]


def test_each_second_of_a_job_costs_what_its_hour_does() -> None:
    cluster = a_cluster(complete_through="2026-06-01")
    vision = a_tenant(plan=a_plan_with(("0.50", NIGHTS, {})), accounts=[(cluster, "vision")])
    ingest(
        cluster, a_job(started="2026-03-02 21:59:59", ended="2026-03-03 06:00:02", gpus=3600, gpu_model="")
    )

    closed("2026-03", vision)

    assert printed(invoice_of(vision, "2026-03")) == [
        ("2026-03", "vision", "3", "6.00"),  # a second before the night, and two after it
        ("2026-03", "vision", "28800", "14400.00"),
    ]
    assert [line.description for line in lines_of(invoice_of(vision, "2026-03"))] == [
        "GPU time",
        "GPU time, Mon–Sun 22:00–06:00",
    ]
    assert prove()["billed"] == 3600 * (8 * 3600 + 3)


@pytest.mark.parametrize(
    ("started", "ended", "night"),
    [
        ("2026-03-28 12:00", "2026-03-29 12:00", "7"),  # Berlin's clocks go from 02:00 to 03:00
        ("2026-10-24 12:00", "2026-10-25 12:00", "9"),  # and from 03:00 to 02:00
        ("2026-06-13 12:00", "2026-06-14 12:00", "8"),
    ],
)
def test_case_005_a_night_is_billed_for_the_hours_that_pass_in_it(
    started: str, ended: str, night: str
) -> None:
    cluster = a_cluster(complete_through="2027-01-01")
    vision = a_tenant(
        plan=a_plan_with(("1.00", NIGHTS, {})), timezone="Europe/Berlin", accounts=[(cluster, "vision")]
    )
    ingest(cluster, a_job(started=started, ended=ended))

    closed(started[:7], vision)

    assert [row[2] for row in printed(invoice_of(vision, started[:7]))] == [str(24 - int(night)), night]
    assert prove()["billed"] == hours(24)


def test_case_008_the_hours_are_the_tenants_own_or_those_of_the_cluster() -> None:
    """20:00 to 22:00 UTC is the evening in Berlin and the night in Kathmandu, from 01:45 to 03:45."""
    cluster = a_cluster(complete_through="2026-06-01", timezone="Europe/Berlin")
    ours = a_plan_with(("1.00", NIGHTS, {}))
    theirs = a_plan("by-the-cluster")
    add(theirs, "1.00", NIGHTS, zone="cluster")
    vision = a_tenant(plan=ours, timezone="Asia/Kathmandu", accounts=[(cluster, "vision")])
    audio = a_tenant("audio-lab", plan=theirs, timezone="Asia/Kathmandu", accounts=[(cluster, "audio")])
    span = {"started": "2026-03-10 20:00", "ended": "2026-03-10 22:00"}
    ingest(cluster, a_job(**span), a_job(account="audio", **span))

    closed("2026-03", vision)
    closed("2026-03", audio)

    assert printed(invoice_of(vision, "2026-03")) == [("2026-03", "vision", "2", "2.00")]
    assert [row[2:] for row in printed(invoice_of(audio, "2026-03"))] == [("1", "2.00"), ("1", "1.00")]
    assert [line.description for line in lines_of(invoice_of(audio, "2026-03"))] == [
        "GPU time",
        "GPU time, Mon–Sun 22:00–06:00 by the cluster's clock",
    ]


def test_a_price_with_hours_wins_over_one_without_and_selectors_decide_among_them() -> None:
    """13 March 2026 is a Friday; of two windows that are open at once the one with more selectors counts."""
    cluster = a_cluster(complete_through="2026-06-01")
    plan = a_plan(
        prices=[
            ("gpu-hour", {}, "2.00", LONG_AGO),
            ("gpu-hour", {"gpu_model": ["h100"], "queue": ["big"]}, "9.00", LONG_AGO),
        ]
    )
    add(plan, "1.00", NIGHTS)
    add(plan, "4.00", NIGHTS, WEEKENDS, {"gpu_model": ["h100"]})
    vision = a_tenant(plan=plan, accounts=[(cluster, "vision")])
    span = {"started": "2026-03-13 20:00", "ended": "2026-03-14 08:00"}
    ingest(cluster, a_job(**span), a_job(gpu_model="h100", queue="big", **span))

    closed("2026-03", vision)

    assert sorted(row[2:] for row in printed(invoice_of(vision, "2026-03"))) == [
        ("10", "40.00"),  # h100 from 22:00 on: the night goes on as the weekend
        ("2", "18.00"),
        ("4", "8.00"),
        ("8", "8.00"),
    ]


def test_usage_is_cut_only_where_its_price_changes() -> None:
    """Two cuts a day for what the window selects; none for other queues, other resources and other tenants."""
    cluster = a_cluster(complete_through="2026-06-01")
    plan = a_plan(
        charges=("gpu", "cpu"), prices=[(m, {}, "2.00", LONG_AGO) for m in ("gpu-hour", "cpu-core-hour")]
    )
    add(plan, "1.00", NIGHTS, {"queue": ["batch"]})
    add(plan, "0.70", {"days": "mon-fri", "from": "08:00", "to": "09:00"}, {"queue": ["lunch"]})
    a_tenant(plan=plan, accounts=[(cluster, "vision")])
    a_tenant("audio-lab", plan=a_plan("flat"), accounts=[(cluster, "audio")])
    span = {"started": "2026-03-02 00:00", "ended": "2026-03-04 00:00", "cpu_milli": 1000}

    ingest(cluster, a_job(queue="batch", **span))
    assert cuts() == [
        ("cpu", "48000", "2.00"),
        *(("gpu", "6", "1.00"), ("gpu", "16", "2.00"), ("gpu", "8", "1.00"), ("gpu", "16", "2.00")),
        ("gpu", "2", "1.00"),
    ]
    RatedUsage.objects.all()
    before = RatedUsage.objects.count()
    ingest(cluster, a_job(queue="day", **span), a_job(account="audio", **span))
    assert RatedUsage.objects.count() == before + 3


def test_rating_again_writes_nothing_and_any_batching_ends_in_the_same_cuts() -> None:
    cluster = a_cluster(complete_through="2026-06-01")
    plan = a_plan_with(("1.00", NIGHTS, {}), ("0.25", WEEKENDS, {"queue": ["batch"]}))
    a_tenant(plan=plan, timezone="America/Los_Angeles", accounts=[(cluster, "vision")])
    dice = random.Random(7)
    jobs = [
        a_job(
            started=f"2026-03-{dice.randint(1, 20):02d} {dice.randint(0, 23):02d}:17:13",
            ended=f"2026-03-{dice.randint(21, 28):02d} {dice.randint(0, 23):02d}:41:02",
            queue=dice.choice(["batch", "day"]),
            suspended=dice.choice([0, 0, 12_345]),
        )
        for _ in range(12)
    ]
    results = []
    for size in (1, 5, 12):
        point = transaction.savepoint()
        dice.shuffle(jobs)
        for place in range(0, len(jobs), size):
            ingest(cluster, *jobs[place : place + size])
        rows = RatedUsage.objects.count()
        engine.rate_accounts(list(Account.objects.values_list("pk", flat=True)))
        assert RatedUsage.objects.count() == rows
        prove()
        names = dict(Account.objects.values_list("pk", "name"))
        assert names
        results.append(sorted(cuts()))
        transaction.savepoint_rollback(point)

    assert results[0] == results[1] == results[2]


def test_an_open_run_gains_its_nights_as_they_pass_and_a_new_price_is_a_correction() -> None:
    cluster = a_cluster()
    plan = a_plan()
    vision = a_tenant(plan=plan, accounts=[(cluster, "vision")])
    fields = {"source_key": "7@1", "started": "2026-03-31 18:00"}
    ingest(cluster, a_job(**fields, ended=None, seen_until="2026-04-01 00:00", state="RUNNING"))
    assert closed("2026-03", vision).total.text == "12.00"  # type: ignore[union-attr]

    add(plan, "0.50", NIGHTS)
    engine.rate_tenants([vision])
    ingest(cluster, a_job(**fields, ended="2026-04-01 08:00"), as_of="2026-05-01")

    assert closed("2026-04", vision).total.text == "4.00"  # type: ignore[union-attr]  # 2 × 2.00 + 6 × 0.50 − 3.00
    assert printed(invoice_of(vision, "2026-04")) == [
        ("2026-04", "vision", "2", "4.00"),
        ("2026-04", "vision", "6", "3.00"),
        ("2026-03", "vision", "-2", "-4.00"),
        ("2026-03", "vision", "2", "1.00"),
    ]
    prove()


def test_the_days_of_a_tenant_add_up_to_what_its_hours_cost() -> None:
    cluster = a_cluster(complete_through="2026-06-01")
    vision = a_tenant(plan=a_plan_with(("1.00", NIGHTS, {})), accounts=[(cluster, "vision")])
    ingest(cluster, a_job(started="2026-03-02 20:00", ended="2026-03-03 20:00"))

    days = DayTotal.objects.filter(tenant=vision, resource="gpu").costs("day")
    assert [f"{amount / 3600:.2f}" for _, _, amount in days] == [
        "6.00",
        "34.00",
    ]  # 2 × 2 + 2 × 1; 6 × 1 + 14 × 2


def test_the_hours_stand_wherever_a_price_is_told(tmp_path: Any) -> None:
    a_seller()
    lines = apply(CONFIGURED)
    assert (
        "plan standard from 2026-01-01, price of gpu-hour hours=mon-fri 20:00-07:00 + sat-sun 00:00-24:00 "
        "from 2026-01-01: new (unit price 0.5, place 2)"
    ) in lines
    assert apply(CONFIGURED) == ["Nothing to change."]
    cluster = a_cluster("philly")
    ingest(cluster, a_job(started="2026-03-06 19:00", ended="2026-03-06 21:00"), as_of="2026-06-01")
    vision = Plan.objects.get().subscriptions.get().tenant

    closed("2026-03", vision)

    invoice = invoice_of(vision, "2026-03")
    assert total(invoice) == "2.50"
    invoice_lines = run("explain_invoice", invoice.number)["lines"]
    assert [line["price"]["where"] for line in invoice_lines] == [
        "",
        "hours=mon-fri 20:00-07:00 + sat-sun 00:00-24:00",
    ]
    assert invoice_lines[1]["description"] == "GPU time, Mon–Fri 20:00–07:00 and Sat–Sun 00:00–24:00"
    assert [(row["line"], row["service_from"], row["service_to"]) for row in rows_of(bundle(invoice))] == [
        ("1", "2026-03-06T19:00:00Z", "2026-03-06T20:00:00Z"),
        ("2", "2026-03-06T20:00:00Z", "2026-03-06T21:00:00Z"),
    ]
    assert seconds(vision) == hours(2)


CONFIGURED = """
[[cluster]]
name = "philly"
kind = "import"

[[plan]]
name = "standard"
currency = "USD"
charges = ["gpu"]
from = 2026-01-01
[[plan.price]]
meter = "gpu-hour"
unit_price = "2.00"
[[plan.price]]
meter = "gpu-hour"
unit_price = "0.50"
hours = [{ days = "mon-fri", from = "20:00", to = "07:00" }, { days = "sat-sun" }]

[[tenant]]
slug = "vision-lab"
name = "Vision Lab"
plan = "standard"
plan_from = 2026-01-01
accounts = [{ cluster = "philly", account = "vision" }]
"""


@pytest.mark.parametrize(
    ("windows", "sentence"),
    [
        ('{ days = "mo-fr" }', "hours: days is 'mo-fr': 'mo-fr' names no days; write days like \"mon-fri\""),
        ('{ from = "7 pm" }', "hours: from is '7 pm': '7 pm' is no time of day; write it like \"22:00\"."),
        ("{ from = 22:00:00 }", "hours: from is a time of day; write text in quotes."),
        ('{ from = "08:00", to = "08:00" }', 'hours: It would begin and end at 08:00; write to = "24:00"'),
        ('{ hour = "8" }', "hours: there is no key 'hour'; allowed: days, from, to, zone."),
        (
            '{ days = "sat", zone = "Europe/Berlin" }',
            "hours: zone is 'Europe/Berlin'; allowed: tenant, cluster.",
        ),
        ("[]", "hours is an empty list; leave it out for a price that always holds."),
        ('"nights"', "hours is text; write a table."),
        ('[{ days = "sat" }, { days = "sun", zone = "cluster" }]', "hours tells its windows by two clocks"),
    ],
)
def test_hours_that_cannot_be_are_refused_with_a_sentence(windows: str, sentence: str) -> None:
    changed = CONFIGURED.replace(
        '[{ days = "mon-fri", from = "20:00", to = "07:00" }, { days = "sat-sun" }]', windows
    )

    (error,) = refused(changed)

    assert f'plan "standard", price 2{", " if ": " in sentence else ": "}{sentence}' in error
