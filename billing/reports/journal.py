"""The general ledger's journal: each event with its debits and credits, which add up to the same, in minor units.

Receivables are moved by documents, payments, wallets, credit balances and write-offs, so that the account comes to what
is left of all standing invoices, and the prepaid liability to the balances of all wallets of money.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, date
from enum import StrEnum
from operator import attrgetter
from typing import Any, TypeVar

from django.db.models import Model, QuerySet

from billing.documents.csv import Cell, rows_to_csv
from billing.models import (
    CreditEntry,
    CreditKind,
    DocumentKind,
    Invoice,
    InvoiceState,
    Payment,
    Voiding,
    WriteOff,
)
from billing.models.wallets import EntrySide, GrantKind, WalletEntry
from billing.reports.messages import SENTENCES
from billing.rules.money import TOKENS, Money
from portal.core.tenants.models import Tenant
from portal.errors import CodedError

_Row = TypeVar("_Row", bound=Model)
COLUMNS = (
    *(
        "entry",
        "date",
        "event",
        "account",
        "account_name",
        "tenant",
        "document",
        "currency",
        "debit",
        "credit",
    ),
    *("tax", "service_from", "service_to", "description"),
)


class Account(StrEnum):
    """What is booked on; the numbers are the operator's."""

    BANK = "bank"
    RECEIVABLES = "receivables"
    TAX = "tax"
    PREPAID = "prepaid"
    CREDIT_BALANCES = "credit-balances"
    REVENUE = "revenue"
    EXPIRED = "expired-credit"
    WRITE_OFFS = "write-offs"
    PROMOTION = "granted-credit"


NUMBERS: Mapping[Account, str] = {
    Account.BANK: "1000",
    Account.RECEIVABLES: "1200",
    Account.TAX: "2100",
    Account.PREPAID: "2200",
    Account.CREDIT_BALANCES: "2210",
    Account.REVENUE: "4000",
    Account.EXPIRED: "4100",
    Account.WRITE_OFFS: "6000",
    Account.PROMOTION: "6100",
}
"""Where nobody said others."""


class AccountsError(CodedError):
    """The numbers of accounts cannot be meant so; the message says why."""

    sentences = SENTENCES


def numbers_of(words: Iterable[str]) -> dict[Account, str]:
    """All numbers, with those of `receivables=10000` in place of the usual ones. Raises AccountsError."""
    numbers = dict(NUMBERS)
    for word in words:
        name, _, number = (part.strip() for part in word.partition("="))
        if name not in {*Account} or not number or not number.isprintable() or len(number) > 40:
            raise AccountsError("ledger-accounts", word=repr(word[:60]), allowed=", ".join(Account))
        numbers[Account(name)] = number
    return numbers


@dataclass(frozen=True, slots=True)
class Posting:
    """A debit above zero, or a credit below, in minor units."""

    account: Account
    amount: int
    tax: str = ""


@dataclass(frozen=True, slots=True)
class Entry:
    """One event on one day; its postings add up to zero."""

    key: str
    on: date
    event: str
    tenant: str
    document: str
    currency: str
    postings: tuple[Posting, ...]
    service: tuple[str, str] = ("", "")
    description: str = ""


def entries(*, since: date, until: date, tenant: Tenant | None = None) -> list[Entry]:
    """What happened on the days of [since, until), by day and key; what comes to nothing is left out. Nine queries.

    Of one tenant: what moves its receivables and credit balances, so of its wallets only what paid invoices.
    """
    of = {} if tenant is None else {"tenant": tenant}
    of_invoice = {} if tenant is None else {"invoice__tenant": tenant}
    of_wallet = {} if tenant is None else {"tenant": tenant, "side": EntrySide.INVOICE}
    found = [
        entry
        for source in (
            _documents(of),
            _voids(of_invoice),
            _payments(of),
            _credit_balances(of),
            _wallets(of_wallet),
            _write_offs(of_invoice),
        )
        for entry in source
        if since <= entry.on < until and any(posting.amount for posting in entry.postings)
    ]
    return sorted(found, key=lambda entry: (entry.on, _in_order(entry.key)))


