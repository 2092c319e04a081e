"""Every figure of docs/explanation/amounts.md, computed again by the rules that bill."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from zoneinfo import ZoneInfo

import pytest

from billing.rules.fees import Commitment, Discount, Fee, included
from billing.rules.forecast import pace
from billing.rules.formatting import hours_text
from billing.rules.hours import of_terms
from billing.rules.meters import Meter, PerUnit
from billing.rules.money import Money
from billing.rules.period import Period, parse_month, period_starting_in
from billing.rules.price_shares import shared
from billing.rules.statement_lines import Billed, LineKey, Owed, statement
from billing.rules.tax import Tax, TaxRow, breakdown, credited, tax_on
from billing.rules.tiers import Graduated, Package, Tier, Volume
from clusters.connectors.mig import slice_share
from clusters.connectors.prometheus import PrometheusOptions
from clusters.connectors.prometheus.nodes import PRODUCT, shape
from clusters.connectors.sacct.tres import parse_tres
from tests import builders
from tests.documentation import number, table
from tests.held import held_in_parts
from tests.scenarios.real import run

PAGE = "explanation/amounts.md"
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


def _nights(zone: str, since: str, until: str, days: str = "mon-fri", *clock: str) -> int:
    """Seconds of the span, in UTC, at the price for hours."""
    begins, ends = clock or ("22:00", "06:00")
    hours = of_terms({"windows": [{"days": days, "from": begins, "to": ends}]})
    assert hours is not None
    low, high = (int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()) for text in (since, until))
    return sum(end - start for start, end in hours.between(low, high, zone=ZoneInfo(zone)))


def test_nights_at_another_price() -> None:
    for row in table(PAGE, "Nights at another price"):
        night = _nights(row["zone"], row["from"], row["to"])
        whole = datetime.fromisoformat(row["to"]) - datetime.fromisoformat(row["from"])
        day = int(whole.total_seconds()) - night
        assert number(row["seconds at 2.00"]) == day, row
        assert number(row["seconds at 0.50"]) == night, row
        lines = [cost(price, Fraction(part)).rounded() for price, part in (("2.00", day), ("0.50", night))]
        assert sum(lines[1:], lines[0]) == dollars(row["amount"]), row


def test_case_005_nights_when_clocks_change() -> None:
    for row in table(PAGE, "Nights when clocks change"):
        day = date.fromisoformat(row["night of"])
        night = _nights(
            row["zone"], f"{day}T12:00", f"{day + timedelta(days=1)}T15:00",
            f"{day:%a}".lower(), row["from"], row["to"],
        )  # fmt: skip
        assert Fraction(night, 3600) == number(row["hours"]), row


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


def test_the_taxes_of_credit_notes_use_up_that_of_the_invoice() -> None:
    kind, net = Tax("S", Decimal(20)), dollars("0.99")
    row = TaxRow(kind, net, tax_on(net, rate=kind.rate))
    for example in table(PAGE, "An invoice of 0.99 and 20 % tax, credited in three parts"):
        (credit,) = credited([(kind, -dollars(example["credited"]))], left=[row])
        row = TaxRow(kind, row.net + credit.net, row.tax + credit.tax)
        assert [(-credit.tax).text, row.net.text, row.tax.text] == [
            example["tax given back"],
            example["left"],
            example["tax on what is left"],
        ]


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
        (foot,) = breakdown((Tax("S", rate), line.amount) for line in lines)
        assert [foot.net.text, foot.tax.text, (foot.net + foot.tax).text] == [
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
        month = period(row["month"], UTC_ZONE, int(row["anchor day"]))
        assert [month.start.date().isoformat(), month.end.date().isoformat()] == [row["begins"], row["ends"]]


@pytest.mark.django_db
def test_cases_001_to_003_a_job_across_borders() -> None:
    months = {"in September": "2017-09", "in October": "2017-10", "in November": "2017-11"}
    for row in table(PAGE, "A job across borders"):
        started, ended = (
            int(datetime.fromisoformat(row[name]).replace(tzinfo=UTC).timestamp())
            for name in ("started", "ended")
        )
        parts = [period(month, UTC_ZONE) for month in months.values()]
        borders = [(int(part.start.timestamp()), int(part.end.timestamp())) for part in parts]
        seconds = held_in_parts(*borders, started=started, ended=ended)
        assert seconds == [number(row[name]) for name in months]
        assert sum(seconds) == ended - started


@pytest.mark.django_db
def test_suspended_seconds_are_spread_by_one_running_total() -> None:
    for row in table(PAGE, "Suspended seconds"):
        part = (int(number(row["from second"])), int(number(row["to second"])))
        runs, suspended = int(number(row["runs for"])), int(number(row["suspended for"]))
        assert held_in_parts(part, started=0, ended=runs, suspended=suspended) == [number(row["held"])]


def test_slices_are_exact_fractions() -> None:
    for row in table(PAGE, "Slices of a GPU"):
        seconds = number(row["slices"]) * number(row["each"]) * number(row["hours"]) * 3600
        assert hours_text(seconds) == row["GPU-hours shown"]
        assert cost("12.00", seconds).rounded() == dollars(row["amount"])


def steps() -> tuple[Tier, ...]:
    return tuple(
        Tier(Decimal(row["up_to"]) if row["up_to"] else None, Decimal(row["per GPU-hour"]))
        for row in table(PAGE, "Tiers of the example")
    )


def test_case_031_graduated_and_volume_prices() -> None:
    for row in table(PAGE, "What they come to"):
        seconds = number(row["GPU-hours"]) * 3600
        for name, model in (("graduated", Graduated(steps())), ("volume", Volume(steps()))):
            assert model.amount(seconds, "USD") == dollars(row[name])


def test_case_032_packages() -> None:
    model = Package(size=Decimal(10), price=Decimal("25.00"))
    for row in table(PAGE, "Packages"):
        seconds = number(row["GPU-hours"]) * 3600
        assert model.packages(seconds) == number(row["packages"])
        assert model.amount(seconds, "USD") == dollars(row["amount"])


def test_case_030_projects_share_what_a_price_comes_to() -> None:
    rows = table(PAGE, "Shares of projects")
    used = {row["project"]: number(row["GPU-hours"]) * 3600 for row in rows}
    owed = shared(used, Graduated(steps()), "USD")
    assert {project: share.amount("USD") for project, share in owed.items()} == {
        row["project"]: dollars(row["share"]) for row in rows
    }


def test_case_033_what_an_allowance_leaves_to_pay() -> None:
    for row in table(PAGE, "Allowances"):
        free, used = (number(row[name]) * 3600 for name in ("included", "used"))
        (stands,) = included(rollover=False, periods=[(number(row["included"]), used)])
        assert stands.available == free
        owed = shared({"vision": used}, PerUnit(Decimal(row["at"])), "USD", included=min(used, free))
        assert used - min(used, free) == number(row["pays for"]) * 3600
        assert owed["vision"].amount("USD") == dollars(row["amount"])


def test_case_043_a_fee_counts_by_seconds() -> None:
    for row in table(PAGE, "Flat fees"):
        part = Fraction(row["on the plan for"].split()[0]) / Fraction(row["of"].split()[0])
        owed = Fee(Decimal(row["fee"])).owed("USD", part)
        assert owed == dollars(row["owed"])
        assert owed - dollars(row["billed before"]) == dollars(row["next line"])


def test_cases_035_and_036_what_is_missing_to_a_commitment_or_lies_above() -> None:
    for row in table(PAGE, "Minimum commitment"):
        use = dollars(row["used"])
        rule = Commitment(Decimal(row["committed"].replace(",", "")), Decimal(row["factor"]))
        assert use + rule.owed(use, Fraction(1)) == dollars(row["use and commitment come to"])


def test_case_039_a_discount_leaves_nothing_below_zero() -> None:
    for row in table(PAGE, "Discounts"):
        off, charged = Decimal(row["discount"].rstrip(" %")), dollars(row["charged"])
        rule = Discount(percent=off) if "%" in row["discount"] else Discount(amount=off)
        assert charged + rule.owed(charged, Fraction(1)) == dollars(row["comes to"])


def test_a_percentage_in_a_part_of_a_period() -> None:
    for row in table(PAGE, "A percentage in a part of a period"):
        on, of, valid = (Fraction(row[name].split()[0]) for name in ("on the plan for", "of", "valid for"))
        charged = dollars(row["charged"])
        assert Fee(Decimal("93.00")).owed("USD", on / of) == charged
        off, is_part = Decimal(row["discount"].rstrip(" %")), "%" in row["discount"]
        rule = Discount(percent=off) if is_part else Discount(amount=off)
        assert charged + rule.owed(charged, valid / (on if is_part else of)) == dollars(row["comes to"])


def test_an_invoice_bills_the_difference() -> None:
    for row in table(PAGE, "What was billed, and what changed since"):
        before = dollars(row["billed before"])
        billed = {key(): Billed(Fraction(0), before, TWO.unit_price)} if before.amount else {}
        owed = Owed(number(row["seconds known"]), TWO)
        assert TWO.amount(owed.resource_seconds, "USD").rounded() == dollars(row["owed"])
        (line,) = statement(owed={key(): owed}, billed=billed, period=OCTOBER, currency="USD")
        assert line.amount == dollars(row["next line"])


def test_the_forecast() -> None:
    for row in table(PAGE, "The forecast"):
        going = pace([Fraction(day) for day in row["the last whole days"].split(", ")])
        assert going is not None
        coming = going.coming(Fraction(row["days left"]))
        amounts = [Money(figure, "USD").rounded().text for figure in (going.mean, coming.expected)]
        assert amounts == [row["a day"], row["still to come"]]
        if coming.low is None or coming.high is None:
            assert row["band"] == "none"
        else:
            ends = [Money(bound, "USD").rounded().text for bound in (coming.low, coming.high)]
            assert " to ".join(ends) == row["band"]


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
        builders.ingest(
            cluster, builders.a_job(account=f"account-{n}", **{name: row[name] for name in columns})
        )
        run("close_period", "2026-03", "--tenant", f"tenant-{n}", "--accept-incomplete", "an example")
        (invoice,) = run("show_invoices", "--tenant", f"tenant-{n}")["invoices"]
        assert invoice["subtotal"] == row["an hour costs"]
        assert rows[int(row["price"]) - 1]["per GPU-hour"] == row["an hour costs"]


@pytest.mark.django_db
def test_prices_by_class_and_outcome() -> None:
    rows = table(PAGE, "Prices by class and outcome")
    columns = ("qos", "priority_class", "state")
    selectors = [{name: [row[name]] for name in columns if row[name]} for row in rows]
    plan = builders.a_plan(
        prices=[
            ("gpu-hour", where, row["per GPU-hour"], builders.LONG_AGO)
            for where, row in zip(selectors, rows, strict=True)
        ]
    )
    cluster = builders.a_cluster()
    examples = table(PAGE, "What an hour of them costs")
    for n, row in enumerate(examples):
        builders.a_tenant(f"tenant-{n}", plan=plan, accounts=[(cluster, f"account-{n}")])
        builders.ingest(
            cluster, builders.a_job(account=f"account-{n}", **{name: row[name] for name in columns})
        )
    run("close_period", "2026-03", "--accept-incomplete", "an example")
    subtotals = {invoice["tenant"]: invoice["subtotal"] for invoice in run("show_invoices")["invoices"]}
    assert subtotals == {f"tenant-{n}": row["an hour costs"] for n, row in enumerate(examples)}
    for row in examples:
        assert rows[int(row["price"]) - 1]["per GPU-hour"] == row["an hour costs"]


def test_three_hours_of_two_gpus() -> None:
    """Three GPU-hours busy, one idle, two unknown."""
    for row in table(PAGE, "Three hours of two GPUs"):
        uses = (("busy", 3), ("idle", 1), ("unknown", 2))
        lines = [cost(row[use] or row["otherwise"], Fraction(hours * 3600)) for use, hours in uses]
        assert sum(lines, Money.zero("USD")) == dollars(row["amount"])


def test_a_run_whose_end_comes_after_an_invoice() -> None:
    march = Period(datetime(2026, 3, 1, tzinfo=UTC), datetime(2026, 4, 1, tzinfo=UTC))
    running, ended = (LineKey(march, "vision", Meter.GPU_HOUR, price) for price in (1, 2))
    for row in table(PAGE, "A run whose end comes after an invoice"):
        before, hours = number(row["hours billed as running"]), number(row["hours in all"])
        billed = Billed(before * 3600, dollars(row["billed before"]), Decimal("2.00"))
        assert billed.amount == cost("2.00", billed.resource_seconds)
        price = PerUnit(Decimal(row["per GPU-hour"]))
        key = running if price == TWO else ended
        owed = {key: Owed(hours * 3600, price)}
        lines = statement(owed=owed, billed={running: billed}, period=march, currency="USD")
        assert owed[key].amount("USD") == dollars(row["owed"])
        assert sum((line.amount for line in lines), Money.zero("USD")) == dollars(row["next invoice"])


def _pod(model: str, profile: str) -> tuple[str, dict[str, str]]:
    """A slice as kube-state-metrics names it, and the labels of its node."""
    return f"nvidia_com_mig_{profile.replace('.', '_')}", {
        PRODUCT: f"NVIDIA-{model.upper()}" if model else ""
    }


def test_case_040_shares_of_slices() -> None:
    for row in table(PAGE, "Shares of slices"):
        model, profile = row["model"], row["profile"]
        share = slice_share(model, model, profile, {})
        assert share == number(row["share"])
        assert Fraction(*shape(*_pod(model, profile), PrometheusOptions()).share) == share
        for name in dict.fromkeys((f"{model}_{profile}".strip("_"), f"nvidia_{model}_{profile}")):
            if model or not name.startswith("nvidia"):
                assert Fraction(*parse_tres(f"gres/gpu:{name}=1").gpu_share) == share, name
        price = f"{Decimal(row['an hour of the GPU'])}"
        assert cost(price, share * 3600).rounded() == dollars(row["an hour of the slice"])


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
    builders.ingest(cluster, builders.a_job(started="2026-03-15 22:00", ended="2026-03-16 02:00"))
    run("close_period", "2026-03", "--accept-incomplete", "an example")
    (invoice,) = run("show_invoices")["invoices"]
    assert [(number(line["unit_price"]), line["quantity"], line["amount"]) for line in invoice["lines"]] == [
        (number(row["price per GPU-hour"]), row["hours of the job"], row["amount"]) for row in rows
    ]


def test_currencies_without_decimals_and_with_three() -> None:
    for row in table(PAGE, "Currencies without decimals, and with three"):
        price, currency = PerUnit(Decimal(row["price"])), row["currency"]
        net = price.amount(number(row["GPU-hours"]) * 3600, currency).rounded()
        tax = tax_on(net, rate=Decimal(20))
        written = [row["net"], row["20 % of it"], row["total"]]
        assert [amount.text for amount in (net, tax, net + tax)] == written
