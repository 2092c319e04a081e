"""What payers take up with their bank, and what is given back at Stripe by hand: seen, and shown as what it is."""

from __future__ import annotations

import pytest

from billing.models import UNEXPLAINED, Difference, PaymentAttempt, PaymentDispute, PaymentRefund
from billing.payments import disputes, manual_review, refunds
from billing.payments.charge_attempts import NotChargeableError
from billing.payments.gateway_access import CollectionError
from billing.queries import review_items
from billing.receivables import settlement
from billing.reconciliation import reconciliation_run
from billing.rules.money import Money
from portal.core.tenants.models import Role
from tests import builders
from tests.collecting import Scenario, credited
from tests.web.house import page, signed_in

pytestmark = pytest.mark.django_db(transaction=True)


def test_collecting_case_27_a_refund_that_was_made_at_stripe_by_hand_is_seen(
    scenario: Scenario,
) -> None:
    scenario.save_card()
    scenario.collect()
    scenario.stripe.dashboard.refund(PaymentAttempt.objects.get().external_id or "", 150)
    scenario.collect()
    scenario.collect()
    assert str(scenario.charge()) == (
        "A refund at the gateway has no credit note: issue one, or keep the balance open."
    )
    (row,) = PaymentRefund.objects.filter(UNEXPLAINED, attempt__invoice=scenario.invoice)
    assert (row.amount, row.requested_by, scenario.paid) == (150, "made at the gateway", "2.50")
    scenario.books_agree()

    credited(scenario, "1.00")
    assert isinstance(scenario.charge(), NotChargeableError)  # 0.50 of it are still unexplained
    note = credited(scenario, "0.50")
    assert (
        scenario.settlement,
        PaymentRefund.objects.filter(UNEXPLAINED).count(),
        refund_steps(scenario),
    ) == (
        "paid",
        0,
        [],
    )
    with pytest.raises(
        CollectionError, match="Nothing that was paid through the gateway is to be given back"
    ):
        refunds.prepare_refunds(credit_note=note, who="op", moment=scenario.now)


def test_the_note_that_credits_more_than_was_left_of_it_gives_the_rest_back(scenario: Scenario) -> None:
    """1.50 went back at Stripe, and 1.00 and 1.00 were credited: 0.50 are to be given back."""
    scenario.save_card()
    scenario.collect()
    scenario.stripe.dashboard.refund(PaymentAttempt.objects.get().external_id or "", 150)
    scenario.collect()
    credited(scenario, "1.00")
    note = credited(scenario, "1.00")
    assert PaymentRefund.objects.get().resolution == "Credited by CN-2026-0002, beside others."
    (rest,) = refunds.prepare_refunds(credit_note=note, who="op", moment=scenario.now)
    assert rest.amount == 50


def refund_steps(scenario: Scenario) -> list[str]:
    """What Op's page asks to be done about what was given back."""
    return [
        item.sentence for item in review_items.list_review_items(moment=scenario.now) if item.what == "Refund"
    ]


def test_what_was_given_back_at_stripe_because_it_was_paid_twice_asks_for_nothing(scenario: Scenario) -> None:
    scenario.save_card()
    scenario.collect()
    settlement.record_payment(
        invoice=scenario.invoice,
        amount=Money.of("4.00", "USD"),
        received_on=scenario.now.date(),
        reference="SEPA 1",
        recorded_by="op",
    )
    scenario.stripe.dashboard.refund(PaymentAttempt.objects.get().external_id or "", 400)
    scenario.collect()
    scenario.wait(hours=3)
    reconciliation_run.run(gateway=scenario.gateway, moment=scenario.now, by="op")
    assert (scenario.paid, scenario.settlement, refund_steps(scenario)) == ("4.00", "paid", [])
    assert not Difference.objects.filter(resolved_at=None).exists()


