"""A statement bills what is owed less what was billed, whatever happened in between."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from fractions import Fraction
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from billing.rules.meters import Meter, PerUnit
from billing.rules.money import CurrencyMismatchError, Money
from billing.rules.period import Period, period_starting_in
from billing.rules.statement_lines import Billed, Line, LineKey, Owed, statement
from billing.rules.tax import Tax, breakdown

SEPTEMBER, OCTOBER, NOVEMBER = (
    period_starting_in(2017, month, zone=ZoneInfo("UTC"), anchor_day=1) for month in (9, 10, 11)
)
GPU = LineKey(service=OCTOBER, project="vision", meter=Meter.GPU_HOUR, price_id=1)
HOUR = 3600


def owed(hours: Fraction | int, price: str = "2.00") -> Owed:
    return Owed(Fraction(hours) * HOUR, PerUnit(Decimal(price)))


def bill(
    owing: dict[LineKey, Owed], billed: dict[LineKey, Billed] | None = None, period: Period = OCTOBER
) -> list[Line]:
    return statement(owed=owing, billed=billed or {}, period=period, currency="USD")


def issued(lines: list[Line], before: dict[LineKey, Billed] | None = None) -> dict[LineKey, Billed]:
    """What stands billed once these lines are issued too."""
    after = dict(before or {})
    for line in lines:
        was = after.get(use(line), Billed(Fraction(0), Money.zero("USD"), line.unit_price))
        after[use(line)] = replace(
            was,
            resource_seconds=was.resource_seconds + line.resource_seconds,
            amount=was.amount + line.amount,
        )
    return after


def use(line: Line) -> LineKey:
    assert isinstance(line.key, LineKey)
    return line.key


def amounts(lines: list[Line]) -> list[str]:
    return [line.amount.text for line in lines]


def test_a_thousand_jobs_of_a_third_of_an_hour_are_rounded_once() -> None:
    jobs = 1000 * Fraction("0.333333")
    assert amounts(bill({GPU: owed(jobs)})) == ["666.67"]


@pytest.mark.parametrize(("seconds", "amount"), [(37, "2055.56"), (8, "444.44")])
def test_case_029_a_hundred_thousand_short_jobs_are_rounded_once(seconds: int, amount: str) -> None:
    assert amounts(bill({GPU: owed(Fraction(100_000 * seconds, HOUR))})) == [amount]


def test_four_gpus_for_thirty_days_are_one_line_of_5760_dollars() -> None:
    (line,) = bill({GPU: owed(96 * 30)})
    assert line == Line(
        GPU, Fraction(2880 * HOUR), Decimal("2.00"), Money.of("5760.00", "USD"), correction=False
    )


def test_what_is_billed_in_full_is_not_billed_again() -> None:
    first = bill({GPU: owed(10)})
    assert bill({GPU: owed(10)}, issued(first)) == []


def test_late_usage_of_october_is_a_correction_on_novembers_invoice() -> None:
    october = issued(bill({GPU: owed(10)}))
    november_key = replace(GPU, service=NOVEMBER)
    lines = bill({GPU: owed(13), november_key: owed(5)}, october, NOVEMBER)
    assert [(line.key.service, line.amount.text, line.correction) for line in lines] == [
        (NOVEMBER, "10.00", False),
        (OCTOBER, "6.00", True),
    ]
    assert lines[1].resource_seconds == 3 * HOUR


def test_usage_that_turned_out_smaller_is_given_back() -> None:
    (line,) = bill({GPU: owed(7)}, issued(bill({GPU: owed(10)})), NOVEMBER)
    assert (line.amount.text, line.resource_seconds) == ("-6.00", Fraction(-3 * HOUR))


def test_a_project_that_lost_its_usage_gets_all_of_it_back_at_the_price_it_paid() -> None:
    moved = replace(GPU, project="speech")
    lines = bill({moved: owed(10)}, issued(bill({GPU: owed(10)})), NOVEMBER)
    assert [(use(line).project, line.amount.text, line.unit_price) for line in lines] == [
        ("speech", "20.00", Decimal("2.00")),
        ("vision", "-20.00", Decimal("2.00")),
    ]


def test_a_new_price_takes_the_old_line_back_and_bills_anew() -> None:
    lines = bill({replace(GPU, price_id=2): owed(10, "1.50")}, issued(bill({GPU: owed(10)})))
    assert [(use(line).price_id, line.amount.text, line.unit_price) for line in lines] == [
        (1, "-20.00", Decimal("2.00")),
        (2, "15.00", Decimal("1.50")),
    ]


def test_free_use_is_shown_and_no_use_is_not() -> None:
    (line,) = bill({GPU: owed(3, "0"), replace(GPU, project="idle"): owed(0)})
    assert (line.amount.text, line.resource_seconds) == ("0.00", Fraction(3 * HOUR))


def test_use_too_small_for_a_cent_is_shown_and_its_cent_comes_later() -> None:
    first = bill({GPU: owed(Fraction(8, HOUR))})
    assert amounts(first) == ["0.00"]
    assert amounts(bill({GPU: owed(Fraction(16, HOUR))}, issued(first))) == ["0.01"]


def test_lines_come_in_one_order_with_corrections_last() -> None:
    keys = [
        LineKey(SEPTEMBER, "a", Meter.GPU_HOUR, 1),
        LineKey(OCTOBER, "b", Meter.GPU_HOUR, 1),
        LineKey(OCTOBER, "a", Meter.MEMORY_GIB_HOUR, 1),
        LineKey(OCTOBER, "a", Meter.GPU_HOUR, 2),
        LineKey(OCTOBER, "a", Meter.GPU_HOUR, 1),
    ]
    expected = [keys[4], keys[3], keys[2], keys[1], keys[0]]
    assert [line.key for line in bill({key: owed(1) for key in keys})] == expected
    assert [line.key for line in bill({key: owed(1) for key in reversed(keys)})] == expected


def test_what_was_billed_in_another_currency_is_not_set_off() -> None:
    euros = {GPU: Billed(Fraction(HOUR), Money.of(2, "EUR"), Decimal(2))}
    with pytest.raises(CurrencyMismatchError):
        bill({GPU: owed(1)}, euros)


def test_case_042_a_negative_total_is_refused() -> None:
    with pytest.raises(ValueError, match="Nobody can have used"):
        owed(-1)


def test_case_030_the_foot_of_an_invoice_is_taxed_once() -> None:
    lines = bill({replace(GPU, project=name): owed(1, "0.33") for name in ("a", "b", "c")})
    (row,) = breakdown((Tax("S", Decimal(20)), line.amount) for line in lines)
    assert (row.net.text, row.tax.text) == ("0.99", "0.20")


PRICES = st.decimals(0, 50, places=6)
USE = st.fractions(0, 10**7, max_denominator=1024)


@given(price=PRICES, steps=st.lists(USE, min_size=1, max_size=8))
def test_billing_step_by_step_ends_at_the_same_cents_as_billing_once(
    price: Decimal, steps: list[Fraction]
) -> None:
    model = PerUnit(price)
    billed: dict[LineKey, Billed] = {}
    for total in steps:  # each a new total: usage is added and taken back at random
        billed = issued(bill({GPU: Owed(total, model)}, billed), billed)
    at_once = model.amount(steps[-1], "USD").rounded()
    assert sum((line.amount for line in billed.values()), Money.zero("USD")) == at_once
    assert sum(line.resource_seconds for line in billed.values()) == steps[-1]


@given(price=PRICES, use=USE, more=USE)
def test_more_use_never_gives_money_back(price: Decimal, use: Fraction, more: Fraction) -> None:
    model = PerUnit(price)
    billed = issued(bill({GPU: Owed(use, model)}))
    assert all(
        line.amount >= Money.zero("USD") for line in bill({GPU: Owed(use + more, model)}, billed, NOVEMBER)
    )


@given(
    use=st.dictionaries(
        st.builds(
            LineKey,
            service=st.sampled_from([SEPTEMBER, OCTOBER]),
            project=st.sampled_from("abc"),
            meter=st.sampled_from(Meter),
            price_id=st.integers(1, 3),
        ),
        st.builds(Owed, USE, st.builds(PerUnit, PRICES)),
        min_size=1,
    ),
    rate=st.decimals(0, 100, places=2),
)
def test_voiding_takes_back_what_was_billed_and_its_tax(use: dict[LineKey, Owed], rate: Decimal) -> None:
    lines = bill(use)
    back = bill({}, issued(lines))
    assert {line.key: line.amount for line in back} == {line.key: -line.amount for line in lines}
    assert {line.key: line.resource_seconds for line in back} == {
        line.key: -line.resource_seconds for line in lines
    }
    if lines:
        kind = Tax("S", rate)
        ((foot,), (reversal,)) = (breakdown((kind, line.amount) for line in side) for side in (lines, back))
        assert foot.net.minor == sum(line.amount.minor for line in lines)
        assert reversal.net + reversal.tax == -(foot.net + foot.tax)


def test_a_quantity_in_mib_or_slices_stays_exact() -> None:
    mib = LineKey(OCTOBER, "vision", Meter.MEMORY_GIB_HOUR, 3)
    (line,) = bill({mib: Owed(Fraction(1000, 1024) * HOUR, PerUnit(Decimal("0.015")))})
    assert line.resource_seconds == Fraction(28125, 8)
    assert line.amount.text == "0.01"
