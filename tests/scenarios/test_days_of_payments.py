"""Money is booked on the day it came: not on a day to come, and not before the invoice's period began."""

from __future__ import annotations

import pytest
from django.test import Client

from billing.models import Invoice, Payment, RefusedEntry
from portal.core.tenants.models import Tenant
from portal.ops.cli import RefusedError
from tests import builders, sharing
from tests.scenarios.configuring import run
from tests.statements import Line, a_lab, camt, imported, march, reference, stands, transfers
from tests.web.house import signed_in

pytestmark = pytest.mark.django_db

begun, lab = sharing.fixtures(a_lab, "lab")  # owes 20.00 EUR for March

IMPOSSIBLE = "It was booked on {day}: a bank books from 1971 on, and not on a day to come."
TO_COME = "2099-01-01 is still to come: record the payment on the day on which it arrived."
BEFORE = "{invoice} is of a period that begins on 2026-03-01: nobody paid it on {day}."


@pytest.fixture
def invoice(lab: Tenant) -> Invoice:
    return march(lab)


@pytest.fixture
def op() -> Client:
    return signed_in(builders.an_operator())


@pytest.mark.parametrize(
    ("written", "day"),
    [
        ("15.11.2099", "2099-11-15"),
        ("10.04.2026", ""),
        ("11.04.2026", "2026-04-11"),
        ("01.01.0001", "0001-01-01"),
    ],
)
def test_a_row_of_a_csv_that_is_booked_on_no_such_day_is_put_aside(
    invoice: Invoice, written: str, day: str
) -> None:
    """It is the ninth of April; where days begin first, it may be the tenth."""
    imported(
        f"date;amount;currency;text\n{written};20,00;EUR;{reference(invoice)}\n".encode(),
        moment=builders.at("2026-04-09 20:00"),
    )
    assert [row.reason for row in RefusedEntry.objects.all()] == [IMPOSSIBLE.format(day=day)] * bool(day)
    assert stands(invoice)[0] == ("due" if day else "paid")


def test_an_entry_of_camt_that_is_booked_on_no_such_day_is_put_aside(invoice: Invoice) -> None:
    later = Line(amount="20.00", text=reference(invoice), on="2099-11-15", name="B-1")
    imported(camt(later, Line(amount="7.00", text="?")))
    (row,) = RefusedEntry.objects.all()
    assert (row.place, row.reason) == ("B-1", IMPOSSIBLE.format(day="2099-11-15"))
    assert stands(invoice) == ("due", "0.00", "20.00")
    assert [amount for amount, _, _ in transfers()] == ["7.00"]


def test_a_transfer_of_a_day_before_the_period_waits_for_somebody(invoice: Invoice) -> None:
    imported(camt(Line(amount="20.00", text=reference(invoice), on="1990-01-01")))
    assert transfers() == [("20.00", "waiting", BEFORE.format(invoice=invoice, day="1990-01-01"))]
    assert stands(invoice) == ("due", "0.00", "20.00")


@pytest.mark.parametrize("day", ["2099-01-01", "1990-01-01", "0001-01-01"])
def test_no_door_records_a_payment_of_another_day(invoice: Invoice, op: Client, day: str) -> None:
    sentence = TO_COME if day > "2027" else BEFORE.format(invoice=invoice, day=day)
    form = {"invoice": invoice.pk, "paid": "20.00", "received_on": day, "reference": "SEPA 1"}
    answer = op.post("/admin/billing/payment/add/", form, follow=True)
    assert [str(message) for message in answer.context["messages"]] == [sentence]

    with pytest.raises(RefusedError, match=sentence):
        run("record_payment", str(invoice), "20.00", "--reference", "SEPA 1", "--on", day)

    assert not Payment.objects.exists()