def test_a_credit_note_after_that_is_given_back_itself(scenario: Scenario) -> None:
    """What was paid twice went back at Stripe, and is not what the later note takes back."""
    scenario.save_card()
    scenario.collect()
    settlement.record_payment(
        invoice=scenario.invoice,
        amount=Money.of("4.00", "USD"),
        received_on=scenario.now.date(),
        reference="SEPA 1",
        recorded_by="op",
    )
    scenario.stripe.dashboard.refund(PaymentAttempt.objects.get().external_id or "", 200)
    scenario.stripe.dashboard.refund(PaymentAttempt.objects.get().external_id or "", 100)
    scenario.collect()
    assert scenario.paid == "5.00"
    note = credited(scenario, "1.00")
    assert not PaymentRefund.objects.exclude(credit_note=None, resolution="").exists()
    (back,) = refunds.prepare_refunds(credit_note=note, who="op", moment=scenario.now)
    assert back.amount == 100


def test_what_is_still_on_its_way_back_is_not_explained_by_a_note_over_something_else(
    scenario: Scenario,
) -> None:
    """1.50 go back at Stripe, slowly; 0.50 are credited meanwhile: the 1.50 are still to be explained."""
    scenario.save_card("4000000000007726")
    scenario.collect()
    scenario.stripe.dashboard.refund(PaymentAttempt.objects.get().external_id or "", 150)
    scenario.collect()
    assert (scenario.paid, PaymentRefund.objects.get().state) == ("4.00", "pending")
    credited(scenario, "0.50")
    scenario.wait(minutes=20)
    scenario.collect()
    assert (scenario.paid, PaymentRefund.objects.get().state) == ("2.50", "succeeded")
    assert len(refund_steps(scenario)) == 1
    scenario.wait(days=3)
    scenario.collect()
    assert scenario.charged == [400]  # nobody said that it stays owed


def test_op_says_that_what_was_given_back_at_stripe_stays_owed_and_it_is_charged_again(
    scenario: Scenario,
) -> None:
    scenario.save_card()
    scenario.collect()
    scenario.stripe.dashboard.refund(PaymentAttempt.objects.get().external_id or "", 150)
    scenario.collect()
    (sentence,) = refund_steps(scenario)
    assert sentence.startswith(
        "1.50 USD refunded at the gateway without a credit note is due again: issue a credit note"
    )
    row = PaymentRefund.objects.get()
    with pytest.raises(CollectionError, match="Enter a reason: why the balance stays open"):
        manual_review.keep_refund_owed(refund=row, who="op", reason=" ")
    manual_review.keep_refund_owed(refund=row, who="op", reason="By mistake")
    with pytest.raises(CollectionError, match="already dealt with"):
        manual_review.keep_refund_owed(refund=row, who="op", reason="Again")
    scenario.wait(hours=1)
    scenario.collect()
    assert (scenario.paid, scenario.settlement, refund_steps(scenario)) == ("4.00", "paid", [])
    assert scenario.charged == [400, 150]


def test_collecting_case_28_a_dispute_stops_collection_and_a_lost_one_is_owed_again(
    scenario: Scenario,
) -> None:
    scenario.save_card()
    scenario.collect()
    dispute = scenario.stripe.dashboard.dispute(PaymentAttempt.objects.get().external_id or "")
    scenario.collect()
    assert (scenario.paid, scenario.settlement) == ("4.00", "disputed")
    with pytest.raises(CollectionError):
        refunds.prepare_refunds(credit_note=credited(scenario, "1.00"), who="op", moment=scenario.now)
    scenario.stripe.dashboard.lose_dispute(dispute)
    scenario.collect()
    scenario.wait(days=30)
    scenario.collect()
    assert (scenario.paid, scenario.settlement, scenario.charged) == ("0.00", "charged_back", [400])
    assert PaymentDispute.objects.get().fee == 1500


def test_collecting_case_28_a_dispute_that_is_won_leaves_the_invoice_paid(scenario: Scenario) -> None:
    scenario.save_card()
    scenario.collect()
    dispute = scenario.stripe.dashboard.dispute(PaymentAttempt.objects.get().external_id or "")
    scenario.collect()
    assert scenario.settlement == "disputed"
    scenario.stripe.dashboard.win_dispute(dispute)
    scenario.collect()
    assert (scenario.paid, scenario.settlement) == ("4.00", "paid")
    scenario.books_agree()


