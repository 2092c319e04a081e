"""The stand-in for Stripe: customers are charged, with every public test card."""

from __future__ import annotations

import re
from typing import Any

import pytest
import stripe

from portal.dev.stripe_sandbox import Sandbox
from portal.dev.stripe_sandbox.cards import ACCOUNTS, CARDS
from tests.contracts.stripe_client import a_sandbox, ann, charge, client, key
from tests.documentation import DOCS, table


def test_an_invoice_is_charged_off_session_with_its_fee() -> None:
    with a_sandbox() as sandbox:
        api = client(sandbox)
        customer = ann(api)
        paid = charge(api, customer, sandbox.dashboard.save_card(customer))
        stripe_charge: Any = paid.latest_charge
        assert (paid.status, paid.amount_received, paid.currency) == ("succeeded", 67_000, "eur")
        assert stripe_charge.payment_method_details.card.last4 == "4242"
        # 2.9 % of 670.00 is 19.43, and 0.30
        assert (stripe_charge.balance_transaction.fee, stripe_charge.balance_transaction.net) == (
            1_973,
            65_027,
        )
        assert paid.metadata["ct_attempt"] == "a1"
        assert api.v1.payment_intents.retrieve(paid.id).latest_charge == stripe_charge.id


@pytest.mark.parametrize(
    ("number", "code", "decline_code", "advice"),
    [
        ("4000 0000 0000 0341", "card_declined", "generic_decline", "try_again_later"),
        ("4000 0000 0000 0002", "card_declined", "generic_decline", "try_again_later"),
        ("4000 0000 0000 9995", "card_declined", "insufficient_funds", "try_again_later"),
        ("4000 0000 0000 9987", "card_declined", "lost_card", "do_not_try_again"),
        ("4000 0000 0000 9979", "card_declined", "stolen_card", "do_not_try_again"),
        ("4000 0000 0000 0069", "expired_card", "expired_card", "confirm_card_data"),
        ("4000 0000 0000 0119", "processing_error", "processing_error", "try_again_later"),
        ("4000 0027 6000 3184", "authentication_required", "authentication_required", None),
        ("4000 0025 0000 3155", "authentication_required", "authentication_required", None),
    ],
)
def test_a_declined_card_says_why_and_whether_to_try_again(
    number: str, code: str, decline_code: str, advice: str | None
) -> None:
    with a_sandbox() as sandbox:
        api = client(sandbox)
        customer = ann(api)
        method = sandbox.dashboard.save_card(customer, number)
        with pytest.raises(stripe.CardError) as refused:
            charge(api, customer, method)
        error: Any = refused.value.error
        assert refused.value.http_status == 402
        assert (error.code, error.decline_code, error.to_dict().get("advice_code")) == (
            code,
            decline_code,
            advice,
        )
        assert error.payment_intent.status == "requires_payment_method"
        intent: Any = api.v1.payment_intents.retrieve(error.payment_intent.id, {"expand": ["latest_charge"]})
        assert intent.payment_method is None
        assert intent.last_payment_error.decline_code == decline_code
        assert intent.last_payment_error.payment_method.id == method
        assert (intent.latest_charge.status, intent.latest_charge.paid) == ("failed", False)


def test_a_card_that_was_set_up_with_its_bank_is_charged_off_session() -> None:
    with a_sandbox() as sandbox:
        api = client(sandbox)
        customer = ann(api)
        method = sandbox.dashboard.save_card(customer, "4000 0025 0000 3155", set_up=True)
        assert charge(api, customer, method).status == "succeeded"


def test_a_payment_on_session_waits_for_the_bank() -> None:
    with a_sandbox() as sandbox:
        api = client(sandbox)
        customer = ann(api)
        method = sandbox.dashboard.save_card(customer, "4000 0027 6000 3184")
        payment: Any = api.v1.payment_intents.create(
            {
                "amount": 1_000,
                "currency": "eur",
                "customer": customer,
                "payment_method": method,
                "confirm": True,
                "return_url": "https://portal.example/back",
            },
            key(),
        )
        assert payment.status == "requires_action"
        assert payment.next_action.redirect_to_url.return_url == "https://portal.example/back"
        sandbox.dashboard.authenticate(payment.id)
        assert api.v1.payment_intents.retrieve(payment.id).status == "succeeded"


def test_a_sepa_debit_is_processing_until_the_bank_pays() -> None:
    with a_sandbox() as sandbox:
        api = client(sandbox)
        customer = ann(api)
        pending = charge(api, customer, sandbox.dashboard.save_account(customer))
        assert pending.status == "processing"
        sandbox.clock.advance(seconds=5)
        assert api.v1.payment_intents.retrieve(pending.id).status == "succeeded"
        assert {event.type for event in api.v1.events.list({"limit": 100}).data} >= {
            "payment_intent.processing",
            "charge.pending",
            "payment_intent.succeeded",
        }


def test_a_sepa_debit_can_fail_days_later() -> None:
    with a_sandbox() as sandbox:
        api = client(sandbox)
        customer = ann(api)
        method = sandbox.dashboard.save_account(customer, "DE78 3704 0044 0532 0130 04")
        pending = charge(api, customer, method)
        sandbox.clock.advance(seconds=179)
        assert api.v1.payment_intents.retrieve(pending.id).status == "processing"
        sandbox.clock.advance(seconds=1)
        failed: Any = api.v1.payment_intents.retrieve(pending.id)
        assert failed.status == "requires_payment_method"
        assert failed.last_payment_error.payment_method.type == "sepa_debit"


