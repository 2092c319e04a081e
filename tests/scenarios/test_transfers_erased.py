"""Ada paid for a lab that has left: nothing in the database says so when it is erased, and the books still close."""

from __future__ import annotations

from dataclasses import replace
from datetime import date

import pytest
from django.db import DatabaseError, connection, transaction

from billing.bank_transfers import manual_matching, statement_import
from billing.invoicing import offboarding
from billing.invoicing.offboarding import ArchiveError
from billing.models import RefusedEntry, Transfer, Wallet, WalletScope
from billing.receivables import credit_balance
from billing.rules.money import Money
from billing.rules.references import creditor_reference
from billing.wallets import wallet_terms
from portal.core.audit import acting_as
from portal.core.tenants.models import Tenant
from tests import sharing
from tests.builders import at
from tests.statements import APRIL, Line, a_lab, camt, imported, leaves, march, stands, transfers
from tests.stories import prove

pytestmark = pytest.mark.django_db

ADA = "Ada Lovelace"
HERS = "DE02120300000000202051"
LATER = at("2026-05-20 09:00")
FIRST = camt(Line(amount="25.00", text="INV-2026-0001 from Lovelace", payer=ADA, iban=HERS, name="B1"))
IN_QUARANTINE = "An entry in quarantine, {}, names an account that paid for it: settle it on Transfers."
NO_ACCOUNT = "date,amount,currency,payer,payer_iban,text\n2026-04-08,{},EUR,{},0000000000,{}\n"


