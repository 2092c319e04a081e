"""Ann pays by bank transfer, and the bank's statement books what is sure."""

from __future__ import annotations

import pytest

from billing.bank_transfers.entities import StatementError
from billing.models import CreditEntry, Invoice, Payment, Transfer
from billing.receivables import credit_balance
from billing.rules.references import creditor_reference
from portal.core.tenants.models import Tenant
from tests import sharing
from tests.builders import a_cluster, a_job, ingest
from tests.statements import IBAN, PAYER, Line, a_lab, camt, imported, march, reference, stands, transfers
from tests.stories import close, invoice_of, prove

pytestmark = pytest.mark.django_db


begun, lab = sharing.fixtures(a_lab, "lab")  # owes 20.00 EUR for March


@pytest.fixture
def invoice(lab: Tenant) -> Invoice:
    return march(lab)


@pytest.mark.parametrize("version", ["02", "04", "08", "13"])
def test_a_transfer_under_its_reference_pays_the_invoice(invoice: Invoice, version: str) -> None:
    done = imported(camt(Line(amount="20.00", reference=reference(invoice), name="B1"), version=version))
    assert [row.state for row in done.rows] == ["booked"]
    assert stands(invoice) == ("paid", "20.00", "0.00")
    payment = Payment.objects.get()
    assert (str(payment.received_on), payment.reference, payment.recorded_by) == (
        "2026-04-08",
        "B1",
        "bank statement",
    )
    row = Transfer.objects.get()
    assert (row.payer, row.payer_iban, row.account) == ("Vision Lab", PAYER, IBAN)
    prove()


def test_the_number_of_the_invoice_is_enough_although_the_bank_broke_it(invoice: Invoice) -> None:
    imported(camt(Line(amount="20.00", text="GPU hours of March, invoice INV-2026-\n0001 thank you")))
    assert stands(invoice)[0] == "paid"


def test_the_same_file_again_and_one_that_overlaps_book_nothing_twice(invoice: Invoice) -> None:
    first = Line(amount="5.00", reference=reference(invoice), name="B1")
    without_name = Line(amount="5.00", text="INV-2026-0001")
    assert len(imported(camt(first, without_name)).rows) == 2
    again = imported(camt(first, without_name))
    assert (again.rows, again.duplicates) == ([], 2)
    overlapping = imported(
        camt(first, without_name, Line(amount="7.00", text="INV-2026-0001"), name="2026-04-09")
    )
    assert (len(overlapping.rows), overlapping.duplicates) == (1, 2)
    assert stands(invoice) == ("due", "17.00", "3.00")


def test_two_equal_transfers_of_one_day_are_two(invoice: Invoice) -> None:
    same = Line(amount="5.00", text="INV-2026-0001")
    imported(camt(same, same))
    imported(camt(same, same, name="again"))
    assert stands(invoice) == ("due", "10.00", "10.00")


def test_case_080_a_part_leaves_the_rest_due_and_too_much_becomes_credit_that_pays_the_next_invoice(
    lab: Tenant, invoice: Invoice
) -> None:
    imported(camt(Line(amount="12.00", reference=reference(invoice), name="B1")))
    assert stands(invoice) == ("due", "12.00", "8.00")

    imported(camt(Line(amount="13.00", reference=reference(invoice), name="B2")))
    assert stands(invoice) == ("paid", "20.00", "0.00")
    assert credit_balance.get_balance(lab, "EUR") == 500  # 12 + 13 = 20 paid + 5 of credit

    cluster = a_cluster()
    ingest(cluster, a_job(started="2026-04-02 10:00", ended="2026-04-02 11:00", gpus=2))
    close("2026-04", lab)
    april = invoice_of(lab, "2026-04")
    assert stands(april) == ("paid", "4.00", "0.00")
    assert credit_balance.get_balance(lab, "EUR") == 100
    prove()


def test_a_transfer_that_went_back_makes_the_invoice_due_again(lab: Tenant, invoice: Invoice) -> None:
    imported(camt(Line(amount="25.00", reference=reference(invoice), name="B1", end_to_end="E1")))
    assert (stands(invoice)[0], credit_balance.get_balance(lab, "EUR")) == ("paid", 500)
    imported(camt(Line(amount="-25.00", name="B9", end_to_end="E1", returned="AC04"), name="next"))
    assert stands(invoice) == ("due", "0.00", "20.00")
    assert credit_balance.get_balance(lab, "EUR") == 0
    assert [state for _, state, _ in transfers()] == ["returned", "booked"]
    prove()