def _in_order(key: str) -> str:
    """`payment-1000` behind `payment-999`: of one day what came first stands first."""
    return re.sub(r"\d+", lambda match: match[0].zfill(20), key)


def as_csv(found: Iterable[Entry], numbers: Mapping[Account, str]) -> Iterator[bytes]:
    """A row for each debit and credit, the columns first."""
    return rows_to_csv(COLUMNS, (row for entry in found for row in _rows(entry, numbers)))


def _rows(entry: Entry, numbers: Mapping[Account, str]) -> Iterator[tuple[Cell, ...]]:
    for posting in entry.postings:
        if not posting.amount:
            continue
        amount = Money.from_minor(abs(posting.amount), entry.currency).text
        sides = (amount, "") if posting.amount > 0 else ("", amount)
        yield (
            *(entry.key, entry.on, entry.event, numbers[posting.account], posting.account.value),
            *(entry.tenant, entry.document, entry.currency, *sides, posting.tax),
            *(*entry.service, entry.description),
        )


def _pieces(rows: QuerySet[_Row], of: Mapping[str, Any]) -> Iterable[_Row]:
    """Those of all tenants are read in pieces."""
    return rows if of else rows.iterator(chunk_size=2000)


def _documents(of: Mapping[str, Any]) -> Iterator[Entry]:
    """Invoices and credit notes as they were issued, those that became void too."""
    rows = Invoice.objects.filter(state__in=[InvoiceState.ISSUED, InvoiceState.VOID], **of)
    for invoice in _pieces(rows.select_related("tenant").prefetch_related("taxes"), of):
        if invoice.issued_on is not None:
            yield _document(invoice, f"document-{invoice.number}", invoice.kind, invoice.issued_on, 1)


def _voids(of: Mapping[str, Any]) -> Iterator[Entry]:
    """What became void, taken back on the day on which it did."""
    rows = Voiding.objects.filter(**of).select_related("invoice__tenant").prefetch_related("invoice__taxes")
    for row in _pieces(rows, of):
        yield _document(row.invoice, f"void-{row.invoice.number}", "void", row.on, -1, row.reason)


def _document(invoice: Invoice, key: str, event: str, on: date, sign: int, why: str = "") -> Entry:
    taxes = sorted(invoice.taxes.all(), key=attrgetter("category", "rate"))
    postings = [Posting(Account.RECEIVABLES, sign * invoice.total)]
    for row in taxes:
        name = f"{row.category} {row.rate.normalize():f} %"
        postings += [
            Posting(Account.REVENUE, -sign * row.net, name),
            Posting(Account.TAX, -sign * row.tax, name),
        ]
    rest = -sum(posting.amount for posting in postings)
    postings += [Posting(Account.REVENUE, rest)] if rest else []
    service = tuple(
        f"{at.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}" for at in (invoice.period_start, invoice.period_end)
    )
    return Entry(
        key,
        on,
        event,
        invoice.tenant.slug,
        invoice.number or "",
        invoice.currency,
        tuple(postings),
        (service[0], service[1]),
        why or invoice.reason,
    )


def _moved(amount: int, debit: Account, credit: Account) -> tuple[Posting, Posting]:
    return Posting(debit, amount), Posting(credit, -amount)


def _payments(of: Mapping[str, Any]) -> Iterator[Entry]:
    """What came by bank or card, or out of the tenant's credit balance."""
    rows = Payment.objects.filter(**of).select_related("invoice", "tenant", "credit_entry")
    for row in _pieces(rows, of):
        by_credit = getattr(row, "credit_entry", None) is not None
        source = Account.CREDIT_BALANCES if by_credit else Account.BANK
        yield Entry(
            f"payment-{row.pk}",
            row.received_on,
            "credit-balance" if by_credit else "payment",
            row.tenant.slug,
            row.invoice.number or "",
            row.invoice.currency,
            _moved(row.amount, source, Account.RECEIVABLES),
            description=row.reference,
        )