def tables_with(text: str) -> list[str]:
    """Every table of the database with a row in which this stands."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT quote_ident(relname) FROM pg_class WHERE relkind IN ('r', 'p') "
            "AND relnamespace = 'public'::regnamespace AND NOT relispartition"
        )
        tables = [row[0] for row in cursor.fetchall()]
        hits = []
        for table in sorted(tables):
            cursor.execute(f"SELECT count(*) FROM {table} t WHERE t::text ILIKE %s", [f"%{text}%"])
            if cursor.fetchone()[0]:
                hits.append(table)
    return hits


def is_erased(lab: Tenant, moment: str = "2026-06-02 09:00") -> None:
    offboarding.archive_tenant(tenant=lab, by="Op", reason="Contract ended", moment=at(moment))
    offboarding.erase_tenant(tenant=lab, moment=at(moment))


begun, lab = sharing.fixtures(a_lab, "lab")  # owes 20.00 EUR for March


def test_case_086_who_paid_is_found_nowhere_in_the_database(lab: Tenant) -> None:
    imported(FIRST)  # 5.00 of it are credit, which goes back to her account
    credit_balance.record_payout(
        tenant=lab, currency="EUR", amount=Money.of("5.00", "EUR"), reference="OUT-1", by="op", at=APRIL
    )
    imported(
        camt(Line(amount="-5.00", text="back to Lovelace", payer=ADA, iban=HERS, name="B2"), name="next")
    )
    csv = f"date,amount,currency,payer,payer_iban,text\n2026-04-08,25.00,EUR,{ADA},{HERS},INV-2026-0001\n"
    imported(csv.encode())
    with acting_as("op"):
        manual_matching.ignore_transfer(
            transfer=Transfer.objects.get(state="waiting"), reason="It is B1.", by="op", moment=APRIL
        )
    nameless = Line(amount="3.00", payer=ADA, iban=HERS, on="Lovelace")  # a value of its reason
    imported(camt(nameless, name="odd"))
    assert RefusedEntry.objects.count() == 1
    assert {"billing_transfer", "billing_refusedentry"} <= set(tables_with(ADA))
    before = march(lab), stands(march(lab)), transfers()

    leaves(lab)
    with pytest.raises(ArchiveError) as refused:
        is_erased(lab)
    assert refused.value.sentences == (IN_QUARANTINE.format("entry 1 of april.xml"),)
    assert HERS in RefusedEntry.objects.get().raw  # all that is kept of it
    manual_matching.settle_entry(entry=RefusedEntry.objects.get(), reason="Sent back.", by="op")
    is_erased(lab)

    assert (tables_with("Lovelace"), tables_with(HERS)) == ([], [])
    assert (march(lab), stands(march(lab)), transfers()) == before
    row = Transfer.objects.order_by("pk")[0]
    assert (row.amount, row.booked_on, row.bank_reference) == (25_00, date(2026, 4, 8), "B1")
    prove()


def test_the_same_statement_again_neither_books_it_twice_nor_brings_her_back(lab: Tenant) -> None:
    imported(FIRST)
    credit_balance.record_payout(
        tenant=lab, currency="EUR", amount=Money.of("5.00", "EUR"), reference="OUT-1", by="op", at=APRIL
    )
    leaves(lab)
    is_erased(lab)
    again = imported(
        camt(Line(amount="25.00", text="from Lovelace", payer=ADA, iban=HERS, name="B1"), name="again")
    )
    assert (len(again.rows), again.duplicates) == (0, 1)
    assert tables_with("Lovelace") == []


def test_who_filled_a_wallet_is_erased_when_what_waits_is_decided(lab: Tenant) -> None:
    wallet_terms.set_scheme(
        tenant=lab, unit="EUR", scope=WalletScope.TENANT, overdraft=0, since=at("2026-03-01")
    )
    named = creditor_reference(f"WALLET{Wallet.objects.get().pk}")
    imported(camt(Line(amount="20.00", text="INV-2026-0001", payer=ADA, iban=HERS, name="B1")))
    imported(
        camt(Line(amount="9.00", reference=named, payer=ADA, iban=HERS, name="B2", end_to_end="E"), name="2")
    )
    imported(
        camt(Line(amount="-9.00", payer=ADA, iban=HERS, name="B3", end_to_end="E", returned="AC04"), name="3")
    )
    imported(camt(Line(amount="7.00", text="for Ada", payer=ADA, iban=HERS, name="B4"), name="4"))
    assert [state for _, state, _ in transfers()] == ["booked", "returned", "booked", "waiting"]
    assert "billing_walletgrant" in tables_with(ADA)

    leaves(lab)
    with pytest.raises(ArchiveError) as refused:
        is_erased(lab)
    assert refused.value.sentences == (
        "A transfer of 7.00 EUR on 2026-04-08, from an account that paid for it, waits: book it, or set it aside.",
    )
    waiting = Transfer.objects.get(state="waiting")
    assert waiting.payer == ADA
    manual_matching.ignore_transfer(transfer=waiting, reason="Sent back.", by="op", moment=LATER)
    is_erased(lab)
    assert (tables_with(ADA), tables_with(HERS)) == ([], [])


def test_what_another_tenant_has_a_part_of_is_kept_until_that_one_is_erased_too(lab: Tenant) -> None:
    speech = a_lab("speech-lab", "speech", gpus=3)
    imported(camt(Line(amount="26.00", text="INV-2026-0001 INV-2026-0002", payer=ADA, iban=HERS, name="B1")))
    manual_matching.assign_transfer(
        transfer=Transfer.objects.get(),
        numbers=["INV-2026-0001", "INV-2026-0002"],
        tenant=None,
        by="op",
        moment=APRIL,
    )
    leaves(lab)
    is_erased(lab)
    assert tables_with(ADA) == ["billing_transfer"]
    with pytest.raises(DatabaseError, match="who paid is erased with the tenant"), transaction.atomic():
        Transfer.objects.update(payer="", payer_iban="", text="", reference="", end_to_end="", raw="")
    leaves(speech)
    is_erased(speech)
    assert tables_with(ADA) == []


def test_nobody_else_is_erased_nor_changed_by_a_statement(lab: Tenant) -> None:
    imported(FIRST)
    for change in ({"payer": ""}, {"payer_iban": "DE1"}, {"amount": 1}, {"bank_reference": ""}):
        with pytest.raises(DatabaseError, match="What the bank said of a transfer"), transaction.atomic():
            Transfer.objects.update(**change)


def test_what_was_kept_under_a_name_with_her_in_it_is_known_again(
    lab: Tenant, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Earlier versions kept the bank's name as it was: a file that overlaps brings nothing a second time."""
    line = Line(amount="20.00", text="INV-2026-0001", payer=ADA, iban=HERS, name="LOVELACE/77")
    with monkeypatch.context() as earlier:
        earlier.setattr(statement_import, "hide_payer", lambda entry: entry)
        imported(camt(line))
    imported(camt(line, name="2"))
    assert (Transfer.objects.get().bank_reference, stands(march(lab))) == (
        "LOVELACE/77",
        ("paid", "20.00", "0.00"),
    )


