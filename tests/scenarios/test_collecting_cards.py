"""Op's invoices are charged to Ann's card: once, whatever is lost on the way."""

from __future__ import annotations

import pytest

from billing.invoicing import offboarding
from billing.models import (
    BillingAccount,
    GatewayAccount,
    MethodState,
    PaymentAttempt,
    PaymentRefund,
    SavedMethod,
    WriteOff,
)
from billing.payments import charge_attempts, checkout_sessions, gateway_access, refunds, saved_methods
from billing.payments.charge_attempts import NotChargeableError
from billing.payments.gateway_access import CollectionError
from billing.payments.gateways.base import GatewayError
from billing.receivables import settlement
from billing.rules.money import Money
from tests.builders import a_tenant
from tests.collecting import Scenario, a_scenario, credited

pytestmark = pytest.mark.django_db(transaction=True)

DECLINED, NO_FUNDS, REFUSING_CARD = (
    "4000000000000341",
    "4000000000009995",
    "4000000000009987",
)


def test_an_invoice_that_is_due_is_charged_to_the_saved_card_and_paid(scenario: Scenario) -> None:
    scenario.save_card()
    scenario.collect()
    assert (scenario.charged, scenario.states, scenario.paid, scenario.settlement) == (
        [400],
        ["succeeded"],
        "4.00",
        "paid",
    )
    (intent,) = scenario.stripe.objects("payment_intent")
    assert intent["description"] == "Invoice INV-2026-0001"
    assert intent["metadata"]["ct_number"] == "INV-2026-0001"
    scenario.books_agree()


def test_without_a_card_nothing_is_charged_and_the_invoice_waits(scenario: Scenario) -> None:
    done = scenario.collect()
    assert (done.charged, scenario.states, scenario.settlement) == (0, [], "past_due")
    assert str(scenario.charge()) == "No means of payment is saved that can be charged."


def test_collecting_case_10_a_round_run_twice_charges_once(scenario: Scenario) -> None:
    scenario.save_card()
    for _ in range(3):
        scenario.collect()
    assert (scenario.charged, scenario.states) == ([400], ["succeeded"])
    scenario.books_agree()


@pytest.mark.parametrize("fault", ["drop_answer", "cut_before", "bad_gateway", "truncated"])
def test_case_075_and_collecting_cases_1_3_and_8_an_answer_that_is_lost_leaves_it_open_and_the_same_call_charges_once(
    scenario: Scenario, fault: str
) -> None:
    scenario.save_card()
    getattr(scenario.stripe.faults, fault)("POST /v1/payment_intents")
    done = scenario.collect()
    assert len(done.troubles) == 1
    assert scenario.states == ["unknown"]
    assert scenario.settlement == "processing"

    scenario.collect()

    assert (scenario.charged, scenario.states, scenario.paid) == ([400], ["succeeded"], "4.00")
    scenario.books_agree()


@pytest.mark.parametrize("effect", [True, False])
def test_collecting_case_5_a_failure_of_stripe_is_looked_up_and_never_sent_again_with_its_key(
    scenario: Scenario, effect: bool
) -> None:
    scenario.save_card()
    scenario.stripe.faults.server_error("POST /v1/payment_intents", effect=effect)
    scenario.collect()
    assert scenario.states == ["unknown"]
    scenario.wait(hours=2)
    scenario.collect()
    assert scenario.states == (["succeeded"] if effect else ["unknown"])  # hours of looking come first
    scenario.wait(hours=2)
    scenario.collect()
    assert scenario.states == (["succeeded"] if effect else ["canceled", "succeeded"])
    assert scenario.charged == [400]
    scenario.books_agree()


def test_collecting_case_4_an_attempt_that_is_found_a_day_later_is_never_sent_again(
    scenario: Scenario,
) -> None:
    scenario.save_card()
    scenario.stripe.faults.drop_answer("POST /v1/payment_intents")
    scenario.collect()
    scenario.wait(hours=25)
    scenario.collect()
    assert (scenario.charged, scenario.states) == ([400], ["succeeded"])
    scenario.books_agree()


