"""What the columns of a CSV bank statement mean, by their names in the exports of banks.

A column whose meaning is not certain might say that money did not come, so a file that has one is refused until
somebody says what it is.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from billing.bank_transfers.csv_words import is_direction
from billing.bank_transfers.entities import StatementError
from billing.rules.money import is_currency
from portal.excerpt import quoted

MEANINGS: Mapping[str, tuple[str, ...]] = {
    "booked_on": (
        "booked_on", "booking date", "buchungstag", "buchungsdatum", "posting date", "posted date", "post date",
        "date completed", "completed date", "date", "datum", "transaction date", "buchung", "fecha",
        "fecha operación", "fecha operacion", "date opération", "date operation", "date de l'opération", "dateop",
        "date de comptabilisation", "value date", "valuta", "valutadatum", "wertstellung", "date de valeur",
    ),
    "amount": (
        "amount", "betrag", "umsatz", "gross", "brutto", "importe", "montant", "montant de l'opération",
        "montant operation", "bedrag", "transaction amount", "value",
    ),
    "credit": (
        "credit", "credit amount", "money in", "paid in", "deposit", "deposits", "haben", "gutschrift", "crédit",
        "abono", "abonos", "haber",
    ),
    "debit": (
        "debit", "debit amount", "money out", "paid out", "withdrawal", "withdrawals", "soll", "belastung",
        "lastschrift", "débit", "cargo", "cargos", "debe",
    ),
    "currency": ("currency", "währung", "waehrung", "devise", "divisa", "moneda", "munt"),
    "direction": (
        "soll/haben", "soll / haben", "haben/soll", "s/h", "sh", "d/c", "c/d", "dr/cr", "cr/dr", "cr / dr",
        "credit/debit", "debit/credit", "credit debit indicator", "direction", "balance impact",
        "auswirkung auf guthaben", "af bij", "sens", "debe/haber", "d/h",
    ),
    "payer": (
        "payer", "payer name", "name", "beguenstigter/zahlungspflichtiger", "begünstigter/zahlungspflichtiger",
        "auftraggeber/empfänger", "zahlungspflichtiger", "zahlungspflichtige*r", "auftraggeber / begünstigter",
        "begünstigter / auftraggeber", "auftraggeber/zahlungsempfänger", "name zahlungsbeteiligter",
        "name gegenkonto", "partner name", "partnername", "counter party", "counterparty name",
        "name / description", "naam / omschrijving", "naam tegenpartij", "ordenante",
    ),
    "payee": ("payee", "payee name", "zahlungsempfänger*in", "empfänger/zahlungspflichtiger", "beneficiary"),
    "payer_iban": (
        "payer_iban", "iban", "kontonummer/iban", "iban zahlungsbeteiligter", "iban / kontonummer", "partner iban",
        "gegeniban", "counterparty", "tegenrekening", "tegenrekening iban/bban",
    ),
    "text": (
        "text", "remittance", "verwendungszweck", "vorgang/verwendungszweck", "description", "payment reference",
        "reference", "transaction description", "buchungs-details", "avisierungstext", "notifications",
        "mededelingen", "omschrijving-1", "libellé", "libelle", "libelle operation", "libellé de l'opération",
        "label", "détail de l'écriture", "concepto", "más datos", "subject", "betreff", "note", "hinweis",
        "invoice number", "rechnungsnummer", "beschreibung", "beschreibung1", "beschreibung2", "beschreibung3",
        *(f"vwz{number}" for number in range(1, 15)),
    ),
    "bank_reference": (
        "bank_reference", "transaction id", "bankreferenz", "transaktionscode", "transferwise id",
        "transaktions-nr.",
    ),
    "end_to_end": (
        "end_to_end", "end-to-end reference", "kundenreferenz (end-to-end)", "end-to-end-referenz",
        "kundenreferenz",
    ),
    "state": ("state", "status", "info", "estado", "statut", "état"),
    "kind": (
        "type", "typ", "transaction type", "umsatztyp", "umsatzart", "vorgang", "bewegungstyp", "mutatiesoort",
        "movimiento",
    ),
    "text_or_kind": ("buchungstext", "details", "memo"),
    "own_account": (
        "auftragskonto", "iban auftragskonto", "iban auftraggeberkonto", "rekening", "account", "iban/bban"
    ),
}  # fmt: skip
"""By our name of a column how it may be written, whatever the case; the first that a file has is taken."""

IGNORED = frozenset(
    (
        "bezeichnung auftragskonto", "bic auftragskonto", "bankname auftragskonto", "bic", "bic (swift-code)",
        "bic (swift-code) zahlungsbeteiligter", "glaeubiger id", "gläubiger-id", "gläubiger id", "glaeubiger-id",
        "mandatsreferenz", "sammlerreferenz", "saldo", "saldo nach buchung", "balance", "running balance",
        "running bal.", "solde", "disponible", "kontostand", "guthaben", "bemerkung", "gekennzeichneter umsatz",
        "lastschrift ursprungsbetrag", "auslagenersatz ruecklastschrift", "valutadatum", "wertstellung",
        "wertstellungsdatum", "wertstellungstag", "wertstellung (valuta)", "value date", "valuta", "wert",
        "date de valeur", "fecha valor", "f.valor", "dateval", "rentedatum", "date", "time", "timezone", "time zone",
        "uhrzeit", "zeitzone", "abschlusszeit", "abschlussdatum", "blz", "bankleitzahl auftraggeberkonto",
        "auftraggeberkonto", "kontonummer", "konto-nr.", "konto", "account number", "account name", "sort code",
        "kategorie", "category", "categoryparent", "catégorie", "spending category", "subcategory", "product",
        "started date", "date started", "fee", "net", "gebühr", "entgelt", "netto", "total fees", "fee currency",
        "fremde gebühren", "abweichender empfänger", "anzahl der aufträge", "anzahl der schecks", "exchange rate",
        "exchange from", "exchange to", "exchange to amount", "original amount", "original currency", "orig amount",
        "orig currency", "payment currency", "local amount", "local currency", "amount (foreign currency)",
        "type foreign currency", "einzelbetrag", "fussnoten", "from email address", "to email address",
        "absender e-mail-adresse", "empfänger e-mail-adresse", "shipping address", "lieferadresse",
        "address status", "adress-status", "adressstatus", "item title", "artikelbezeichnung", "item id",
        "artikelnummer", "reference txn id", "zugehöriger transaktionscode", "custom number", "quantity", "anzahl",
        "receipt id", "empfangsnummer", "country", "land", "country code", "ländercode", "attachment", "merchant",
        "card last four digits", "card holder full name", "payee account number", "emoji", "address", "receipt",
        "category split", "tags", "notes and #tags", "observaciones", "code", "volgnr", "saldo na trn",
        "accountlabel", "accountnum", "accountbalance", "check or slip #", "transaction details type",
    )
)  # fmt: skip
"""Columns of those exports that say nothing about whether money came, or what for."""

_SYMBOLS = {"€": "EUR", "$": "USD", "£": "GBP", "eur": "EUR", "euro": "EUR", "euros": "EUR"}
_UNIT = re.compile(r"(.+?)\s*(?:\(([^()]{1,5})\)|\bin ([a-z]{3})|\b(euros?))$")
_NUMERIC = re.compile(r"(?=.*\d.*\d.*\d)([\d\s.,:/+'’-]|(?<=\d)[TZ])+|[A-Z]{2}\d\d[A-Z\d ]+")
"""A number, a day or an account: no word, and no mark such as 0 or 1."""


@dataclass(frozen=True, slots=True)
class Columns:
    """Where in a row each meaning stands; `unit` is the currency that an amount's header names, or ""."""

    places: Mapping[str, tuple[int, ...]]
    unit: str

    def cells(self, row: Sequence[str], meaning: str) -> list[str]:
        """What the row has of it, squeezed; nothing for a row that ends before."""
        return [" ".join(row[place].split()) for place in self.places.get(meaning, ()) if place < len(row)]

    def cell(self, row: Sequence[str], meaning: str) -> str:
        return next(iter(self.cells(row, meaning)), "")


