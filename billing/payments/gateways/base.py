"""What a payment gateway does, in plain values: charges, Checkout sessions, refunds, disputes, events.

Amounts are in the gateway's smallest units of a currency; `billing/rules/gateway_amounts.py` converts ours to them and
back. Instants are epoch seconds.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Protocol

Params = dict[str, Any]
"""The exact parameters of one call, as JSON: kept in a row before it is made, sent as they are kept."""


class CallOutcome(StrEnum):
    """What a call that brought no answer to use may have done, and so what may be done next."""

    REFUSED = "refused"  # nothing; the same again is refused again
    RETRYABLE = "retryable"  # nothing; the same again, with the same key, later
    UNKNOWN = "unknown"  # perhaps all of it; the same again, with the same key, tells
    UNREPEATABLE = "unrepeatable"  # perhaps all of it; the same key fails again: look for what it made
    LOCKED_OUT = "locked-out"  # nothing; no call will do anything until the key is mended


class GatewayError(Exception):
    """A call that brought no answer to use; the message says why in a sentence, without secrets."""

    def __init__(self, message: str, outcome: CallOutcome, *, code: str = "", about: str = "") -> None:
        super().__init__(message)
        self.outcome = outcome
        self.code = code  # the gateway's own word: resource_missing, amount_too_small
        self.about = about  # the parameter that it is about


class SignatureError(Exception):
    """A notification that the gateway did not sign with a secret of ours, or long ago."""


class ChargeState(StrEnum):
    """How one attempt to move money stands."""

    OPEN = "open"  # nobody has tried to pay with it yet
    PROCESSING = "processing"
    NEEDS_ACTION = "needs_action"  # its owner has to confirm it
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELED = "canceled"


@dataclass(frozen=True, slots=True)
class Charge:
    """A PaymentIntent, with what its newest charge cost us."""

    id: str
    state: ChargeState
    amount: int
    currency: str  # upper case
    created: int
    live: bool
    customer: str = ""
    method: str = ""
    tags: Mapping[str, str] = field(default_factory=dict)
    code: str = ""  # of the refusal: the bank's word where there is one
    advice: str = ""  # try_again_later, do_not_try_again, confirm_card_data
    message: str = ""  # for the person who pays
    received: int = 0
    refunded: int = 0
    disputed: bool = False
    fee: int | None = None  # None: not told yet
    fee_currency: str = ""  # in which it settled, upper case
    settled: int | None = None  # when its money was there; None: not told
    paid_with: str = ""  # Visa ending in 4242
    confirm_at: str = ""  # the bank's page on which its owner confirms it


@dataclass(frozen=True, slots=True)
class Method:
    """A saved means of payment: what may be shown of it, and nothing else."""

    id: str
    kind: str  # card, sepa_debit
    customer: str = ""
    brand: str = ""
    last4: str = ""
    exp_month: int | None = None
    exp_year: int | None = None
    fingerprint: str = ""


class SessionState(StrEnum):
    OPEN = "open"
    COMPLETE = "complete"
    EXPIRED = "expired"


@dataclass(frozen=True, slots=True)
class Session:
    """A hosted page on which somebody pays or saves a card."""

    id: str
    state: SessionState
    url: str
    expires: int
    tags: Mapping[str, str]
    customer: str = ""
    charge: str = ""  # the PaymentIntent, once there is one
    method: str = ""  # what was saved on it, or paid with


class RefundState(StrEnum):
    PENDING = "pending"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELED = "canceled"


@dataclass(frozen=True, slots=True)
class Refund:
    """Money that goes back from a charge, to where it came from."""

    id: str
    charge: str  # the PaymentIntent
    state: RefundState
    amount: int
    currency: str
    created: int
    tags: Mapping[str, str]
    reason: str = ""  # of a failure


class DisputeState(StrEnum):
    INQUIRY = "inquiry"  # the bank asks, and has taken nothing: it is answered, or the charge given back
    OPEN = "open"
    WON = "won"
    LOST = "lost"


@dataclass(frozen=True, slots=True)
class Dispute:
    """A payer took the charge up with the bank. `fee` is what the gateway keeps for it."""

    id: str
    charge: str
    state: DisputeState
    amount: int
    currency: str
    created: int
    reason: str
    fee: int = 0


@dataclass(frozen=True, slots=True)
class Event:
    """That something happened to an object. What happened is read from the object, never from here."""

    id: str
    type: str
    created: int
    live: bool
    object_id: str
    object_kind: str
    tags: Mapping[str, str] = field(default_factory=dict)
    unread: str = ""  # why it is not understood: then nothing else of it is meant but its id


@dataclass(frozen=True, slots=True)
class Movement:
    """A balance transaction: what one charge, refund, dispute or fee did to our balance there."""

    id: str
    kind: str
    source: str
    amount: int
    fee: int
    net: int
    currency: str
    created: int
    charge: str = ""  # the PaymentIntent that it is about, where there is one
    tags: Mapping[str, str] = field(default_factory=dict)  # of its source


@dataclass(frozen=True, slots=True)
class Payout:
    """What the gateway sent, or will send, from our balance there to our bank."""

    id: str
    amount: int
    currency: str
    state: str  # paid, pending, in_transit, canceled, failed
    arrives: int
    created: int
    itemised: bool  # it is told what it is made of: one that was made by itself, once all of it is known


class Gateway(Protocol):
    """Each call that changes something takes the parameters and the key that were kept before it."""

    live: bool

    def missing_rights(self, *, key: str) -> Sequence[str]: ...
    def create_customer(self, params: Params, *, key: str) -> str: ...
    def update_customer(self, customer: str, params: Params, *, key: str) -> None: ...
    def customer_exists(self, customer: str) -> bool: ...
    def customers(self, *, since: int) -> Iterator[tuple[str, Mapping[str, str]]]: ...
    def methods(self, customer: str) -> Sequence[Method]: ...
    def find_method(self, method: str) -> Method: ...
    def detach(self, method: str, *, key: str) -> None: ...

    def charge(self, params: Params, *, key: str) -> Charge: ...
    def find_charge(self, charge: str) -> Charge: ...
    def cancel_charge(self, charge: str, *, key: str) -> Charge: ...
    def charges(self, *, since: int, until: int | None = None, customer: str = "") -> Iterator[Charge]: ...

    def open_session(self, params: Params, *, key: str) -> Session: ...
    def find_session(self, session: str) -> Session: ...
    def sessions(self, *, since: int, customer: str = "") -> Iterator[Session]: ...
    def expire_session(self, session: str, *, key: str) -> Session: ...

    def refund(self, params: Params, *, key: str) -> Refund: ...
    def find_refund(self, refund: str) -> Refund: ...
    def refunds(self, *, since: int, charge: str = "") -> Iterator[Refund]: ...
    def find_dispute(self, dispute: str) -> Dispute: ...
    def disputes(self, *, since: int) -> Iterator[Dispute]: ...

    def events(self, *, since: int, undelivered: bool = False) -> Iterator[Event]: ...
    def verified(self, payload: bytes, signature: str, secrets: Sequence[str]) -> Event: ...

    def payouts(self, *, since: int) -> Iterator[Payout]: ...
    def movements(self, *, since: int = 0, payout: str = "") -> Iterator[Movement]: ...
