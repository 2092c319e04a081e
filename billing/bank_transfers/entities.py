"""What a bank statement says, as plain values, whichever format it came in."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import date
from hashlib import sha256

from billing.bank_transfers.messages import SENTENCES
from billing.rules.errors import RuleError
from portal.errors import CodedError
from portal.excerpt import quoted

MOST_BYTES = 20 << 20
"""Of a file. A statement of 20,000 entries has about half of that."""
RAW = 4_000  # characters of an entry's text that are kept
TEXT = 2_000  # of what the payer wrote
NAME = 200

NOTHING = frozenset({"NOTPROVIDED", "NONREF", "NOT PROVIDED"})
"""What payers' banks write where there is no reference."""


def clean_reference(name: str) -> str:
    """The reference, or "" where it says that there is none."""
    return "" if name.strip().upper() in NOTHING else name


class StatementError(CodedError):
    """A file is no statement that can be imported; its sentence says why and what to do."""

    sentences = SENTENCES


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadOptions:
    """What somebody says of a file that it does not say itself."""

    form: str = ""  # "camt" or "csv"; "" looks
    account: str = ""  # of a CSV, and that of camt has to be; "" is the seller's
    currency: str = ""  # of rows of a CSV that name none
    decimal: str = ""  # "," or "."; "" where the amounts of a CSV leave no doubt
    dates: str = ""  # "dmy" or "mdy"; "" where the days of a CSV leave no doubt
    columns: Mapping[str, str] = field(default_factory=dict)  # of a CSV: by name the meaning
    words: Mapping[str, str] = field(default_factory=dict)  # of states and directions of a CSV
    unchecked: bool = False  # camt.053 without opening or closing balance is read all the same


def parse_meanings(texts: Iterable[str]) -> dict[str, str]:
    """By name of a column, or by word, what it means, from texts `NAME=MEANING`. Names may hold a "=".

    StatementError for a text without one.
    """
    pairs = {}
    for text in texts:
        name, sign, meaning = text.rpartition("=")
        if not sign or not name.strip():
            raise StatementError("option-form", text=quoted(text))
        pairs[name.strip()] = meaning.strip()
    return pairs


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """Money that came (above zero) or went. Amounts are in minor units of the account's currency."""

    amount: int
    currency: str
    booked_on: date
    bank_reference: str = ""  # the bank's own name for it
    end_to_end: str = ""  # the payer's name for it
    payer: str = ""  # the other side
    payer_iban: str = ""
    text: str = ""  # what the payer wrote, a line each
    reference: str = ""  # a creditor reference that stands in a field of its own
    reversal: bool = False
    raw: str = ""

    @property
    def fingerprint(self) -> str:
        """The same for the same entry in another file, where the bank has no name for it."""
        values = (
            str(self.booked_on), str(self.amount), self.currency, self.payer, self.payer_iban, self.text,
            self.reference, self.end_to_end,
        )  # fmt: skip
        return sha256("\x1f".join(values).encode()).hexdigest()[:32]


def hide_payer(entry: Entry) -> Entry:
    """With a hash as the bank's name for it where who paid stands in that: it is kept when they are erased."""
    name = entry.bank_reference.casefold()
    words = [word for word in entry.payer.casefold().split() if len(word) > 3]
    if not any(word and word in name for word in (entry.payer_iban.casefold(), *words)):
        return entry
    return replace(entry, bank_reference=hash_reference(entry.bank_reference))


def hash_reference(name: str) -> str:
    """What is kept of a bank's name for an entry that tells who paid."""
    return f"#{sha256(name.encode()).hexdigest()[:16]}"


@dataclass(frozen=True, slots=True, kw_only=True)
class BadEntry:
    """One that cannot be taken in by itself: kept to be looked at."""

    place: str  # "entry 12", "line 40"
    error: RuleError
    raw: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Statement:
    """opening + Σ of its entries = closing, where it has balances; without them nobody checked that it is whole."""

    account: str  # IBAN, or another number of it
    currency: str
    name: str  # what the bank calls the statement
    form: str = "csv"  # or "camt"
    opening: int | None
    closing: int | None
    entries: tuple[Entry, ...]
    bad: tuple[BadEntry, ...]
    pending: int  # entries that the bank has not booked yet: they come again
