"""What is given back: as much as was sent, and only of what was paid."""

from __future__ import annotations

import pytest

from billing.dunning import overdue_invoices
from billing.invoicing import credit_notes
from billing.models import BillingAccount, GatewayEvent, Invoice, Payment, PaymentAttempt, PaymentRefund
from billing.payments import checkout_sessions, refunds, refunds_due, webhook_events
from billing.payments.gateway_access import CollectionError, UnmatchedObjectError
from billing.payments.gateways.stripe_values import Object
from billing.queries import review_items
from billing.reconciliation import reconciliation_run
from billing.rules.money import Money
from portal.ops.cli import RefusedError
from tests.api.door import door
from tests.builders import an_operator
from tests.collecting import Scenario, a_scenario, credited
from tests.scenarios.configuring import run
from tests.web.house import signed_in

pytestmark = pytest.mark.django_db(transaction=True)

BACK = checkout_sessions.ReturnUrls(
    completed="https://bills.example/back/", canceled="https://bills.example/invoice/"
)


def note_of(scenario: Scenario, net: str, currency: str) -> list[PaymentRefund]:
    """A credit note, and the refunds below it."""
    note = credit_notes.issue_credit_note(
        invoice=scenario.invoice,
        reason="Slow.",
        by="op",
        on=scenario.now.date(),
        moment=scenario.now,
        net=Money.of(net, currency),
    )
    return refunds.prepare_refunds(credit_note=note, who="op", moment=scenario.now)


def refunded(scenario: Scenario) -> list[int]:
    return [charge["amount_refunded"] for charge in scenario.stripe.objects("charge")]


def test_the_last_digit_of_a_dinar_is_neither_sent_nor_booked() -> None:
    """1.115 KWD are credited: 1.110 can be given back by card, 0.005 wait for a transfer."""
    with a_scenario(currency="KWD") as scenario:
        scenario.save_card()
        scenario.collect()
        (row,) = note_of(scenario, "1.115", "KWD")
        assert (row.amount, row.params["amount"]) == (1110, 1110)
        scenario.collect()
        assert (refunded(scenario), scenario.paid) == ([1110], "2.890")
        with pytest.raises(CollectionError, match="Nothing that was paid through the gateway"):
            refunds.prepare_refunds(
                credit_note=row.credit_note or scenario.invoice, who="op", moment=scenario.now
            )
        scenario.books_agree()


def test_a_refund_that_is_over_another_amount_there_is_not_booked_and_holds_its_tenant() -> None:
    with a_scenario() as scenario:
        scenario.save_card()
        scenario.collect()
        (row,) = note_of(scenario, "1.00", "USD")
        half = scenario.gateway.refund(row.params | {"amount": 50}, key="somebody else, by hand")
        scenario.wait(minutes=1)
        with pytest.raises(UnmatchedObjectError):
            refunds.apply_refund(scenario.gateway.find_refund(half.id), moment=scenario.now)
        for event in scenario.gateway.events(since=0):
            webhook_events.store_event(event, moment=scenario.now)
        for waiting in webhook_events.list_waiting(before=scenario.now):
            webhook_events.apply_event(waiting, gateway=scenario.gateway, moment=scenario.now)
        row.refresh_from_db()
        assert (row.state, scenario.paid, Payment.objects.count()) == ("ready", "4.00", 1)
        in_review = GatewayEvent.objects.filter(state="review", object_kind="refund").earliest("created")
        assert in_review.tenant_slug == "vision-lab"
        assert "is over 50 USD there, and not over what was asked for here" in in_review.reason


