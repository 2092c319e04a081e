"""What the page of payment shows."""

from __future__ import annotations

from dataclasses import dataclass

from portal.web.badges import Badge


@dataclass(frozen=True, kw_only=True)
class MethodRow:
    pk: int
    label: str  # "Visa ending in 4242"
    expires: str  # "04/2030", "" where it does not
    badge: Badge
    usable: bool
    preferred: bool


@dataclass(frozen=True, kw_only=True)
class AttemptRow:
    at: str
    invoice: str  # its number; "" for a top-up
    method: str
    amount: str
    badge: Badge
    message: str  # why it was refused, "" where it was not


@dataclass(frozen=True, kw_only=True)
class PaymentPage:
    methods: tuple[MethodRow, ...]
    attempts: tuple[AttemptRow, ...]
    automatic: bool
    ready: bool  # something is charged here at all
    sandbox: bool  # no money moves
    may_pay: bool
    credit: str  # what was paid too much, and pays what comes next; "" for none
    email: str  # where e-mails go; "": to the owners and billing members
    email_field: str  # what its field holds: the address, or what was typed and refused
    refused: tuple[str, ...]  # what is said of addresses that a mail server refuses


@dataclass(frozen=True, kw_only=True)
class PayOffer:
    """How an invoice can be paid by card now."""

    note: str  # "A payment of $ 4.00 is under way", why the last one was refused
    tone: str  # "info", "danger"
    button: bool
    sandbox: bool
    amount: str
    card: str = ""  # "Visa ending in 4242": the saved one, "" for none
    key: str = ""  # of a payment with it: a form that is sent twice pays once
    seen: str = ""  # what that charges, as the form sends it back
    confirm: str = ""  # the attempt that the bank waits for a confirmation of, "" for none


@dataclass(frozen=True, kw_only=True)
class OpenOffer:
    """How all open invoices can be paid with the saved card by one click."""

    count: str  # "3 open invoices"
    amount: str
    card: str
    key: str
    seen: str  # what is open, as the form sends it back: more than that is not charged
    sandbox: bool