def is_header(row: Sequence[str], columns: Mapping[str, str]) -> bool:
    """Whether a day and an amount, or money in and money out, are among its columns."""
    meanings = {_meaning(name, columns)[0] for name in row}
    return "booked_on" in meanings and ("amount" in meanings or {"credit", "debit"} <= meanings)


def resolve_columns(
    header: Sequence[str], rows: Sequence[Sequence[str]], columns: Mapping[str, str]
) -> Columns:
    """The meanings of a header. StatementError where one is not certain, or what the payer wrote is in none.

    `columns`: by name, whatever the case, what somebody says that it means: a key of MEANINGS, or "ignore".
    """
    by_rank: dict[str, list[tuple[int, int]]] = {}
    units: list[tuple[int, str]] = []
    for place, name in enumerate(header):
        meaning, rank, unit = _meaning(name, columns)
        if not meaning:
            meaning = _guess_by_content(name, place, rows)
        by_rank.setdefault(meaning, []).append((rank, place))
        if meaning in {"amount", "credit", "debit"} and unit:
            units.append((rank, unit))
    _refuse_ambiguous(header, by_rank)
    places = {meaning: tuple(place for _, place in sorted(ranked)) for meaning, ranked in by_rank.items()}
    own = places.pop("text_or_kind", ())
    target = "kind" if "text" in places else "text"
    places[target] = places.get(target, ()) + own
    if not places["text"]:
        raise StatementError("csv-text-missing")
    return Columns(_kind_as_direction(places, rows), min(units)[1] if units else "")