def test_collecting_case_4_one_that_cannot_be_found_any_more_is_looked_at_by_people(
    scenario: Scenario,
) -> None:
    scenario.save_card()
    scenario.stripe.faults.cut_before("POST /v1/payment_intents")
    scenario.collect()
    scenario.wait(hours=25)
    scenario.collect()
    scenario.collect()
    assert (scenario.charged, scenario.states) == ([], ["needs_review"])
    assert "see whether the money came" in PaymentAttempt.objects.get().message
    scenario.books_agree()


@pytest.mark.parametrize("fault", ["rate_limited", "lock_timeout"])
def test_collecting_case_6_a_busy_stripe_is_asked_again_with_the_same_key(
    scenario: Scenario, fault: str
) -> None:
    scenario.save_card()
    getattr(scenario.stripe.faults, fault)("POST /v1/payment_intents", times=3)
    busy = 429 if fault == "rate_limited" else 409
    for _ in range(3):
        scenario.collect()
        assert (scenario.charged, scenario.states) == (
            [],
            ["unknown"],
        )  # nothing that anybody has to do about
        scenario.wait(minutes=1)
    scenario.collect()
    assert (scenario.charged, scenario.states) == ([400], ["succeeded"])
    requests = [request for request in scenario.stripe.requests if str(request) == "POST /v1/payment_intents"]
    assert [request.status for request in requests] == [busy, busy, busy, 200]
    (attempt,) = PaymentAttempt.objects.all()
    assert {request.key for request in requests} == {
        f"ct:{GatewayAccount.objects.get().deployment}:pi:{attempt.pk}"
    }
    assert all(request.params == requests[0].params for request in requests)
    assert attempt.message == ""
    scenario.books_agree()


@pytest.mark.parametrize("fault", ["unauthorized", "forbidden"])
def test_collecting_case_7_a_refused_key_stops_all_and_nobody_is_dunned(
    scenario: Scenario, fault: str
) -> None:
    scenario.save_card()
    getattr(scenario.stripe.faults, fault)()
    scenario.collect()
    assert GatewayAccount.objects.get().lockout_reason == (
        "Stripe does not accept the key: set STRIPE_SECRET_KEY to one that may do this."
    )
    assert "failed" not in scenario.states
    request_count = len(scenario.stripe.requests)
    scenario.collect()
    assert len(scenario.stripe.requests) == request_count + (
        1 if fault == "unauthorized" else 11
    )  # which rights it has
    scenario.stripe.faults.lift()
    scenario.collect()
    assert (scenario.charged, scenario.states) == ([400], ["succeeded"])
    assert not gateway_access.is_locked_out()
    scenario.books_agree()


def test_collecting_case_11_a_decline_is_told_and_tried_again_by_the_calendar_each_time_anew(
    scenario: Scenario,
) -> None:
    scenario.save_card(DECLINED)
    scenario.collect()
    assert (scenario.states, scenario.settlement) == (["failed"], "past_due")
    assert PaymentAttempt.objects.get().message == "Your card was declined."
    scenario.wait(days=2)
    scenario.collect()
    assert scenario.states == ["failed"]
    for days, tries in ((1, 2), (5, 3), (7, 4), (30, 4)):
        scenario.wait(days=days)
        scenario.collect()
        assert scenario.states == ["failed"] * tries
    scenario.save_card()
    scenario.collect()
    assert (scenario.states, scenario.charged) == (["failed"] * 4 + ["succeeded"], [400])
    scenario.books_agree()


def test_collecting_case_12_empty_accounts_are_tried_again_and_lost_cards_are_not(scenario: Scenario) -> None:
    card = scenario.save_card()
    scenario.stripe.dashboard.behave(card.external_id, NO_FUNDS)
    scenario.collect()
    scenario.stripe.dashboard.behave(card.external_id, REFUSING_CARD)
    scenario.wait(days=3)
    scenario.collect()
    assert list(PaymentAttempt.objects.order_by("created_at").values_list("code", flat=True)) == [
        "insufficient_funds",
        "lost_card",
    ]
    scenario.wait(days=40)
    scenario.collect()
    assert scenario.states == ["failed", "failed"]
    scenario.books_agree()


