"""The stand-in for Stripe keeps books: refunds, disputes, fees, payouts."""

from __future__ import annotations

from typing import Any

import pytest
import stripe

from tests.contracts.stripe_client import a_sandbox, ann, charge, client, key


def types(api: stripe.StripeClient) -> list[str]:
    """All events, oldest first."""
    return [str(event.type) for event in api.v1.events.list({"limit": 100}).auto_paging_iter()][::-1]


def test_a_payment_is_refunded_in_parts_and_never_beyond() -> None:
    with a_sandbox() as sandbox:
        api = client(sandbox)
        customer = ann(api)
        paid = charge(api, customer, sandbox.dashboard.save_card(customer), 10_000)
        first = api.v1.refunds.create(
            {"payment_intent": paid.id, "amount": 2_500, "metadata": {"ct_credit_note": "CN-1"}}, key()
        )
        assert (first.status, first.amount) == ("succeeded", 2_500)
        with pytest.raises(stripe.InvalidRequestError, match="greater than unrefunded amount") as refused:
            api.v1.refunds.create({"payment_intent": paid.id, "amount": 7_501}, key())
        assert refused.value.param == "amount"
        rest = api.v1.refunds.create({"payment_intent": paid.id}, key())
        assert rest.amount == 7_500
        with pytest.raises(stripe.InvalidRequestError) as over:
            api.v1.refunds.create({"payment_intent": paid.id}, key())
        assert over.value.code == "charge_already_refunded"
        stripe_charge: Any = api.v1.payment_intents.retrieve(
            paid.id, {"expand": ["latest_charge.refunds"]}
        ).latest_charge
        assert (stripe_charge.amount_refunded, stripe_charge.refunded) == (10_000, True)
        assert [one.id for one in stripe_charge.refunds.data] == [rest.id, first.id]
        assert [one.id for one in api.v1.refunds.list({"payment_intent": paid.id}).data] == [
            rest.id,
            first.id,
        ]
        assert types(api)[-4:] == ["refund.created", "charge.refunded"] * 2


def test_a_refund_is_pending_and_arrives() -> None:
    with a_sandbox() as sandbox:
        api = client(sandbox)
        customer = ann(api)
        paid = charge(api, customer, sandbox.dashboard.save_card(customer, "4000 0000 0000 7726"))
        refund = api.v1.refunds.create({"payment_intent": paid.id}, key())
        assert (refund.status, refund.pending_reason) == ("pending", "processing")
        sandbox.clock.advance(seconds=180)
        assert api.v1.refunds.retrieve(refund.id).status == "succeeded"
        assert types(api)[-1] == "refund.updated"


def test_a_refund_comes_back_days_later_and_the_money_is_ours_again() -> None:
    with a_sandbox() as sandbox:
        api = client(sandbox)
        customer = ann(api)
        paid = charge(api, customer, sandbox.dashboard.save_card(customer, "4000 0000 0000 5126"), 10_000)
        refund = api.v1.refunds.create({"payment_intent": paid.id, "amount": 4_000}, key())
        assert refund.status == "succeeded"
        sandbox.clock.advance(seconds=180)
        failed: Any = api.v1.refunds.retrieve(refund.id, {"expand": ["failure_balance_transaction"]})
        assert (failed.status, failed.failure_reason) == ("failed", "expired_or_canceled_card")
        assert (failed.failure_balance_transaction.amount, failed.failure_balance_transaction.type) == (
            4_000,
            "refund_failure",
        )
        assert types(api)[-1] == "refund.failed"
        assert api.v1.refunds.create({"payment_intent": paid.id}, key()).amount == 10_000


def test_a_dispute_takes_the_money_and_a_fee_until_it_is_won() -> None:
    with a_sandbox() as sandbox:
        api = client(sandbox)
        customer = ann(api)
        paid = charge(api, customer, sandbox.dashboard.save_card(customer), 10_000)
        dispute: Any = api.v1.disputes.retrieve(sandbox.dashboard.dispute(paid.id))
        transaction: Any = dispute.balance_transactions[0]
        assert (dispute.status, dispute.payment_intent) == ("needs_response", paid.id)
        assert (transaction.amount, transaction.fee, transaction.net) == (-10_000, 1_500, -11_500)
        with pytest.raises(stripe.InvalidRequestError) as refused:
            api.v1.refunds.create({"payment_intent": paid.id}, key())
        assert refused.value.code == "charge_disputed"
        sandbox.dashboard.win_dispute(dispute.id)
        won = api.v1.disputes.retrieve(dispute.id)
        assert (won.status, [one.net for one in won.balance_transactions]) == ("won", [-11_500, 10_000])
        assert types(api)[-4:] == [
            "charge.dispute.created",
            "charge.dispute.funds_withdrawn",
            "charge.dispute.closed",
            "charge.dispute.funds_reinstated",
        ]


