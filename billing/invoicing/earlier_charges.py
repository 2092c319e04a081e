"""What the closes of earlier open periods bill: months are closed in order, so the next period's invoice lacks it.

A statement has all that is owed up to its period's end and not billed yet. While an earlier period is open, that is its
charges, too, with corrections and fees in advance that its own close bills.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from decimal import Decimal

from billing.invoicing.statement_inputs import StatementInputs
from billing.invoicing.statements import MixedCurrenciesError, Statement, WholeStatements
from billing.models import BillingPeriod
from billing.rules.statement_lines import Key, Line
from portal.core.tenants.models import Tenant

Subject = tuple[int | None, Key, Decimal | None, str]
"""Whose use a line charges for, where another pays, and what for: lines of one subject are about the same."""


def list_before(period: BillingPeriod, inputs: StatementInputs) -> list[BillingPeriod]:
    """The last open period before this one, whose statement has what all of them bill; none where all are closed."""
    return [row for row in _list_open(period, inputs) if row.end <= period.start][-1:]


def read_earlier(made: WholeStatements, tenant: Tenant) -> Statement | None:
    """The statement of that period; None where there is none, or it is in two currencies."""
    earlier = made.before.get(tenant.pk)
    return None if isinstance(earlier, MixedCurrenciesError) else earlier


def subtract(due: Statement, earlier: Statement | None) -> Statement:
    """What is left to be billed by the period's own close. A discount can be in part on a fee billed in advance."""
    billed = {_subject(one, line): line for one in (_parts(earlier) if earlier else ()) for line in one.lines}

    def rest(one: Statement) -> Statement:
        lines = [_less(line, billed.get(_subject(one, line))) for line in one.lines]
        return replace(one, lines=[line for line in lines if line is not None])

    return replace(rest(due), others=tuple(map(rest, due.others)), paid=tuple(map(rest, due.paid)))


def takes_manual_lines(
    period: BillingPeriod, own: Statement, earlier: Statement | None, inputs: StatementInputs
) -> bool:
    """Whether lines by hand go on this period's invoice: of all open periods, on that of the first with a charge.

    Periods that were never closed, since they cost nothing, are passed over. Without any charge it is the last one.
    """
    if earlier is not None and any(one.lines for one in _parts(earlier)):
        return False
    is_last = _list_open(period, inputs)[-1:] == [period]
    return is_last or any(one.lines for one in _parts(own))


def _list_open(period: BillingPeriod, inputs: StatementInputs) -> list[BillingPeriod]:
    return [row for row in inputs.calendars[period.tenant_id] if row.closed_at is None]


def _parts(statement: Statement) -> Iterator[Statement]:
    yield from (statement, *statement.others, *statement.paid)


def _subject(statement: Statement, line: Line) -> Subject:
    user = statement.user.pk if statement.user else None
    return user, line.key, line.former_price, line.amount.currency


def _less(line: Line, billed: Line | None) -> Line | None:
    if billed is None:
        return line
    seconds, amount = line.resource_seconds - billed.resource_seconds, line.amount - billed.amount
    return replace(line, resource_seconds=seconds, amount=amount) if seconds or amount.amount else None