def test_a_card_that_was_refused_meanwhile_is_not_preferred_and_the_other_one_stays(
    scenario: Scenario,
) -> None:
    first, second = scenario.save_card(), scenario.save_card("5555555555554444")
    saved_methods.set_state(first.external_id, MethodState.REFUSED)
    with pytest.raises(CollectionError, match="visa …4242 cannot be charged any more"):
        saved_methods.make_preferred(method=first)
    saved_methods.make_preferred(method=second)
    assert list(SavedMethod.objects.filter(preferred=True)) == [second]


def test_collecting_case_29_a_card_that_is_gone_and_a_customer_that_is_deleted_crash_nothing(
    scenario: Scenario,
) -> None:
    card = scenario.save_card()
    scenario.stripe.dashboard.detach(card.external_id)
    scenario.collect()
    assert scenario.states == []
    assert SavedMethod.objects.get().state == "gone"

    scenario.save_card()
    customer = BillingAccount.objects.get().customer
    scenario.stripe.dashboard.delete_customer(customer or "")
    scenario.wait(minutes=5)
    scenario.collect()
    assert scenario.charged == []
    scenario.save_card()
    scenario.collect()
    assert scenario.charged == [400]
    assert BillingAccount.objects.get().customer != customer
    scenario.books_agree()