def refusal(sandbox: Sandbox, **changed: Any) -> stripe.InvalidRequestError:
    api = client(sandbox)
    customer = ann(api)
    params = {
        "amount": 1_000,
        "currency": "eur",
        "customer": customer,
        "payment_method": sandbox.dashboard.save_card(customer),
        "confirm": True,
        "off_session": True,
    }
    with pytest.raises(stripe.InvalidRequestError) as refused:
        api.v1.payment_intents.create({**params, **changed}, key())  # type: ignore[typeddict-item]  # wrong on purpose
    return refused.value


@pytest.mark.parametrize(
    ("amount", "currency", "code"),
    [
        (0, "eur", "parameter_invalid_integer"),
        (49, "eur", "amount_too_small"),
        (29, "gbp", "amount_too_small"),
        (100_000_000, "usd", "amount_too_large"),
        (49, "jpy", "amount_too_small"),
        (5_001, "kwd", None),
        (50_050, "isk", None),
    ],
)
def test_what_stripe_cannot_charge_is_refused(amount: int, currency: str, code: str | None) -> None:
    with a_sandbox() as sandbox:
        refused = refusal(sandbox, amount=amount, currency=currency)
        assert (refused.http_status, refused.code, refused.param) == (400, code, "amount")


@pytest.mark.parametrize(
    ("changed", "param"),
    [
        ({"statement_descriptor_suffix": "2026-0001"}, "statement_descriptor_suffix"),
        ({"statement_descriptor_suffix": "INVOICE 2026-0001 OF ANN"}, "statement_descriptor_suffix"),
        ({"receipt_email": "ann"}, "receipt_email"),
        ({"currency": "EUR"}, "currency"),
        ({"currency": "xyz"}, "currency"),
        ({"confirm": False}, "off_session"),
        ({"off_session": False}, "return_url"),
        ({"payment_method": "pm_sepa_debit", "currency": "usd"}, "payment_method"),
        ({"customer": "cus_nobody"}, "customer"),
        ({"payment_method": "pm_nobody"}, "payment_method"),
    ],
)
def test_a_payment_that_cannot_be_is_refused_and_leaves_nothing(changed: dict[str, Any], param: str) -> None:
    with a_sandbox() as sandbox:
        assert refusal(sandbox, **changed).param == param
        assert sandbox.objects("payment_intent") == []


def test_yen_have_no_decimals_and_dinars_three() -> None:
    with a_sandbox() as sandbox:
        api = client(sandbox)
        customer = ann(api)
        method = sandbox.dashboard.save_card(customer)
        assert charge(api, customer, method, 50, "jpy").status == "succeeded"
        assert charge(api, customer, method, 1_230, "kwd").status == "succeeded"


def test_the_card_of_another_customer_is_refused() -> None:
    with a_sandbox() as sandbox:
        ben = ann(client(sandbox))
        refused = refusal(sandbox, payment_method=sandbox.dashboard.save_card(ben))
        assert refused.param == "payment_method"


def test_a_card_that_was_detached_is_never_charged_again() -> None:
    with a_sandbox() as sandbox:
        api = client(sandbox)
        customer = ann(api)
        method = sandbox.dashboard.save_card(customer)
        api.v1.payment_methods.detach(method, None, key())
        with pytest.raises(stripe.InvalidRequestError, match="detached"):
            charge(api, customer, method)


def test_a_card_is_good_until_the_end_of_its_month() -> None:
    with a_sandbox() as sandbox:  # 2 November 2026
        api = client(sandbox)
        customer = ann(api)
        method = sandbox.dashboard.save_card(customer, month=11, year=2026)
        assert charge(api, customer, method).status == "succeeded"
        sandbox.clock.advance(days=29)
        with pytest.raises(stripe.CardError) as refused:
            charge(api, customer, method)
        assert refused.value.code == "expired_card"


def test_a_customer_that_was_deleted_at_stripe_has_no_cards_and_no_payments() -> None:
    with a_sandbox() as sandbox:
        api = client(sandbox)
        customer = ann(api)
        method = sandbox.dashboard.save_card(customer)
        sandbox.dashboard.delete_customer(customer)
        assert api.v1.customers.retrieve(customer).deleted is True
        with pytest.raises(stripe.InvalidRequestError) as refused:
            charge(api, customer, method)
        assert (refused.value.code, refused.value.param) == ("resource_missing", "customer")


def test_an_intent_is_confirmed_later_or_canceled() -> None:
    with a_sandbox() as sandbox:
        api = client(sandbox)
        customer = ann(api)
        method = sandbox.dashboard.save_card(customer)
        intent = api.v1.payment_intents.create(
            {"amount": 1_000, "currency": "eur", "customer": customer}, key()
        )
        assert intent.status == "requires_payment_method"
        paid = api.v1.payment_intents.confirm(
            intent.id, {"payment_method": method, "off_session": True}, key()
        )
        assert paid.status == "succeeded"
        with pytest.raises(stripe.InvalidRequestError) as refused:
            api.v1.payment_intents.cancel(intent.id, None, key())
        assert refused.value.code == "payment_intent_unexpected_state"
        other = api.v1.payment_intents.create({"amount": 1_000, "currency": "eur"}, key())
        ended = api.v1.payment_intents.cancel(other.id, {"cancellation_reason": "abandoned"}, key())
        assert (ended.status, ended.cancellation_reason) == ("canceled", "abandoned")


def test_the_documentation_lists_every_test_card_and_account() -> None:
    listed = {
        (row["number"].replace(" ", ""), row["name"].strip("`"))
        for row in table("reference/sandbox.md", "Test cards")
    }
    assert listed == {(card.number, card.name) for card in CARDS}
    text = (DOCS / "reference/sandbox.md").read_text()
    accounts = re.findall(r"^\| ([A-Z]{2}[\d ]+) \| `(\w+)` \|", text, re.MULTILINE)
    assert {(iban.replace(" ", ""), name) for iban, name in accounts} == {
        (one.iban, one.name) for one in ACCOUNTS
    }
