"""The money: balance transactions with fees, what is available, and a payout each midnight."""

from __future__ import annotations

from portal.dev.stripe_sandbox import listing
from portal.dev.stripe_sandbox.clock import DAY
from portal.dev.stripe_sandbox.errors import Json
from portal.dev.stripe_sandbox.requests import Call
from portal.dev.stripe_sandbox.state import State

SETTLED_AFTER = 2 * DAY  # seconds until a payment can be paid out


def fee(amount: int) -> int:
    """2.9 % and 30 minor units, rounded half up."""
    return (amount * 29 + 500) // 1000 + 30


def book(
    state: State, *, amount: int, charged: int, kind: str, category: str, source: Json, settled_after: int = 0
) -> Json:
    """A balance transaction of `amount` with `charged` as its fee; both in minor units, signed."""
    fee_details = (
        [] if not charged else [{"amount": charged, "application": None, "currency": source["currency"]}]
    )
    for one in fee_details:
        one |= {
            "description": "Stripe processing fees" if kind == "charge" else "Dispute fee",
            "type": "stripe_fee",
        }
    transaction = state.new(
        "balance_transaction",
        "txn",
        amount=amount,
        available_on=state.now() + settled_after,
        balance_type="payments",
        currency=source["currency"],
        description=source.get("description"),
        fee=charged,
        fee_details=fee_details,
        net=amount - charged,
        reporting_category=category,
        source=source["id"],
        status="pending" if settled_after else "available",
        type=kind,
    )
    if settled_after:
        state.later(transaction["available_on"], "becomes_available", transaction["id"])
    return transaction


def becomes_available(state: State, identifier: str) -> None:
    state.get("balance_transaction", identifier)["status"] = "available"


def daily_payout(state: State, _: str = "") -> None:
    """Pay out what is available in each currency, and plan tomorrow's."""
    state.later((state.now() // DAY + 1) * DAY, "daily_payout")
    pay_out(state)


def pay_out(state: State) -> list[Json]:
    waiting: dict[str, list[Json]] = {}
    for one in state.all("balance_transaction"):
        if one["status"] == "available" and "payout" not in state.hidden(one["id"]):
            waiting.setdefault(one["currency"], []).append(one)
    payouts = []
    for currency, transactions in waiting.items():
        if (total := sum(one["net"] for one in transactions)) > 0:
            payouts.append(payout(state, currency, total, transactions))
    return payouts


def payout(state: State, currency: str, total: int, transactions: list[Json]) -> Json:
    new_payout = state.new(
        "payout",
        "po",
        amount=total,
        arrival_date=state.now() + DAY,
        automatic=True,
        currency=currency,
        description="STRIPE PAYOUT",
        destination="ba_1ClusterTabSandbox",
        metadata={},
        method="standard",
        reconciliation_status="completed",
        source_type="card",
        status="in_transit",
        type="bank_account",
    )
    own = book(state, amount=-total, charged=0, kind="payout", category="payout", source=new_payout)
    new_payout["balance_transaction"] = own["id"]
    for one in [*transactions, own]:
        state.hidden(one["id"])["payout"] = new_payout["id"]
    state.emit("payout.created", new_payout)
    state.later(new_payout["arrival_date"], "payout_arrives", new_payout["id"])
    return new_payout


def payout_arrives(state: State, identifier: str) -> None:
    new_payout = state.get("payout", identifier)
    with state.updating(new_payout, "payout.paid"):
        new_payout["status"] = "paid"
    state.emit("payout.reconciliation_completed", new_payout)


def retrieve(call: Call) -> Json:
    """What is there and not paid out, by currency."""
    sums: dict[str, dict[str, int]] = {"available": {}, "pending": {}}
    for one in call.state.all("balance_transaction"):
        if "payout" not in call.state.hidden(one["id"]):
            amounts = sums[one["status"]]
            amounts[one["currency"]] = amounts.get(one["currency"], 0) + one["net"]
    currencies = sorted({*sums["available"], *sums["pending"]}) or ["usd"]
    return {
        "object": "balance",
        "livemode": call.state.live,
        **{
            name: [
                {
                    "amount": amounts.get(one, 0),
                    "currency": one,
                    "source_types": {"card": amounts.get(one, 0)},
                }
                for one in currencies
            ]
            for name, amounts in sums.items()
        },
    }


retrieve_transaction = listing.named("balance_transaction")


def list_transactions(call: Call) -> Json:
    """With `payout`, what that payout is made of, and its own transaction."""
    state, transactions = call.state, call.state.all("balance_transaction")
    if payout_id := call.get("payout"):
        state.named("payout", payout_id, param="payout")
        transactions = [one for one in transactions if state.hidden(one["id"]).get("payout") == payout_id]
    equal = ["source", "type", "currency"]
    return listing.page(call, transactions, url="/v1/balance_transactions", equal=equal)


retrieve_payout = listing.named("payout", param="payout")


list_payouts = listing.listed("payout", "status", "destination")
