"""What is wrong with an entry of a bank statement that goes to quarantine: its sentence by its code."""

from __future__ import annotations

from collections.abc import Mapping

from billing.rules import errors
from billing.rules.errors import RuleError


def _(text: str) -> str:
    """Marks a sentence for gettext, which translates it where it is said."""
    return text


SENTENCES: Mapping[str, str] = {
    **errors.SENTENCES,  # of amounts that a rule refuses
    "amount-differs": _("Its amount {written} is not what came or went."),
    "amount-missing": _("It does not say how much it is, or whether it came or went."),
    "amount-no-number": _("{text} is no amount."),
    "bank-id-used": _("The bank called another entry {name} before: {amount} on {day}."),
    "booked-on-impossible": _("It was booked on {day}: a bank books from 1971 on, and not on a day to come."),
    "booked-on-no-day": _("It was booked on {text}, which is no day."),
    "currency-missing": _("It does not say its currency: say it with --currency, or in a column 'currency'."),
    "currency-none": _("{currency} is no currency."),
    "currency-of-another-account": _("It is in {currency}, which is not the account's currency."),
    "day-impossible": _("{text} is no day: {reason}."),
    "day-unreadable": _("{text} is no day; write it like 2026-03-31 or 31.03.2026."),
    "direction-failed": _("It says {text}: no money came of it."),
    "direction-missing": _("It does not say whether money came or went."),
    "direction-uncertain": _("It says {text} of {written}: whether it came or went is not certain."),
    "money-in-below-zero": _("{text} came: less than nothing cannot come."),
    "money-in-or-out": _("It has to have an amount either below money in or below money out."),
    "no-amount": _("It is over nothing."),
    "perhaps-balance": _("It may be a balance, or a payment with those words: no column says who paid."),
    "several-currencies": _("It is in {currencies}."),
    "state-failed": _("Its state is {text}: no money came of it."),
    "state-missing": _("It does not say whether it is booked, as other rows do."),
    "thousands-uncertain": _("{text} is no amount with {mark!r} before its cents."),
    "too-many-cells": _("It has more cells than there are columns."),
}


class EntryError(RuleError):
    """An entry that cannot be read, or from which no money came or went."""

    sentences = SENTENCES
