"""What happens by itself when the clock gets there."""

from __future__ import annotations

from collections.abc import Callable

from portal.dev.stripe_sandbox import balance, confirming, paying, refunds
from portal.dev.stripe_sandbox.clock import DAY
from portal.dev.stripe_sandbox.state import World


def debit_ends(world: World, identifier: str) -> None:
    intent = world.get("payment_intent", identifier)
    confirming.debit_ends(world, intent)
    paying.follow(world, intent)


DUE: dict[str, Callable[[World, str], None]] = {
    "becomes_available": balance.becomes_available,
    "daily_payout": balance.daily_payout,
    "debit_ends": debit_ends,
    "payout_arrives": balance.payout_arrives,
    "refund_arrives": refunds.refund_arrives,
    "refund_fails": refunds.refund_fails,
    "session_expires": paying.session_expires,
}
FORGOTTEN_AFTER = DAY  # seconds that an idempotency key is kept
EVENTS_KEPT = 30 * DAY  # seconds that an event can be read


def begin(world: World) -> None:
    """Plan the first payout of a new account."""
    if not any(due["what"] == "daily_payout" for due in world.state.agenda):
        world.later((world.now() // DAY + 1) * DAY, "daily_payout")


def settle(world: World) -> bool:
    """Do all that is due by now, in its order and each at its own moment; whether there was anything."""
    now, did = world.now(), False
    while True:
        due = [one for one in world.state.agenda if one["at"] <= now]
        if not due:
            break
        first = min(due, key=lambda one: int(one["at"]))  # of equals, the one that was planned first
        world.state.agenda.remove(first)
        with world.clock.at(first["at"]):
            DUE[first["what"]](world, first["id"])
        did = True
    return forget(world, now) or did


def forget(world: World, now: int) -> bool:
    """Keys of yesterday and events of last month are gone; both are in the order in which they came."""
    answers, events, did = world.state.answers, world.state.objects.get("event", {}), False
    while answers and (key := next(iter(answers))) and answers[key]["at"] <= now - FORGOTTEN_AFTER:
        del answers[key]
        did = True
    while events and (oldest := next(iter(events))) and events[oldest]["created"] <= now - EVENTS_KEPT:
        del events[oldest]
        did = True
    if did:
        world.state.deliveries[:] = [one for one in world.state.deliveries if one["event"] in events]
    return did
