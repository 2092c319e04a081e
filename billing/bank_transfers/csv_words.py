"""What words in CSV bank statements say: whether money came or went, and whether it is booked."""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import Enum

from billing.bank_transfers.entities import StatementError
from portal.excerpt import excerpt, quoted


class Word(Enum):
    """What a word of a state or a direction says."""

    BOOKED = "booked"
    PENDING = "pending"
    FAILED = "failed"  # no money came, or it went back
    CREDIT = "credit"
    DEBIT = "debit"


_STATES: Mapping[Word, tuple[str, ...]] = {
    Word.BOOKED: (
        "booked", "book", "posted", "completed", "complete", "cleared", "settled", "succeeded", "gebucht",
        "umsatz gebucht", "verbucht", "abgeschlossen", "comptabilisé", "contabilizado", "completado",
    ),
    Word.PENDING: (
        "pending", "pdng", "vorgemerkt", "umsatz vorgemerkt", "processing", "in process", "in bearbeitung",
        "ausstehend", "offen", "authorised", "authorized", "on hold", "scheduled", "unclaimed", "en attente",
        "pendiente",
    ),
    Word.FAILED: (
        "failed", "declined", "denied", "rejected", "reverted", "reversed", "returned", "refunded", "cancelled",
        "canceled", "voided", "void", "expired", "rjct", "canc", "abgelehnt", "fehlgeschlagen", "storniert",
        "zurückgegeben", "zurückgewiesen", "rückerstattet", "abgebrochen", "annulé", "rejeté", "refusé", "rechazado",
        "devuelto", "anulado",
    ),
}  # fmt: skip
_DIRECTIONS: Mapping[Word, tuple[str, ...]] = {
    Word.CREDIT: (
        "credit", "crdt", "cr", "c", "+", "in", "money in", "incoming", "haben", "h", "gutschrift", "eingang",
        "bij", "crédit", "haber", "abono",
    ),
    Word.DEBIT: (
        "debit", "dbit", "dr", "d", "-", "out", "money out", "outgoing", "soll", "s", "belastung", "ausgang",
        "af", "débit", "debe", "cargo",
    ),
    Word.FAILED: ("memo", "neutral"),
}  # fmt: skip
_STATE = {text: word for word, texts in _STATES.items() for text in texts}
_DIRECTION = {text: word for word, texts in _DIRECTIONS.items() for text in texts}
_REVERSAL = re.compile(
    r"revers|chargeback|refund|r(ü|ue)ck(last|buch|gabe|(ü|ue)ber|zahl)|storn|retour|returned|devoluci|impay|rejet",
    re.IGNORECASE,
)


def parse_state(text: str, words: Mapping[str, Word]) -> Word:
    """What a word of state says. StatementError for one that nobody knows: it may say that nothing came."""
    plain = text.casefold()
    word = words.get(plain) or _STATE.get(plain)
    if word in {Word.BOOKED, Word.PENDING, Word.FAILED}:
        return word
    raise StatementError("csv-state", word=quoted(text), text=excerpt(text))


def parse_direction(text: str, words: Mapping[str, Word]) -> Word:
    """Whether money came or went. StatementError for a word that nobody knows."""
    plain = text.casefold()
    word = words.get(plain) or _DIRECTION.get(plain)
    if word in {Word.CREDIT, Word.DEBIT, Word.FAILED}:
        return word
    raise StatementError("csv-direction", word=quoted(text), text=excerpt(text))


def is_direction(text: str) -> bool:
    """Whether the word, alone, says that money came or went."""
    return _DIRECTION.get(" ".join(text.split()).casefold()) in {Word.CREDIT, Word.DEBIT}


def is_pending(text: str) -> bool:
    """Some banks write it in the place of a day."""
    return _STATE.get(text.casefold()) == Word.PENDING


def is_reversal(text: str) -> bool:
    """Whether a kind of entry takes another one back: what it is booked on, people say."""
    return _REVERSAL.search(text) is not None


def parse_words(words: Mapping[str, str]) -> dict[str, Word]:
    """What somebody says of words. StatementError for no such meaning."""
    meanings = {word.value for word in Word}
    for meaning in words.values():
        if meaning not in meanings:
            raise StatementError("csv-word", meaning=quoted(meaning), allowed=", ".join(sorted(meanings)))
    return {" ".join(text.split()).casefold(): Word(meaning) for text, meaning in words.items()}
