"""A lab has left, and its standing order goes on: what comes then is sent back, and what it owes is still paid."""

from __future__ import annotations

import pytest

from billing.bank_transfers import manual_matching
from billing.bank_transfers.manual_matching import DecisionError
from billing.invoicing import offboarding
from billing.models import Transfer, Wallet, WalletScope
from billing.receivables import credit_balance
from billing.rules.references import creditor_reference
from billing.wallets import wallet_terms
from portal.core.tenants.models import Tenant
from tests.builders import at
from tests.statements import Line, a_lab, camt, imported, leaves, march, stands, transfers
from tests.stories import prove

pytestmark = pytest.mark.django_db

JULY = at("2026-07-03 08:00")
LEFT = "Vision Lab has left, and is archived since 2026-06-02: send it back at the bank, and set it aside."


@pytest.fixture
def wallet() -> Wallet:
    """Of a lab that paid March and has left."""
    lab = a_lab()
    wallet_terms.set_scheme(
        tenant=lab, unit="EUR", scope=WalletScope.TENANT, overdraft=0, since=at("2026-03-01")
    )
    imported(camt(Line(amount="20.00", text="INV-2026-0001", name="B1", end_to_end="E1")))
    leaves(lab)
    offboarding.archive_tenant(tenant=lab, by="Op", reason="Contract ended", moment=at("2026-06-02 09:00"))
    return Wallet.objects.get()


@pytest.mark.parametrize("erased", [False, True], ids=["archived", "erased"])
def test_a_standing_order_fills_no_wallet_of_a_lab_that_has_left(wallet: Wallet, *, erased: bool) -> None:
    if erased:
        offboarding.erase_tenant(tenant=wallet.tenant, moment=at("2026-06-02 09:00"))
    order = Line(amount="50.00", reference=creditor_reference(f"WALLET{wallet.pk}"), name="B2")
    imported(camt(order, name="july"), moment=JULY)
    assert transfers()[-1] == ("50.00", "waiting", LEFT)
    wallet.refresh_from_db()
    assert wallet.balance == 0
    prove()


def test_nobody_books_it_as_credit_of_a_lab_that_has_left(wallet: Wallet) -> None:
    imported(camt(Line(amount="50.00", text="for GPUs", name="B2"), name="july"), moment=JULY)
    row = Transfer.objects.get(amount=50_00)
    with pytest.raises(DecisionError) as refusal:
        manual_matching.assign_transfer(transfer=row, numbers=[], tenant=wallet.tenant, by="op", moment=JULY)
    assert str(refusal.value) == LEFT
    manual_matching.ignore_transfer(transfer=row, reason="Sent back on 3 July.", by="op", moment=JULY)
    assert credit_balance.get_balance(wallet.tenant, "EUR") == 0
    prove()


def test_an_invoice_of_a_lab_that_has_left_can_still_be_paid(wallet: Wallet) -> None:
    """Its transfer went back after it had left. What is too much of the second one is to be paid back."""
    lab: Tenant = wallet.tenant
    went = Line(amount="-20.00", name="B2", end_to_end="E1", returned="AC04")
    imported(camt(went, name="july"), moment=JULY)
    assert stands(march(lab)) == ("due", "0.00", "20.00")
    imported(camt(Line(amount="25.00", text="March", name="B3"), name="later"), moment=JULY)
    again = Transfer.objects.get(amount=25_00)
    manual_matching.assign_transfer(
        transfer=again, numbers=["INV-2026-0001"], tenant=None, by="op", moment=JULY
    )
    assert (stands(march(lab)), credit_balance.get_balance(lab, "EUR")) == (("paid", "20.00", "0.00"), 500)
    prove()
