"""A run that goes on has one rated row per price and month, which grows in its place until a document covers it."""

from __future__ import annotations

import random
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest
from django.db import DatabaseError, connection, transaction
from django.db.models import Sum

from billing.catalog import plans
from billing.models import RatedUsage
from billing.rules import hours as clock
from billing.rules.meters import PerUnit
from clusters.connectors.base import UsageFact
from tests.builders import LONG_AGO, PriceRow, a_cluster, a_job, a_plan, a_tenant, at, ingest
from tests.stories import closed, hours, invoice_of, printed, prove, seconds
from tests.tiers import thinned, whole_or

pytestmark = pytest.mark.django_db


def running(until: str | None, **fields: Any) -> UsageFact:
    open_run = (
        {"ended": None, "seen_until": until, "state": "RUNNING"} if until else {"ended": fields.pop("end")}
    )
    return a_job(**{"job_id": "7", "started": "2026-03-02 10:00", **open_run, **fields})


def cuts() -> list[tuple[int, int, int]]:
    """Every rated row, taken back or not, by time: hours of 2026-03-02 that it is from and to, and its GPU-hours."""
    zero = int(at("2026-03-02").timestamp())
    rows = RatedUsage.objects.order_by("service_from", "service_to", "-units")
    return [
        ((row.service_from - zero) // 3600, (row.service_to - zero) // 3600, row.units // 3600)
        for row in rows
    ]


@pytest.mark.swept
def test_a_run_that_is_seen_each_hour_for_days_is_one_row() -> None:
    cluster = a_cluster()
    vision = a_tenant(plan=a_plan(), accounts=[(cluster, "vision")])
    for hour in range(11, 10 + 5 * 24, whole_or(3, 1)):
        ingest(cluster, running(f"2026-03-{2 + hour // 24:02} {hour % 24:02}:00"))
        assert seconds(vision) == hours(hour - 10)
    ingest(cluster, running(None, end="2026-03-07 12:00"))

    assert cuts() == [(10, 5 * 24 + 12, 122)]
    assert prove()["pending"] == hours(122)


def test_it_has_a_row_in_each_month_and_the_invoice_has_its_part() -> None:
    cluster = a_cluster(complete_through="2026-06-01")
    vision = a_tenant(plan=a_plan(), accounts=[(cluster, "vision")])
    for until in ("2026-03-31 20:00", "2026-04-01 02:00", "2026-04-02 10:00"):
        ingest(cluster, running(until, started="2026-03-31 10:00"))
    closed("2026-03", vision)
    ingest(cluster, running("2026-04-03 10:00", started="2026-03-31 10:00"))

    assert [units for *_, units in cuts()] == [14, 58]
    assert printed(invoice_of(vision, "2026-03")) == [("2026-03", "vision", "14", "28.00")]
    assert prove() == {**prove(), "billed": hours(14), "pending": hours(58)}


def test_what_an_invoice_covers_is_taken_back_and_not_grown() -> None:
    """The month was closed before its last hours were known: what came after is on the next invoice."""
    cluster = a_cluster(complete_through="2026-06-01")
    vision = a_tenant(plan=a_plan(), accounts=[(cluster, "vision")])
    ingest(cluster, running("2026-03-02 20:00"))
    closed("2026-03", vision)
    ingest(cluster, running("2026-03-02 22:00"))
    assert cuts() == [(10, 20, 10), (10, 20, -10), (10, 22, 12)]

    ingest(cluster, running("2026-03-02 23:00"))  # no document covers the new row yet
    assert cuts() == [(10, 20, 10), (10, 20, -10), (10, 23, 13)]

    closed("2026-04", vision)
    assert printed(invoice_of(vision, "2026-04")) == [("2026-03", "vision", "3", "6.00")]
    ingest(cluster, running(None, end="2026-03-03 00:00"))
    assert [units for *_, units in cuts()] == [10, -10, 13, -13, 14]
    assert prove()["pending"] == hours(1)


def test_a_run_that_stood_still_has_fewer_seconds_in_the_same_row() -> None:
    cluster = a_cluster()
    vision = a_tenant(plan=a_plan(), accounts=[(cluster, "vision")])
    ingest(cluster, running("2026-03-02 20:00"))
    ingest(cluster, running("2026-03-02 22:00", suspended=hours(5), state="SUSPENDED"))

    assert cuts() == [(10, 22, 7)]
    assert seconds(vision) == hours(7)
    prove()


def test_hours_of_the_week_cut_it_and_only_the_last_cut_grows() -> None:
    cluster = a_cluster()
    plan = a_plan()
    nights = {"zone": "tenant", "windows": [{"from": "20:00", "to": "08:00"}]}
    plans.set_price(
        version=plan.versions.get(),
        meter="gpu-hour",
        where={},
        hours=clock.of_terms(nights),
        model=PerUnit(Decimal("1.00")),
        valid_from=LONG_AGO,
    )
    a_tenant(plan=plan, accounts=[(cluster, "vision")])
    for until in ("2026-03-02 19:00", "2026-03-02 21:00", "2026-03-03 06:00", "2026-03-03 09:00"):
        ingest(cluster, running(until))

    assert cuts() == [(10, 20, 10), (20, 32, 12), (32, 33, 1)]
    prove()


def test_a_new_name_of_its_user_is_a_change_and_no_growth() -> None:
    cluster = a_cluster()
    a_tenant(plan=a_plan(), accounts=[(cluster, "vision")])
    ingest(cluster, running("2026-03-02 12:00", user="ben"))
    ingest(cluster, running("2026-03-02 14:00", user="ann"))

    assert [units for *_, units in cuts()] == [2, -2, 4]
    prove()


@pytest.mark.parametrize("seed", thinned(range(8), every=4))
def test_any_sights_in_any_order_end_in_the_sums_of_the_last(seed: int) -> None:
    """Op's files come late, twice and in any order; runs are suspended, end, and cross months that are closed."""
    dice = random.Random(seed)
    cluster = a_cluster(complete_through="2026-06-01")
    vision = a_tenant(plan=a_plan(charges=["gpu", "cpu"], prices=PRICES), accounts=[(cluster, "vision")])
    sights: list[UsageFact] = []
    begun = int(at("2026-03-30").timestamp())
    for run in range(6):
        fields: dict[str, Any] = {"job_id": str(run), "cpu_milli": 4_000, "gpus": 1 + run % 3}
        started, suspended = begun + dice.randrange(86_400), 0
        until = started
        for _ in range(dice.randrange(2, 9)):
            until += dice.randrange(1, 40_000)
            suspended += dice.choice((0, 0, dice.randrange(1, 900)))
            times = {"started": text(started), "suspended": suspended}
            sights.append(a_job(**fields, **times, ended=None, seen_until=text(until), state="RUNNING"))
        if run % 2:
            sights.append(a_job(**fields, **times, ended=text(until + 5), state="COMPLETED"))
    dice.shuffle(sights)
    for place, sight in enumerate(sights):
        ingest(cluster, sight, *dice.sample(sights[:place], min(place, 2)))
        if place == len(sights) // 2:
            closed("2026-03", vision)
    prove()

    calm = a_cluster("calm", complete_through="2026-06-01")
    lab = a_tenant(
        "lab", plan=a_plan("same", charges=["gpu", "cpu"], prices=PRICES), accounts=[(calm, "vision")]
    )
    ingest(calm, *sights)
    assert sums(vision.pk) == sums(lab.pk)
    prove()


PRICES: list[PriceRow] = [("gpu-hour", {}, "2.00", LONG_AGO), ("cpu-core-hour", {}, "0.01", LONG_AGO)]


def text(second: int) -> str:
    return f"{datetime.fromtimestamp(second, UTC):%Y-%m-%d %H:%M:%S}"


def sums(tenant: int) -> list[tuple[Any, ...]]:
    """What is rated of each second, by resource, as if nothing had ever been taken back."""
    rows = RatedUsage.objects.filter(tenant_id=tenant).values_list("resource", "service_from", "service_to")
    return sorted(rows.annotate(units=Sum("units")).exclude(units=0))


@pytest.mark.parametrize(
    "change",
    [
        "service_to = service_to + 60, units = units + 60",  # not the newest row
        "id = id + 1000, units = units + 60",  # no longer
        "id = id + 1000, service_to = service_to + 60, price_id = price_id + 1",
        "id = id + 1000, service_to = service_to + 60, service_from = service_from - 1",
        "id = id - 1, service_to = service_to + 60",
    ],
)
def test_the_database_lets_a_row_do_nothing_but_grow(change: str) -> None:
    cluster = a_cluster()
    a_tenant(plan=a_plan(), accounts=[(cluster, "vision")])
    ingest(cluster, running("2026-03-02 12:00"))

    with (
        pytest.raises(DatabaseError, match="append-only"),
        transaction.atomic(),
        connection.cursor() as cursor,
    ):
        cursor.execute(f"UPDATE billing_ratedusage SET {change}")


def test_the_database_lets_no_covered_row_grow() -> None:
    cluster = a_cluster(complete_through="2026-06-01")
    vision = a_tenant(plan=a_plan(), accounts=[(cluster, "vision")])
    ingest(cluster, running("2026-03-02 12:00"))
    grows = "UPDATE billing_ratedusage SET id = id + 1000, service_to = service_to + 60, units = units + 60"
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(grows)
        transaction.set_rollback(True)
    closed("2026-03", vision)

    with (
        pytest.raises(DatabaseError, match="append-only"),
        transaction.atomic(),
        connection.cursor() as cursor,
    ):
        cursor.execute(grows)
