"""What is refused about what tenants owe: the sentence of each code, with its values filled in."""

from __future__ import annotations

from collections.abc import Mapping

from django.utils.translation import gettext_noop as _

from billing.rules import errors

SENTENCES: Mapping[str, str] = {
    **errors.SENTENCES,  # of values that a rule refuses
    "beyond-credit-balance": _("The credit balance is {amount} {currency}: pay back that much at most."),
    "beyond-owed": _("Only {amount} is to be given back; no more can be taken back."),
    "beyond-paid": _("Only {amount} was paid; no more can be taken back."),
    "credit-paid-back": _(
        "{amount} {currency} of what it gave to the credit balance of {tenant} were paid back since: take "
        "this back when the balance has them again."
    ),
    "invoice-of-another-tenant": _("{invoice} is not of {tenant}."),
    "not-issued": _("{invoice} is no issued invoice: nothing of it can be written off."),
    "not-payable": _("{invoice} is {state}; only an issued invoice can be paid."),
    "nothing-due": _("{invoice} has nothing due."),
    "nothing-written-off": _("Nothing of {invoice} is written off."),
    "other-currency": _("{invoice} is in {currency}, not {other}."),
    "partly-written-off": _(
        "{invoice} is written off in part: take that back first, then write off all of it."
    ),
    "pause-ends-in-the-past": _("{until} is not to come: name a later day, or none to pause it for good."),
    "pause-without-reason": _("Say why: the reason is kept with the pause."),
    "pay-back-without-reference": _("Say the reference of the transfer by which it was paid back."),
    "payment-before-period": _("{invoice} is of a period that begins on {first}: nobody paid it on {day}."),
    "payment-of-credit-note": _(
        "{invoice} is a credit note; record what is paid back, below zero, for {original}."
    ),
    "payment-of-nothing": _("A payment of nothing cannot be recorded."),
    "payment-to-come": _("{day} is still to come: record the payment on the day on which it arrived."),
    "payment-under-way": _("A payment of {invoice} is under way: wait until it has settled."),
    "payment-without-reference": _("A payment needs its reference, as it stands on the bank statement."),
    "reference-used": _("{reference} was recorded with another amount: use its own reference."),
    "refund-under-way": _(
        "A refund of {amount} {currency} of {invoice} to the card is under way, since {day} by {who}: until it has "
        "settled, {most} can be taken back at most."
    ),
    "reversal-without-reason": _("Say why: the reason is kept with what is taken back."),
    "write-off-without-reason": _("Say why: the reason is kept with what is written off."),
}