def test_a_dispute_is_lost_by_accepting_it_or_by_poor_evidence() -> None:
    with a_sandbox() as sandbox:
        api = client(sandbox)
        customer = ann(api)
        for number in ("4000 0000 0000 0259", "4000 0000 0000 2685"):
            charge(api, customer, sandbox.dashboard.save_card(customer, number), 10_000)
        second, first = api.v1.disputes.list().data
        assert (first.reason, second.reason) == ("fraudulent", "product_not_received")
        assert api.v1.disputes.close(first.id, None, key()).status == "lost"
        evidence: Any = {"evidence": {"uncategorized_text": "losing_evidence"}}
        assert api.v1.disputes.update(second.id, evidence, key()).status == "lost"
        assert api.v1.events.list({"type": "charge.dispute.closed"}).data[0].data.object["status"] == "lost"


def test_each_midnight_pays_out_what_is_available_and_the_sum_can_be_traced() -> None:
    with a_sandbox() as sandbox:  # Monday, 2 November, noon
        api = client(sandbox)
        customer = ann(api)
        method = sandbox.dashboard.save_card(customer)
        first = charge(api, customer, method, 10_000)
        charge(api, customer, method, 5_000, "usd")
        assert [(one.currency, one.amount) for one in api.v1.balance.retrieve().pending] == [
            ("eur", 9_680),  # 100.00 less 2.90 and 0.30
            ("usd", 4_825),  # 50.00 less 1.45 and 0.30
        ]
        api.v1.refunds.create({"payment_intent": first.id, "amount": 1_000}, key())
        sandbox.clock.advance(days=2)  # available from Wednesday noon
        assert api.v1.payouts.list().data == []
        sandbox.clock.advance(hours=12)
        dollars, euros = api.v1.payouts.list().data
        assert (euros.amount, euros.status, dollars.amount) == (8_680, "in_transit", 4_825)
        inside = api.v1.balance_transactions.list({"payout": euros.id, "expand": ["data.source"]}).data
        assert [(one.type, one.net) for one in inside] == [
            ("payout", -8_680),
            ("refund", -1_000),
            ("charge", 9_680),
        ]
        stripe_charge: Any = inside[2].source
        assert stripe_charge.payment_intent == first.id
        assert sum(one.net for one in inside if one.type != "payout") == euros.amount
        assert [one.amount for one in api.v1.balance.retrieve().available] == [0]
        sandbox.clock.advance(days=1)
        assert api.v1.payouts.retrieve(euros.id).status == "paid"
        assert api.v1.events.list({"type": "payout.paid"}).data[0].data.object["amount"] == 4_825


def test_a_balance_below_zero_is_not_paid_out() -> None:
    with a_sandbox() as sandbox:
        api = client(sandbox)
        customer = ann(api)
        paid = charge(api, customer, sandbox.dashboard.save_card(customer), 10_000)
        sandbox.dashboard.dispute(paid.id)
        sandbox.clock.advance(days=10)
        assert api.v1.payouts.list().data == []
        assert [one.amount for one in api.v1.balance.retrieve().available] == [-1_820]  # 96.80 less 115.00


def test_a_refund_in_the_dashboard_has_nothing_of_ours_in_it() -> None:
    with a_sandbox() as sandbox:
        api = client(sandbox)
        customer = ann(api)
        paid = charge(api, customer, sandbox.dashboard.save_card(customer))
        refund: Any = api.v1.refunds.retrieve(sandbox.dashboard.refund(paid.id, 700))
        assert (refund.amount, refund.metadata.to_dict()) == (700, {})
        assert api.v1.events.list().data[0].request.idempotency_key is None  # type: ignore[union-attr]  # is there