def test_a_file_that_leaves_out_who_paid_brings_nothing_a_second_time(lab: Tenant) -> None:
    line = Line(amount="20.00", text="INV-2026-0001", name="LOVELACE/77", payer=ADA, iban=HERS)
    imported(camt(line))
    imported(camt(replace(line, payer="", iban=""), name="2"))
    assert (Transfer.objects.count(), stands(march(lab))) == (1, ("paid", "20.00", "0.00"))


def test_another_payer_of_as_much_on_the_same_day_is_not_erased_with_her(lab: Tenant) -> None:
    imported(FIRST)
    credit_balance.record_payout(
        tenant=lab, currency="EUR", amount=Money.of("5.00", "EUR"), reference="OUT-1", by="op", at=APRIL
    )
    imported(camt(Line(amount="25.00", text="rent", payer="Charles Babbage", iban="", name="B9"), name="2"))
    babbage = Transfer.objects.get(payer="Charles Babbage")
    manual_matching.ignore_transfer(transfer=babbage, reason="Rent.", by="op", moment=APRIL)
    leaves(lab)
    is_erased(lab)
    assert Transfer.objects.get(pk=babbage.pk).text == "rent"


def test_an_account_in_quarantine_is_hers_in_groups_of_four_too(lab: Tenant) -> None:
    imported(camt(Line(amount="20.00", text="INV-2026-0001", payer=ADA, iban=HERS, name="B1")))
    grouped = "de02 1203 0000\N{NO-BREAK SPACE}0000 2020 51"
    imported(f"date,amount,currency,payer,payer_iban,text\nnever,3.00,EUR,{ADA},{grouped},?\n".encode())
    leaves(lab)
    with pytest.raises(ArchiveError) as refused:
        is_erased(lab)
    assert refused.value.sentences == (IN_QUARANTINE.format("line 2 of april.xml"),)
    manual_matching.settle_entry(entry=RefusedEntry.objects.get(), reason="Sent back.", by="op")
    is_erased(lab)
    assert (tables_with(ADA), tables_with(grouped)) == ([], [])


def test_zeros_that_a_bank_writes_for_an_account_are_nobody_else_s(lab: Tenant) -> None:
    imported(NO_ACCOUNT.format("20.00", ADA, "INV-2026-0001 of Ada").encode())
    imported(NO_ACCOUNT.format("20.00", ADA, "a second time").encode())
    imported(NO_ACCOUNT.format("20.00", "Charles Babbage", "rent").encode())
    for row in Transfer.objects.filter(state="waiting"):
        manual_matching.ignore_transfer(transfer=row, reason="None of ours.", by="op", moment=APRIL)
    imported(NO_ACCOUNT.format("7.00", "Mary Somerville", "for GPUs").encode())
    imported(NO_ACCOUNT.format("0", "George Boole", "nothing").encode())
    assert [state for _, state, _ in transfers()] == ["booked", "ignored", "ignored", "waiting"]
    leaves(lab)
    is_erased(lab)
    assert tables_with(ADA) == []
    assert tables_with("Babbage") == tables_with("Somerville") == ["billing_transfer"]
    assert tables_with("George Boole") == ["billing_refusedentry"]


def test_a_name_of_the_bank_in_which_she_stands_is_kept_as_a_hash(lab: Tenant) -> None:
    imported(camt(Line(amount="20.00", text="INV-2026-0001", payer=ADA, iban=HERS, name="LOVELACE/77")))
    imported(
        camt(Line(amount="20.00", text="INV-2026-0001", payer=ADA, iban=HERS, name="LOVELACE/77"), name="2")
    )
    assert Transfer.objects.get().bank_reference.startswith("#")
    leaves(lab)
    is_erased(lab)
    assert tables_with("lovelace") == []
    prove()
