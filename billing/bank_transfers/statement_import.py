"""Taking bank statements in: each entry once for ever, however many files have it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from hashlib import sha256

from django.db import connection, transaction

from billing.bank_transfers import camt, csv_statement, duplicate_check, matching
from billing.bank_transfers.entities import (
    BadEntry,
    Entry,
    ReadOptions,
    Statement,
    StatementError,
    hash_reference,
    hide_payer,
)
from billing.models import BankStatement, RefusedEntry, Seller, Transfer, TransferState
from billing.rules.bank_entries import EntryError
from billing.rules.period import newest_day
from billing.wallets import batch
from portal.days import is_in_range
from portal.errors import storable

AS_IT_IS = ReadOptions()
"""A file of which nobody says anything."""


@dataclass(slots=True)
class ImportResult:
    """What came of a file; amounts of `states` are how many entries became what."""

    statements: list[BankStatement] = field(default_factory=list)
    duplicates: int = 0  # entries that were taken in before
    refused: list[BadEntry] = field(default_factory=list)
    rows: list[Transfer] = field(default_factory=list)
    finished: list[Transfer] = field(default_factory=list)  # left by an import that was killed, matched now

    @property
    def states(self) -> Counter[str]:
        return Counter(row.state for row in self.rows)


def import_statement(
    *,
    data: bytes,
    name: str,
    by: str,
    moment: datetime,
    options: ReadOptions = AS_IT_IS,
    preview: bool = False,
    most: int | None = None,
) -> ImportResult:
    """Take a file in and match what is new in it; the same file, or one that overlaps, books nothing twice.

    What an import that was killed had kept and not matched is matched too, whether or not a worker runs. `preview`
    does all of it and keeps nothing. `most` are matched here, the others by a worker. Raises StatementError, and then
    nothing was kept.
    """
    statements = [_set_aside(statement, moment) for statement in read_statements(data, options)]
    with transaction.atomic():
        _lock_imports()
        done = _save_statements(statements, data, name, by, moment)
        if preview:
            _match_new(done, moment, None)
            transaction.set_rollback(True)
    if not preview:
        _match_new(done, moment, most, _load_unmatched(done))
    return done


def read_statements(data: bytes, options: ReadOptions = AS_IT_IS) -> list[Statement]:
    """The statements of a file that are of the account that is named, or that invoices ask to pay to.

    Raises StatementError where there is none.
    """
    seller = next(iter(Seller.objects.order_by("pk").values_list("iban", flat=True)), "")
    ours = _compact(options.account or seller)
    looks = "camt" if data.lstrip(b"\xef\xbb\xbf \r\n\t").startswith(b"<") else "csv"
    if (options.form or looks) == "camt":
        return camt.read_camt(data, account=ours, unchecked=options.unchecked)
    if not ours:
        raise StatementError("csv-account")
    return [csv_statement.read_csv(data, replace(options, account=ours, currency=options.currency.upper()))]


def _set_aside(statement: Statement, moment: datetime) -> Statement:
    """With what is booked on no day that a bank books on among its bad entries."""
    last = newest_day(moment)
    entries: list[Entry] = []
    bad: list[BadEntry] = []
    for entry in statement.entries:
        day = entry.booked_on
        if is_in_range(day) and day <= last:
            entries.append(entry)
        else:
            error = EntryError("booked-on-impossible", day=day)
            bad.append(BadEntry(place=entry.bank_reference or f"{day}", error=error, raw=entry.raw))
    return replace(statement, entries=tuple(entries), bad=(*statement.bad, *bad))


def _lock_imports() -> None:
    """Until the transaction ends nobody else takes a statement in: the second of two finds the first one's entries."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_advisory_xact_lock(%s)", [_IMPORTS])


_IMPORTS = 0x1BA4C0
"""The advisory lock of whoever takes a statement in; the number only has to be ours."""


def _save_statements(
    statements: Sequence[Statement], data: bytes, name: str, by: str, moment: datetime
) -> ImportResult:
    done = ImportResult()
    digest = sha256(data).hexdigest()
    for statement in statements:
        existing = BankStatement.objects.filter(sha256=digest, account=statement.account, name=statement.name)
        if existing.exists():
            done.duplicates += len(statement.entries)
            continue
        row = BankStatement.objects.create(
            account=statement.account,
            currency=statement.currency[:3],
            name=statement.name,
            form=statement.form,
            opening=statement.opening,
            closing=statement.closing,
            file=name[:200],
            sha256=digest,
            entries=len(statement.entries) + len(statement.bad),
            new=0,
            pending=statement.pending,
            imported_at=moment,
            imported_by=by[:200],
        )
        new = _save_entries(row, statement, done)
        row.new, row.refused = new, _save_bad_entries(row, statement, done)
        row.save()
        done.statements.append(row)
    return done


