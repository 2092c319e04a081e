"""What people, banks and networks do at Stripe without asking us: the dashboard, the page, the card's issuer."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from portal.dev.stripe_sandbox import (
    balance,
    checkout,
    confirming,
    customers,
    disputes,
    endpoints,
    paying,
    payment_methods,
    refunds,
    scheduler,
)
from portal.dev.stripe_sandbox.cards import BY_IBAN, BY_NUMBER
from portal.dev.stripe_sandbox.errors import Json
from portal.dev.stripe_sandbox.state import State

PERSON: Json = {"email": "ann@example.org", "name": "Ann"}


class Dashboard:
    """Every act happens at once and is announced by events, as if it had been done at Stripe."""

    def __init__(self, state: State, keep: Callable[[], None]) -> None:
        self.state = state
        self._keep = keep

    @contextmanager
    def _acting(self) -> Iterator[State]:
        with self.state.lock:
            scheduler.settle(self.state)
            try:
                yield self.state
            finally:
                self._keep()

    def save_card(
        self,
        customer: str,
        number: str = "4242424242424242",
        *,
        month: int = 12,
        year: int = 2034,
        set_up: bool = False,
    ) -> str:
        """A card of that customer, with or without its owner's bank asked; the id of its payment method."""
        with self._acting() as state:
            method = payment_methods.add_card(
                state, BY_NUMBER[number.replace(" ", "")], month=month, year=year
            )
            state.hidden(method["id"])["set_up"] = set_up
            payment_methods.attach_to(state, method, state.get("customer", customer)["id"])
            return str(method["id"])

    def save_account(self, customer: str, iban: str = "DE89370400440532013000") -> str:
        """A bank account of that customer for SEPA direct debit; the id of its payment method."""
        with self._acting() as state:
            method = payment_methods.add_account(state, BY_IBAN[iban.replace(" ", "")])
            payment_methods.attach_to(state, method, state.get("customer", customer)["id"])
            return str(method["id"])

    def renew_card(self, method: str, *, month: int, year: int, last4: str | None = None) -> None:
        """The network replaced the card: payment_method.automatically_updated."""
        with self._acting() as state:
            about = state.get("payment_method", method)
            with state.updating(about, "payment_method.automatically_updated"):
                about["card"] = {**about["card"], "exp_month": month, "exp_year": year}
                if last4 is not None:
                    about["card"]["last4"] = last4

    def behave(self, method: str, number: str) -> None:
        """From now on that card behaves like the test card of this number; it looks as before."""
        with self._acting() as state:
            state.hidden(method)["card"] = BY_NUMBER[number.replace(" ", "")].name

    def detach(self, method: str) -> None:
        with self._acting() as state:
            payment_methods.detach_from(state, state.get("payment_method", method))

    def delete_customer(self, customer: str) -> None:
        with self._acting() as state:
            customers.remove(state, state.get("customer", customer))

    def pay(
        self,
        session: str,
        number: str = "4242424242424242",
        *,
        passes: bool = True,
        iban: str | None = None,
        save: bool = False,
    ) -> Json:
        """A person pays (or saves the card) on the session's page; raises ApiError if the card is declined.

        Where the bank asks, it is answered by `passes`; `save` ticks that the card is kept. Returns the session
        afterwards."""
        with self._acting() as state:
            about = state.get("checkout.session", session)
            if about["status"] != "open":
                raise checkout.not_open(about)
            if iban:
                method = payment_methods.add_account(state, BY_IBAN[iban.replace(" ", "")], person=PERSON)
            else:
                method = payment_methods.add_card(state, BY_NUMBER[number.replace(" ", "")], person=PERSON)
            intent = paying.pay(state, about, method, person=PERSON, save=save)
            if intent["status"] == "requires_action":
                paying.authenticate(state, intent, passed=passes)
            return dict(about)

    def authenticate(self, intent: str, *, passes: bool = True) -> None:
        """The owner answers the bank's question about a payment or setup intent."""
        with self._acting() as state:
            about = state.anywhere(intent)
            if about is None:
                raise LookupError(f"The sandbox has no intent {intent}.")
            paying.authenticate(state, about, passed=passes)

    def expire_session(self, session: str) -> None:
        with self._acting() as state:
            paying.expire_session(state, state.get("checkout.session", session))

    def hold_debit(self, intent: str) -> None:
        """The bank takes its days: the debit ends by `end_debit` alone."""
        with self._acting() as state:
            state.never("debit_ends", intent)

    def end_debit(self, intent: str, *, settles: bool) -> None:
        """The bank pays or refuses a SEPA debit now."""
        with self._acting() as state:
            about = state.get("payment_intent", intent)
            confirming.debit_ends(state, about, settles=settles)
            paying.follow(state, about)

    def refund(self, intent: str, amount: int | None = None) -> str:
        """Somebody refunds in the dashboard; the id of the refund, which has no metadata."""
        with self._acting() as state:
            charge = state.get("charge", state.get("payment_intent", intent)["latest_charge"])
            return str(refunds.make(state, charge, amount=amount)["id"])

    def fail_refund(self, refund: str) -> None:
        with self._acting() as state:
            refunds.refund_fails(state, refund)

    def dispute(self, intent: str, *, amount: int | None = None, reason: str = "fraudulent") -> str:
        """The payer's bank takes the money back; the id of the dispute."""
        with self._acting() as state:
            charge = state.get("charge", state.get("payment_intent", intent)["latest_charge"])
            return str(disputes.open_(state, charge, amount=amount, reason=reason)["id"])

    def inquire(self, intent: str) -> str:
        """The payer's bank asks what it was for, and takes nothing; the id of the dispute."""
        with self._acting() as state:
            charge = state.get("charge", state.get("payment_intent", intent)["latest_charge"])
            return str(disputes.open_(state, charge, inquiry=True)["id"])

    def escalate_inquiry(self, dispute: str) -> None:
        """The bank was not told enough, and takes the money."""
        with self._acting() as state:
            disputes.escalate(state, state.get("dispute", dispute))

    def win_dispute(self, dispute: str) -> None:
        with self._acting() as state:
            disputes.win(state, state.get("dispute", dispute))

    def lose_dispute(self, dispute: str) -> None:
        with self._acting() as state:
            disputes.lose(state, state.get("dispute", dispute))

    def pay_out(self) -> list[str]:
        """Pay out what is available now, without waiting for midnight."""
        with self._acting() as state:
            return [str(one["id"]) for one in balance.pay_out(state)]

    def alter(self, identifier: str, **fields: Any) -> None:
        """Change an object behind everybody's back: no event tells of it."""
        with self._acting() as state:
            about = state.anywhere(identifier)
            if about is None:
                raise LookupError(f"The sandbox has no object {identifier}.")
            about |= fields

    def forget(self, identifier: str) -> None:
        """Lose an object, as if it had never been."""
        with self._acting() as state:
            for objects in state.data.objects.values():
                objects.pop(identifier, None)

    def move(self, amount: int, currency: str = "usd", *, kind: str = "adjustment") -> str:
        """Money moves on the balance, and nothing says why; the id of the balance transaction."""
        with self._acting() as state:
            source = {"id": None, "currency": currency, "description": "Adjustment"}
            moved = balance.book(state, amount=amount, charged=0, kind=kind, category=kind, source=source)
            return str(moved["id"])

    def announce(self, kind: str, about: Json, **fields: Any) -> str:
        """An event of any kind with any object, and with `fields` (livemode, created…) as told; its id."""
        with self._acting() as state:
            event = state.emit(kind, about)
            event |= fields
            return str(event["id"])

    def endpoint(self, url: str = "", *, secret: str | None = None, events: list[str] | None = None) -> Json:
        """A webhook endpoint; without an address its messages are fetched by `webhooks.take()`."""
        with self._acting() as state:
            new_endpoint = endpoints.make(
                state, url=url or "https://portal.invalid/webhook", secret=secret, events=events
            )
            state.hidden(new_endpoint["id"])["manual"] = not url
            return new_endpoint | {"secret": state.hidden(new_endpoint["id"])["secrets"][0]}