def parse_columns(columns: Mapping[str, str]) -> dict[str, str]:
    """What somebody says of columns, by their names as they are compared. StatementError for no such meaning."""
    for name, meaning in columns.items():
        if meaning != "ignore" and meaning not in MEANINGS:
            allowed = ", ".join(
                (
                    *(name_of_meaning for name_of_meaning in MEANINGS if name_of_meaning != "text_or_kind"),
                    "ignore",
                )
            )
            raise StatementError("csv-meaning", column=quoted(name), meaning=quoted(meaning), allowed=allowed)
    return {_plain_name(name): meaning for name, meaning in columns.items()}


def _plain_name(name: str) -> str:
    return " ".join(name.split()).casefold().removesuffix(" (utc)")


def _meaning(name: str, columns: Mapping[str, str]) -> tuple[str, int, str]:
    """Its meaning, "ignore" or "", the rank among names of that meaning, and the currency in the name."""
    plain = _plain_name(name)
    if plain in columns:
        return columns[plain], -1, ""
    unit = ""
    if (match := _UNIT.fullmatch(plain)) and plain not in IGNORED:
        written = match[2] or match[3] or match[4]
        code = _SYMBOLS.get(written, written.upper())
        if is_currency(code):
            plain, unit = match[1], code
    for meaning, names in MEANINGS.items():
        if plain in names:
            return meaning, names.index(plain), unit
    return ("ignore" if plain in IGNORED else ""), 0, unit


def _guess_by_content(name: str, place: int, rows: Sequence[Sequence[str]]) -> str:
    """Of a name that nobody knows: ignored where it is empty, or holds a number or a day in each row.

    In some rows alone, a day may be the one on which money went back.
    """
    cells = [cell for row in rows if place < len(row) and (cell := row[place].strip())]
    if not name.strip() and cells and all(is_direction(cell) for cell in cells):
        return "direction"  # older exports of VR banks have S and H below no name
    if not cells or (len(cells) == len(rows) and all(map(_NUMERIC.fullmatch, cells))):
        return "ignore"
    column = quoted(name.strip()) if name.strip() else f"{place + 1}, which has no name"
    raise StatementError("csv-column-unknown", column=column, cell=quoted(cells[0]))


def _refuse_ambiguous(header: Sequence[str], by_rank: Mapping[str, Sequence[tuple[int, int]]]) -> None:
    """Two columns of one name are one where both say a currency or a text, and a riddle otherwise."""
    for meaning, ranked in by_rank.items():
        if meaning in {"ignore", "text", "text_or_kind", "currency", "kind", "state"}:
            continue
        rank, count = Counter(rank for rank, _ in ranked).most_common(1)[0]
        if count > 1 and rank == min(ranked)[0]:
            name = next(header[place].strip() for place_rank, place in ranked if place_rank == rank)
            raise StatementError("csv-column-twice", column=quoted(name))


def _kind_as_direction(
    places: dict[str, tuple[int, ...]], rows: Sequence[Sequence[str]]
) -> dict[str, tuple[int, ...]]:
    """A column of kinds that says Credit or Debit in each row is one of direction."""
    if "direction" not in places:
        for place in places.get("kind", ()):
            cells = [row[place].strip() if place < len(row) else "" for row in rows]
            if cells and all(is_direction(cell) for cell in cells):
                return places | {"direction": (place,)}
    return places
