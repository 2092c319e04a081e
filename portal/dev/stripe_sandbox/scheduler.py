"""What happens by itself when the clock gets there."""

from __future__ import annotations

from collections.abc import Callable

from portal.dev.stripe_sandbox import balance, confirming, paying, refunds
from portal.dev.stripe_sandbox.clock import DAY
from portal.dev.stripe_sandbox.state import State


def debit_ends(state: State, identifier: str) -> None:
    intent = state.get("payment_intent", identifier)
    confirming.debit_ends(state, intent)
    paying.follow(state, intent)


DUE: dict[str, Callable[[State, str], None]] = {
    "becomes_available": balance.becomes_available,
    "daily_payout": balance.daily_payout,
    "debit_ends": debit_ends,
    "payout_arrives": balance.payout_arrives,
    "refund_arrives": refunds.refund_arrives,
    "refund_fails": refunds.refund_fails,
    "session_expires": paying.session_expires,
}
FORGOTTEN_AFTER = DAY  # seconds that an idempotency key is kept
EVENT_RETENTION = 30 * DAY  # seconds that an event can be read


def begin(state: State) -> None:
    """Plan the first payout of a new account."""
    if not any(due["what"] == "daily_payout" for due in state.data.agenda):
        state.later((state.now() // DAY + 1) * DAY, "daily_payout")


def settle(state: State) -> bool:
    """Do all that is due by now, in its order and each at its own moment; whether there was anything."""
    now, did = state.now(), False
    while True:
        due = [one for one in state.data.agenda if one["at"] <= now]
        if not due:
            break
        first = min(due, key=lambda one: int(one["at"]))  # of equals, the one that was planned first
        state.data.agenda.remove(first)
        with state.clock.at(first["at"]):
            DUE[first["what"]](state, first["id"])
        did = True
    return forget(state, now) or did


def forget(state: State, now: int) -> bool:
    """Keys of yesterday and events of last month are gone; both are in the order in which they came."""
    answers, events, did = state.data.answers, state.data.objects.get("event", {}), False
    while answers and (key := next(iter(answers))) and answers[key]["at"] <= now - FORGOTTEN_AFTER:
        del answers[key]
        did = True
    while events and (oldest := next(iter(events))) and events[oldest]["created"] <= now - EVENT_RETENTION:
        del events[oldest]
        did = True
    if did:
        state.data.deliveries[:] = [one for one in state.data.deliveries if one["event"] in events]
    return did
