"""Entries that may be kept already under a name of the other kind, or under another name in a file of the other kind.

camt.053 has the bank's name of an entry, the CSV of most banks has none, and that of some has another one: by their
keys alone, the same transfer in both would be two.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from datetime import date

from billing.bank_transfers.entities import clean_reference
from billing.models import Transfer, TransferState

LEAST = 6
"""Notices and digits of a name or a text that say anything."""


def hold_duplicates(fresh: Sequence[Transfer]) -> None:
    """Let those wait that may be kept already; `fresh` are of one account and not saved. One query."""
    if not fresh:
        return
    days = [row.booked_on for row in fresh]
    candidates = Transfer.objects.filter(account=fresh[0].account, booked_on__range=(min(days), max(days)))
    existing: dict[tuple[date, int, str], list[Transfer]] = defaultdict(list)
    for row in candidates.select_related("statement").defer("raw").order_by("pk"):
        existing[row.booked_on, row.amount, row.currency].append(row)
    for row in fresh:
        alike = existing.get((row.booked_on, row.amount, row.currency), ())
        twin = next((candidate for candidate in alike if _may_be(row, candidate)), None)
        if twin is not None:
            _wait(row, twin)


def _may_be(row: Transfer, existing: Transfer) -> bool:
    """Of the same day and amount: nothing tells them apart, and their names cannot, or are of two files' kinds.

    Within one kind of file the bank's names are to be trusted: two of them are two transfers.
    """
    pairs = (
        (row.payer_iban, existing.payer_iban),
        (clean_reference(row.end_to_end), clean_reference(existing.end_to_end)),
    )
    if any(one and other and one != other for one, other in pairs):
        return False
    if bool(row.bank_reference) != bool(existing.bank_reference):
        return True
    return (
        bool(row.bank_reference)
        and row.statement.form != existing.statement.form
        and _is_same_text(row, existing)
    )


def _is_same_text(row: Transfer, existing: Transfer) -> bool:
    """On who paid, or what for: in their own words, since CSV breaks lines elsewhere, and cuts names short."""
    pairs = (
        (row.payer_iban, existing.payer_iban),
        (clean_reference(row.end_to_end), clean_reference(existing.end_to_end)),
    )
    if any(one == other != "" for one, other in pairs):
        return True
    words = ((row.payer, existing.payer), (row.text + row.reference, existing.text + existing.reference))
    return any(_alike(_letters(one), _letters(other)) for one, other in words)


def _alike(one: str, other: str) -> bool:
    short, long = sorted((one, other), key=len)
    return len(short) >= LEAST and short in long


def _letters(text: str) -> str:
    return "".join(filter(str.isalnum, text.casefold()))


def _wait(row: Transfer, twin: Transfer) -> None:
    """Nobody is asked about money that left the account and was none of ours already."""
    left = row.amount < 0 and twin.state == TransferState.IGNORED
    row.state = TransferState.IGNORED if left else TransferState.WAITING
    name = f"{twin.bank_reference} of " if twin.bank_reference else ""
    row.reason = (
        f"It may be known already, from {name}{twin.statement.file}: the same day and amount. "
        "Set it aside if it is that one; else book it."
    )