def test_credit_that_was_used_is_due_again_when_its_transfer_went_back(lab: Tenant, invoice: Invoice) -> None:
    imported(camt(Line(amount="25.00", reference=reference(invoice), name="B1")))
    cluster = a_cluster()
    ingest(cluster, a_job(started="2026-04-02 10:00", ended="2026-04-02 11:00", gpus=2))
    close("2026-04", lab)
    april = invoice_of(lab, "2026-04")
    assert stands(april)[0] == "paid"
    imported(camt(Line(amount="-25.00", name="B1", reversal=True), name="next"))
    assert stands(april) == ("due", "0.00", "4.00")
    assert credit_balance.get_balance(lab, "EUR") == 0
    assert sum(CreditEntry.objects.values_list("amount", flat=True)) == 0


def test_a_reversal_that_cannot_be_matched_waits_and_other_debits_are_set_aside(invoice: Invoice) -> None:
    imported(
        camt(
            Line(amount="-7.00", text="returned", reversal=True),
            Line(amount="-900.00", text="Rent of April", payer="Landlord"),
        )
    )
    assert [(amount, state) for amount, state, _ in transfers()] == [
        ("-7.00", "waiting"),
        ("-900.00", "ignored"),
    ]


def test_a_batch_is_booked_transfer_by_transfer(invoice: Invoice) -> None:
    speech = a_lab("speech-lab", "speech", gpus=3)
    batch = Line(
        amount="26.00",
        name="BATCH",
        parts=[
            Line(amount="20.00", text="INV-2026-0001"),
            Line(amount="6.00", text="INV-2026-0002", payer="Speech Lab"),
        ],
    )
    imported(camt(batch))
    imported(camt(batch, name="again"))
    assert stands(invoice)[0] == stands(march(speech))[0] == "paid"
    assert list(Payment.objects.order_by("pk").values_list("reference", flat=True)) == ["BATCH 1", "BATCH 2"]


def test_one_transfer_pays_several_invoices_the_oldest_first(lab: Tenant, invoice: Invoice) -> None:
    ingest(a_cluster(), a_job(started="2026-04-02 10:00", ended="2026-04-02 11:00", gpus=2))
    close("2026-04", lab)
    april = invoice_of(lab, "2026-04")
    imported(camt(Line(amount="23.00", text=f"{april.number} + {invoice.number}")))
    assert stands(invoice) == ("paid", "20.00", "0.00")
    assert stands(april) == ("due", "3.00", "1.00")


@pytest.mark.parametrize(
    ("line", "why"),
    [
        (Line(amount="20.00", text="thank you"), "It names no open invoice and no wallet."),
        (Line(amount="20.00", text="INV-2026-0001 INV-2026-0002"), "It names invoices of several tenants."),
        (Line(amount="20.00", reference="RF99INV20260001"), "It names no open invoice and no wallet."),
    ],
)
def test_what_is_not_sure_waits(invoice: Invoice, line: Line, why: str) -> None:
    a_lab("speech-lab", "speech", gpus=3)
    imported(camt(line))
    assert transfers() == [("20.00", "waiting", why)]
    assert stands(invoice)[0] == "due"


def test_another_currency_and_an_invoice_that_is_paid_wait(invoice: Invoice) -> None:
    imported(camt(Line(amount="20.00", text="INV-2026-0001"), currency="CHF"))
    imported(camt(Line(amount="20.00", text="INV-2026-0001", name="B1"), name="two"))
    imported(camt(Line(amount="20.00", text="INV-2026-0001", name="B2"), name="three"))
    assert [why for _, _, why in transfers()] == [
        "INV-2026-0001 is in EUR, the transfer in CHF.",
        "",
        "INV-2026-0001 is paid already: see whether this was recorded by hand.",
    ]


