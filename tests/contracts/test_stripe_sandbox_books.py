"""Whatever happens at the stand-in for Stripe, its books close."""

from __future__ import annotations

from contextlib import suppress

from hypothesis import given, settings
from hypothesis import strategies as st

from portal.dev.stripe_sandbox import ApiError, Sandbox
from portal.dev.stripe_sandbox.balance import fee
from tests.contracts.stripe_client import NOON, ann, charge, client
from tests.tiers import examples

ACTS = ("refund", "refund some", "fail the refund", "dispute", "win", "lose", "pay out", "wait")


def act(sandbox: Sandbox, what: str, amount: int) -> None:
    """One act on the last object that it can be done to; what Stripe refuses is not done."""
    intent = sandbox.objects("payment_intent")[0]["id"]
    refunds, disputes = sandbox.objects("refund"), sandbox.objects("dispute")
    with suppress(ApiError):
        if what == "refund":
            sandbox.dashboard.refund(intent)
        elif what == "refund some":
            sandbox.dashboard.refund(intent, amount)
        elif what == "fail the refund" and refunds:
            sandbox.dashboard.fail_refund(refunds[-1]["id"])
        elif what == "dispute" and not disputes:
            sandbox.dashboard.dispute(intent)
        elif what == "win" and disputes:
            sandbox.dashboard.win_dispute(disputes[-1]["id"])
        elif what == "lose" and disputes:
            sandbox.dashboard.lose_dispute(disputes[-1]["id"])
        elif what == "pay out":
            sandbox.dashboard.pay_out()
        elif what == "wait":
            sandbox.clock.advance(hours=36)


@settings(max_examples=examples(12, 300))
@given(st.lists(st.tuples(st.sampled_from(ACTS), st.integers(1, 20_000)), max_size=12))
def test_what_came_is_there_was_paid_out_or_was_given_back(acts: list[tuple[str, int]]) -> None:
    with Sandbox(now=NOON) as sandbox:
        api = client(sandbox)
        customer = ann(api)
        charge(api, customer, sandbox.dashboard.save_card(customer), 10_000)
        for what, amount in acts:
            act(sandbox, what, amount)
        balance = api.v1.balance.retrieve()
        balance_total = sum(one.amount for one in balance.available) + sum(
            one.amount for one in balance.pending
        )
        paid_out = sum(one["amount"] for one in sandbox.objects("payout"))
        refunded = sum(one["amount"] for one in sandbox.objects("refund") if one["status"] != "failed")
        disputed = sum(one["amount"] for one in sandbox.objects("dispute") if one["status"] != "won")
        fees = fee(10_000) + 1_500 * len(sandbox.objects("dispute"))
        assert balance_total + paid_out == 10_000 - refunded - disputed - fees
        stripe_charge = sandbox.objects("charge")[0]
        assert stripe_charge["amount_refunded"] == refunded
        assert refunded + disputed <= 10_000
        assert sandbox.violations == []
