"""What payers take up with their bank, and what is given back at Stripe by hand: seen, and shown as what it is."""

from __future__ import annotations

import pytest

from billing.dunning import upcoming_steps
from billing.models import UNEXPLAINED, Difference, PaymentAttempt, PaymentDispute, PaymentRefund
from billing.payments import disputes, manual_review, refunds
from billing.payments.attempts import Held
from billing.payments.gateway_access import CollectingError
from billing.receivables import settlement
from billing.reconciliation import reconciliation_run
from billing.rules.money import Money
from portal.core.tenants.models import Role
from tests import builders
from tests.collecting import Counter, credited
from tests.web.house import page, signed_in

pytestmark = pytest.mark.django_db(transaction=True)


def test_collecting_case_27_a_refund_that_was_made_at_stripe_by_hand_is_seen(counter: Counter) -> None:
    counter.save_card()
    counter.collect()
    counter.stripe.hand.refund(PaymentAttempt.objects.get().external_id or "", 150)
    counter.collect()
    counter.collect()
    assert counter.charge() == Held(
        "Something was given back at the gateway: write a credit note, or say that it stays owed."
    )
    (row,) = PaymentRefund.objects.filter(UNEXPLAINED, attempt__invoice=counter.invoice)
    assert (row.amount, row.asked_by, counter.paid) == (150, "made at the gateway", "2.50")
    counter.books_agree()

    credited(counter, "1.00")
    assert isinstance(counter.charge(), Held)  # 0.50 of it are still unexplained
    note = credited(counter, "0.50")
    assert (counter.standing, PaymentRefund.objects.filter(UNEXPLAINED).count(), asked(counter)) == (
        "paid",
        0,
        [],
    )
    with pytest.raises(
        CollectingError, match="Nothing that was paid through the gateway is to be given back"
    ):
        refunds.prepare(credit_note=note, who="op", moment=counter.now)


def test_the_note_that_credits_more_than_was_left_of_it_gives_the_rest_back(counter: Counter) -> None:
    """1.50 went back at Stripe, and 1.00 and 1.00 were credited: 0.50 are to be given back."""
    counter.save_card()
    counter.collect()
    counter.stripe.hand.refund(PaymentAttempt.objects.get().external_id or "", 150)
    counter.collect()
    credited(counter, "1.00")
    note = credited(counter, "1.00")
    assert PaymentRefund.objects.get().dealt_with == "Credited by CN-2026-0002, beside others."
    (rest,) = refunds.prepare(credit_note=note, who="op", moment=counter.now)
    assert rest.amount == 50


def asked(counter: Counter) -> list[str]:
    """What Op's page asks to be done about what was given back."""
    return [each.sentence for each in upcoming_steps.to_look_at(moment=counter.now) if each.what == "Refund"]


def test_what_was_given_back_at_stripe_because_it_was_paid_twice_asks_for_nothing(counter: Counter) -> None:
    counter.save_card()
    counter.collect()
    settlement.record_payment(
        invoice=counter.invoice,
        amount=Money.of("4.00", "USD"),
        received_on=counter.now.date(),
        reference="SEPA 1",
        recorded_by="op",
    )
    counter.stripe.hand.refund(PaymentAttempt.objects.get().external_id or "", 400)
    counter.collect()
    counter.wait(hours=3)
    reconciliation_run.run(gateway=counter.gateway, moment=counter.now, by="op")
    assert (counter.paid, counter.standing, asked(counter)) == ("4.00", "paid", [])
    assert not Difference.objects.filter(resolved_at=None).exists()


def test_a_credit_note_after_that_is_given_back_itself(counter: Counter) -> None:
    """What was paid twice went back at Stripe, and is not what the later note takes back."""
    counter.save_card()
    counter.collect()
    settlement.record_payment(
        invoice=counter.invoice,
        amount=Money.of("4.00", "USD"),
        received_on=counter.now.date(),
        reference="SEPA 1",
        recorded_by="op",
    )
    counter.stripe.hand.refund(PaymentAttempt.objects.get().external_id or "", 200)
    counter.stripe.hand.refund(PaymentAttempt.objects.get().external_id or "", 100)
    counter.collect()
    assert counter.paid == "5.00"
    note = credited(counter, "1.00")
    assert not PaymentRefund.objects.exclude(credit_note=None, dealt_with="").exists()
    (back,) = refunds.prepare(credit_note=note, who="op", moment=counter.now)
    assert back.amount == 100


def test_what_is_still_on_its_way_back_is_not_explained_by_a_note_over_something_else(
    counter: Counter,
) -> None:
    """1.50 go back at Stripe, slowly; 0.50 are credited meanwhile: the 1.50 are still to be explained."""
    counter.save_card("4000000000007726")
    counter.collect()
    counter.stripe.hand.refund(PaymentAttempt.objects.get().external_id or "", 150)
    counter.collect()
    assert (counter.paid, PaymentRefund.objects.get().state) == ("4.00", "pending")
    credited(counter, "0.50")
    counter.wait(minutes=20)
    counter.collect()
    assert (counter.paid, PaymentRefund.objects.get().state) == ("2.50", "succeeded")
    assert len(asked(counter)) == 1
    counter.wait(days=3)
    counter.collect()
    assert counter.taken == [400]  # nobody said that it stays owed