def test_what_a_refund_gives_back_is_by_no_door_recorded_as_given_back_by_hand_too() -> None:
    """4.00 were paid by card and 1.00 by a transfer, 4.00 are credited. The refund of 3.00 is under way."""
    with a_scenario() as scenario:
        scenario.save_card()
        scenario.collect()
        number, day, op = scenario.invoice.number, scenario.now.date().isoformat(), an_operator()
        credited(scenario, "3.00")
        refunds_due.refund_to_card(invoice=scenario.invoice, who="eva", moment=scenario.now)
        sentence = (
            f"A refund of 3.00 USD of {number} to the card is under way, since {day} by eva: until it has settled, "
            "0.00 can be taken back at most."
        )
        form = {"invoice": scenario.invoice.pk, "paid": "-3.00", "received_on": day, "reference": "SEPA 1"}
        page = signed_in(op).post("/admin/billing/payment/add/", form, follow=True)
        assert [str(message) for message in page.context["messages"]] == [sentence]
        with pytest.raises(RefusedError, match=sentence):
            run("record_payment", str(number), "-3.00", "--reference", "SEPA 1", "--on", day)
        body = {"amount": {"amount": "-3.00", "currency": "USD"}, "reference": "SEPA 1", "on": day}
        answer = door(op, None, "payments:record").post(f"/invoices/{number}/manual-payments", body, key="1")
        assert (answer.status, answer.body["detail"]) == (409, sentence)

        run("record_payment", str(number), "1.00", "--reference", "SEPA 2", "--on", day)
        run("record_payment", str(number), "-1.00", "--reference", "SEPA 2 was not theirs", "--on", day)
        scenario.collect()
        assert (refunded(scenario), scenario.paid) == ([300], "1.00")
        assert not Invoice.objects.overpaid().exists()
        scenario.books_agree()


def altered(scenario: Scenario) -> Object:
    """Ann pays 4.00 on a page, and somebody makes 5.00 of it at Stripe: it is to be looked at."""
    scenario.save_card()
    page = checkout_sessions.open_payment_page(
        invoice=scenario.invoice, gateway=scenario.gateway, back=BACK, who="ann", moment=scenario.now
    )
    scenario.stripe.dashboard.pay(page.external_id or "")
    (intent,) = scenario.stripe.objects("payment_intent")
    scenario.stripe.dashboard.alter(intent["id"], amount=500, amount_received=500)
    scenario.wait(minutes=20)
    scenario.collect()
    assert (scenario.states, scenario.paid) == (["needs_review"], "0.00")
    return dict(intent)


def test_what_was_never_booked_is_given_back_without_a_minus_and_its_invoice_is_charged_again() -> None:
    with a_scenario() as scenario:
        intent = altered(scenario)
        (charge,) = scenario.stripe.objects("charge")
        scenario.stripe.dashboard.alter(charge["id"], amount=500, amount_captured=500)
        scenario.stripe.dashboard.refund(intent["id"], 400)
        scenario.wait(minutes=20)
        scenario.collect()
        assert (scenario.states, scenario.paid) == (["needs_review"], "0.00")  # 1.00 of it is still there

        scenario.stripe.dashboard.refund(intent["id"], 100)
        scenario.wait(minutes=20)
        scenario.collect()
        scenario.collect()
        assert (scenario.states, scenario.paid, scenario.settlement) == (
            ["canceled", "succeeded"],
            "4.00",
            "paid",
        )
        assert PaymentAttempt.objects.earliest("created_at").message == (
            "It was over 500 USD there, and none of it was kept."
        )


def test_what_was_given_back_of_a_payment_that_was_never_booked_asks_for_no_credit_note() -> None:
    """5.00 came where 4.00 was asked for, and all of it went back: the invoice of 4.00 is owed as before."""
    with a_scenario() as scenario:
        intent = altered(scenario)
        BillingAccount.objects.update(automatic=False)
        (charge,) = scenario.stripe.objects("charge")
        scenario.stripe.dashboard.alter(charge["id"], amount=500, amount_captured=500)
        scenario.stripe.dashboard.refund(intent["id"], 500)
        scenario.wait(minutes=20)
        scenario.collect()
        assert (scenario.states, PaymentRefund.objects.count()) == (["canceled"], 1)

        (late,) = overdue_invoices.list_overdue(moment=scenario.now)
        assert (late.number, late.left, late.pause_reason) == ("INV-2026-0001", 400, "")
        assert [
            item for item in review_items.list_review_items(moment=scenario.now) if item.what == "Refund"
        ] == []
        scenario.wait(days=4)
        counts = reconciliation_run.run(
            gateway=scenario.gateway, moment=scenario.now, by="op", since=None
        ).counts
        assert "refund-without-note" not in counts