def _save_entries(row: BankStatement, statement: Statement, done: ImportResult) -> int:
    keyed, otherwise = _entry_keys(statement)
    existing = _find_existing(statement.account, keyed, otherwise)
    fresh = []
    for key, entry in keyed.items():
        same = existing.get(key)
        if same is None:
            fresh.append(_make_transfer(row, key, entry))
        elif (same.amount, same.currency, same.booked_on) == (entry.amount, entry.currency, entry.booked_on):
            done.duplicates += 1
        else:
            name, amount = entry.bank_reference, matching.format_amount(same)
            error = EntryError("bank-id-used", name=name, amount=amount, day=same.booked_on)
            _save_bad_entry(row, BadEntry(place=name, error=error, raw=entry.raw), done)
    duplicate_check.hold_duplicates(fresh)
    done.rows += Transfer.objects.bulk_create(fresh)
    return len(fresh)


def _find_existing(
    account: str, keyed: Mapping[str, Entry], otherwise: Mapping[str, str]
) -> dict[str, Transfer | None]:
    """By the key that it has in this statement, the same entry as it is kept, if it is.

    A statement that has both spellings of a name has two entries, of which one is not the other: one of them is known
    by another key only where two of that name are kept.
    """
    by_key = {row.key: row for row in Transfer.objects.filter(key__in=[*keyed, *otherwise.values()])}
    existing: dict[str, Transfer | None] = {}
    for key, entry in keyed.items():
        other = otherwise.get(key, key)
        other_entry = keyed.get(other) if other != key else None
        if key in by_key or other_entry is None:
            existing[key] = by_key.get(key) or by_key.get(other)
            continue
        alike = Transfer.objects.filter(
            account=account, amount=entry.amount, currency=entry.currency, booked_on=entry.booked_on
        )
        names = (entry.bank_reference, other_entry.bank_reference)
        existing[key] = alike.filter(bank_reference__in=names).exclude(key__in=keyed).first()
    return existing


def _entry_keys(statement: Statement) -> tuple[dict[str, Entry], dict[str, str]]:
    """By the name that an entry has for ever: the bank's, or its content, and its place among equals of that day.

    And the name under which the same entry is kept where another file, or an earlier version, told less or more of
    who paid: as it is, or as a hash.
    """
    entries: dict[str, Entry] = {}
    otherwise: dict[str, str] = {}
    equals: Counter[str] = Counter()
    for original in statement.entries:
        entry = hide_payer(original)
        way = "+" if entry.amount > 0 else "-"
        if entry.bank_reference:
            key = f"{statement.account}{way}{entry.bank_reference}"
            if key not in entries:
                entries[key] = entry
                other = (
                    hash_reference(original.bank_reference) if entry is original else original.bank_reference
                )
                otherwise[key] = f"{statement.account}{way}{other}"
                continue
        content = f"{statement.account}{way}{entry.fingerprint}"
        equals[content] += 1
        entries[f"{content}#{equals[content]}"] = entry
    return entries, otherwise


def _make_transfer(row: BankStatement, key: str, entry: Entry) -> Transfer:
    return Transfer(
        statement=row,
        key=key,
        account=row.account,
        amount=entry.amount,
        currency=entry.currency,
        booked_on=entry.booked_on,
        payer=entry.payer,
        payer_iban=entry.payer_iban,
        text=entry.text,
        reference=entry.reference,
        bank_reference=entry.bank_reference,
        end_to_end=entry.end_to_end,
        reversal=entry.reversal,
        raw=entry.raw,
        state=TransferState.NEW,
    )


def _save_bad_entries(row: BankStatement, statement: Statement, done: ImportResult) -> int:
    for bad in statement.bad:
        _save_bad_entry(row, bad, done)
    return row.refusals.count()


def _save_bad_entry(row: BankStatement, bad: BadEntry, done: ImportResult) -> None:
    RefusedEntry.objects.get_or_create(
        account=row.account,
        digest=sha256(bad.raw.encode()).hexdigest(),
        defaults={
            "statement": row,
            "place": bad.place[:40],
            "code": bad.error.code,
            "values": storable(bad.error.values),
            "raw": bad.raw,
        },
    )
    done.refused.append(bad)


def _match_new(done: ImportResult, moment: datetime, most: int | None, left: Sequence[Transfer] = ()) -> None:
    """A kill leaves the rest to the next import or a worker, and so does a transfer that fails: the log has why.

    No outbox: what it does is one transaction, and each transfer needs its own.
    """
    matched: dict[int, Transfer] = {}

    def one(row: Transfer) -> None:
        matched[row.pk] = matching.match_transfer(transfer=row.pk, moment=moment)

    with suppress(batch.LeftOverError):
        batch.run_isolated(sorted([*done.rows, *left], key=matching.matching_order)[:most], one)
    done.rows = [matched.get(row.pk, row) for row in done.rows]
    done.finished = [matched[row.pk] for row in left if row.pk in matched]


def _load_unmatched(done: ImportResult) -> list[Transfer]:
    """What an earlier import kept and did not come to match."""
    new = [row.pk for row in done.rows]
    return list(Transfer.objects.filter(state=TransferState.NEW).exclude(pk__in=new))


def _compact(account: str) -> str:
    return "".join(account.split()).upper()