def test_op_says_that_what_was_given_back_at_stripe_stays_owed_and_it_is_charged_again(
    counter: Counter,
) -> None:
    counter.save_card()
    counter.collect()
    counter.stripe.hand.refund(PaymentAttempt.objects.get().external_id or "", 150)
    counter.collect()
    (sentence,) = asked(counter)
    assert sentence.startswith(
        "1.50 USD were given back at the gateway, and are owed again: write a credit note"
    )
    row = PaymentRefund.objects.get()
    with pytest.raises(CollectingError, match="Say why it is owed all the same"):
        manual_review.stays_owed(refund=row, who="op", why=" ")
    manual_review.stays_owed(refund=row, who="op", why="By mistake")
    with pytest.raises(CollectingError, match="It is said already"):
        manual_review.stays_owed(refund=row, who="op", why="Again")
    counter.wait(hours=1)
    counter.collect()
    assert (counter.paid, counter.standing, asked(counter)) == ("4.00", "paid", [])
    assert counter.taken == [400, 150]


def test_collecting_case_28_a_dispute_stops_collection_and_a_lost_one_is_owed_again(counter: Counter) -> None:
    counter.save_card()
    counter.collect()
    dispute = counter.stripe.hand.dispute(PaymentAttempt.objects.get().external_id or "")
    counter.collect()
    assert (counter.paid, counter.standing) == ("4.00", "disputed")
    with pytest.raises(CollectingError):
        refunds.prepare(credit_note=credited(counter, "1.00"), who="op", moment=counter.now)
    counter.stripe.hand.lose_dispute(dispute)
    counter.collect()
    counter.wait(days=30)
    counter.collect()
    assert (counter.paid, counter.standing, counter.taken) == ("0.00", "charged_back", [400])
    assert PaymentDispute.objects.get().fee == 1500


def test_collecting_case_28_a_dispute_that_is_won_leaves_the_invoice_paid(counter: Counter) -> None:
    counter.save_card()
    counter.collect()
    dispute = counter.stripe.hand.dispute(PaymentAttempt.objects.get().external_id or "")
    counter.collect()
    assert counter.standing == "disputed"
    counter.stripe.hand.win_dispute(dispute)
    counter.collect()
    assert (counter.paid, counter.standing) == ("4.00", "paid")
    counter.books_agree()


def test_a_bank_that_only_asks_has_taken_nothing_and_the_payment_can_be_given_back(counter: Counter) -> None:
    counter.save_card()
    counter.collect()
    counter.stripe.hand.inquire(PaymentAttempt.objects.get().external_id or "")
    counter.collect()
    assert (counter.paid, counter.standing) == ("4.00", "disputed")
    (look,) = upcoming_steps.to_look_at(moment=counter.now)
    assert look.sentence == "A bank asks about 4.00 USD: answer it at the gateway, or give it back."
    refunds.prepare(credit_note=credited(counter, "4.00"), who="op", moment=counter.now)
    counter.collect()
    counter.wait(minutes=20)
    counter.collect()
    assert (counter.paid, counter.standing, PaymentDispute.objects.get().state) == ("0.00", "credited", "won")
    counter.wait(hours=3)
    reconciliation_run.run(gateway=counter.gateway, moment=counter.now, by="op")
    assert not Difference.objects.filter(resolved_at=None).exists()
    counter.books_agree()


def test_an_inquiry_that_is_not_answered_becomes_a_dispute(counter: Counter) -> None:
    counter.save_card()
    counter.collect()
    inquiry = counter.stripe.hand.inquire(PaymentAttempt.objects.get().external_id or "")
    counter.collect()
    dispute = counter.gateway.find_dispute(inquiry)
    counter.stripe.hand.escalate_inquiry(inquiry)
    counter.collect()
    disputes.apply_dispute(dispute, moment=counter.now)  # what was read before comes late
    assert (counter.standing, PaymentDispute.objects.get().state) == ("disputed", "open")
    with pytest.raises(CollectingError):
        refunds.prepare(credit_note=credited(counter, "1.00"), who="op", moment=counter.now)
    counter.stripe.hand.lose_dispute(inquiry)
    counter.collect()
    assert (counter.paid, counter.standing) == ("0.00", "charged_back")


def test_case_081_an_invoice_that_was_charged_back_is_paid_by_transfer_and_is_paid(counter: Counter) -> None:
    counter.save_card()
    counter.collect()
    dispute = counter.stripe.hand.dispute(PaymentAttempt.objects.get().external_id or "")
    counter.stripe.hand.lose_dispute(dispute)
    counter.collect()
    assert counter.standing == "charged_back"
    settlement.record_payment(
        invoice=counter.invoice,
        amount=Money.of("4.00", "USD"),
        received_on=counter.now.date(),
        reference="by transfer",
        recorded_by="op",
    )
    assert (counter.paid, counter.standing) == ("4.00", "paid")


def test_ann_sees_that_her_invoice_is_disputed_and_that_it_was_charged_back(counter: Counter) -> None:
    ann = builders.a_person("ann@vision.example", counter.lab, Role.OWNER)
    counter.save_card()
    counter.collect()
    dispute = counter.stripe.hand.dispute(PaymentAttempt.objects.get().external_id or "")
    counter.collect()
    for path in ("/t/vision-lab/invoices/", "/t/vision-lab/invoices/INV-2026-0001/"):
        assert "Disputed" in page(ann, path)
    assert "A payment of this invoice is disputed at the bank." in page(ann, path)
    counter.stripe.hand.lose_dispute(dispute)
    counter.collect()
    shown = page(ann, path)
    assert "Charged back" in shown
    assert "so that it is to be paid again" in shown
    assert "Pay $4.00 with Visa ending in 4242" in shown
    eve = builders.a_person("eve@speech.example", builders.a_tenant("speech-lab"), Role.OWNER)
    assert signed_in(eve).get(path).status_code == 404