def test_a_refund_that_is_read_before_its_payment_is_booked_is_booked_with_it() -> None:
    with a_scenario() as scenario:
        scenario.save_card()
        scenario.stripe.faults.drop_answer("POST /v1/payment_intents")
        scenario.collect()
        (intent,) = scenario.stripe.objects("payment_intent")
        PaymentAttempt.objects.update(external_id=intent["id"], state="processing")
        name = scenario.stripe.dashboard.refund(intent["id"], 150)
        refunds.apply_refund(scenario.gateway.find_refund(name), moment=scenario.now)
        assert (scenario.states, scenario.paid) == (["processing"], "0.00")
        scenario.collect()
        assert (scenario.states, scenario.paid) == (["succeeded"], "2.50")
        scenario.books_agree()


def test_a_refund_that_nobody_could_send_for_two_days_is_sent_then(scenario: Scenario) -> None:
    scenario.save_card()
    scenario.collect()
    (row,) = note_of(scenario, "1.00", "USD")
    scenario.wait(days=2)
    scenario.collect()
    scenario.wait(minutes=20)
    scenario.collect()
    row.refresh_from_db()
    assert (row.state, refunded(scenario), scenario.paid) == ("succeeded", [100], "3.00")
    scenario.books_agree()


def test_a_refund_that_was_sent_before_a_backup_was_restored_is_not_sent_again(scenario: Scenario) -> None:
    scenario.save_card()
    scenario.collect()
    (row,) = note_of(scenario, "1.00", "USD")
    refunds.follow_refund(refund=row, gateway=scenario.gateway, moment=scenario.now)
    PaymentRefund.objects.update(state="ready", sent_at=None, external_id=None)
    scenario.wait(days=2)
    scenario.collect()
    row.refresh_from_db()
    assert (row.state, refunded(scenario)) == ("succeeded", [100])


def test_op_is_told_of_a_refund_that_came_back(scenario: Scenario) -> None:
    scenario.save_card("4000000000005126")
    scenario.collect()
    (row,) = note_of(scenario, "1.00", "USD")
    scenario.collect()
    assert [
        item for item in review_items.list_review_items(moment=scenario.now) if item.what == "Refund"
    ] == []
    scenario.wait(minutes=20)
    scenario.collect()
    row.refresh_from_db()
    assert (row.state, scenario.paid) == ("failed", "4.00")
    (look,) = [item for item in review_items.list_review_items(moment=scenario.now) if item.what == "Refund"]
    assert look.sentence == (
        "The refund of 1.00 USD for CN-2026-0001 failed: expired_or_canceled_card. Refund it again, or transfer the "
        "money and record the transfer."
    )
    scenario.stripe.dashboard.behave(
        row.attempt.method.external_id if row.attempt.method else "", "4242424242424242"
    )
    refunds.prepare_refunds(credit_note=row.credit_note or scenario.invoice, who="op", moment=scenario.now)
    scenario.collect()
    assert [
        item for item in review_items.list_review_items(moment=scenario.now) if item.what == "Refund"
    ] == []


def test_what_was_read_before_a_refund_succeeded_does_not_take_that_back(scenario: Scenario) -> None:
    scenario.save_card("4000000000007726")
    scenario.collect()
    (row,) = note_of(scenario, "1.00", "USD")
    scenario.collect()
    row.refresh_from_db()
    read_early = scenario.gateway.find_refund(row.external_id or "")
    scenario.wait(minutes=20)
    scenario.collect()
    refunds.apply_refund(read_early, moment=scenario.now)
    row.refresh_from_db()
    assert (row.state, scenario.paid) == ("succeeded", "3.00")
