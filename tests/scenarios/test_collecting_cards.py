"""Op's invoices are charged to Ann's card: once, whatever is lost on the way."""

from __future__ import annotations

import pytest

from billing.invoicing import offboarding
from billing.models import (
    BillingAccount,
    Collector,
    MethodState,
    PaymentAttempt,
    PaymentRefund,
    SavedMethod,
    WriteOff,
)
from billing.payments import attempts, checkout_sessions, gateway_access, refunds, saved_methods
from billing.payments.attempts import Held
from billing.payments.gateway_access import CollectingError
from billing.payments.gateways.base import GatewayError
from billing.receivables import settlement
from billing.rules.money import Money
from tests.builders import a_tenant
from tests.collecting import Counter, a_counter, credited

pytestmark = pytest.mark.django_db(transaction=True)

DECLINED, NO_FUNDS, LOST_CARD = (
    "4000000000000341",
    "4000000000009995",
    "4000000000009987",
)


def test_an_invoice_that_is_due_is_charged_to_the_saved_card_and_paid(counter: Counter) -> None:
    counter.save_card()
    counter.collect()
    assert (counter.taken, counter.states, counter.paid, counter.standing) == (
        [400],
        ["succeeded"],
        "4.00",
        "paid",
    )
    (intent,) = counter.stripe.objects("payment_intent")
    assert intent["description"] == "Invoice INV-2026-0001"
    assert intent["metadata"]["ct_number"] == "INV-2026-0001"
    counter.books_agree()


def test_without_a_card_nothing_is_charged_and_the_invoice_waits(counter: Counter) -> None:
    done = counter.collect()
    assert (done.charged, counter.states, counter.standing) == (0, [], "past_due")
    assert counter.charge() == Held("No means of payment is saved that can be charged.")


def test_collecting_case_10_a_round_run_twice_charges_once(counter: Counter) -> None:
    counter.save_card()
    for _ in range(3):
        counter.collect()
    assert (counter.taken, counter.states) == ([400], ["succeeded"])
    counter.books_agree()


@pytest.mark.parametrize("fault", ["answer_lost", "cut_before", "bad_gateway", "truncated"])
def test_case_075_and_collecting_cases_1_3_and_8_an_answer_that_is_lost_leaves_it_open_and_the_same_call_charges_once(
    counter: Counter, fault: str
) -> None:
    counter.save_card()
    getattr(counter.stripe.faults, fault)("POST /v1/payment_intents")
    done = counter.collect()
    assert len(done.troubles) == 1
    assert counter.states == ["unknown"]
    assert counter.standing == "processing"

    counter.collect()

    assert (counter.taken, counter.states, counter.paid) == ([400], ["succeeded"], "4.00")
    counter.books_agree()


@pytest.mark.parametrize("effect", [True, False])
def test_collecting_case_5_a_failure_of_stripe_is_looked_up_and_never_sent_again_with_its_key(
    counter: Counter, effect: bool
) -> None:
    counter.save_card()
    counter.stripe.faults.server_error("POST /v1/payment_intents", effect=effect)
    counter.collect()
    assert counter.states == ["unknown"]
    counter.wait(hours=2)
    counter.collect()
    assert counter.states == (["succeeded"] if effect else ["unknown"])  # hours of looking come first
    counter.wait(hours=2)
    counter.collect()
    assert counter.states == (["succeeded"] if effect else ["canceled", "succeeded"])
    assert counter.taken == [400]
    counter.books_agree()


def test_collecting_case_4_an_attempt_that_is_found_a_day_later_is_never_sent_again(counter: Counter) -> None:
    counter.save_card()
    counter.stripe.faults.answer_lost("POST /v1/payment_intents")
    counter.collect()
    counter.wait(hours=25)
    counter.collect()
    assert (counter.taken, counter.states) == ([400], ["succeeded"])
    counter.books_agree()


