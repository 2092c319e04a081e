"""Money that came and goes again: what is taken back by itself, what waits, and how a person undoes it."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

import pytest

from billing.bank_transfers import manual_matching, matching, statement_import
from billing.bank_transfers.manual_matching import DecisionError
from billing.models import Invoice, Payment, Transfer
from billing.receivables import credit_balance
from billing.rules.money import Money
from portal.core.tenants.models import Tenant
from tests import sharing
from tests.statements import APRIL, Line, a_lab, camt, imported, march, reference, stands, transfers
from tests.stories import prove

pytestmark = pytest.mark.django_db

PAID_BACK = (
    "5.00 EUR of what it gave to the credit balance of Vision Lab were paid back since: "
    "take this back when the balance has them again."
)


begun, lab = sharing.fixtures(a_lab, "lab")  # owes 20.00 EUR for March


@pytest.fixture
def invoice(lab: Tenant) -> Invoice:
    return march(lab)


@pytest.fixture
def paid_back(lab: Tenant, invoice: Invoice) -> Transfer:
    """A transfer of 25.00 whose 5.00 too much Op has paid back."""
    imported(camt(Line(amount="25.00", reference=reference(invoice), name="B1")))
    credit_balance.record_payout(
        tenant=lab, currency="EUR", amount=Money.of("5.00", "EUR"), reference="B77", by="op", at=APRIL
    )
    return Transfer.objects.get()


def test_a_transfer_that_went_back_after_its_credit_was_paid_back_waits_and_the_others_are_booked(
    lab: Tenant, invoice: Invoice, paid_back: Transfer
) -> None:
    speech = a_lab("speech-lab", "speech", gpus=3)
    imported(
        camt(
            Line(amount="-25.00", name="B1", reversal=True),
            Line(amount="6.00", reference=reference(march(speech)), name="B2"),
            name="next",
        )
    )
    assert transfers() == [("25.00", "booked", ""), ("-25.00", "waiting", PAID_BACK), ("6.00", "booked", "")]
    assert stands(invoice) == ("paid", "20.00", "0.00")
    assert credit_balance.get_balance(lab, "EUR") == 0
    prove()


def test_nobody_takes_back_a_transfer_whose_credit_was_paid_back(lab: Tenant, paid_back: Transfer) -> None:
    with pytest.raises(DecisionError, match=r"5\.00 EUR of what it gave"):
        manual_matching.reopen_transfer(
            transfer=paid_back, reason="It was for another", by="op", moment=APRIL
        )
    imported(camt(Line(amount="-25.00", text="recalled", reversal=True), name="next"))
    debit = Transfer.objects.get(amount=-2500)
    with pytest.raises(DecisionError, match=r"5\.00 EUR of what it gave"):
        manual_matching.match_return(transfer=debit, original=paid_back, by="op", moment=APRIL)
    assert credit_balance.get_balance(lab, "EUR") == 0


def test_two_transfers_to_which_banks_gave_one_name_are_two_payments(invoice: Invoice) -> None:
    two = [Line(amount="5.00", text="INV-2026-0001", name="P1", end_to_end=f"E{n}") for n in (1, 2)]
    imported(camt(Line(amount="10.00", name="BATCH", parts=two)))
    assert stands(invoice) == ("due", "10.00", "10.00")
    second = Transfer.objects.latest("pk")
    assert list(Payment.objects.order_by("pk").values_list("reference", flat=True)) == [
        "P1",
        f"P1, transfer {second.pk}",
    ]
    for row in Transfer.objects.order_by("pk"):
        manual_matching.reopen_transfer(transfer=row, reason="Both were for another", by="op", moment=APRIL)
    assert stands(invoice) == ("due", "0.00", "20.00")
    prove()


def test_a_transfer_that_somebody_books_at_the_same_moment_is_not_taken_back_unlocked(
    lab: Tenant, invoice: Invoice, monkeypatch: pytest.MonkeyPatch
) -> None:
    imported(camt(Line(amount="20.00", text="for the lab", name="B1")))
    imported(camt(Line(amount="-20.00", text="recalled", name="B2", reversal=True), name="next"))
    came, debit = Transfer.objects.order_by("pk")

    locked = manual_matching._lock_transfer

    def meanwhile(*arguments: Any) -> AbstractContextManager[list[Transfer]]:
        monkeypatch.undo()
        manual_matching.assign_transfer(transfer=came, numbers=[], tenant=lab, by="Oda", moment=APRIL)
        return locked(*arguments)

    monkeypatch.setattr(manual_matching, "_lock_transfer", meanwhile)
    with pytest.raises(DecisionError) as refusal:
        manual_matching.match_return(transfer=debit, original=came, by="op", moment=APRIL)
    assert str(refusal.value) == "Somebody has just decided on this transfer: look at it again."
    assert stands(invoice) == ("paid", "20.00", "0.00")  # by the credit that it became
    manual_matching.match_return(transfer=debit, original=came, by="op", moment=APRIL)
    assert credit_balance.get_balance(lab, "EUR") == 0
    assert stands(invoice) == ("due", "0.00", "20.00")
    prove()


@pytest.mark.parametrize("nameless", ["the return", "the transfer"])
def test_a_return_is_found_by_a_name_in_which_only_one_of_both_tells_who_paid(
    invoice: Invoice, nameless: str
) -> None:
    """What the bank calls it is kept as a hash where its payer is told, and as it is where nobody is."""
    came = Line(amount="20.00", text="INV-2026-0001", name="RT-VISION-99")
    went = Line(amount="-20.00", name="RT-VISION-99", reversal=True)
    silent = came if nameless == "the transfer" else went
    silent.payer = silent.iban = ""
    imported(camt(came))
    imported(camt(went, name="next"))
    assert len(set(Transfer.objects.values_list("bank_reference", flat=True))) == 2
    assert [state for _, state, _ in transfers()] == ["returned", "booked"]
    assert stands(invoice) == ("due", "0.00", "20.00")
    prove()


def test_such_a_return_is_found_although_its_statement_was_taken_in_first(invoice: Invoice) -> None:
    imported(camt(Line(amount="-20.00", name="RT-VISION-99", payer="", iban="", reversal=True)))
    imported(camt(Line(amount="20.00", text="INV-2026-0001", name="RT-VISION-99"), name="next"))
    assert [state for _, state, _ in transfers()] == ["booked", "returned"]
    assert stands(invoice) == ("due", "0.00", "20.00")


GERMAN = (
    "Buchungstag;Betrag;Währung;Beguenstigter/Zahlungspflichtiger;Kontonummer/IBAN;Verwendungszweck;"
    "Kundenreferenz (End-to-End)\n"
)


def csv(*rows: str) -> bytes:
    return (GERMAN + "".join(f"{row}\n" for row in rows)).encode()


def test_a_payment_to_a_supplier_takes_back_nothing_where_neither_has_a_reference(invoice: Invoice) -> None:
    imported(csv("02.04.2026;20,00;EUR;Vision Lab;DE75;INV-2026-0001;NOTPROVIDED"))
    imported(csv("08.04.2026;-20,00;EUR;Paper and Pens;DE11;Order 4711;NOTPROVIDED"))
    assert [(amount, state) for amount, state, _ in transfers()] == [
        ("20.00", "booked"),
        ("-20.00", "ignored"),
    ]
    assert stands(invoice) == ("paid", "20.00", "0.00")


def test_a_debit_of_the_same_reference_to_another_account_waits_with_its_candidate(invoice: Invoice) -> None:
    imported(csv("02.04.2026;20,00;EUR;Vision Lab;DE75;INV-2026-0001;REF7"))
    imported(csv("08.04.2026;-20,00;EUR;Paper and Pens;DE11;Order 4711;REF7"))
    assert transfers(state="waiting") == [
        ("-20.00", "waiting", "It may take back the transfer of 2026-04-02, of the same reference: say so.")
    ]
    assert stands(invoice) == ("paid", "20.00", "0.00")


def test_a_debit_of_the_same_reference_to_the_payers_account_takes_its_transfer_back(
    invoice: Invoice,
) -> None:
    imported(csv("02.04.2026;20,00;EUR;Vision Lab;DE75;INV-2026-0001;REF7"))
    imported(csv("08.04.2026;-20,00;EUR;Vision Lab;DE75;Return;REF7"))
    assert [state for _, state, _ in transfers()] == ["returned", "booked"]
    assert stands(invoice) == ("due", "0.00", "20.00")


def test_op_undoes_a_take_back_that_was_none_and_books_the_transfer_again(invoice: Invoice) -> None:
    imported(camt(Line(amount="20.00", text="INV-2026-0001", name="B1")))
    imported(camt(Line(amount="-20.00", name="B1", reversal=True), name="next"))
    first, debit = Transfer.objects.order_by("pk")
    manual_matching.reopen_transfer(transfer=debit, reason="It was another's", by="op", moment=APRIL)
    assert transfers() == [
        ("20.00", "waiting", "It was another's"),
        ("-20.00", "waiting", "It was another's"),
    ]
    manual_matching.assign_transfer(
        transfer=first, numbers=["INV-2026-0001"], tenant=None, by="op", moment=APRIL
    )
    manual_matching.ignore_transfer(transfer=debit, reason="Another's", by="op", moment=APRIL)
    assert stands(invoice) == ("paid", "20.00", "0.00")
    manual_matching.reopen_transfer(
        transfer=debit, reason="It was its return after all", by="op", moment=APRIL
    )
    manual_matching.match_return(transfer=debit, original=first, by="op", moment=APRIL)
    assert stands(invoice) == ("due", "0.00", "20.00")
    prove()


CAME = "02.04.2026;20,00;EUR;Vision Lab;DE75;INV-2026-0001;REF7"
WENT = "04.04.2026;-20,00;EUR;Vision Lab;DE75;Return;REF7"


@pytest.mark.parametrize("most", [None, 0], ids=["at once", "by the worker"])
def test_a_return_is_found_in_a_file_that_has_the_newest_first(invoice: Invoice, most: int | None) -> None:
    statement_import.import_statement(
        data=csv(WENT, CAME), name="april.csv", by="op", moment=APRIL, most=most
    )
    matching.match_new(moment=APRIL)
    assert [(amount, state) for amount, state, _ in transfers()] == [
        ("-20.00", "booked"),
        ("20.00", "returned"),
    ]
    assert stands(invoice) == ("due", "0.00", "20.00")
    prove()


def test_a_return_is_found_although_its_statement_was_taken_in_first(invoice: Invoice) -> None:
    imported(csv(WENT))
    assert transfers()[0][:2] == ("-20.00", "ignored")
    imported(csv(CAME))
    assert transfers() == [
        ("-20.00", "booked", "Takes back the transfer of 2026-04-02."),
        ("20.00", "returned", "Went back on 2026-04-04."),
    ]
    assert stands(invoice) == ("due", "0.00", "20.00")


def test_a_debit_of_its_reference_that_op_set_aside_makes_a_transfer_wait(invoice: Invoice) -> None:
    imported(camt(Line(amount="-20.00", name="B1", reversal=True)))
    manual_matching.ignore_transfer(transfer=Transfer.objects.get(), reason="Not ours", by="op", moment=APRIL)
    imported(camt(Line(amount="20.00", text="INV-2026-0001", name="B1"), name="next"))
    why = "-20.00 EUR of 2026-04-08, of the same reference, may have taken it back: see."
    assert transfers(state="waiting") == [("20.00", "waiting", why)]
    assert stands(invoice) == ("due", "0.00", "20.00")


def test_a_debit_that_waits_for_its_transfer_to_be_named_takes_no_later_one_instead(invoice: Invoice) -> None:
    """Two transfers could be meant already: a third of the same name is asked about, and not taken back."""
    imported(csv(CAME))
    imported(csv("03.04.2026;20,00;EUR;Vision Lab;DE75;other;REF7"))
    imported(camt(Line(amount="-20.00", end_to_end="REF7", iban="DE75", reversal=True)))
    unsure = "The bank took a transfer back, and it cannot be told which one: say which."
    assert transfers(state="waiting")[-1] == ("-20.00", "waiting", unsure)
    imported(csv("04.04.2026;20,00;EUR;Vision Lab;DE75;INV-2026-0002;REF7"))
    assert transfers(state="waiting")[-2:] == [
        ("-20.00", "waiting", unsure),
        ("20.00", "waiting", "-20.00 EUR of 2026-04-08, of the same reference, may have taken it back: see."),
    ]
    assert stands(invoice) == ("paid", "20.00", "0.00")


def test_a_payment_to_a_supplier_does_not_keep_a_later_transfer_from_being_booked(invoice: Invoice) -> None:
    imported(csv("01.04.2026;-20,00;EUR;Vision Lab;DE75;Order 4711;REF7"))
    imported(csv(CAME))
    assert stands(invoice) == ("paid", "20.00", "0.00")
