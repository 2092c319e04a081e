"""What a wallet paid on invoices, and payments, credit notes, voids and a farewell after that."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta

import pytest
from django.core.management import call_command

from billing.invoicing import credit_notes, offboarding, voids
from billing.models import BillingPeriod, GrantRule, Invoice, WalletEntry, WalletGrant
from billing.models.wallets import CreditsGo
from billing.receivables import settlement
from billing.receivables.settlement import PaymentError
from billing.rules.money import Money
from billing.wallets import grants
from tests.builders import a_job, at, ingest
from tests.scenarios.test_wallets_pay_first import TODAY, a_lab, drawn, left, top_up, used
from tests.stories import close, closed, invoice_of, prove

pytestmark = pytest.mark.django_db


def transfer(invoice: Invoice, amount: str) -> None:
    settlement.record_payment(
        invoice=invoice,
        amount=Money.of(amount, "USD"),
        received_on=TODAY,
        reference=f"transfer {amount}",
        recorded_by="op",
    )


def test_what_was_overpaid_is_no_part_of_what_a_later_credit_note_gives_back() -> None:
    cluster, vision, wallet = a_lab()
    top_up(wallet, 60_00)
    used(cluster, 50)  # 100.00, of which 40.00 are due
    closed("2026-03", vision)
    march = invoice_of(vision, "2026-03")
    transfer(march, "60.00")

    note = credit_notes.issue_credit_note(
        invoice=march, reason="Goodwill.", by="op", on=TODAY, net=Money.of("10.00", "USD")
    )

    assert (note.prepaid, left()) == (-10_00, {"R1": 10_00})
    assert settlement.load_balance(invoice=march, on=TODAY).due.text == "-20.00"
    prove()


def test_what_the_wallet_paid_and_a_credit_note_took_off_is_paid_back_by_transfer() -> None:
    cluster, vision, wallet = a_lab(credits_go=CreditsGo.PAY_BACK)
    top_up(wallet, 80_00)
    used(cluster, 40)  # 80.00, all from the wallet
    closed("2026-03", vision)
    march = invoice_of(vision, "2026-03")
    with pytest.raises(PaymentError, match=r"^Only 0\.00 was paid; no more can be taken back\.$"):
        transfer(march, "-0.01")
    credit_notes.issue_credit_note(
        invoice=march, reason="Goodwill.", by="op", on=TODAY, net=Money.of("25.00", "USD")
    )

    with pytest.raises(PaymentError, match=r"^Only 25\.00 is to be given back; no more can be taken back\.$"):
        transfer(march, "-25.01")
    transfer(march, "-25.00")

    stand = settlement.load_balance(invoice=march, on=TODAY)
    assert (stand.paid.text, stand.due.text, stand.settlement) == ("-25.00", "0.00", "paid")
    with pytest.raises(PaymentError, match=r"^Only 0\.00 is to be given back"):
        transfer(march, "-0.01")
    prove()


def test_a_tenant_leaves_with_invoices_that_its_wallet_paid() -> None:
    """80.00 of the wallet, of which 25.00 came back to it: nothing is due, and nothing to be paid back."""
    cluster, vision, wallet = a_lab()
    top_up(wallet, 80_00)
    used(cluster, 40)
    closed("2026-03", vision)
    credit_25 = Money.of("25.00", "USD")
    credit_notes.issue_credit_note(
        invoice=invoice_of(vision, "2026-03"), reason="Goodwill.", by="op", on=TODAY, net=credit_25
    )
    offboarding.end_services(tenant=vision, at=at("2026-04-10"))
    assert list(offboarding.find_obstacles(vision, moment=at("2026-04-10"))) == [
        "Its wallets hold 25.00 USD: pay it back, and take it off the wallet."
    ]


@pytest.mark.parametrize("voided", [False, True])
def test_a_top_up_waits_for_open_periods_from_before_it_was_given(voided: bool) -> None:
    cluster, vision, wallet = a_lab()
    used(cluster, 20)
    top_up(wallet, 50_00, on="2026-04-02 09:00", expires_on=date(2026, 4, 10))
    if voided:
        closed("2026-03", vision)
        voids.void_invoice(invoice=invoice_of(vision, "2026-03"), reason="Address.", by="op", on=TODAY)
    close("2026-04", vision, on="2026-05-01", preview=True)
    BillingPeriod.objects.exclude(start=at("2026-03-01")).update(closed_at=at("2026-05-01"))
    grants.tend(moment=at("2026-05-02"))
    assert left() == {"R1": 50_00}
    closed("2026-03", vision, on="2026-05-03")
    assert drawn(invoice_of(vision, "2026-03")) == {"R1": 40_00}
    grants.tend(moment=at("2026-05-04"))
    assert left() == {"R1": 0}
    prove()


def test_an_empty_month_that_nobody_closes_holds_up_nothing_that_expired() -> None:
    cluster, vision, wallet = a_lab()
    mistaken = {"source_key": "7@1", "started": "2026-02-10 10:00"}
    ingest(cluster, a_job(ended="2026-02-10 11:00", **mistaken))
    ingest(cluster, a_job(ended="2026-02-10 10:00", **mistaken))
    top_up(wallet, 50_00, expires_on=date(2026, 3, 25))
    used(cluster, 10)
    grants.tend(moment=at("2026-04-02"))
    assert left() == {"R1": 50_00}  # March is not invoiced yet
    closed("2026-03", vision)
    grants.tend(moment=at("2026-04-10"))
    assert (drawn(invoice_of(vision, "2026-03")), left()) == ({"R1": 20_00}, {"R1": 0})
    assert BillingPeriod.objects.get(start=at("2026-02-01")).closed_at is None
    prove()


def test_what_expired_is_there_again_while_its_month_is_open_again() -> None:
    cluster, vision, wallet = a_lab()
    top_up(wallet, 50_00, expires_on=date(2026, 3, 25))
    used(cluster, 10)
    closed("2026-03", vision)
    grants.tend(moment=at("2026-04-10"))
    voids.void_invoice(
        invoice=invoice_of(vision, "2026-03"), reason="Address.", by="op", on=date(2026, 4, 11)
    )
    assert left() == {"R1": 50_00}
    used(cluster, 10, "2026-03-24")
    closed("2026-03", vision, on="2026-04-12")
    grants.tend(moment=at("2026-04-13"))
    assert (drawn(invoice_of(vision, "2026-03")), left()) == ({"R1": 40_00}, {"R1": 0})
    prove()


def test_what_op_takes_back_is_booked_when_it_is_done() -> None:
    """Not when the day began: a statement is in the order in which things happened."""
    cluster, vision, wallet = a_lab(timezone="America/Los_Angeles")
    top_up(wallet, 80_00)
    used(cluster, 40)
    closed("2026-03", vision)
    number = invoice_of(vision, "2026-03").number
    for command, options in (("credit_invoice", {"net": "25.00"}), ("void_invoice", {})):
        if command == "void_invoice":
            used(cluster, 10, "2026-04-20")
            closed("2026-04", vision)
            number = invoice_of(vision, "2026-04").number
        before = datetime.now(UTC)
        call_command(command, number, reason="Goodwill.", **options)
        (newest,) = WalletEntry.objects.filter(side="invoice").order_by("-pk")[:1]
        assert before <= newest.at <= datetime.now(UTC), command
    prove()


@pytest.mark.parametrize("voided", [False, True])
@pytest.mark.parametrize("tended", [[], [2, 4, 11], [2, 3, 4, 5, 9, 12]])
def test_a_cap_counts_what_waits_for_the_invoice_until_the_day_after_its_close(
    voided: bool, tended: list[int]
) -> None:
    """50.00 expire on 25 March, and wait for March's invoice of 30.00: the rest goes on 4 April, not on 28 March."""
    cluster, vision, wallet = a_lab()
    GrantRule.objects.create(
        scheme=wallet.scheme, name="daily", amount=5_00, every="day", begins_at=at("2026-03-31"), cap=50_00
    )
    top_up(wallet, 50_00, expires_on=date(2026, 3, 25))
    used(cluster, 15)  # on the 20th, so that the top-up pays it
    closed("2026-03", vision, on="2026-04-03")
    for day in tended:
        grants.tend(moment=at(f"2026-04-{day:02} 10:00"))
    if voided:
        voids.void_invoice(
            invoice=invoice_of(vision, "2026-03"), reason="Address.", by="op", on=date(2026, 4, 12)
        )
        grants.tend(moment=at("2026-04-14"))
        prove()
        closed("2026-03", vision, on="2026-04-15")
    grants.tend(moment=at("2026-04-20"))

    given = {
        row.granted_at.date(): row.amount
        for row in WalletGrant.objects.filter(kind="rule").order_by("granted_at")
    }
    first = date(2026, 4, 16) if voided else date(2026, 4, 4)
    before = {day: amount for day, amount in given.items() if day < first}
    after = [given[first + timedelta(days=place)] for place in range(3)]
    assert sum(before.values()) == (
        30_00 if voided else 0
    )  # once void, 20.00 and 30.00 of days since are a full wallet
    assert after == [5_00, 5_00, 5_00]
    prove()
