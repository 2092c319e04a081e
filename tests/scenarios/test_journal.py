"""The general ledger's journal: debits are credits, receivables are what is left, liabilities are the balances."""

from __future__ import annotations

import csv
import io
from collections import defaultdict
from datetime import date
from decimal import Decimal
from pathlib import Path

import pytest

from billing.invoicing import credit_notes, voids
from billing.models import CreditEntry, Invoice, Payment, Wallet, WalletScope
from billing.models.wallets import GrantKind
from billing.receivables import credit_balance, settlement, write_offs
from billing.reports import journal
from billing.reports.account_statement import load_statements
from billing.reports.journal import Account, AccountsError
from billing.rules.money import Money
from billing.wallets import grants, wallet_terms
from portal.core.tenants.models import Tenant
from tests.builders import a_cluster, a_job, a_plan, a_tenant, at, ingest
from tests.owner import as_owner
from tests.scenarios.test_commands_operator import answer_of
from tests.stories import close, closed, invoice_of

pytestmark = pytest.mark.django_db

ALWAYS = (date(2020, 1, 1), date(2030, 1, 1))


@pytest.fixture
def lab() -> Tenant:
    """Used 10.00 in March and is billed 11.90."""
    cluster = a_cluster(complete_through="2026-09-01")
    tenant = a_tenant("vision-lab", plan=a_plan(), accounts=[(cluster, "vision")], tax_rate=Decimal(19))
    ingest(cluster, a_job(ended="2026-03-02 15:00"))
    close("2026-03")
    return tenant


def sums(since: date = ALWAYS[0], until: date = ALWAYS[1]) -> dict[str, int]:
    """By account; each entry adds up to zero, and the whole agrees with invoices and balances."""
    total: dict[str, int] = defaultdict(int)
    for entry in journal.entries(since=since, until=until):
        assert sum(posting.amount for posting in entry.postings) == 0, entry
        for posting in entry.postings:
            total[posting.account.value] += posting.amount
    return {account: amount for account, amount in total.items() if amount}


def agreed() -> dict[str, int]:
    """All that ever happened: what is left of invoices, and what wallets and credit balances hold."""
    found = sums()
    left = sum(invoice.balance.left for invoice in Invoice.objects.to_settle())
    assert found.get("receivables", 0) == left
    assert found.get("prepaid", 0) == -sum(wallet.balance for wallet in Wallet.objects.exclude(unit="TOK"))
    assert found.get("credit-balances", 0) == -sum(row.amount for row in CreditEntry.objects.all())
    standing = Invoice.objects.issued()
    assert -found.get("tax", 0) == sum(row.tax for row in standing)
    statements_agree()
    return found


def statements_agree() -> None:
    """Each tenant's statement of account ends at what is left of its invoices, less what its credit balance holds."""
    for tenant in Tenant.objects.all():
        for statement in load_statements(tenant, since=date(2026, 6, 1), until=ALWAYS[1]):
            invoices = Invoice.objects.to_settle().filter(tenant=tenant, currency=statement.currency)
            credit = CreditEntry.objects.filter(tenant=tenant, currency=statement.currency)
            left = sum(invoice.balance.left for invoice in invoices) - sum(row.amount for row in credit)
            assert statement.closing == left
            assert statement.opening + sum(row.amount for row in statement.rows) == left


def pay(invoice: Invoice, amount: str, on: str) -> Payment:
    return settlement.record_payment(
        invoice=invoice,
        amount=Money.of(amount, "USD"),
        received_on=date.fromisoformat(on),
        reference=f"Transfer {on}",
        recorded_by="op",
    )


def test_an_invoice_a_payment_and_a_credit_note(lab: Tenant) -> None:
    march = invoice_of(lab, "2026-03")
    assert agreed() == {"receivables": 1190, "revenue": -1000, "tax": -190}

    pay(march, "5.00", "2026-04-10")
    assert agreed() == {"receivables": 690, "bank": 500, "revenue": -1000, "tax": -190}

    credit_notes.issue_credit_note(
        invoice=march, reason="Down", by="op", on=date(2026, 5, 7), net=Money.of("1.00", "USD")
    )
    assert agreed() == {"receivables": 571, "bank": 500, "revenue": -900, "tax": -171}
    assert sums(date(2026, 5, 1), date(2026, 6, 1)) == {"receivables": -119, "revenue": 100, "tax": 19}