def test_collecting_case_2_a_worker_that_died_before_it_kept_the_answer_is_followed_by_the_next(
    scenario: Scenario, monkeypatch: pytest.MonkeyPatch
) -> None:
    scenario.save_card()

    def dies(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("billing.payments.sync.apply_charge", dies)
        with pytest.raises(KeyboardInterrupt):
            scenario.charge()
    assert (scenario.charged, scenario.states) == ([400], ["unknown"])
    scenario.collect()
    assert (scenario.charged, scenario.states, scenario.paid) == ([400], ["succeeded"], "4.00")
    scenario.books_agree()


def test_case_082_and_collecting_case_26_what_a_credit_note_takes_back_is_given_back_and_no_more(
    scenario: Scenario,
) -> None:
    scenario.save_card()
    scenario.collect()
    first = credited(scenario, "1.00")
    second = credited(scenario, "2.00")
    for note in (first, second):
        for row in refunds.prepare_refunds(credit_note=note, who="op", moment=scenario.now):
            refunds.follow_refund(refund=row, gateway=scenario.gateway, moment=scenario.now)
    assert list(PaymentRefund.objects.order_by("created_at", "amount").values_list("amount", "state")) == [
        (100, "succeeded"),
        (200, "succeeded"),
    ]
    assert scenario.paid == "1.00"
    with pytest.raises(
        CollectionError, match="Nothing that was paid through the gateway is to be given back"
    ):
        refunds.prepare_refunds(credit_note=second, who="op", moment=scenario.now)
    scenario.books_agree()


def test_case_083_and_collecting_case_26_a_refund_that_comes_back_is_owed_again(scenario: Scenario) -> None:
    scenario.save_card()
    scenario.collect()
    (row,) = refunds.prepare_refunds(credit_note=credited(scenario, "1.00"), who="op", moment=scenario.now)
    refunds.follow_refund(refund=row, gateway=scenario.gateway, moment=scenario.now)
    assert scenario.paid == "3.00"
    row.refresh_from_db()
    scenario.stripe.dashboard.fail_refund(row.external_id or "")
    scenario.collect()
    row.refresh_from_db()
    assert (row.state, scenario.paid) == ("failed", "4.00")


def test_collecting_case_30_what_is_too_little_too_much_or_nothing_is_not_sent(
    scenario: Scenario,
) -> None:
    assert str(charge_attempts.chargeable_amount(0, "USD")) == "Nothing is due."
    assert str(charge_attempts.chargeable_amount(-400, "USD")) == "Nothing is due."
    assert isinstance(charge_attempts.chargeable_amount(49, "USD"), NotChargeableError)
    assert charge_attempts.chargeable_amount(50, "USD") == (50, 0)
    assert isinstance(charge_attempts.chargeable_amount(29, "GBP"), NotChargeableError)
    assert charge_attempts.chargeable_amount(99_999_999, "USD") == (99_999_999, 0)
    assert isinstance(charge_attempts.chargeable_amount(100_000_000, "USD"), NotChargeableError)


def test_case_053_yen_are_whole_and_dinars_end_in_nought() -> None:
    assert charge_attempts.chargeable_amount(1234, "JPY") == (1234, 0)
    assert charge_attempts.chargeable_amount(5124, "KWD") == (5120, 4)
    assert charge_attempts.chargeable_amount(1234, "ISK") == (123400, 0)
    assert charge_attempts.chargeable_amount(500, "UGX") == (50000, 0)


def test_case_053_what_is_left_of_a_dinar_is_told_apart_and_nobody_is_asked_for_it() -> None:
    """5.124 dinars: 5.120 are charged, in steps of 0.010, and 0.004 are not waited for."""
    with a_scenario(currency="KWD", price="2.562") as scenario:
        scenario.save_card()
        scenario.collect()
        stand = settlement.load_balance(invoice=scenario.invoice, on=scenario.now.date())
        assert (scenario.charged, stand.paid.text, stand.written_off.text, stand.due.text) == (
            [5120],
            "5.120",
            "0.004",
            "0.000",
        )
        assert (stand.settlement, WriteOff.objects.get().reason) == (
            "paid",
            "It is charged in steps of 0.010 KWD.",
        )
        assert scenario.collect().not_chargeable == 0
        settlement.record_payment(
            invoice=scenario.invoice,
            amount=Money.of("0.004", "KWD"),
            received_on=scenario.now.date(),
            reference="by transfer",
            recorded_by="op",
        )
        stand = settlement.load_balance(invoice=scenario.invoice, on=scenario.now.date())
        assert (stand.paid.text, stand.written_off.text, stand.settlement) == ("5.124", "0.000", "paid")
        assert scenario.stripe.violations == []


def test_a_customer_whose_making_was_not_answered_is_made_once(scenario: Scenario) -> None:
    scenario.stripe.faults.drop_answer("POST /v1/customers")
    with pytest.raises(GatewayError):
        scenario.save_card()
    scenario.save_card()
    assert len(scenario.stripe.objects("customer")) == 1


def test_what_waited_for_a_key_over_a_weekend_was_never_sent_and_is_charged_anew(scenario: Scenario) -> None:
    scenario.save_card()
    scenario.stripe.faults.unauthorized()
    with pytest.raises(GatewayError):
        scenario.charge()
    assert scenario.states == ["ready"]
    scenario.wait(days=3)
    scenario.stripe.faults.lift()
    scenario.collect()
    scenario.collect()
    assert (scenario.states, scenario.charged, scenario.paid) == (["canceled", "succeeded"], [400], "4.00")
    scenario.books_agree()


BACK = checkout_sessions.ReturnUrls(
    completed="https://bills.example/back/", canceled="https://bills.example/payment/"
)


def test_a_card_that_is_saved_on_a_page_after_the_tenant_left_is_removed_at_once(scenario: Scenario) -> None:
    speech = a_tenant("speech-lab")
    open_page = checkout_sessions.open_card_page(
        tenant=speech, gateway=scenario.gateway, back=BACK, who="ann", moment=scenario.now
    )
    offboarding.archive_tenant(tenant=speech, by="Op", reason="Contract ended", moment=scenario.now)
    offboarding.erase_tenant(tenant=speech, moment=scenario.now)
    scenario.stripe.dashboard.pay(open_page.external_id or "")
    scenario.wait(minutes=20)
    for _ in range(2):
        scenario.collect()
    open_page.refresh_from_db()
    assert (open_page.state, SavedMethod.objects.count()) == ("complete", 0)
    assert [payment_method["customer"] for payment_method in scenario.stripe.objects("payment_method")] == [
        None
    ]


def test_a_card_that_was_erased_stays_so_when_its_network_renews_it(scenario: Scenario) -> None:
    speech = a_tenant("speech-lab")
    card = scenario.save_card_of(speech)
    offboarding.archive_tenant(tenant=speech, by="Op", reason="Contract ended", moment=scenario.now)
    offboarding.erase_tenant(tenant=speech, moment=scenario.now)
    scenario.stripe.dashboard.renew_card(card.external_id, month=12, year=2041)
    scenario.collect()
    card.refresh_from_db()
    assert (card.state, card.last4, card.exp_year) == ("gone", "", None)
