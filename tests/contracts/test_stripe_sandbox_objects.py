"""The stand-in for Stripe keeps objects as the installed package describes them, in lists as Stripe pages them."""

from __future__ import annotations

from typing import Any

import pytest
import stripe

from portal.dev.stripe_sandbox import Sandbox
from portal.dev.stripe_sandbox.shapes import CLASSES
from tests.contracts.stripe_client import NOON, a_sandbox, ann, charge, client, key
from tests.contracts.stripe_shapes import differences


def busy_month(sandbox: Sandbox) -> None:
    """A little of everything: paid, declined, asked, debited, refunded, disputed, saved, expired, paid out."""
    api = client(sandbox)
    customer = ann(api)
    paid = charge(api, customer, sandbox.dashboard.save_card(customer))
    for number in ("4000 0000 0000 0341", "4000 0027 6000 3184"):
        with pytest.raises(stripe.CardError):
            charge(api, customer, sandbox.dashboard.save_card(customer, number))
    charge(api, customer, sandbox.dashboard.save_account(customer))
    charge(api, customer, sandbox.dashboard.save_account(customer, "DE62 3704 0044 0532 0130 01"))
    charge(api, customer, sandbox.dashboard.save_account(customer, "DE78 3704 0044 0532 0130 04"))
    sandbox.clock.advance(seconds=10)
    api.v1.refunds.create({"payment_intent": paid.id, "amount": 1_000}, key())
    sandbox.dashboard.fail_refund(sandbox.dashboard.refund(paid.id, 500))
    first, second = (charge(api, customer, sandbox.dashboard.save_card(customer)) for _ in range(2))
    sandbox.dashboard.lose_dispute(sandbox.dashboard.dispute(first.id))
    sandbox.dashboard.win_dispute(sandbox.dashboard.dispute(second.id))
    for mode in ("payment", "setup"):
        checkout_session(api, customer, mode)
    done = checkout_session(api, customer, "payment")
    sandbox.dashboard.pay(done.id, "4000 0027 6000 3184")
    sandbox.dashboard.pay(checkout_session(api, customer, "setup").id)
    intent = api.v1.setup_intents.create(
        {"customer": customer, "payment_method": "pm_card_authenticationRequired", "confirm": True}, key()
    )
    sandbox.dashboard.authenticate(intent.id, passes=False)
    api.v1.webhook_endpoints.create({"url": "https://portal.example/hook", "enabled_events": ["*"]}, key())
    sandbox.clock.advance(days=4)


def checkout_session(api: stripe.StripeClient, customer: str, mode: str) -> stripe.checkout.Session:
    params: Any = {"mode": mode, "customer": customer, "success_url": "https://portal.example/done"}
    if mode == "payment":
        params["line_items"] = [
            {
                "quantity": 1,
                "price_data": {"currency": "eur", "unit_amount": 1_000, "product_data": {"name": "Nov"}},
            }
        ]
    else:
        params["currency"] = "eur"
    return api.v1.checkout.sessions.create(params, key())


def test_every_object_is_what_the_package_says() -> None:
    with a_sandbox() as sandbox:
        busy_month(sandbox)
        there_are = {kind for kind in CLASSES if sandbox.objects(kind)}
        assert there_are == set(CLASSES) - {"account", "balance"}
        api = client(sandbox)
        alone: list[Any] = [api.v1.accounts.retrieve_current(), api.v1.balance.retrieve()]
        objects = [one.to_dict() for one in alone]
        objects += [one for kind in there_are for one in sandbox.objects(kind)]
        assert sorted({line for one in objects for line in differences(one)}) == []


def test_a_customer_is_changed_listed_and_deleted() -> None:
    with a_sandbox() as sandbox:
        api = client(sandbox)
        customer = api.v1.customers.create(
            {"email": "ann@example.org", "metadata": {"ct_tenant": "7", "ct_deployment": "d1"}}, key()
        )
        api.v1.customers.update(
            customer.id, {"name": "Ann", "metadata": {"ct_tenant": "8", "ct_deployment": ""}}, key()
        )
        metadata: Any = api.v1.customers.retrieve(customer.id).metadata
        assert metadata.to_dict() == {"ct_tenant": "8"}
        assert [one.id for one in api.v1.customers.list({"email": "ann@example.org"}).data] == [customer.id]
        assert api.v1.customers.list({"email": "ben@example.org"}).data == []
        changed: Any = api.v1.events.list({"type": "customer.updated"}).data[0].data
        assert changed.previous_attributes.to_dict() == {
            "name": None,
            "metadata": {"ct_tenant": "7", "ct_deployment": "d1"},
        }
        assert api.v1.customers.delete(customer.id, None, key()).deleted is True
        assert api.v1.customers.list().data == []
        with pytest.raises(stripe.InvalidRequestError) as refused:
            api.v1.customers.update(customer.id, {"name": "Eve"}, key())
        assert refused.value.code == "resource_missing"


def test_a_payment_method_is_attached_listed_and_detached() -> None:
    with a_sandbox() as sandbox:
        api = client(sandbox)
        customer = ann(api)
        saved = api.v1.payment_methods.attach("pm_card_mastercard", {"customer": customer}, key())
        account = sandbox.dashboard.save_account(customer)
        assert [one.id for one in api.v1.customers.payment_methods.list(customer).data] == [account, saved.id]
        cards = api.v1.payment_methods.list({"customer": customer, "type": "card"}).data
        assert [(one.card.brand, one.card.last4) for one in cards if one.card] == [("mastercard", "4444")]
        api.v1.payment_methods.detach(saved.id, None, key())
        assert api.v1.payment_methods.retrieve(saved.id).customer is None
        assert len(api.v1.payment_methods.list({"customer": customer}).data) == 1
        assert api.v1.events.list().data[0].type == "payment_method.detached"