def test_collecting_case_4_one_that_cannot_be_found_any_more_is_looked_at_by_people(counter: Counter) -> None:
    counter.save_card()
    counter.stripe.faults.cut_before("POST /v1/payment_intents")
    counter.collect()
    counter.wait(hours=25)
    counter.collect()
    counter.collect()
    assert (counter.taken, counter.states) == ([], ["needs_review"])
    assert "see whether the money came" in PaymentAttempt.objects.get().message
    counter.books_agree()


@pytest.mark.parametrize("fault", ["rate_limited", "lock_timeout"])
def test_collecting_case_6_a_busy_stripe_is_asked_again_with_the_same_key(
    counter: Counter, fault: str
) -> None:
    counter.save_card()
    getattr(counter.stripe.faults, fault)("POST /v1/payment_intents", times=3)
    busy = 429 if fault == "rate_limited" else 409
    for _ in range(3):
        counter.collect()
        assert (counter.taken, counter.states) == ([], ["unknown"])  # nothing that anybody has to do about
        counter.wait(minutes=1)
    counter.collect()
    assert (counter.taken, counter.states) == ([400], ["succeeded"])
    requests = [each for each in counter.stripe.requests if str(each) == "POST /v1/payment_intents"]
    assert [each.status for each in requests] == [busy, busy, busy, 200]
    (attempt,) = PaymentAttempt.objects.all()
    assert {each.key for each in requests} == {f"ct:{Collector.objects.get().deployment}:pi:{attempt.pk}"}
    assert all(each.params == requests[0].params for each in requests)
    assert attempt.message == ""
    counter.books_agree()


@pytest.mark.parametrize("fault", ["unauthorized", "forbidden"])
def test_collecting_case_7_a_refused_key_stops_all_and_nobody_is_dunned(counter: Counter, fault: str) -> None:
    counter.save_card()
    getattr(counter.stripe.faults, fault)()
    counter.collect()
    assert Collector.objects.get().locked_out_why == (
        "Stripe does not accept the key: set STRIPE_SECRET_KEY to one that may do this."
    )
    assert "failed" not in counter.states
    request_count = len(counter.stripe.requests)
    counter.collect()
    assert len(counter.stripe.requests) == request_count + (
        1 if fault == "unauthorized" else 11
    )  # which rights it has
    counter.stripe.faults.lift()
    counter.collect()
    assert (counter.taken, counter.states) == ([400], ["succeeded"])
    assert not gateway_access.is_locked_out()
    counter.books_agree()


def test_collecting_case_11_a_decline_is_told_and_tried_again_by_the_calendar_each_time_anew(
    counter: Counter,
) -> None:
    counter.save_card(DECLINED)
    counter.collect()
    assert (counter.states, counter.standing) == (["failed"], "past_due")
    assert PaymentAttempt.objects.get().message == "Your card was declined."
    counter.wait(days=2)
    counter.collect()
    assert counter.states == ["failed"]
    for days, tries in ((1, 2), (5, 3), (7, 4), (30, 4)):
        counter.wait(days=days)
        counter.collect()
        assert counter.states == ["failed"] * tries
    counter.save_card()
    counter.collect()
    assert (counter.states, counter.taken) == (["failed"] * 4 + ["succeeded"], [400])
    counter.books_agree()


def test_collecting_case_12_empty_accounts_are_tried_again_and_lost_cards_are_not(counter: Counter) -> None:
    card = counter.save_card()
    counter.stripe.hand.behave(card.external_id, NO_FUNDS)
    counter.collect()
    counter.stripe.hand.behave(card.external_id, LOST_CARD)
    counter.wait(days=3)
    counter.collect()
    assert list(PaymentAttempt.objects.order_by("made_at").values_list("code", flat=True)) == [
        "insufficient_funds",
        "lost_card",
    ]
    counter.wait(days=40)
    counter.collect()
    assert counter.states == ["failed", "failed"]
    counter.books_agree()