def test_a_bank_that_only_asks_has_taken_nothing_and_the_payment_can_be_given_back(
    scenario: Scenario,
) -> None:
    scenario.save_card()
    scenario.collect()
    scenario.stripe.dashboard.inquire(PaymentAttempt.objects.get().external_id or "")
    scenario.collect()
    assert (scenario.paid, scenario.settlement) == ("4.00", "disputed")
    (look,) = review_items.list_review_items(moment=scenario.now)
    assert look.sentence == "A bank inquires about 4.00 USD: respond at the gateway, or refund it."
    refunds.prepare_refunds(credit_note=credited(scenario, "4.00"), who="op", moment=scenario.now)
    scenario.collect()
    scenario.wait(minutes=20)
    scenario.collect()
    assert (scenario.paid, scenario.settlement, PaymentDispute.objects.get().state) == (
        "0.00",
        "credited",
        "won",
    )
    scenario.wait(hours=3)
    reconciliation_run.run(gateway=scenario.gateway, moment=scenario.now, by="op")
    assert not Difference.objects.filter(resolved_at=None).exists()
    scenario.books_agree()


def test_an_inquiry_that_is_not_answered_becomes_a_dispute(scenario: Scenario) -> None:
    scenario.save_card()
    scenario.collect()
    inquiry = scenario.stripe.dashboard.inquire(PaymentAttempt.objects.get().external_id or "")
    scenario.collect()
    dispute = scenario.gateway.find_dispute(inquiry)
    scenario.stripe.dashboard.escalate_inquiry(inquiry)
    scenario.collect()
    disputes.apply_dispute(dispute, moment=scenario.now)  # what was read before comes late
    assert (scenario.settlement, PaymentDispute.objects.get().state) == ("disputed", "open")
    with pytest.raises(CollectionError):
        refunds.prepare_refunds(credit_note=credited(scenario, "1.00"), who="op", moment=scenario.now)
    scenario.stripe.dashboard.lose_dispute(inquiry)
    scenario.collect()
    assert (scenario.paid, scenario.settlement) == ("0.00", "charged_back")


def test_case_081_an_invoice_that_was_charged_back_is_paid_by_transfer_and_is_paid(
    scenario: Scenario,
) -> None:
    scenario.save_card()
    scenario.collect()
    dispute = scenario.stripe.dashboard.dispute(PaymentAttempt.objects.get().external_id or "")
    scenario.stripe.dashboard.lose_dispute(dispute)
    scenario.collect()
    assert scenario.settlement == "charged_back"
    settlement.record_payment(
        invoice=scenario.invoice,
        amount=Money.of("4.00", "USD"),
        received_on=scenario.now.date(),
        reference="by transfer",
        recorded_by="op",
    )
    assert (scenario.paid, scenario.settlement) == ("4.00", "paid")


def test_ann_sees_that_her_invoice_is_disputed_and_that_it_was_charged_back(scenario: Scenario) -> None:
    ann = builders.a_person("ann@vision.example", scenario.lab, Role.OWNER)
    scenario.save_card()
    scenario.collect()
    dispute = scenario.stripe.dashboard.dispute(PaymentAttempt.objects.get().external_id or "")
    scenario.collect()
    for path in ("/t/vision-lab/invoices/", "/t/vision-lab/invoices/INV-2026-0001/"):
        assert "Disputed" in page(ann, path)
    assert "A payment of this invoice is disputed at the bank." in page(ann, path)
    scenario.stripe.dashboard.lose_dispute(dispute)
    scenario.collect()
    shown = page(ann, path)
    assert "Charged back" in shown
    assert "so that it is to be paid again" in shown
    assert "Pay $4.00 with Visa ending in 4242" in shown
    eve = builders.a_person("eve@speech.example", builders.a_tenant("speech-lab"), Role.OWNER)
    assert signed_in(eve).get(path).status_code == 404
