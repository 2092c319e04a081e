"""What the use cases of invoicing refuse: the sentence of each code, with its values filled in."""

from __future__ import annotations

from collections.abc import Mapping

from django.utils.translation import gettext_noop as _

from billing.rules import errors

SENTENCES: Mapping[str, str] = {
    **errors.SENTENCES,  # of values that a rule refuses
    "already-credited": _("{invoice} was credited by {note}; credit the rest of it instead."),
    "already-issued": _("It has been issued already: credit it, or make it void."),
    "already-void": _("{invoice} is void already."),
    "close-just-ended": _("Another close of this month has just ended: look at it first."),
    "close-under-way": _("{person} closes {month} at this moment: wait until that has ended."),
    "credit-before-invoice": _(
        "{invoice} was issued on {issued_on}, and a credit note is no older than its invoice: date it on "
        "that day, or later."
    ),
    "credit-not-positive": _("A credit is an amount above zero."),
    "credit-too-large": _("{invoice}: {cause}"),
    "credit-without-reason": _("Say why it is credited: the reason stands on the credit note."),
    "day-not-in-every-month": _("Day {day} is not in every month: choose one from {first} to {last}."),
    "decision-without-reason": _("Say why: the reason is kept with the decision."),
    "figures-changed": _("It comes to {total} on {lines} lines by now: look at it again."),
    "invoice-below-zero": _(
        "The corrections exceed the period's charges, and only a credit note may be below zero: the next "
        "period's invoice takes the difference up."
    ),
    "later-document": _(
        "{after} was issued with or after {invoice} and counts on it: credit {invoice} instead, or make "
        "{after} void first."
    ),
    "line-billed": _("{description} was billed: credit the invoice, or add a line that takes it off."),
    "line-of-nothing": _("A line is an amount in whole coins of {currency}, and not nothing."),
    "line-of-other-currency": _("{tenant} is billed in {currencies}, not in {currency}."),
    "line-without-description": _("Say what the line is, as it stands on the invoice, and why it is added."),
    "mixed-currencies": _(
        "Usage up to the end of this period is priced in {currencies}; an invoice has one currency: change "
        "plans of another currency at a period border only."
    ),
    "month-not-closable": _("{month} is no month that can be closed."),
    "no-such-line": _("{invoice} has no line {position}."),
    "not-creditable": _("{invoice} is {status}; only an issued invoice can be credited."),
    "not-issuable": _("{invoice} is {state} and cannot be issued."),
    "not-voidable": _("{invoice} is {state}; only an issued invoice can become void."),
    "nothing-held": _("Nothing of {tenant} is held for approval in that month: close it first."),
    "nothing-left-to-credit": _("Nothing is left to credit of {invoice}."),
    "other-currency": _("{invoice} is in {currency}, not {other}."),
    "payment-page-open": _(
        "A page to pay {invoice} is open: wait until it is closed, then make the invoice void."
    ),
    "payment-under-way": _(
        "A payment of {invoice} is under way: wait until it has settled, then credit the invoice."
    ),
    "preview-after-issue": _(
        "The preview on day {preview} comes after the issue on day {issue}: choose an earlier day for it."
    ),
    "preview-under-way": _("{person} previews {month} at this moment: wait until that has ended."),
    "void-of-credit-note": _("{invoice} is a credit note; what it gave back stays given."),
    "void-of-paid": _("{invoice} was paid; credit it instead."),
    "void-without-reason": _("Say why it is void: the reason is kept with it."),
}