def _credit_balances(of: Mapping[str, Any]) -> Iterator[Entry]:
    """Money that came or went beside all invoices; what paid one is told with its payment."""
    kinds = (CreditKind.RECEIVED, CreditKind.PAID_BACK, CreditKind.WITHDRAWN)
    rows = CreditEntry.objects.filter(kind__in=kinds, **of).select_related("tenant")
    for row in _pieces(rows, of):
        yield Entry(
            f"credit-balance-{row.pk}",
            row.at.astimezone(row.tenant.zone).date(),
            f"credit-balance-{row.kind}",
            row.tenant.slug,
            "",
            row.currency,
            _moved(row.amount, Account.BANK, Account.CREDIT_BALANCES),
            description=row.memo,
        )


_BESIDE = {
    EntrySide.USED: Account.REVENUE,
    EntrySide.SPENT: Account.REVENUE,
    EntrySide.INVOICE: Account.RECEIVABLES,
    EntrySide.EXPIRED: Account.EXPIRED,
}


def _wallets(of: Mapping[str, Any]) -> Iterator[Entry]:
    """What was bought, given, used, paid and expired; tokens are no money."""
    rows = WalletEntry.objects.filter(**of).exclude(side=EntrySide.BALANCE).exclude(wallet__unit=TOKENS)
    rows = rows.select_related("wallet", "tenant", "grant", "invoice")
    for row in _pieces(rows, of):
        beside = _BESIDE.get(EntrySide(row.side)) or _given(row)
        yield Entry(
            f"wallet-{row.pk}",
            row.at.astimezone(row.tenant.zone).date(),
            f"wallet-{row.side}",
            row.tenant.slug,
            (row.invoice.number or "") if row.invoice is not None else "",
            row.wallet.unit,
            _moved(row.amount, Account.PREPAID, beside),
            description=row.memo,
        )


def _given(row: WalletEntry) -> Account:
    """Money where it was bought; a gift of the operator or of the scheme costs it something."""
    bought = row.grant is None or row.grant.kind == GrantKind.TOP_UP
    return Account.BANK if bought else Account.PROMOTION


def _write_offs(of: Mapping[str, Any]) -> Iterator[Entry]:
    """What is not expected any more, as far as it is not paid or credited after all: each event may change it."""
    written: dict[int, list[WriteOff]] = defaultdict(list)
    for row in WriteOff.objects.filter(**of).select_related("invoice__tenant").order_by("pk"):
        written[row.invoice_id].append(row)
    if not written:
        return
    unpaid = _unpaid(written)
    for pk, rows in written.items():
        invoice, stands, left, events = rows[0].invoice, 0, 0, [*unpaid[pk]]
        for row in rows:
            events.append((row.on, 1, f"write-off-{row.pk}", row.amount))
            if row.undone_at is not None:
                on = row.undone_at.astimezone(invoice.tenant.zone).date()
                events.append((on, 1, f"write-off-{row.pk}-undone", -row.amount))
        before = 0
        for on, is_write_off, key, amount in sorted(
            events, key=lambda event: (*event[:2], _in_order(event[2]))
        ):
            stands, left = (stands + amount, left) if is_write_off else (stands, left + amount)
            now = min(stands, max(left, 0))
            yield Entry(
                key if is_write_off else f"write-off-by-{key}",
                on,
                "write-off",
                invoice.tenant.slug,
                invoice.number or "",
                invoice.currency,
                _moved(now - before, Account.WRITE_OFFS, Account.RECEIVABLES),
            )
            before = now


def _unpaid(written: Mapping[int, Any]) -> dict[int, list[tuple[date, int, str, int]]]:
    """By invoice what changed what is left of it before any write-off: day, 0, key, minor units."""
    events: dict[int, list[tuple[date, int, str, int]]] = defaultdict(list)
    documents = Invoice.objects.filter(pk__in=written) | Invoice.objects.filter(
        original__in=written, kind=DocumentKind.CREDIT_NOTE, state=InvoiceState.ISSUED
    )
    for row in documents:
        if row.issued_on is not None:
            key = f"document-{row.number}"
            events[row.original_id or row.pk].append((row.issued_on, 0, key, row.total - row.prepaid))
    for pay in Payment.objects.filter(invoice__in=written):
        events[pay.invoice_id].append((pay.received_on, 0, f"payment-{pay.pk}", -pay.amount))
    return events
