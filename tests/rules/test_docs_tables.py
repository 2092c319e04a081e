"""Every figure of docs/billing.md, computed again by the rules that bill."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from fractions import Fraction
from zoneinfo import ZoneInfo

import pytest

from billing.documents.format import hours_text
from billing.rules.money import Money
from billing.rules.period import Period, active_seconds, parse_month, period_starting_in
from billing.rules.pricing import Meter, PerUnit
from billing.rules.statement import Billed, LineKey, Owed, statement, totals
from billing.rules.tax import tax_on
from tests import builders
from tests.documentation import number, table
from tests.scenarios.real import run

PAGE = "billing.md"
UTC_ZONE = ZoneInfo("UTC")
TWO = PerUnit(Decimal("2.00"))


def dollars(cell: str) -> Money:
    return Money(number(cell), "USD")


def cost(price: str, seconds: Fraction) -> Money:
    return PerUnit(Decimal(price)).amount(seconds, "USD")


def test_the_meters() -> None:
    rows = table(PAGE, "From a job to a line")
    assert [(row["meter"].strip("`"), row["an invoice prints"]) for row in rows] == [
        (meter.value, f"{meter.unit}s") for meter in Meter
    ]


def test_worked_example_a() -> None:
    for row in table(PAGE, "Worked example: renting out four GPUs"):
        days = int(row["for"].split()[0])
        seconds = Fraction(4 * days * 86_400)
        assert hours_text(seconds) == row["GPU-hours"]
        assert cost("2.00", seconds).rounded() == dollars(row["amount"])


def test_case_029_a_line_is_rounded_once() -> None:
    for row in table(PAGE, "Once per line"):
        jobs, seconds, price = number(row["jobs"]), number(row["seconds each"]), row["price per GPU-hour"]
        assert cost(price, jobs * seconds).rounded() == dollars(row["billed"])
        assert cost(price, seconds).rounded() * jobs == dollars(row["if each job were rounded"])


def test_halves_go_away_from_zero() -> None:
    for row in table(PAGE, "Halves"):
        assert Money.of(row["exact"], row["currency"]).rounded().text == row["rounded"]


def test_case_030_tax_is_taken_once() -> None:
    for row in table(PAGE, "Tax"):
        nets = [dollars(cell) for cell in row["lines"].split(" + ")]
        rate = Decimal(row["rate"].rstrip(" %"))
        lines = statement(
            owed={key(project=str(i)): Owed(Fraction(3600), PerUnit(Decimal(net.text))) for i, net in enumerate(nets)},
            billed={},
            period=OCTOBER,
            currency="USD",
        )  # fmt: skip
        foot = totals(lines, tax_rate=rate)
        assert [foot.subtotal.text, foot.tax.text, foot.total.text] == [
            row["subtotal"],
            row["tax"],
            row["total"],
        ]
        by_line = sum((tax_on(net, rate=rate) for net in nets), Money.zero("USD"))
        assert by_line == dollars(row["tax, if taken line by line"])


def period(month: str, zone: ZoneInfo, anchor_day: int = 1) -> Period:
    return period_starting_in(*parse_month(month), zone=zone, anchor_day=anchor_day)


OCTOBER = period("2017-10", UTC_ZONE)


def key(project: str = "vision") -> LineKey:
    return LineKey(OCTOBER, project, Meter.GPU_HOUR, 1)


def test_cases_004_and_007_a_month_has_the_hours_that_pass_in_it() -> None:
    for row in table(PAGE, "Billing periods"):
        assert period(row["month"], ZoneInfo(row["zone"])).seconds == number(row["hours"]) * 3600


def test_case_006_an_anchor_never_drifts() -> None:
    for row in table(PAGE, "Anchor days"):
        found = period(row["month"], UTC_ZONE, int(row["anchor day"]))
        assert [found.start.date().isoformat(), found.end.date().isoformat()] == [row["begins"], row["ends"]]


def test_cases_001_to_003_a_job_across_borders() -> None:
    months = {"in September": "2017-09", "in October": "2017-10", "in November": "2017-11"}
    for row in table(PAGE, "A job across borders"):
        job = Period(
            *(datetime.fromisoformat(row[name]).replace(tzinfo=UTC) for name in ("started", "ended"))
        )
        parts = {name: job.overlap(period(month, UTC_ZONE)) for name, month in months.items()}
        held = {name: part.seconds if part else 0 for name, part in parts.items()}
        assert held == {name: number(row[name]) for name in months}
        assert sum(held.values()) == job.seconds


def test_suspended_seconds_are_spread_by_one_running_total() -> None:
    for row in table(PAGE, "Suspended seconds"):
        held = active_seconds(
            started=0,
            ended=int(number(row["runs for"])),
            suspended=int(number(row["suspended for"])),
            since=int(number(row["from second"])),
            until=int(number(row["to second"])),
        )
        assert held == number(row["held"])


def test_slices_are_exact_fractions() -> None:
    for row in table(PAGE, "Slices of a GPU"):
        seconds = number(row["slices"]) * number(row["each"]) * number(row["hours"]) * 3600
        assert hours_text(seconds) == row["GPU-hours shown"]
        assert cost("12.00", seconds).rounded() == dollars(row["amount"])


def test_an_invoice_bills_the_difference() -> None:
    for row in table(PAGE, "What was billed, and what changed since"):
        before = dollars(row["billed before"])
        billed = {key(): Billed(Fraction(0), before, TWO.unit_price)} if before.amount else {}
        owed = Owed(number(row["seconds known"]), TWO)
        assert TWO.amount(owed.resource_seconds, "USD").rounded() == dollars(row["owed"])
        (line,) = statement(owed={key(): owed}, billed=billed, period=OCTOBER, currency="USD")
        assert line.amount == dollars(row["next line"])


@pytest.mark.django_db
def test_the_most_specific_price_applies() -> None:
    columns = ("queue", "qos", "gpu_model")
    rows = table(PAGE, "Prices of the example")
    prices = [
        ("gpu-hour", {name: [row[name]] for name in columns if row[name]}, row["per GPU-hour"], date(2026, 1, 1))
        for row in rows
    ]  # fmt: skip
    plan, cluster = builders.a_plan(prices=prices), builders.a_cluster()
    for n, row in enumerate(table(PAGE, "What an hour costs")):
        builders.a_tenant(f"tenant-{n}", plan=plan, accounts=[(cluster, f"account-{n}")])
        builders.take_in(
            cluster, builders.a_job(account=f"account-{n}", **{name: row[name] for name in columns})
        )
        run("close_period", "2026-03", "--tenant", f"tenant-{n}", "--accept-incomplete", "an example")
        (invoice,) = run("show_invoices", "--tenant", f"tenant-{n}")["invoices"]
        assert invoice["subtotal"] == row["an hour costs"]
        assert rows[int(row["price"]) - 1]["per GPU-hour"] == row["an hour costs"]


@pytest.mark.django_db
def test_case_037_a_price_that_changes_during_a_job() -> None:
    rows = table(PAGE, "A price that changes during a job")
    days = [date.fromisoformat(row["from"]) for row in rows]
    plan = builders.a_plan(prices=[("gpu-hour", {}, rows[0]["price per GPU-hour"], days[0])])
    price = plan.versions.get().prices.get()
    price.valid_until = days[1]
    price.save()
    price.pk, price.valid_from, price.valid_until = None, days[1], None
    price.unit_price = Decimal(rows[1]["price per GPU-hour"])
    price.save(force_insert=True)
    cluster = builders.a_cluster()
    builders.a_tenant(plan=plan, accounts=[(cluster, "vision")])
    builders.take_in(cluster, builders.a_job(started="2026-03-15 22:00", ended="2026-03-16 02:00"))
    run("close_period", "2026-03", "--accept-incomplete", "an example")
    (invoice,) = run("show_invoices")["invoices"]
    assert [(number(line["unit_price"]), line["quantity"], line["amount"]) for line in invoice["lines"]] == [
        (number(row["price per GPU-hour"]), row["hours of the job"], row["amount"]) for row in rows
    ]