def test_a_void_invoice_is_taken_back_on_its_day_and_what_replaces_it_stands(lab: Tenant) -> None:
    voids.void_invoice(invoice=invoice_of(lab, "2026-03"), reason="Wrong", by="op", on=date(2026, 5, 4))

    assert agreed() == {}
    assert sums(until=date(2026, 5, 1)) == {"receivables": 1190, "revenue": -1000, "tax": -190}
    assert sums(since=date(2026, 5, 1)) == {"receivables": -1190, "revenue": 1000, "tax": 190}
    close("2026-03", on="2026-05-05")
    assert agreed() == {"receivables": 1190, "revenue": -1000, "tax": -190}


def test_what_is_written_off_comes_back_as_far_as_it_is_paid_after_all(lab: Tenant) -> None:
    march = invoice_of(lab, "2026-03")
    write_offs.write_off_invoice(invoice=march, reason="Gone", by="op", on=date(2026, 6, 1))
    assert agreed() == {"write-offs": 1190, "revenue": -1000, "tax": -190}

    pay(march, "4.00", "2026-07-01")
    assert agreed() == {"write-offs": 790, "bank": 400, "revenue": -1000, "tax": -190}
    assert sums(date(2026, 7, 1), date(2026, 8, 1)) == {"bank": 400, "write-offs": -400}


def test_a_wallet_that_pays_first_is_a_liability_until_it_does() -> None:
    cluster = a_cluster(complete_through="2026-09-01")
    lab = a_tenant(plan=a_plan(settles="wallet-first"), accounts=[(cluster, "vision")], tax_rate=Decimal(19))
    wallet_terms.set_scheme(
        tenant=lab, unit="USD", scope=WalletScope.TENANT, overdraft=0, since=at("2026-03-01")
    )
    wallet = Wallet.objects.get()
    for kind, amount in ((GrantKind.TOP_UP, 500), (GrantKind.GIFT, 200)):
        grants.grant(
            wallet=wallet, amount=amount, kind=kind, key=kind, who="op", moment=at("2026-03-01 10:00")
        )
    assert agreed() == {"bank": 500, "granted-credit": 200, "prepaid": -700}

    ingest(cluster, a_job(ended="2026-03-02 15:00"))
    close("2026-03")

    assert agreed() == {"bank": 500, "granted-credit": 200, "receivables": 490, "revenue": -1000, "tax": -190}


def test_op_writes_a_month_with_numbers_of_their_own(lab: Tenant, tmp_path: Path, settings: object) -> None:
    settings.CLUSTERTAB_LEDGER_ACCOUNTS = ["receivables=10000", "tax = 1776"]  # type: ignore[attr-defined]
    path = tmp_path / "april.csv"

    answer, code = answer_of("export_ledger", "2026-04", path)

    assert (answer["month"], answer["entries"], answer["file"], code) == ("2026-04", 1, "april.csv", 0)
    rows = list(csv.DictReader(io.StringIO(path.read_text())))
    columns = ("entry", "date", "account", "debit", "credit", "tax", "service_from")
    entry = ("document-INV-2026-0001", "2026-04-03")
    assert [tuple(row[name] for name in columns) for row in rows] == [
        (*entry, "10000", "11.90", "", "", "2026-03-01T00:00:00Z"),
        (*entry, "4000", "", "10.00", "S 19 %", "2026-03-01T00:00:00Z"),
        (*entry, "1776", "", "1.90", "S 19 %", "2026-03-01T00:00:00Z"),
    ]
    settings.CLUSTERTAB_LEDGER_ACCOUNTS = ["cash=1"]  # type: ignore[attr-defined]
    assert answer_of("export_ledger", "2026-04", path)[1] == 1
    assert answer_of("export_ledger", "2026-4", path)[1] == 2


@pytest.mark.parametrize("word", ["cash=1", "bank", "bank=", "bank=1\n2", "=5"])
def test_what_is_no_account_is_refused(word: str) -> None:
    with pytest.raises(AccountsError, match="LEDGER_ACCOUNTS"):
        journal.numbers_of([word])
    assert journal.numbers_of(["bank=1=2"])[Account.BANK] == "1=2"


def pays_in(lab: Tenant) -> None:
    """50.00 into a new wallet, on 1 March."""
    wallet_terms.set_scheme(
        tenant=lab, unit="USD", scope=WalletScope.TENANT, overdraft=0, since=at("2026-03-01")
    )
    grants.grant(
        wallet=Wallet.objects.get(),
        amount=5000,
        kind=GrantKind.TOP_UP,
        key="one",
        who="op",
        moment=at("2026-03-01 10:00"),
    )