def test_what_the_bank_has_not_booked_yet_is_left_out_until_it_is(invoice: Invoice) -> None:
    line = Line(amount="20.00", text="INV-2026-0001", state="PDNG")
    done = imported(camt(line))
    assert (done.rows, done.statements[0].pending) == ([], 1)
    imported(camt(Line(amount="20.00", text="INV-2026-0001"), name="next"))
    assert stands(invoice)[0] == "paid"


def test_a_statement_that_does_not_add_up_is_refused_whole(invoice: Invoice) -> None:
    with pytest.raises(StatementError, match=r"opens with 1000\.00 EUR, its entries come to 20\.00 EUR"):
        imported(camt(Line(amount="20.00", text="INV-2026-0001"), closing="1019.99"))
    assert not Transfer.objects.exists()
    assert stands(invoice)[0] == "due"


def test_an_entry_without_a_day_is_put_into_quarantine_and_the_others_are_booked(invoice: Invoice) -> None:
    done = imported(camt(Line(amount="3.00", on="soon"), Line(amount="20.00", text="INV-2026-0001")))
    (bad,) = done.refused
    assert (bad.place, str(bad.error)) == ("entry 1", "It was booked on 'soon', which is no day.")
    assert stands(invoice)[0] == "paid"


def test_a_name_that_the_bank_gives_twice_is_put_into_quarantine(invoice: Invoice) -> None:
    imported(camt(Line(amount="1.00", name="B1")))
    done = imported(camt(Line(amount="2.00", name="B1"), name="next"))
    (bad,) = done.refused
    assert (bad.place, str(bad.error)) == (
        "B1", "The bank called another entry B1 before: 1.00 EUR on 2026-04-08.",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        (b"<not xml", "no XML that can be read"),
        (b"<a/>", "no bank statement in camt.053"),
        (
            b'<!DOCTYPE d [<!ENTITY x "y">]>' + camt().replace(b"1000.00", b"&x;").split(b"?>")[1],
            "has a document type",
        ),
        (
            b'<Document xmlns="urn:iso:std:iso:20022:tech:xsd:camt.052.001.08"/>',
            "This is a report within the day; what is booked is told by camt.053",
        ),
        (camt(account="DE02120300000000202051"), "invoices ask to pay to DE89370400440532013000"),
        (camt().replace(b"OPBD", b"ITBD"), "has no balance OPBD"),
    ],
)
def test_a_file_that_is_no_statement_is_refused_in_a_sentence(
    lab: Tenant, data: bytes, sentence: str
) -> None:
    with pytest.raises(StatementError, match=sentence):
        imported(data)


def test_a_preview_says_what_would_be_booked_and_keeps_nothing(invoice: Invoice) -> None:
    done = imported(camt(Line(amount="20.00", text="INV-2026-0001")), preview=True)
    assert [row.state for row in done.rows] == ["booked"]
    assert not Transfer.objects.exists()
    assert stands(invoice)[0] == "due"


def test_a_transfer_that_was_recorded_by_hand_under_the_same_name_is_that_payment(invoice: Invoice) -> None:
    from datetime import date

    from billing.receivables import settlement
    from billing.rules.money import Money

    settlement.record_payment(
        invoice=invoice,
        amount=Money.of("5.00", "EUR"),
        received_on=date(2026, 4, 8),
        reference="B1",
        recorded_by="op",
    )
    imported(camt(Line(amount="5.00", text="INV-2026-0001", name="B1")))
    assert stands(invoice) == ("due", "5.00", "15.00")


def test_a_wallet_is_filled_under_its_reference_and_loses_it_when_the_money_went_back(lab: Tenant) -> None:
    from billing.models import Wallet, WalletScope
    from billing.wallets import wallet_terms
    from tests.builders import at

    wallet_terms.set_scheme(
        tenant=lab, unit="EUR", scope=WalletScope.TENANT, overdraft=0, since=at("2026-03-01")
    )
    wallet = Wallet.objects.get()
    line = Line(
        amount="50.00", reference=creditor_reference(f"WALLET{wallet.pk}"), name="B1", end_to_end="E1"
    )
    imported(camt(line))
    imported(camt(line, name="again"))
    wallet.refresh_from_db()
    assert wallet.balance == 5000
    imported(camt(Line(amount="-50.00", name="B2", end_to_end="E1", returned="MS03"), name="next"))
    wallet.refresh_from_db()
    assert wallet.balance == 0
    prove()
