"""The same transfer in two formats: camt.053 names it, and the bank's CSV does not, or calls it otherwise."""

from __future__ import annotations

import pytest

from billing.bank_transfers import manual_matching
from billing.models import Invoice, Transfer, Wallet, WalletScope
from billing.rules.references import creditor_reference
from billing.wallets import wallet_terms
from portal.core.tenants.models import Tenant
from tests import sharing
from tests.builders import at
from tests.statements import APRIL, PAYER, Line, a_lab, camt, imported, march, stands, transfers

pytestmark = pytest.mark.django_db

CSV = "date,amount,currency,payer,payer_iban,text\n"
DUPLICATE = (
    "It may be known already, from B1 of april.xml: the same day and amount. "
    "Set it aside if it is that one; else book it."
)


begun, lab = sharing.fixtures(a_lab, "lab")  # owes 20.00 EUR for March


@pytest.fixture
def invoice(lab: Tenant) -> Invoice:
    return march(lab)


def row(amount: str, text: str, iban: str = PAYER) -> bytes:
    return f"{CSV}2026-04-08,{amount},EUR,VISION LAB,{iban},{text}\n".encode()


def test_a_wallet_is_filled_once_by_a_transfer_that_came_by_camt_and_by_csv(lab: Tenant) -> None:
    wallet_terms.set_scheme(
        tenant=lab, unit="EUR", scope=WalletScope.TENANT, overdraft=0, since=at("2026-03-01")
    )
    wallet = Wallet.objects.get()
    named = creditor_reference(f"WALLET{wallet.pk}")
    imported(camt(Line(amount="500.00", reference=named, name="B1")))
    imported(row("500.00", named))
    wallet.refresh_from_db()
    assert wallet.balance == 50000
    assert transfers() == [("500.00", "booked", ""), ("500.00", "waiting", DUPLICATE)]


def test_half_an_invoice_that_came_by_csv_and_by_camt_is_paid_by_half(invoice: Invoice) -> None:
    imported(row("10.00", "INV-2026-0001"))
    imported(camt(Line(amount="10.00", text="INV-2026-0001", name="B1")))
    assert stands(invoice) == ("due", "10.00", "10.00")
    second = Transfer.objects.get(state="waiting")
    assert second.reason.startswith("It may be known already, from april.xml:")
    manual_matching.assign_transfer(
        transfer=second, numbers=["INV-2026-0001"], tenant=None, by="op", moment=APRIL
    )
    assert stands(invoice) == ("paid", "20.00", "0.00")  # it was another one after all


def test_what_came_from_another_account_that_day_is_another_transfer(invoice: Invoice) -> None:
    imported(camt(Line(amount="10.00", text="INV-2026-0001", name="B1")))
    imported(row("10.00", "INV-2026-0001", iban="DE02120300000000202051"))
    assert stands(invoice) == ("paid", "20.00", "0.00")


def test_nobody_is_asked_twice_about_rent(lab: Tenant) -> None:
    imported(camt(Line(amount="-900.00", text="Rent", name="B1")))
    imported(row("-900.00", "Rent"))
    assert transfers() == [
        (
            "-900.00",
            "ignored",
            "Money that left the account, and takes back no transfer that was booked here.",
        ),
        ("-900.00", "ignored", DUPLICATE),
    ]


def named(name: str, text: str, *, payer: str = "VISION LAB", iban: str = "", amount: str = "10.00") -> bytes:
    """A CSV with names of its own."""
    header = "date,amount,currency,payer,payer_iban,text,bank_reference"
    return f"{header}\n2026-04-08,{amount},EUR,{payer},{iban},{text},{name}\n".encode()


@pytest.mark.parametrize(
    "alike",
    [
        {"text": "SVWZ+INV-2026-0001", "payer": "V. Lab"},
        {"text": "inv-2026-0001 please see wallet", "payer": "VISION LAB GMBH"},
        {"text": "INV 2026 0001", "iban": PAYER, "payer": ""},
    ],
)
def test_two_names_for_one_transfer_credit_it_once(invoice: Invoice, alike: dict[str, str]) -> None:
    imported(camt(Line(amount="10.00", text="INV-2026-0001", name="B1")))
    imported(named("2026-04-08/77", **alike))
    assert stands(invoice) == ("due", "10.00", "10.00")
    assert transfers()[1] == ("10.00", "waiting", DUPLICATE)


def test_two_names_the_csv_first_credit_it_once(invoice: Invoice) -> None:
    imported(named("2026-04-08/77", "INV-2026-0001"))
    imported(camt(Line(amount="10.00", text="INV-2026-0001", name="B1")))
    assert stands(invoice) == ("due", "10.00", "10.00")
    assert transfers()[1][2].startswith(
        "It may be known already, from 2026-04-08/77 of april.xml: the same day"
    )


def test_two_names_in_files_of_one_kind_are_two_transfers(invoice: Invoice) -> None:
    imported(camt(Line(amount="10.00", text="INV-2026-0001", name="B1")))
    imported(camt(Line(amount="10.00", text="INV-2026-0001", name="B2"), name="evening"))
    assert stands(invoice) == ("paid", "20.00", "0.00")


def test_two_names_of_two_payers_are_two_transfers(invoice: Invoice) -> None:
    imported(camt(Line(amount="10.00", text="INV-2026-0001", name="B1")))
    imported(named("2026-04-08/77", "INV-2026-0001", iban="DE02120300000000202051"))
    assert stands(invoice) == ("paid", "20.00", "0.00")


def test_two_names_and_nothing_else_in_common_are_two_transfers(invoice: Invoice) -> None:
    imported(camt(Line(amount="10.00", text="INV-2026-0001", name="B1")))
    imported(named("2026-04-08/77", "rent of a desk", payer="Speech House"))
    assert [state for _, state, _ in transfers()] == ["booked", "waiting"]
    assert transfers()[1][2] == "It names no open invoice and no wallet."


SILENT = Line(amount="10.00", text="INV-2026-0001", name="VISION/77", payer="", iban="")
TELLS = Line(amount="10.00", text="INV-2026-0001 second half", name="VISION/77")


@pytest.mark.parametrize("both", [(SILENT, TELLS), (TELLS, SILENT)], ids=["known first", "known last"])
def test_the_second_of_a_name_is_booked_although_only_it_says_who_paid(
    invoice: Invoice, both: tuple[Line, Line]
) -> None:
    imported(camt(SILENT))
    assert stands(invoice) == ("due", "10.00", "10.00")
    evening = imported(camt(*both, name="evening"))
    assert (len(evening.rows), evening.duplicates) == (1, 1)
    assert stands(invoice) == ("paid", "20.00", "0.00")
    again = imported(camt(*both, name="night"))
    assert (len(again.rows), again.duplicates) == (0, 2)


def test_two_of_a_name_are_known_when_a_later_file_says_who_paid_one(invoice: Invoice) -> None:
    imported(camt(SILENT, SILENT))
    assert stands(invoice) == ("paid", "20.00", "0.00")
    later = imported(camt(SILENT, TELLS, name="evening"))
    assert (len(later.rows), later.duplicates) == (0, 2)