def test_a_wallet_gets_back_what_a_void_or_credited_invoice_took() -> None:
    cluster = a_cluster(complete_through="2026-09-01")
    lab = a_tenant(plan=a_plan(settles="wallet-first"), accounts=[(cluster, "vision")], tax_rate=Decimal(19))
    pays_in(lab)
    ingest(cluster, a_job(ended="2026-03-02 15:00"))
    close("2026-03")
    assert agreed() == {"bank": 5000, "prepaid": -3810, "revenue": -1000, "tax": -190}

    voids.void_invoice(invoice=invoice_of(lab, "2026-03"), reason="Wrong", by="op", on=date(2026, 4, 4))
    assert agreed() == {"bank": 5000, "prepaid": -5000}

    close("2026-03", on="2026-04-05")
    credit_notes.issue_credit_note(
        invoice=invoice_of(lab, "2026-03"), reason="Down", by="op", on=date(2026, 5, 7)
    )
    assert agreed() == {"bank": 5000, "prepaid": -5000}


def test_credit_balances_and_write_offs_that_are_taken_back(lab: Tenant) -> None:
    march = invoice_of(lab, "2026-03")
    write_offs.write_off_invoice(invoice=march, reason="Gone", by="op", on=date(2026, 6, 1))
    write_offs.reverse_write_off(invoice=march, reason="Found", by="op", moment=at("2026-06-05 10:00"))
    assert agreed() == {"receivables": 1190, "revenue": -1000, "tax": -190}

    credit_balance.receive_credit(
        tenant=lab, currency="USD", amount=700, memo="Transfer", by="op", at=at("2026-06-06 10:00")
    )
    assert agreed()["credit-balances"] == -700
    credit_balance.use_credit(tenant=lab, currency="USD", at=at("2026-06-07 10:00"), on=date(2026, 6, 7))

    assert agreed() == {"bank": 700, "receivables": 490, "revenue": -1000, "tax": -190}


def test_write_offs_of_one_day_stand_in_the_order_in_which_they_were_made(lab: Tenant) -> None:
    march = invoice_of(lab, "2026-03")
    with as_owner() as cursor:
        cursor.execute(
            "SELECT setval(pg_get_serial_sequence('billing_writeoff', 'id'), 8)"
        )  # the next are 9 and 10
    for _ in range(2):
        write_offs.write_off_invoice(invoice=march, reason="Gone", by="op", on=date(2026, 6, 1))
        write_offs.reverse_write_off(invoice=march, reason="Found", by="op", moment=at("2026-06-01 10:00"))
    rows = [
        entry for entry in journal.entries(since=ALWAYS[0], until=ALWAYS[1]) if entry.event == "write-off"
    ]
    assert [entry.key for entry in rows] == [
        "write-off-9",
        "write-off-9-undone",
        "write-off-10",
        "write-off-10-undone",
    ]
    assert [entry.postings[0].amount > 0 for entry in rows] == [True, False, True, False]


def test_what_a_wallet_pays_is_of_the_day_of_its_invoice() -> None:
    """Closed at noon of 31 December in UTC, which is 1 January in Auckland."""
    cluster = a_cluster(complete_through="2027-09-01")
    plan, zone = a_plan(settles="wallet-first"), "Pacific/Auckland"
    lab = a_tenant(plan=plan, accounts=[(cluster, "vision")], tax_rate=Decimal(19), timezone=zone)
    pays_in(lab)
    ingest(cluster, a_job(started="2026-12-05 10:00", ended="2026-12-05 15:00"))
    closed("2026-12", lab, on="2026-12-31 12:00", now="2027-12-31 12:00")

    (statement,) = load_statements(lab, since=date(2027, 1, 1), until=date(2028, 1, 1))

    assert statement.opening == 0
    assert [(row.event, row.balance) for row in statement.rows] == [("invoice", 1190), ("wallet-invoice", 0)]


def test_of_one_day_what_came_first_stands_first(lab: Tenant) -> None:
    march = invoice_of(lab, "2026-03")
    with as_owner() as owner:
        owner.execute("SELECT setval(pg_get_serial_sequence('billing_payment', 'id'), 998)")
    for amount in ("11.90", "-11.90", "5.00"):
        pay(march, amount, "2026-04-10")

    (statement,) = load_statements(lab, since=ALWAYS[0], until=ALWAYS[1])

    assert [row.amount for row in statement.rows] == [1190, -1190, 1190, -500]