def test_a_card_that_is_declined_cannot_be_saved() -> None:
    with a_sandbox() as sandbox:
        api = client(sandbox)
        customer = ann(api)
        with pytest.raises(stripe.CardError, match="declined"):
            api.v1.payment_methods.attach("pm_card_chargeDeclined", {"customer": customer}, key())
        assert api.v1.payment_methods.list({"customer": customer}).data == []
        assert api.v1.payment_methods.attach("pm_card_chargeCustomerFail", {"customer": customer}, key()).id


def test_the_network_replaces_a_card() -> None:
    with a_sandbox() as sandbox:
        api = client(sandbox)
        method = sandbox.dashboard.save_card(ann(api))
        sandbox.dashboard.renew_card(method, month=1, year=2040, last4="9999")
        card = api.v1.payment_methods.retrieve(method).card
        assert card is not None
        assert (card.exp_month, card.exp_year, card.last4) == (1, 2040, "9999")
        assert api.v1.events.list().data[0].type == "payment_method.automatically_updated"


def test_a_card_is_saved_by_a_setup_intent_with_its_bank_asked() -> None:
    with a_sandbox() as sandbox:
        api = client(sandbox)
        customer = ann(api)
        params: Any = {
            "customer": customer,
            "payment_method": "pm_card_authenticationRequiredOnSetup",
            "confirm": True,
            "return_url": "https://portal.example/back",
        }
        intent = api.v1.setup_intents.create(params, key())
        assert intent.status == "requires_action"
        sandbox.dashboard.authenticate(intent.id)
        saved = api.v1.setup_intents.retrieve(intent.id, {"expand": ["payment_method"]})
        assert saved.status == "succeeded"
        method: Any = saved.payment_method
        assert method.customer == customer
        assert charge(api, customer, method.id).status == "succeeded"
        other = api.v1.setup_intents.create(params, key())
        sandbox.dashboard.authenticate(other.id, passes=False)
        failed: Any = api.v1.setup_intents.retrieve(other.id)
        assert failed.last_setup_error.code == "setup_intent_authentication_failure"
        assert [one.id for one in api.v1.setup_intents.list({"customer": customer}).data] == [
            other.id,
            intent.id,
        ]


def test_lists_are_newest_first_in_pages() -> None:
    with a_sandbox() as sandbox:
        api = client(sandbox)
        payment_ids = [
            api.v1.payment_intents.create({"amount": 100 + n, "currency": "eur"}, key()).id for n in range(5)
        ]
        first = api.v1.payment_intents.list({"limit": 2})
        assert ([one.id for one in first.data], first.has_more) == ([payment_ids[4], payment_ids[3]], True)
        then = api.v1.payment_intents.list({"limit": 3, "starting_after": payment_ids[3]})
        assert ([one.id for one in then.data], then.has_more) == (
            [payment_ids[2], payment_ids[1], payment_ids[0]],
            False,
        )
        back = api.v1.payment_intents.list({"limit": 2, "ending_before": payment_ids[0]})
        assert ([one.id for one in back.data], back.has_more) == ([payment_ids[2], payment_ids[1]], True)
        assert [one.amount for one in first.auto_paging_iter()] == [104, 103, 102, 101, 100]
        for wrong in ({"limit": 101}, {"starting_after": "pi_nobody"}):
            with pytest.raises(stripe.InvalidRequestError):
                api.v1.payment_intents.list(wrong)  # type: ignore[arg-type]  # wrong on purpose


def test_what_was_made_since_a_moment_for_a_customer_is_found() -> None:
    with a_sandbox() as sandbox:
        api = client(sandbox)
        customer = ann(api)
        method = sandbox.dashboard.save_card(customer)
        charge(api, customer, method)
        sandbox.clock.advance(hours=25)
        since = sandbox.clock.now()
        second = charge(api, customer, method)
        api.v1.payment_intents.create({"amount": 100, "currency": "eur"}, key())
        payments = api.v1.payment_intents.list({"customer": customer, "created": {"gte": since}})
        assert [one.id for one in payments.data] == [second.id]
        assert since == int(NOON.timestamp()) + 25 * 3_600


def test_ids_are_expanded_into_objects_as_deep_as_asked() -> None:
    with a_sandbox() as sandbox:
        api = client(sandbox)
        customer = ann(api)
        charge(api, customer, sandbox.dashboard.save_card(customer))
        paths = ["data.latest_charge.balance_transaction", "data.customer", "data.payment_method"]
        one: Any = api.v1.payment_intents.list({"expand": paths}).data[0]
        assert one.latest_charge.balance_transaction.fee == 1_973
        assert (one.customer.name, one.payment_method.card.last4) == ("Ann", "4242")
        assert one.latest_charge.customer == customer
        for wrong in ("amount", "nothing", "customer.email"):
            with pytest.raises(stripe.InvalidRequestError, match="cannot be expanded") as refused:
                api.v1.payment_intents.retrieve(one.id, {"expand": [wrong]})
            assert refused.value.param == "expand[0]"
