"""A tenant's statement of account: what it was asked for and what it paid, with what it owes after each.

Owed is what is left of all standing invoices less the credit balance: the receivables and the credit balances of the
journal, of this tenant.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import date
from decimal import Decimal

from billing.documents.csv import Cell, rows_to_csv
from billing.reports import journal
from billing.reports.journal import Account, Entry
from billing.rules.money import Money
from portal.core.tenants.models import Tenant

OWED = (Account.RECEIVABLES, Account.CREDIT_BALANCES)
COLUMNS = ("date", "event", "document", "description", "currency", "charge", "payment", "balance")


@dataclass(frozen=True, slots=True)
class StatementRow:
    """One event: above zero it is owed more, below less. Minor units."""

    on: date
    event: str
    document: str
    description: str
    amount: int
    balance: int  # owed after it; below zero: the tenant has credit

    @property
    def payment(self) -> int:
        """By how much less is owed."""
        return -self.amount


@dataclass(slots=True)
class AccountStatement:
    """Of one currency. Minor units: `opening` is owed before the first day, `closing` after the last."""

    currency: str
    opening: int
    rows: list[StatementRow] = field(default_factory=list)

    @property
    def closing(self) -> int:
        return self.rows[-1].balance if self.rows else self.opening


def load_statements(tenant: Tenant, *, since: date, until: date) -> list[AccountStatement]:
    """What happened on the days of [since, until), a statement of each currency that the tenant ever owed in."""
    by_currency: dict[str, list[Entry]] = defaultdict(list)
    for entry in journal.entries(since=date.min, until=until, tenant=tenant):
        if _owed(entry):
            by_currency[entry.currency].append(entry)
    return [_statement(currency, entries, since) for currency, entries in sorted(by_currency.items())]


def _statement(currency: str, entries: Iterable[Entry], since: date) -> AccountStatement:
    statement = AccountStatement(currency, 0)
    for entry in entries:
        amount, balance = _owed(entry), statement.closing + _owed(entry)
        if entry.on < since:
            statement.opening = balance
        else:
            row = StatementRow(entry.on, entry.event, entry.document, entry.description, amount, balance)
            statement.rows.append(row)
    return statement


def _owed(entry: Entry) -> int:
    return sum(posting.amount for posting in entry.postings if posting.account in OWED)


def as_csv(statements: Iterable[AccountStatement]) -> Iterator[bytes]:
    """A row for each event, the columns first; each currency begins with what was owed before."""
    return rows_to_csv(COLUMNS, (row for statement in statements for row in _rows(statement)))


def _rows(statement: AccountStatement) -> Iterator[tuple[Cell, ...]]:
    def text(minor: int) -> Decimal:
        return Decimal(Money.from_minor(minor, statement.currency).text)

    yield ("", "opening", "", "", statement.currency, "", "", text(statement.opening))
    for row in statement.rows:
        sides: tuple[Cell, Cell] = (text(row.amount), "") if row.amount > 0 else ("", text(row.payment))
        yield (
            row.on,
            row.event,
            row.document,
            row.description,
            statement.currency,
            *sides,
            text(row.balance),
        )