def test_a_card_that_was_refused_meanwhile_is_not_preferred_and_the_other_one_stays(counter: Counter) -> None:
    first, second = counter.save_card(), counter.save_card("5555555555554444")
    saved_methods.mark(first.external_id, MethodState.REFUSED)
    with pytest.raises(CollectingError, match="visa …4242 cannot be charged any more"):
        saved_methods.prefer(method=first)
    saved_methods.prefer(method=second)
    assert list(SavedMethod.objects.filter(preferred=True)) == [second]


def test_collecting_case_29_a_card_that_is_gone_and_a_customer_that_is_deleted_crash_nothing(
    counter: Counter,
) -> None:
    card = counter.save_card()
    counter.stripe.hand.detach(card.external_id)
    counter.collect()
    assert counter.states == []
    assert SavedMethod.objects.get().state == "gone"

    counter.save_card()
    customer = BillingAccount.objects.get().customer
    counter.stripe.hand.delete_customer(customer or "")
    counter.wait(minutes=5)
    counter.collect()
    assert counter.taken == []
    counter.save_card()
    counter.collect()
    assert counter.taken == [400]
    assert BillingAccount.objects.get().customer != customer
    counter.books_agree()


def test_collecting_case_2_a_worker_that_died_before_it_kept_the_answer_is_followed_by_the_next(
    counter: Counter, monkeypatch: pytest.MonkeyPatch
) -> None:
    counter.save_card()

    def dies(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("billing.payments.sync.apply_charge", dies)
        with pytest.raises(KeyboardInterrupt):
            counter.charge()
    assert (counter.taken, counter.states) == ([400], ["unknown"])
    counter.collect()
    assert (counter.taken, counter.states, counter.paid) == ([400], ["succeeded"], "4.00")
    counter.books_agree()


def test_case_082_and_collecting_case_26_what_a_credit_note_takes_back_is_given_back_and_no_more(
    counter: Counter,
) -> None:
    counter.save_card()
    counter.collect()
    first = credited(counter, "1.00")
    second = credited(counter, "2.00")
    for note in (first, second):
        for row in refunds.prepare(credit_note=note, who="op", moment=counter.now):
            refunds.follow(refund=row, gateway=counter.gateway, moment=counter.now)
    assert list(PaymentRefund.objects.order_by("made_at", "amount").values_list("amount", "state")) == [
        (100, "succeeded"),
        (200, "succeeded"),
    ]
    assert counter.paid == "1.00"
    with pytest.raises(
        CollectingError, match="Nothing that was paid through the gateway is to be given back"
    ):
        refunds.prepare(credit_note=second, who="op", moment=counter.now)
    counter.books_agree()


def test_case_083_and_collecting_case_26_a_refund_that_comes_back_is_owed_again(counter: Counter) -> None:
    counter.save_card()
    counter.collect()
    (row,) = refunds.prepare(credit_note=credited(counter, "1.00"), who="op", moment=counter.now)
    refunds.follow(refund=row, gateway=counter.gateway, moment=counter.now)
    assert counter.paid == "3.00"
    row.refresh_from_db()
    counter.stripe.hand.fail_refund(row.external_id or "")
    counter.collect()
    row.refresh_from_db()
    assert (row.state, counter.paid) == ("failed", "4.00")


def test_collecting_case_30_what_is_too_little_too_much_or_nothing_is_not_sent(counter: Counter) -> None:
    assert attempts.chargeable(0, "USD") == Held("Nothing is due.")
    assert attempts.chargeable(-400, "USD") == Held("Nothing is due.")
    assert isinstance(attempts.chargeable(49, "USD"), Held)
    assert attempts.chargeable(50, "USD") == (50, 0)
    assert isinstance(attempts.chargeable(29, "GBP"), Held)
    assert attempts.chargeable(99_999_999, "USD") == (99_999_999, 0)
    assert isinstance(attempts.chargeable(100_000_000, "USD"), Held)


def test_case_053_yen_are_whole_and_dinars_end_in_nought() -> None:
    assert attempts.chargeable(1234, "JPY") == (1234, 0)
    assert attempts.chargeable(5124, "KWD") == (5120, 4)
    assert attempts.chargeable(1234, "ISK") == (123400, 0)
    assert attempts.chargeable(500, "UGX") == (50000, 0)


def test_case_053_what_is_left_of_a_dinar_is_told_apart_and_nobody_is_asked_for_it() -> None:
    """5.124 dinars: 5.120 are charged, in steps of 0.010, and 0.004 are not waited for."""
    with a_counter(currency="KWD", price="2.562") as counter:
        counter.save_card()
        counter.collect()
        stand = settlement.balance(invoice=counter.invoice, on=counter.now.date())
        assert (counter.taken, stand.paid.text, stand.written_off.text, stand.due.text) == (
            [5120],
            "5.120",
            "0.004",
            "0.000",
        )
        assert (stand.settlement, WriteOff.objects.get().why) == (
            "paid",
            "It is charged in steps of 0.010 KWD.",
        )
        assert counter.collect().held == 0
        settlement.record_payment(
            invoice=counter.invoice,
            amount=Money.of("0.004", "KWD"),
            received_on=counter.now.date(),
            reference="by transfer",
            recorded_by="op",
        )
        stand = settlement.balance(invoice=counter.invoice, on=counter.now.date())
        assert (stand.paid.text, stand.written_off.text, stand.settlement) == ("5.124", "0.000", "paid")
        assert counter.stripe.violations == []


def test_a_customer_whose_making_was_not_answered_is_made_once(counter: Counter) -> None:
    counter.stripe.faults.answer_lost("POST /v1/customers")
    with pytest.raises(GatewayError):
        counter.save_card()
    counter.save_card()
    assert len(counter.stripe.objects("customer")) == 1


def test_what_waited_for_a_key_over_a_weekend_was_never_sent_and_is_charged_anew(counter: Counter) -> None:
    counter.save_card()
    counter.stripe.faults.unauthorized()
    with pytest.raises(GatewayError):
        counter.charge()
    assert counter.states == ["ready"]
    counter.wait(days=3)
    counter.stripe.faults.lift()
    counter.collect()
    counter.collect()
    assert (counter.states, counter.taken, counter.paid) == (["canceled", "succeeded"], [400], "4.00")
    counter.books_agree()


BACK = checkout_sessions.Back(done="https://bills.example/back/", stopped="https://bills.example/payment/")


def test_a_card_that_is_saved_on_a_page_after_the_tenant_left_is_removed_at_once(counter: Counter) -> None:
    speech = a_tenant("speech-lab")
    open_page = checkout_sessions.card_page(
        tenant=speech, gateway=counter.gateway, back=BACK, who="ann", moment=counter.now
    )
    offboarding.archive(tenant=speech, by="Op", why="Contract ended", moment=counter.now)
    offboarding.erase(tenant=speech, moment=counter.now)
    counter.stripe.hand.pay(open_page.external_id or "")
    counter.wait(minutes=20)
    for _ in range(2):
        counter.collect()
    open_page.refresh_from_db()
    assert (open_page.state, SavedMethod.objects.count()) == ("complete", 0)
    assert [each["customer"] for each in counter.stripe.objects("payment_method")] == [None]


def test_a_card_that_was_erased_stays_so_when_its_network_renews_it(counter: Counter) -> None:
    speech = a_tenant("speech-lab")
    card = counter.save_card_of(speech)
    offboarding.archive(tenant=speech, by="Op", why="Contract ended", moment=counter.now)
    offboarding.erase(tenant=speech, moment=counter.now)
    counter.stripe.hand.renew_card(card.external_id, month=12, year=2041)
    counter.collect()
    card.refresh_from_db()
    assert (card.state, card.last4, card.exp_year) == ("gone", "", None)
