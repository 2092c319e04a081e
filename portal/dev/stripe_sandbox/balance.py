"""The money: balance transactions with fees, what is available, and a payout each midnight."""

from __future__ import annotations

from portal.dev.stripe_sandbox import listing
from portal.dev.stripe_sandbox.calls import Call
from portal.dev.stripe_sandbox.clock import DAY
from portal.dev.stripe_sandbox.errors import Json
from portal.dev.stripe_sandbox.state import World

SETTLED_AFTER = 2 * DAY  # seconds until a payment can be paid out


def fee(amount: int) -> int:
    """2.9 % and 30 minor units, rounded half up."""
    return (amount * 29 + 500) // 1000 + 30


def book(
    world: World, *, amount: int, charged: int, kind: str, category: str, source: Json, settled_after: int = 0
) -> Json:
    """A balance transaction of `amount` with `charged` as its fee; both in minor units, signed."""
    told = [] if not charged else [{"amount": charged, "application": None, "currency": source["currency"]}]
    for one in told:
        one |= {
            "description": "Stripe processing fees" if kind == "charge" else "Dispute fee",
            "type": "stripe_fee",
        }
    made = world.new(
        "balance_transaction",
        "txn",
        amount=amount,
        available_on=world.now() + settled_after,
        balance_type="payments",
        currency=source["currency"],
        description=source.get("description"),
        fee=charged,
        fee_details=told,
        net=amount - charged,
        reporting_category=category,
        source=source["id"],
        status="pending" if settled_after else "available",
        type=kind,
    )
    if settled_after:
        world.later(made["available_on"], "becomes_available", made["id"])
    return made


def becomes_available(world: World, identifier: str) -> None:
    world.get("balance_transaction", identifier)["status"] = "available"


def daily_payout(world: World, _: str = "") -> None:
    """Pay out what is available in each currency, and plan tomorrow's."""
    world.later((world.now() // DAY + 1) * DAY, "daily_payout")
    pay_out(world)


def pay_out(world: World) -> list[Json]:
    waiting: dict[str, list[Json]] = {}
    for one in world.all("balance_transaction"):
        if one["status"] == "available" and "payout" not in world.hidden(one["id"]):
            waiting.setdefault(one["currency"], []).append(one)
    made = []
    for currency, transactions in waiting.items():
        if (total := sum(one["net"] for one in transactions)) > 0:
            made.append(payout(world, currency, total, transactions))
    return made


def payout(world: World, currency: str, total: int, transactions: list[Json]) -> Json:
    made = world.new(
        "payout",
        "po",
        amount=total,
        arrival_date=world.now() + DAY,
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
    own = book(world, amount=-total, charged=0, kind="payout", category="payout", source=made)
    made["balance_transaction"] = own["id"]
    for one in [*transactions, own]:
        world.hidden(one["id"])["payout"] = made["id"]
    world.emit("payout.created", made)
    world.later(made["arrival_date"], "payout_arrives", made["id"])
    return made


def payout_arrives(world: World, identifier: str) -> None:
    made = world.get("payout", identifier)
    with world.updating(made, "payout.paid"):
        made["status"] = "paid"
    world.emit("payout.reconciliation_completed", made)


def retrieve(call: Call) -> Json:
    """What is there and not paid out, by currency."""
    sums: dict[str, dict[str, int]] = {"available": {}, "pending": {}}
    for one in call.world.all("balance_transaction"):
        if "payout" not in call.world.hidden(one["id"]):
            told = sums[one["status"]]
            told[one["currency"]] = told.get(one["currency"], 0) + one["net"]
    currencies = sorted({*sums["available"], *sums["pending"]}) or ["usd"]
    return {
        "object": "balance",
        "livemode": call.world.live,
        **{
            name: [
                {"amount": told.get(one, 0), "currency": one, "source_types": {"card": told.get(one, 0)}}
                for one in currencies
            ]
            for name, told in sums.items()
        },
    }


def retrieve_transaction(call: Call) -> Json:
    return call.world.named("balance_transaction", call.ids[0], param="id", in_path=True)


def list_transactions(call: Call) -> Json:
    """With `payout`, what that payout is made of, and its own transaction."""
    world, found = call.world, call.world.all("balance_transaction")
    if told := call.get("payout"):
        world.named("payout", told, param="payout")
        found = [one for one in found if world.hidden(one["id"]).get("payout") == told]
    equal = ["source", "type", "currency"]
    return listing.page(call, found, url="/v1/balance_transactions", equal=equal)


def retrieve_payout(call: Call) -> Json:
    return call.world.named("payout", call.ids[0], param="payout", in_path=True)


def list_payouts(call: Call) -> Json:
    return listing.page(call, call.world.all("payout"), url="/v1/payouts", equal=["status", "destination"])
